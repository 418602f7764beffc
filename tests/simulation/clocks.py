"""What time a simulated process believes it is."""

import asyncio
import random
from datetime import UTC, datetime, timedelta

from tests.simulation.loop import SimulatedLoop

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class ProcessClock:
    """The clocks of one process (implements `scheduler.clock.Clock`).

    Attributes:
        wall_offset: by how much its wall clock is wrong, seconds; may be changed at any time (F14).
        rate: seconds of its monotonic clock in a true second.
        drag: the longest that reading the clock takes: a busy machine, where a short search takes long.
    """

    def __init__(self, loop: SimulatedLoop, rng: random.Random, *, rate: float = 1.0) -> None:
        """Start at an arbitrary reading."""
        self._loop = loop
        self._rng = rng
        self._started = loop.time()
        self._base = float(rng.randrange(1_000, 1_000_000))
        self.rate = rate
        self.wall_offset = 0.0
        self.drag = 0.0

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment."""
        if self.drag:
            self._loop.advance(self._rng.random() * self.drag)
        return self._base + (self._loop.time() - self._started) * self.rate

    def now(self) -> datetime:
        """Wall-clock time as the process believes it."""
        return EPOCH + timedelta(seconds=self._loop.time() + self.wall_offset)

    async def sleep(self, seconds: float) -> None:
        """Wait by this clock."""
        await asyncio.sleep(seconds / self.rate)
