"""Stand-ins whose every step a test decides: a clock that only moves when told, an API server from a script."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from scheduler.client import JSON, Committed, WriteOutcome

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Time that stands still until `advance` or `skip`."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._start = start
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self._now

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._now - self._start)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._now + seconds, future)
        self._sleepers.append(entry)
        try:
            await future
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)

    def skip(self, seconds: float) -> None:
        """Let time pass without waking anybody: what a paused process or a blocked loop sees."""
        self._now += seconds

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking each sleeper at its moment and letting it run until it waits again."""
        target = self._now + seconds
        await settle()
        while due := [entry for entry in self._sleepers if entry[0] <= target]:
            moment, future = min(due, key=lambda entry: entry[0])
            self._now = max(self._now, moment)
            self._sleepers.remove((moment, future))
            if not future.done():
                future.set_result(None)
            await settle()
        self._now = max(self._now, target)
        await settle()

    @property
    def sleepers(self) -> list[float]:
        """How long each sleeper still has to wait, in seconds."""
        return sorted(moment - self._now for moment, _ in self._sleepers)


async def settle(rounds: int = 30) -> None:
    """Let every task run until it waits for something."""
    for _ in range(rounds):
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Call:
    """One request that was made."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    content_type: str


Answer = bytes | BaseException | Callable[[Call], Any]


class WatchScript:
    """A watch that the test feeds: lines, an error, or the end."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()

    def send(self, *lines: bytes) -> None:
        for line in lines:
            self._queue.put_nowait(line)

    def fail(self, error: BaseException) -> None:
        self._queue.put_nowait(error)

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item


class FakeApiClient:
    """An API server from a script (implements `ApiClient`).

    Attributes:
        calls: every request, watches included (method `WATCH`).
        watches: every watch that was opened, for the test to feed.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.watches: list[WatchScript] = []
        self._answers: dict[tuple[str, str], deque[Answer]] = {}
        self._always: dict[tuple[str, str], Answer] = {}

    def script(self, method: str, path: str, *answers: Answer | WriteOutcome) -> None:
        """Answer the next requests of this method and path, in this order."""
        self._answers.setdefault((method, path), deque()).extend(answers)  # type: ignore[arg-type]

    def always(self, method: str, path: str, answer: Answer | WriteOutcome) -> None:
        """Answer every request of this method and path that no script answers."""
        self._always[(method, path)] = answer  # type: ignore[assignment]

    def requests(self, method: str, path: str = "") -> list[Call]:
        return [call for call in self.calls if call.method == method and path in call.path]

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> bytes:
        answer = await self._answer(Call("GET", path, dict(query or {}), b"", ""))
        assert isinstance(answer, bytes), answer
        return answer

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> WriteOutcome:
        answer = await self._answer(Call(method, path, dict(query or {}), body, content_type))
        return Committed(answer) if isinstance(answer, bytes) else answer

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        call = Call("WATCH", path, dict(query), b"", "")
        if ("WATCH", path) in self._always or self._answers.get(("WATCH", path)):
            await self._answer(call)
        else:
            self.calls.append(call)
        script = WatchScript()
        self.watches.append(script)
        yield aiter(script)

    async def aclose(self) -> None:
        pass

    async def _answer(self, call: Call) -> Any:
        await asyncio.sleep(0)
        self.calls.append(call)
        key = (call.method, call.path)
        queue = self._answers.get(key)
        if queue:
            answer = queue.popleft()
        elif key in self._always:
            answer = self._always[key]
        else:
            raise AssertionError(f"no answer for {call.method} {call.path}")
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            answer = answer(call)
            if asyncio.iscoroutine(answer):
                answer = await answer
            if isinstance(answer, BaseException):
                raise answer
        return answer
