"""ResourceSlices to pools: which slices a node can reach, generations, completeness, validity and order.

What depends on a slice alone is computed once and kept in its memo (`SliceFacts`), so that a node whose devices are
in one local slice costs a few lookups. A search in a thread fills the same memos as the event loop, and there is no lock:
each change of a memo is one operation of a built-in container, which no switch of threads divides, and what two threads
find out at the same time is the same.

Source: structured/internal/*/pools_*.go; KEP-4381, KEP-4815.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from allocator.cel import DeviceValues, attribute_problem, prepare_device
from allocator.model.devices import (
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    PoolID,
)
from allocator.model.nodes import Node, NodeSelector, matches_node_selector
from allocator.snapshot import PreparedSlice, SliceIndex

_BLOCKING_EFFECTS: Final = ("NoSchedule", "NoExecute")


class Candidate:
    """A device as the search sees it: what depends on its slice alone.

    Attributes:
        device: the API object, taint rules applied.
        id: its identity in the cluster.
        index: its place in the slice.
        problem: why no expression can be evaluated on it; None for most. Found out when asked.
        prepared: the slice it is in.
        facts: what is known of that slice.
        name: its name.
        shareable: `allowMultipleAllocations` is true.
        consumes: the counters it takes, or nothing.
        blocking_taints: taints whose effect keeps claims away.
        waits: it has at least one binding condition.
        selects_node: the slice leaves node selection to its devices.
        skips: the slice skips node operations.
    """

    __slots__ = (
        "_problem",
        "blocking_taints",
        "consumes",
        "device",
        "facts",
        "id",
        "index",
        "name",
        "prepared",
        "selects_node",
        "shareable",
        "skips",
        "waits",
    )

    def __init__(
        self,
        prepared: PreparedSlice,
        facts: "SliceFacts",
        index: int,
        device: Device,
        *,
        selects_node: bool,
        skips: bool,
    ) -> None:
        self.device = device
        self.id = prepared.device_ids[index]
        self.index = index
        self.prepared = prepared
        self.facts = facts
        self.name = device.name
        self.shareable = bool(device.allow_multiple_allocations)
        self.consumes: tuple[DeviceCounterConsumption, ...] = device.consumes_counters or ()
        self.blocking_taints: tuple[DeviceTaint, ...] = ()
        if device.taints:
            self.blocking_taints = tuple(t for t in device.taints if t.effect in _BLOCKING_EFFECTS)
        self._problem: str | bool | None = False  # not looked for
        self.waits = bool(device.binding_conditions)
        self.selects_node = selects_node
        self.skips = skips

    @property
    def problem(self) -> str | None:
        """Why no expression can be evaluated on the device."""
        if self._problem is False:
            self._problem = attribute_problem(self.device)
        return self._problem  # type: ignore[return-value]  # it has been looked for


class SliceFacts:
    """What is known of a slice whatever the node: made on first use, kept in the slice's memo.

    Attributes:
        candidates: its devices, in list order.
        rows: question -> one answer a device (`None`: not asked yet). Questions are selector lists, capacity
            requests and derived attributes; the answers are functions of the slice alone.
        uses_groups: some device declares compatibility groups.
        last_pool: the pool last built with this slice in front, and what it was built from.
    """

    __slots__ = ("_prepared", "_values", "candidates", "last_pool", "rows", "uses_groups")

    def __init__(self, prepared: PreparedSlice) -> None:
        spec = prepared.slice.spec
        selects_node, skips = bool(spec.per_device_node_selection), bool(spec.skip_node_operations)
        self._prepared = prepared
        self._values: dict[tuple[int, bool], DeviceValues] = {}
        self.candidates = tuple(
            [
                Candidate(prepared, self, index, device, selects_node=selects_node, skips=skips)
                for index, device in enumerate(spec.devices or ())
            ]
        )
        self.rows: OrderedDict[Any, list[Any]] = OrderedDict()
        self.uses_groups = any(
            entry.compatibility_groups
            for candidate in self.candidates
            if candidate.consumes
            for entry in candidate.consumes
        )
        self.last_pool: tuple[object, Pool] | None = None

    def values(self, index: int, *, hide_sharing: bool) -> DeviceValues:
        """Device variables for CEL; the stable allocator hides `device.allowMultipleAllocations`."""
        key = (index, hide_sharing)
        found = self._values.get(key)
        if found is None:
            spec = self._prepared.slice.spec
            device = self.candidates[index].device
            if hide_sharing:
                device = msgspec.structs.replace(device, allow_multiple_allocations=None)
            found = self._values[key] = prepare_device(spec.driver, device)
        return found

    def row(self, question: object) -> list[Any]:
        """The answers to one question, one a device; bounded, oldest questions are forgotten."""
        row = self.rows.get(question)
        if row is None:
            row = self.rows[question] = [None] * len(self.candidates)
            if len(self.rows) > _MOST_ROWS:
                self.rows.popitem(last=False)
        return row


# Selectors are written by tenants: without a bound, each new text would stay for the slice's life.
_MOST_ROWS: Final = 128


def facts_of(prepared: PreparedSlice) -> SliceFacts:
    """What is known of a slice."""
    facts: SliceFacts | None = prepared.memo.get("facts")
    if facts is None:
        # The first one stays: devices that a thread has chosen are found again by identity.
        facts = prepared.memo.setdefault("facts", SliceFacts(prepared))
    return facts


class PoolState(Enum):
    """Whether devices of a pool may be used."""

    OK = "ok"
    INCOMPLETE = "incomplete"
    INVALID = "invalid"


class Pool(msgspec.Struct, frozen=True, eq=False):
    """A pool as one node sees it.

    Attributes:
        id: driver and pool name.
        state: only devices of a pool that is OK may be used.
        problem: what is wrong with an invalid pool.
        slices: device slices that count for the node, in search order.
        elsewhere: device slices of the same generation for other nodes; only their use of counters matters.
        counter_sets: name -> counters that the devices of the pool share.
        candidates: devices of `slices`, in search order.
        waits: some device has a list of binding conditions, even an empty one: such pools are searched last.
        positions: device name -> place in `candidates`.
    """

    id: PoolID
    state: PoolState
    problem: str
    slices: tuple[PreparedSlice, ...]
    elsewhere: tuple[PreparedSlice, ...]
    counter_sets: Mapping[str, CounterSet]
    candidates: tuple[Candidate, ...]
    waits: bool
    positions: Mapping[str, int]

    @property
    def is_usable(self) -> bool:
        """Whether its devices may be allocated."""
        return self.state is PoolState.OK


@dataclass(frozen=True, slots=True)
class PoolRules:
    """Which rules of gathering apply: `stable` is upstream's oldest allocator, the default of 1.34 and 1.35."""

    partitionable: bool
    groups: bool
    stable: bool


def node_matches(
    node: Node, node_name: str | None, all_nodes: bool | None, selector: NodeSelector | None
) -> bool:
    """Say whether a slice or device is for a node: name first, then all nodes, then the selector.

    Raises:
        NodeSelectorError: the selector decides and cannot be parsed.
    """
    if node_name:
        return node_name == node.name
    if all_nodes:
        return True
    return selector is not None and matches_node_selector(selector, node.labels, node.name)


def gather_pools(node: Node, slices: SliceIndex, rules: PoolRules) -> list[Pool]:
    """Collect the pools that have slices for a node, in search order.

    Raises:
        NodeSelectorError: some slice or device that every node must look at has a selector that cannot be parsed.
    """
    kept: dict[PoolID, list[PreparedSlice]] = {}
    for prepared in _to_look_at(node, slices, rules):
        if not _is_ignored(prepared, rules) and _counts(prepared, node, rules):
            _keep(kept, prepared)
    pools = []
    for pool_id, group in kept.items():
        pool = _pool(pool_id, group, slices, rules)
        if pool is not None:
            pools.append(pool)
    if len(pools) > 1:
        # The stable allocator visits pools in no defined order: by name is one of its orders.
        pools.sort(key=lambda pool: (pool.waits and not rules.stable, pool.id))
    return pools


def _to_look_at(node: Node, slices: SliceIndex, rules: PoolRules) -> Iterable[PreparedSlice]:
    """Slices that may count for a node, in the order that decides which count of slices is believed."""
    own = (*slices.local(node.name), *slices.shared)
    if not rules.stable:
        return own
    # The stable allocator keeps counter slices of every node, and within a pool the order in which slices were given.
    pools = dict.fromkeys(prepared.pool_id for prepared in (*own, *slices.with_counters))
    return (prepared for pool_id in pools for prepared in slices.in_pool(pool_id))


def _is_ignored(prepared: PreparedSlice, rules: PoolRules) -> bool:
    """Say whether a disabled feature hides the slice."""
    if not rules.partitionable:
        spec = prepared.slice.spec
        if spec.per_device_node_selection is not None or spec.shared_counters:
            return True
    return not rules.groups and facts_of(prepared).uses_groups


def _counts(prepared: PreparedSlice, node: Node, rules: PoolRules) -> bool:
    """Say whether a slice counts for the node."""
    spec = prepared.slice.spec
    if spec.node_name == node.name and node.name:
        return True
    if rules.stable and spec.shared_counters:
        return True
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return node_matches(node, spec.node_name, spec.all_nodes, spec.node_selector)
    if spec.per_device_node_selection:
        return any(
            node_matches(node, device.node_name, device.all_nodes, device.node_selector)
            for device in spec.devices or ()
        )
    return False  # a way to select nodes that is not known yet


def _keep(kept: dict[PoolID, list[PreparedSlice]], prepared: PreparedSlice) -> None:
    """Group a slice by pool; only the newest generation seen so far stays."""
    group = kept.get(prepared.pool_id)
    if group is None:
        kept[prepared.pool_id] = [prepared]
        return
    generation = prepared.slice.spec.pool.generation
    current = group[0].slice.spec.pool.generation
    if generation == current:
        group.append(prepared)
    elif generation > current:
        kept[prepared.pool_id] = [prepared]


def _pool(
    pool_id: PoolID, kept: list[PreparedSlice], slices: SliceIndex, rules: PoolRules
) -> Pool | None:
    """Build a pool, or nothing when a newer generation is on its way."""
    first = kept[0].slice.spec.pool
    if len(kept) == first.resource_slice_count:
        return _remembered(pool_id, kept, None, rules)
    # Slices that do not count for this node, or are hidden, may make the pool complete.
    whole = []
    for prepared in slices.in_pool(pool_id):
        generation = prepared.slice.spec.pool.generation
        if generation > first.generation:
            return None
        if generation == first.generation and (rules.groups or not facts_of(prepared).uses_groups):
            whole.append(prepared)
    if len(whole) == first.resource_slice_count:
        return _remembered(pool_id, kept, whole, rules)
    return _unusable(pool_id, PoolState.INCOMPLETE, "it is being updated", kept)


def _remembered(
    pool_id: PoolID, kept: list[PreparedSlice], whole: list[PreparedSlice] | None, rules: PoolRules
) -> Pool:
    """Build a pool, or take the one built last from the same slices."""
    facts = facts_of(kept[0])
    made_from = (tuple(kept), tuple(whole or ()), rules)  # slices are compared by identity
    last = facts.last_pool
    if last is not None and last[0] == made_from:
        return last[1]
    pool = _build(pool_id, kept, whole, rules)
    facts.last_pool = (made_from, pool)
    return pool


def _unusable(
    pool_id: PoolID, state: PoolState, problem: str, slices: Sequence[PreparedSlice]
) -> Pool:
    """Make a pool whose devices may not be used; its slices are kept for explanations only."""
    return Pool(pool_id, state, problem, tuple(slices), (), {}, (), waits=False, positions={})


def _build(
    pool_id: PoolID, kept: list[PreparedSlice], whole: list[PreparedSlice] | None, rules: PoolRules
) -> Pool:
    ordered = kept if rules.stable else sorted(kept, key=lambda prepared: prepared.name)
    devices, counters = _split(ordered, rules)
    elsewhere: list[PreparedSlice] = []
    if whole is not None and len(kept) < len(whole):
        names = {prepared.name for prepared in kept}
        elsewhere, more = _split([p for p in whole if p.name not in names], rules)
        counters += more
    problem = _duplicate_device(devices)
    counter_sets: dict[str, CounterSet] = {}
    if not problem and rules.partitionable:
        problem = _collect_counter_sets(counters, counter_sets) or _unknown_counter(
            counter_sets, (*devices, *elsewhere)
        )
    if problem:
        return _unusable(pool_id, PoolState.INVALID, problem, kept)
    candidates = tuple(c for prepared in devices for c in facts_of(prepared).candidates)
    return Pool(
        id=pool_id,
        state=PoolState.OK,
        problem="",
        slices=tuple(devices),
        elsewhere=tuple(elsewhere) if rules.partitionable else (),
        counter_sets=counter_sets,
        candidates=candidates,
        # Differs from what one expects: an empty list of conditions moves the pool as well, gate or not.
        waits=any(c.device.binding_conditions is not None for c in candidates),
        positions={candidate.name: place for place, candidate in enumerate(candidates)},
    )


def _split(
    slices: Iterable[PreparedSlice], rules: PoolRules
) -> tuple[list[PreparedSlice], list[PreparedSlice]]:
    """Tell slices with devices from slices with shared counters."""
    devices: list[PreparedSlice] = []
    counters: list[PreparedSlice] = []
    for prepared in slices:
        with_counters = rules.partitionable and prepared.slice.spec.shared_counters
        (counters if with_counters else devices).append(prepared)
    return devices, counters


def _duplicate_device(slices: Iterable[PreparedSlice]) -> str:
    names = [each.device for prepared in slices for each in prepared.device_ids]
    if len(set(names)) == len(names):
        return ""
    twice = next(name for place, name in enumerate(names) if name in names[:place])
    return f"device name {twice} occurs twice"


def _collect_counter_sets(slices: Iterable[PreparedSlice], into: dict[str, CounterSet]) -> str:
    for prepared in slices:
        for counter_set in prepared.slice.spec.shared_counters or ():
            if counter_set.name in into:
                return f"counter set {counter_set.name} occurs twice"
            into[counter_set.name] = counter_set
    return ""


def _unknown_counter(sets: Mapping[str, CounterSet], slices: Iterable[PreparedSlice]) -> str:
    for prepared in slices:
        for device in prepared.slice.spec.devices or ():
            for entry in device.consumes_counters or ():
                counter_set = sets.get(entry.counter_set)
                if counter_set is None:
                    return f"device {device.name} consumes from unknown counter set {entry.counter_set}"
                for name in entry.counters or ():
                    if name not in (counter_set.counters or ()):
                        return (
                            f"device {device.name} consumes unknown counter {name}"
                            f" of counter set {entry.counter_set}"
                        )
    return ""
