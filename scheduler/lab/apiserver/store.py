"""Objects with a history. Pure: no clock, no I/O, no knowledge of what the objects mean.

Invariants: the revision is one counter for everything and grows with every write; a stored object is never changed
afterwards; each collection remembers its last changes, so that a reader can go on from a revision, or list as of one,
until the history is cut (then `CompactedError`, which the API says as 410).
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler.lab.apiserver.objects import Json
from scheduler.lab.apiserver.opaque import encode

DEFAULT_WINDOW = 20_000

Listener = Callable[[], None]


class CompactedError(Exception):
    """The history at `revision` is gone; the oldest that is left starts after `oldest`."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(revision, oldest)
        self.revision = revision
        self.oldest = oldest


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """An object as written.

    Attributes:
        key: `namespace/name`, or `name`.
        obj: the object without `kind` and `apiVersion`, resourceVersion included. Not to be changed.
        raw: `obj` as JSON.
        revision: its resourceVersion.
    """

    key: str
    obj: Json
    raw: bytes
    revision: int


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One write: created (no `old`), changed, or deleted (no `new`).

    Attributes:
        revision: of this write.
        old: the object before.
        new: the object after.
        last: what a watcher is shown: `new`, or of a deleted object its last state with this write's revision.
    """

    revision: int
    old: Stored | None
    new: Stored | None
    last: Stored


@dataclass(slots=True)
class _Collection:
    objects: dict[str, Stored] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)  # of `changes`, for bisection
    compacted: int = 0


class Store:
    """All objects of one server."""

    def __init__(self, *, first_revision: int = 1, window: int = DEFAULT_WINDOW) -> None:
        """Start empty.

        Args:
            first_revision: what the counter starts at.
            window: changes that each collection remembers at least.
        """
        self.revision = first_revision
        self._window = window
        self._compacted = first_revision
        self._collections: dict[str, _Collection] = {}
        self._listeners: list[Listener] = []

    def get(self, collection: str, key: str) -> Stored | None:
        """The object under a key."""
        return self._collection(collection).objects.get(key)

    def put(self, collection: str, key: str, obj: Json) -> Stored:
        """Create or replace. `obj` is taken over: its resourceVersion is set and the caller must not touch it again."""
        self.revision += 1
        stored = _stored(key, obj, self.revision)
        held = self._collection(collection)
        self._record(held, Change(self.revision, held.objects.get(key), stored, stored))
        held.objects[key] = stored
        self._notify()
        return stored

    def delete(self, collection: str, key: str) -> Stored:
        """Remove an object that is there, and return its last state with the revision of the removal.

        Raises:
            KeyError: there is no such object.
        """
        held = self._collection(collection)
        old = held.objects.pop(key)
        self.revision += 1
        last = _stored(key, _with_own_metadata(old.obj), self.revision)
        self._record(held, Change(self.revision, old, None, last))
        self._notify()
        return last

    def objects(self, collection: str, revision: int | None = None) -> list[Stored]:
        """All objects in the order of their keys, now or as of a revision that is not in the future.

        Raises:
            CompactedError: the history does not reach back that far.
        """
        held = self._collection(collection)
        found = held.objects
        if revision is not None and revision < self.revision:
            found = dict(found)
            for change in reversed(self.changes_after(collection, revision)):
                if change.old is None:
                    found.pop(change.last.key, None)
                else:
                    found[change.last.key] = change.old
        return [found[key] for key in sorted(found)]

    def changes_after(self, collection: str, revision: int) -> list[Change]:
        """Changes of a collection after a revision, oldest first.

        Raises:
            CompactedError: some of them are forgotten.
        """
        held = self._collection(collection)
        if revision < held.compacted:
            raise CompactedError(revision, held.compacted)
        return held.changes[bisect_right(held.revisions, revision) :]

    def compact(self) -> None:
        """Forget all history up to now."""
        self._compacted = self.revision
        for held in self._collections.values():
            held.changes.clear()
            held.revisions.clear()
            held.compacted = self.revision

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every write, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _collection(self, name: str) -> _Collection:
        held = self._collections.get(name)
        if held is None:
            held = self._collections[name] = _Collection(compacted=self._compacted)
        return held

    def _record(self, held: _Collection, change: Change) -> None:
        held.changes.append(change)
        held.revisions.append(change.revision)
        # Cut in large pieces, or each write would move the whole list.
        if len(held.changes) > 2 * self._window:
            surplus = len(held.changes) - self._window
            held.compacted = held.revisions[surplus - 1]
            del held.changes[:surplus]
            del held.revisions[:surplus]

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()


def _with_own_metadata(obj: Json) -> Json:
    return {**obj, "metadata": dict(obj["metadata"])}


def _stored(key: str, obj: Json, revision: int) -> Stored:
    obj["metadata"]["resourceVersion"] = str(revision)
    return Stored(key, obj, encode(obj), revision)
