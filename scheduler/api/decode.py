"""API objects from JSON bytes: single objects, list pages and watch events. Decoders are made once.

Invariant: what comes out has the shape of v1, and a claim carries its own copy of the bytes it came from (without
`managedFields`), so that a page is not kept alive by one claim of it and a write keeps the fields we do not know.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from allocator.model.claims import AllocationResult, ResourceClaim, ResourceClaimTemplate
from allocator.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from allocator.model.hooks import dec_hook, enc_hook
from allocator.model.meta import ApiStruct
from allocator.quantity import Quantity
from scheduler.api.convert import UnknownVersionError, to_v1
from scheduler.api.numbers import decode_tree, encode_tree
from scheduler.api.walk import FieldError, conform
from scheduler.model import (
    ClaimRecord,
    Container,
    Kind,
    NodeObject,
    Pod,
    PodSpec,
    PodStatus,
    Watched,
)

TYPES: Final[dict[str, type[msgspec.Struct]]] = {
    Kind.NODE: NodeObject,
    Kind.POD: Pod,
    Kind.RESOURCE_CLAIM: ResourceClaim,
    Kind.RESOURCE_SLICE: ResourceSlice,
    Kind.DEVICE_CLASS: DeviceClass,
    Kind.DEVICE_TAINT_RULE: DeviceTaintRule,
    "ResourceClaimTemplate": ResourceClaimTemplate,
}
# Opaque parameters point into the text they were decoded from; these objects get a text of their own.
_HOLD_RAW: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate", "DeviceClass"})
_CLAIM: Final = "ResourceClaim"
# An object of these versions has another shape, or another name for the same one.
_OLD_VERSION: Final = (b"resource.k8s.io/v1beta", b"resource.k8s.io/v1alpha")

_QUANTITIES: Final = 4_096  # texts of quantities that are remembered

# Python has no limit for whole numbers, the API has: such a one takes the slow way, which checks.
_HUGE_NUMBER: Final = re.compile(rb"[:\[,]-?[0-9]{19}")


class DecodeError(ValueError):
    """An object cannot be read.

    Attributes:
        object: `ResourceSlice/x` or `ResourceClaim/ns/x`; only the kind if it has no readable name.
        path: JSON path of the first wrong field, map keys included; empty for the whole object.
        problem: what is wrong, in words.
    """

    def __init__(self, object_: str, path: str, problem: str) -> None:
        super().__init__(object_, path, problem)
        self.object = object_
        self.path = path
        self.problem = problem

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


class _Header(msgspec.Struct, frozen=True, rename="camel"):
    """What is looked at before the type is known."""

    metadata: Any = None
    api_version: Any = None


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
        object: the object, except for BOOKMARK and ERROR.
        resource_version: to resume from; empty for ERROR.
        status: of an ERROR.
    """

    type: str
    object: Watched | None = None
    resource_version: str = ""
    status: WatchStatus | None = None


_parse_quantity: Final = lru_cache(_QUANTITIES)(Quantity.parse)


def _dec_hook(type_: type, obj: Any) -> Any:
    """As `dec_hook`; quantities are immutable and few of them differ, so equal texts become one object."""
    if type_ is Quantity and isinstance(obj, str):
        return _parse_quantity(obj)
    return dec_hook(type_, obj)


_DECODERS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(type_, dec_hook=_dec_hook) for kind, type_ in TYPES.items()
}
_PAGE: Final = msgspec.json.Decoder(_Page)
_WATCH_LINE: Final = msgspec.json.Decoder(_WatchLine)
_HEADER: Final = msgspec.json.Decoder(_Header)
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
        decoded = _DECODERS[kind].decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _decode_slowly(kind, raw)
    return ClaimRecord(decoded, raw) if kind == _CLAIM else decoded


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
    return ClaimRecord(decoded, raw) if kind == _CLAIM else cast("Watched", decoded)


def _decode_conformed(kind: str, v1: dict[str, Any]) -> tuple[bytes, Any]:
    """Encode and decode; walk over the data first only if it does not fit as it is."""
    raw = encode_tree(v1)
    if not _HUGE_NUMBER.search(raw):
        try:
            return raw, _DECODERS[kind].decode(raw)
        except (msgspec.DecodeError, ValueError):
            pass
    raw = encode_tree(conform(TYPES[kind], v1))
    return raw, _DECODERS[kind].decode(raw)


def conformed(kind: str, v1: dict[str, Any]) -> dict[str, Any]:
    """The data itself if all its types are right, else as `walk.conform` mends it.

    Raises:
        FieldError: the first field whose value has the wrong type.
    """
    raw = encode_tree(v1)
    if not _HUGE_NUMBER.search(raw):
        try:
            _DECODERS[kind].decode(raw)
        except (msgspec.DecodeError, ValueError):
            pass
        else:
            return v1
    return cast("dict[str, Any]", conform(TYPES[kind], v1))


def _decode_slowly(kind: str, raw: bytes) -> Watched | ResourceClaimTemplate:
    """Decode by way of plain data: converts, forgives nulls, and finds what is wrong."""
    try:
        obj = decode_tree(raw)
    except RecursionError:
        raise DecodeError(kind, "", "it is nested too deeply") from None
    except ValueError as error:
        raise DecodeError(kind, "", f"it is not JSON: {error}") from None
    if not isinstance(obj, dict):
        raise DecodeError(kind, "", "expected an object")
    try:
        return decode_tree_object(kind, obj)
    except RecursionError:
        raise DecodeError(object_name(kind, obj), "", "it is nested too deeply") from None


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
    except (msgspec.DecodeError, KeyError, RecursionError):
        return bytes(raw)
    if metadata.pop("managedFields", None) is None:
        return bytes(raw)
    fields["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    return msgspec.json.encode(fields)


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
            DecodeError: the body is no list.
        """
        try:
            page = _PAGE.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise DecodeError(f"{kind}List", "", str(error)) from None
        self._kind = kind
        self._is_whole = is_whole
        self._meta = page.metadata
        self._left = iter(page.items or ())
        is_old = page.api_version.encode().startswith(_OLD_VERSION)
        self._version = page.api_version if is_old else ""
        self._is_slow = is_old or kind in _HOLD_RAW
        self._items: list[Watched] = []
        self._refused: list[DecodeError] = []

    def step(self, most_bytes: int) -> bool:
        """Decode the next items, until they were so many bytes of JSON; at least one.

        Returns:
            whether some are left.
        """
        size = 0
        for raw in self._left:
            self._take(raw)
            size += len(raw)
            if size >= most_bytes:
                return True
        return False

    def page(self) -> Page:
        """The whole page, all that is left of it decoded at once."""
        for raw in self._left:
            self._take(raw)
        meta = self._meta
        return Page(self._items, meta.resource_version, meta.continue_, self._refused)

    def _take(self, raw: msgspec.Raw) -> None:
        try:
            self._items.append(self._decode(raw))
        except DecodeError as error:
            self._refused.append(error)

    def _decode(self, raw: msgspec.Raw) -> Watched:
        kind = self._kind
        if self._is_slow:
            return _decode_item(kind, bytes(raw), self._version)
        try:
            decoded = _DECODERS[kind].decode(raw)
        except (msgspec.DecodeError, ValueError, RecursionError):
            decoded = _decode_slowly(kind, bytes(raw))
        item = cast("Watched", decoded)
        return item if self._is_whole else _without_unread(item)


def decode_list(kind: Kind, body: bytes) -> Page:
    """Decode one page of a list at once, with all that is decoded of its objects.

    Raises:
        DecodeError: the body is no list.
    """
    return PageDecoder(kind, body, is_whole=True).page()


def _without_unread(item: Watched) -> Watched:
    """An object without what the cache is never asked for.

    Clusters have tens of thousands of pods that run or have ended. Those that run count for what they request, and can
    repel others; those that have ended only hold claims until they are gone.
    """
    if isinstance(item, NodeObject | Pod) and item.metadata.annotations is not None:
        item = replace(item, metadata=replace(item.metadata, annotations=None))
    if not isinstance(item, Pod):
        return item
    spec, status = item.spec, item.status
    if item.is_terminal:
        return Pod(
            metadata=item.metadata,
            spec=PodSpec(
                node_name=spec.node_name,
                scheduler_name=spec.scheduler_name,
                resource_claims=spec.resource_claims,
            ),
            status=PodStatus(
                phase=status.phase,
                resource_claim_statuses=status.resource_claim_statuses,
                extended_resource_claim_status=status.extended_resource_claim_status,
            ),
        )
    if not spec.node_name:
        return item
    placed = replace(
        spec,
        node_selector=None,
        tolerations=None,
        topology_spread_constraints=None,
        volumes=None,
        containers=_without_mounts(spec.containers),
        init_containers=_without_mounts(spec.init_containers),
    )
    return replace(item, spec=placed, status=replace(status, conditions=None))


def _without_mounts(containers: tuple[Container, ...] | None) -> tuple[Container, ...] | None:
    if containers is None or all(each.volume_mounts is None for each in containers):
        return containers
    return tuple(replace(each, volume_mounts=None) for each in containers)


def _decode_item(kind: Kind, raw: bytes, api_version: str) -> Watched:
    if not api_version:
        return cast("Watched", decode(kind, raw))
    try:
        obj = decode_tree(without_managed_fields(raw))
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(kind, "", str(error)) from None
    if not isinstance(obj, dict):
        raise DecodeError(kind, "", "expected an object")
    return cast("Watched", decode_tree_object(kind, {"apiVersion": api_version, **obj}))


def decode_event(kind: Kind, line: bytes) -> Event:
    """Decode one line of a watch, without what the cache is never asked for.

    Raises:
        DecodeError: the line or its object cannot be read.
    """
    try:
        outer = _WATCH_LINE.decode(line)
        if outer.type == "ERROR":
            return Event(outer.type, status=_STATUS.decode(outer.object))
        if outer.type == "BOOKMARK":
            header = _HEADER.decode(outer.object)
            return Event(outer.type, resource_version=_resource_version(header.metadata))
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(f"watch of {kind}", "", str(error)) from None
    decoded = _without_unread(cast("Watched", decode(kind, bytes(outer.object))))
    metadata = decoded.claim.metadata if isinstance(decoded, ClaimRecord) else decoded.metadata
    return Event(outer.type, decoded, metadata.resource_version)


def _resource_version(metadata: Any) -> str:
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""


def encode_allocation(allocation: AllocationResult) -> bytes:
    """Encode `status.allocation` as the API server stores it: absent fields left out."""
    return _ENCODER.encode(allocation)


def allocation_tree(allocation: AllocationResult) -> dict[str, Any]:
    """`status.allocation` as plain data, for reports and for building request bodies."""
    return cast("dict[str, Any]", decode_tree(encode_allocation(allocation)))


def tree_of(value: ApiStruct) -> dict[str, Any]:
    """A part of an API object as plain data, absent fields left out."""
    return cast("dict[str, Any]", decode_tree(_ENCODER.encode(value)))
