"""What is asked of an API server: reads that raise, writes whose outcome is a value, watches as lines.

A write ends in one of three ways and the third must never be mistaken for the second: `Committed`, `Rejected` (it did
not and will not happen), `Unknown` (it may have happened, or still happen). Source:
docs/design/write-protocol.md#outcomes.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
# Of a list nothing but the metadata of its objects; a server that cannot do that sends all of them.
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io, application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class ApiError(Exception):
    """The API server answered a read or watch with an error status.

    Attributes:
        status: HTTP status.
        reason: machine-readable reason of the Status object (`NotFound`, `Expired`, …), or empty.
        message: the server's text.
        retry_after_seconds: from the Retry-After header, if any.
    """

    def __init__(
        self, status: int, reason: str, message: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        return f"HTTP {self.status} {self.reason}: {self.message}"


class NotFoundError(ApiError):
    """404."""


class GoneError(ApiError):
    """410: the resourceVersion is too old (also as an ERROR event in a watch)."""


class ForbiddenError(ApiError):
    """401 or 403."""


class UnavailableError(Exception):
    """No usable answer: connection refused or broken, time out, or a body that is no Kubernetes object."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The write happened; `body` is the object as stored."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Rejected:
    """The write did not happen. 409 is special: our own first try may have (see `Unknown`), so read before judging.

    Attributes:
        status: HTTP status, or 0 when the server could not be reached at all.
        reason: reason of the Status object, or empty.
        message: the server's text.
        retry_after_seconds: from the Retry-After header, if any.
    """

    status: int
    reason: str
    message: str
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The write may have happened, or may still happen."""

    cause: str


WriteOutcome = Committed | Rejected | Unknown


class ApiClient(Protocol):
    """An API server, by path. Every call has its own deadline; none is ever repeated behind the caller's back."""

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> bytes:
        """Read an object or list: as JSON, as PROTOBUF, or of a list nothing but METADATA.

        Raises:
            ApiError: the server refused (subclass by status).
            UnavailableError: no usable answer.
        """
        ...

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> WriteOutcome:
        """POST, PUT, PATCH or DELETE; the answer is JSON. Never raises for what the server or network does."""
        ...

    def watch(
        self, path: str, query: Mapping[str, str]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch: an iterator of lines (one JSON event each, without newline) that ends when the server ends it.

        Raises:
            ApiError: on entering, when the status is not 200.
            UnavailableError: on entering or while reading: broken or silent for longer than the read deadline.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
