"""The way between simulated processes and the simulated API server: latency, lost answers, cut and lagging watches.

What travels belongs to nobody: a request that is under way commits although its sender is dead by then.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from scheduler.client import (
    JSON,
    ApiError,
    Committed,
    ForbiddenError,
    GoneError,
    NotFoundError,
    Rejected,
    UnavailableError,
    Unknown,
    WriteOutcome,
)
from scheduler.lab.apiserver.requests import Request
from scheduler.lab.apiserver.server import ApiServer, Response
from scheduler.lab.apiserver.store import Change
from scheduler.lab.apiserver.watches import Watch
from tests.simulation.faults import Faults, NoFaults, Verdict
from tests.simulation.loop import Owner, SimulatedLoop

CLIENT_SECONDS: Final = 8.0
SILENCE_SECONDS: Final = 90.0
BOOKMARK_SECONDS: Final = 60.0
SERVER_SECONDS: Final = 5.0
"""A request is carried out this much after it was sent, or never."""

_ERRORS: Final[Mapping[int, type[ApiError]]] = {
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    410: GoneError,
}


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nothing came back; `was_sent` says whether the request may have been carried out."""

    cause: str
    was_sent: bool = True


Answer = Response | Watch | NoAnswer


@dataclass(slots=True, eq=False)
class Wire:
    """One process's connection to the API server (implements `ApiClient`).

    Attributes:
        net: what it runs over.
        owner: whose it is.
        identity: user name, for the audit log.
        faults: what happens to what goes over it.
        cut: requests (`up`), answers and watches (`down`) are lost.
        lags: kind of object -> seconds that its watch lags behind.
    """

    net: "Network"
    owner: Owner | None
    identity: str
    faults: Faults = field(default_factory=NoFaults)
    cut_up: bool = False
    cut_down: bool = False
    lags: dict[str, float] = field(default_factory=dict)
    watches: "list[WatchConnection]" = field(default_factory=list)

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> bytes:
        """Read an object or list."""
        request = Request("GET", path, dict(query or {}), accept=accept)
        answer = await self.net.exchange(self, request)
        if isinstance(answer, NoAnswer):
            raise UnavailableError(f"GET {path}: {answer.cause}")
        if not isinstance(answer, Response):
            raise TypeError(path)
        if answer.status >= 300:
            raise _error(answer)
        if answer.content_type == JSON and not answer.body.endswith(b"}"):
            raise UnavailableError(f"GET {path}: the answer is no Kubernetes object")
        return answer.body

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> WriteOutcome:
        """POST, PUT, PATCH or DELETE."""
        request = Request(method, path, dict(query or {}), body, content_type)
        answer = await self.net.exchange(self, request)
        if isinstance(answer, NoAnswer):
            if answer.was_sent:
                return Unknown(answer.cause)
            return Rejected(0, "", f"cannot reach the server: {answer.cause}")
        if not isinstance(answer, Response):
            raise TypeError(path)
        if answer.status < 300:
            if not answer.body.endswith(b"}"):
                return Unknown(f"HTTP {answer.status}, but the answer is no Kubernetes object")
            return Committed(answer.body)
        if answer.status >= 500:
            return Unknown(f"HTTP {answer.status}")
        error = _error(answer)
        return Rejected(error.status, error.reason, error.message, error.retry_after_seconds)

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch."""
        request = Request("GET", path, {**query, "watch": "true"})
        answer = await self.net.exchange(self, request)
        if isinstance(answer, NoAnswer):
            raise UnavailableError(f"watch {path}: {answer.cause}")
        if isinstance(answer, Response):
            raise _error(answer)
        connection = WatchConnection(self, answer)
        try:
            yield connection.lines()
        finally:
            connection.close()

    async def aclose(self) -> None:
        """Nothing to close."""

    def cut(self, *, up: bool, down: bool) -> None:
        """Lose what goes this way from now on; watches fall silent, and are not closed."""
        self.cut_up, self.cut_down = up, down

    def drop_watches(self) -> None:
        """Close all watches (RST)."""
        for connection in tuple(self.watches):
            connection.fail("the connection was reset")


class WatchConnection:
    """An open watch: lines on their way, in order, each with the moment it arrives."""

    def __init__(self, wire: Wire, watch: Watch) -> None:
        self.wire = wire
        self.kind = watch.request.kind
        self.collection = watch.request.collection
        self._watch = watch
        self._loop = wire.net.loop
        self._under_way: deque[tuple[float, bytes | Exception | None]] = deque()
        self._arrived: deque[bytes | Exception | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False
        self._is_silent = False
        self._last_due = 0.0
        self._heard_at = self._loop.time()
        self._timers: list[asyncio.TimerHandle] = []
        self._arrival: asyncio.TimerHandle | None = None
        self._recent: deque[bytes] = deque(maxlen=8)
        wire.watches.append(self)
        wire.net.connections.append(self)
        self._after(BOOKMARK_SECONDS, self._bookmark)
        self._after(SILENCE_SECONDS, self._check_silence)
        if watch.request.timeout_seconds:
            self._after(watch.request.timeout_seconds, self._end_in_order)
        self.pump()

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines as they arrive."""
        while True:
            while self._arrived:
                item = self._arrived.popleft()
                if item is None:
                    return
                if isinstance(item, Exception):
                    raise item
                yield item
            self._waiter = self._loop.create_future()
            await self._waiter

    def close(self) -> None:
        """The reader is gone."""
        if self._is_closed:
            return
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()
        if self._arrival is not None:
            self._arrival.cancel()
        self.wire.watches.remove(self)
        self.wire.net.connections.remove(self)

    def fail(self, cause: str) -> None:
        """Break: the reader gets what has arrived, and an error."""
        self._finish(UnavailableError(f"watch {self.collection}: {cause}"))

    def fall_silent(self) -> None:
        """Deliver nothing any more, and keep the connection (F7)."""
        self._is_silent = True

    def pump(self) -> None:
        """Send what the server has by now."""
        if self._is_over():
            return
        for line in self._watch.take():
            for sent in self.wire.faults.on_line(self, line, self._recent):
                self._send(sent)
            self._recent.append(line)
            if self._is_over():
                return
        if self._watch.ended:
            self._send(None)

    def _is_over(self) -> bool:
        return self._is_closed or self._is_silent

    def send_error(self, code: int, reason: str) -> None:
        """Send an ERROR event; the server then ends the watch."""
        status = {
            "kind": "Status",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": "injected",
        }
        self._send(orjson.dumps({"type": "ERROR", "object": status}))
        self._send(None)
        self._is_silent = True

    def end(self) -> None:
        """The server ends the watch (EOF) after what it has sent."""
        self._send(None)
        self._is_silent = True

    def _send(self, item: bytes | Exception | None) -> None:
        net = self.wire.net
        lag = self.wire.lags.get(self.kind, 0.0)
        due = max(self._last_due, self._loop.time() + net.latency() + lag)
        self._last_due = due
        self._under_way.append((due, item))
        if self._arrival is None:
            self._arm()

    def _arm(self) -> None:
        delay = max(0.0, self._under_way[0][0] - self._loop.time())
        self._arrival = self._loop.later(delay, self._arrive)

    def _arrive(self) -> None:
        self._arrival = None
        now = self._loop.time()
        lost = self.wire.cut_down
        while self._under_way and self._under_way[0][0] <= now + 1e-9:
            _, item = self._under_way.popleft()
            if lost:
                self._is_silent = True  # one segment is missing: TCP delivers nothing after it
                continue
            self._heard_at = now
            self._arrived.append(item)
        if self._under_way:
            self._arm()
        self._wake()

    def _finish(self, item: Exception | None) -> None:
        self._under_way.clear()
        self._is_silent = True
        self._arrived.append(item)
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and self._arrived:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        self._timers.append(self._loop.later(seconds, do))

    def _bookmark(self) -> None:
        if not self._is_silent and self._watch.request.bookmarks:
            self._watch.take()
            self._send(self._watch.bookmark())
        self._timers[0] = self._loop.later(BOOKMARK_SECONDS, self._bookmark)

    def _check_silence(self) -> None:
        left = self._heard_at + SILENCE_SECONDS - self._loop.time()
        if left <= 0:
            self.fail("silent for too long")
            return
        self._timers[1] = self._loop.later(left + 0.001, self._check_silence)

    def _end_in_order(self) -> None:
        if not self._is_silent:
            self._send(None)


Audit = Callable[[Wire, Request, Answer, Verdict], None]


class Network:
    """Carries requests.

    Attributes:
        author: who makes the write that is being carried out now.
        connections: all open watches.
        is_down: the server does not answer (F19).
    """

    def __init__(self, loop: SimulatedLoop, server: ApiServer, rng: random.Random) -> None:
        self.loop = loop
        self.server = server
        self.rng = rng
        self.author: Wire | None = None
        self.request: Request | None = None
        self.connections: list[WatchConnection] = []
        self.is_down = False
        self.slowness = 0.001
        self.audit: Audit = lambda *_: None
        self.on_change: Callable[[str, Change], None] = lambda *_: None
        self.operations = 0
        server.store.subscribe(self._written)

    def latency(self) -> float:
        """Of one way."""
        return self.rng.expovariate(1.0) * self.slowness

    async def exchange(self, wire: Wire, request: Request) -> Answer:
        """Send a request and wait for what comes back."""
        future: asyncio.Future[Answer] = self.loop.create_future()
        self._send(wire, request, future)
        return await future

    def handle(self, wire: Wire, request: Request) -> Response | Watch:
        """Carry a request out, now."""
        self.operations += 1
        before = self.author, self.request
        self.author, self.request = wire, request
        try:
            return self.server.handle(request)
        finally:
            self.author, self.request = before

    def _send(self, wire: Wire, request: Request, future: "asyncio.Future[Answer]") -> None:
        verdict = wire.faults.on_request(wire, request)
        up, down = self.latency() + verdict.delay_up, self.latency() + verdict.delay_down
        if verdict.request is not None:
            request = verdict.request

        def answer(found: Answer) -> None:
            wire.faults.on_answer(wire, request, verdict)
            if not future.done():
                future.set_result(found)

        def give_up() -> None:
            if not future.done():
                self.audit(wire, request, NoAnswer("timed out"), verdict)
                future.set_result(NoAnswer("timed out"))

        def arrive() -> None:
            if self.is_down:
                self.loop.later(
                    down, lambda: answer(NoAnswer("connection refused", was_sent=False))
                )
                return
            if verdict.before is not None:
                verdict.before()
            if verdict.instead is not None:
                found: Answer = verdict.instead
            else:
                found = self.handle(wire, request)
                if verdict.after is not None:
                    found = verdict.after(found)
            self.audit(wire, request, found, verdict)
            wire.faults.on_commit(wire, request, found, verdict)
            if verdict.loses_answer or wire.cut_down:
                stop_waiting()
            else:
                self.loop.later(down, lambda: answer(found))

        def stop_waiting() -> None:
            self.loop.later(max(0.0, sent_at + patience - self.loop.time()), give_up)

        sent_at = self.loop.time()
        patience = verdict.patience if verdict.patience is not None else CLIENT_SECONDS
        if verdict.not_sent:
            self.audit(wire, request, NoAnswer("connection refused", was_sent=False), verdict)
            refused = NoAnswer("connection refused", was_sent=False)
            self.loop.later(up, lambda: answer(refused))
            return
        if verdict.loses_request or wire.cut_up:
            self.audit(wire, request, NoAnswer("lost"), verdict)
            stop_waiting()
            return
        self.loop.later(up, arrive)
        if up + down > patience:
            stop_waiting()

    def _written(self) -> None:
        store = self.server.store
        for collection, held in store._collections.items():
            if held.revisions and held.revisions[-1] == store.revision:
                self.on_change(collection, held.changes[-1])
                for connection in tuple(self.connections):
                    if connection.collection == collection:
                        connection.pump()


def _error(response: Response) -> ApiError:
    status: dict[str, Any] = orjson.loads(response.body)
    details = status.get("details") or {}
    return _ERRORS.get(response.status, ApiError)(
        response.status,
        status.get("reason", ""),
        status.get("message", ""),
        details.get("retryAfterSeconds"),
    )
