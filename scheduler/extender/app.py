"""The webhooks: FastAPI routes over `ExtenderService`, raw bytes in, raw bytes out.

Anything but a well-formed POST of JSON within the limits is refused before it is looked at; errors never repeat what the
caller sent. Who may not write (not the leader, caches not synced) answers 503. Source: reliability 5.4.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

import orjson
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from allocator.outcome import Reason
from scheduler.api import extender_v1
from scheduler.api.extender_v1 import RequestError
from scheduler.clock import Clock
from scheduler.extender.service import ExtenderService, ServiceError

_log: Final = logging.getLogger(__name__)

BODY_SECONDS: Final = 10.0
Handler = Callable[[bytes], Awaitable[bytes]]
Observe = Callable[[str, int, float], None]


class ExtenderApp:
    """Routes of the extender."""

    def __init__(
        self,
        service: ExtenderService,
        *,
        unavailable: Callable[[], Reason | None],
        clock: Clock,
        patience_seconds: float = 0.0,
        observe: Observe = lambda _verb, _code, _seconds: None,
    ) -> None:
        """Store the collaborators.

        Args:
            service: answers.
            unavailable: why this process may not answer now, or None.
            clock: for waiting.
            patience_seconds: how long a call waits for this process to become available before it answers 503; above 0
                only beside its own kube-scheduler, where nobody else could answer.
            observe: hears of each call: verb, HTTP status, seconds.
        """
        self._service = service
        self._unavailable = unavailable
        self._clock = clock
        self._patience = patience_seconds
        self._observe = observe

    def create(self) -> FastAPI:
        """Make the ASGI application."""
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        for verb, handler, limit in (
            ("filter", self._filter, extender_v1.MAX_BODY_BYTES),
            ("prioritize", self._prioritize, extender_v1.MAX_BODY_BYTES),
            ("preempt", self._preempt, extender_v1.MAX_BODY_BYTES),
            ("bind", self._bind, extender_v1.MAX_BIND_BODY_BYTES),
        ):
            app.add_api_route(f"/{verb}", self._route(verb, handler, limit), methods=["POST"])
        return app

    def _route(
        self, verb: str, handler: Handler, limit: int
    ) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            started = time.perf_counter()
            response = await self._call(request, handler, limit)
            self._observe(verb, response.status_code, time.perf_counter() - started)
            return response

        return route

    async def _call(self, request: Request, handler: Handler, limit: int) -> Response:
        try:
            body = await _read(request, limit)
            reason = await self._availability()
            if reason is not None:
                return _problem(503, reason.message)
            return Response(await handler(body), media_type="application/json")
        except Exception as problem:  # noqa: BLE001  # the caller gets an answer, the log gets the rest
            return _failure(problem)

    async def _availability(self) -> Reason | None:
        reason = self._unavailable()
        deadline = self._clock.monotonic() + self._patience
        while reason is not None and self._clock.monotonic() < deadline:
            await self._clock.sleep(0.05)
            reason = self._unavailable()
        return reason

    async def _filter(self, body: bytes) -> bytes:
        answer = await self._service.filter(extender_v1.parse_filter(body))
        if answer.error:
            return extender_v1.filter_error(answer.error)
        return extender_v1.filter_result(answer.node_names, unresolvable=answer.unresolvable)

    async def _prioritize(self, body: bytes) -> bytes:
        return extender_v1.prioritize_result(
            await self._service.prioritize(extender_v1.parse_filter(body))
        )

    async def _preempt(self, body: bytes) -> bytes:
        return extender_v1.preempt_result(
            await self._service.preempt(extender_v1.parse_preempt(body))
        )

    async def _bind(self, body: bytes) -> bytes:
        outcome = await self._service.bind(extender_v1.parse_bind(body))
        return extender_v1.bind_result(outcome.reason.message if outcome.reason else "")


class MediaTypeError(Exception):
    """The body is not announced as JSON."""


async def _read(request: Request, limit: int) -> bytes:
    """Read a body of at most `limit` bytes, whatever Content-Length says.

    Raises:
        RequestError: it is larger.
        TimeoutError: it does not arrive in time.
        MediaTypeError: it is not JSON.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise MediaTypeError
    too_large = RequestError("", f"the body is larger than {limit} bytes", too_large=True)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    async with asyncio.timeout(BODY_SECONDS):
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise too_large
            chunks.append(chunk)
    return b"".join(chunks)


def _failure(problem: Exception) -> Response:
    match problem:
        case MediaTypeError():
            return _problem(415, "Content-Type must be application/json")
        case RequestError():
            return _problem(413 if problem.too_large else 400, str(problem))
        case TimeoutError():
            return _problem(408, "the body did not arrive in time")
        case ServiceError():
            return _problem(500, problem.status.message)
        case ClientDisconnect():
            return _problem(400, "the caller has hung up")
        case _:
            _log.error("a call has met a defect", exc_info=problem)
            return _problem(500, "internal error")


def _problem(status: int, message: str) -> Response:
    return Response(
        orjson.dumps({"Error": message}), status_code=status, media_type="application/json"
    )
