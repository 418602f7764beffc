"""`/debug/profile`: what the thread of the event loop is busy with, sampled for some seconds.

    GET /debug/profile?seconds=5                collapsed stacks, one a line, as flame graphs are drawn from
    GET /debug/profile?seconds=5&format=top     the hottest functions, for a person to read

Another thread samples, and writes the answer out, so the loop goes on meanwhile. One at a time: two would see each other's
cost, and a caller could pile them up.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from scheduler.profiler import Profile, frames_of, sample

DEFAULT_SECONDS: Final = 5
MAX_SECONDS: Final = 60
TOP_FUNCTIONS: Final = 40
_TEXT: Final = "text/plain; charset=utf-8"
Take = Callable[[float, threading.Event], Profile]


class _BadQueryError(ValueError):
    """What was asked for cannot be had; the text says why."""


class Profiling:
    """Takes profiles of the event loop's thread when asked."""

    def __init__(self, monotonic: Callable[[], float], take: Take | None = None) -> None:
        """Store the collaborators.

        Args:
            monotonic: seconds that only move forward; asked in a thread.
            take: samples for some seconds, or until the event is set, in the thread it is called in; by default the
                thread that runs the event loop.
        """
        self._monotonic = monotonic
        self._take = take
        self._stop: threading.Event | None = None

    async def show(self, request: Request) -> Response:
        """Answer one request."""
        try:
            seconds, write = _read(request.query_params)
        except _BadQueryError as problem:
            return Response(f"{problem}\n", status_code=400, media_type=_TEXT)
        if self._stop is not None:
            text = "a profile is already being taken; try again later\n"
            return Response(text, status_code=409, media_type=_TEXT)
        stop = self._stop = threading.Event()
        take = self._take or self._sampling(threading.get_ident())
        try:
            text = await asyncio.to_thread(lambda: write(take(seconds, stop)))
        finally:
            stop.set()
            self._stop = None
        return Response(text, media_type=_TEXT)

    def _sampling(self, thread_id: int) -> Take:
        def take(seconds: float, stop: threading.Event) -> Profile:
            return sample(frames_of(thread_id), self._monotonic, stop.wait, seconds)

        return take

    def close(self) -> None:
        """End the profile that is being taken, if any; its caller gets what there is."""
        if self._stop is not None:
            self._stop.set()


def _read(query: Mapping[str, str]) -> tuple[int, Callable[[Profile], str]]:
    text = query.get("seconds", str(DEFAULT_SECONDS))
    seconds = int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else 0
    if not 1 <= seconds <= MAX_SECONDS:
        raise _BadQueryError(
            f"seconds: must be a whole number from 1 to {MAX_SECONDS}, is {text[:40]!r}"
        )
    form = query.get("format", "collapsed")
    if form not in _FORMS:
        raise _BadQueryError(f"format: must be {' or '.join(_FORMS)}, is {form[:40]!r}")
    return seconds, _FORMS[form]


def top_table(profile: Profile, limit: int = TOP_FUNCTIONS) -> str:
    """The hottest functions as a table: share of samples spent in the function itself, and in all that it calls."""
    lines = [
        f"{profile.samples} samples in {profile.seconds:.1f} s",
        "",
        f"{'SELF':>7} {'CUMULATIVE':>11}  FUNCTION",
    ]
    lines.extend(
        f"{each.own:7.1%} {each.cumulative:11.1%}  {each.name}" for each in profile.hottest(limit)
    )
    return "\n".join(lines) + "\n"


_FORMS: Final[Mapping[str, Callable[[Profile], str]]] = {
    "collapsed": Profile.collapsed,
    "top": top_table,
}
