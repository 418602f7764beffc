"""A sampling profiler: reads one thread's stack at intervals from another thread and counts.

The thread that works runs as always. The interpreter lets another thread in only between two of its own instructions, so
time inside a C call counts for the Python function that made it, and a sample may come a few milliseconds late. Only names
of functions are kept: no arguments, no values.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Final

PERIOD_SECONDS: Final = 0.005
MAX_DEPTH: Final = 256
"""Frames of a stack that are kept, from the innermost one outwards."""

CUT: Final = "…"
Stack = tuple[str, ...]
Frames = Callable[[], FrameType | None]
Wait = Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class HotFunction:
    """A function, and in which share of all samples it was seen.

    Attributes:
        name: `module:function`.
        own: share (0 to 1) of samples in which it was the innermost.
        cumulative: share (0 to 1) of samples in which it was anywhere on the stack.
    """

    name: str
    own: float
    cumulative: float


@dataclass(frozen=True, slots=True)
class Profile:
    """What was seen.

    Attributes:
        stacks: functions from the outermost to the innermost one -> samples in which they were the stack.
        seconds: from the beginning to the end.
    """

    stacks: Mapping[Stack, int]
    seconds: float

    @property
    def samples(self) -> int:
        """How often the stack was looked at."""
        return sum(self.stacks.values())

    def collapsed(self) -> str:
        """One line a stack, `outermost;…;innermost count`, in alphabetical order: what flame graphs are drawn from."""
        return "".join(f"{';'.join(stack)} {n}\n" for stack, n in sorted(self.stacks.items()))

    def hottest(self, limit: int) -> list[HotFunction]:
        """The functions with the most samples of their own, at most `limit` of them; then by all their samples."""
        own: Counter[str] = Counter()
        cumulative: Counter[str] = Counter()
        for stack, count in self.stacks.items():
            own[stack[-1]] += count
            for name in set(stack):  # a recursive function counts once a sample
                cumulative[name] += count
        names = sorted(cumulative, key=lambda name: (-own[name], -cumulative[name], name))
        total = self.samples
        return [HotFunction(n, own[n] / total, cumulative[n] / total) for n in names[:limit]]


def sample(
    frames: Frames,
    monotonic: Callable[[], float],
    wait: Wait,
    seconds: float,
    period: float = PERIOD_SECONDS,
) -> Profile:
    """Look at a stack at regular times until the time is over, or until told to stop.

    Args:
        frames: gives the innermost frame of the thread; None: it has none now, nothing is counted.
        monotonic: seconds that only move forward.
        wait: waits that many seconds; true when it is time to stop.
        seconds: how long.
        period: seconds from one look to the next; a look that comes late is not made up for.
    """
    seen = _Seen()
    began = now = monotonic()
    end, due = began + seconds, began + period
    while now < end and not wait(max(0.0, min(due, end) - now)):
        now = monotonic()
        frame = frames()
        if frame is not None:
            seen.add(frame)
        due = max(due, now) + period
    return Profile(seen.stacks(), monotonic() - began)


class _Seen:
    """Stacks as they are collected. Names are made once a function, not once a sample."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._names: dict[int, tuple[str, CodeType | None]] = {0: (CUT, None)}

    def add(self, frame: FrameType) -> None:
        stack: list[int] = []
        outer: FrameType | None = frame
        while outer is not None:
            if len(stack) == MAX_DEPTH:
                stack.append(0)
                break
            code = outer.f_code
            key = id(code)
            if key not in self._names:
                # The code is kept with its name, so that nothing else gets its address.
                self._names[key] = (_name(outer), code)
            stack.append(key)
            outer = outer.f_back
        stack.reverse()
        self._counts[tuple(stack)] += 1

    def stacks(self) -> dict[Stack, int]:
        named: Counter[Stack] = Counter()
        for stack, count in self._counts.items():
            named[tuple(self._names[key][0] for key in stack)] += count
        return dict(named)


def _name(frame: FrameType) -> str:
    """`module:function`, without the characters that separate the parts of a line."""
    text = f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
    return "_".join(text.replace(";", "_").split())


def frames_of(thread_id: int) -> Frames:
    """The stack of a thread, by its identifier (`threading.get_ident()`), as `sample` wants it."""
    return lambda: sys._current_frames().get(thread_id)


class Sampler:
    """Samples the thread that starts it, from a thread of its own, until it is stopped."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Store the clock; nothing runs yet."""
        self._monotonic = monotonic
        self._stop = threading.Event()
        self._profile = Profile({}, 0.0)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; once."""
        frames = frames_of(threading.get_ident())

        def run() -> None:
            self._profile = sample(frames, self._monotonic, self._stop.wait, float("inf"))

        self._thread = threading.Thread(target=run, name="profiler", daemon=True)
        self._thread.start()

    def stop(self) -> Profile:
        """End, and say what was seen; empty if it was never started."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        return self._profile
