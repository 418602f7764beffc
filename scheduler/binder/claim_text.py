"""A claim as the API server sent it: its bytes, and the little that a write has to know of it.

What is in `opaque.parameters` and `data` belongs to others and is never read here: it may be text that no decoder of
ours takes, and the claim must be reserved and released all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from allocator.model.claims import ResourceClaimConsumerReference
from allocator.model.meta import ObjectMeta
from scheduler.api import rawjson
from scheduler.api.rawjson import RawJsonError

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_METADATA: Final = msgspec.json.Decoder(ObjectMeta)
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_EMPTY: Final = msgspec.Raw(b"{}")
_NULL: Final = msgspec.Raw(b"null")

Members = Mapping[str, msgspec.Raw]


class UnreadableClaimError(ValueError):
    """The text is no claim: no JSON object, or with metadata or reservations of the wrong type."""


class _Identity(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    uid: str = ""


class _Header(msgspec.Struct, frozen=True, gc=False):
    metadata: _Identity = _Identity()


_HEADER: Final = msgspec.json.Decoder(_Header)


class Consumer(ResourceClaimConsumerReference, frozen=True, kw_only=True):
    """Who has reserved a claim.

    Attributes:
        text: the entry as it came, fields that are not known here included.
    """

    text: msgspec.Raw = msgspec.Raw(b"")


class _Result(msgspec.Struct, frozen=True, gc=False):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    shareID: str | None = None  # noqa: N815  # as the API has it


_RESULTS: Final = msgspec.json.Decoder(list[_Result])
_CONSUMER: Final = msgspec.json.Decoder(Consumer)


@dataclass(frozen=True, slots=True, eq=False)
class ClaimText:
    """A claim.

    Attributes:
        raw: JSON, as it came.
        parts: members of the object in their order.
        metadata: what is read of it.
        status: members of the status.
        consumers: in `status.reservedFor`.
    """

    raw: bytes
    parts: Members
    metadata: ObjectMeta
    status: Members = field(default_factory=dict)
    consumers: Sequence[Consumer] = ()

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Take a claim apart.

        Raises:
            UnreadableClaimError: the text is no claim.
        """
        try:
            parts = members(raw)
            metadata = _METADATA.decode(parts.get("metadata", _EMPTY))
            status = members(parts["status"]) if _is_there(parts.get("status")) else {}
            consumers = _consumers(status.get("reservedFor"))
        except (RawJsonError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableClaimError(str(error)) from None
        if not (metadata.name and metadata.uid):
            raise UnreadableClaimError("it has no name or no UID")
        return cls(raw, parts, metadata, status, consumers)

    @property
    def spec(self) -> msgspec.Raw:
        """`spec` as JSON."""
        return self.parts.get("spec", _NULL)

    @property
    def is_allocated(self) -> bool:
        """Whether it has an allocation."""
        return _is_there(self.status.get("allocation"))

    @property
    def allocated_devices(self) -> Sequence[tuple[str, str, str, str, str | None]]:
        """Request, driver, pool, device and share of each result of the allocation."""
        try:
            found = members(self.status.get("allocation", _EMPTY))
            results = members(found.get("devices", _EMPTY)).get("results", _NULL)
            read = [] if results == _NULL else _RESULTS.decode(results)
        except (RawJsonError, msgspec.DecodeError, UnicodeDecodeError):
            return ()
        return [
            (result.request, result.driver, result.pool, result.device, result.shareID)
            for result in read
        ]

    def is_in(self, answer: bytes) -> bool:
        """Whether an answer is this claim in any version, and not of whoever stands between us and the API server."""
        try:
            found = _HEADER.decode(answer).metadata
            identity = (found.name, found.uid)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:
                metadata = type(self).read(answer).metadata
            except UnreadableClaimError:
                return False
            identity = (metadata.name, metadata.uid)
        return identity == (self.metadata.name, self.metadata.uid)

    def is_reserved_for(self, pod_uid: str) -> bool:
        """Whether a pod has reserved it."""
        return any(consumer.uid == pod_uid for consumer in self.consumers)


def members(text: bytes | msgspec.Raw) -> Members:
    """The members of an object, each as its own text, in their order.

    Raises:
        RawJsonError: the text is no object.
    """
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raw = bytes(text)
        found = rawjson.members(raw)
        return {each.key: msgspec.Raw(raw[each.value.start : each.value.end]) for each in found}


def joined(parts: Members) -> msgspec.Raw:
    """The object with these members."""
    return msgspec.Raw(msgspec.json.encode(parts))


def listed(parts: Sequence[msgspec.Raw]) -> msgspec.Raw:
    """The list with these items."""
    return msgspec.Raw(msgspec.json.encode(parts))


def _is_there(text: msgspec.Raw | None) -> bool:
    return text is not None and text != _NULL


def _consumers(text: msgspec.Raw | None) -> list[Consumer]:
    if text is None or text == _NULL:
        return []
    return [
        msgspec.structs.replace(_CONSUMER.decode(entry), text=entry) for entry in _LIST.decode(text)
    ]
