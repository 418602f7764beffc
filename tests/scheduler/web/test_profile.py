"""`/debug/profile`: what it answers, that it is one at a time, and that nothing else waits for it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from scheduler.clock import SystemClock
from scheduler.profiler import Profile
from scheduler.web import profile as profile_module
from scheduler.web import server as server_module
from scheduler.web.health import create_health_app
from scheduler.web.profile import Profiling, top_table

PROFILE = Profile({("main", "decide"): 3, ("main",): 1}, 2.0)


class Taker:
    """Gives the same profile each time, once it is let go."""

    def __init__(self, *, is_free: bool = True) -> None:
        self.asked: list[float] = []
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.may_end = threading.Event()
        if is_free:
            self.may_end.set()

    def __call__(self, seconds: float, stop: threading.Event) -> Profile:
        self.asked.append(seconds)
        self._loop.call_soon_threadsafe(self.begun.set)
        while not self.may_end.wait(0.001):
            if stop.is_set():
                return Profile({("cut",): 1}, 0.5)
        return PROFILE


@asynccontextmanager
async def serving(profiling: Profiling | None) -> AsyncIterator[httpx.AsyncClient]:
    app = create_health_app(
        live=list,
        ready=list,
        started=list,
        metrics=lambda: (b"", "text/plain"),
        details=dict,
        profile=None if profiling is None else profiling.show,
    )
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://health") as client:
        yield client


def made(taker: Any = None) -> Profiling:
    return Profiling(SystemClock().monotonic, taker)


async def test_switched_off_there_is_no_such_page():
    async with serving(None) as client:
        assert (await client.get("/debug/profile")).status_code == 404
        assert (await client.get("/debug/state")).status_code == 200


@pytest.mark.parametrize(
    ("query", "seconds"), [("", 5), ("?seconds=1", 1), ("?seconds=60&format=collapsed", 60)]
)
async def test_collapsed_stacks_of_so_many_seconds(query, seconds):
    taker = Taker()
    async with serving(made(taker)) as client:
        answer = await client.get(f"/debug/profile{query}")
    assert (answer.status_code, answer.text) == (200, "main 1\nmain;decide 3\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert taker.asked == [seconds]


async def test_top_is_a_table_for_a_person():
    async with serving(made(Taker())) as client:
        answer = await client.get("/debug/profile?format=top")
    assert answer.text == (
        "4 samples in 2.0 s\n"
        "\n"
        "   SELF  CUMULATIVE  FUNCTION\n"
        "  75.0%       75.0%  decide\n"
        "  25.0%      100.0%  main\n"
    )


def test_a_table_of_nothing_has_no_rows():
    assert top_table(Profile({}, 1.0)).splitlines()[0] == "0 samples in 1.0 s"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("seconds=0", "seconds: must be a whole number from 1 to 60, is '0'\n"),
        ("seconds=61", "seconds: must be a whole number from 1 to 60, is '61'\n"),
        ("seconds=-1", "seconds: must be a whole number from 1 to 60, is '-1'\n"),
        ("seconds=1.5", "seconds: must be a whole number from 1 to 60, is '1.5'\n"),
        ("seconds=", "seconds: must be a whole number from 1 to 60, is ''\n"),
        ("seconds=%D9%A3", "seconds: must be a whole number from 1 to 60, is '٣'\n"),
        (
            "seconds=" + "9" * 5000,
            f"seconds: must be a whole number from 1 to 60, is '{'9' * 40}'\n",
        ),
        ("format=svg", "format: must be collapsed or top, is 'svg'\n"),
    ],
    ids=lambda text: text[:20],
)
async def test_a_query_that_makes_no_sense_is_refused_with_a_line(query, problem):
    taker = Taker()
    async with serving(made(taker)) as client:
        answer = await client.get(f"/debug/profile?{query}")
    assert (answer.status_code, answer.text) == (400, problem)
    assert taker.asked == []


async def test_one_profile_at_a_time_and_other_pages_meanwhile():
    taker = Taker(is_free=False)
    async with serving(made(taker)) as client:
        first = asyncio.create_task(client.get("/debug/profile"))
        await taker.begun.wait()
        second = await client.get("/debug/profile")
        assert second.status_code == 409
        assert second.text == "a profile is already being taken; try again later\n"
        assert (await client.get("/livez")).status_code == 200
        assert not first.done()
        taker.may_end.set()
        assert (await first).status_code == 200
        assert (await client.get("/debug/profile")).status_code == 200


async def test_a_caller_that_is_cancelled_leaves_room_for_the_next():
    taker = Taker(is_free=False)
    async with serving(made(taker)) as client:
        first = asyncio.create_task(client.get("/debug/profile"))
        await taker.begun.wait()
        first.cancel()
        await asyncio.wait({first})
        taker.may_end.set()
        assert (await client.get("/debug/profile")).status_code == 200


async def test_closing_ends_a_profile_early_with_what_there_is():
    taker = Taker(is_free=False)
    profiling = made(taker)
    profiling.close()  # nothing to end
    async with serving(profiling) as client:
        first = asyncio.create_task(client.get("/debug/profile"))
        await taker.begun.wait()
        profiling.close()
        assert (await first).text == "cut 1\n"


async def test_what_is_sampled_is_the_thread_of_the_event_loop():
    looks = Looks()
    profiling = Profiling(looks)
    async with serving(profiling) as client:
        first = asyncio.create_task(client.get("/debug/profile?seconds=60"))
        while looks.count == 0:
            await asyncio.sleep(0)
        be_busy(looks)
        profiling.close()
        answer = await first
    assert answer.status_code == 200
    assert f";{__name__}:be_busy" in answer.text


class Looks:
    """Seconds for the sampler, which asks before each look."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return SystemClock().monotonic()


def be_busy(looks: Looks) -> None:
    """Until the sampler has looked at it, however long it takes to get its turn."""
    enough = looks.count + 3
    while looks.count < enough:
        pass


def test_the_longest_profile_is_answered_before_the_server_gives_up():
    assert profile_module.MAX_SECONDS + 10 < server_module.ANSWER_SECONDS
