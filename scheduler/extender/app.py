"""The webhooks: raw bytes in, raw bytes out, over `ExtenderService`.

Of an HTTP error kube-scheduler shows the code alone. So whatever it may see is answered with status 200: filter and bind
say why in `Error`, which goes into the pod's event; prioritize and preempt have no room for a text, and answer what does
no harm: no scores, and no node to evict pods from (an HTTP error would make an ignorable extender's preemption go on
without us). Nothing but the reason is in such an answer: who may not write (not the leader, caches not synced) never lets
a pod be bound. All of it is logged and counted.

What kube-scheduler never sends gets an HTTP error: another method or media type, a body that is no JSON object. Errors
never repeat what the caller sent.

Source: pkg/scheduler/extender.go and its callers; docs/design/security.md#input-limits.

kube-scheduler waits for filter and prioritize between any two pods, so those calls go past FastAPI's middlewares and
request objects: they are served straight from ASGI. FastAPI answers everything else.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from fastapi import FastAPI
from starlette.routing import Route

from allocator.outcome import Reason
from scheduler.api import extender_v1
from scheduler.api.extender_v1 import RequestError
from scheduler.clock import Clock
from scheduler.extender.complaints import Complaints
from scheduler.extender.service import NO_REASON, ExtenderService, ServiceError

_log: Final = logging.getLogger(__name__)

_MOST_DIGITS: Final = 18  # of a length; reading many more is an error in Python
Handler = Callable[[bytes], Awaitable[bytes]]
Observe = Callable[[str, int, float], None]
Refused = Callable[[str, str], None]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
_Answer = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class _Verb:
    """A webhook.

    Attributes:
        name: its path without slash.
        handler: answers a body.
        limit: bytes of a body.
        refusal: the answer, with status 200, when there is none; takes the reason.
        hint: what may be wrong when a body is too large.
    """

    name: str
    handler: Handler
    limit: int
    refusal: Callable[[str], bytes]
    hint: str = ""


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why a call has no answer.

    Attributes:
        cause: for the metric: a closed set.
        text: constant.
        status: the HTTP status for whoever is not kube-scheduler; 0: it may be kube-scheduler.
    """

    cause: str
    text: str
    status: int = 0


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
        refused: Refused = lambda _verb, _cause: None,
    ) -> None:
        """Store the collaborators.

        Args:
            service: answers.
            unavailable: why this process may not answer now, or None.
            clock: for waiting.
            patience_seconds: how long a call waits for this process to become available before it is refused; above 0
                only beside its own kube-scheduler, where nobody else could answer.
            observe: hears of each call: verb, HTTP status, seconds.
            refused: hears of each call that was not served: verb, cause.
        """
        self._service = service
        self._unavailable = unavailable
        self._clock = clock
        self._patience = patience_seconds
        self._observe = observe
        self._refused = refused
        self._complaints = Complaints(clock)

    def create(self) -> Asgi:
        """Make the ASGI application."""
        others = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        verbs: dict[str, Asgi] = {}
        most, hint = extender_v1.MAX_BODY_BYTES, _NAMES_ONLY
        for verb in (
            _Verb("filter", self._filter, most, extender_v1.filter_error, hint),
            _Verb("prioritize", self._prioritize, most, _no_scores, hint),
            _Verb("preempt", self._preempt, most, _no_nodes, hint),
            _Verb("bind", self._bind, extender_v1.MAX_BIND_BODY_BYTES, extender_v1.bind_result),
        ):
            path = f"/{verb.name}"
            served = verbs[path] = self._route(verb)
            others.router.routes.append(Route(path, _Endpoint(served), methods=["POST"]))

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            direct = scope["type"] == "http" and scope["method"] == "POST"
            served = verbs.get(scope["path"]) if direct else None
            await (others if served is None else served)(scope, receive, send)

        return app

    def _route(self, verb: _Verb) -> Asgi:
        async def route(scope: Scope, receive: Receive, send: Send) -> None:
            started = time.perf_counter()
            status, body = await self._call(verb, scope, receive)
            self._observe(verb.name, status, time.perf_counter() - started)
            await _send(send, status, body)

        return route

    async def _call(self, verb: _Verb, scope: Scope, receive: Receive) -> _Answer:
        body = b""
        try:
            body = await _read(scope["headers"], receive, verb.limit)
            reason = await self._availability()
            if reason is None:
                return 200, await verb.handler(body)
            problem = _Problem("unavailable", reason.message or NO_REASON)
        except Exception as error:  # noqa: BLE001  # the caller gets an answer, the log gets the rest
            problem = _problem_of(error, body, verb.hint)
        self._refused(verb.name, problem.cause)
        self._complaints.tell(verb.name, problem.text, body)
        if problem.status:
            return problem.status, orjson.dumps({"Error": problem.text})
        return 200, verb.refusal(problem.text)

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
        # No text would mean that the pod is bound.
        failure = "" if outcome.reason is None else outcome.reason.message or NO_REASON
        return extender_v1.bind_result(failure)


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


def _problem_of(error: Exception, body: bytes, hint: str) -> _Problem:
    match error:
        case MediaTypeError():
            return _Problem("request", "Content-Type must be application/json", 415)
        case RequestError() if error.too_large:
            return _Problem("too large", str(error) if error.path else f"{error}{hint}")
        case RequestError():
            return _Problem("request", str(error), 0 if _is_object(body) else 400)
        case ServiceError():
            return _Problem("time", error.status.message or NO_REASON)
        case HungUpError():
            return _Problem("request", "the client closed the connection", 400)
        case _:
            _log.error("internal error in a webhook", exc_info=error)
            return _Problem("defect", "internal error")


def _is_object(body: bytes) -> bool:
    """Whether a body is a JSON object, as all that kube-scheduler sends, whatever it holds."""
    try:
        return isinstance(orjson.loads(body), dict)
    except (ValueError, RecursionError):
        return False


_NAMES_ONLY: Final = "; node objects are not accepted: set nodeCacheCapable: true"


def _no_scores(_reason: str) -> bytes:
    return extender_v1.prioritize_result({})


def _no_nodes(_reason: str) -> bytes:
    return extender_v1.preempt_result({})
