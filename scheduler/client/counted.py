"""A client that tells how each write ended. `unknown` is the one to watch: each of them is a device held until settled."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from scheduler.client import JSON, ApiClient, Committed, Rejected, WriteOutcome

Observe = Callable[[str, str], None]


def outcome_name(outcome: WriteOutcome) -> str:
    """`committed`, `conflict`, `rejected` or `unknown`."""
    match outcome:
        case Committed():
            return "committed"
        case Rejected(status=409):
            return "conflict"
        case Rejected():
            return "rejected"
        case _:
            return "unknown"


class CountedClient:
    """Passes everything on (implements `ApiClient`)."""

    def __init__(self, client: ApiClient, observe: Observe) -> None:
        """Wrap a client; `observe` hears the method and how it ended."""
        self._client = client
        self._observe = observe

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> bytes:
        """Read an object or list."""
        return await self._client.get(path, query, accept=accept)

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> WriteOutcome:
        """Write, and tell how it ended."""
        outcome = await self._client.write(
            method, path, body, content_type=content_type, query=query
        )
        self._observe(method, outcome_name(outcome))
        return outcome

    def watch(
        self, path: str, query: Mapping[str, str]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch."""
        return self._client.watch(path, query)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()
