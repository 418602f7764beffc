"""ResourceSlices. Source: docs/design/api-versions.md#slices."""

from typing import Final

from allocator.features import Features
from scheduler.validation import formats
from scheduler.validation.amounts import check_request_policy
from scheduler.validation.common import (
    check_binding_conditions,
    check_format,
    check_node_selector,
    check_skip_node_operations,
    check_taint,
)
from scheduler.validation.cursor import Cursor

_MAX_DEVICES: Final = 128
_MAX_DEVICES_WITH_ADVANCED_FEATURES: Final = 64
_MAX_ENTRIES: Final = 32
_MAX_ATTRIBUTE_VALUES: Final = 48
_MAX_VALUE_LENGTH: Final = 64
_MAX_TAINTS: Final = 16
_MAX_CONSUMED_SETS: Final = 2
_MAX_COMPATIBILITY_GROUPS: Final = 2
_MAX_COUNTER_SETS: Final = 8
_MAX_COUNTERS: Final = 32
_LISTS: Final = ("ints", "bools", "strings", "versions")
_VALUES: Final = ("int", "bool", "string", "version", *_LISTS)


def check_slice(obj: Cursor, features: Features) -> None:
    """Check a slice."""
    spec = obj["spec"]
    check_format(spec["driver"], "driver-name", formats.driver_name)
    if spec["driver"].text != spec["driver"].text.lower():
        spec["driver"].report("driver-case", "should be in lower case")
    pool = spec["pool"]
    check_format(pool["name"], "pool-name", formats.pool_name)
    if pool["resourceSliceCount"].number <= 0:
        pool["resourceSliceCount"].report("pool-counts", "must be greater than 0")
    if pool["generation"].number < 0:
        pool["generation"].report("pool-counts", "must not be negative")
    _check_node_selection(spec)
    if spec["sharedCounters"].present and spec["devices"].present:
        spec.report("devices-or-counters", "sharedCounters and devices cannot both be set")
    devices = spec["devices"]
    advanced = any(_is_advanced(device) for device in devices.items())
    devices.limit("devices", _MAX_DEVICES_WITH_ADVANCED_FEATURES if advanced else _MAX_DEVICES)
    devices.unique("devices", "name")
    per_device = spec["perDeviceNodeSelection"].value is True
    for device in devices.items():
        _check_device(device, spec["driver"].text, per_device=per_device, features=features)
    _check_shared_counters(spec["sharedCounters"])
    _check_partition_type(spec)
    check_skip_node_operations(spec["skipNodeOperations"])


def _check_node_selection(spec: Cursor) -> None:
    chosen = []
    node_name = spec["nodeName"]
    if node_name.present:
        if node_name.text:
            chosen.append("nodeName")
        check_format(node_name, "node-selection", formats.subdomain)
    if spec["nodeSelector"].present:
        chosen.append("nodeSelector")
        check_node_selector(spec["nodeSelector"], one_term=True)
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec[field].present:
            if spec[field].value:
                chosen.append(field)
            else:
                spec[field].report("node-selection", "must be true or absent")
    if len(chosen) != 1:
        given = f"; set are {', '.join(chosen)}" if chosen else "; none is set"
        spec.report(
            "node-selection",
            f"exactly one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection is required{given}",
        )


def _is_advanced(device: Cursor) -> bool:
    return bool(
        device["taints"].size
        or device["consumesCounters"].size
        or any(
            attribute.get(name)
            for attribute in (device["attributes"].value or {}).values()
            for name in _LISTS
        )
    )


def _check_device(device: Cursor, driver: str, *, per_device: bool, features: Features) -> None:
    check_format(device["name"], "device-name", formats.label)
    _check_entries(device, driver)
    shared = device["allowMultipleAllocations"].value is True
    for key, attribute in device["attributes"].entries():
        _check_qualified(attribute, key)
        _check_attribute(attribute)
    for key, capacity in device["capacity"].entries():
        _check_qualified(capacity, key)
        _check_negative(capacity["value"])
        if capacity["requestPolicy"].present:
            if shared:
                check_request_policy(capacity, features)
            else:
                capacity["requestPolicy"].report(
                    "request-policy", "needs allowMultipleAllocations: true on the device"
                )
    device["taints"].limit("taint", _MAX_TAINTS)
    for taint in device["taints"].items():
        check_taint(taint)
    _check_consumed_counters(device["consumesCounters"])
    _check_device_node_selection(device, per_device=per_device)
    check_binding_conditions(device)
    _check_node_allocatable(device)


def _check_entries(device: Cursor, driver: str) -> None:
    entries = device["attributes"].size + device["capacity"].size
    if entries > _MAX_ENTRIES:
        device.report(
            "device-entries",
            f"attributes and capacities together must be at most {_MAX_ENTRIES}, are {entries}",
        )
    values = sum(
        max(1, sum(len(attribute.get(name) or ()) for name in _LISTS))
        for attribute in (device["attributes"].value or {}).values()
    )
    if values > _MAX_ATTRIBUTE_VALUES:
        device.report(
            "device-entries",
            f"attribute values must be at most {_MAX_ATTRIBUTE_VALUES}, are {values}",
        )
    for field in ("attributes", "capacity"):
        _check_shadowed(device[field], driver)


def _check_shadowed(entries: Cursor, driver: str) -> None:
    names = entries.value or {}
    if not any(key.startswith(f"{driver}/") for key in names):
        return
    for key, entry in entries.entries():
        if "/" not in key and f"{driver}/{key}" in names:
            entry.report(
                "shadowed-attribute", f"{driver}/{key} is set too; only one of them takes effect"
            )


def _check_qualified(place: Cursor, key: str) -> None:
    if problem := formats.qualified_name(key):
        place.report("qualified-name", problem)
    elif key.count("/") > 1:
        place.report("name-with-two-slashes", "has more than one slash: no selector can name it")


def _check_attribute(attribute: Cursor) -> None:
    fields = attribute.value
    given = [name for name in _VALUES if fields.get(name) is not None]
    if len(given) != 1:
        what = f"has {', '.join(given)}" if given else "has no value"
        attribute.report("attribute-value", f"exactly one value field is required; {what}")
        return
    value = attribute[given[0]]
    if given[0] in _LISTS and not value.size:
        value.report("attribute-value", "must not be empty")
    for item in value.items() if given[0] in _LISTS else (value,):
        if not isinstance(item.value, str):
            continue
        if len(item.text.encode()) > _MAX_VALUE_LENGTH:
            item.report("attribute-value", f"must have at most {_MAX_VALUE_LENGTH} bytes")
        elif given[0].startswith("version") and (problem := formats.semver(item.text)):
            item.report("attribute-value", problem)


def _check_negative(amount: Cursor) -> None:
    quantity = amount.quantity
    if quantity is not None and quantity.nanos < 0:
        amount.report("negative-amount", "is negative")


def _check_counters(counters: Cursor, rule: str) -> None:
    if not counters.size:
        counters.report(rule, "is required")
    counters.limit(rule, _MAX_COUNTERS)
    for key, counter in counters.entries():
        if problem := formats.label(key):
            counter.report(rule, problem)
        _check_negative(counter["value"])


def _check_consumed_counters(consumed: Cursor) -> None:
    consumed.limit("consumes-counters", _MAX_CONSUMED_SETS)
    consumed.unique("consumes-counters", "counterSet")
    for consumption in consumed.items():
        check_format(consumption["counterSet"], "consumes-counters", formats.label)
        _check_counters(consumption["counters"], "consumes-counters")
        groups = consumption["compatibilityGroups"]
        groups.limit("compatibility-groups", _MAX_COMPATIBILITY_GROUPS)
        groups.unique("compatibility-groups")
        for group in groups.items():
            check_format(group, "compatibility-groups", formats.label)


def _check_shared_counters(sets: Cursor) -> None:
    sets.limit("shared-counters", _MAX_COUNTER_SETS)
    sets.unique("shared-counters", "name")
    for counter_set in sets.items():
        check_format(counter_set["name"], "shared-counters", formats.label)
        _check_counters(counter_set["counters"], "shared-counters")


def _check_device_node_selection(device: Cursor, *, per_device: bool) -> None:
    rule = "device-node-selection"
    given = [name for name in ("nodeName", "nodeSelector", "allNodes") if device[name].present]
    if not per_device:
        if given:
            device.report(
                rule, f"{', '.join(given)} needs perDeviceNodeSelection: true in the slice"
            )
        return
    if len(given) != 1:
        device.report(rule, "exactly one of nodeName, nodeSelector, allNodes is required")
    if device["nodeName"].present:
        check_format(device["nodeName"], rule, formats.subdomain)
    if device["nodeSelector"].present:
        check_node_selector(device["nodeSelector"], one_term=False)
        if device["nodeSelector"]["nodeSelectorTerms"].size > 1:
            device["nodeSelector"].report(
                "device-selector-terms", "has several terms; a merged selector keeps only one"
            )
    if device["allNodes"].value is False:
        device["allNodes"].report(rule, "must be true or absent")


def _check_partition_type(spec: Cursor) -> None:
    place = spec["partitionTypeAttribute"]
    if not place.present:
        return
    name = place.text
    if problem := formats.fully_qualified_name(name):
        place.report("partition-type", problem)
    consuming = [device for device in spec["devices"].items() if device["consumesCounters"].size]
    if not consuming:
        place.report("partition-type", "needs devices that consume counters")
    elif not problem:
        bare = name.removeprefix(f"{spec['driver'].text}/")
        for device in consuming:
            attributes = device["attributes"]
            attribute = attributes[name] if attributes[name].present else attributes[bare]
            if not attribute["string"].present:
                attributes.report("partition-type", f"must have {name!r} as text")


def _check_node_allocatable(device: Cursor) -> None:
    rule = "node-allocatable"
    for key, entry in device["nodeAllocatableResources"].entries():
        if key not in ("cpu", "memory") and not key.startswith("hugepages-"):
            entry.report(rule, f"{key!r} is not cpu, memory or hugepages-*")
        mapping, overhead = entry["mapping"], entry["overhead"]
        if not mapping.present and not overhead.present:
            entry.report(rule, "mapping or overhead is required")
        if mapping.present:
            _check_mapping(mapping, device)
        if overhead.present:
            if not overhead["perPod"].present and not overhead["perContainer"].present:
                overhead.report(rule, "perPod or perContainer is required")
            for field in ("perPod", "perContainer"):
                amount = overhead[field].quantity
                if amount is not None and amount.nanos < 0:
                    overhead[field].report(rule, "must not be negative")


def _check_mapping(mapping: Cursor, device: Cursor) -> None:
    rule = "node-allocatable"
    key, by_capacity, by_device = (
        mapping["capacityKey"],
        mapping["capacityMultiplier"],
        mapping["deviceMultiplier"],
    )
    if (key.present or by_capacity.present) == by_device.present:
        mapping.report(rule, "exactly one of capacityKey and deviceMultiplier is required")
    if key.present != by_capacity.present:
        mapping.report(rule, "capacityKey and capacityMultiplier must be set together")
    if key.present and not device["capacity"][key.text].present:
        key.report(rule, f"the device has no capacity {key.text!r}")
    for multiplier in (by_capacity, by_device):
        amount = multiplier.quantity
        if amount is not None and amount.nanos <= 0:
            multiplier.report(rule, "must be greater than 0")
