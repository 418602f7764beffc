"""API objects from JSON bytes: single objects, list pages and watch events. Decoders are made once.

Invariants: what comes out has the shape of v1. A claim carries its own copy of the bytes it came from (without
`managedFields`), so that a page is not kept alive by one claim of it and a write keeps the fields we do not know. One
object that cannot be read spoils no other: it is told apart from the rest of its page or line, and what can be read of
it comes with the error.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import msgspec

from allocator.model.claims import AllocationResult, ResourceClaimTemplate
from allocator.model.hooks import enc_hook
from allocator.model.meta import ApiStruct
from scheduler.api.convert import UnknownVersionError, to_v1
from scheduler.api.lenient import HUGE_NUMBER, read
from scheduler.api.numbers import decode_tree, encode_tree
from scheduler.api.projection import strip_unread
from scheduler.api.rawjson import (
    RawJsonError,
    members,
    members_and_elements,
    string_at,
    text_of,
    without,
)
from scheduler.api.remains import remains
from scheduler.api.typed import DECODERS, TYPES
from scheduler.api.walk import FieldError, conform
from scheduler.model import ClaimRecord, Kind, Watched

__all__ = [
    "TYPES",
    "DecodeError",
    "Event",
    "ListMeta",
    "Page",
    "PageDecoder",
    "WatchStatus",
    "allocation_tree",
    "conformed",
    "decode",
    "decode_event",
    "decode_list",
    "decode_tree_object",
    "encode_allocation",
    "object_name",
    "tree_of",
    "without_managed_fields",
]

# Opaque parameters point into the text they were decoded from; these objects get a text of their own.
_HOLD_RAW: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate", "DeviceClass"})
_CLAIM: Final = "ResourceClaim"
# An object of these versions has another shape, or another name for the same one.
_OLD_VERSION: Final = (b"resource.k8s.io/v1beta", b"resource.k8s.io/v1alpha")
_SLOWER: Final = 8  # so many times as long takes what is told apart by hand
_DECODE_ERRORS: Final = (msgspec.DecodeError, ValueError, RecursionError)


class DecodeError(ValueError):
    """An object cannot be read.

    Attributes:
        object: `ResourceSlice/x` or `ResourceClaim/ns/x`; only the kind if it has no readable name.
        path: JSON path of the first wrong field, map keys included; empty for the whole object.
        problem: what is wrong, in words.
        remains: what could be read of an object of a watched kind; None: not even who it is.
    """

    def __init__(
        self, object_: str, path: str, problem: str, remains: Watched | None = None
    ) -> None:
        super().__init__(object_, path, problem)
        self.object = object_
        self.path = path
        self.problem = problem
        self.remains = remains

    def __str__(self) -> str:
        where = f"{self.object}: {self.path}" if self.path else self.object
        return f"{where}: {self.problem}"


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ListMeta = ListMeta()
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


class _WatchLine(msgspec.Struct, frozen=True):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class WatchStatus(msgspec.Struct, frozen=True):
    """The Status object of an ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""


class Page(NamedTuple):
    """One page of a list.

    Attributes:
        items: the objects that could be read.
        resource_version: of the list.
        continue_token: for the next page; empty on the last one.
        refused: the objects that could not be read; the caller decides how loud to be.
    """

    items: list[Watched]
    resource_version: str
    continue_token: str
    refused: list[DecodeError]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a watch.

    Attributes:
        type: `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
        object: the object, except for BOOKMARK and ERROR; of one that cannot be read what remains, if anything.
        resource_version: to resume from; empty for ERROR.
        status: of an ERROR.
        refused: why the object cannot be read; None: it can.
    """

    type: str
    object: Watched | None = None
    resource_version: str = ""
    status: WatchStatus | None = None
    refused: DecodeError | None = None


_PAGE: Final = msgspec.json.Decoder(_Page)
_WATCH_LINE: Final = msgspec.json.Decoder(_WatchLine)
_STATUS: Final = msgspec.json.Decoder(WatchStatus)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)


def decode(kind: str, raw: bytes) -> Watched | ResourceClaimTemplate:
    """Decode one object of a kind in `TYPES`; older API versions come out as v1.

    Returns:
        A `ClaimRecord` for a ResourceClaim, else the struct.

    Raises:
        DecodeError: it is no JSON, has another version or a field of the wrong type.
    """
    if kind == _CLAIM:
        raw = without_managed_fields(raw)
    elif kind in _HOLD_RAW:
        raw = bytes(raw)
    if any(marker in raw for marker in _OLD_VERSION):
        # The text may also stand in an annotation: the header decides.
        return _decode_slowly(kind, raw)
    try:
        decoded = DECODERS[kind].decode(raw)
    except _DECODE_ERRORS:
        return _decode_slowly(kind, raw)
    return ClaimRecord(decoded, raw) if kind == _CLAIM else cast("Watched", decoded)


def decode_tree_object(kind: str, obj: dict[str, Any]) -> Watched | ResourceClaimTemplate:
    """Decode plain data (from YAML, or changed by hand) of any known version.

    Raises:
        DecodeError: as `decode`.
    """
    try:
        v1 = to_v1(kind, obj)
    except UnknownVersionError as error:
        raise DecodeError(object_name(kind, obj), "apiVersion", str(error)) from None
    try:
        raw, decoded = _decode_conformed(kind, v1)
    except FieldError as error:
        raise DecodeError(object_name(kind, obj), error.path, error.problem) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError(object_name(kind, obj), "", str(error)) from None
    except RecursionError:
        raise DecodeError(object_name(kind, obj), "", "nested too deeply") from None
    return ClaimRecord(decoded, raw) if kind == _CLAIM else cast("Watched", decoded)


def _decode_conformed(kind: str, v1: dict[str, Any]) -> tuple[bytes, Any]:
    """Encode and decode; walk over the data first only if it does not fit as it is."""
    raw = encode_tree(v1)
    if not HUGE_NUMBER.search(raw):
        try:
            return raw, DECODERS[kind].decode(raw)
        except (msgspec.DecodeError, ValueError):
            pass
    raw = encode_tree(conform(TYPES[kind], v1))
    return raw, DECODERS[kind].decode(raw)


def conformed(kind: str, v1: dict[str, Any]) -> dict[str, Any]:
    """The data itself if all its types are right, else as `walk.conform` mends it.

    Raises:
        FieldError: the first field whose value has the wrong type.
    """
    raw = encode_tree(v1)
    if not HUGE_NUMBER.search(raw):
        try:
            DECODERS[kind].decode(raw)
        except (msgspec.DecodeError, ValueError):
            pass
        else:
            return v1
    return cast("dict[str, Any]", conform(TYPES[kind], v1))


def _decode_slowly(kind: str, raw: bytes, api_version: str = "") -> Watched | ResourceClaimTemplate:
    """Decode part by part: converts, forgives nulls, leaves opaque values alone, and finds what is wrong."""
    reading = read(kind, raw, api_version)
    if not reading.problems:
        decoded = cast("Watched", reading.decoded)
        return ClaimRecord(reading.decoded, reading.raw) if kind == _CLAIM else decoded
    first = reading.problems[0]
    name = "/".join([kind, *(part for part in reading.name if part)])
    raise DecodeError(name, first.path, first.problem, remains(kind, reading))


def object_name(kind: str, obj: Any) -> str:
    """Name an object for a person: `Kind/namespace/name`, as far as it can be read."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        return kind
    parts = [metadata.get("namespace"), metadata.get("name") or metadata.get("generateName")]
    return "/".join([kind, *(part for part in parts if isinstance(part, str) and part)])


def without_managed_fields(raw: bytes) -> bytes:
    """Copy an object's JSON without `metadata.managedFields`; all other bytes stay as they are.

    Text that is no JSON object is returned as it is: decoding it says what is wrong.
    """
    if b'"managedFields"' not in raw:
        return bytes(raw)
    try:
        fields = _FIELDS.decode(raw)
        metadata = _FIELDS.decode(fields["metadata"])
    except (*_DECODE_ERRORS, KeyError):
        return _without_managed_fields_slowly(bytes(raw))
    if metadata.pop("managedFields", None) is None:
        return bytes(raw)
    fields["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    return msgspec.json.encode(fields)


def _without_managed_fields_slowly(raw: bytes) -> bytes:
    try:
        return without(raw, "metadata", "managedFields")
    except RawJsonError:
        return raw


class PageDecoder:
    """Decodes one page of a list piece by piece, so that an event loop can do other things in between.

    Items carry no `apiVersion` of their own: the list's counts. An object that cannot be read does not stop the page.
    """

    def __init__(self, kind: Kind, body: bytes, *, is_whole: bool = False) -> None:
        """Look at the list; its items are only told apart.

        Args:
            kind: of the items.
            body: JSON.
            is_whole: keep all that is decoded of an object, also what the cache is never asked for.

        Raises:
            DecodeError: the body is no list. What is told apart slowly may say so only while it is stepped through.
        """
        self._kind = kind
        self._is_whole = is_whole
        self._items: list[Watched] = []
        self._refused: list[DecodeError] = []
        self._version = ""
        self._weight = 1
        try:
            page = _PAGE.decode(body)
        except _DECODE_ERRORS:
            self._meta = ListMeta()
            self._weight = _SLOWER
            self._left: Iterator[bytes | msgspec.Raw] = self._told_apart(bytes(body))
        else:
            self._meta = page.metadata
            self._set_version(page.api_version)
            self._left = iter(page.items or ())

    def step(self, most_bytes: int) -> bool:
        """Decode the next items, until they were so many bytes of JSON; at least one.

        Returns:
            whether some are left.
        """
        size = 0
        for raw in self._left:
            self._take(raw)
            size += len(raw) * self._weight
            if size >= most_bytes:
                return True
        return False

    def page(self) -> Page:
        """The whole page, all that is left of it decoded at once."""
        for raw in self._left:
            self._take(raw)
        meta = self._meta
        return Page(self._items, meta.resource_version, meta.continue_, self._refused)

    def _set_version(self, api_version: str) -> None:
        if api_version.encode().startswith(_OLD_VERSION):
            self._version = api_version

    def _told_apart(self, body: bytes) -> Iterator[bytes]:
        """The items of a page that no decoder takes as a whole; its metadata is known when they have come to an end."""
        try:
            for key, span in members_and_elements(body, "items"):
                value = body[span.start : span.end]
                match key:
                    case "items" if value == b"null":
                        pass
                    case "items":
                        yield value
                    case "apiVersion":
                        self._set_version(text_of(value))
                    case "metadata":
                        self._meta = ListMeta(
                            string_at(value, "resourceVersion"), string_at(value, "continue")
                        )
                    case _:
                        pass
        except RawJsonError as error:
            raise DecodeError(f"{self._kind}List", "", f"it is not JSON: {error}") from None

    def _take(self, raw: bytes | msgspec.Raw) -> None:
        try:
            self._items.append(self._decode(raw))
        except DecodeError as error:
            self._refused.append(error)

    def _decode(self, raw: bytes | msgspec.Raw) -> Watched:
        kind = self._kind
        if self._version:
            return cast("Watched", _decode_slowly(kind, bytes(raw), self._version))
        if kind in _HOLD_RAW:
            return cast("Watched", decode(kind, bytes(raw)))
        try:
            item = cast("Watched", DECODERS[kind].decode(raw))
        except _DECODE_ERRORS:
            item = cast("Watched", _decode_slowly(kind, bytes(raw)))
        if not self._is_whole:
            strip_unread(item)
        return item


def decode_list(kind: Kind, body: bytes) -> Page:
    """Decode one page of a list at once, with all that is decoded of its objects.

    Raises:
        DecodeError: the body is no list.
    """
    return PageDecoder(kind, body, is_whole=True).page()


def decode_event(kind: Kind, line: bytes) -> Event:
    """Decode one line of a watch, without what the cache is never asked for.

    Raises:
        DecodeError: the line is no event: nothing tells how far the watch has come with it.
    """
    type_, raw = _line_parts(kind, line)
    match type_:
        case "ERROR":
            return Event(type_, status=_status(raw))
        case "BOOKMARK":
            return Event(type_, resource_version=_resource_version(kind, raw))
        case _:
            return _object_event(kind, type_, raw)


def _line_parts(kind: Kind, line: bytes) -> tuple[str, bytes]:
    """What happened, and to what."""
    try:
        outer = _WATCH_LINE.decode(line)
        return outer.type, bytes(outer.object)
    except _DECODE_ERRORS:
        pass
    try:
        parts = {each.key: line[slice(*each.value)] for each in members(line)}
        return text_of(parts["type"]), parts["object"]
    except RawJsonError as error:
        raise DecodeError(f"watch of {kind}", "", f"it is not JSON: {error}") from None
    except KeyError as error:
        raise DecodeError(f"watch of {kind}", str(error.args[0]), "is required") from None


def _object_event(kind: Kind, type_: str, raw: bytes) -> Event:
    try:
        decoded = cast("Watched", decode(kind, raw))
    except DecodeError as error:
        return Event(type_, error.remains, _resource_version(kind, raw), refused=error)
    strip_unread(decoded)
    metadata = decoded.claim.metadata if isinstance(decoded, ClaimRecord) else decoded.metadata
    return Event(type_, decoded, metadata.resource_version)


def _status(raw: bytes) -> WatchStatus:
    try:
        return _STATUS.decode(raw)
    except _DECODE_ERRORS:
        return WatchStatus(0, string_at(raw, "reason"), string_at(raw, "message"))


def _resource_version(kind: Kind, raw: bytes) -> str:
    """The version of an object, whatever else it holds.

    Raises:
        DecodeError: it has none.
    """
    version = string_at(raw, "metadata", "resourceVersion")
    if not version:
        raise DecodeError(f"watch of {kind}", "object.metadata.resourceVersion", "is required")
    return version


def encode_allocation(allocation: AllocationResult) -> bytes:
    """Encode `status.allocation` as the API server stores it: absent fields left out."""
    return _ENCODER.encode(allocation)


def allocation_tree(allocation: AllocationResult) -> dict[str, Any]:
    """`status.allocation` as plain data, for reports and for building request bodies."""
    return cast("dict[str, Any]", decode_tree(encode_allocation(allocation)))


def tree_of(value: ApiStruct) -> dict[str, Any]:
    """A part of an API object as plain data, absent fields left out."""
    return cast("dict[str, Any]", decode_tree(_ENCODER.encode(value)))
