"""Events: equal ones become one, nobody waits, what does not fit is dropped and counted."""

import asyncio
import json
import random

import pytest

from scheduler.client import Rejected, Unknown
from scheduler.events import NORMAL, WARNING, EventRecorder, Reference
from tests.fakes import FakeApiClient, FakeClock, settle
from tests.pods import pod

PATH = "/apis/events.k8s.io/v1/namespaces/default/events"


class Dropped(list[str]):
    def event_dropped(self, reason):
        self.append(reason)


class Scene:
    def __init__(self):
        self.client = FakeApiClient()
        self.client.always("POST", PATH, b"{}")
        self.clock = FakeClock()
        self.dropped = Dropped()
        self.recorder = EventRecorder(
            self.client, self.clock, random.Random(1), "host-1", self.dropped
        )
        self.task = asyncio.create_task(self.recorder.run())

    def record(self, note="no device", name="p"):
        self.recorder.record(
            Reference.to_pod(pod(name)),
            type_=WARNING,
            reason="FailedScheduling",
            action="Scheduling",
            note=note,
        )

    @property
    def posted(self):
        return [json.loads(call.body) for call in self.client.requests("POST")]


@pytest.fixture
async def scene():
    made = Scene()
    yield made
    made.task.cancel()
    await asyncio.wait({made.task})


async def test_an_event_has_what_the_api_server_asks_for(scene):
    scene.record()
    await settle()
    [body] = scene.posted
    assert body["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "p",
        "uid": "uid-p",
    }
    assert (body["type"], body["reason"], body["action"], body["note"]) == (
        "Warning",
        "FailedScheduling",
        "Scheduling",
        "no device",
    )
    assert body["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert "/" in body["reportingController"]
    assert body["reportingInstance"] == "host-1"
    assert body["metadata"]["name"].startswith("p.")
    assert "series" not in body


async def test_equal_events_that_wait_are_written_once_with_their_count(scene):
    for _ in range(3):
        scene.record()
    scene.record("another")
    await scene.clock.advance(1)
    assert [(body["note"], body.get("series", {}).get("count")) for body in scene.posted] == [
        ("no device", 3),
        ("another", None),
    ]


async def test_repetitions_within_a_minute_are_only_counted_then_told_as_a_series(scene):
    scene.record()
    await scene.clock.advance(1)
    name = scene.posted[0]["metadata"]["name"]
    scene.client.always("PATCH", f"{PATH}/{name}", b"{}")
    scene.record()
    scene.record()
    await scene.clock.advance(60)
    assert not scene.client.requests("PATCH")
    scene.record()
    await scene.clock.advance(1)
    [patch] = scene.client.requests("PATCH")
    assert json.loads(patch.body)["series"]["count"] == 4
    assert len(scene.posted) == 1


async def test_an_event_that_the_server_has_forgotten_is_made_again(scene):
    scene.record()
    await scene.clock.advance(61)
    name = scene.posted[0]["metadata"]["name"]
    scene.client.always("PATCH", f"{PATH}/{name}", Rejected(404, "NotFound", ""))
    scene.record()
    await scene.clock.advance(1)
    assert len(scene.posted) == 2


@pytest.mark.parametrize("outcome", [Unknown("timeout"), Rejected(403, "Forbidden", "")])
async def test_an_event_that_cannot_be_written_is_dropped_and_the_next_one_is_not(scene, outcome):
    scene.client.script("POST", PATH, outcome)
    scene.record("one")
    scene.record("two")
    await scene.clock.advance(1)
    assert scene.dropped == ["write_failed"]
    assert [body["note"] for body in scene.posted] == ["one", "two"]


async def test_a_full_queue_drops_what_comes_last(scene):
    for number in range(1_005):
        scene.record(str(number))
    assert scene.dropped == ["queue_full"] * 5


async def test_events_are_written_no_faster_than_fifty_a_second(scene):
    for number in range(200):
        scene.record(str(number))
    await scene.clock.advance(1)
    assert 45 <= len(scene.posted) <= 52


async def test_long_texts_are_cut_to_what_the_server_takes(scene):
    scene.record("ü" * 2_000, name="n" * 253)
    await settle()
    [body] = scene.posted
    assert len(body["note"].encode()) <= 1_024
    assert len(body["metadata"]["name"]) <= 253


async def test_what_waits_is_written_before_the_end(scene):
    scene.task.cancel()
    await asyncio.wait({scene.task})
    scene.recorder.record(
        Reference.to_pod(pod("p")), type_=NORMAL, reason="Scheduled", action="Binding", note="x"
    )
    await scene.recorder.drain()
    assert len(scene.posted) == 1
