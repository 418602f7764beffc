"""A watch that is wrong without saying so heals, and readiness tells the truth meanwhile (faults behaviour 01, core 04)."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from scheduler.api.metadata import Listed
from scheduler.cache.cluster import ClusterCache
from scheduler.client import JSON, METADATA, ApiError, GoneError, UnavailableError
from scheduler.model import Kind
from scheduler.reflectors import ClaimBarrier, Reflectors
from scheduler.reflectors.comparison import newer, vanished
from scheduler.reflectors.machine import RESTORED_SECONDS
from tests.fakes import FakeClock, settle
from tests.scheduler.reflectors.test_reflectors import (
    CLAIMS,
    Counting,
    bookmark,
    claim,
    error_line,
    line,
    listed,
    running,
)

CLAIM = Kind.RESOURCE_CLAIM
SILENCE_SECONDS = 90  # beyond it the process is not ready
READ_SECONDS = 90  # after so long without a byte the client ends a watch
BOOKMARK_SECONDS = 60


class Server:
    """Claims on a server whose watches tell what the test wants them to.

    Attributes:
        how: `honest`, or what becomes of every watch: `silent`, `refused`, or ended in order after so many seconds.
        limit: seconds after which an honest or silent watch is ended in order.
        bookmarks: whether an honest watch sends one each minute.
        lists: versions that lists were answered with.
        opened: how many watches have been asked for.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.how: str | float = "honest"
        self.bookmarks = True
        self.version = 10
        self.claims: dict[str, int] = {}
        self.lists: list[int] = []
        self.opened = 0
        self.limit = float("inf")
        self._news: list[bytes] = []
        self._changed = asyncio.Event()

    def put(self, name: str, *, told: bool = True) -> None:
        """Make a claim; the watch tells of it, or not."""
        self.version += 1
        self.claims[name] = self.version
        if told:
            self._tell(line("ADDED", claim(name, self.version)))

    def drop(self, name: str) -> None:
        """Delete a claim, and tell nobody."""
        self.version += 1
        del self.claims[name]

    def _tell(self, news: bytes) -> None:
        self._news.append(news)
        self.touch()

    def touch(self) -> None:
        """Let open watches look at what is to be told, and how."""
        self._changed.set()

    async def get(self, path: str, query: object = None) -> bytes:
        await asyncio.sleep(0)
        self.lists.append(self.version)
        body: bytes = listed(self.version, *(claim(*each) for each in self.claims.items()))
        return body

    @asynccontextmanager
    async def watch(self, path: str, query: object) -> AsyncIterator[AsyncIterator[bytes]]:
        self.opened += 1
        await asyncio.sleep(0)
        if self.how == "refused":
            raise UnavailableError("connection reset")
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        if isinstance(self.how, float):
            await self.clock.sleep(self.how)
            return
        began = heard = self.clock.monotonic()
        while (left := self.limit - (self.clock.monotonic() - began)) > 0:
            while self.how == "honest" and self._news:
                yield self._news.pop(0)
                heard = self.clock.monotonic()
            self._changed.clear()
            tick = asyncio.ensure_future(self.clock.sleep(min(30.0, left)))
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait({tick, changed}, return_when="FIRST_COMPLETED")
            for each in (tick, changed):
                each.cancel()
            quiet = self.clock.monotonic() - heard
            if self.bookmarks and self.how == "honest" and quiet >= BOOKMARK_SECONDS:
                yield bookmark(self.version)
                heard = self.clock.monotonic()
            elif quiet >= READ_SECONDS:
                raise UnavailableError("nothing has come for too long")

    async def write(self, *_args: object, **_more: object) -> object:
        raise AssertionError("reflectors do not write")

    async def aclose(self) -> None:
        pass


class Followed:
    """Claims of a `Server`, followed by a reflector."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = Server(self.clock)
        self.cache = ClusterCache()
        self.metrics = Counting()
        self.reflectors = Reflectors(
            self.server,  # type: ignore[arg-type]
            self.cache,
            self.clock,
            random.Random(1),
            self.metrics,
            (CLAIM,),
        )
        self.task: asyncio.Task[None] | None = None

    @property
    def names(self) -> list[str]:
        return sorted(each.metadata.name for each in self.cache.claims())

    @property
    def is_ready(self) -> bool:
        """As `/readyz` has it."""
        quiet = self.reflectors.silence_seconds()
        return not self.reflectors.problems() and quiet <= SILENCE_SECONDS

    async def pass_time(self, seconds: int, step: int = 5) -> list[bool]:
        """Let time pass; returns whether it was ready after each step."""
        ready = []
        for _ in range(0, seconds, step):
            await self.clock.advance(step)
            ready.append(self.is_ready)
        return ready


@asynccontextmanager
async def followed(*names: str) -> AsyncIterator[Followed]:
    made = Followed()
    for name in names:
        made.server.put(name, told=False)
    made.task = asyncio.create_task(made.reflectors.run())
    await settle()
    assert made.names == sorted(names)
    try:
        yield made
    finally:
        made.task.cancel()
        with suppress(asyncio.CancelledError):
            await made.task


@pytest.mark.parametrize("how", ["refused", 0.0, 0.5, 5.0, 9.0, 20.0, 35.0, 59.0])
async def test_watches_that_end_without_a_word_again_and_again_lead_to_a_list(how):
    async with followed("a") as scene:
        await scene.pass_time(180)
        scene.server.how = how
        scene.server.limit = 0
        scene.server.touch()
        await scene.pass_time(60)
        scene.server.put("b", told=False)
        await scene.pass_time(1_200)
        assert scene.names == ["a", "b"]
        # Neither a storm of watches nor one of lists.
        before = scene.server.opened, len(scene.server.lists)
        await scene.pass_time(3_600)
        assert scene.server.opened - before[0] <= 600
        assert len(scene.server.lists) - before[1] <= 120


@pytest.mark.parametrize("how", ["refused", 0.0, 5.0])
async def test_while_watches_do_not_work_it_is_not_ready_and_it_is_again_when_they_do(how):
    async with followed("a") as scene:
        assert all(await scene.pass_time(180))
        scene.server.how, scene.server.limit = how, 0
        scene.server.touch()
        await scene.pass_time(300)
        ready = await scene.pass_time(1_800)
        assert ready.count(True) <= len(ready) // 10  # the moments after a list
        scene.server.how, scene.server.limit = "honest", float("inf")
        await scene.pass_time(120)
        assert all(await scene.pass_time(600))


async def test_a_watch_that_only_repeats_what_has_been_seen_says_nothing():
    lists = (listed(20 + number, claim("b", 15)) for number in range(100))
    async with running(listed(10, claim("a", 3)), *lists) as scene:
        repeated = line("ADDED", claim("a", 3))
        for _ in range(120):
            scene.watch.send(repeated)
            scene.watch.end()
            await scene.clock.advance(1)
        assert scene.names == ["b"]
        assert scene.reflectors.problems()


@pytest.mark.parametrize("bookmarks", [True, False])
@pytest.mark.parametrize("limit", [20, 35, 60, 300, 600])
async def test_an_idle_kind_is_neither_listed_all_the_time_nor_not_ready(bookmarks, limit):
    """Proxies cut idle connections, and not every server sends bookmarks before its watches end."""
    async with followed("a") as scene:
        scene.server.bookmarks, scene.server.limit = bookmarks, limit
        ready = await scene.pass_time(7_200)
        assert ready.count(False) <= len(ready) // 20  # the moments between two watches
        # Two hours: the comparisons, each of at most 15 minutes, and a few lists to make sure.
        assert len(scene.server.lists) <= 40
        scene.server.put("b")
        await scene.pass_time(5)
        assert scene.names == ["a", "b"]


async def test_a_kind_that_bookmarks_came_for_and_come_no_more_is_not_ready_and_heals():
    async with followed("a") as scene:
        await scene.pass_time(180)
        scene.server.how = "silent"
        scene.server.put("b", told=False)
        await scene.pass_time(120)
        assert not scene.is_ready
        await scene.pass_time(1_200)
        assert scene.names == ["a", "b"]


async def test_events_that_never_came_are_found_by_a_comparison_and_listed():
    async with followed("a", "b", "c") as scene:
        await scene.pass_time(60)
        scene.server.put("b", told=False)  # changed
        scene.server.drop("c")
        scene.server.put("d", told=False)
        await scene.pass_time(1_200)
        assert scene.names == ["a", "b", "d"]
        changed = scene.cache.claim("default", "b")
        assert changed is not None
        assert changed.metadata.resource_version == "14"
        assert "missed" in scene.metrics.lists
        await scene.pass_time(3_600)
        assert scene.metrics.lists.count("missed") == 1


async def test_a_watch_that_is_only_behind_is_left_alone():
    async with followed("a") as scene:
        for number in range(100):
            scene.server.how = "silent"  # events are held for half a minute
            scene.server.put(f"b{number}")
            await scene.pass_time(30)
            scene.server.how = "honest"
            scene.server.touch()
            await scene.pass_time(10)
        assert scene.metrics.lists == ["start"]


async def test_a_comparison_asks_for_nothing_but_metadata_where_a_client_knows_formats():
    asked = []

    class Knowing(Server):
        async def get(self, path: str, query: object = None, *, accept: str = JSON) -> bytes:
            asked.append(accept)
            return await super().get(path, query)

    clock = FakeClock()
    server: Any = Knowing(clock)
    cache = ClusterCache()
    reflectors = Reflectors(server, cache, clock, random.Random(1), kinds=(CLAIM,))
    server.put("a")
    assert await reflectors.differences(CLAIM) == {("uid-a", None)}
    assert asked == [METADATA]


def test_differences_are_what_is_newer_and_what_has_vanished():
    page = Listed({"same": "3", "newer": "5", "new": "4", "odd": "x"}, "10", "")
    known = {"same": 3, "newer": 4, "gone": 7, "later": 11}
    assert newer(page, known) == {("newer", 4), ("new", None)}
    assert vanished(known, page.versions, 10) == {("gone", 7)}


# --- a server that has gone back ------------------------------------------------------------------------------------------


async def test_a_restored_server_is_followed_and_not_ready_until_then():
    too_large = ApiError(504, "Timeout", "Too large resource version: 1000, current: 500")
    lower = (listed(500 + number, claim("back", 400, device="x")) for number in range(100))
    async with running(listed(1000, claim("a", 900)), too_large, *lower) as scene:
        scene.watch.fail(too_large)
        await settle()
        ready = []
        while scene.names != ["back"]:
            await scene.clock.advance(1)
            ready.append(not scene.reflectors.problems())
            assert len(ready) < 300
        assert len(ready) >= RESTORED_SECONDS
        assert not any(ready[:-1])
        assert scene.reflectors.problems() == []
        assert scene.metrics.lists == ["start", "restored"]
        watched = int(scene.queries("WATCH")[-1]["resourceVersion"])
        assert 500 <= watched < 600
        await scene.send(line("MODIFIED", claim("back", watched + 1)), bookmark(watched + 5))
        assert scene.cache.resource_version(CLAIM) == watched + 5
        assert not scene.cache.snapshot().devices.allocated.pools


async def test_a_stale_replica_is_not_followed():
    """F13: it answers with an older snapshot, for a while."""
    stale = [listed(900, claim("old", 800))] * 5
    async with running(
        listed(1000, claim("a", 900)), *stale, listed(1100, claim("b", 1050))
    ) as scene:
        await scene.send(error_line(410, "Expired"))
        await scene.clock.advance(300)
        assert scene.names == ["b"]
        assert "restored" not in scene.metrics.lists


async def test_lists_that_go_back_among_themselves_are_no_proof():
    versions = itertools.cycle([500, 700, 600])
    async with running(listed(1000, claim("a", 900))) as scene:
        scene.client.always("GET", CLAIMS, lambda _call: listed(next(versions), claim("x", 400)))
        await scene.send(error_line(410, "Expired"))
        await scene.clock.advance(600)
        assert scene.names == ["a"]
        assert scene.reflectors.problems()


async def test_only_the_first_page_of_a_list_that_is_too_old_is_read():
    pages = [listed(500, claim("back", 400), token="t")] * 30
    async with running(listed(1000, claim("a", 900)), *pages) as scene:
        await scene.send(error_line(410, "Expired"))
        await scene.clock.advance(30)
        assert len(scene.queries("GET")) > 3
        assert all("continue" not in query for query in scene.queries("GET"))


async def test_a_bookmark_of_an_older_version_than_was_asked_for_gives_a_restored_server_away():
    """A watch from a version that it has not reached opens, and tells nothing for hours."""
    lower = [listed(500, claim("back", 400))] * 100
    async with running(listed(1000, claim("a", 900)), *lower) as scene:
        await scene.send(bookmark(501))
        assert scene.reflectors.problems()
        await scene.clock.advance(300)
        assert scene.names == ["back"]


async def test_a_repeated_bookmark_is_no_sign_of_that():
    async with running(listed(1000, claim("a", 900))) as scene:
        await scene.send(bookmark(1001), bookmark(1005), bookmark(1001))
        assert scene.cache.resource_version(CLAIM) == 1005
        assert (len(scene.queries("GET")), scene.reflectors.problems()) == (1, [])


async def test_who_waits_for_a_write_of_a_history_that_is_gone_is_told_no():
    async with running(listed(1000)) as scene:
        barrier = ClaimBarrier(scene.cache)
        waiting = asyncio.create_task(barrier.reached(1500, 600.0))
        await settle()
        scene.cache.replace(CLAIM, [], 500, is_reset=True)
        assert await waiting is False
        later = asyncio.create_task(barrier.reached(501, 600.0))
        await settle()
        await scene.send(bookmark(502))
        assert not later.done()  # this watch began at 1000
        scene.cache.replace(CLAIM, [], 502)
        assert await later


async def test_problems_of_a_list_stay_until_it_is_solved():
    answers = [GoneError(410, "Expired", ""), UnavailableError("down"), listed(500), listed(2000)]
    async with running(listed(1000, claim("a", 900)), *answers) as scene:
        await scene.send(error_line(410, "Expired"))
        seen = set()
        for _ in range(60):
            seen.update(scene.reflectors.problems())
            await scene.clock.advance(1)
        assert seen == {
            "ResourceClaim: HTTP 410 Expired: ",
            "ResourceClaim: down",
            "ResourceClaim: the server lists version 500, older than 1000, already seen",
        } - {"ResourceClaim: HTTP 410 Expired: "}
        assert scene.reflectors.problems() == []
