"""Partitionable devices: shared counters of a pool, and compatibility groups on counter sets.

Pure functions over amounts in nano-units; the search keeps the running state and takes it back. The API server lets
drivers publish amounts below zero: nothing fits into such a counter, and a device that takes less than nothing takes
nothing. (Upstream would let it make room for others.)

Source: checkAvailableCounters, compatibility_groups.go; KEP-4815, KEP-5963.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from allocator.model.devices import CounterSet, DeviceCounterConsumption

CounterKey = tuple[str, str]
"""Counter set name, counter name."""

GroupState = frozenset[str] | None
"""Compatibility groups on a counter set: None nobody is there; empty: only devices without groups; else in common.

An intersection that became empty among devices allocated long ago is the set of no group, see `NO_COMMON_GROUP`.
"""

WITHOUT_GROUPS: frozenset[str] = frozenset()
NO_COMMON_GROUP: frozenset[str] = frozenset({"\0"})  # no valid group has this name


@dataclass(frozen=True, slots=True)
class Available:
    """What is left of the counters of a pool.

    Attributes:
        amounts: counter -> nano-units left, possibly negative.
        overdrawn: some counter is negative before anything new is taken.
    """

    amounts: Mapping[CounterKey, int]
    overdrawn: bool


def offered_counters(counter_sets: Iterable[CounterSet]) -> dict[CounterKey, int]:
    """Counter -> amount when nothing is taken from it, in nano-units."""
    return {
        (counter_set.name, name): counter.value.nanos
        for counter_set in counter_sets
        for name, counter in (counter_set.counters or {}).items()
    }


def consumed_counters(consumes: Iterable[DeviceCounterConsumption]) -> dict[CounterKey, int]:
    """Counter -> amount that one device takes from it, in nano-units."""
    taken: dict[CounterKey, int] = {}
    for entry in consumes:
        for name, counter in (entry.counters or {}).items():
            amount = counter.value.nanos
            if amount > 0:
                key = (entry.counter_set, name)
                taken[key] = taken.get(key, 0) + amount
    return taken


def available_counters(
    counter_sets: Mapping[str, CounterSet],
    allocated: Iterable[Sequence[DeviceCounterConsumption]],
) -> Available:
    """Subtract what allocated devices of the pool consume, whichever node they are for."""
    amounts = offered_counters(counter_sets.values())
    for consumes in allocated:
        for entry in consumes:
            for name, counter in (entry.counters or {}).items():
                amount = counter.value.nanos
                if amount > 0:
                    amounts[entry.counter_set, name] -= amount
    return Available(amounts, any(left < 0 for left in amounts.values()))


def charge(
    consumes: Sequence[DeviceCounterConsumption],
    taken: Mapping[CounterKey, int],
    available: Available,
) -> dict[CounterKey, int] | None:
    """Add a device to what this call takes from its pool.

    Returns:
        The changed entries of `taken`, or None when any counter of the pool would be exceeded.
    """
    changed: dict[CounterKey, int] = {}
    for entry in consumes:
        for name, counter in (entry.counters or {}).items():
            amount = counter.value.nanos
            if amount > 0:
                key = (entry.counter_set, name)
                changed[key] = changed.get(key, taken.get(key, 0)) + amount
    amounts = available.amounts
    if available.overdrawn:
        # Differs from what one expects: one overdrawn counter blocks every consumer of the pool, also of other sets.
        fits = all(changed.get(key, taken.get(key, 0)) <= left for key, left in amounts.items())
    else:
        # Whatever was placed before fitted, so only the counters that change can be exceeded.
        fits = all(amount <= amounts[key] for key, amount in changed.items())
    return changed if fits else None


def join_groups(state: GroupState, groups: Sequence[str] | None) -> GroupState:
    """Add a device to a counter set whatever its groups: for devices that are allocated already."""
    new = frozenset(groups or ())
    if state is None:
        return new
    if state == WITHOUT_GROUPS or not new:
        return state
    return (state & new) or NO_COMMON_GROUP


def admits_groups(state: GroupState, groups: Sequence[str] | None) -> bool:
    """Say whether a device with these groups may join the devices already on a counter set."""
    if state is None:
        return True
    new = frozenset(groups or ())
    if not new:
        return state == WITHOUT_GROUPS
    return bool(state & new)


def groups_agree(groups: Collection[Sequence[str]]) -> bool:
    """Say whether devices may be on one counter set together: none has groups, or all have one in common."""
    return not any(groups) or bool(frozenset.intersection(*map(frozenset, groups)))
