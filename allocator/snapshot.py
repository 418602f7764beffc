"""What one allocation may look at: slices by node and pool, classes, and what is in use. Immutable.

`PreparedSlice` is a ResourceSlice made ready once (taint rules applied, identities built) and kept for as long as the
slice does not change; it has room for memoised selector results, which are a function of the slice alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Self

import msgspec

from allocator.model.claims import ResourceClaim
from allocator.model.devices import DeviceClass, DeviceID, DeviceTaintRule, PoolID, ResourceSlice
from allocator.quantity import Quantity


class PreparedSlice:
    """A slice with its taint rules applied.

    Attributes:
        slice: the (patched) object.
        pool_id: its pool.
        device_ids: one for each device, in list order.
        memo: results that depend on this slice alone, by question; pure, so sharing it between snapshots is safe.
    """

    __slots__ = ("device_ids", "memo", "pool_id", "slice", "source")

    def __init__(self, source: ResourceSlice, rules: Sequence[DeviceTaintRule] = ()) -> None:
        self.source = source
        self.slice = _with_taint_rules(source, rules)
        self.pool_id = source.pool_id
        self.device_ids = tuple(
            DeviceID(self.pool_id.driver, self.pool_id.name, device.name)
            for device in source.spec.devices or ()
        )
        self.memo: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """`metadata.name` of the slice."""
        return self.source.metadata.name


def _with_taint_rules(source: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> ResourceSlice:
    """Append the taint of each rule that selects a device: no selector none, an empty one every device.

    See docs/design/allocator.md#inputs.
    """
    relevant = [rule for rule in rules if _may_select(rule, source)]
    if not relevant or not source.spec.devices:
        return source
    devices = []
    for device in source.spec.devices:
        extra = tuple(
            rule.spec.taint
            for rule in relevant
            if rule.spec.device_selector is not None
            and rule.spec.device_selector.device in (None, device.name)
        )
        devices.append(
            msgspec.structs.replace(device, taints=(device.taints or ()) + extra)
            if extra
            else device
        )
    spec = msgspec.structs.replace(source.spec, devices=tuple(devices))
    return msgspec.structs.replace(source, spec=spec)


def _may_select(rule: DeviceTaintRule, source: ResourceSlice) -> bool:
    selector = rule.spec.device_selector
    return (
        selector is not None
        and selector.driver in (None, source.spec.driver)
        and selector.pool in (None, source.spec.pool.name)
    )


_NONE: Final[tuple[PreparedSlice, ...]] = ()


class SliceIndex:
    """All slices of the cluster by name, by node and by pool. Immutable: changes make a new index (copy on write)."""

    __slots__ = ("_by_name", "_by_node", "_by_pool", "_counters", "_rules", "_shared")

    def __init__(
        self,
        by_name: dict[str, PreparedSlice],
        by_node: dict[str, tuple[PreparedSlice, ...]],
        by_pool: dict[PoolID, tuple[PreparedSlice, ...]],
        shared: tuple[PreparedSlice, ...],
        rules: tuple[DeviceTaintRule, ...],
    ) -> None:
        self._by_name = by_name
        self._by_node = by_node
        self._by_pool = by_pool
        self._shared = shared
        self._rules = rules
        self._counters: tuple[PreparedSlice, ...] | None = None

    @classmethod
    def build(cls, slices: Iterable[ResourceSlice], rules: Sequence[DeviceTaintRule] = ()) -> Self:
        """Index slices, keeping their order (it decides which `resourceSliceCount` is believed)."""
        by_name: dict[str, PreparedSlice] = {}
        by_node: dict[str, list[PreparedSlice]] = {}
        by_pool: dict[PoolID, list[PreparedSlice]] = {}
        shared: list[PreparedSlice] = []
        for source in slices:
            prepared = PreparedSlice(source, rules)
            by_name[prepared.name] = prepared
            by_pool.setdefault(prepared.pool_id, []).append(prepared)
            if source.spec.node_name:
                by_node.setdefault(source.spec.node_name, []).append(prepared)
            else:
                shared.append(prepared)
        return cls(
            by_name,
            {name: tuple(group) for name, group in by_node.items()},
            {pool: tuple(group) for pool, group in by_pool.items()},
            tuple(shared),
            tuple(rules),
        )

    def changed(self, upserts: Iterable[ResourceSlice] = (), removed: Iterable[str] = ()) -> Self:
        """A new index with slices added or replaced (by name) and removed; untouched ones stay prepared."""
        by_name, by_node, by_pool = self._by_name.copy(), self._by_node.copy(), self._by_pool.copy()
        shared = self._shared
        new = [PreparedSlice(source, self._rules) for source in upserts]
        gone = [
            by_name[name]
            for name in (*removed, *(prepared.name for prepared in new))
            if name in by_name
        ]
        for old in gone:
            by_name.pop(old.name, None)
            _drop(by_pool, old.pool_id, old)
            if old.source.spec.node_name:
                _drop(by_node, old.source.spec.node_name, old)
            else:
                shared = tuple(prepared for prepared in shared if prepared is not old)
        for prepared in new:
            by_name[prepared.name] = prepared
            by_pool[prepared.pool_id] = _insert(by_pool.get(prepared.pool_id, _NONE), prepared)
            if prepared.source.spec.node_name:
                node = prepared.source.spec.node_name
                by_node[node] = _insert(by_node.get(node, _NONE), prepared)
            else:
                shared = _insert(shared, prepared)
        return type(self)(by_name, by_node, by_pool, shared, self._rules)

    def with_rules(self, rules: Sequence[DeviceTaintRule]) -> Self:
        """A new index with other taint rules; slices that no old or new rule selects stay prepared."""
        every = (*self._rules, *rules)
        touched = {
            name: PreparedSlice(prepared.source, rules)
            for name, prepared in self._by_name.items()
            if any(_may_select(rule, prepared.source) for rule in every)
        }

        def swap(group: tuple[PreparedSlice, ...]) -> tuple[PreparedSlice, ...]:
            return tuple(touched.get(prepared.name, prepared) for prepared in group)

        return type(self)(
            {name: touched.get(name, prepared) for name, prepared in self._by_name.items()},
            {node: swap(group) for node, group in self._by_node.items()},
            {pool: swap(group) for pool, group in self._by_pool.items()},
            swap(self._shared),
            tuple(rules),
        )

    def anew(self, node_names: Iterable[str], most: int) -> Self | None:
        """The slices that searches on some nodes read, prepared again: nothing that was found out of them comes along.

        Args:
            node_names: where will be searched.
            most: devices in the slices to prepare; None is returned if there are more.
        """
        names = list(node_names)
        own = [*chain.from_iterable(map(self.local, names)), *self._shared, *self.with_counters]
        pools = dict.fromkeys(prepared.pool_id for prepared in own)
        old = [prepared for pool in pools for prepared in self.in_pool(pool)]
        if sum(len(prepared.device_ids) for prepared in old) > most:
            return None
        fresh = {prepared.name: PreparedSlice(prepared.source, self._rules) for prepared in old}

        def swap(group: Iterable[PreparedSlice]) -> tuple[PreparedSlice, ...]:
            return tuple(fresh[prepared.name] for prepared in group)

        return type(self)(
            fresh,
            {name: swap(self.local(name)) for name in names},
            {pool: swap(self.in_pool(pool)) for pool in pools},
            swap(self._shared),
            self._rules,
        )

    def forget(self) -> None:
        """Forget what was found out of the slices; it is found out again."""
        for prepared in self._by_name.values():
            prepared.memo.clear()

    def local(self, node_name: str) -> Sequence[PreparedSlice]:
        """Slices whose `nodeName` is this node."""
        return self._by_node.get(node_name, _NONE)

    @property
    def shared(self) -> Sequence[PreparedSlice]:
        """Slices without `nodeName`: for all nodes, by selector, or by device."""
        return self._shared

    @property
    def with_counters(self) -> Sequence[PreparedSlice]:
        """Slices with shared counters; found on first use, O(slices)."""
        if self._counters is None:
            self._counters = tuple(
                p for p in self._by_name.values() if p.slice.spec.shared_counters
            )
        return self._counters

    def in_pool(self, pool_id: PoolID) -> Sequence[PreparedSlice]:
        """All slices of a pool, whichever node they are for."""
        return self._by_pool.get(pool_id, _NONE)

    def get(self, name: str) -> PreparedSlice | None:
        """A slice by `metadata.name`."""
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[PreparedSlice]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def pools(self) -> Iterable[PoolID]:
        """Every pool that has a slice."""
        return self._by_pool.keys()


def _drop(groups: dict[Any, tuple[PreparedSlice, ...]], key: Any, old: PreparedSlice) -> None:
    rest = tuple(prepared for prepared in groups.get(key, _NONE) if prepared is not old)
    if rest:
        groups[key] = rest
    else:
        groups.pop(key, None)


def _insert(group: tuple[PreparedSlice, ...], new: PreparedSlice) -> tuple[PreparedSlice, ...]:
    """Live indexes keep name order, so that the answer does not depend on the order of events."""
    return tuple(sorted((*group, new), key=lambda prepared: prepared.name))


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """What other claims hold of one pool.

    Attributes:
        devices: names of devices held exclusively.
        shares: device name -> ids of its shares.
        consumed: device name -> capacity name -> amount consumed by all its shares.
    """

    devices: frozenset[str] = frozenset()
    shares: Mapping[str, frozenset[str]] = field(default_factory=dict)
    consumed: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the pool is in use."""
        return not (self.devices or self.shares or self.consumed)


NOTHING_USED: Final = PoolUsage()
_ZERO: Final = Quantity(0)


def not_negative(consumed: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """Consumed amounts, with zero for what is below zero.

    The API server lets any writer store such an amount in an allocation. Upstream counts it, and so makes room.
    """
    if all(amount.nanos >= 0 for amount in consumed.values()):
        return consumed
    return {name: amount if amount.nanos >= 0 else _ZERO for name, amount in consumed.items()}


class AllocatedState:
    """What is in use in the whole cluster, by pool. Immutable.

    Source: `AllocatedState` in structured/schedulerapi; how results count: docs/design/allocator.md#inputs.
    """

    __slots__ = ("_pools",)

    def __init__(self, pools: Mapping[PoolID, PoolUsage]) -> None:
        self._pools = pools

    @classmethod
    def from_claims(
        cls, claims: Iterable[ResourceClaim], *, consumable_capacity: bool = True
    ) -> Self:
        """Count the allocations of claims; admin access occupies nothing."""
        pools: dict[PoolID, _Counting] = {}
        for claim in claims:
            allocation = claim.status.allocation
            if allocation is None:
                continue
            for result in allocation.devices.results or ():
                if result.admin_access:
                    continue
                usage = pools.setdefault(PoolID(result.driver, result.pool), _Counting())
                if result.share_id is None or not consumable_capacity:
                    usage.devices.add(result.device)
                    continue
                usage.shares.setdefault(result.device, set()).add(result.share_id)
                if result.consumed_capacity is not None:
                    consumed = usage.consumed.setdefault(result.device, {})
                    for name, amount in not_negative(result.consumed_capacity).items():
                        consumed[name] = consumed[name] + amount if name in consumed else amount
        return cls({pool: usage.frozen() for pool, usage in pools.items()})

    def usage(self, pool_id: PoolID) -> PoolUsage:
        """What is in use in one pool."""
        return self._pools.get(pool_id, NOTHING_USED)

    @property
    def pools(self) -> Mapping[PoolID, PoolUsage]:
        """Pools that have something in use."""
        return self._pools


class _Counting:
    """A PoolUsage while it is being summed."""

    __slots__ = ("consumed", "devices", "shares")

    def __init__(self) -> None:
        self.devices: set[str] = set()
        self.shares: dict[str, set[str]] = {}
        self.consumed: dict[str, dict[str, Quantity]] = {}

    def frozen(self) -> PoolUsage:
        return PoolUsage(
            frozenset(self.devices),
            {name: frozenset(ids) for name, ids in self.shares.items()},
            self.consumed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that one allocation sees of the cluster. Never changed; the same snapshot gives the same answer."""

    slices: SliceIndex
    classes: Mapping[str, DeviceClass]
    allocated: AllocatedState
