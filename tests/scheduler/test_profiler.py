"""Sampling stacks: what is counted, when, and how it is written. Nothing here waits."""

import time
from dataclasses import dataclass, field
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from scheduler.profiler import CUT, MAX_DEPTH, HotFunction, Profile, Sampler, frames_of, sample

HERE = __name__


def inner() -> None: ...


def outer() -> None: ...


def other() -> None: ...


def stack(*functions: Any, module: str = HERE) -> FrameType:
    """The innermost frame of functions that call each other, the outermost one first."""
    made: Any = None
    for each in functions:
        made = SimpleNamespace(f_code=each.__code__, f_globals={"__name__": module}, f_back=made)
    return cast("FrameType", made)


@dataclass
class FakeTime:
    """A clock that only waiting moves on; `late` is how much longer each wait takes than it was asked for."""

    late: float = 0.0
    stop_after: int = 1_000_000
    now: float = 100.0
    waits: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds + self.late
        return len(self.waits) > self.stop_after


def taken(fake: FakeTime, *frames: FrameType | None, seconds: float, period: float) -> Profile:
    """Sample the frames in turn, the last one for ever."""
    left = list(frames)
    return sample(
        lambda: left.pop(0) if len(left) > 1 else left[0],
        fake.monotonic,
        fake.wait,
        seconds,
        period,
    )


def test_stacks_are_counted_with_the_outermost_function_first():
    profile = taken(
        FakeTime(),
        stack(outer, inner),
        stack(other),
        stack(outer, inner),
        seconds=0.75,
        period=0.25,
    )
    assert profile.stacks == {(f"{HERE}:outer", f"{HERE}:inner"): 2, (f"{HERE}:other",): 1}
    assert profile.samples == 3
    assert profile.seconds == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("late", "waits"),
    [
        pytest.param(0.0, [0.25, 0.25, 0.25, 0.25], id="in time"),
        pytest.param(0.125, [0.25, 0.25, 0.25], id="a late look puts the next one off"),
        pytest.param(2.0, [0.25], id="later than the end"),
    ],
)
def test_looks_that_come_late_are_not_made_up_for(late, waits):
    fake = FakeTime(late=late)
    profile = taken(fake, stack(outer), seconds=1.0, period=0.25)
    assert fake.waits == waits
    assert profile.samples == len(waits)


def test_the_last_wait_is_no_longer_than_what_is_left():
    fake = FakeTime()
    taken(fake, stack(outer), seconds=0.625, period=0.25)
    assert fake.waits == [0.25, 0.25, 0.125]


def test_told_to_stop_it_keeps_what_it_has():
    fake = FakeTime(stop_after=2)
    profile = taken(fake, stack(outer), seconds=float("inf"), period=0.25)
    assert profile.samples == 2
    assert profile.seconds == pytest.approx(0.75)


def test_a_thread_without_a_stack_counts_nothing():
    profile = taken(FakeTime(), None, stack(outer), None, seconds=0.75, period=0.25)
    assert profile.samples == 1


def test_no_samples_make_an_empty_answer():
    profile = taken(FakeTime(), None, seconds=1.0, period=0.25)
    assert (profile.collapsed(), profile.hottest(10)) == ("", [])


def test_a_deep_stack_is_cut_at_its_outer_end():
    deep = stack(*[outer] * MAX_DEPTH, *[inner] * MAX_DEPTH)
    (only,) = taken(FakeTime(), deep, seconds=0.25, period=0.25).stacks
    assert only == (CUT, *[f"{HERE}:inner"] * MAX_DEPTH)


PROFILE = Profile({("a", "b"): 6, ("a", "b", "c", "b"): 1, ("a", "c"): 2, ("a",): 1}, 1.0)


def test_collapsed_stacks_are_a_line_each():
    assert PROFILE.collapsed() == "a 1\na;b 6\na;b;c;b 1\na;c 2\n"


def test_the_hottest_function_is_the_one_that_is_innermost_most_often():
    assert PROFILE.hottest(10) == [
        HotFunction("b", 0.7, 0.7),  # once a sample, although it is on one stack twice
        HotFunction("c", 0.2, 0.3),
        HotFunction("a", 0.1, 1.0),
    ]
    assert [each.name for each in PROFILE.hottest(1)] == ["b"]


def test_names_never_hold_what_separates_the_parts_of_a_line():
    odd = stack(outer, module="odd;module name")
    profile = taken(FakeTime(), odd, seconds=0.25, period=0.25)
    assert profile.collapsed() == "odd_module_name:outer 1\n"


def test_a_thread_is_found_by_its_identifier():
    assert frames_of(-1)() is None


def test_the_thread_that_starts_the_sampler_is_the_one_that_is_seen():
    sampler = Sampler(time.monotonic)
    sampler.start()
    be_busy()
    profile = sampler.stop()
    assert profile.samples > 0
    assert any(f"{HERE}:be_busy" in each for each in profile.stacks)
    assert not any("scheduler.profiler:sample" in each for each in profile.stacks)


def be_busy() -> None:
    """Work for some periods."""
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        sum(range(1000))


def test_a_sampler_that_was_never_started_saw_nothing():
    assert Sampler(time.monotonic).stop() == Profile({}, 0.0)
