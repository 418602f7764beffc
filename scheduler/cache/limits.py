"""What the devices of a pool can give to all claims together, as its slices say now: counters, shares, capacities.

A complete pool is its newest generation. While a driver publishes one slice by slice, what the newest slices do not say
yet is taken from older ones: a limit is better known late than not at all.

Source: KEP-4815 (counters), KEP-5075 (capacity), KEP-5963 (compatibility groups);
docs/design/allocator.md#generation-and-completeness, docs/design/allocator.md#consumable-capacity,
docs/design/allocator.md#counters.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from allocator.counters import CounterKey, consumed_counters, offered_counters
from allocator.model.devices import CounterSet, Device
from allocator.snapshot import PreparedSlice
from scheduler.model import UnreadableSlice

Groups = Mapping[str, tuple[str, ...]]
"""Counter set name -> the compatibility groups of a device there."""


class _SliceLimits:
    """What one slice says.

    Attributes:
        consumers: its devices that take from counters.
        has_shared: whether several claims may share one of its devices.
    """

    __slots__ = ("consumers", "has_shared")

    def __init__(self, devices: Sequence[Device]) -> None:
        self.consumers = tuple(device for device in devices if device.consumes_counters)
        self.has_shared = any(device.allow_multiple_allocations for device in devices)


class PoolLimits:
    """The limits of one pool.

    Attributes:
        is_known: every slice can be read.
        is_plain: no device can be shared or takes from counters: each is for one claim, and nothing else limits. Not if
            some slice cannot be read.
        counters: counter -> amount, in nano-units.
        takes: device name -> what it takes from counters, in nano-units. Only devices that take something.
        takers: counter set name -> names of the devices that take from it.
        groups: device name -> its compatibility groups. All devices with counters, if any declares groups; else none.
    """

    __slots__ = (
        "_by_name",
        "_slices",
        "counters",
        "groups",
        "is_known",
        "is_plain",
        "takers",
        "takes",
    )

    def __init__(self, slices: Sequence[PreparedSlice] = ()) -> None:
        """Read the slices of one pool, of any generation."""
        self._slices = _current(slices)
        self._by_name: dict[str, Device] | None = None
        self.counters: dict[CounterKey, int] = {}
        self.takes: dict[str, Mapping[CounterKey, int]] = {}
        self.takers: dict[str, list[str]] = {}
        self.groups: dict[str, Groups] = {}
        facts = [_facts_of(prepared) for prepared in self._slices]
        self.is_known = not any(isinstance(each.source, UnreadableSlice) for each in slices)
        self.is_plain = self.is_known and not any(
            each.consumers or each.has_shared for each in facts
        )
        if not self.is_plain:
            self._add_counters(device for each in facts for device in each.consumers)

    def _add_counters(self, devices: Iterable[Device]) -> None:
        sets: dict[str, CounterSet] = {}
        for prepared in self._slices:
            for counter_set in prepared.slice.spec.shared_counters or ():
                sets.setdefault(counter_set.name, counter_set)
        self.counters = offered_counters(sets.values())
        declares_groups = False
        for device in devices:
            if device.name in self.takes:
                continue
            consumes = device.consumes_counters or ()
            self.takes[device.name] = consumed_counters(consumes)
            self.groups[device.name] = {
                entry.counter_set: entry.compatibility_groups or () for entry in consumes
            }
            declares_groups = declares_groups or any(self.groups[device.name].values())
            for entry in consumes:
                self.takers.setdefault(entry.counter_set, []).append(device.name)
        if not declares_groups:
            self.groups.clear()

    def device(self, name: str) -> Device | None:
        """A device by name; None: it is not published (any more)."""
        if self._by_name is None:
            self._by_name = {}
            for prepared in self._slices:
                for device in prepared.slice.spec.devices or ():
                    self._by_name.setdefault(device.name, device)
        return self._by_name.get(name)


_KEY: Final = "limits"


def limits_of(slices: Sequence[PreparedSlice]) -> PoolLimits:
    """The limits of a pool, made once for as long as none of its slices changes.

    Args:
        slices: all of the pool; the same object while they do not change.
    """
    if not slices:
        return NO_LIMITS
    memo = slices[0].memo
    known: tuple[object, PoolLimits] | None = memo.get(_KEY)
    if known is None or known[0] is not slices:
        known = memo[_KEY] = (slices, PoolLimits(slices))
    return known[1]


def _facts_of(prepared: PreparedSlice) -> _SliceLimits:
    found: _SliceLimits | None = prepared.memo.get(_SliceLimits)
    if found is None:
        found = prepared.memo[_SliceLimits] = _SliceLimits(prepared.slice.spec.devices or ())
    return found


def _current(slices: Sequence[PreparedSlice]) -> Sequence[PreparedSlice]:
    """The newest generation; if that is not complete, older ones after it."""
    newest = max((each.slice.spec.pool.generation for each in slices), default=0)
    current = [each for each in slices if each.slice.spec.pool.generation == newest]
    if current and len(current) == current[0].slice.spec.pool.resource_slice_count:
        return current
    return sorted(slices, key=lambda each: -each.slice.spec.pool.generation)


NO_LIMITS: Final = PoolLimits()
