"""The claim controller, case by case of docs/design/claims.md#claim-controller."""

import json
import re

import pytest

from scheduler.client import Committed
from scheduler.lab.simulated.claim_controller import ClaimController, claim_base_name
from tests.opaque import HIDDEN, PLAIN, UNUSUAL, allocation, claim_body
from tests.scheduler.lab.simulated.world import CLAIMS, FINALIZER, PODS, World, status


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def controller(world: World) -> ClaimController:
    return ClaimController(world.client, world.clock)


async def claim_names(world: World, pod: str) -> dict[str, str]:
    found = await world.get(f"{PODS}/{pod}")
    entries = status(found).get("resourceClaimStatuses") or ()
    return {entry["name"]: entry["resourceClaimName"] for entry in entries}


def test_names_are_cut_in_proportion() -> None:
    assert claim_base_name("pod", "gpu") == "pod-gpu-"
    long = claim_base_name("p" * 100, "e" * 50)
    assert len(long) == 57
    assert re.fullmatch(r"p{36}-e{19}-", long)


async def test_a_template_becomes_a_claim_of_the_pod(
    world: World, controller: ClaimController
) -> None:
    await world.template()
    pod = await world.pod("p", gpu="template/t")
    await controller.sync_once()
    [claim] = await world.items(CLAIMS)
    meta = claim["metadata"]
    assert re.fullmatch(r"p-gpu-[a-z0-9]{5}", meta["name"])
    assert meta["labels"] == {"made": "from-template"}
    assert meta["annotations"] == {"note": "kept", "resource.kubernetes.io/pod-claim-name": "gpu"}
    [owner] = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (
        "Pod",
        pod["metadata"]["uid"],
        True,
    )
    assert await claim_names(world, "p") == {"gpu": meta["name"]}


async def test_it_settles(world: World, controller: ClaimController) -> None:
    await world.template()
    await world.pod("p", gpu="template/t", nic="template/t")
    await world.steps(controller)
    revision = world.server.store.revision
    await world.steps(controller)
    assert world.server.store.revision == revision
    assert len(await world.items(CLAIMS)) == 2


async def test_a_crash_before_the_pod_status_makes_no_second_claim(
    world: World, controller: ClaimController
) -> None:
    await world.template()
    pod = await world.pod("p", gpu="template/t")
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "uid": pod["metadata"]["uid"],
        "controller": True,
    }
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    await world.claim("p-gpu-abcde", ownerReferences=[owner], annotations=annotations)
    await controller.sync_once()
    assert await world.names(CLAIMS) == ["p-gpu-abcde"]
    assert await claim_names(world, "p") == {"gpu": "p-gpu-abcde"}


async def test_a_claim_that_vanished_is_made_again(
    world: World, controller: ClaimController
) -> None:
    await world.template()
    await world.pod("p", gpu="template/t")
    await controller.sync_once()
    [before] = await world.names(CLAIMS)
    await world.delete(f"{CLAIMS}/{before}")
    await controller.sync_once()
    [after] = await world.names(CLAIMS)
    assert after != before
    assert await claim_names(world, "p") == {"gpu": after}


async def test_without_a_template_there_is_an_event_and_later_a_claim(
    world: World, controller: ClaimController
) -> None:
    await world.pod("p", gpu="template/t")
    await world.steps(controller)
    [event] = await world.items("/api/v1/namespaces/default/events")
    assert event["reason"] == "FailedResourceClaimCreation"
    await world.template()
    await controller.sync_once()
    assert len(await world.items(CLAIMS)) == 1


async def test_a_pod_being_deleted_gets_no_claim(world: World, controller: ClaimController) -> None:
    await world.template()
    await world.pod("p", "n1", gpu="template/t")
    await world.delete(f"{PODS}/p")
    await controller.sync_once()
    assert await world.items(CLAIMS) == []


async def test_a_pod_that_is_on_a_node_already_is_let_in(
    world: World, controller: ClaimController
) -> None:
    first = await world.pod("first", "n1", gpu="shared")
    second = await world.pod("second", "n1", gpu="shared")
    await world.claim("shared")
    await world.allocate("shared", first)
    await controller.sync_once()
    reserved = status(await world.get(f"{CLAIMS}/shared"))["reservedFor"]
    assert [consumer["uid"] for consumer in reserved] == [
        first["metadata"]["uid"],
        second["metadata"]["uid"],
    ]


async def test_it_never_allocates(world: World, controller: ClaimController) -> None:
    await world.pod("p", "n1", gpu="c")
    await world.claim("c")
    await world.steps(controller)
    assert status(await world.get(f"{CLAIMS}/c")) == {}


async def test_the_last_reservation_frees_the_devices(
    world: World, controller: ClaimController
) -> None:
    pod = await world.pod("p", "n1", gpu="c")
    await world.claim("c")
    await world.allocate("c", pod)
    await world.phase("p", "Succeeded")
    await world.steps(controller)
    claim = await world.get(f"{CLAIMS}/c")
    assert not status(claim).get("allocation")
    assert not status(claim).get("reservedFor")
    assert "finalizers" not in claim["metadata"]


async def test_a_claim_that_others_use_stays_allocated(
    world: World, controller: ClaimController
) -> None:
    pods = [await world.pod(name, "n1", gpu="c") for name in ("p", "q")]
    await world.claim("c")
    await world.allocate("c", *pods)
    await world.phase("p", "Failed")
    await world.steps(controller)
    claim = await world.get(f"{CLAIMS}/c")
    assert [consumer["name"] for consumer in status(claim)["reservedFor"]] == ["q"]
    assert status(claim)["allocation"]


async def test_an_allocation_without_finalizer_is_left(
    world: World, controller: ClaimController
) -> None:
    pod = await world.pod("p", "n1", gpu="c")
    await world.claim("c")
    claim = await world.allocate("c", pod)
    del claim["metadata"]["finalizers"]
    await world.write("PUT", f"{CLAIMS}/c", claim)
    await world.phase("p", "Succeeded")
    await world.steps(controller)
    claim = await world.get(f"{CLAIMS}/c")
    assert not status(claim).get("reservedFor")
    assert status(claim)["allocation"]


async def test_an_allocation_that_was_never_reserved_leaks(
    world: World, controller: ClaimController
) -> None:
    await world.claim("c")
    await world.allocate("c")
    await world.steps(controller)
    claim = await world.get(f"{CLAIMS}/c")
    assert status(claim)["allocation"]
    assert claim["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.parametrize("how", ["made up", "replaced", "gone before it was bound"])
async def test_reservations_of_pods_that_are_not_there_go(
    world: World, controller: ClaimController, how: str
) -> None:
    pod = await world.pod("p", gpu="c")
    await world.claim("c")
    consumer = {**pod, "metadata": {**pod["metadata"]}}
    if how == "made up":
        consumer["metadata"].update(name="nobody", uid="u")
    await world.allocate("c", consumer)
    if how == "replaced":
        await world.delete(f"{PODS}/p")
        await world.pod("p", gpu="c")
    elif how == "gone before it was bound":
        await world.delete(f"{PODS}/p")
    await world.steps(controller)
    assert not status(await world.get(f"{CLAIMS}/c")).get("allocation")


async def test_reservations_of_unknown_kinds_stay(
    world: World, controller: ClaimController
) -> None:
    await world.claim("c")
    claim = await world.allocate("c")
    consumer = {"apiGroup": "example.com", "resource": "things", "name": "x", "uid": "u"}
    claim["status"]["reservedFor"] = [consumer]
    await world.write("PUT", f"{CLAIMS}/c/status", claim)
    await world.steps(controller)
    assert status(await world.get(f"{CLAIMS}/c"))["reservedFor"] == [consumer]


async def test_a_deleted_claim_goes_when_nobody_uses_it(
    world: World, controller: ClaimController
) -> None:
    pod = await world.pod("p", "n1", gpu="c")
    await world.claim("c")
    await world.allocate("c", pod)
    await world.delete(f"{CLAIMS}/c")
    await world.steps(controller)
    assert status(await world.get(f"{CLAIMS}/c"))["allocation"]
    await world.phase("p", "Succeeded")
    await world.steps(controller)
    assert await world.names(CLAIMS) == []


# The mirror is of decoded objects.
TEXTS = {
    name: text
    for name, text in {**PLAIN, **UNUSUAL, **HIDDEN}.items()
    if name not in ("no UTF-8", "300 deep")
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_a_claim_is_given_up_whatever_its_parameters_are(
    world: World, controller: ClaimController, text: bytes
) -> None:
    first, second = await world.pod("p", gpu="c"), await world.pod("q", gpu="c")
    finalizers = b'"name":"c","finalizers":["%b"]' % FINALIZER.encode()
    body = claim_body("c", text).replace(b'"name":"c"', finalizers, 1)
    assert isinstance(await world.client.write("POST", CLAIMS, body), Committed)
    consumers = [
        {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        for pod in (first, second)
    ]
    reserved = b'{"metadata":{"name":"c"},"status":{"allocation":%b,"reservedFor":%b}}' % (
        allocation(text),
        json.dumps(consumers).encode(),
    )
    written = await world.client.write("PUT", f"{CLAIMS}/c/status", reserved)
    assert isinstance(written, Committed), written
    await world.phase("p", "Succeeded")
    await world.steps(controller)
    [left] = status(await world.get(f"{CLAIMS}/c"))["reservedFor"]
    assert left["name"] == "q"
    await world.delete(f"{CLAIMS}/c")
    await world.phase("q", "Succeeded")
    await world.steps(controller)
    assert await world.names(CLAIMS) == []


async def test_the_claim_of_a_finished_pod_is_deleted(
    world: World, controller: ClaimController
) -> None:
    await world.template()
    pod = await world.pod("p", gpu="template/t")
    await controller.sync_once()
    [name] = await world.names(CLAIMS)
    await world.allocate(name, pod)
    await world.bind(pod)
    await world.phase("p", "Succeeded")
    await world.steps(controller)
    assert await world.names(CLAIMS) == []


async def test_a_claim_of_a_user_outlives_its_pods(
    world: World, controller: ClaimController
) -> None:
    pod = await world.pod("p", "n1", gpu="c")
    await world.claim("c")
    await world.allocate("c", pod)
    await world.phase("p", "Succeeded")
    await world.steps(controller)
    assert (await world.get(f"{CLAIMS}/c"))["spec"]["devices"]["requests"][0]["name"] == "gpu"
