"""Which claim uses which device: an index kept claim by claim, frozen pool by pool for snapshots.

A claim counts once, whatever is known of it: the union of what is written and what is decided and not yet seen
written. (Upstream adds the two, and counts a share twice for a moment.) Admin access occupies nothing; a result with
a share id occupies that share and its consumed capacity, any other the whole device.

What several claims use more of than there is: `scheduler.cache.conflicts`.

Source: docs/design/claims.md#memory; docs/design/allocator.md#inputs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from allocator.model.claims import AllocationResult
from allocator.model.devices import DeviceID, PoolID
from allocator.quantity import Quantity
from allocator.snapshot import AllocatedState, PoolUsage, not_negative
from scheduler.cache.layered import LayeredMap


class Use(NamedTuple):
    """One claim's use of one device.

    Attributes:
        claim_uid: who.
        pool: where.
        device: what.
        share_id: which share of it; None: all of it.
        consumed: capacity name -> amount that the share consumes.
    """

    claim_uid: str
    pool: PoolID
    device: str
    share_id: str | None
    consumed: Mapping[str, Quantity] | None

    def excludes(self, other: "Use") -> bool:
        """Whether two uses of one device by two claims cannot both be right."""
        return (
            self.share_id is None or other.share_id is None or self.share_id == other.share_id
        ) and self.claim_uid != other.claim_uid


@dataclass(frozen=True, slots=True)
class Conflict:
    """More is given away than there is: a device twice, or more of what several claims can share.

    Attributes:
        device: a device of the claim that was asked about.
        claim_uid: the claim that was asked about, or that came second to be noticed.
        other_uid: another claim that takes part. Empty: there is none, the claim alone takes more than slices offer now.
        other_is_earlier: whether the claim that was asked about has to give way: the others were allocated first, or
            nobody knows (then all give way).
        problem: what is wrong, in words, without names of claims; empty: the device itself is given twice.
    """

    device: DeviceID
    claim_uid: str
    other_uid: str
    other_is_earlier: bool
    problem: str = ""

    @property
    def message(self) -> str:
        """What is wrong, in words, without names of claims."""
        return self.problem or f"device {self.device} is held by two claims"


_NO_USES: Final[tuple[Use, ...]] = ()
_NO_SHARES: Final[frozenset[str]] = frozenset()
_NOTHING: Final[Mapping[str, Quantity]] = {}
V = TypeVar("V", bound=Sized)


class PoolUses:
    """Uses in one pool, and what they come to: kept use by use, so that a change costs as little as its device.

    What `frozen` has given out is never changed: inner values are replaced, outer mappings copied.
    """

    __slots__ = ("_consumed", "_devices", "_frozen", "_shares", "_stale", "uses")

    def __init__(self) -> None:
        self.uses: dict[str, tuple[Use, ...]] = {}
        self._devices: set[str] = set()
        self._shares: dict[str, frozenset[str]] = {}
        self._consumed: dict[str, dict[str, Quantity]] = {}
        self._frozen = PoolUsage()
        self._stale: set[str] = set()  # the parts that differ from `_frozen`

    def add(self, use: Use) -> None:
        """Count a use."""
        device = use.device
        self.uses[device] = (*self.uses.get(device, _NO_USES), use)
        if use.share_id is None:
            self._devices.add(device)
            self._stale.add("devices")
            return
        self._stale.update(("shares", "consumed"))
        self._shares[device] = self._shares.get(device, _NO_SHARES) | {use.share_id}
        if use.consumed:
            self._consumed[device] = _plus(self._consumed.get(device, {}), use.consumed)

    def remove(self, use: Use) -> None:
        """Stop counting a use.

        The device's capacity is added up again: a sum from which is subtracted has the same value as one to which the
        amount was never added, but not the same precision, and upstream's rounding depends on that.
        """
        device = use.device
        rest = tuple(other for other in self.uses[device] if other != use)
        if rest:
            self.uses[device] = rest
        else:
            del self.uses[device]
        if use.share_id is None:
            if all(other.share_id is not None for other in rest):
                self._devices.discard(device)
                self._stale.add("devices")
            return
        self._stale.update(("shares", "consumed"))
        ids = frozenset(other.share_id for other in rest if other.share_id is not None)
        _set_or_drop(self._shares, device, ids)
        if use.consumed:
            consumed: dict[str, Quantity] = {}
            for other in rest:
                consumed = _plus(consumed, other.consumed or {})
            _set_or_drop(self._consumed, device, consumed)

    def consumed(self, device: str) -> Mapping[str, Quantity]:
        """What all shares of a device consume together."""
        return self._consumed.get(device, _NOTHING)

    def has_distinct_shares(self, device: str) -> bool:
        """Whether all uses of a device are shares, and no two of them the same one."""
        return len(self._shares.get(device, _NO_SHARES)) == len(self.uses[device])

    def frozen(self) -> PoolUsage:
        """What is in use now; the parts that did not change are the same objects as before."""
        old, stale = self._frozen, self._stale
        self._frozen = PoolUsage(
            frozenset(self._devices) if "devices" in stale else old.devices,
            self._shares.copy() if "shares" in stale else old.shares,
            self._consumed.copy() if "consumed" in stale else old.consumed,
        )
        stale.clear()
        return self._frozen


def _plus(total: Mapping[str, Quantity], more: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Both added up, as a new dict."""
    result = dict(total)
    for name, amount in more.items():
        result[name] = result[name] + amount if name in result else amount
    return result


def _set_or_drop(mapping: dict[str, V], key: str, value: V) -> None:
    if value:
        mapping[key] = value
    else:
        mapping.pop(key, None)


_NOTHING_IN_USE: Final = PoolUses()


class AllocatedIndex:
    """Devices in use by claim and by pool.

    Attributes:
        revision: grows with every change of what is in use.
    """

    def __init__(self, *, consumable_capacity: bool = True) -> None:
        self._consumable_capacity = consumable_capacity
        self._written: dict[str, tuple[Use, ...]] = {}
        self._held: dict[str, tuple[Use, ...]] = {}
        self._counted: dict[str, tuple[Use, ...]] = {}
        self._pools: dict[PoolID, PoolUses] = {}
        self._dirty: set[PoolID] = set()
        self._frozen: LayeredMap[PoolID, PoolUsage] = LayeredMap()
        self._state = AllocatedState(self._frozen)
        self.revision = 0

    @property
    def dirty(self) -> Set[PoolID]:
        """The pools that changed since the last `state()`; a view, empty after the next one."""
        return self._dirty

    def set_written(self, uid: str, allocation: AllocationResult | None) -> tuple[Use, ...]:
        """Note what a claim's status says.

        Args:
            uid: of the claim.
            allocation: `status.allocation`; None if it has none, or the claim is gone.

        Returns:
            uses that did not count before.
        """
        if allocation is None:
            return _NO_USES if self._written.pop(uid, None) is None else self._recount(uid)
        uses = self._uses_of(uid, allocation)
        if self._written.get(uid) == uses:
            return _NO_USES
        self._written[uid] = uses
        return self._recount(uid)

    def set_held(self, uid: str, allocations: Iterable[AllocationResult]) -> tuple[Use, ...]:
        """Note what has been decided for a claim and is not yet seen written; nothing: no more.

        Returns:
            uses that did not count before.
        """
        uses = tuple(use for allocation in allocations for use in self._uses_of(uid, allocation))
        if uses:
            self._held[uid] = uses
        else:
            self._held.pop(uid, None)
        return self._recount(uid)

    def state(self) -> AllocatedState:
        """What is in use, immutable; the same object while nothing changes. Only changed pools are made again."""
        if self._dirty:
            changes: dict[PoolID, PoolUsage | None] = {}
            for pool_id in self._dirty:
                pool = self._pools.get(pool_id)
                changes[pool_id] = None if pool is None else pool.frozen()
            self._dirty.clear()
            self._frozen = self._frozen.changed(changes)
            self._state = AllocatedState(self._frozen)
        return self._state

    def uses(self, device: DeviceID) -> Sequence[Use]:
        """Who uses a device."""
        pool = self._pools.get(device.pool_id)
        return _NO_USES if pool is None else pool.uses.get(device.device, _NO_USES)

    def uses_of(self, uid: str) -> Sequence[Use]:
        """What a claim uses."""
        return self._counted.get(uid, _NO_USES)

    def in_pool(self, pool_id: PoolID) -> PoolUses:
        """What is in use in a pool, by device."""
        return self._pools.get(pool_id, _NOTHING_IN_USE)

    @property
    def pools(self) -> Collection[PoolID]:
        """Pools in which something is in use."""
        return self._pools.keys()

    def is_written(self, use: Use) -> bool:
        """Whether a use is in its claim's status, not only decided."""
        return use in self._written.get(use.claim_uid, _NO_USES)

    def _uses_of(self, uid: str, allocation: AllocationResult) -> tuple[Use, ...]:
        uses = []
        for result in allocation.devices.results or ():
            if result.admin_access:
                continue
            pool = PoolID(result.driver, result.pool)
            is_share = result.share_id is not None and self._consumable_capacity
            if is_share:
                consumed = not_negative(result.consumed_capacity or {}) or None
                uses.append(Use(uid, pool, result.device, result.share_id, consumed))
            else:
                uses.append(Use(uid, pool, result.device, None, None))
        return tuple(uses)

    def _united(self, uid: str) -> tuple[Use, ...]:
        """What a claim counts: each (device, share) once, as written if it is written."""
        held = self._held.get(uid, _NO_USES)
        written = self._written.get(uid, _NO_USES)
        # The common cases, without building anything: one device, decided or written or both.
        if not held and len(written) < 2:
            return written
        if len(held) == 1 and (not written or written == held):
            return held
        found: dict[tuple[PoolID, str, str | None], Use] = {}
        for use in (*written, *held):
            found.setdefault((use.pool, use.device, use.share_id), use)
        return tuple(found.values())

    def _recount(self, uid: str) -> tuple[Use, ...]:
        """Bring the pools in line with what is known of one claim; returns what is new."""
        before, after = self._counted.get(uid, _NO_USES), self._united(uid)
        if before == after:
            return _NO_USES
        self.revision += 1
        for use in before:
            if use not in after:
                self._remove(use)
        added = tuple(use for use in after if use not in before) if before else after
        for use in added:
            self._add(use)
        if after:
            self._counted[uid] = after
        else:
            self._counted.pop(uid, None)
        return added

    def _add(self, use: Use) -> None:
        pool = self._pools.get(use.pool)
        if pool is None:
            pool = self._pools[use.pool] = PoolUses()
        self._dirty.add(use.pool)
        pool.add(use)

    def _remove(self, use: Use) -> None:
        pool = self._pools[use.pool]
        pool.remove(use)
        if not pool.uses:
            del self._pools[use.pool]
        self._dirty.add(use.pool)
