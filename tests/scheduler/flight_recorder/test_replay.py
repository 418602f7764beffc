"""What a recorder writes is enough to make every decision again; what was otherwise is told."""

import json
from typing import Any

import msgspec
import pytest

from allocator.model.claims import DeviceClaimConfiguration
from allocator.model.devices import OpaqueDeviceConfiguration
from scheduler.engine import Engine, Plan
from scheduler.flight_recorder import FlightRecorder
from scheduler.flight_recorder.file import lines
from scheduler.flight_recorder.replay import Replayed, ReplayError, replay
from scheduler.framework.environment import Mode
from scheduler.framework.status import Status
from tests.builders import claim
from tests.pods import node_object, pod
from tests.scheduler.engine.test_engine import EVERYTHING_ON
from tests.scheduler.engine.test_from_nothing import WholeStory
from tests.scheduler.world import World, environment, gpu_nodes


def recorded_story(seed: int, steps: int = 40, most: int = 20_000) -> tuple[FlightRecorder, Engine]:
    env = environment(features=EVERYTHING_ON) if seed % 2 else environment()
    engine = Engine(env, check_every=0)
    story = WholeStory(seed, engine)
    engine.observer = recorder = FlightRecorder(story.world.cache, env, most)
    story.play(steps)
    return recorder, engine


def replayed(recorder: FlightRecorder) -> list[Replayed]:
    return list(replay(lines(recorder.recording(), recorder.environment)))


@pytest.mark.parametrize("seed", range(4))
def test_every_decision_of_a_random_life_comes_out_the_same_again(seed: int) -> None:
    recorder, _ = recorded_story(seed)
    decisions = replayed(recorder)

    assert len(decisions) > 50
    assert any(each.recorded.startswith("node ") for each in decisions)
    assert any(not each.recorded.startswith("node ") for each in decisions)
    assert [each for each in decisions if not each.is_same] == []


@pytest.mark.parametrize("most", [40, 200])
def test_a_recording_that_has_forgotten_its_beginning_is_as_good(most: int) -> None:
    recorder, _ = recorded_story(1, most=most)
    decisions = replayed(recorder)

    assert 0 < len(decisions) < most
    assert [each for each in decisions if not each.is_same] == []


def decided(world: World, engine: Engine, name: str) -> Plan:
    state = engine.pre_filter(pod(name, claims=[name]), world.cache)
    assert not isinstance(state, Status)
    plan = engine.decide(state)
    assert isinstance(plan, Plan)
    return plan


def one_after_the_other() -> tuple[World, Engine, FlightRecorder]:
    world = World(*gpu_nodes(1, gpus=3), claim("a"), claim("b"))
    world.put(pod("a", claims=["a"]), pod("b", claims=["b"]))
    engine = Engine(environment(), check_every=0)
    engine.observer = recorder = FlightRecorder(world.cache, engine.environment)
    return world, engine, recorder


def test_devices_that_are_only_held_are_in_use_there_too() -> None:
    world, engine, recorder = one_after_the_other()
    first = decided(world, engine, "a")
    world.cache.hold("uid-a", first.held)
    world.cache.assume_pod(first.pod, first.node_name)
    decided(world, engine, "b")
    world.cache.release("uid-a")
    world.cache.forget_pod("uid-a")
    decided(world, engine, "b")

    texts = [each.recorded.rpartition("/")[2] for each in replayed(recorder)]
    assert texts == ["gpu-0", "gpu-1", "gpu-0"]
    assert all(each.is_same for each in replayed(recorder))


def test_a_decision_that_was_otherwise_is_told() -> None:
    world, engine, recorder = one_after_the_other()
    decided(world, engine, "a")
    written = b"".join(lines(recorder.recording(), recorder.environment))
    [was] = replay(written.replace(b'"device":"gpu-0"', b'"device":"gpu-2"').splitlines())

    assert not was.is_same
    assert was.recorded.endswith("gpu-2")
    assert was.again.endswith("gpu-0")


def test_a_bind_of_the_extender_is_a_decision_about_one_node() -> None:
    world = World(*gpu_nodes(2), claim("a"))
    waiting = pod("a", claims=["a"])
    world.put(waiting)
    engine = Engine(environment(Mode.EXTENDER), check_every=0)
    engine.observer = recorder = FlightRecorder(world.cache, engine.environment)
    engine.place(waiting, world.cache, "n01", from_memory=False)
    engine.place(waiting, world.cache, "n02", from_memory=False)

    [made] = replayed(recorder)  # a node that is not known is no decision
    assert made.is_same
    assert made.recorded.startswith("node n01 ")


def test_opaque_parameters_do_not_leave_the_process() -> None:
    secret = DeviceClaimConfiguration(
        opaque=OpaqueDeviceConfiguration(driver="d", parameters=msgspec.Raw(b'{"key":"canary"}'))
    )
    asking = claim("a")
    devices = msgspec.structs.replace(asking.spec.devices, config=(secret,))
    asking = msgspec.structs.replace(
        asking, spec=msgspec.structs.replace(asking.spec, devices=devices)
    )
    world = World(*gpu_nodes(1), asking)
    world.put(pod("a", claims=["a"]))
    engine = Engine(environment(), check_every=0)
    engine.observer = recorder = FlightRecorder(world.cache, engine.environment)
    plan = decided(world, engine, "a")
    world.cache.hold("uid-a", plan.held)
    world.bind(plan.pod, plan.node_name, dict(plan.allocations))
    written = b"".join(lines(recorder.recording(), recorder.environment))

    assert b"canary" not in written
    assert b'"opaque"' in written
    assert [each.is_same for each in replay(written.splitlines())] == [True]


def test_the_log_is_bounded_by_what_decisions_looked_at() -> None:
    world = World(*gpu_nodes(30), claim("a"))
    waiting = pod("a", claims=["a"])
    world.put(waiting)
    engine = Engine(environment(), check_every=0)
    engine.observer = recorder = FlightRecorder(world.cache, engine.environment, most=100)
    for _ in range(50):
        decided(world, engine, "a")
        world.put(node_object("n00", labels={"zone": "z"}))

    entries = recorder.recording().entries
    assert sum(1 + len(getattr(each, "looked_at", None) or ()) for each in entries) <= 100
    assert len(entries) > 3


HEADER = {
    "flightRecorder": 1,
    "mode": "standalone",
    "features": {},
    "policy": "FirstFit",
    "deviceStrategy": "MostAllocated",
    "budget": 0,
    "onNodeError": "reject",
    "bindingTimeoutSeconds": 600,
}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ([], "the file is empty"),
        (["nonsense"], "line 1: "),
        ([{"flightRecorder": 2}], "line 1: not a recording of version 1"),
        ([{**HEADER, "features": {"unheard": True}}], "line 1: "),
        ([HEADER, {"kind": "Unicorn", "type": "ADDED", "object": {}}], "line 2: "),
        ([HEADER, {"kind": "Pod", "type": "ADDED", "object": {"spec": 7}}], "line 2: Pod: spec: "),
        ([HEADER, {"decision": 1}], "line 2: "),
    ],
)
def test_what_is_no_recording_is_told_with_its_line(text: list[Any], problem: str) -> None:
    written = [each if isinstance(each, str) else json.dumps(each) for each in text]
    with pytest.raises(ReplayError) as caught:
        list(replay(line.encode() for line in written))
    assert str(caught.value).startswith(problem)
