"""What the rest of the process knows of an election: whether it may write, and under which epoch."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

OnStarted = Callable[[], Awaitable[None]]
OnStopped = Callable[[], None]


class LeadershipLostError(Exception):
    """The lease is lost. The process ends: no return to following within it (H4)."""


class Leadership(Protocol):
    """Whether this process may write, and under which epoch."""

    @property
    def epoch(self) -> int:
        """Grows with every change of leader; stamped onto what is written. 0: there is no election."""
        ...

    @property
    def needs_sweep(self) -> bool:
        """Whether the leader before us may still have writes under way (it did not release the lease)."""
        ...

    def is_leader(self) -> bool:
        """Whether this process leads now."""
        ...

    def can_write(self, now: float) -> bool:
        """Whether a request may be sent at this moment (monotonic)."""
        ...

    async def run(self, on_started: OnStarted, on_stopped: OnStopped) -> None:
        """Take part until cancelled. `on_started` runs as a task while leading; then `on_stopped` is called.

        Raises:
            LeadershipLostError: the lease is lost, and this kind of leadership does not come back.
        """
        ...

    async def release(self) -> None:
        """Give the lease back, after the last write has ended (H9)."""
        ...


class AlwaysLeader:
    """The only writer by decree (`--leader-elect=false`)."""

    epoch = 0
    needs_sweep = False

    def is_leader(self) -> bool:
        """Yes."""
        return True

    def can_write(self, now: float) -> bool:
        """Yes."""
        return True

    async def run(self, on_started: OnStarted, on_stopped: OnStopped) -> None:
        """Lead until cancelled."""
        try:
            await on_started()
            await asyncio.get_running_loop().create_future()
        finally:
            on_stopped()

    async def release(self) -> None:
        """There is no lease."""
