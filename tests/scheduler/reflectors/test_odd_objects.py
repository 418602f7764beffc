"""One odd object stops nothing: all others come through, versions go on, a restart gets ready (fault core 03)."""

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model import Kind, UnreadableClaim
from scheduler.reflectors.sources import PATHS
from tests.fakes import settle
from tests.odd_json import ODD, config
from tests.scheduler.reflectors.test_reflectors import (
    Scene,
    bookmark,
    claim,
    line,
    listed,
    running,
)

MARK = b'"@@"'


def odd(version: int, text: bytes, where: str):
    made = claim("odd", version)
    match where:
        case "parameters":
            made["spec"] = {"devices": {"requests": [{"name": "r"}], "config": [config()]}}
        case "data":
            made["status"] = {"devices": [{"driver": "d", "data": "@@"}]}
        case "managedFields":
            made["metadata"]["managedFields"] = [{"fieldsV1": "@@"}]
        case _:
            made["future"] = {"x": ["@@"]}
    return made, text


def raw(dumped: bytes, text: bytes) -> bytes:
    return dumped.replace(MARK, text)


PLACES = ["parameters", "data", "managedFields", "future"]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
async def test_the_watch_goes_on_behind_it_and_it_is_a_claim_like_any_other(text, where):
    made, text = odd(11, text, where)
    async with running(listed(10, claim("a", 3))) as scene:
        await scene.send(raw(line("ADDED", made), text), line("ADDED", claim("b", 12)))
        assert scene.names == ["a", "b", "odd"]
        assert scene.cache.resource_version(Kind.RESOURCE_CLAIM) == 12
        assert (len(scene.client.watches), scene.metrics.unreadable) == (1, 0)
        record = scene.cache.claim_record("default", "odd")
        assert record is not None
        assert where == "managedFields" or text in record.raw
        await scene.send(
            raw(
                line(
                    "DELETED", {**made, "metadata": {**made["metadata"], "resourceVersion": "13"}}
                ),
                text,
            )
        )
        assert scene.names == ["a", "b"]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
async def test_a_list_with_it_is_a_list(text, where):
    made, text = odd(9, text, where)
    page = raw(listed(10, made, claim("b", 8)), text)
    async with running(page) as scene:
        assert scene.names == ["b", "odd"]
        assert scene.reflectors.synced.is_set()
        assert scene.reflectors.problems() == []


WRONG: list[dict[str, Any]] = [
    {"status": {"allocation": 7}},
    {"status": {"allocation": {"devices": {"results": [7]}}}},
    {"spec": {"devices": {"requests": 7}}},
    {"spec": 7},
    {"metadata": {"labels": 7}},
]


def wrong(version: int, what: dict[str, Any]):
    made = claim("a", version)
    return {**made, **what, "metadata": {**made["metadata"], **what.get("metadata", {})}}


@pytest.mark.parametrize("what", WRONG)
async def test_a_claim_that_cannot_be_read_is_kept_and_heals(what):
    async with running(listed(10, claim("a", 3, device="x"))) as scene:
        await scene.send(line("MODIFIED", wrong(11, what)), line("ADDED", claim("b", 12)))
        assert scene.cache.claim("default", "b") is not None
        assert isinstance(scene.cache.claim("default", "a"), UnreadableClaim)
        assert (scene.metrics.unreadable, len(scene.client.watches)) == (1, 1)
        assert scene.reflectors.problems() == []
        await scene.send(line("MODIFIED", claim("a", 13)))
        assert scene.cache.unreadable_count() == 0
        assert not scene.cache.snapshot().devices.allocated.pools


async def test_a_deletion_that_cannot_be_read_deletes():
    async with running(listed(10, claim("a", 3, device="x"))) as scene:
        await scene.send(line("DELETED", wrong(11, {"spec": 7})))
        assert scene.names == []
        assert not scene.cache.snapshot().devices.allocated.pools


async def test_after_a_restart_what_it_holds_is_held_and_it_stays_so_over_another_list():
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "x"}, 7]
    bad = wrong(4, {"status": {"allocation": {"devices": {"results": results}}}})
    async with running(listed(10, bad), listed(20, bad)) as scene:
        for _ in range(2):
            assert scene.reflectors.synced.is_set()
            (usage,) = scene.cache.snapshot().devices.allocated.pools.values()
            assert usage.devices == {"x"}
            await scene.send(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
        assert scene.metrics.unreadable == 2


@pytest.mark.parametrize("kind", list(Kind))
async def test_every_kind_goes_on(kind):
    scene = Scene((kind,))
    bad: dict[str, Any] = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "5"}, "spec": 7}
    scene.client.script("GET", PATHS[kind][0], listed(10, bad))
    task = asyncio.create_task(scene.reflectors.run())
    await settle()
    assert scene.reflectors.synced.is_set()
    assert scene.cache.unreadable_count() == 1
    for version, type_, left in ((11, "MODIFIED", 1), (12, "DELETED", 0), (13, "ADDED", 1)):
        bad["metadata"]["resourceVersion"] = str(version)
        await scene.send(line(type_, bad))
        assert scene.cache.unreadable_count() == left
        assert scene.cache.resource_version(kind) == version
    assert (len(scene.client.watches), scene.reflectors.problems()) == (1, [])
    task.cancel()
    await asyncio.wait({task})


async def test_a_bookmark_with_odd_content_is_a_bookmark():
    async with running(listed(10)) as scene:
        await scene.send(bookmark(20).replace(b'"kind"', b'"x":"\\ud800","kind"'))
        assert scene.cache.resource_version(Kind.RESOURCE_CLAIM) == 20


@pytest.mark.parametrize(
    "bad",
    [
        b"<html>",
        b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}',
        b'{"type":"WHAT","object":{"metadata":{"resourceVersion":"12"}}}',
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"-1"}}}',
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"' + b"1" * 5000 + b'"}}}',
        b'{"type":"ADDED","object":' + b"[" * 5000,
    ],
)
async def test_a_line_that_is_no_event_again_and_again_leads_to_lists_with_growing_pauses(bad):
    """Not to the same watch for ever."""
    lists = [listed(20 + number, claim("b", 15)) for number in range(100)]
    async with running(listed(10, claim("a", 3)), *lists) as scene:
        for _ in range(600):
            scene.watch.send(bad)
            await scene.clock.advance(1)
        assert scene.names == ["b"]
        assert 10 < len(scene.queries("GET")) < 60
        assert scene.reflectors.problems()


async def test_an_event_about_nobody_leads_to_a_list_behind_it():
    nobody = {"metadata": {"resourceVersion": "12", "name": 7, "uid": 7}, "spec": {}}
    async with running(listed(10, claim("a", 3)), listed(15, claim("b", 14))) as scene:
        await scene.send(line("DELETED", nobody))
        await scene.clock.advance(1)
        assert scene.names == ["b"]
        assert scene.queries("GET")[1]["resourceVersion"] == "12"


@asynccontextmanager
async def listing_for_ever(version: int):
    """A reflector whose server has one more claim in every list."""
    scene = Scene((Kind.RESOURCE_CLAIM,))
    numbers = iter(range(version, version + 10_000))
    path = PATHS[Kind.RESOURCE_CLAIM][0]
    scene.client.always("GET", path, lambda _call: listed(next(numbers), claim("listed", 3)))
    task = asyncio.create_task(scene.reflectors.run())
    await settle()
    try:
        yield scene, task
    finally:
        task.cancel()
        await asyncio.wait({task})


@given(data=st.data())
async def test_whatever_a_line_holds_the_next_event_comes_through(data):
    """Never an exception, never the end of the reflector."""
    text = data.draw(st.sampled_from(list(ODD.values())[:5]))
    made, _ = odd(12, text, data.draw(st.sampled_from(PLACES)))
    bad = raw(line(data.draw(st.sampled_from(["ADDED", "MODIFIED", "DELETED"])), made), text)
    start = data.draw(st.integers(0, len(bad)))
    end = data.draw(st.integers(start, min(len(bad), start + 12)))
    mutilated = bad[:start] + data.draw(st.binary(max_size=8)) + bad[end:]
    async with listing_for_ever(10) as (scene, task):
        await scene.send(mutilated)
        await scene.clock.advance(60)
        version = scene.cache.resource_version(Kind.RESOURCE_CLAIM)
        await scene.send(line("ADDED", claim("next", version + 1)))
        assert "next" in scene.names
        assert not task.done()


@given(data=st.data())
async def test_whatever_an_item_of_a_list_holds_the_others_come_through(data):
    text = data.draw(st.sampled_from(list(ODD.values())[:5]))
    made, _ = odd(9, text, data.draw(st.sampled_from(PLACES)))
    item = raw(json.dumps(made).encode(), text)
    value = json.dumps(
        data.draw(st.none() | st.integers() | st.lists(st.text(max_size=3)))
    ).encode()
    keys = [b'"spec":', b'"status":', b'"labels":', b'"uid":', b'"name":', b'"devices":']
    key = data.draw(st.sampled_from(keys))
    item = item.replace(key, key + value + b',"was":', 1)
    page = listed(10, claim("a", 3), "@@", claim("b", 4)).replace(MARK, item)
    async with running(page) as scene:
        assert {"a", "b"} <= set(scene.names)
        assert scene.reflectors.synced.is_set()
