"""Checks that look at several objects: what the API server accepts one by one and allocation stumbles over later.

All of these are warnings. Source: docs/design/api-versions.md#warnings,
docs/design/allocator.md#generation-and-completeness, docs/design/allocator.md#invalid-pools.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from allocator.features import Features
from scheduler.api.decode import object_name
from scheduler.validation.cursor import Cursor
from scheduler.validation.rules import Violation
from scheduler.validation.validate import admit

Json = dict[str, Any]
PoolKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Object:
    """An object with a cursor of its own, so that each finding knows whose it is."""

    kind: str
    name: str
    root: Cursor
    found: list[Violation]


def validate_cluster(objects: Iterable[Json], *, features: Features) -> list[Violation]:
    """Check objects against each other; objects that are wrong by themselves are left out.

    Returns:
        Warnings, each with its object, in the order of the objects.
    """
    checked = []
    for obj in objects:
        admitted = admit(obj, features=features)
        if admitted.obj is None or admitted.errors:
            continue
        kind = str(obj.get("kind"))
        found: list[Violation] = []
        checked.append(
            _Object(kind, object_name(kind, admitted.obj), Cursor(admitted.obj, "", found), found)
        )
    slices = [item for item in checked if item.kind == "ResourceSlice"]
    _check_pools(slices)
    _check_claims(checked, _capacity_names(slices))
    _check_pods(checked)
    return [replace(found, object=item.name) for item in checked for found in item.found]


def _pools(slices: Sequence[_Object]) -> Mapping[PoolKey, list[_Object]]:
    """Pools with the slices of their newest generation."""
    pools: dict[PoolKey, list[_Object]] = {}
    for item in slices:
        spec = item.root["spec"]
        pools.setdefault((spec["driver"].text, spec["pool"]["name"].text), []).append(item)
    newest = {}
    for key, members in pools.items():
        generations = [item.root["spec"]["pool"]["generation"].number for item in members]
        newest[key] = [
            item
            for item, generation in zip(members, generations, strict=True)
            if generation == max(generations)
        ]
    return newest


def _check_pools(slices: Sequence[_Object]) -> None:
    for members in _pools(slices).values():
        _check_slice_counts(members)
        devices: dict[str, str] = {}
        sets: dict[str, str] = {}
        counters = _counter_names(members)
        for item in members:
            spec = item.root["spec"]
            _check_unique(spec["devices"], "duplicate-device", item.name, devices)
            _check_unique(spec["sharedCounters"], "duplicate-counter-set", item.name, sets)
        for item in members:
            for device in item.root["spec"]["devices"].items():
                for consumed in device["consumesCounters"].items():
                    _check_consumed(consumed, counters)


def _counter_names(members: Sequence[_Object]) -> dict[str, frozenset[str]]:
    """Counters by counter set, of a whole pool."""
    return {
        counter_set["name"].text: frozenset(counter_set["counters"].value or ())
        for item in members
        for counter_set in item.root["spec"]["sharedCounters"].items()
    }


def _check_consumed(consumed: Cursor, counters: Mapping[str, frozenset[str]]) -> None:
    name = consumed["counterSet"]
    if name.text not in counters:
        name.report(
            "unknown-counter-set",
            f"no slice of the pool has the counter set {name.text!r}: the pool is invalid",
        )
        return
    for key, counter in consumed["counters"].entries():
        if key not in counters[name.text]:
            counter.report(
                "unknown-counter-set",
                f"the counter set {name.text!r} has no counter {key!r}: the pool is invalid",
            )


def _check_slice_counts(members: Sequence[_Object]) -> None:
    announced = members[0].root["spec"]["pool"]["resourceSliceCount"].number
    for item in members:
        count = item.root["spec"]["pool"]["resourceSliceCount"]
        if count.number != announced:
            count.report(
                "slice-count-differs", f"is {count.number}, {members[0].name} says {announced}"
            )
    if len(members) != announced:
        members[0].root["spec"]["pool"]["resourceSliceCount"].report(
            "pool-incomplete",
            f"announces {announced} slices, there are {len(members)}: no device of the pool is used",
        )


def _check_unique(items: Cursor, rule: str, owner: str, seen: dict[str, str]) -> None:
    for item in items.items():
        name = item["name"].text
        if name in seen:
            item["name"].report(
                rule, f"{name!r} is also published by {seen[name]}: the pool is invalid"
            )
        seen.setdefault(name, owner)


def _capacity_names(slices: Sequence[_Object]) -> frozenset[str]:
    return frozenset(
        key
        for item in slices
        for device in item.root["spec"]["devices"].items()
        for key in device["capacity"].value or ()
    )


def _check_claims(checked: Sequence[_Object], capacities: frozenset[str]) -> None:
    classes = {item.root["metadata"]["name"].text for item in checked if item.kind == "DeviceClass"}
    for item in checked:
        if item.kind == "ResourceClaim":
            requests = item.root["spec"]["devices"]["requests"]
        elif item.kind == "ResourceClaimTemplate":
            requests = item.root["spec"]["spec"]["devices"]["requests"]
        else:
            continue
        for request in requests.items():
            wanted = [request["exactly"]] if request["exactly"].present else []
            for entry in (*wanted, *request["firstAvailable"].items()):
                _check_wanted(entry, classes, capacities)


def _check_wanted(request: Cursor, classes: set[str], capacities: frozenset[str]) -> None:
    name = request["deviceClassName"]
    if name.text not in classes:
        name.report("unknown-class", f"there is no DeviceClass {name.text!r}")
    for key, amount in request["capacity"]["requests"].entries():
        if key not in capacities:
            amount.report("capacity-request", f"no device has a capacity {key!r}")


def _check_pods(checked: Sequence[_Object]) -> None:
    sources = {
        field: {
            (_namespace(item), item.root["metadata"]["name"].text)
            for item in checked
            if item.kind == kind
        }
        for field, kind in (
            ("resourceClaimName", "ResourceClaim"),
            ("resourceClaimTemplateName", "ResourceClaimTemplate"),
        )
    }
    for item in checked:
        if item.kind != "Pod":
            continue
        namespace = _namespace(item)
        for entry in item.root["spec"]["resourceClaims"].items():
            for field, known in sources.items():
                if entry[field].present and (namespace, entry[field].text) not in known:
                    entry[field].report("unknown-claim", f"there is no {entry[field].text!r}")


def _namespace(item: _Object) -> str:
    return item.root["metadata"]["namespace"].text or "default"
