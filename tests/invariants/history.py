"""What a recorder writes down: every change of every object, and who asked for what. As JSON lines, to be judged again."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

Object = dict[str, Any]


class Change(msgspec.Struct, frozen=True, tag="change", tag_field="entry", omit_defaults=True):
    """One write that the API server carried out.

    Attributes:
        at: seconds on the recorder's clock.
        revision: resourceVersion of the write.
        type: `ADDED`, `MODIFIED` or `DELETED`.
        kind: of the object.
        object: as it is afterwards; of a deleted one its last state.
        author: user that wrote; empty: not known.
    """

    at: float
    revision: int
    type: str
    kind: str
    object: Object
    author: str = ""


class Sent(msgspec.Struct, frozen=True, tag="sent", tag_field="entry", omit_defaults=True):
    """One request, as an audit log has it.

    Attributes:
        at: when it was carried out (or would have been).
        author: user.
        method: HTTP method; `WATCH` for an opened watch.
        path: without query.
        status: HTTP status that the server answered; 0: none.
        reason: of the answer.
        message: of a refusal.
        fault: what was done to it on the way; empty: nothing.
    """

    at: float
    author: str
    method: str
    path: str
    status: int
    reason: str = ""
    message: str = ""
    fault: str = ""


class Call(msgspec.Struct, frozen=True, tag="call", tag_field="entry", omit_defaults=True):
    """One call of a webhook.

    Attributes:
        at: when it began.
        author: the replica that was called.
        verb: `filter`, `prioritize`, `preempt` or `bind`.
        request: its body.
        status: HTTP status; 0: no answer in time.
        answer: its body.
    """

    at: float
    author: str
    verb: str
    request: Any
    status: int
    answer: Any = None


class Restored(msgspec.Struct, frozen=True, tag="restored", tag_field="entry"):
    """The server was restored from a backup: what there is now, kind -> objects."""

    at: float
    revision: int
    objects: dict[str, list[Object]]


class Mark(msgspec.Struct, frozen=True, tag="mark", tag_field="entry", omit_defaults=True):
    """Something that the run did: a fault, the end of all faults (`healed`), the end (`end`), with its facts."""

    at: float
    name: str
    facts: dict[str, Any] = {}


Entry = Change | Sent | Call | Restored | Mark

_DECODER = msgspec.json.Decoder(Entry)


def write_trace(path: Path, entries: Iterable[Entry]) -> None:
    """Store a history, one entry a line."""
    with path.open("wb") as file:
        for entry in entries:
            file.write(msgspec.json.encode(entry) + b"\n")


def read_trace(path: Path) -> Iterator[Entry]:
    """Read a history that was stored."""
    with path.open("rb") as file:
        for line in file:
            yield _DECODER.decode(line)
