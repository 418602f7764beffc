"""One watch on its way through a fault proxy, and what can happen to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import orjson
from aiohttp import web

GONE = {
    "type": "ERROR",
    "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "too old resource version: injected",
        "reason": "Expired",
        "code": 410,
    },
}
RECENT = 16


def abort(request: web.Request) -> web.StreamResponse:
    """Cuts a connection (RST)."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


class Stream:
    """A watch that is open. Its methods are faults; each can be called at any moment.

    Attributes:
      path: Of the collection.
      lines: How many events have passed.
    """

    def __init__(self, path: str, request: web.Request, response: web.StreamResponse) -> None:
        self.path = path
        self.lines = 0
        self._request = request
        self._response = response
        self._recent: list[bytes] = []
        self._open = asyncio.Event()
        self._open.set()
        self._over = asyncio.Event()
        self._last_words: bytes | None = None
        self._to_skip = 0
        self._repeats = False
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def cut(self) -> None:
        """The connection is reset, perhaps in the middle of an event."""
        abort(self._request)
        self._finish()

    def half(self) -> None:
        """Half an event, and the connection ends."""
        self._finish(self._recent[-1][: len(self._recent[-1]) // 2] if self._recent else b'{"type"')

    def end(self) -> None:
        """The server ends it, as it does every few minutes."""
        self._finish(b"")

    def gone(self) -> None:
        """What it asks for is not kept any more."""
        self._finish(orjson.dumps(GONE) + b"\n")

    def garbage(self) -> None:
        """A line that is no event."""
        self._finish(b"<html>502 Bad Gateway</html>\n")

    def hold(self, seconds: float) -> None:
        """Events come late."""
        self._open.clear()
        asyncio.get_running_loop().call_later(seconds, self._open.set)

    def silence(self) -> None:
        """Nothing comes any more, and the connection stays (half-open)."""
        self._open.clear()

    def replay(self) -> None:
        """An older event comes again with the next one."""
        self._repeats = True

    def skip(self, events: int) -> None:
        """The next events do not come; then it says that they are not kept any more."""
        self._to_skip = events

    async def run(self, answer: aiohttp.ClientResponse) -> None:
        """Passes events on until either side, or a fault, ends it."""
        reading = asyncio.create_task(self._read(answer))
        writing = asyncio.create_task(self._write())
        over = asyncio.create_task(self._over.wait())
        tasks = (reading, writing, over)
        try:
            await asyncio.wait({writing, over}, return_when=asyncio.FIRST_COMPLETED)
            if self._last_words is not None:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
                await self._response.write(self._last_words)
                await self._response.write_eof()
            elif writing.done() and not writing.cancelled():
                writing.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _finish(self, last_words: bytes | None = None) -> None:
        self._last_words = last_words
        self._over.set()

    async def _read(self, answer: aiohttp.ClientResponse) -> None:
        """Reads ahead whatever happens to the writing: a slow reader would be cut off by the server."""
        try:
            async for line in _lines(answer):
                self._queue.put_nowait(line)
        except (aiohttp.ClientError, OSError):
            self.cut()
        self._queue.put_nowait(None)

    async def _write(self) -> None:
        while True:
            line = await self._queue.get()
            await self._open.wait()
            if self._request.transport is None or self._request.transport.is_closing():
                return
            if line is None:
                await self._response.write_eof()
                return
            if self._to_skip:
                self._to_skip -= 1
                if self._to_skip:
                    continue
                self.gone()
                return
            if self._repeats and self._recent:
                self._repeats = False
                await self._response.write(self._recent[0])
            await self._response.write(line)
            self.lines += 1
            self._recent = [*self._recent[1 - RECENT :], line]


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in answer.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest
