"""What the API server fills in and leaves out when an object is created, for objects that never met one.

Works on plain v1 dicts and changes no input. Values of unexpected type are passed on; decoding reports them.
Source: pkg/apis/resource/v1/defaults.go, the registry strategies; docs/design/api-versions.md#defaults.
"""

from collections.abc import Callable
from typing import Any, Final

from allocator.features import Features

Json = dict[str, Any]

_RESULTS: Final = ("status", "allocation", "devices", "results")


def with_defaults(kind: str, obj: Json) -> Json:
    """Fill in allocation mode, count and toleration operator of requests, and amounts that a slice leaves out.

    Differs from what one expects: a capacity or counter without `value` is accepted and has none.

    `timeAdded` of taints is left alone: it would make the result depend on the clock.
    """
    if kind == "ResourceClaim":
        changed = _at(obj, ("spec", "devices", "requests"), _each(_default_request))
        return dict(_at(changed, _RESULTS, _each(_default_result)))
    if kind == "ResourceClaimTemplate":
        path = ("spec", "spec", "devices", "requests")
        return dict(_at(obj, path, _each(_default_request)))
    if kind == "ResourceSlice":
        return dict(_at(obj, ("spec",), _default_amounts))
    return obj


def _default_amounts(spec: Any) -> Any:
    def amount(value: Json) -> Json:
        return value if value.get("value") is not None else {**value, "value": "0"}

    def counters(holder: Json) -> Json:
        return dict(_at(holder, ("counters",), _each_value(amount)))

    def device(value: Json) -> Json:
        changed = _at(value, ("capacity",), _each_value(amount))
        return dict(_at(changed, ("consumesCounters",), _each(counters)))

    changed = _at(spec, ("devices",), _each(device))
    return _at(changed, ("sharedCounters",), _each(counters))


def _at(value: Any, path: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """Copy nested dicts along a path with the value at its end changed; unchanged if the path is not there."""
    if not path:
        return change(value)
    if not isinstance(value, dict) or value.get(path[0]) is None:
        return value
    return {**value, path[0]: _at(value[path[0]], path[1:], change)}


def _each(change: Callable[[Json], Json]) -> Callable[[Any], Any]:
    """Apply a change to every object in a list."""

    def apply(items: Any) -> Any:
        if not isinstance(items, list):
            return items
        return [change(item) if isinstance(item, dict) else item for item in items]

    return apply


def _default_request(request: Json) -> Json:
    changed = _at(request, ("exactly",), _default_device_request)
    changed = _at(changed, ("firstAvailable",), _each(_default_device_request))
    return dict(changed)


def _default_device_request(request: Any) -> Any:
    if not isinstance(request, dict):
        return request
    changed = dict(request)
    if not changed.get("allocationMode"):
        changed["allocationMode"] = "ExactCount"
    if changed["allocationMode"] == "ExactCount" and changed.get("count") in (None, 0):
        changed["count"] = 1
    return dict(_at(changed, ("tolerations",), _each(_default_toleration)))


def _default_result(result: Json) -> Json:
    return dict(_at(result, ("tolerations",), _each(_default_toleration)))


def _default_toleration(toleration: Json) -> Json:
    return toleration if toleration.get("operator") else {**toleration, "operator": "Equal"}


def without_disabled_fields(kind: str, obj: Json, features: Features) -> Json:
    """Drop the fields whose feature gate is off, as the API server does when an object is created."""
    match kind:
        case "ResourceClaim":
            pruned = _at(obj, ("spec", "devices"), lambda devices: _prune_claim(devices, features))
            return dict(
                _at(pruned, _RESULTS, _each(lambda result: _prune_result(result, features)))
            )
        case "ResourceClaimTemplate":
            path = ("spec", "spec", "devices")
            return dict(_at(obj, path, lambda devices: _prune_claim(devices, features)))
        case "ResourceSlice":
            return dict(_at(obj, ("spec",), lambda spec: _prune_slice(spec, features)))
        case _:
            return obj


def _without(value: Json, *fields: tuple[bool, str]) -> Json:
    """Copy without the fields whose flag is false."""
    dropped = {name for enabled, name in fields if not enabled}
    if dropped.isdisjoint(value):
        return value
    return {name: item for name, item in value.items() if name not in dropped}


def _prune_claim(devices: Any, features: Features) -> Any:
    if not isinstance(devices, dict):
        return devices

    def device_request(request: Any) -> Any:
        if not isinstance(request, dict):
            return request
        return _without(
            request,
            (features.admin_access, "adminAccess"),
            (features.device_taints, "tolerations"),
            (features.consumable_capacity, "capacity"),
            (features.derived_attributes, "derivedAttributes"),
        )

    def request(value: Json) -> Json:
        pruned = _without(value, (features.prioritized_list, "firstAvailable"))
        pruned = _at(pruned, ("exactly",), device_request)
        return dict(_at(pruned, ("firstAvailable",), _each(device_request)))

    def constraint(value: Json) -> Json:
        return _without(value, (features.consumable_capacity, "distinctAttribute"))

    pruned = _at(devices, ("requests",), _each(request))
    return _at(pruned, ("constraints",), _each(constraint))


def _prune_result(result: Json, features: Features) -> Json:
    return _without(result, (features.optional_node_operations, "skipNodeOperations"))


def _prune_slice(spec: Any, features: Features) -> Any:
    if not isinstance(spec, dict):
        return spec
    pruned = _without(
        spec,
        (features.partitionable_devices, "sharedCounters"),
        (features.partitionable_devices, "perDeviceNodeSelection"),
        (features.partitionable_devices_type, "partitionTypeAttribute"),
        (features.optional_node_operations, "skipNodeOperations"),
    )
    return _at(pruned, ("devices",), _each(lambda device: _prune_device(device, features)))


def _prune_device(device: Json, features: Features) -> Json:
    pruned = _without(
        device,
        (features.partitionable_devices, "consumesCounters"),
        (features.partitionable_devices, "nodeName"),
        (features.partitionable_devices, "nodeSelector"),
        (features.partitionable_devices, "allNodes"),
        (features.device_taints, "taints"),
        (features.binding, "bindsToNode"),
        (features.binding, "bindingConditions"),
        (features.binding, "bindingFailureConditions"),
        (features.consumable_capacity, "allowMultipleAllocations"),
        (features.node_allocatable_resources, "nodeAllocatableResources"),
    )

    def capacity(value: Json) -> Json:
        return _without(value, (features.consumable_capacity, "requestPolicy"))

    def attribute(value: Json) -> Json:
        lists = ("ints", "bools", "strings", "versions")
        return _without(value, *((features.list_type_attributes, name) for name in lists))

    def consumption(value: Json) -> Json:
        return _without(value, (features.device_compatibility_groups, "compatibilityGroups"))

    pruned = _at(pruned, ("attributes",), _each_value(attribute))
    pruned = _at(pruned, ("capacity",), _each_value(capacity))
    return dict(_at(pruned, ("consumesCounters",), _each(consumption)))


def _each_value(change: Callable[[Json], Json]) -> Callable[[Any], Any]:
    """Apply a change to every object in a map."""

    def apply(items: Any) -> Any:
        if not isinstance(items, dict):
            return items
        return {
            key: change(item) if isinstance(item, dict) else item for key, item in items.items()
        }

    return apply
