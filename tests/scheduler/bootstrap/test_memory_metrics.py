"""What the memory of answers is worth is on /metrics: lookups, searches, what is held and forgotten."""

import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from allocator.features import Features
from allocator.model.claims import DeviceRequest
from scheduler.bootstrap.build import Core, build_core
from scheduler.cache.store import EventType, WatchEvent
from scheduler.config import Settings
from scheduler.engine import Plan
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.environment import Mode
from scheduler.leader import AlwaysLeader
from scheduler.model import ClaimRecord, Kind
from tests.builders import claim, device_class, gpu_slice, request
from tests.fakes import FakeApiClient, FakeClock
from tests.pods import node_object, pod

NODES = ("n1", "n2", "n3")


@pytest.fixture
def core() -> Core:
    made = build_core(
        Settings(),
        FakeApiClient(),
        AlwaysLeader(),
        Features(),
        FakeClock(),
        random.Random(1),
        Mode.STANDALONE,
    )
    made.cache.replace(Kind.NODE, [node_object(name) for name in NODES], 1)
    made.cache.replace(
        Kind.RESOURCE_SLICE, [gpu_slice(name, "gpu-0", "gpu-1") for name in NODES], 1
    )
    made.cache.replace(Kind.DEVICE_CLASS, [device_class()], 1)
    return made


def decide(core: Core, name: str, wanted: DeviceRequest, version: int) -> None:
    record = ClaimRecord(claim(name, wanted), b"{}")
    core.cache.apply(WatchEvent(Kind.RESOURCE_CLAIM, EventType.ADDED, record, version))
    state = core.engine.pre_filter(pod(name, claims=[name]), core.cache)
    assert isinstance(state, CycleState)
    assert isinstance(core.engine.decide(state), Plan)


def shown(core: Core) -> dict[str, float]:
    """What /metrics says about searches and memory, without prefix."""
    families = text_string_to_metric_families(core.metrics.render()[0].decode())
    return {
        each.name.removeprefix("dra_scheduler_"): each.value
        for family in families
        for each in family.samples
        if "_memo_" in each.name or "_searches" in each.name
    }


def test_before_any_decision_everything_is_there_and_zero(core: Core) -> None:
    assert shown(core) == {
        "memo_lookups_total": 0,
        "searches_total": 0,
        "memo_mismatch_total": 0,
        "memo_evictions_total": 0,
        "memo_answers": 0,
        "memo_questions": 0,
        "memo_limit": 100_000,
    }


def test_a_hit_rate_can_be_computed_after_decisions(core: Core) -> None:
    decide(core, "p1", request(), 1)
    first = shown(core)
    assert first["searches_total"] >= 1
    decide(core, "p2", request(), 2)
    decide(core, "p3", request(), 3)
    last = shown(core)
    lookups = last["memo_lookups_total"] - first["memo_lookups_total"]
    searches = last["searches_total"] - first["searches_total"]
    assert lookups > 0
    assert 1 - searches / lookups == 1.0  # nothing has changed between the pods
    assert last["memo_questions"] == 1
    assert last["memo_answers"] >= 1
    assert last["memo_evictions_total"] == last["memo_mismatch_total"] == 0


def test_what_is_forgotten_to_make_room_is_counted(core: Core) -> None:
    decide(core, "p1", request(), 1)
    core.engine.memo.limit = 0
    decide(core, "p2", request("gpu", count=2), 2)
    last = shown(core)
    assert last["memo_questions"] == 1  # the one used last stays, whatever it weighs
    assert last["memo_evictions_total"] == 1
    assert last["memo_limit"] == 0


@pytest.mark.parametrize("name", ["memo_mismatch_total", "searches_total"])
def test_counts_follow_the_engine(core: Core, name: str) -> None:
    core.engine.mismatches = core.engine.searches = 7
    assert shown(core)[name] == 7
