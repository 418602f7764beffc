"""A fault proxy between the service under test and the API server.

Without faults it passes everything through, watches included. A fault is put in for the next
requests that match; it can run code just before the request goes on (a concurrent writer), answer
in the API server's place, hold the request back, or cut the connection after the request was
carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from e2e.harness.api import Object

# Of one connection, not of the message; and what aiohttp writes itself.
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "host", "content-length"}
MAX_BODY_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Call:
    """A request on its way to the API server."""

    method: str
    path: str
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class Fault:
    """What happens to the next `times` requests that match.

    Attributes:
      method: Regular expression for the HTTP method, such as PUT.
      path: Regular expression that the whole path (without query) must match.
      times: How many requests it applies to.
      before: Runs before the request goes on.
      answer: Status and message; the request does not go on.
      delay_seconds: The request is held back that long; if the service hangs up meanwhile, it
        never reaches the API server.
      cut: The request goes on, but instead of the response the connection is cut.
      hit: The requests it applied to.
    """

    method: str
    path: str
    times: int = 1
    before: Callable[[Call], Awaitable[object]] | None = None
    answer: tuple[int, str] | None = None
    delay_seconds: float = 0.0
    cut: bool = False
    hit: list[Call] = field(default_factory=list)

    def applies_to(self, call: Call) -> bool:
        return (
            len(self.hit) < self.times
            and re.fullmatch(self.method, call.method) is not None
            and re.fullmatch(self.path, call.path) is not None
        )


class FaultProxy:
    """Listens on 127.0.0.1 and forwards to the API server."""

    def __init__(self, server: str, context: ssl.SSLContext) -> None:
        self._server = server
        self._context = context
        self._faults: list[Fault] = []
        self.calls: list[Call] = []
        self.url = ""

    @contextlib.contextmanager
    def fault(self, fault: Fault) -> Iterator[Fault]:
        """Puts a fault in while the context is open."""
        self._faults.append(fault)
        try:
            yield fault
        finally:
            self._faults.remove(fault)

    @contextlib.asynccontextmanager
    async def running(self, serving: ssl.SSLContext | None = None) -> AsyncIterator[FaultProxy]:
        """Serves while the context is open.

        Args:
          serving: Certificate for TLS; plain HTTP when None.
        """
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, trust_env=False
        ) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._handle(session, request)

            app = web.Application(client_max_size=MAX_BODY_BYTES)
            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(
                app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
            )
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving)
            await site.start()
            host, port = runner.addresses[0][:2]
            self.url = f"{'http' if serving is None else 'https'}://{host}:{port}"
            try:
                yield self
            finally:
                await runner.cleanup()
        await asyncio.sleep(0.05)

    async def _handle(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> web.StreamResponse:
        call = Call(request.method, request.path, await request.read())
        self.calls.append(call)
        fault = next((f for f in self._faults if f.applies_to(call)), None)
        if fault is not None:
            fault.hit.append(call)
            if fault.delay_seconds:
                await asyncio.sleep(fault.delay_seconds)
            if fault.before is not None:
                await fault.before(call)
            if fault.answer is not None:
                return _status(*fault.answer)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        async with session.request(
            request.method,
            self._server + request.raw_path,
            headers=headers,
            data=call.body or None,
        ) as answer:
            if fault is not None and fault.cut:
                await answer.read()
                return _cut(request)
            return await _pass_on(request, answer)


async def _pass_on(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for key, value in answer.headers.items():
        if key.lower() not in HOP_BY_HOP:
            response.headers.add(key, value)
    if answer.content_length is not None:
        response.content_length = answer.content_length
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
    except (aiohttp.ClientError, ConnectionError):
        # One side is gone: the other must notice, not wait.
        _cut(request)
    return response


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _status(code: int, message: str) -> web.Response:
    reason = {403: "Forbidden", 409: "Conflict", 422: "Invalid", 503: "ServiceUnavailable"}
    body: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason.get(code, "InternalError"),
        "code": code,
    }
    return web.json_response(body, status=code)
