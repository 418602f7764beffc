"""A watch: from a place in the history on, the changes that a client asked for, as lines of JSON. No I/O, no clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from scheduler.lab.apiserver.errors import expired
from scheduler.lab.apiserver.objects import Json
from scheduler.lab.apiserver.opaque import encode
from scheduler.lab.apiserver.selectors import Selector
from scheduler.lab.apiserver.store import Change, CompactedError, Store, Stored

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """What a client wants to see.

    Attributes:
        collection: in the store.
        kind: of the objects.
        api_version: of the objects.
        key_prefix: `namespace/`, or empty for all.
        selector: which objects.
        encode: a stored object in the client's version.
        bookmarks: whether bookmarks are wanted.
        timeout_seconds: after which the server ends the watch; None: when it likes.
    """

    collection: str
    kind: str
    api_version: str
    key_prefix: str
    selector: Selector
    encode: Callable[[Stored], bytes]
    bookmarks: bool
    timeout_seconds: float | None


class Watch:
    """One client's place in the history of a collection."""

    def __init__(
        self,
        store: Store,
        request: WatchRequest,
        revision: int,
        initial: Sequence[Stored] = (),
        *,
        announce_initial_end: bool = False,
    ) -> None:
        """Start after a revision.

        Args:
            store: where the history is.
            request: what is wanted.
            revision: changes after it are shown.
            initial: objects that are shown as added first; the state at `revision`.
            announce_initial_end: mark the end of those by a bookmark.
        """
        self.store = store
        self.request = request
        self.position = revision
        self.ended = False
        self._pending = [_line("ADDED", request.encode(stored)) for stored in initial]
        if announce_initial_end:
            self._pending.append(self.bookmark({INITIAL_EVENTS_END: "true"}))

    def take(self) -> list[bytes]:
        """All lines that are there by now. After the last line of a watch that fell behind, `ended` is set."""
        lines, self._pending = self._pending, []
        if self.ended or self.position >= self.store.revision:
            return lines
        try:
            changes = self.store.changes_after(self.request.collection, self.position)
        except CompactedError as error:
            self.ended = True
            lines.append(_line("ERROR", expired(error.revision, error.oldest).body()))
            return lines
        lines.extend(line for change in changes if (line := self._show(change)))
        self.position = self.store.revision
        return lines

    def bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        """A bookmark for the current place."""
        meta: Json = {"resourceVersion": str(self.position)}
        if annotations:
            meta["annotations"] = annotations
        obj = {
            "kind": self.request.kind,
            "apiVersion": self.request.api_version,
            "metadata": meta,
        }
        return _line("BOOKMARK", orjson.dumps(obj))

    def _show(self, change: Change) -> bytes | None:
        if not change.last.key.startswith(self.request.key_prefix):
            return None
        matches = self.request.selector.matches
        was = change.old is not None and matches(change.old.obj)
        is_now = change.new is not None and matches(change.new.obj)
        if is_now:
            return _line("MODIFIED" if was else "ADDED", self.request.encode(change.last))
        return _line("DELETED", self.request.encode(self._gone(change))) if was else None

    @staticmethod
    def _gone(change: Change) -> Stored:
        """An object that no longer matches the selector is sent as DELETED, in its previous state with the new revision."""
        if change.new is None or change.old is None:
            return change.last
        obj = {
            **change.old.obj,
            "metadata": {**change.old.obj["metadata"], "resourceVersion": str(change.revision)},
        }
        return Stored(change.last.key, obj, encode(obj), change.revision)


def _line(event: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}' % (event.encode(), obj)
