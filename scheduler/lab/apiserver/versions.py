"""Between the shape that is stored (v1; core/v1 for events) and the other versions of the same objects.

Reading of older shapes is `scheduler.api.convert`'s; this module adds the way back, which only a server needs.
"""

from collections.abc import Mapping

from scheduler.api.convert import to_v1
from scheduler.lab.apiserver.objects import Json, spec
from scheduler.lab.apiserver.resources import GROUP_EVENTS, Resource

# events.k8s.io/v1 name -> core/v1 name.
_EVENT_NAMES: Mapping[str, str] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_EVENT_NAMES_BACK = {core: group for group, core in _EVENT_NAMES.items()}


def is_stored_shape(resource: Resource, version: str) -> bool:
    """Whether objects of this version look as they are stored."""
    return resource is not GROUP_EVENTS and version != "v1beta1"


def to_stored(resource: Resource, version: str, obj: Json) -> Json:
    """Bring a client's object into the stored shape."""
    if resource is GROUP_EVENTS:
        return _renamed(obj, _EVENT_NAMES)
    if version == "v1beta1":
        return to_v1(resource.kind, {**obj, "apiVersion": resource.api_version(version)})
    return obj


def from_stored(resource: Resource, version: str, obj: Json) -> Json:
    """Bring a stored object into the shape of a version. The argument is not changed."""
    if resource is GROUP_EVENTS:
        return _renamed(obj, _EVENT_NAMES_BACK)
    if version == "v1beta1":
        return _to_v1beta1(resource, obj)
    return obj


def _renamed(obj: Json, names: Mapping[str, str]) -> Json:
    return {names.get(key, key): value for key, value in obj.items()}


def _to_v1beta1(resource: Resource, obj: Json) -> Json:
    if "spec" not in obj:
        return obj
    match resource.kind:
        case "ResourceClaim":
            return {**obj, "spec": _claim_to_v1beta1(spec(obj))}
        case "ResourceClaimTemplate":
            claim = _claim_to_v1beta1(spec(obj).get("spec") or {})
            return {**obj, "spec": {**spec(obj), "spec": claim}}
        case "ResourceSlice":
            return {**obj, "spec": _slice_to_v1beta1(spec(obj))}
        case _:
            return obj


def _claim_to_v1beta1(claim: Json) -> Json:
    devices = claim.get("devices")
    if not isinstance(devices, dict) or not isinstance(devices.get("requests"), list):
        return claim
    requests = [
        {
            **{key: value for key, value in request.items() if key != "exactly"},
            **(request.get("exactly") or {}),
        }
        for request in devices["requests"]
    ]
    return {**claim, "devices": {**devices, "requests": requests}}


def _slice_to_v1beta1(slice_spec: Json) -> Json:
    devices = slice_spec.get("devices")
    if not isinstance(devices, list):
        return slice_spec
    changed = [
        {
            "name": device.get("name"),
            "basic": {key: value for key, value in device.items() if key != "name"},
        }
        for device in devices
    ]
    return {**slice_spec, "devices": changed}
