"""What a client asks before it asks for objects: versions, groups, resources, health."""

from scheduler.lab.apiserver.objects import Json
from scheduler.lab.apiserver.resources import RESOURCES, Resource

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCE_VERBS = ["get", "patch", "update"]


def version_info(version: str) -> Json:
    """Body of `/version`.

    Args:
        version: such as `1.37.2`.
    """
    major, minor, _ = version.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{version}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


def discover(parts: list[str]) -> Json | None:
    """Body of a discovery path, or None when the path is none.

    Args:
        parts: segments of the path: `["apis", "resource.k8s.io", "v1"]`.
    """
    match parts:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return _group_list()
        case ["api", version]:
            return _resource_list("", version)
        case ["apis", group] if group:
            known = {"kind": "APIGroup", "apiVersion": "v1"}
            return {**known, **_group(group)} if _versions(group) else None
        case ["apis", group, version]:
            return _resource_list(group, version)
        case _:
            return None


def _group_list() -> Json:
    groups = dict.fromkeys(resource.group for resource in RESOURCES if resource.group)
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(group) for group in groups],
    }


def _versions(group: str) -> list[str]:
    found = (version for r in RESOURCES if r.group == group for version in r.versions)
    return list(dict.fromkeys(found))


def _group(group: str) -> Json:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version} for version in _versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(group: str, version: str) -> Json | None:
    served = [r for r in RESOURCES if r.group == group and version in r.versions]
    if not served:
        return None
    entries = []
    for resource in served:
        entries.append(_entry(resource))
        entries.extend(_subresource_entry(resource, sub) for sub in sorted(resource.subresources))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": entries,
    }


def _entry(resource: Resource) -> Json:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    return entry


def _subresource_entry(resource: Resource, subresource: str) -> Json:
    binding = subresource == "binding"
    return {
        "name": f"{resource.plural}/{subresource}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": "Binding" if binding else resource.kind,
        "verbs": ["create"] if binding else _SUBRESOURCE_VERBS,
    }
