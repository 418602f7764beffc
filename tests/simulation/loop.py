"""An event loop whose time and order a seed decides: one thread, no sockets, no real waiting.

Time stands still while a step runs and jumps to the next timer when nothing is ready. Of all ready steps the seed picks
one. Every step belongs to an `Owner` (a simulated process, found through the context that its tasks inherit), so a
process can be stopped dead in the middle of anything, without a `finally` of its being run, or be paused and go on.
"""

import asyncio
import heapq
import random
from asyncio import base_events
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, Self, TypeVar

_T = TypeVar("_T")

STEP_SECONDS: Final = 20e-6
"""What a step takes. Not nothing: whoever polls until a deadline must reach it."""


class Owner:
    """A simulated process, as far as the loop knows it.

    Attributes:
        name: for traces.
        is_dead: its steps are dropped.
        is_paused: its steps wait.
        steps: that it has run.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.steps = 0
        self._parked: list[asyncio.Handle] = []

    def kill(self) -> None:
        """Run nothing of it any more."""
        self.is_dead = True
        self._parked.clear()

    def pause(self) -> None:
        """Let nothing of it run until `resume`."""
        self.is_paused = True

    def park(self, handle: asyncio.Handle) -> None:
        """Keep a step for later."""
        self._parked.append(handle)

    def take_parked(self) -> list[asyncio.Handle]:
        """Go on: the steps that waited."""
        self.is_paused = False
        parked, self._parked = self._parked, []
        return parked


OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)


class StuckError(Exception):
    """Nothing is ready and nothing is scheduled."""


class _Task(asyncio.Task[Any]):
    """Hashed by its number: the order of a set of tasks must not depend on where they lie in memory."""

    number: int

    def __new__(cls, number: int, *_args: Any, **_options: Any) -> Self:
        made = super().__new__(cls)
        made.number = number  # asyncio hashes a task while it is being made
        return made

    def __init__(self, _number: int, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class SimulatedLoop(base_events.BaseEventLoop):
    """See above.

    Attributes:
        steps: that were run.
        errors: what no task caught, as asyncio reports it.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.steps = 0
        self.errors: list[dict[str, Any]] = []
        self.outside: Context = copy_context()
        self._random = rng.random
        self._virtual = 0.0
        self._numbers = 0
        self._worker_callbacks: list[Callable[[], object]] | None = None
        self._ready: list[asyncio.Handle] = []
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # a narrower one
        self.set_exception_handler(lambda _loop, context: self.errors.append(context))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual

    def advance(self, seconds: float) -> None:
        """Let time pass while a step runs: it is slow, and holds up all others."""
        self._virtual += seconds

    def create_future(self) -> asyncio.Future[Any]:
        """A future whose hash is its number."""
        self._numbers += 1
        future = _Future(loop=self)
        future.number = self._numbers
        return future

    def later(self, seconds: float, do: Callable[[], object]) -> asyncio.TimerHandle:
        """Do something after some time, on behalf of no process."""
        return self.call_later(seconds, do, context=self.outside)

    def spawn(self, owner: Owner | None, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """Start a task of a process; None: of the world."""
        context = self.outside.copy()
        if owner is not None:
            context.run(OWNER.set, owner)
        return self.create_task(work, context=context)

    def resume(self, owner: Owner) -> None:
        """Let a paused process go on."""
        self._ready.extend(owner.take_parked())

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., _T], *args: Any
    ) -> "asyncio.Future[_T]":
        """Run what is meant for a thread as one step of its own, later."""
        future: asyncio.Future[_T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            self._worker_callbacks = []
            try:
                result = func(*args)
            except Exception as error:  # as an executor does
                future.set_exception(error)
                return
            finally:
                callbacks, self._worker_callbacks = self._worker_callbacks, None
            for callback in callbacks:  # a real loop runs them before the future's own
                callback()
            future.set_result(result)

        self.call_soon(work)
        return future

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`; from a worker: as soon as its step has ended."""
        if self._worker_callbacks is None:
            return self.call_soon(callback, *args, context=context)
        self._worker_callbacks.append(lambda: callback(*args))
        return asyncio.Handle(callback, args, self, context)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        context: Context | None = None,
    ) -> "asyncio.Task[Any]":
        self._numbers += 1
        return _Task(self._numbers, work, loop=loop, context=context)

    def _process_events(self, event_list: object) -> None:
        """There is no I/O."""

    def _write_to_self(self) -> None:
        """Nobody waits for I/O."""

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not ready:
            while scheduled and scheduled[0]._cancelled:
                heapq.heappop(scheduled)._scheduled = False
            if not scheduled:
                raise StuckError
            self._virtual = max(self._virtual, scheduled[0]._when)
        self._virtual += STEP_SECONDS
        while scheduled and (scheduled[0]._when <= self._virtual or scheduled[0]._cancelled):
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                ready.append(handle)
        if not ready:
            return
        chosen = int(self._random() * len(ready))
        handle = ready[chosen]
        ready[chosen] = ready[-1]
        ready.pop()
        if handle._cancelled:
            return
        owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
        if owner is not None:
            if owner.is_dead:
                return
            if owner.is_paused:
                owner.park(handle)
                return
            owner.steps += 1
        self.steps += 1
        handle._run()
