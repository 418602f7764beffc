"""Work that takes too long for the event loop, in one worker thread.

Snapshots are immutable, so a search may run beside the loop; one thread, because the interpreter runs one at a time
anyway, and the loop must get its turn. However a search ends, whoever waits for it is told: no pod may hang on it.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from allocator.outcome import Outcome, Reason, ReasonKind
from allocator.search import Solution
from scheduler.clock import Clock
from scheduler.engine import Engine, LongSearch
from scheduler.framework.status import error

STALL_SECONDS: Final = 0.02
"""How long one search may hold up the event loop before it goes to the thread."""

GRACE_SECONDS: Final = 5.0
"""How long a search may go on beyond its time before its thread counts as lost."""

TIME_IS_OVER: Final = error(
    Reason(
        kind=ReasonKind.DEADLINE_EXCEEDED,
        message="the search for devices timed out",
    )
)
"""Message for a pod whose searches exceeded their time limit."""


class SearchFailedError(Exception):
    """A search came to no outcome; `__cause__` may say more."""


class WorkerClosedError(SearchFailedError):
    """No searches are run any more: the process ends."""


class _Search:
    """One search in the thread.

    Attributes:
        took: seconds, once it has ended.
        problem: what it raised, or what keeping its outcome raised.
        is_given_up: nobody waits for it any more.
    """

    __slots__ = ("is_given_up", "problem", "took")

    def __init__(self) -> None:
        self.took = 0.0
        self.problem: BaseException | None = None
        self.is_given_up = False


class SearchWorker:
    """Runs slow searches, one after the other."""

    def __init__(
        self, engine: Engine, clock: Clock, *, grace_seconds: float = GRACE_SECONDS
    ) -> None:
        """Start without a thread; the first slow search makes it.

        Args:
            engine: searches, and remembers what was found.
            clock: measures the searches.
            grace_seconds: how long a search may go on beyond its time; then another thread takes over.
        """
        self._engine = engine
        self._clock = clock
        self._grace = grace_seconds
        self._executor = _one_thread()
        self._turn = asyncio.Lock()
        self._is_closing = False

    async def search(self, slow: LongSearch, seconds: float) -> float:
        """Run a search and remember its outcome.

        Args:
            slow: which search.
            seconds: after which it gives up, waiting for its turn not counted.

        Returns:
            The seconds it took.

        Raises:
            SearchFailedError: it came to no outcome, and nothing was remembered.
            WorkerClosedError: it was not run.
        """
        one = _Search()
        async with self._turn:
            if self._is_closing:
                raise WorkerClosedError
            loop = asyncio.get_running_loop()
            try:
                running = loop.run_in_executor(self._executor, self._run, one, slow, seconds, loop)
            except RuntimeError as no_thread:
                raise SearchFailedError("the search could not be started") from no_thread
            try:
                # In real time, whatever the clock: a thread that does not answer does not look at it either.
                await asyncio.wait({running}, timeout=seconds + self._grace)
            finally:
                one.is_given_up = True
        if not running.done():
            self._executor.shutdown(wait=False)
            self._executor = _one_thread()
            raise SearchFailedError("the search did not end when its time was over")
        if running.cancelled():
            raise WorkerClosedError
        # What the thread left for the loop was scheduled before the end of `running`, so it has run by now.
        problem = one.problem or running.exception()
        if problem is not None:
            raise SearchFailedError("the search met a defect") from problem
        return one.took

    def _run(
        self,
        one: _Search,
        slow: LongSearch,
        seconds: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """In the thread: search, and hand the outcome to the loop."""
        began = self._clock.monotonic()

        def should_stop() -> bool:
            is_over = self._clock.monotonic() - began >= seconds
            return is_over or one.is_given_up or self._is_closing

        try:
            outcome = self._engine.search(slow, should_stop)
        except BaseException as problem:  # noqa: BLE001  # whatever it is, it belongs to who waits, not to the thread
            one.problem = problem
        else:
            # A search that was given up may have ended for that alone, and others are not to be told so.
            if not one.is_given_up:
                loop.call_soon_threadsafe(self._learn, one, slow, outcome)
        one.took = self._clock.monotonic() - began

    def _learn(self, one: _Search, slow: LongSearch, outcome: Solution | Outcome) -> None:
        try:
            self._engine.learn(slow, outcome)
        except Exception as problem:  # noqa: BLE001  # as above
            one.problem = problem

    def close(self) -> None:
        """Give up what is being searched, and begin nothing more."""
        self._is_closing = True
        self._executor.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="search")
