"""The log of changes names every node that a new snapshot shows different; all of them where it cannot tell which."""

from collections.abc import Callable
from typing import Any

import pytest

from allocator.model.claims import DeviceRequestAllocationResult
from scheduler.cache.changes import ChangeLog
from scheduler.cache.cluster import ClusterCache
from scheduler.engine import Engine, Plan
from scheduler.framework.cycle_state import CycleState
from scheduler.model import ClusterSnapshot, Kind
from tests.builders import (
    claim,
    device,
    device_class,
    gpu_slice,
    only_node,
    resource_slice,
    taint,
    taint_rule,
    used,
)
from tests.pods import node_object, pod
from tests.scheduler.cache.objects import allocation, at, event, record
from tests.scheduler.world import World, environment

NODES = ("n1", "n2", "n3")
SLICE, RULE, POD = Kind.RESOURCE_SLICE, Kind.DEVICE_TAINT_RULE, Kind.POD
EVERYWHERE = resource_slice("everywhere", device("d"), pool="shared", all_nodes=True)
Step = Callable[[ClusterCache], None]


def seen(item: Any, kind: Kind, type_: str = "MODIFIED") -> Step:
    return lambda cache: cache.apply(event(at(item, 90), kind, type_))


def claimed(*results: DeviceRequestAllocationResult) -> Step:
    return lambda cache: cache.apply(event(record("c", 90, *results), Kind.RESOURCE_CLAIM, "ADDED"))


def hold(cache: ClusterCache) -> None:
    cache.hold("pod", {"uid-c": (claim("c"), allocation(used("gpu-0", pool="n2")))})


def many_slices(cache: ClusterCache) -> None:
    for number in range(300):
        more = resource_slice(f"more-{number}", device("d"), pool=f"more-{number}", node="n3")
        cache.apply(event(at(more, 100 + number), SLICE, "ADDED"))


CASES: dict[str, tuple[Step, set[str] | None]] = {
    "a node": (seen(node_object("n1", labels={"a": "b"}), Kind.NODE), {"n1"}),
    "a new node": (seen(node_object("n9"), Kind.NODE, "ADDED"), {"n9"}),
    "a node that is gone": (seen(node_object("n1"), Kind.NODE, "DELETED"), {"n1"}),
    "a pod": (seen(pod("p", node_name="n3"), POD, "ADDED"), {"n3"}),
    "a pod being bound": (lambda cache: cache.assume_pod(at(pod("q"), 99), "n3"), {"n3"}),
    "the slice of a node": (seen(gpu_slice("n2", "gpu-0", "gpu-1"), SLICE), {"n2"}),
    "a slice that is gone": (seen(gpu_slice("n2", "gpu-0"), SLICE, "DELETED"), {"n2"}),
    "a slice that moves": (
        seen(resource_slice("n1-gpus", device("gpu-0"), pool="n1", node="n3"), SLICE),
        {"n1", "n3"},
    ),
    "another slice of a pool": (
        seen(resource_slice("more", device("gpu-1"), pool="n1", node="n2"), SLICE, "ADDED"),
        {"n1", "n2"},
    ),
    "a slice for every node": (seen(EVERYWHERE, SLICE), None),
    "a slice by selector": (
        seen(
            resource_slice("some", device("d"), pool="some", selector=only_node("n1")),
            SLICE,
            "ADDED",
        ),
        None,
    ),
    "a rule for a device of one node": (
        seen(taint_rule("r", taint("k"), pool="n1", device="gpu-0"), RULE, "ADDED"),
        None,
    ),
    "an allocated claim": (claimed(used("gpu-0", pool="n1")), {"n1"}),
    "an allocation that is only decided": (hold, {"n2"}),
    "a claim that is not allocated": (claimed(), set()),
    "an allocation in a pool of all nodes": (
        claimed(used("d", pool="shared")),
        None,
    ),
    "an allocation of a pool without slices": (
        claimed(used("d", pool="gone")),
        set(),
    ),
    "more slices than are looked at one by one": (many_slices, None),
    "a class": (seen(device_class("other"), Kind.DEVICE_CLASS, "ADDED"), set()),
    "indexes made anew": (lambda cache: cache.rebuild(), None),
}


@pytest.fixture
def cache() -> ClusterCache:
    made = ClusterCache()
    made.replace(Kind.NODE, [at(node_object(name), 1) for name in NODES], 10)
    slices = [EVERYWHERE, *(gpu_slice(name, "gpu-0") for name in NODES)]
    made.replace(SLICE, [at(each, 1) for each in slices], 10)
    made.replace(Kind.DEVICE_CLASS, [at(device_class(), 1)], 10)
    return made


def since(after: ClusterSnapshot, before: ClusterSnapshot) -> set[str] | None:
    assert after.changes is not None
    nodes = after.changes.since(before.revision)
    return None if nodes is None else set(nodes)


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_told_with_the_nodes_that_it_touches(cache: ClusterCache, name: str) -> None:
    step, nodes = CASES[name]
    before = cache.snapshot()
    step(cache)
    assert since(cache.snapshot(), before) == nodes


def test_several_changes_are_told_together(cache: ClusterCache) -> None:
    first = cache.snapshot()
    cache.apply(event(at(node_object("n1"), 90), Kind.NODE))
    second = cache.snapshot()
    cache.apply(event(at(gpu_slice("n2", "gpu-0"), 90), SLICE))
    third = cache.snapshot()
    assert since(third, first) == {"n1", "n2"}
    assert since(third, second) == {"n2"}
    assert since(third, third) == set()


def test_what_is_older_than_the_log_may_be_all_nodes() -> None:
    log = ChangeLog(most=2)
    for revision in range(1, 5):
        log.note(revision, {f"n{revision}"})
    assert log.since(2) == frozenset({"n3", "n4"})
    assert log.since(1) is None


@pytest.mark.parametrize("device", ["gpu-0", None])
def test_a_rule_that_taints_the_device_of_one_node_is_seen_by_who_remembers_answers(
    device: str | None,
) -> None:
    """Left out of the log, the memory would say for ever that the node fits."""
    world = World(*(node_object(name) for name in NODES), device_class(), claim("c"))
    world.put(gpu_slice("n2", "gpu-0"))
    engine = Engine(environment())

    def chosen() -> str | None:
        state = engine.pre_filter(pod("p", claims=["c"]), world.cache)
        assert isinstance(state, CycleState)
        decision = engine.decide(state)
        return decision.node_name if isinstance(decision, Plan) else None

    assert chosen() == "n2"
    rule = taint_rule("r", taint("broken"), pool="n2", device=device)
    world.put(rule)
    assert chosen() is None
    world.remove(rule)
    assert chosen() == "n2"
