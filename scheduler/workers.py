"""Work that takes too long for the event loop, in one worker thread.

Snapshots are immutable, so a search may run beside the loop; one thread, because the interpreter runs one at a time
anyway, and the loop must get its turn.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from allocator.outcome import Reason, ReasonKind
from scheduler.clock import Clock
from scheduler.engine import Engine
from scheduler.framework.cycle_state import SlowSearchError
from scheduler.framework.status import error

STALL_SECONDS: Final = 0.02
"""How long one search may hold up the event loop before it goes to the thread."""

TIME_IS_OVER: Final = error(
    Reason(
        kind=ReasonKind.DEADLINE_EXCEEDED,
        message="the search for devices was given up: its time is over",
    )
)
"""What a pod is told when the searches of one attempt have used up their time."""


class SearchWorker:
    """Runs slow searches, one after the other."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        """Start without a thread; the first slow search makes it."""
        self._engine = engine
        self._clock = clock
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._is_closing = False

    async def search(self, slow: SlowSearchError, seconds: float) -> float:
        """Run a search and remember its outcome.

        Args:
            slow: which search.
            seconds: after which it gives up, waiting for its turn not counted.

        Returns:
            The seconds it took.
        """
        loop = asyncio.get_running_loop()
        took = 0.0

        def run() -> None:
            nonlocal took
            began = self._clock.monotonic()

            def should_stop() -> bool:
                return self._is_closing or self._clock.monotonic() - began >= seconds

            outcome = self._engine.search(slow, should_stop)
            took = self._clock.monotonic() - began
            loop.call_soon_threadsafe(self._engine.learn, slow, outcome)

        await loop.run_in_executor(self._executor, run)
        # `learn` was scheduled before the future's own call-back, so it has run by now.
        return took

    def close(self) -> None:
        """Give up what is being searched."""
        self._is_closing = True
        self._executor.shutdown(wait=False, cancel_futures=True)
