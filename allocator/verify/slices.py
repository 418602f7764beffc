"""Slices and pools as a node sees them."""

from collections.abc import Iterator, Sequence
from typing import Any

from allocator.features import Features
from allocator.model.devices import PoolID, ResourceSlice
from allocator.model.nodes import Node, NodeSelector, NodeSelectorError, matches_node_selector
from allocator.snapshot import Snapshot


def is_for(node: Node, where: Any) -> bool:
    """Say whether a slice or device is for a node."""
    if where.node_name:
        return bool(where.node_name == node.name)
    if where.all_nodes:
        return True
    return where.node_selector is not None and selects(where.node_selector, node)


def selects(selector: NodeSelector, node: Node) -> bool:
    """Whether a selector selects a node; one that is broken selects none."""
    try:
        return matches_node_selector(selector, node.labels, node.name)
    except NodeSelectorError:
        return False


def _in_pool(pool: PoolID, snapshot: Snapshot) -> Iterator[ResourceSlice]:
    for prepared in snapshot.slices.in_pool(pool):
        yield prepared.slice


def _is_usable(one: ResourceSlice, features: Features) -> bool:
    """Say whether the gates let a slice be seen."""
    spec = one.spec
    if not features.partitionable_devices and (
        spec.shared_counters or spec.per_device_node_selection is not None
    ):
        return False
    return not _has_hidden_groups(one, features)


def _has_hidden_groups(one: ResourceSlice, features: Features) -> bool:
    if features.device_compatibility_groups and features.implementation == "experimental":
        return False
    return any(
        entry.compatibility_groups
        for device in one.spec.devices or ()
        for entry in device.consumes_counters or ()
    )


def _counts_for(one: ResourceSlice, node: Node) -> bool:
    if one.spec.node_name or one.spec.all_nodes or one.spec.node_selector is not None:
        return is_for(node, one.spec)
    return bool(one.spec.per_device_node_selection) and any(
        is_for(node, device) for device in one.spec.devices or ()
    )


def _here(pool: PoolID, node: Node, snapshot: Snapshot, features: Features) -> list[ResourceSlice]:
    """Slices of a pool that count for a node, of their newest generation; the node's own come first."""
    stable = features.implementation == "stable"
    seen = [
        one
        for one in _in_pool(pool, snapshot)
        if _is_usable(one, features)
        and (_counts_for(one, node) or (stable and one.spec.shared_counters))
    ]
    if not stable:
        seen.sort(key=lambda one: not one.spec.node_name)
    newest = max((one.spec.pool.generation for one in seen), default=0)
    return [one for one in seen if one.spec.pool.generation == newest]


def current(
    pool: PoolID, node: Node, snapshot: Snapshot, features: Features
) -> list[ResourceSlice]:
    """Slices with devices that a node may use."""
    return [
        one
        for one in _here(pool, node, snapshot, features)
        if not (features.partitionable_devices and one.spec.shared_counters)
    ]


def whole(pool: PoolID, node: Node, snapshot: Snapshot, features: Features) -> list[ResourceSlice]:
    """All slices of the generation that a node uses, whichever node they are for."""
    here = _here(pool, node, snapshot, features)
    if not here or len(here) == here[0].spec.pool.resource_slice_count:
        return here
    generation = here[0].spec.pool.generation
    return [
        one
        for one in _in_pool(pool, snapshot)
        if one.spec.pool.generation == generation and not _has_hidden_groups(one, features)
    ]


def is_obsolete(pool: PoolID, node: Node, snapshot: Snapshot, features: Features) -> bool:
    """Say whether a newer generation, seen by other nodes only, hides what this node has of a pool."""
    here = _here(pool, node, snapshot, features)
    if not here or len(here) == here[0].spec.pool.resource_slice_count:
        return False
    generation = here[0].spec.pool.generation
    return any(one.spec.pool.generation > generation for one in _in_pool(pool, snapshot))


def pool_problem(pool: PoolID, node: Node, snapshot: Snapshot, features: Features) -> str:
    """Say why the devices of a pool that has slices for the node may not be used."""
    want = _here(pool, node, snapshot, features)[0].spec.pool.resource_slice_count
    if is_obsolete(pool, node, snapshot, features):
        return "a newer generation is there"
    every = whole(pool, node, snapshot, features)
    if len(every) != want:
        return "it is incomplete"
    names = [
        device.name
        for one in current(pool, node, snapshot, features)
        for device in one.spec.devices or ()
    ]
    if len(names) != len(set(names)):
        return "a device name is there twice"
    return _counter_problem(every) if features.partitionable_devices else ""


def _counter_problem(whole: Sequence[ResourceSlice]) -> str:
    sets = [s for one in whole for s in one.spec.shared_counters or ()]
    known = {s.name: set(s.counters or ()) for s in sets}
    if len(known) != len(sets):
        return "a counter set is there twice"
    for one in whole:
        for device in one.spec.devices or ():
            for entry in device.consumes_counters or ():
                if not set(entry.counters or ()) <= known.get(entry.counter_set, set()):
                    return "a device consumes an unknown counter"
                if entry.counter_set not in known:
                    return "a device consumes from an unknown counter set"
    return ""
