"""Objects of one kind as the watch has shown them. One writer; newer wins, whatever order events come in.

The API server orders all writes of one resource by resourceVersion, and a watch delivers them in that order. So an
event at or below the version already reached is a repetition, also when its object is not here any more.

An object that cannot be read is kept as far as it can be, together with what the version before says (`unreadable`).
Source: docs/design/cache-and-watches.md#r7, docs/design/failure-model.md#f10, docs/design/failure-model.md#f11.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import is_
from typing import Final, Generic, TypeVar, cast

from msgspec.structs import replace

from allocator.model.claims import ResourceClaim
from allocator.model.meta import ObjectMeta
from scheduler.cache.unreadable import carried_over, identified, with_meta
from scheduler.model import ClaimRecord, Kind, Watched, unreadable

T = TypeVar("T", bound=Watched)
_LONGEST_VERSION: Final = 20  # digits; the API server's have 64 bits
Changed = tuple[T | None, T | None]


class EventType(StrEnum):
    """What a watch event says."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch.

    Attributes:
        kind: of the object.
        type: what happened.
        object: the object after it happened (before, for DELETED); None for BOOKMARK.
        resource_version: how far the watch has come with this event.
    """

    kind: Kind
    type: EventType
    object: Watched | None
    resource_version: int


def meta_of(item: Watched) -> ObjectMeta:
    """The metadata of any watched object."""
    return item.claim.metadata if isinstance(item, ClaimRecord) else item.metadata


def key_of(meta: ObjectMeta) -> str:
    """`namespace/name`, or `name` for what has no namespace."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def version_of(meta: ObjectMeta) -> int:
    """The resourceVersion as a number; 0 for an object that has none, or one that is no number."""
    return version_number(meta.resource_version) or 0


def version_number(text: str) -> int | None:
    """A resourceVersion as a number; None: it is none."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_VERSION
    return int(text) if is_number else None


def undated(item: Watched) -> Watched:
    """The object without a resourceVersion, which is newer than any other.

    For what no watch has shown: manifests may come from several clusters, or hold any text there.
    """
    if isinstance(item, ClaimRecord):
        return ClaimRecord(cast("ResourceClaim", undated(cast("Watched", item.claim))), item.raw)
    if not item.metadata.resource_version:
        return item
    return cast(
        "Watched",
        replace(item, metadata=replace(item.metadata, resource_version="")),
    )


def is_newer(version: int, than: int) -> bool:
    """Whether a version supersedes another. An object without version always does: there is nothing to compare."""
    return version > than or version == 0


def _is_nobody(item: Watched, meta: ObjectMeta) -> bool:
    """Whether nothing tells whom an object that cannot be read stands for."""
    return not meta.name and unreadable(item) is not None


class Store(Generic[T]):
    """Objects of one kind by key and by UID.

    Attributes:
        resource_version: everything up to this version has been seen.
    """

    def __init__(
        self,
        meta: Callable[[T], ObjectMeta],
        newest: Callable[[str], T | None] = lambda _key: None,
    ) -> None:
        """Start empty.

        Args:
            meta: the metadata of an object.
            newest: what is known of a key that is newer than what is here; it stands in for what cannot be read.
        """
        self._meta = meta
        self._newest = newest
        self._by_key: dict[str, T] = {}
        self._key_by_uid: dict[str, str] = {}
        self.resource_version = 0

    def get(self, key: str) -> T | None:
        """The object with this key."""
        return self._by_key.get(key)

    def by_uid(self, uid: str) -> T | None:
        """The object with this UID."""
        key = self._key_by_uid.get(uid)
        return None if key is None else self._by_key.get(key)

    def __iter__(self) -> Iterator[T]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def identified(self, item: T) -> T:
        """The object under the name and UID it is known by, if one of them cannot be read."""
        return self._identified(item, self._by_key, self._key_by_uid)

    def upsert(self, item: T) -> list[Changed[T]]:
        """Take an added or modified object; an old one is ignored. A new UID under a known key deletes and adds."""
        item = self.identified(item)
        meta = self._meta(item)
        key, version = key_of(meta), version_of(meta)
        old = self._by_key.get(key)
        seen = self.resource_version if old is None else version_of(self._meta(old))
        if not is_newer(version, seen):
            return []
        self.progress(version)
        if _is_nobody(item, meta):
            return []
        return self._put(key, old, item)

    def delete(self, item: T) -> list[Changed[T]]:
        """Take a deletion; ignored if it is of another UID, or older than what is here."""
        meta = self._meta(self.identified(item))
        key, version = key_of(meta), version_of(meta)
        old = self._by_key.get(key)
        self.progress(version)
        if old is None:
            return []
        stored = self._meta(old)
        if stored.uid != meta.uid or 0 < version < version_of(stored):
            return []
        del self._by_key[key]
        self._key_by_uid.pop(stored.uid, None)
        return [(old, None)]

    def replace(
        self, items: Iterable[T], resource_version: int, *, is_reset: bool = False
    ) -> list[Changed[T]]:
        """Swap the whole content for a list; returns the difference. Unchanged objects stay the same objects.

        Args:
            items: all there are.
            resource_version: of the list.
            is_reset: whether the versions seen before mean nothing any more: they belong to a history that is gone.

        Raises:
            ValueError: the list is older than what has been seen.
        """
        if is_reset:
            self.resource_version = resource_version
        if resource_version < self.resource_version:
            raise ValueError(
                f"a list at {resource_version} is older than {self.resource_version}, already seen"
            )
        objects: Sequence[T] = items if isinstance(items, list | tuple) else list(items)
        known, keys = self._by_key, self._key_by_uid
        if not is_reset and self._is_start_of(objects):
            before: dict[str, T] = {}
            objects = objects[len(known) :]
        else:
            before = known
            self._by_key, self._key_by_uid = {}, {}
        changes: list[Changed[T]] = []
        for each in objects:
            item = self._identified(each, before, keys)
            meta = self._meta(item)
            if _is_nobody(item, meta):
                continue
            key = key_of(meta)
            old = before.pop(key, None)
            if old is not None and not is_reset and self._is_same(old, meta):
                self._by_key[key] = old
                self._key_by_uid[meta.uid] = key
            elif old is not None and self._meta(old).uid != meta.uid:
                changes.append((old, None))
                changes.extend(self._put(key, None, item))
            else:
                changes.extend(self._put(key, old, item))
        changes.extend((old, None) for old in before.values())
        self.progress(resource_version)
        return changes

    def _is_start_of(self, items: Sequence[T]) -> bool:
        """Whether a list begins with just the objects that are here: then only the others need to be looked at."""
        here = self._by_key
        return len(here) <= len(items) and all(map(is_, here.values(), items))

    def progress(self, resource_version: int) -> None:
        """Note that everything up to this version has been seen."""
        self.resource_version = max(self.resource_version, resource_version)

    def _is_same(self, old: T, new: ObjectMeta) -> bool:
        known = self._meta(old)
        return known.uid == new.uid and known.resource_version == new.resource_version != ""

    def _identified(self, item: T, by_key: Mapping[str, T], keys: Mapping[str, str]) -> T:
        if unreadable(item) is None:
            return item
        meta = self._meta(item)
        known = by_key.get(keys.get(meta.uid, "") if meta.uid else key_of(meta))
        whole = identified(meta, None if known is None else self._meta(known))
        return item if whole is meta else cast("T", with_meta(item, whole))

    def _completed(self, key: str, old: T | None, item: T) -> T:
        """What cannot be read, with what is known of it."""
        if unreadable(item) is None:
            return item
        known = self._newest(key) or old
        is_same = known is not None and self._meta(known).uid == self._meta(item).uid
        return cast("T", carried_over(known if is_same else None, item))

    def _put(self, key: str, old: T | None, item: T) -> list[Changed[T]]:
        item = self._completed(key, old, item)
        uid = self._meta(item).uid
        self._by_key[key] = item
        if old is not None and (old_uid := self._meta(old).uid) != uid:
            self._key_by_uid.pop(old_uid, None)
            self._key_by_uid[uid] = key
            return [(old, None), (None, item)]
        self._key_by_uid[uid] = key
        return [(old, item)]
