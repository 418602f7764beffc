"""The webhooks: raw bytes in, raw bytes out, over `ExtenderService`.

Anything but a well-formed POST of JSON within the limits is refused before it is looked at; errors never repeat what the
caller sent. Who may not write (not the leader, caches not synced) answers 503. Source: reliability 5.4.

kube-scheduler waits for filter and prioritize between any two pods, so those calls go past FastAPI's middlewares and
request objects: they are served straight from ASGI. FastAPI answers everything else.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

import orjson
from fastapi import FastAPI
from starlette.routing import Route

from allocator.outcome import Reason
from scheduler.api import extender_v1
from scheduler.api.extender_v1 import RequestError
from scheduler.clock import Clock
from scheduler.extender.service import ExtenderService, ServiceError

_log: Final = logging.getLogger(__name__)

_MOST_DIGITS: Final = 18  # of a length; reading many more is an error in Python
Handler = Callable[[bytes], Awaitable[bytes]]
Observe = Callable[[str, int, float], None]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
_Answer = tuple[int, bytes]


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

    def create(self) -> Asgi:
        """Make the ASGI application."""
        others = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        verbs: dict[str, Asgi] = {}
        for verb, handler, limit in (
            ("filter", self._filter, extender_v1.MAX_BODY_BYTES),
            ("prioritize", self._prioritize, extender_v1.MAX_BODY_BYTES),
            ("preempt", self._preempt, extender_v1.MAX_BODY_BYTES),
            ("bind", self._bind, extender_v1.MAX_BIND_BODY_BYTES),
        ):
            served = verbs[f"/{verb}"] = self._route(verb, handler, limit)
            others.router.routes.append(Route(f"/{verb}", _Endpoint(served), methods=["POST"]))

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            direct = scope["type"] == "http" and scope["method"] == "POST"
            served = verbs.get(scope["path"]) if direct else None
            await (others if served is None else served)(scope, receive, send)

        return app

    def _route(self, verb: str, handler: Handler, limit: int) -> Asgi:
        async def route(scope: Scope, receive: Receive, send: Send) -> None:
            started = time.perf_counter()
            status, body = await self._call(scope, receive, handler, limit)
            self._observe(verb, status, time.perf_counter() - started)
            await _send(send, status, body)

        return route

    async def _call(self, scope: Scope, receive: Receive, handler: Handler, limit: int) -> _Answer:
        try:
            body = await _read(scope["headers"], receive, limit)
            reason = await self._availability()
            if reason is not None:
                return _problem(503, reason.message)
            return 200, await handler(body)
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


class HungUpError(Exception):
    """The caller has gone before the body was complete."""


class _Endpoint:
    """A verb as FastAPI's router takes an ASGI application: as an object, not a function."""

    def __init__(self, served: Asgi) -> None:
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._served(scope, receive, send)


async def _read(headers: Iterable[tuple[bytes, bytes]], receive: Receive, limit: int) -> bytes:
    """Read a body of at most `limit` bytes, whatever Content-Length says.

    Raises:
        RequestError: it is larger.
        MediaTypeError: it is not JSON.
        HungUpError: the rest of it will not come.
    """
    media_type, length = b"", b""
    for name, value in headers:
        if name == b"content-type":
            media_type = media_type or value.partition(b";")[0].strip().lower()
        elif name == b"content-length":
            length = length or value
    if media_type != b"application/json":
        raise MediaTypeError
    if length.isdigit() and (len(length) > _MOST_DIGITS or int(length) > limit):
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:  # the server closes a connection whose body does not come
        message = await receive()
        if message["type"] != "http.request":
            raise HungUpError
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(limit: int) -> RequestError:
    return RequestError("", f"the body is larger than {limit} bytes", too_large=True)


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _failure(problem: Exception) -> _Answer:
    match problem:
        case MediaTypeError():
            return _problem(415, "Content-Type must be application/json")
        case RequestError():
            return _problem(413 if problem.too_large else 400, str(problem))
        case ServiceError():
            return _problem(500, problem.status.message)
        case HungUpError():
            return _problem(400, "the caller has hung up")
        case _:
            _log.error("a call has met a defect", exc_info=problem)
            return _problem(500, "internal error")


def _problem(status: int, message: str) -> _Answer:
    return status, orjson.dumps({"Error": message})
