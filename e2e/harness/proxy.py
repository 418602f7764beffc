"""A fault proxy: between the service and the API server, or between kube-scheduler and our webhooks.

Without faults it passes everything through, watches included. A fault is put in for requests that match. It can run
code at three moments of a request's way (before it goes on, when it has been carried out, when the answer has been
delivered), hold it back, answer in the server's place, change or lose the answer, send it twice, or cut the
connection. Watches are disturbed one by one, see `streams`.

Whatever has been sent on is carried out to its end and told to the listeners, also when whoever asked is dead by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from e2e.harness.api import Object
from e2e.harness.streams import Stream, abort

# Of one connection, not of the message; and what aiohttp writes itself.
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "host", "content-length"}
MAX_BODY_BYTES = 16 * 2**20
REASONS = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True)
class Call:
    """A request on its way.

    Attributes:
      method: HTTP method.
      path: Without query.
      body: As sent.
      query: As sent.
    """

    method: str
    path: str
    body: bytes
    query: str = ""

    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def is_watch(self) -> bool:
        return re.search(r"(^|&)watch=(1|true)(&|$)", self.query) is not None


@dataclass(frozen=True)
class Reply:
    """An answer as a whole; of an answer without status nothing is delivered: the connection is cut."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


CUT = Reply(0)
Hook = Callable[[Call], Awaitable[object]]


@dataclass
class Fault:
    """What happens to the next `times` requests that match.

    Attributes:
      method: Regular expression for the HTTP method, such as PUT.
      path: Regular expression that the whole path (without query) must match.
      times: How many requests it applies to.
      before: Runs before the request goes on.
      answer: Status and message; the request does not go on.
      delay_seconds: The request is held back that long; if the sender hangs up meanwhile, it
        never reaches the server.
      cut: The request goes on, but instead of the response the connection is cut.
      hit: The requests it applied to.
      name: What it is called where faults are counted.
      when: A further condition.
      share: How many of those that match are hit.
      random: Draws that share.
      headers: Of `answer` and `late_answer`, such as Retry-After.
      lost: The connection is cut, and the request does not go on.
      late_answer: Status and message instead of what the server answered after it had carried it out.
      spoil: Changes the body of the answer.
      hold_seconds: The answer is held back that long.
      twice: The request is sent a second time, and the second answer is passed on.
      outlives: It goes on although the sender hangs up.
      committed: Runs when the server has answered, before the answer is passed on.
      delivered: Runs when the answer has been written.
    """

    method: str
    path: str
    times: int = 1
    before: Hook | None = None
    answer: tuple[int, str] | None = None
    delay_seconds: float = 0.0
    cut: bool = False
    hit: list[Call] = field(default_factory=list)
    name: str = ""
    when: Callable[[Call], bool] | None = None
    share: float = 1.0
    random: random.Random = field(default_factory=lambda: random.Random(0))
    headers: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False
    late_answer: tuple[int, str] | None = None
    spoil: Callable[[bytes], bytes] | None = None
    hold_seconds: float = 0.0
    twice: bool = False
    outlives: bool = False
    committed: Hook | None = None
    delivered: Hook | None = None

    def applies_to(self, call: Call) -> bool:
        return (
            len(self.hit) < self.times
            and re.fullmatch(self.method, call.method) is not None
            and re.fullmatch(self.path, call.path) is not None
            and (self.when is None or self.when(call))
            and (self.share >= 1.0 or self.random.random() < self.share)
        )


# Hears of every request that was sent on or answered here: call, answer, name of the fault.
Listener = Callable[[Call, Reply, str], None]


@dataclass
class _Passage:
    """One request under way."""

    call: Call
    headers: dict[str, str]
    target: str
    fault: Fault | None
    is_sent: bool = False


class FaultProxy:
    """Listens on 127.0.0.1 and forwards to a server.

    Attributes:
      url: Where it listens.
      happened: Name of fault to how often it really happened, named faults and disturbed watches.
      streams: The watches that are open.
      listeners: Called for every request; for a watch when it is open.
      is_down: Whether connections are refused with a cut, as by a server that is gone.
    """

    def __init__(self, server: str | Callable[[], str], context: ssl.SSLContext | None) -> None:
        """Prepares a proxy.

        Args:
          server: URL, or what says it for each request.
          context: TLS towards the server; None for plain HTTP.
        """
        self._server = server if callable(server) else lambda: server
        self._context = context
        self._faults: list[Fault] = []
        self._tasks: set[asyncio.Future[Any]] = set()
        self.url = ""
        self.happened: Counter[str] = Counter()
        self.streams: list[Stream] = []
        self.listeners: list[Listener] = []
        self.is_down = False

    @contextlib.contextmanager
    def fault(self, *faults: Fault) -> Iterator[Fault]:
        """Puts faults in while the context is open, and gives the first."""
        self._faults += faults
        try:
            yield faults[0]
        finally:
            for fault in faults:
                self._faults.remove(fault)

    def disturb(self, name: str, stream: Stream, **options: Any) -> None:
        """Does something to an open watch and counts it; the names are `Stream`'s methods."""
        self.happened[f"watch {name}"] += 1
        getattr(stream, name)(**options)

    @contextlib.asynccontextmanager
    async def running(self, serving: ssl.SSLContext | None = None) -> AsyncIterator[FaultProxy]:
        """Serves while the context is open.

        Args:
          serving: Certificate for TLS; plain HTTP when None.
        """
        connector = aiohttp.TCPConnector(
            ssl=True if self._context is None else self._context, limit=0
        )
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
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await runner.cleanup()
        await asyncio.sleep(0.05)

    async def _handle(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> web.StreamResponse:
        if self.is_down:
            return abort(request)
        call = Call(request.method, request.path, await request.read(), request.query_string)
        fault = next((f for f in self._faults if f.applies_to(call)), None)
        if fault is not None:
            fault.hit.append(call)
            if fault.name:
                self.happened[fault.name] += 1
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        passage = _Passage(call, headers, self._server() + request.raw_path, fault)
        # Of a watch there is no whole answer to change: it is refused, or disturbed while it is open.
        if call.is_watch and not (fault is not None and (fault.answer or fault.lost)):
            return await self._watch(session, request, passage)
        task = asyncio.create_task(self._carry(session, passage))
        self._keep(task)
        try:
            reply = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not passage.is_sent and not (fault is not None and fault.outlives):
                task.cancel()
            raise
        return await self._deliver(request, reply, passage)

    async def _carry(self, session: aiohttp.ClientSession, passage: _Passage) -> Reply:
        """Sends a request on, with what is to happen to it, and returns what to answer."""
        call, fault = passage.call, passage.fault
        if fault is not None:
            if fault.delay_seconds:
                await asyncio.sleep(fault.delay_seconds)
            if fault.before is not None:
                await fault.before(call)
            if fault.answer is not None or fault.lost:
                return self._told(passage, _instead(fault))
        passage.is_sent = True
        try:
            reply = self._told(passage, await _send(session, passage))
            if fault is not None and fault.twice:
                reply = self._told(passage, await _send(session, passage))
        except (aiohttp.ClientError, OSError, TimeoutError):
            return self._told(passage, CUT)  # the server is gone, or has never been there
        return reply if fault is None else await _changed(reply, call, fault)

    async def _deliver(
        self, request: web.Request, reply: Reply, passage: _Passage
    ) -> web.StreamResponse:
        if reply.status == 0:
            return abort(request)
        response = web.Response(status=reply.status, body=reply.body)
        for key, value in reply.headers:
            if key.lower() == "content-type":
                response.headers[key] = value
            else:
                response.headers.add(key, value)
        fault = passage.fault
        if fault is not None and fault.delivered is not None:
            await response.prepare(request)
            await response.write_eof()
            # On its own: this handler is cancelled when the sender is gone, of which the hook may be the cause.
            self._keep(fault.delivered(passage.call))
        return response

    def _keep(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _told(self, passage: _Passage, reply: Reply) -> Reply:
        fault = passage.fault
        for listener in self.listeners:
            listener(passage.call, reply, "" if fault is None else fault.name or "fault")
        return reply

    async def _watch(
        self, session: aiohttp.ClientSession, request: web.Request, passage: _Passage
    ) -> web.StreamResponse:
        try:
            async with session.request(
                request.method, passage.target, headers=passage.headers
            ) as answer:
                response = _begin(request, answer)
                await response.prepare(request)
                self._told(passage, Reply(answer.status))
                stream = Stream(passage.call.path, request, response)
                self.streams.append(stream)
                try:
                    await stream.run(answer)
                finally:
                    self.streams.remove(stream)
                return response
        except (aiohttp.ClientError, ConnectionError):
            # One side is gone: the other must notice, not wait.
            return abort(request)


async def _send(session: aiohttp.ClientSession, passage: _Passage) -> Reply:
    call = passage.call
    async with session.request(
        call.method, passage.target, headers=passage.headers, data=call.body or None
    ) as answer:
        headers = tuple((k, v) for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP)
        return Reply(answer.status, headers, await answer.read())


def _instead(fault: Fault) -> Reply:
    return CUT if fault.answer is None else status_reply(*fault.answer, headers=fault.headers)


async def _changed(reply: Reply, call: Call, fault: Fault) -> Reply:
    """What becomes of an answer on its way back."""
    if fault.committed is not None:
        await fault.committed(call)
    if fault.hold_seconds:
        await asyncio.sleep(fault.hold_seconds)
    if fault.cut:
        return CUT
    if fault.late_answer is not None:
        return status_reply(*fault.late_answer, headers=fault.headers)
    if fault.spoil is not None:
        return Reply(reply.status, reply.headers, fault.spoil(reply.body))
    return reply


def _begin(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for key, value in answer.headers.items():
        if key.lower() not in HOP_BY_HOP:
            response.headers.add(key, value)
    return response


def status_reply(code: int, message: str, *, headers: Mapping[str, str] | None = None) -> Reply:
    """A refusal as the API server writes it."""
    body: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS.get(code, "InternalError"),
        "code": code,
    }
    told = {"Content-Type": "application/json", **(headers or {})}
    return Reply(code, tuple(told.items()), orjson.dumps(body))
