"""Waiting between tries: full jitter, 100 ms doubling to 5 s; the server's Retry-After wins (up to 30 s)."""

import random
from dataclasses import dataclass, field
from typing import Final

from scheduler.client import Rejected, Unknown, WriteOutcome
from scheduler.clock import Clock

FIRST_SECONDS: Final = 0.1
CAP_SECONDS: Final = 5.0
_MAX_DOUBLINGS: Final = (
    16  # beyond the cap already; without a limit an outage of hours ends in an overflow
)
RETRY_AFTER_CAP_SECONDS: Final = 30.0
# An API server that restarts is back by then. Whoever has got no answer that long gives up, and says so.
PATIENCE_SECONDS: Final = 60.0
# A request without an answer may still commit for this long: more than a client waits (8 s) and a server works (5 s).
OPEN_SECONDS: Final = 10.0


@dataclass(slots=True)
class Backoff:
    """The pauses of one series of tries, which begins now."""

    clock: Clock
    rng: random.Random
    tries: int = field(default=0)
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether it has gone on for so long that another try is of no use."""
        return self.clock.monotonic() - self.began >= PATIENCE_SECONDS

    async def pause(self, outcome: WriteOutcome | None = None) -> None:
        """Wait before the next try."""
        ceiling = min(CAP_SECONDS, FIRST_SECONDS * 2 ** min(self.tries, _MAX_DOUBLINGS))
        self.tries += 1
        seconds = self.rng.random() * ceiling
        if isinstance(outcome, Rejected) and outcome.retry_after_seconds is not None:
            seconds = max(seconds, min(outcome.retry_after_seconds, RETRY_AFTER_CAP_SECONDS))
        await self.clock.sleep(seconds)


def is_retryable(outcome: WriteOutcome) -> bool:
    """Whether the very same request may be sent again: its outcome is open, or the server was busy or unreachable."""
    if isinstance(outcome, Unknown):
        return True
    return isinstance(outcome, Rejected) and outcome.status in (0, 429)
