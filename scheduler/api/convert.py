"""Older API versions of `resource.k8s.io`, brought into the shape of v1. Works on plain dicts, changes no input.

v1beta2 and v1 have the same shape. v1beta1 keeps device fields under `basic` and request fields beside the name.
v1alpha3 has DeviceTaintRule only. Nothing is lost: fields that are unknown stay where they are.
Source: pkg/apis/resource/v1beta1/conversion.go; docs/design/api-versions.md#conversion.
"""

from typing import Any, Final

GROUP: Final = "resource.k8s.io"
V1: Final = f"{GROUP}/v1"

# kind → the API versions that are understood, newest first
_RESOURCE_VERSIONS: Final = (V1, f"{GROUP}/v1beta2", f"{GROUP}/v1beta1")
KNOWN_VERSIONS: Final[dict[str, tuple[str, ...]]] = {
    "ResourceClaim": _RESOURCE_VERSIONS,
    "ResourceClaimTemplate": _RESOURCE_VERSIONS,
    "ResourceSlice": _RESOURCE_VERSIONS,
    "DeviceClass": _RESOURCE_VERSIONS,
    "DeviceTaintRule": (V1, f"{GROUP}/v1beta2", f"{GROUP}/v1alpha3"),
    "Pod": ("v1",),
    "Node": ("v1",),
    "Namespace": ("v1",),
    "PriorityClass": ("scheduling.k8s.io/v1",),
    "Job": ("batch/v1",),
    "Deployment": ("apps/v1",),
    "ReplicaSet": ("apps/v1",),
    "StatefulSet": ("apps/v1",),
    "DaemonSet": ("apps/v1",),
}

_EXACT_FIELDS: Final = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
)

Json = dict[str, Any]


class UnknownVersionError(ValueError):
    """The kind is known, its API version is not."""

    def __init__(self, kind: str, api_version: str) -> None:
        super().__init__(kind, api_version)
        self.kind = kind
        self.api_version = api_version

    def __str__(self) -> str:
        known = ", ".join(KNOWN_VERSIONS[self.kind])
        return f"{self.kind} has no version {self.api_version[:80]!r} here; known: {known}"


def to_v1(kind: str, obj: Json) -> Json:
    """Convert an object of a known kind to the newest version.

    Values of unexpected type are passed on as they are: decoding reports them, with their path.

    Raises:
        UnknownVersionError: `apiVersion` is set and not one of `KNOWN_VERSIONS[kind]`.
    """
    versions = KNOWN_VERSIONS[kind]
    api_version = obj.get("apiVersion")
    if api_version is None or api_version == versions[0]:
        return obj
    if api_version not in versions:
        raise UnknownVersionError(kind, str(api_version))
    converted = {**obj, "apiVersion": versions[0]}
    if api_version == f"{GROUP}/v1beta1":
        spec = obj.get("spec")
        if isinstance(spec, dict):
            converted["spec"] = _convert_spec(kind, spec)
    return converted


def _convert_spec(kind: str, spec: Json) -> Json:
    match kind:
        case "ResourceSlice":
            return _convert_slice_spec(spec)
        case "ResourceClaim":
            return _convert_claim_spec(spec)
        case "ResourceClaimTemplate" if isinstance(spec.get("spec"), dict):
            return {**spec, "spec": _convert_claim_spec(spec["spec"])}
        case _:
            return spec


def _convert_slice_spec(spec: Json) -> Json:
    converted = dict(spec)
    # In v1beta1 these are no pointers: an empty value is the same as none.
    if converted.get("nodeName") == "":
        del converted["nodeName"]
    if converted.get("allNodes") is False:
        del converted["allNodes"]
    devices = spec.get("devices")
    if isinstance(devices, list):
        converted["devices"] = [_flatten(device) for device in devices]
    return converted


def _flatten(device: Any) -> Any:
    """Lift the fields under `basic` to the device; a device without `basic` has no fields, and is valid."""
    if not isinstance(device, dict):
        return device
    basic = device.get("basic")
    rest = {key: value for key, value in device.items() if key != "basic"}
    if basic is None:
        return rest
    if not isinstance(basic, dict):
        return device
    return {**rest, **basic}


def _convert_claim_spec(spec: Json) -> Json:
    devices = spec.get("devices")
    if not isinstance(devices, dict) or not isinstance(devices.get("requests"), list):
        return spec
    requests = [_nest(request) for request in devices["requests"]]
    return {**spec, "devices": {**devices, "requests": requests}}


def _nest(request: Any) -> Any:
    """Move the fields of a plain request under `exactly`; made only if any of them is set."""
    if not isinstance(request, dict):
        return request
    flat = {
        key: value
        for key, value in request.items()
        if key in _EXACT_FIELDS and value not in (None, "")
    }
    if not flat:
        return {key: value for key, value in request.items() if key not in _EXACT_FIELDS}
    rest = {key: value for key, value in request.items() if key not in _EXACT_FIELDS}
    return {**rest, "exactly": flat}
