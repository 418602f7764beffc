"""Reading a watch as time goes on: lines as they come, bookmarks now and then, an end after the asked-for time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from scheduler.clock import Clock
from scheduler.lab.apiserver.watches import Watch

BOOKMARK_SECONDS = 60.0
# As upstream: the last bookmark comes this long before the server ends the watch.
BOOKMARK_BEFORE_END_SECONDS = 2.0


class WatchStream:
    """A watch being read by one reader."""

    def __init__(self, watch: Watch) -> None:
        """Remember the watch."""
        self._watch = watch
        self._wake = asyncio.Event()
        self._bookmark_due = False
        self._closed = False

    def wake(self) -> None:
        """Something may have changed."""
        self._wake.set()

    def close(self) -> None:
        """End after what is there already."""
        self._closed = True
        self._wake.set()

    async def keep_time(self, clock: Clock) -> None:
        """Send bookmarks, and end the watch when its time is over."""
        request = self._watch.request
        left = request.timeout_seconds
        while left is None or left > 0:
            pause = BOOKMARK_SECONDS
            if left is not None:
                before_end = left - BOOKMARK_BEFORE_END_SECONDS
                pause = min(pause, before_end if before_end > 0 else left)
                left -= pause
            await clock.sleep(pause)
            if request.bookmarks and (left is None or left > 0):
                self._bookmark_due = True
                self._wake.set()
        self.close()

    async def chunks(self) -> AsyncIterator[list[bytes]]:
        """Lines in the batches in which they become available."""
        while True:
            self._wake.clear()
            lines = self._watch.take()
            if self._bookmark_due and not self._watch.ended:
                self._bookmark_due = False
                lines.append(self._watch.bookmark())
            if lines:
                yield lines
            if self._closed or self._watch.ended:
                return
            await self._wake.wait()

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines one by one."""
        async for chunk in self.chunks():
            for line in chunk:
                yield line


@asynccontextmanager
async def open_stream(watch: Watch, clock: Clock) -> AsyncIterator[WatchStream]:
    """Read a watch; what keeps its time ends with the block."""
    stream = WatchStream(watch)
    unsubscribe = watch.store.subscribe(stream.wake)
    timer = asyncio.create_task(stream.keep_time(clock))
    try:
        yield stream
    finally:
        unsubscribe()
        timer.cancel()
        with suppress(asyncio.CancelledError):
            await timer
