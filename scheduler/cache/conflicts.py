"""Where claims of several writers together use more than there is, and which of them has to give way.

One rule for all that is limited (devices, capacities of shared devices, counters, compatibility groups): a claim gives
way when it exceeds a limit together with everything written before it. The API server orders the writes, and who asks
has seen every write up to its own; so of claims that exceed a limit together the last one gives way, whatever the
others do. A claim that would still fit is not asked to, also if a later one makes it too much.

What slices offer may shrink after it was given away. That is no conflict between claims whose pods are bound, and a
claim that adds nothing to what those use does not give way for it. A claim that adds something does.

Source: docs/design/invariants.md#safety (S1 to S3), docs/design/write-protocol.md#steps (W3),
docs/design/failure-model.md#f22, docs/design/failure-model.md#f32.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from allocator.counters import CounterKey, groups_agree
from allocator.model.devices import DeviceID, PoolID
from scheduler.cache.allocated import AllocatedIndex, Conflict, PoolUses, Use
from scheduler.cache.limits import PoolLimits


class _Side(Enum):
    """Whose a use is, as the claim sees it that is asked about."""

    OURS = auto()
    EARLIER = auto()
    LATER = auto()


class _Part(NamedTuple):
    """A device or share in use that takes its part of something limited.

    Attributes:
        device: which, or of which.
        takes: limit -> how much of it, in nano-units.
        side: ours if we use it; else earlier if anybody does who is.
        users: claims that use it; without later ones if anybody else does.
    """

    device: str
    takes: Mapping[CounterKey, int]
    side: _Side
    users: Sequence[str]


_SideOf = Callable[[Use], _Side | None]  # None: that use does not count
_Excuse = Callable[[Iterable[_Part]], bool]


class Judge:
    """Compares what is in use with what slices offer."""

    def __init__(
        self,
        allocated: AllocatedIndex,
        limits_of: Callable[[PoolID], PoolLimits],
        allocated_at: Callable[[str], int | None],
        is_bound: Callable[[str], bool],
    ) -> None:
        """Store the collaborators.

        Args:
            allocated: what is in use.
            limits_of: the limits of a pool, from its current slices.
            allocated_at: the version at which the allocation of a claim (UID) was set; None: nobody knows.
            is_bound: whether a claim (UID) is reserved for a pod that has a node.
        """
        self._allocated = allocated
        self._limits_of = limits_of
        self._allocated_at = allocated_at
        self._is_bound = is_bound

    def of(self, uid: str) -> list[Conflict]:
        """Conflicts of a claim with what is written of others, or with what slices offer by now."""
        uses = self._allocated.uses_of(uid)
        if self._are_alone(uses):
            return []

        def is_excused(parts: Iterable[_Part]) -> bool:
            return all(any(map(self._is_bound, part.users)) for part in parts)

        return self._judged(uid, uses, self._in_order(uid), is_excused)

    def brought(self, uid: str, added: Sequence[Use]) -> list[Conflict]:
        """Conflicts with others, written or only decided, that new uses of a claim bring."""
        if self._are_alone(added):
            return []

        def side_of(use: Use) -> _Side:
            return _Side.OURS if use.claim_uid == uid else _Side.EARLIER

        def is_excused(parts: Iterable[_Part]) -> bool:
            return all(len(part.users) > 1 for part in parts if part.side is _Side.OURS)

        found = self._judged(uid, added, side_of, is_excused)
        return [conflict for conflict in found if conflict.other_uid]

    def all(self) -> list[Conflict]:
        """All conflicts of claims that are written, from every side, with what a shrink has brought about."""
        uids: dict[str, None] = {}
        for pool_id in self._allocated.pools:
            is_plain = self._limits_of(pool_id).is_plain
            for uses in self._allocated.in_pool(pool_id).uses.values():
                if len(uses) > 1 or not is_plain:
                    uids.update(dict.fromkeys(use.claim_uid for use in uses))
        return [
            conflict
            for uid in uids
            for conflict in self._judged(
                uid, self._allocated.uses_of(uid), self._in_order(uid), lambda _: False
            )
            if conflict.other_uid
        ]

    def _are_alone(self, uses: Sequence[Use]) -> bool:
        """Whether these are devices that nobody else uses and that nothing else limits: the common case, at once."""
        for use in uses:
            if len(self._allocated.in_pool(use.pool).uses[use.device]) > 1:
                return False
            if not self._limits_of(use.pool).is_plain:
                return False
        return True

    def _in_order(self, uid: str) -> _SideOf:
        """Sides by the order of writing; what is only decided does not count.

        Who was first is known only if both moments are: a guess would let both stay.
        """
        allocated, ours = self._allocated, self._allocated_at(uid)
        sides = {uid: _Side.OURS}

        def side_of(use: Use) -> _Side | None:
            side = sides.get(use.claim_uid)
            if side is None:
                if not allocated.is_written(use):
                    return None
                theirs = self._allocated_at(use.claim_uid)
                is_earlier = theirs is None or ours is None or theirs < ours
                side = sides[use.claim_uid] = _Side.EARLIER if is_earlier else _Side.LATER
            return side

        return side_of

    def _judged(
        self, uid: str, uses: Sequence[Use], side_of: _SideOf, is_excused: _Excuse
    ) -> list[Conflict]:
        found: list[Conflict] = []
        for pool_id in dict.fromkeys([use.pool for use in uses]):
            limits, pool = self._limits_of(pool_id), self._allocated.in_pool(pool_id)
            own = [use for use in uses if use.pool == pool_id]
            for use in own:
                if len(pool.uses[use.device]) > 1:
                    found.extend(_collisions(use, pool, limits, side_of))
            if not limits.is_plain:
                found.extend(
                    _Question(uid, pool_id, pool, limits, side_of, is_excused).conflicts(own)
                )
        return found


def _collisions(
    use: Use, pool: PoolUses, limits: PoolLimits, side_of: _SideOf
) -> Iterator[Conflict]:
    """Other uses of the device that cannot be right beside this one."""
    device = None if use.share_id is None else limits.device(use.device)
    can_share = device is None or bool(device.allow_multiple_allocations)
    if can_share and pool.has_distinct_shares(use.device):
        return
    for other in pool.uses[use.device]:
        if other.claim_uid == use.claim_uid or (can_share and not use.excludes(other)):
            continue
        side = side_of(other)
        if side is not None:
            device_id = DeviceID(*use.pool, use.device)
            yield Conflict(device_id, use.claim_uid, other.claim_uid, side is _Side.EARLIER)


@dataclass(frozen=True, slots=True)
class _Question:
    """Whether one claim exceeds the limits of one pool.

    Attributes:
        uid: the claim.
        pool_id: the pool.
        pool: what is in use of it.
        limits: what it offers.
        side_of: whose a use is.
        is_excused: whether these parts, which exceed a limit together, are no reason to give way.
    """

    uid: str
    pool_id: PoolID
    pool: PoolUses
    limits: PoolLimits
    side_of: _SideOf
    is_excused: _Excuse

    def conflicts(self, own: Sequence[Use]) -> Iterator[Conflict]:
        """What some uses of the claim exceed: one conflict at most of each shared device, of counters, of groups."""
        if not self.limits.is_known:
            yield from self._unknown(own)
            return
        shared = dict.fromkeys(use.device for use in own if use.share_id is not None)
        for device in shared:
            yield from self._capacity(device)
        takers = [
            device
            for device in dict.fromkeys(use.device for use in own)
            if device in self.limits.takes
        ]
        if takers:
            yield from self._counters(takers)
            if self.limits.groups:
                yield from self._groups(takers)

    def _unknown(self, own: Sequence[Use]) -> Iterator[Conflict]:
        """Nothing new comes from a pool of which a slice cannot be read: a guess would let two writers both stay."""
        part = _Part("", {}, _Side.OURS, (self.uid,))
        if own and not self.is_excused([part]):
            problem = f"a slice of pool {self.pool_id} cannot be read: it is not known what is left"
            yield Conflict(
                self._id(own[0].device), self.uid, "", other_is_earlier=True, problem=problem
            )

    def _capacity(self, name: str) -> Iterator[Conflict]:
        device, consumed = self.limits.device(name), self.pool.consumed(name)
        if device is None or not consumed:
            return
        capacity = device.capacity or {}
        offered = {(name, key): each.value.nanos for key, each in capacity.items()}
        if all(amount.nanos <= offered.get((name, key), 0) for key, amount in consumed.items()):
            return  # enough for all, whoever came first
        parts = [
            _Part(name, _taken(use), side, (use.claim_uid,))
            for use in self.pool.uses[name]
            if (side := self.side_of(use)) is not None
        ]
        for key, other, is_earlier in self._exceeded(parts, offered):
            problem = (
                f"more is in use than there is of capacity {key[1]} of device {self._id(name)}"
            )
            yield Conflict(self._id(name), self.uid, other, is_earlier, problem)

    def _counters(self, own: Sequence[str]) -> Iterator[Conflict]:
        takes, takers, offered = self.limits.takes, self.limits.takers, self.limits.counters
        touched = dict.fromkeys(key[0] for name in own for key in takes[name])
        names = [name for each in touched for name in takers[each] if name in self.pool.uses]
        total = _sum(takes[name] for name in dict.fromkeys(names))
        if all(total[key] <= offered.get(key, 0) for name in own for key in takes[name]):
            return  # enough for all
        for key, other, is_earlier in self._exceeded(list(self._parts(names)), offered):
            problem = (
                f"more is in use than there is of counter {key[1]} of counter set {key[0]}"
                f" in pool {self.pool_id}"
            )
            device = next(name for name in own if key in takes[name])
            yield Conflict(self._id(device), self.uid, other, is_earlier, problem)

    def _groups(self, own: Sequence[str]) -> Iterator[Conflict]:
        groups = self.limits.groups
        for counter_set in dict.fromkeys(each for name in own for each in groups[name]):
            found = self._disagreeing(counter_set)
            if found is not None:
                problem = (
                    "devices without a compatibility group in common are in use"
                    f" on counter set {counter_set} in pool {self.pool_id}"
                )
                device = next(name for name in own if counter_set in groups[name])
                yield Conflict(self._id(device), self.uid, *found, problem)
                return

    def _disagreeing(self, counter_set: str) -> tuple[str, bool] | None:
        """Who is not to be on a counter set together with us, and whether that one was there earlier."""
        sides: dict[_Side, list[_Part]] = {side: [] for side in _Side}
        for part in self._parts(self.limits.takers[counter_set]):
            sides[part.side].append(part)
        earlier, before = sides[_Side.EARLIER], [*sides[_Side.OURS], *sides[_Side.EARLIER]]
        if earlier and not self._agree(counter_set, before):
            # Others who disagree already, and stay, would otherwise keep out whomever the allocator lets in beside them.
            is_old = not self._agree(counter_set, earlier) and self.is_excused(earlier)
            if is_old or self.is_excused(before):
                return None
            return earlier[-1].users[-1], True
        for part in sides[_Side.LATER]:
            if not self._agree(counter_set, [*before, part]):
                return part.users[-1], False
        return None

    def _agree(self, counter_set: str, parts: Iterable[_Part]) -> bool:
        return groups_agree([self.limits.groups[part.device][counter_set] for part in parts])

    def _parts(self, devices: Iterable[str]) -> Iterator[_Part]:
        """Those of some devices that are in use: each once, however many claims share it."""
        for name in dict.fromkeys(devices):
            sides: dict[str, _Side] = {}
            for use in self.pool.uses.get(name, ()):
                side = self.side_of(use)
                if side is not None:
                    sides[use.claim_uid] = side
            if sides:
                side = next(each for each in _Side if each in sides.values())
                is_later = side is _Side.LATER
                users = [uid for uid, each in sides.items() if (each is _Side.LATER) is is_later]
                yield _Part(name, self.limits.takes[name], side, users)

    def _exceeded(
        self, parts: Collection[_Part], offered: Mapping[CounterKey, int]
    ) -> Iterator[tuple[CounterKey, str, bool]]:
        """A limit that we exceed, one of the others who take from it, and whether it is for us to give way."""
        totals = {side: _sum(part.takes for part in parts if part.side is side) for side in _Side}
        by_later: tuple[CounterKey, str, bool] | None = None
        for key, amount in totals[_Side.OURS].items():
            left = offered.get(key, 0) - amount - totals[_Side.EARLIER].get(key, 0)
            if amount > 0 and left < 0:
                involved = [p for p in parts if p.takes.get(key) and p.side is not _Side.LATER]
                if not self.is_excused(involved):
                    yield key, _last_user(involved, _Side.EARLIER), True
                    return
            elif amount > 0 and by_later is None and totals[_Side.LATER].get(key, 0) > left:
                involved = [part for part in parts if part.takes.get(key)]
                by_later = key, _last_user(involved, _Side.LATER), False
        if by_later is not None:
            yield by_later

    def _id(self, device: str) -> DeviceID:
        return DeviceID(*self.pool_id, device)


def _sum(amounts: Iterable[Mapping[CounterKey, int]]) -> dict[CounterKey, int]:
    total: dict[CounterKey, int] = {}
    for each in amounts:
        for key, amount in each.items():
            total[key] = total.get(key, 0) + amount
    return total


def _taken(use: Use) -> dict[CounterKey, int]:
    return {(use.device, key): amount.nanos for key, amount in (use.consumed or {}).items()}


def _last_user(parts: Iterable[_Part], side: _Side) -> str:
    """A claim of a side that takes part; empty: there is none."""
    users = [part.users[-1] for part in parts if part.side is side]
    return users[-1] if users else ""
