"""`/debug/recording`: the last decisions with all that they were made on, for `dra-scheduler replay`.

The recording is taken in one step and then written out in pieces, between which the event loop has its turn.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from scheduler.flight_recorder import FlightRecorder
from scheduler.flight_recorder.file import lines
from scheduler.web.health import Show

_PIECE: Final = 64  # lines written before others may run: about 1 ms


def show_recording(recorder: FlightRecorder) -> Show:
    """What answers the page."""

    async def show(_: Request) -> Response:
        return StreamingResponse(_pieces(recorder), media_type="application/jsonl")

    return show


async def _pieces(recorder: FlightRecorder) -> AsyncIterator[bytes]:
    piece: list[bytes] = []
    for line in lines(recorder.recording(), recorder.environment):
        piece.append(line)
        if len(piece) == _PIECE:
            yield b"".join(piece)
            piece.clear()
            await asyncio.sleep(0)
    yield b"".join(piece)
