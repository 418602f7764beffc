"""The task of a leader: started when leadership begins, stopped for certain when it ends."""

import asyncio
import logging
from typing import Final

from scheduler.leader.leadership import OnStarted, OnStopped

_log = logging.getLogger(__name__)

_STOP_SECONDS: Final = 0.8  # a leader that lost is gone within a second (H4), whatever it was doing


class Leading:
    """Runs what a leader does while it leads, and stops it for certain."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._on_stopped: OnStopped | None = None

    def start(self, on_started: OnStarted, on_stopped: OnStopped) -> None:
        """Begin to lead."""
        self._on_stopped = on_stopped
        self._task = asyncio.create_task(_call(on_started), name="leading")

    def check(self) -> None:
        """Let an error of what a leader does end the election too."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            if error is not None:
                raise error

    async def stop(self) -> None:
        """Stop leading; nothing if we do not lead."""
        task, self._task = self._task, None
        if task is None:
            return
        if self._on_stopped is not None:
            self._on_stopped()
        task.cancel()
        await asyncio.wait({task}, timeout=_STOP_SECONDS)
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            _log.error("what a leader does has failed: %s", error)


async def _call(on_started: OnStarted) -> None:
    await on_started()
