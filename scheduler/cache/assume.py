"""Claims as they will be: what the watch has shown, overlaid with what our own writes returned.

A write's answer is newer than the watch for a moment. An overlay lives exactly as long as the watch has not reached
its version; after that the watch knows at least as much, also when it knows that the claim is gone.

The watch shows every write in its order, so an allocation was set at the version of the first event that has it. A list
or an answer tells less: what is read may have been set long before.
Source: docs/design/claims.md#memory, docs/design/cache-and-watches.md#r9; upstream's AssumeCache.
"""

from collections.abc import Iterable, Iterator, Mapping

from scheduler.cache.store import Changed, Store, is_newer, key_of, version_of
from scheduler.model import ClaimRecord, unreadable

_Changes = list[Changed[ClaimRecord]]


def _version(record: ClaimRecord) -> int:
    return version_of(record.claim.metadata)


class AssumeCache:
    """Claims by key and UID, newest known first. Every change is returned as (old, new) of what readers see."""

    def __init__(self) -> None:
        self._assumed: dict[str, ClaimRecord] = {}
        self._watched: Store[ClaimRecord] = Store(
            lambda record: record.claim.metadata, self._assumed.get
        )
        self._assumed_keys: dict[str, str] = {}
        self._allocated_at: dict[str, int] = {}
        self._lowest = 0

    @property
    def resource_version(self) -> int:
        """How far the watch has come."""
        return self._watched.resource_version

    @property
    def assumed(self) -> tuple[str, ...]:
        """UIDs of claims whose newest state is one of our own writes that the watch has not reached."""
        return tuple(self._assumed_keys)

    @property
    def watched(self) -> Iterable[ClaimRecord]:
        """What the watch has shown, without overlays."""
        return self._watched

    @property
    def moments(self) -> Mapping[str, int]:
        """UID -> the version at which the watch showed the claim's allocation to be set, where it has."""
        return self._allocated_at

    def forget_moments(self) -> None:
        """Take it that nobody knows when anything was allocated."""
        self._allocated_at.clear()

    def allocated_at(self, uid: str) -> int | None:
        """The version at which a claim's allocation was set; None: not known, or it has none.

        An allocation that only answers have shown was set after all that the watch has shown: then this is the version
        of the answer, which is later than that too.
        """
        newest, watched = self.by_uid(uid), self._watched.by_uid(uid)
        allocation = None if newest is None else newest.claim.status.allocation
        if newest is None or allocation is None:
            return None
        if watched is not None and watched.claim.status.allocation == allocation:
            return self._allocated_at.get(uid)
        return _version(newest) or None

    def get(self, key: str) -> ClaimRecord | None:
        """The newest claim with this key."""
        watched = self._watched.get(key)
        overlay = self._assumed.get(key)
        return watched if overlay is None else overlay

    def by_uid(self, uid: str) -> ClaimRecord | None:
        """The newest claim with this UID."""
        key = self._assumed_keys.get(uid)
        if key is not None:
            return self._assumed[key]
        watched = self._watched.by_uid(uid)
        if watched is None or key_of(watched.claim.metadata) in self._assumed:
            return None
        return watched

    def __iter__(self) -> Iterator[ClaimRecord]:
        if not self._assumed:  # most of the time, and then keys need not be made
            yield from self._watched
            return
        for watched in self._watched:
            if key_of(watched.claim.metadata) not in self._assumed:
                yield watched
        yield from self._assumed.values()

    def assume(self, record: ClaimRecord) -> _Changes:
        """Remember what a write returned. Not if the watch, or a later write, already knows better."""
        meta = record.claim.metadata
        key, version = key_of(meta), _version(record)
        old = self.get(key)
        floor = max(self.resource_version, _version(old) if old is not None else 0)
        if not is_newer(version, floor):
            return []
        if old is not None and old.claim.metadata.uid != meta.uid:
            self._assumed_keys.pop(old.claim.metadata.uid, None)
        self._assumed[key] = record
        self._assumed_keys[meta.uid] = key
        self._lowest = min(map(_version, self._assumed.values()))
        return _difference(old, record)

    def restore(self, uid: str) -> _Changes:
        """Forget what was assumed of a claim: readers see what the watch has shown again."""
        key = self._assumed_keys.pop(uid, None)
        if key is None:
            return []
        return _difference(self._assumed.pop(key), self._watched.get(key))

    def upsert(self, record: ClaimRecord) -> _Changes:
        """Take an added or modified claim from the watch."""
        record = self._watched.identified(record)
        key = key_of(record.claim.metadata)
        before, watched = self.get(key), self._watched.get(key)
        if not self._watched.upsert(record):
            return []
        self._note_moment(
            watched, self._watched.get(key)
        )  # an unreadable one is stored with what was known
        if _version(record) == 0:
            self._drop(key)
        return self._after(key, before)

    def delete(self, record: ClaimRecord) -> _Changes:
        """Take a deletion from the watch."""
        record = self._watched.identified(record)
        meta = record.claim.metadata
        key = key_of(meta)
        before = self.get(key)
        if self._assumed_keys.get(meta.uid) == key and not (
            0 < _version(record) < _version(self._assumed[key])
        ):
            self._drop(key)
        for old, new in self._watched.delete(record):
            self._note_moment(old, new)
        return self._after(key, before)

    def replace(
        self, records: Iterable[ClaimRecord], resource_version: int, *, is_reset: bool = False
    ) -> _Changes:
        """Take a whole list.

        Args:
            records: all there are.
            resource_version: of the list.
            is_reset: whether versions begin anew: then what our own writes returned means nothing any more, either.

        Raises:
            ValueError: the list is older than what has been seen.
        """
        overlays = dict(self._assumed)
        changes = self._watched.replace(records, resource_version, is_reset=is_reset)
        for old, _ in changes:
            if old is not None:
                self._allocated_at.pop(old.claim.metadata.uid, None)
        if not overlays:
            return changes
        if is_reset:
            self._drop_all()
        else:
            self._settle()
        result = [
            (old, new)
            for old, new in changes
            if key_of((new or old).claim.metadata) not in overlays  # type: ignore[union-attr]
        ]
        for key, before in overlays.items():
            result.extend(_difference(before, self.get(key), is_reset=is_reset))
        return result

    def progress(self, resource_version: int) -> _Changes:
        """The watch has come this far (bookmark)."""
        self._watched.progress(resource_version)
        return self._settled()

    def _note_moment(self, old: ClaimRecord | None, new: ClaimRecord | None) -> None:
        """Note when an allocation was set, from what the watch showed before and shows now under one key."""
        uid = "" if new is None else new.claim.metadata.uid
        if old is not None and old.claim.metadata.uid != uid:
            self._allocated_at.pop(old.claim.metadata.uid, None)
            old = None
        if new is None:
            return
        allocation = new.claim.status.allocation
        before = None if old is None else old.claim.status.allocation
        if allocation is None:
            self._allocated_at.pop(uid, None)
        elif allocation == before:
            pass
        elif unreadable(new) is None and (old is None or unreadable(old) is None):
            self._allocated_at[uid] = _version(new)
        else:  # what cannot be read may have had this allocation for long
            self._allocated_at.pop(uid, None)

    def _after(self, key: str, before: ClaimRecord | None) -> _Changes:
        changes = [change for change in self._settled() if not _is_about(change, key)]
        return [*_difference(before, self.get(key)), *changes]

    def _settled(self) -> _Changes:
        changes: _Changes = []
        for key, before in self._settle():
            changes.extend(_difference(before, self._watched.get(key)))
        return changes

    def _settle(self) -> list[tuple[str, ClaimRecord]]:
        """Drop overlays that the watch has reached."""
        reached = self._watched.resource_version
        if not self._assumed or reached < self._lowest:
            return []
        gone = [
            (key, record)
            for key, record in self._assumed.items()
            if 0 < _version(record) <= reached
        ]
        for key, _ in gone:
            self._drop(key)
        self._lowest = min(map(_version, self._assumed.values()), default=0)
        return gone

    def _drop_all(self) -> None:
        for key in list(self._assumed):
            self._drop(key)
        self._lowest = 0

    def _drop(self, key: str) -> None:
        record = self._assumed.pop(key, None)
        if record is not None:
            self._assumed_keys.pop(record.claim.metadata.uid, None)


def _is_about(change: Changed[ClaimRecord], key: str) -> bool:
    item = change[1] or change[0]
    return item is not None and key_of(item.claim.metadata) == key


def _difference(
    old: ClaimRecord | None, new: ClaimRecord | None, *, is_reset: bool = False
) -> _Changes:
    if old is None and new is None:
        return []
    if old is None or new is None:
        return [(old, new)]
    before, after = old.claim.metadata, new.claim.metadata
    if before.uid != after.uid:
        return [(old, None), (None, new)]
    is_same_version = before.resource_version == after.resource_version != ""
    if old is new or (is_same_version and not is_reset):
        return []
    return [(old, new)]
