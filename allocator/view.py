"""What searches read of one node, as a key: nodes with equal keys get the same answer, but for names.

The key has four parts. What the pools are: their order, state and frames. What is in use of them, by place instead of by
name. The columns of the attributes that the question reads. What the question reads of the node itself, which is little.

Source: docs/design/engine.md#question-and-view.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from allocator.cel import Read, names_in_objects
from allocator.columns import Interned, Interner, columns_of, encoded
from allocator.model.devices import PoolID
from allocator.model.nodes import Node
from allocator.pools import Pool
from allocator.snapshot import (
    NOTHING_USED,
    AllocatedState,
    PoolUsage,
    PreparedSlice,
    SliceIndex,
)

UsageKey = tuple[Any, ...] | None
"""What is in use of a pool, by place; None: nothing."""
ViewKey = tuple[Any, ...]


class NodeView(msgspec.Struct, frozen=True, eq=False):
    """A node as searches see it, independent of the question.

    Attributes:
        node: labels and features.
        pools: that have slices for the node, in search order.
        structure: what the pools are and what is read of the node.
        usage: what is in use of each pool, then what scores count besides: how many devices of the node's own pools,
            and how many of other pools that searches do not see (of old generations, for instance).
        columns: driver and columns of each slice that a selector may be asked about.
        own_names: the pools of the node's own slices, with the names of all their devices.
    """

    node: Node
    pools: tuple[Pool, ...]
    structure: Interned
    usage: tuple[Any, ...]
    columns: tuple[tuple[str, Mapping[str, Interned]], ...]
    own_names: Mapping[PoolID, frozenset[str]]

    def key(self, reads: "Reads") -> ViewKey:
        """The key for a question. O(slices x attributes read)."""
        found: list[Any] = [self.structure, self.usage]
        for driver, attributes in self.columns:
            found.extend([attributes.get(name) for name in reads.names(driver)])
        return tuple(found)


class Reads:
    """Which attributes a question reads, as drivers may write their names."""

    __slots__ = ("_by_driver", "_reads")

    def __init__(self, reads: Iterable[Read]) -> None:
        self._reads = tuple(reads)
        self._by_driver: dict[str, tuple[str, ...]] = {}

    def names(self, driver: str) -> tuple[str, ...]:
        """Names of attributes in slices of a driver."""
        names = self._by_driver.get(driver)
        if names is None:
            names = names_in_objects(self._reads, "attribute", driver)
            self._by_driver[driver] = names
        return names


class UsageKeys:
    """Puts what is in use of pools into keys; an unchanged pool costs three comparisons."""

    __slots__ = ("_last", "_names")

    def __init__(self) -> None:
        self._last: dict[PoolID, tuple[Pool, PoolUsage, object, UsageKey, int]] = {}
        self._names: dict[PoolID, tuple[object, frozenset[str]]] = {}

    def names(self, pool: PoolID, slices: Sequence[PreparedSlice]) -> frozenset[str]:
        """The names of all devices in the slices of a pool, whichever node and generation they are of."""
        last = self._names.get(pool)
        if last is not None and last[0] is slices:
            return last[1]
        names = frozenset(device.device for prepared in slices for device in prepared.device_ids)
        self._names[pool] = (slices, names)
        return names

    def of(
        self, pool: Pool, usage: PoolUsage, slices: Sequence[PreparedSlice]
    ) -> tuple[UsageKey, int]:
        """The key of one pool, and how many devices in use are in its slices, but have no place in the pool."""
        if usage is NOTHING_USED:
            self._last.pop(pool.id, None)
            return None, 0
        last = self._last.get(pool.id)
        if last is not None and last[0] is pool and last[1] is usage and last[2] is slices:
            return last[3], last[4]
        key = _usage_key(pool, usage)
        unseen = len(self._unseen(pool, usage).intersection(self.names(pool.id, slices)))
        self._last[pool.id] = (pool, usage, slices, key, unseen)
        return key, unseen

    def keep(self, pools: Iterable[PoolID]) -> None:
        """Forget all other pools."""
        known = set(pools)
        self._last = {pool: last for pool, last in self._last.items() if pool in known}
        self._names = {pool: last for pool, last in self._names.items() if pool in known}

    @staticmethod
    def _unseen(pool: Pool, usage: PoolUsage) -> set[str]:
        places = pool.positions
        names = chain(usage.devices, usage.shares, usage.consumed)
        return {name for name in names if name not in places}

    def __len__(self) -> int:
        return max(len(self._last), len(self._names))


def _usage_key(pool: Pool, usage: PoolUsage) -> UsageKey:
    """Devices in use as a bitset over places, devices of other nodes' slices (counters) behind the node's own.

    A name that is there several times, which only slices of different nodes can bring about, is in use everywhere.
    """
    places: Mapping[str, int] = pool.positions
    twice: dict[str, int] = {}
    if pool.elsewhere:
        places = dict(places)
        number = len(places)
        for prepared in pool.elsewhere:
            for device in prepared.device_ids:
                if places.setdefault(device.device, number) != number:
                    twice[device.device] = twice.get(device.device, 0) | 1 << number
                number += 1
    devices, shares = _bits(usage.devices, places, twice), _bits(usage.shares, places, twice)
    consumed = tuple(
        sorted(
            (
                places[name],
                twice.get(name, 0),
                tuple(sorted((of, amount.nanos) for of, amount in amounts.items())),
            )
            for name, amounts in usage.consumed.items()
            if name in places
        )
    )
    return (devices, shares, consumed) if devices or shares or consumed else None


def _bits(names: Iterable[str], places: Mapping[str, int], twice: Mapping[str, int]) -> int:
    bits = 0
    for name in names:
        place = places.get(name)
        if place is not None:
            bits |= 1 << place | twice.get(name, 0)
    return bits


def view_of(
    node: Node,
    pools: Sequence[Pool],
    slices: SliceIndex,
    in_use: AllocatedState,
    interner: Interner,
    usage_keys: UsageKeys,
) -> NodeView:
    """Derive the view of a node from its gathered pools. O(slices of the node), the first time O(devices)."""
    own_names = {
        pool: usage_keys.names(pool, slices.in_pool(pool))
        for pool in {prepared.pool_id for prepared in slices.local(node.name)}
    }
    return NodeView(
        node=node,
        pools=tuple(pools),
        structure=_structure(node, pools, own_names, slices, interner, usage_keys),
        usage=usage_of(pools, own_names, slices, in_use, usage_keys),
        columns=tuple(
            (prepared.pool_id.driver, columns_of(prepared, interner).attributes)
            for pool in pools
            for prepared in pool.slices
        ),
        own_names=own_names,
    )


def usage_of(
    pools: Sequence[Pool],
    own_names: Mapping[PoolID, frozenset[str]],
    slices: SliceIndex,
    in_use: AllocatedState,
    usage_keys: UsageKeys,
) -> tuple[Any, ...]:
    """What is in use of a node's pools, as part of a key."""
    found: list[Any] = []
    for pool in pools:
        usage = in_use.usage(pool.id)
        key, unseen = usage_keys.of(pool, usage, slices.in_pool(pool.id))
        found.append((key, unseen) if unseen and pool.id not in own_names else key)
    busy = 0
    for pool_id, names in own_names.items():
        usage = in_use.usage(pool_id)
        if usage is not NOTHING_USED:
            busy += len(names.intersection((*usage.devices, *usage.shares, *usage.consumed)))
    found.append(busy)
    return tuple(found)


def _structure(
    node: Node,
    pools: Sequence[Pool],
    own_names: Mapping[PoolID, frozenset[str]],
    slices: SliceIndex,
    interner: Interner,
    usage_keys: UsageKeys,
) -> Interned:
    """What the pools of a node are, whatever is asked and whatever is in use."""
    selects = skips = False
    parts: list[Any] = []
    for pool in pools:
        for prepared in pool.slices:
            spec = prepared.slice.spec
            selects = selects or bool(spec.per_device_node_selection)
            skips = skips or bool(spec.skip_node_operations)
        parts.append(
            (
                pool.id.driver,
                pool.state,
                # Scores count devices of pools that something was taken from, and of all the node's own.
                -1
                if pool.id in own_names
                else len(usage_keys.names(pool.id, slices.in_pool(pool.id))),
                tuple(_slice_part(prepared, node, interner) for prepared in pool.slices),
                tuple(columns_of(prepared, interner).frame for prepared in pool.elsewhere),
                encoded(pool.counter_sets) if pool.counter_sets else b"",
            )
        )
    return interner.of(
        (
            tuple(parts),
            # Devices that choose their nodes read name and labels; nothing else does once pools are gathered.
            (node.name, tuple(sorted(node.labels.items()))) if selects else None,
            node.declared_features if skips else None,
            sum(map(len, own_names.values())),
        )
    )


def _slice_part(
    prepared: PreparedSlice, node: Node, interner: Interner
) -> tuple[Interned, str | bool | None]:
    """Frame, and whether the slice is for this node alone."""
    where = prepared.slice.spec.node_name
    return columns_of(prepared, interner).frame, where == node.name or where
