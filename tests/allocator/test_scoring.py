"""Scores of nodes."""

import pytest
from hypothesis import given

from allocator import Allocated, allocate
from allocator.model.claims import AllocationResult, DeviceAllocationResult
from allocator.scoring import STRATEGIES, normalized, prioritized_list, raw_prioritized_list
from tests.allocator.support import CEL, DEFAULTS, allocations, ask
from tests.builders import (
    claim,
    device,
    node,
    request,
    resource_slice,
    share_id_of,
    snapshot,
    sub_request,
    taint,
    toleration,
    used,
)
from tests.builders import first_available as first
from tests.strategies import claims, clusters


def plain(*names: str):
    return resource_slice("s", *(device(name) for name in names))


@pytest.mark.parametrize(("failing", "want"), [(0, 8), (1, 7), (7, 1)])
def test_an_earlier_alternative_scores_higher(failing: int, want: int) -> None:
    alternatives = [
        sub_request(f"s{index}", "false" if index < failing else "true") for index in range(8)
    ]
    wanted = [claim("c", first("r", *alternatives), request("plain"))]
    found = allocations(ask(snapshot(plain("a", "b")), *wanted))

    assert raw_prioritized_list(wanted, found) == want


def test_scores_of_all_claims_add_up() -> None:
    wanted = [claim(name, first("r", sub_request("s"))) for name in "xy"]
    found = allocations(ask(snapshot(plain("a", "b")), *wanted))

    assert raw_prioritized_list(wanted, found) == 16


def test_an_alternative_without_devices_scores_nothing() -> None:
    wanted = [claim("c", first("r", sub_request("s", count=0)))]
    found = allocations(ask(snapshot(), *wanted))

    assert raw_prioritized_list(wanted, found) == 0


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ({"a": 8, "b": 7, "c": 0}, {"a": 100, "b": 87, "c": 0}),
        ({"a": 0, "b": 0}, {"a": 0, "b": 0}),
        ({}, {}),
    ],
)
def test_raw_scores_become_parts_of_a_hundred(raw, want) -> None:
    assert normalized(raw) == want
    assert prioritized_list(raw) == want


def scored(name: str, *devices: str, in_use=(), taints=()) -> int:
    slices = resource_slice(
        "s", *(device(d, taints=[taint("sick")] if d in taints else None) for d in devices)
    )
    world = snapshot(slices, in_use=in_use)
    wanted = claim("c", request(tolerations=[toleration(operator="Exists")]))
    return STRATEGIES[name](allocations(ask(world, wanted)), node(), world)


def test_packing_prefers_the_fuller_node() -> None:
    fuller = scored("MostAllocated", "a", "b", "c", "d", in_use=[used("a"), used("b")])

    assert fuller == 75
    assert scored("MostAllocated", "a", "b", "c", "d") == 25


def test_spreading_prefers_the_emptier_node() -> None:
    emptier = scored("LeastAllocated", "a", "b", "c", "d")

    assert emptier == 75
    assert scored("LeastAllocated", "a", "b", "c", "d", in_use=[used("a"), used("b")]) == 25


def test_devices_without_taints_are_preferred() -> None:
    assert scored("FewestTainted", "a", "b") == 100
    assert scored("FewestTainted", "a", "b", taints=["a"]) == 0


def test_no_preference_tells_no_nodes_apart() -> None:
    assert scored("None", "a", "b") == scored("None", "a", in_use=[used("x")]) == 0


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_node_without_devices_has_a_score_as_well(name: str) -> None:
    nothing = [AllocationResult(devices=DeviceAllocationResult())]

    assert 0 <= STRATEGIES[name](nothing, node(), snapshot()) <= 100


@given(cluster=clusters(), wanted=claims())
def test_scores_are_between_0_and_100_and_repeat(cluster, wanted) -> None:
    world, where = cluster.snapshot(), node("node-1", zone="a")
    outcome = allocate(
        wanted, where, world, features=DEFAULTS, cel=CEL, new_share_id=share_id_of, budget=100_000
    )
    if isinstance(outcome, Allocated):
        for strategy in STRATEGIES.values():
            score = strategy(outcome.allocations, where, world)
            assert 0 <= score <= 100
            assert score == strategy(outcome.allocations, where, world)
