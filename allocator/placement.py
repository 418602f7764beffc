"""Devices placed for requests while a search goes on: whether one more may be placed, and what that uses up.

All that changes lies in a few containers that only `Trail` writes, so going back is one call.

Source: allocateDevice in structured/internal/*/allocator_*.go; docs/design/allocator.md#search.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from allocator.capacity import Consumption, add_amounts, fits
from allocator.constraints import REJECTED
from allocator.counters import (
    Available,
    CounterKey,
    GroupState,
    admits_groups,
    available_counters,
    charge,
    join_groups,
)
from allocator.model.devices import DeviceAttribute, DeviceCounterConsumption
from allocator.model.nodes import Node
from allocator.pools import Candidate, Pool, facts_of
from allocator.requests import Alternative, PreparedClaims, consumption_of
from allocator.result import ChosenDevice
from allocator.snapshot import NOTHING_USED, AllocatedState, PoolUsage
from allocator.stages import (
    CAPACITY,
    CONSTRAINED,
    COUNTERS,
    FOR_GOOD,
    GATED,
    GROUPS,
    IN_USE,
    NO_MATCH,
    NODE_LACKS,
    PLACED,
    TAINTED,
)
from allocator.taints import first_untolerated
from allocator.trail import Trail

NODE_OPERATIONS_FEATURE: Final = "DRAOptionalNodeOperations"


class Placement:
    """The devices of one node, with what is in use of them and what this search has placed so far.

    Attributes:
        candidates: all usable devices in search order; a *place* is a position in it.
        exclusive: places of devices that other claims hold whole.
        trail: through which everything is written.
        results: for each claim its devices so far.
    """

    def __init__(
        self,
        prepared: PreparedClaims,
        node: Node,
        pools: Sequence[Pool],
        allocated: AllocatedState,
        ask_stop: Callable[[Alternative], None] | None,
    ) -> None:
        features = prepared.features
        self._prepared = prepared
        self._node = node
        self._pools = pools
        self._allocated = allocated
        self._ask_stop = ask_stop
        self._selectors = prepared.selectors
        self._consumable = features.consumable_capacity
        self._fractional = features.fractional_capacity_range
        self._binding = features.binding
        self._partitionable = features.partitionable_devices
        self._taints_on = features.device_taints
        self._groups_on = prepared.rules.groups

        self.candidates, self._bases = _flatten(pools)
        self.exclusive: set[int] = set()
        self._shared: set[int] = set()
        self._consumed_by_others: dict[int, Any] = {}
        self._usage: dict[int, PoolUsage] = {}
        self._note_usage()

        self.trail = Trail()
        self.results: list[list[ChosenDevice]] = [[] for _ in prepared.claims]
        self._taken: dict[int, int] = {}  # place of a device -> claims it is taken for, a bit each
        self._sharing: dict[int, Any] = {}  # place of a device -> amounts consumed in this call
        self._counters: dict[int, dict[CounterKey, int]] = {}  # pool index -> taken in this call
        self._groups: dict[tuple[int, str], GroupState] = {}
        self._states: list[list[Any]] = [[None] * len(c.constraints) for c in prepared.claims]

        self._answers: dict[tuple[tuple[int, int], int], list[Any]] = {}
        self._attributes: dict[tuple[str, int], DeviceAttribute | None] = {}
        self._available: dict[int, Available] = {}
        self._group_baseline: dict[int, dict[str, GroupState]] = {}

    def _note_usage(self) -> None:
        """Translate what other claims hold into places of candidates."""
        base = 0
        for index, pool in enumerate(self._pools):
            if not pool.candidates:
                continue
            usage = self._allocated.usage(pool.id)
            if usage is not NOTHING_USED:
                self._usage[index] = usage
                positions = pool.positions
                for name in usage.devices:
                    if name in positions:
                        self.exclusive.add(base + positions[name])
                if self._consumable:
                    for name in usage.shares:
                        if name in positions:
                            self._shared.add(base + positions[name])
                    for name, amounts in usage.consumed.items():
                        if name in positions:
                            self._consumed_by_others[base + positions[name]] = amounts
            base += len(pool.candidates)

    def answers_to(self, alternative: Alternative) -> list[Any]:
        """What `_judge` said of each device for an alternative; None where it was not asked."""
        key = (alternative.key, alternative.index)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = [None] * len(self.candidates)
        return answers

    def judge(self, alternative: Alternative, place: int) -> Any:
        """What no other placement changes: a stage, or what the request consumes of the device (True: nothing)."""
        candidate = self.candidates[place]
        if candidate.waits and not self._binding:
            return GATED
        if not self._selectors.selects(alternative, candidate, self._node, self._ask_stop):
            return NO_MATCH
        if not self._consumable:
            return True
        amounts = consumption_of(alternative, candidate, fractional=self._fractional)
        return CAPACITY if amounts is None else amounts

    def is_busy(self, alternative: Alternative, place: int) -> bool:
        """Say whether a device is in use, as far as that alone keeps it from a request."""
        if alternative.admin_access:
            return bool(self._taken.get(place, 0) & 1 << alternative.claim)
        return place in self.exclusive or place in self._taken

    def has_room(self, amounts: Consumption, place: int) -> bool:
        """Say whether a device has the capacity left."""
        others, own = self._consumed_by_others.get(place), self._sharing.get(place)
        if others is None and own is None:
            return amounts.fits_empty
        capacities = self.candidates[place].device.capacity or {}
        return fits(amounts.amounts, capacities, others or {}, own or {})

    def may_serve(self, alternative: Alternative, place: int, answer: Any) -> bool:
        """Say whether a device could still be placed, now or with more devices placed than now."""
        if answer.__class__ is int or self.is_busy(alternative, place):
            return False
        if answer is None:
            return True
        constraints = self._prepared.claims[alternative.claim].constraints
        states = self._states[alternative.claim]
        for number in alternative.constraints:
            constraint = constraints[number]
            attribute = self._attribute(alternative, place, constraint.attribute)
            # What a constraint rejects it goes on rejecting when more devices are there.
            if attribute is None or constraint.extend(states[number], attribute) is REJECTED:
                return False
        return True

    def is_clean(self) -> bool:
        """Whether nothing is placed."""
        running = (self._taken, self._sharing, self._groups, *self._counters.values())
        return not (
            any(running)
            or any(self.results)
            or any(state is not None for states in self._states for state in states)
        )

    def place(self, alternative: Alternative, place: int, *, must: bool) -> int:
        """Place a device, or change nothing.

        Args:
            alternative: whom it is for.
            place: of the device.
            must: the device was not looked at before with others placed (mode All).

        Returns:
            `PLACED`, or the stage it failed at.
        """
        mark = self.trail.mark()
        stage = self._try(alternative, place, must=must)
        if stage != PLACED:
            self.trail.undo_to(mark)
            if not must and stage in FOR_GOOD:
                self.answers_to(alternative)[place] = stage
        return stage

    def _try(  # noqa: PLR0911 - one return a check, in upstream's order
        self, alternative: Alternative, place: int, *, must: bool
    ) -> int:
        """Place a device step by step: `PLACED`, or the stage it failed at with the steps so far still done."""
        candidate = self.candidates[place]
        shareable = candidate.shareable and self._consumable
        bit = 1 << alternative.claim
        if alternative.admin_access:
            # Differs from what one expects: admin access ignores the users in other claims, nothing else.
            if not shareable and self._taken.get(place, 0) & bit:
                return IN_USE
        elif place in self.exclusive or place in self._taken:
            return IN_USE
        if candidate.skips:
            stage = self._skip_operations()
            if stage != PLACED:
                return stage
        if candidate.consumes:
            stage = self._try_counters(candidate, place, shareable=shareable)
            if stage != PLACED:
                return stage
        if (
            candidate.blocking_taints
            and self._taints_on
            and first_untolerated(candidate.blocking_taints, alternative.tolerations or ())
        ):
            return TAINTED
        if alternative.constraints and not self._try_constraints(alternative, place):
            return CONSTRAINED
        if (
            must  # otherwise it was looked at before
            and self._consumable
            and not self.has_room(self.answers_to(alternative)[place], place)
        ):
            return CAPACITY
        self._commit(alternative, candidate, place, shareable=shareable)
        return PLACED

    def _skip_operations(self) -> int:
        """Say whether a device whose slice skips node operations may be used here."""
        if not self._prepared.experimental:
            return PLACED  # the other allocators do not know the field
        if not self._prepared.features.optional_node_operations:
            return GATED
        return PLACED if NODE_OPERATIONS_FEATURE in self._node.declared_features else NODE_LACKS

    def _try_counters(self, candidate: Candidate, place: int, *, shareable: bool) -> int:
        if not self._partitionable:
            return GATED
        if shareable and (
            place in self._consumed_by_others or place in self._shared or place in self._sharing
        ):
            return PLACED  # its first share has paid
        index = bisect_right(self._bases, place) - 1
        if self._groups_on and not self._join(index, candidate):
            return GROUPS
        available = self._available.get(index)
        if available is None:
            available = available_counters(
                self._pools[index].counter_sets, self._allocated_consumers(index)
            )
            self._available[index] = available
        taken = self._counters.setdefault(index, {})
        changed = charge(candidate.consumes, taken, available)
        if changed is None:
            return COUNTERS
        for key, amount in changed.items():
            self.trail.put(taken, key, amount)
        return PLACED

    def _allocated_consumers(self, index: int) -> Iterator[tuple[DeviceCounterConsumption, ...]]:
        """Counters taken by allocated devices of a pool, for any node, as the slices now say."""
        usage = self._usage.get(index, NOTHING_USED)
        names = set(usage.devices)
        if not self._prepared.rules.stable:
            names.update(usage.shares, usage.consumed)
        if not names:
            return
        pool = self._pools[index]
        for prepared in (*pool.slices, *pool.elsewhere):
            for candidate in facts_of(prepared).candidates:
                if candidate.consumes and candidate.name in names:
                    yield candidate.consumes

    def _join(self, index: int, candidate: Candidate) -> bool:
        """Add a device to the compatibility groups of its counter sets."""
        baseline = self._group_baseline.get(index)
        if baseline is None:
            baseline = {}
            for consumes in self._allocated_consumers(index):
                for entry in consumes:
                    name = entry.counter_set
                    baseline[name] = join_groups(baseline.get(name), entry.compatibility_groups)
            self._group_baseline[index] = baseline
        for entry in candidate.consumes:
            key = (index, entry.counter_set)
            state = self._groups.get(key)
            if state is None:
                state = baseline.get(entry.counter_set)
            if not admits_groups(state, entry.compatibility_groups):
                return False
            self.trail.put(self._groups, key, join_groups(state, entry.compatibility_groups))
        return True

    def _try_constraints(self, alternative: Alternative, place: int) -> bool:
        constraints = self._prepared.claims[alternative.claim].constraints
        states = self._states[alternative.claim]
        for number in alternative.constraints:
            constraint = constraints[number]
            attribute = self._attribute(alternative, place, constraint.attribute)
            if attribute is None:
                return False
            state = constraint.extend(states[number], attribute)
            if state is REJECTED:
                return False
            self.trail.replace(states, number, state)
        return True

    def _attribute(self, alternative: Alternative, place: int, name: str) -> DeviceAttribute | None:
        if alternative.derived:
            return self._selectors.attribute(alternative, self.candidates[place], name)
        key = (name, place)
        if key not in self._attributes:
            found = self._selectors.attribute(alternative, self.candidates[place], name)
            self._attributes[key] = found
        return self._attributes[key]

    def _commit(
        self, alternative: Alternative, candidate: Candidate, place: int, *, shareable: bool
    ) -> None:
        consumed = None
        if shareable:
            consumed = self.answers_to(alternative)[place].amounts
            own = self._sharing.get(place)
            self.trail.put(
                self._sharing, place, consumed if own is None else add_amounts(own, consumed)
            )
        else:
            # Differs from what one expects: an admin placement makes the device "in use" for later requests.
            bits = self._taken.get(place, 0) | 1 << alternative.claim
            self.trail.put(self._taken, place, bits)
        self.trail.append(
            self.results[alternative.claim],
            ChosenDevice(
                alternative.result_name,
                candidate,
                alternative.admin_access,
                alternative.tolerations,
                consumed,
            ),
        )


def _flatten(pools: Sequence[Pool]) -> tuple[Sequence[Candidate], list[int]]:
    """All usable devices in search order, and the place where each pool's devices begin."""
    bases = []
    base = 0
    filled = None
    several = False
    for pool in pools:
        bases.append(base)
        if pool.candidates:
            several = filled is not None
            filled = pool.candidates if filled is None else filled
            base += len(pool.candidates)
    if not several:
        return filled or (), bases
    return [candidate for pool in pools for candidate in pool.candidates], bases
