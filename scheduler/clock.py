"""Time as a collaborator: nothing else in this package asks the machine what time it is."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, and waiting."""

    def monotonic(self) -> float:
        """Seconds that only move forward and go on while the machine sleeps; for deadlines, leases and holds."""
        ...

    def now(self) -> datetime:
        """Wall-clock time in UTC; only for timestamps that are written, never for decisions."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds of CLOCK_BOOTTIME where there is one: a suspended machine must see its lease expire."""
        boottime = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boottime is None else time.clock_gettime(boottime)

    def now(self) -> datetime:
        """Wall-clock time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def rfc3339(moment: datetime) -> str:
    """Write a timestamp as the API server does, whole seconds: `2026-11-29T10:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """Write a MicroTime, always six digits: `2026-11-29T10:00:00.000000Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
