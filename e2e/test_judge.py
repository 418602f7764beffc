"""The judge finds what it is there to find: one planted fault for each of its rules."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from e2e.harness import objects
from e2e.harness.api import Object
from e2e.harness.judge import judge
from e2e.harness.recorder import Change, Recorder

World = dict[str, list[Object]]

SELECTOR: Object = {
    "nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    ]
}


def allocated_claim(name: str, device: str, pod_uid: str) -> Object:
    body = objects.claim("ns", name, objects.request("class"), finalizer=True)
    body["metadata"]["uid"] = f"uid-of-{name}"
    result = {"request": "gpu", "driver": "d", "pool": "n1", "device": device}
    body["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": SELECTOR,
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        },
        "reservedFor": [{"resource": "pods", "name": "a", "uid": pod_uid}],
    }
    return body


def sound_world() -> World:
    pod = objects.pod("ns", "a", scheduler="s", claims={"gpu": "c1"})
    pod["metadata"]["uid"] = "uid-a"
    pod["spec"]["nodeName"] = "n1"
    devices = [objects.device("gpu-0"), objects.device("gpu-1")]
    return {
        "pods": [pod],
        "claims": [allocated_claim("c1", "gpu-0", "uid-a"), allocated_claim("c2", "gpu-1", "x")],
        "nodes": [objects.node("n1"), objects.node("n2")],
        "slices": [objects.resource_slice("s", "d", devices, node="n1")],
    }


def test_a_sound_world_has_no_findings() -> None:
    assert judge(**sound_world()) == []


def result(world: World, claim: int) -> Object:
    found: Object = world["claims"][claim]["status"]["allocation"]["devices"]["results"][0]
    return found


def device_twice(world: World) -> None:
    result(world, 1)["device"] = "gpu-0"


def exclusive_and_shared(world: World) -> None:
    result(world, 1).update(device="gpu-0", shareID="7")


def no_finalizer(world: World) -> None:
    del world["claims"][0]["metadata"]["finalizers"]


def finalizer_twice(world: World) -> None:
    world["claims"][0]["metadata"]["finalizers"] *= 2


def no_timestamp(world: World) -> None:
    del world["claims"][0]["status"]["allocation"]["allocationTimestamp"]


def unknown_device(world: World) -> None:
    result(world, 0)["device"] = "gpu-9"


def not_allocated(world: World) -> None:
    world["claims"][0]["status"] = {}


def not_reserved(world: World) -> None:
    world["claims"][0]["status"]["reservedFor"][0]["uid"] = "somebody"


def wrong_node(world: World) -> None:
    world["pods"][0]["spec"]["nodeName"] = "n2"


def no_such_node(world: World) -> None:
    world["pods"][0]["spec"]["nodeName"] = "n3"


def no_such_claim(world: World) -> None:
    world["pods"][0]["spec"]["resourceClaims"][0]["resourceClaimName"] = "c3"


def claim_not_made_yet(world: World) -> None:
    world["pods"][0]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]


def too_many_consumers(world: World) -> None:
    world["claims"][0]["status"]["reservedFor"] += [{"uid": str(i)} for i in range(256)]


def claim_of_another_pod(world: World) -> None:
    owner = {"kind": "Pod", "name": "b", "uid": "uid-b", "controller": True}
    world["claims"][0]["metadata"]["ownerReferences"] = [owner]


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (device_twice, "S1"),
        (exclusive_and_shared, "S1"),
        (no_finalizer, "S7"),
        (finalizer_twice, "S7"),
        (no_timestamp, "timestamp"),
        (unknown_device, "S4"),
        (not_allocated, "S5"),
        (not_reserved, "S5"),
        (wrong_node, "S5"),
        (no_such_node, "S6"),
        (no_such_claim, "S5"),
        (claim_not_made_yet, "S5"),
        (too_many_consumers, "S8"),
        (claim_of_another_pod, "S5"),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[World], None], rule: str) -> None:
    world = sound_world()

    plant(world)

    assert rule in {finding.rule for finding in judge(**world)}


def test_two_shares_of_one_device_and_admin_access_are_no_conflict() -> None:
    world = sound_world()
    result(world, 0)["shareID"] = "1"
    result(world, 1).update(device="gpu-0", shareID="2")
    admin = allocated_claim("c3", "gpu-0", "y")
    admin["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    world["claims"].append(admin)

    assert judge(**world) == []


def history(*versions: Object) -> Recorder:
    changes = []
    for number, version in enumerate(versions, start=1):
        body = copy.deepcopy(version)
        body["metadata"]["resourceVersion"] = str(number)
        changes.append(Change("MODIFIED", "ResourceClaim", body))
    return Recorder(changes)


def test_the_history_shows_an_allocation_that_was_never_reserved() -> None:
    before = objects.claim("ns", "c1", finalizer=True)
    before["metadata"]["uid"] = "uid-of-c1"
    bare = allocated_claim("c1", "gpu-0", "uid-a")
    bare["status"]["reservedFor"] = []

    assert [finding.rule for finding in history(before, bare).findings()] == ["S10"]


def test_the_history_shows_a_device_that_was_held_twice_for_a_moment() -> None:
    first, second = (allocated_claim(name, "gpu-0", name) for name in ("c1", "c2"))
    freed = copy.deepcopy(second)
    freed["status"] = {}

    assert [finding.rule for finding in history(first, second, freed).findings()] == ["S1"]
