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
_RESULTS: Final = ("devices", "results")


class UnreadableClaimError(ValueError):
    """The text is no claim: no JSON object, or with metadata or reservations of the wrong type."""


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


_RESULT_LIST: Final = msgspec.json.Decoder(list[_Result])
_CONSUMER: Final = msgspec.json.Decoder(Consumer)


@dataclass(frozen=True, slots=True, eq=False)
class ClaimText:
    """A claim.

    Attributes:
        raw: JSON, as it came.
        parts: member of the object -> its JSON, in their order.
        metadata: what is read of it.
        status: member of the status -> its JSON.
        consumers: in `status.reservedFor`.
    """

    raw: bytes
    parts: Mapping[str, bytes]
    metadata: ObjectMeta
    status: Mapping[str, bytes] = field(default_factory=dict)
    consumers: Sequence[Consumer] = ()

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Take a claim apart.

        Raises:
            UnreadableClaimError: the text is no claim.
        """
        try:
            parts = members(raw)
            metadata = _METADATA.decode(parts.get("metadata", b"{}"))
            status = members(parts["status"]) if _is_there(parts.get("status")) else {}
            consumers = [_consumer(entry) for entry in _entries(status.get("reservedFor"))]
        except (RawJsonError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableClaimError(str(error)) from None
        if not (metadata.name and metadata.uid):
            raise UnreadableClaimError("it has no name or no UID")
        return cls(raw, parts, metadata, status, consumers)

    @property
    def spec(self) -> bytes:
        """`spec` as JSON; empty if there is none."""
        return self.parts.get("spec", b"")

    @property
    def is_allocated(self) -> bool:
        """Whether it has an allocation."""
        return _is_there(self.status.get("allocation"))

    @property
    def allocated_devices(self) -> Sequence[tuple[str, str, str, str, str | None]]:
        """Request, driver, pool, device and share of each result of the allocation."""
        try:
            found = self.status.get("allocation", b"{}")
            for step in _RESULTS:
                found = members(found).get(step, b"{}" if step == "devices" else b"[]")
            results = _RESULT_LIST.decode(found) if _is_there(found) else []
        except (RawJsonError, msgspec.DecodeError, UnicodeDecodeError):
            return ()
        return [
            (result.request, result.driver, result.pool, result.device, result.shareID)
            for result in results
        ]

    def is_reserved_for(self, pod_uid: str) -> bool:
        """Whether a pod has reserved it."""
        return any(consumer.uid == pod_uid for consumer in self.consumers)


def members(text: bytes) -> dict[str, bytes]:
    """The members of an object, each as its own text, in their order.

    Raises:
        RawJsonError: the text is no object.
    """
    try:
        return {key: bytes(value) for key, value in _OBJECT.decode(text).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = rawjson.members(text)
        return {each.key: text[each.value.start : each.value.end] for each in found}


def joined(parts: Mapping[str, bytes]) -> bytes:
    """The object with these members."""
    return b"{%b}" % b",".join(
        b"%b:%b" % (msgspec.json.encode(key), value) for key, value in parts.items()
    )


def listed(parts: Sequence[bytes]) -> bytes:
    """The list with these items."""
    return b"[%b]" % b",".join(parts)


def _is_there(text: bytes | None) -> bool:
    return text is not None and text != b"null"


def _entries(text: bytes | None) -> list[bytes]:
    if text is None or not _is_there(text):
        return []
    return [text[span.start : span.end] for span in rawjson.elements(text)]


def _consumer(text: bytes) -> Consumer:
    return msgspec.structs.replace(_CONSUMER.decode(text), text=msgspec.Raw(text))
