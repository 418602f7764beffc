"""A progress bar for long work."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from scheduler.cli import render

if TYPE_CHECKING:
    from scheduler.offline.progress import Progress

_REDRAW_SECONDS: Final = 0.1


@contextmanager
def progress_bar() -> "Iterator[Progress]":
    """A bar on standard error, if that is a terminal. Drawn between the things measured, by nobody else."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=render.console(stderr=True),
        transient=True,
        auto_refresh=False,
    )
    task = bars.add_task("")
    drawn = 0.0

    def show(what: str, done: int, total: int) -> None:
        nonlocal drawn
        now = time.perf_counter()
        if done and now - drawn < _REDRAW_SECONDS:
            return
        drawn = now
        bars.update(task, description=what, completed=done, total=total, refresh=True)

    with bars:
        yield show
