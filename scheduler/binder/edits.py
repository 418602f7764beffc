r"""What changes about a claim, and the request that changes that and nothing else.

`opaque.parameters` and `data` are stored as the bytes they were sent in, and the API server compares bytes: an update
whose spec or allocation came back in other words is refused (422, "field is immutable"), and changed `data` asks for a
permission that only drivers have. What a JSON GET shows are not these bytes: Go's encoder drops white space and writes
`&`, `<`, `>`, U+2028 and U+2029 as `\u0026` and so on. Measured on kube-apiserver 1.37.2, by the text that is stored:

    stored text of parameters            PUT of what GET   merge, JSON   strategic,   protobuf
                                         showed            patch         apply        read-modify-write
    compact: {"a":1}, {}, nulls, deep    200               200           200          200
    1.50, 1e3, -0, 30 digits, \u00e9,
    \/, keys out of order or twice,
    \ud800, bytes that are no UTF-8     200               200           422          200
    {"a": 1}, line ends, bare & < >,
    U+2028                               422               422           422          200

The same for the finalizer on the claim itself (its spec is compared), and on /status for another consumer, or one less
of several (the allocation is compared). `data` is not compared: where the table says 422 it is rewritten. Allocating
and deallocating send nothing of others back that counts, and JSON does for all texts; a patch would rewrite the
parameters of a new allocation, a PUT keeps them. Deep means 1,600 objects or 5,000 lists. No object with `1e400` can
be stored.

So a request is JSON, made from what the watch brings; it either keeps all bytes or is refused. Refused, or where `data`
would go back, it is what the in-tree scheduler always sends: protobuf, changed on the wire. That needs a read of its
own, since the stored bytes cannot be had in any other way.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeGuard

import msgspec

from allocator.model.claims import ResourceClaimConsumerReference
from scheduler.api import wire
from scheduler.binder.claim_text import ClaimText, Members, joined, listed, members

# Members with text of others. Inside a text of its own, such as an expression, a quote has a backslash before it.
_PARAMETERS: Final = re.compile(rb'"parameters"[ \t\r\n]*:')
_DATA: Final = re.compile(rb'"data"[ \t\r\n]*:')

# Fields of the messages ResourceClaim, ObjectMeta, ResourceClaimStatus and ResourceClaimConsumerReference.
_METADATA, _STATUS = 1, 3
_UID, _RESOURCE_VERSION, _ANNOTATIONS, _FINALIZERS = 5, 6, 12, 14
_RESERVED_FOR = 2
_API_GROUP, _RESOURCE, _NAME, _CONSUMER_UID = 1, 3, 4, 5
_KEY, _VALUE = 1, 2  # of an entry of a map


@dataclass(frozen=True, slots=True)
class Mark:
    """Adds a finalizer and sets annotations.

    Attributes:
        finalizer: added; empty: none.
        annotations: set, others are kept.
    """

    finalizer: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    subresource: ClassVar[str] = ""

    def sends_back(self, claim: ClaimText) -> msgspec.Raw:
        """The spec."""
        return claim.spec

    def as_json(self, claim: ClaimText) -> bytes:
        """The whole claim, changed."""
        metadata = dict(members(claim.parts["metadata"]))
        if self.finalizer:
            finalizers = [*(claim.metadata.finalizers or ()), self.finalizer]
            metadata["finalizers"] = _raw(finalizers)
        if self.annotations:
            annotations = {**(claim.metadata.annotations or {}), **self.annotations}
            metadata["annotations"] = _raw(annotations)
        return bytes(joined({**claim.parts, "metadata": joined(metadata)}))

    def as_protobuf(self, message: bytes) -> bytes:
        """The message ResourceClaim, changed."""
        return wire.changed(message, _METADATA, self._marked)

    def _marked(self, metadata: bytes) -> bytes:
        changed = [each.raw for each in wire.fields(metadata) if not self._is_set(each)]
        changed += [
            wire.of_bytes(
                _ANNOTATIONS,
                wire.of_bytes(_KEY, key.encode()) + wire.of_bytes(_VALUE, value.encode()),
            )
            for key, value in self.annotations.items()
        ]
        if self.finalizer:
            changed.append(wire.of_bytes(_FINALIZERS, self.finalizer.encode()))
        return b"".join(changed)

    def _is_set(self, entry: wire.Field) -> bool:
        if entry.number != _ANNOTATIONS:
            return False
        return wire.first(entry.payload, _KEY).decode(errors="replace") in self.annotations


@dataclass(frozen=True, slots=True)
class Unmark:
    """Takes a finalizer away; not ours to do, but the simulated claim controller's."""

    finalizer: str
    subresource: ClassVar[str] = ""

    def sends_back(self, claim: ClaimText) -> msgspec.Raw:
        """The spec."""
        return claim.spec

    def as_json(self, claim: ClaimText) -> bytes:
        """The whole claim, changed."""
        metadata = dict(members(claim.parts["metadata"]))
        rest = [each for each in claim.metadata.finalizers or () if each != self.finalizer]
        metadata["finalizers"] = _raw(rest)
        return bytes(joined({**claim.parts, "metadata": joined(metadata)}))

    def as_protobuf(self, message: bytes) -> bytes:
        """The message ResourceClaim, changed."""
        return wire.changed(message, _METADATA, self._unmarked)

    def _unmarked(self, metadata: bytes) -> bytes:
        mine = self.finalizer.encode()
        return b"".join(
            each.raw
            for each in wire.fields(metadata)
            if each.number != _FINALIZERS or each.payload != mine
        )


@dataclass(frozen=True, slots=True)
class Allocation:
    """Allocates a claim and reserves it, in one write.

    Attributes:
        allocation: as JSON.
        consumer: who gets it.
    """

    allocation: bytes
    consumer: ResourceClaimConsumerReference
    subresource: ClassVar[str] = "/status"

    def as_json(self, claim: ClaimText) -> bytes:
        """The whole claim, changed."""
        status = {**claim.status, "allocation": msgspec.Raw(self.allocation)}
        return _with_status(claim, {**status, "reservedFor": _with_consumer(claim, self.consumer)})


@dataclass(frozen=True, slots=True)
class Reservation:
    """Adds a consumer to an allocated claim."""

    consumer: ResourceClaimConsumerReference
    subresource: ClassVar[str] = "/status"

    def sends_back(self, claim: ClaimText) -> msgspec.Raw:
        """The status."""
        return claim.parts["status"]

    def as_json(self, claim: ClaimText) -> bytes:
        """The whole claim, changed."""
        reserved = _with_consumer(claim, self.consumer)
        return _with_status(claim, {**claim.status, "reservedFor": reserved})

    def as_protobuf(self, message: bytes) -> bytes:
        """The message ResourceClaim, changed."""
        who = self.consumer
        entry = b"".join(
            wire.of_bytes(number, text.encode())
            for number, text in (
                (_API_GROUP, who.api_group),
                (_RESOURCE, who.resource),
                (_NAME, who.name),
                (_CONSUMER_UID, who.uid),
            )
        )
        added = wire.of_bytes(_RESERVED_FOR, entry)
        return wire.changed(message, _STATUS, lambda status: status + added)


@dataclass(frozen=True, slots=True)
class Release:
    """Takes some consumers away and leaves the allocation."""

    uids: Collection[str]
    subresource: ClassVar[str] = "/status"

    def sends_back(self, claim: ClaimText) -> msgspec.Raw:
        """The status."""
        return claim.parts["status"]

    def as_json(self, claim: ClaimText) -> bytes:
        """The whole claim, changed."""
        rest = [each.text for each in claim.consumers if each.uid not in self.uids]
        return _with_status(claim, {**claim.status, "reservedFor": listed(rest)})

    def as_protobuf(self, message: bytes) -> bytes:
        """The message ResourceClaim, changed."""
        return wire.changed(message, _STATUS, self._released)

    def _released(self, status: bytes) -> bytes:
        gone = {uid.encode() for uid in self.uids}
        return b"".join(
            each.raw
            for each in wire.fields(status)
            if each.number != _RESERVED_FOR or wire.first(each.payload, _CONSUMER_UID) not in gone
        )


@dataclass(frozen=True, slots=True)
class Deallocation:
    """Takes the allocation away, with all consumers and what drivers say of its devices."""

    subresource: ClassVar[str] = "/status"

    def as_json(self, claim: ClaimText) -> bytes:
        """The whole claim, changed."""
        gone = ("reservedFor", "allocation", "devices")
        return _with_status(claim, {k: v for k, v in claim.status.items() if k not in gone})


Repeating = Mark | Unmark | Reservation | Release
"""Changes whose request repeats what the API server then compares, or takes, as others have written it."""

Edit = Repeating | Allocation | Deallocation


def may_be_refused(edit: Edit, claim: ClaimText) -> TypeGuard[Repeating]:
    """Whether a request in JSON repeats text of others that is compared, and may not be the same bytes."""
    return isinstance(edit, Repeating) and _PARAMETERS.search(edit.sends_back(claim)) is not None


def may_rewrite(edit: Edit, claim: ClaimText) -> TypeGuard[Repeating]:
    """Whether a request in JSON repeats text of others that nobody compares."""
    return isinstance(edit, Repeating) and _DATA.search(edit.sends_back(claim)) is not None


def is_of_version(message: bytes, claim: ClaimText) -> bool:
    """Whether a message ResourceClaim is that version of that claim.

    Raises:
        WireError: it is no message.
    """
    meta = claim.metadata
    found = wire.first(message, _METADATA)
    return (
        wire.first(found, _UID) == meta.uid.encode()
        and wire.first(found, _RESOURCE_VERSION) == meta.resource_version.encode()
    )


def _with_consumer(claim: ClaimText, consumer: ResourceClaimConsumerReference) -> msgspec.Raw:
    return listed([*(each.text for each in claim.consumers), _raw(consumer)])


def _with_status(claim: ClaimText, status: Members) -> bytes:
    return bytes(joined({**claim.parts, "status": joined(status)}))


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
