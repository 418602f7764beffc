"""`ApiClient` straight on an embedded server: no sockets, the same protocol, the same bytes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import orjson

from scheduler.client import (
    JSON,
    ApiError,
    Committed,
    ForbiddenError,
    GoneError,
    NotFoundError,
    Rejected,
    Unknown,
    WriteOutcome,
)
from scheduler.clock import Clock
from scheduler.lab.apiserver.requests import Request
from scheduler.lab.apiserver.server import ApiServer, Response
from scheduler.lab.apiserver.streams import open_stream
from scheduler.lab.apiserver.watches import Watch

_ERRORS: Mapping[int, type[ApiError]] = {
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    410: GoneError,
}


class EmbeddedClient:
    """A client of an `ApiServer` in the same process."""

    def __init__(self, server: ApiServer, clock: Clock) -> None:
        """Remember the server.

        Args:
            server: is called directly.
            clock: for the duration of watches.
        """
        self._server = server
        self._clock = clock

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> bytes:
        """Read an object or list.

        Raises:
            ApiError: the server refused.
        """
        response = await self._send(Request("GET", path, query or {}, accept=accept))
        if response.status >= 300:
            raise _error(response)
        return response.body

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> WriteOutcome:
        """POST, PUT, PATCH or DELETE. As with a real server, nothing is known after an error of the server itself."""
        response = await self._send(Request(method, path, query or {}, body, content_type))
        if response.status < 300:
            return Committed(response.body)
        if response.status >= 500:
            return Unknown(f"HTTP {response.status}")
        error = _error(response)
        return Rejected(error.status, error.reason, error.message, error.retry_after_seconds)

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch.

        Raises:
            ApiError: on entering, when the server refuses.
        """
        await asyncio.sleep(0)
        answer = self._server.handle(Request("GET", path, {**query, "watch": "true"}))
        if isinstance(answer, Response):
            raise _error(answer)
        async with open_stream(answer, self._clock) as stream:
            yield stream.lines()

    async def aclose(self) -> None:
        """Nothing to close."""

    async def _send(self, request: Request) -> Response:
        # Others run between sending and answering, and between answering and reading, as with a real server.
        await asyncio.sleep(0)
        answer = self._server.handle(request)
        await asyncio.sleep(0)
        if isinstance(answer, Watch):
            raise ApiError(400, "BadRequest", "a watch is opened with watch()")
        return answer


def _error(response: Response) -> ApiError:
    status = orjson.loads(response.body)
    details = status.get("details") or {}
    return _ERRORS.get(response.status, ApiError)(
        response.status,
        status.get("reason", ""),
        status.get("message", ""),
        details.get("retryAfterSeconds"),
    )
