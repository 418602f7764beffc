"""Reflectors against a scripted API server, into the real cache (F5-F13, R1-R14)."""

import asyncio
import itertools
import json
import random
from contextlib import asynccontextmanager

import pytest

from scheduler.api.decode import PageDecoder
from scheduler.cache.allocated import AllocatedIndex
from scheduler.cache.cluster import ClusterCache
from scheduler.client import ApiError, GoneError, NotFoundError, UnavailableError
from scheduler.model import Kind
from scheduler.reflectors import ClaimBarrier, Reflectors
from scheduler.reflectors.reflector import DECODE_BYTES, INDEX_OBJECTS
from scheduler.reflectors.sources import PATHS
from tests.fakes import FakeApiClient, FakeClock, settle

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
RULES = PATHS[Kind.DEVICE_TAINT_RULE]


def claim(name, version, uid=None, device=None):
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
        },
    }
    if device:
        result = {"request": "r", "driver": "d", "pool": "p", "device": device}
        body["status"] = {"allocation": {"devices": {"results": [result]}}}
    return body


def listed(version, *items, token=""):
    metadata = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return json.dumps(
        {
            "kind": "ResourceClaimList",
            "apiVersion": "resource.k8s.io/v1",
            "metadata": metadata,
            "items": items,
        }
    ).encode()


def line(type_, item):
    return json.dumps({"type": type_, "object": item}).encode()


def bookmark(version):
    return line(
        "BOOKMARK", {"kind": "ResourceClaim", "metadata": {"resourceVersion": str(version)}}
    )


def error_line(code, reason, message=""):
    return line("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": message})


class Counting:
    def __init__(self):
        self.lists = []
        self.unreadable = 0
        self.wrong = 0

    def relisted(self, kind, cause):
        self.lists.append(cause)

    def watch_event(self, kind):
        pass

    def undecodable(self, kind):
        self.unreadable += 1

    def recount_difference(self, count):
        self.wrong += count


class Scene:
    """One reflector of claims at work."""

    def __init__(self, kinds):
        self.client = FakeApiClient()
        self.clock = FakeClock()
        self.cache = ClusterCache()
        self.metrics = Counting()
        self.reflectors = Reflectors(
            self.client, self.cache, self.clock, random.Random(1), self.metrics, kinds
        )

    @property
    def names(self):
        return sorted(item.metadata.name for item in self.cache.claims())

    @property
    def watch(self):
        return self.client.watches[-1]

    async def send(self, *lines):
        self.watch.send(*lines)
        await settle()

    def queries(self, method):
        return [call.query for call in self.client.requests(method)]


@asynccontextmanager
async def running(*lists, kinds=(Kind.RESOURCE_CLAIM,), path=CLAIMS):
    scene = Scene(kinds)
    scene.client.script("GET", path, *lists)
    task = asyncio.create_task(scene.reflectors.run())
    await settle()
    try:
        yield scene
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_pages_are_put_together_and_the_watch_follows_from_their_version():
    async with running(listed(10, claim("a", 3), token="t"), listed(10, claim("b", 4))) as scene:
        assert scene.reflectors.synced.is_set()
        assert scene.names == ["a", "b"]
        assert scene.queries("GET") == [
            {"limit": "500", "resourceVersion": ""},
            {"limit": "500", "continue": "t"},
        ]
        assert scene.queries("WATCH")[0]["resourceVersion"] == "10"


async def test_nothing_is_served_until_the_last_page_is_there():
    gate = asyncio.Event()

    async def late(_call):
        await gate.wait()
        return listed(10, claim("b", 4))

    async with running(listed(10, claim("a", 3), token="t"), late) as scene:
        assert scene.names == []
        assert not scene.reflectors.synced.is_set()
        assert scene.reflectors.problems() == ["ResourceClaim: not listed yet"]
        gate.set()
        await settle()
        assert scene.names == ["a", "b"]
        assert scene.reflectors.problems() == []


async def test_events_change_the_cache_and_bookmarks_only_the_version():
    async with running(listed(10, claim("a", 3))) as scene:
        await scene.send(
            line("ADDED", claim("b", 11)),
            line("MODIFIED", claim("a", 12, device="x")),
            bookmark(20),
        )
        assert scene.names == ["a", "b"]
        assert scene.cache.claim("default", "a").status.allocation is not None
        assert scene.cache.resource_version(Kind.RESOURCE_CLAIM) == 20
        await scene.send(line("DELETED", claim("b", 21)))
        assert scene.names == ["a"]


async def test_a_watch_ended_by_the_server_is_resumed_from_the_last_bookmark_without_a_list():
    async with running(listed(10)) as scene:
        await scene.send(line("ADDED", claim("a", 11)), bookmark(30))
        scene.watch.end()
        await settle()
        assert [query["resourceVersion"] for query in scene.queries("WATCH")] == ["10", "30"]
        assert len(scene.queries("GET")) == 1
        assert scene.names == ["a"]


@pytest.mark.parametrize("error", [UnavailableError("reset"), ApiError(429, "TooManyRequests", "")])
async def test_a_broken_or_refused_watch_waits_and_resumes(error):
    async with running(listed(10)) as scene:
        await scene.send(line("ADDED", claim("a", 11)))
        scene.watch.fail(error)
        await settle()
        assert len(scene.client.watches) == 1
        assert scene.reflectors.problems()
        await scene.clock.advance(0.8)
        assert [query["resourceVersion"] for query in scene.queries("WATCH")] == ["10", "11"]
        assert scene.reflectors.problems() == []
        assert len(scene.queries("GET")) == 1


async def test_gone_in_the_middle_lists_again_and_deletes_what_has_vanished():
    async with running(
        listed(10, claim("a", 3), claim("b", 4)), listed(50, claim("b", 4))
    ) as scene:
        await scene.send(error_line(410, "Expired"))
        assert scene.names == ["b"]
        assert scene.queries("GET")[1]["resourceVersion"] == "10"
        assert scene.queries("WATCH")[-1]["resourceVersion"] == "50"
        assert scene.metrics.lists == ["start", "gone"]


async def test_gone_when_a_watch_opens_never_uses_that_version_again():
    async with running(listed(10), GoneError(410, "Expired", ""), listed(60)) as scene:
        scene.client.script("WATCH", CLAIMS, GoneError(410, "Expired", ""), b"")
        scene.watch.end()
        await settle()
        scene.clock.skip(5)
        await scene.clock.advance(60)
        watched = [query["resourceVersion"] for query in scene.queries("WATCH")]
        assert watched[-1] == "60"
        assert watched.count("10") == 2
        assert scene.queries("GET")[-1] == {"limit": "500", "resourceVersion": ""}


async def test_an_old_list_after_a_restart_of_the_server_is_refused():
    async with running(
        listed(10, claim("a", 3)), listed(9), listed(70, claim("a", 3), claim("b", 60))
    ) as scene:
        await scene.send(error_line(410, "Expired"))
        assert scene.names == ["a"]
        await scene.clock.advance(5)
        assert scene.names == ["a", "b"]


async def test_a_page_that_expires_leaves_the_old_state_in_place():
    async with running(
        listed(10, claim("a", 3)),
        listed(50, claim("b", 20), token="t"),
        GoneError(410, "Expired", ""),
        listed(60, claim("c", 55)),
    ) as scene:
        await scene.send(error_line(410, "Expired"))
        assert scene.names == ["a"]
        await scene.clock.advance(5)
        assert scene.names == ["c"]


async def test_repeated_and_older_events_never_move_an_object_back():
    async with running(listed(10, claim("a", 3))) as scene:
        await scene.send(
            line("MODIFIED", claim("a", 12, device="x")),
            line("MODIFIED", claim("a", 11)),
            line("ADDED", claim("a", 3)),
        )
        assert scene.cache.claim("default", "a").metadata.resource_version == "12"


async def test_a_claim_deleted_and_made_again_unseen_is_the_new_one_only():
    async with running(
        listed(10, claim("a", 3, device="x")), listed(50, claim("a", 40, uid="new"))
    ) as scene:
        await scene.send(error_line(410, "Expired"))
        assert scene.cache.claim_by_uid("uid-a") is None
        assert scene.cache.claim_by_uid("new") is not None
        assert not scene.cache.snapshot().devices.allocated.pools


@pytest.mark.parametrize(
    "bad",
    [
        b"<html>",
        b'{"type": "ADDED"}',
        b'{"type": "ADDED", "object": {}}',
        b"[1]",
        b'{"type":"WHAT","object":{"metadata":{"resourceVersion":"x"}}}',
    ],
)
async def test_a_line_that_is_no_event_ends_the_watch_and_is_not_taken(bad):
    async with running(listed(10, claim("a", 3))) as scene:
        await scene.send(bad)
        assert scene.names == ["a"]
        await scene.clock.advance(1)
        assert [query["resourceVersion"] for query in scene.queries("WATCH")] == ["10", "10"]


async def test_a_claim_event_that_cannot_be_read_is_stepped_over_and_what_it_held_stays_held():
    async with running(listed(10, claim("a", 3, device="x"))) as scene:
        bad = claim("a", 12)
        bad["status"] = {"allocation": 7}
        await scene.send(line("MODIFIED", bad), line("ADDED", claim("b", 13)))
        assert scene.names == ["a", "b"]
        assert scene.cache.snapshot().devices.allocated.pools
        assert scene.metrics.unreadable == 1
        assert len(scene.client.watches) == 1


async def test_an_object_of_a_list_that_cannot_be_read_is_left_out():
    bad = claim("bad", 4)
    bad["spec"] = {"devices": {"requests": 7}}
    async with running(listed(10, claim("a", 3), bad)) as scene:
        assert scene.names == ["a"]
        assert scene.metrics.unreadable == 1


@pytest.mark.parametrize(
    "answer", [UnavailableError("refused"), ApiError(500, "", ""), b"<html>", b"{}"]
)
async def test_a_list_that_fails_is_tried_again_later(answer):
    async with running(answer, listed(10, claim("a", 3))) as scene:
        assert not scene.reflectors.synced.is_set()
        assert scene.reflectors.problems()
        await scene.clock.advance(0.8)
        assert scene.names == ["a"]


async def test_a_server_error_in_a_watch_waits_and_lists():
    async with running(listed(10), listed(20)) as scene:
        await scene.send(error_line(500, "InternalError"))
        assert len(scene.queries("GET")) == 1
        await scene.clock.advance(0.8)
        assert len(scene.queries("GET")) == 2


async def test_an_older_version_of_the_api_is_used_when_the_newest_is_not_served():
    v1beta1 = "/apis/resource.k8s.io/v1beta1/resourceclaims"
    scene = Scene((Kind.RESOURCE_CLAIM,))
    for path in PATHS[Kind.RESOURCE_CLAIM][:2]:
        scene.client.always("GET", path, NotFoundError(404, "NotFound", ""))
    body = json.loads(listed(10, claim("a", 3)))
    body["apiVersion"] = "resource.k8s.io/v1beta1"
    del body["items"][0]["apiVersion"]
    scene.client.script("GET", v1beta1, json.dumps(body).encode())
    task = asyncio.create_task(scene.reflectors.run())
    await settle(60)
    assert scene.names == ["a"]
    assert scene.client.requests("WATCH")[0].path == v1beta1
    task.cancel()
    await asyncio.wait({task})


async def test_a_server_without_taint_rules_has_none_and_is_asked_again_later():
    scene = Scene((Kind.DEVICE_TAINT_RULE,))
    for path in RULES:
        scene.client.always("GET", path, NotFoundError(404, "NotFound", ""))
    task = asyncio.create_task(scene.reflectors.run())
    await settle()
    assert scene.reflectors.synced.is_set()
    scene.clock.skip(500)
    assert scene.reflectors.silence_seconds() == 0.0
    await scene.clock.advance(600)
    assert len(scene.client.requests("GET")) == 2 * len(RULES)
    task.cancel()
    await asyncio.wait({task})


async def test_a_server_without_claims_is_not_synced():
    scene = Scene((Kind.RESOURCE_CLAIM,))
    for path in PATHS[Kind.RESOURCE_CLAIM]:
        scene.client.always("GET", path, NotFoundError(404, "NotFound", ""))
    task = asyncio.create_task(scene.reflectors.run())
    await scene.clock.advance(10)
    assert not scene.reflectors.synced.is_set()
    assert scene.reflectors.problems()
    task.cancel()
    await asyncio.wait({task})


async def test_silence_is_measured_from_the_last_word_of_the_server():
    async with running(listed(10)) as scene:
        scene.clock.skip(95)
        assert scene.reflectors.silence_seconds() == 95
        await scene.send(bookmark(20))
        assert scene.reflectors.silence_seconds() == 0
        assert scene.reflectors.last_heard(Kind.RESOURCE_CLAIM) == scene.clock.monotonic()


async def test_a_reflector_that_dies_takes_everything_down():
    scene = Scene((Kind.RESOURCE_CLAIM,))
    scene.client.script("GET", CLAIMS, RuntimeError("a bug"))
    with pytest.raises(ExceptionGroup) as caught:
        await scene.reflectors.run()
    assert caught.group_contains(RuntimeError)


async def test_a_burst_of_events_lets_others_run_in_between():
    async with running(listed(10)) as scene:
        seen: list[int] = []

        async def other():
            while not seen or seen[-1] < 300:
                seen.append(len(scene.names))
                await asyncio.sleep(0)

        scene.watch.send(*(line("ADDED", claim(f"c{n}", 11 + n)) for n in range(300)))
        await asyncio.wait_for(other(), 5)
        assert any(0 < count < 300 for count in seen)


async def test_a_long_list_is_decoded_and_indexed_in_pieces_between_which_others_run(monkeypatch):
    happened = []
    decode = PageDecoder._take

    def take(decoder, item):
        happened.append(("decoded", len(item)))
        decode(decoder, item)

    monkeypatch.setattr(PageDecoder, "_take", take)
    indexed = AllocatedIndex.set_written

    def set_written(*args):
        happened.append(("indexed", 1))
        return indexed(*args)

    monkeypatch.setattr(AllocatedIndex, "set_written", set_written)

    async def turns():
        while True:
            happened.append(("turn", 0))
            await asyncio.sleep(0)

    claims = [claim(f"c{number:04}", number + 1, device=f"d{number}") for number in range(2_000)]
    largest = max(len(json.dumps(each)) for each in claims)
    others = asyncio.create_task(turns())
    lists = listed(9_999, *claims[:1_000], token="t"), listed(9_999, *claims[1_000:])
    async with running(*lists) as scene:
        await settle(100)
        snapshot = scene.cache.snapshot()
        assert snapshot.revision >= len(claims) // INDEX_OBJECTS  # it has grown along
        (usage,) = snapshot.devices.allocated.pools.values()
        assert len(usage.devices) == len(claims)
    others.cancel()

    most = dict.fromkeys(("decoded", "indexed"), 0)
    for what, run in itertools.groupby(happened, lambda each: each[0]):
        if what != "turn":
            most[what] = max(most[what], sum(size for _, size in run))
    assert sum(what == "decoded" for what, _ in happened) == 2_000
    assert sum(what == "indexed" for what, _ in happened) == 2_000
    assert most["decoded"] <= DECODE_BYTES + largest
    assert most["indexed"] <= INDEX_OBJECTS


async def test_a_wrong_index_is_found_by_the_recount_and_made_anew():
    async with running(listed(10, claim("a", 3, device="x"))) as scene:
        scene.cache._allocated.set_written("uid-a", None)
        await scene.clock.advance(300)
        assert scene.metrics.wrong == 1
        assert scene.cache.recount() == []


async def test_the_barrier_lets_go_when_the_watch_has_come_past_the_write():
    async with running(listed(10)) as scene:
        barrier = ClaimBarrier(scene.cache)
        assert await barrier.reached(10, 1.0)
        early = asyncio.create_task(barrier.reached(12, 5.0))
        late = asyncio.create_task(barrier.wait_for_claim_version("uid-x", 15, 5.0))
        await scene.send(line("ADDED", claim("a", 13)))
        assert (early.done(), late.done()) == (True, False)
        await scene.send(bookmark(20))
        assert await early
        assert await late
        assert not await barrier.reached(99, 0.01)


async def test_a_list_asked_for_brings_the_cache_up_to_date_beside_a_lagging_watch():
    async with running(
        listed(10, claim("a", 3)),
        listed(50, claim("b", 40), token="t"),
        listed(50, claim("c", 41)),
    ) as scene:
        await scene.reflectors.relist(Kind.RESOURCE_CLAIM)
        assert scene.names == ["b", "c"]
        await scene.send(line("ADDED", claim("b", 40)), line("ADDED", claim("d", 51)))
        assert scene.names == ["b", "c", "d"]


async def test_a_list_asked_for_that_the_watch_has_overtaken_changes_nothing():
    async with running(listed(10, claim("a", 3))) as scene:

        async def overtaken(_call):
            await scene.send(line("ADDED", claim("b", 60)))
            return listed(50)

        scene.client.script("GET", CLAIMS, overtaken)
        await scene.reflectors.relist(Kind.RESOURCE_CLAIM)
        assert scene.names == ["a", "b"]


async def test_a_list_asked_for_that_fails_leaves_the_cache_as_it_was():
    async with running(listed(10, claim("a", 3)), UnavailableError("down")) as scene:
        with pytest.raises(UnavailableError):
            await scene.reflectors.relist(Kind.RESOURCE_CLAIM)
        assert scene.names == ["a"]


async def test_the_barrier_tells_how_far_the_watch_was_behind():
    async with running(listed(10)) as scene:
        lags: list[float] = []
        barrier = ClaimBarrier(scene.cache, scene.clock, lags.append)
        waiting = asyncio.create_task(barrier.reached(12, 5.0))
        await settle()
        scene.clock.skip(0.25)
        await scene.send(bookmark(12))
        assert await waiting
        assert lags == [0.25]
