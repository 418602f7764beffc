"""Drivers, garbage collection, namespaces, Jobs and Deployments; and all of them running at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from allocator.features import Features
from scheduler.client import Rejected
from scheduler.lab.simulated import drivers
from scheduler.lab.simulated.claim_controller import ClaimController
from scheduler.lab.simulated.garbage import GarbageCollector, NamespaceController
from scheduler.lab.simulated.kubelets import Kubelets
from scheduler.lab.simulated.mirror import SLICES, Controller, Json
from scheduler.lab.simulated.workloads import DeploymentController, JobController
from scheduler.validation import validate_object
from tests.fakes import settle
from tests.scheduler.lab.simulated.world import CLAIMS, JOBS, PODS, World, status

NODES = "/api/v1/nodes"


@pytest.fixture
def world() -> World:
    return World()


def everything(node: str) -> list[Json]:
    return [
        *drivers.gpus(node),
        *drivers.nics(node),
        *drivers.partitionable_cards(node),
        *drivers.shared_cards(node),
    ]


@pytest.mark.parametrize("published", everything("n1"), ids=lambda obj: obj["metadata"]["name"])
def test_what_drivers_publish_is_valid(published: Json) -> None:
    assert validate_object(published, features=Features()) == []


def test_gpus_and_nics_share_pcie_roots() -> None:
    def roots(published: list[Json]) -> list[str]:
        devices = published[0]["spec"]["devices"]
        return [device["attributes"][drivers.PCIE_ROOT]["string"] for device in devices]

    assert set(roots(drivers.gpus("n1"))) == set(roots(drivers.nics("n1")))
    assert len(set(roots(drivers.gpus("n1")))) == 4


def test_numa_nodes_hold_half_of_the_gpus_each() -> None:
    [published] = drivers.gpus("n1", 8)
    numa = [device["attributes"]["numa"]["int"] for device in published["spec"]["devices"]]
    assert numa == [0, 0, 0, 0, 1, 1, 1, 1]


async def test_drivers_publish_for_each_node_and_take_back(world: World) -> None:
    agent = drivers.Drivers(world.client, world.clock, lambda node: drivers.gpus(_name(node), 2))
    for name in ("n1", "n2"):
        await world.create(NODES, {"metadata": {"name": name}})
    await agent.sync_once()
    published = await world.items(SLICES)
    assert [item["spec"]["nodeName"] for item in published] == ["n1", "n2"]
    assert published[0]["metadata"]["ownerReferences"][0]["name"] == "n1"
    await world.create(SLICES, drivers.gpus("n3")[0])
    revision = world.server.store.revision
    await agent.sync_once()
    assert world.server.store.revision == revision
    await world.delete(f"{NODES}/n1")
    await agent.sync_once()
    assert await world.names(SLICES) == ["n2-gpu.example.com-0", "n3-gpu.example.com-0"]


async def test_a_slice_that_differs_is_put_right_with_a_new_generation(world: World) -> None:
    await world.create(NODES, {"metadata": {"name": "n1"}})
    await drivers.Drivers(
        world.client, world.clock, lambda node: drivers.gpus(_name(node), 2)
    ).sync_once()
    more = drivers.Drivers(world.client, world.clock, lambda node: drivers.gpus(_name(node), 3))
    await world.steps(more)
    [published] = await world.items(SLICES)
    assert len(published["spec"]["devices"]) == 3
    assert published["spec"]["pool"]["generation"] == 2


def _name(node: Json) -> str:
    return str(node["metadata"]["name"])


def owner(obj: Json, kind: str, api_version: str = "v1") -> Json:
    meta = obj["metadata"]
    return {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}


async def test_dependents_follow_their_last_owner(world: World) -> None:
    pods = [await world.pod(name) for name in ("p", "q")]
    await world.claim("one", ownerReferences=[owner(pods[0], "Pod")])
    await world.claim("both", ownerReferences=[owner(pod, "Pod") for pod in pods])
    await world.claim("free")
    collector = GarbageCollector(world.client, world.clock)
    await collector.sync_once()
    assert await world.names(CLAIMS) == ["both", "free", "one"]
    await world.delete(f"{PODS}/p")
    await collector.sync_once()
    assert await world.names(CLAIMS) == ["both", "free"]
    await world.delete(f"{PODS}/q")
    await collector.sync_once()
    assert await world.names(CLAIMS) == ["free"]


async def test_an_owner_of_the_same_name_is_another_owner(world: World) -> None:
    pod = await world.pod("p")
    await world.claim("c", ownerReferences=[owner(pod, "Pod")])
    await world.delete(f"{PODS}/p")
    await world.pod("p")
    await GarbageCollector(world.client, world.clock).sync_once()
    assert await world.names(CLAIMS) == []


async def test_an_owner_of_a_kind_that_is_not_known_is_left_to_others(world: World) -> None:
    reference = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"}
    await world.claim("c", ownerReferences=[reference])
    await GarbageCollector(world.client, world.clock).sync_once()
    assert await world.names(CLAIMS) == ["c"]


async def test_foreground_deletion_waits_for_dependents(world: World) -> None:
    pod = await world.pod("p")
    await world.claim("c", ownerReferences=[owner(pod, "Pod")], finalizers=["example.com/hold"])
    collector = GarbageCollector(world.client, world.clock)
    await world.delete(f"{PODS}/p", propagationPolicy="Foreground")
    await world.steps(collector)
    assert await world.names(PODS) == ["p"]
    claim = await world.get(f"{CLAIMS}/c")
    assert claim["metadata"]["deletionTimestamp"]
    del claim["metadata"]["finalizers"]
    await world.write("PUT", f"{CLAIMS}/c", claim)
    await world.steps(collector)
    assert await world.names(PODS) == []


async def test_orphans_stay(world: World) -> None:
    pod = await world.pod("p")
    await world.claim("c", ownerReferences=[owner(pod, "Pod")])
    await world.delete(f"{PODS}/p", propagationPolicy="Orphan")
    await world.steps(GarbageCollector(world.client, world.clock))
    assert await world.names(PODS) == []
    assert "ownerReferences" not in (await world.get(f"{CLAIMS}/c"))["metadata"]


async def test_a_namespace_ends_with_all_that_is_in_it(world: World) -> None:
    await world.create("/api/v1/namespaces", {"metadata": {"name": "gone"}})
    await world.create(
        "/api/v1/namespaces/gone/pods",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    )
    await world.pod("stays")
    await world.delete("/api/v1/namespaces/gone")
    await world.steps(NamespaceController(world.client, world.clock))
    assert "gone" not in await world.names("/api/v1/namespaces")
    assert await world.names("/api/v1/pods") == ["stays"]


async def job(world: World, **spec: Any) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return await world.create(
        JOBS, {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}
    )


async def test_a_job_runs_as_many_pods_as_it_wants_at_once(world: World) -> None:
    made = await job(world, completions=5, parallelism=2)
    controller = JobController(world.client, world.clock)
    await world.steps(controller)
    pods = await world.items(PODS)
    assert len(pods) == 2
    assert pods[0]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert pods[0]["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert status(await world.get(f"{JOBS}/j"))["active"] == 2


async def test_a_job_is_complete_when_enough_pods_succeeded(world: World) -> None:
    await job(world, completions=3, parallelism=2)
    controller = JobController(world.client, world.clock)
    for _ in range(5):
        await controller.sync_once()
        for pod in await world.items(PODS):
            if status(pod)["phase"] == "Pending":
                await world.phase(pod["metadata"]["name"], "Succeeded")
    held = status(await world.get(f"{JOBS}/j"))
    assert len(await world.items(PODS)) == 3
    assert (held["succeeded"], held["active"]) == (3, 0)
    assert held["conditions"][-1]["type"] == "Complete"


async def test_a_job_gives_up_after_too_many_failures(world: World) -> None:
    await job(world, backoffLimit=2)
    controller = JobController(world.client, world.clock)
    for _ in range(6):
        await controller.sync_once()
        for pod in await world.items(PODS):
            await world.phase(pod["metadata"]["name"], "Failed")
    held = status(await world.get(f"{JOBS}/j"))
    assert len(await world.items(PODS)) == 3
    assert held["conditions"][-1]["type"] == "Failed"


async def test_a_suspended_job_waits(world: World) -> None:
    await job(world, suspend=True)
    await world.steps(JobController(world.client, world.clock))
    assert await world.items(PODS) == []


async def test_a_deployment_keeps_its_number_of_pods(world: World) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    body: Json = {
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    made = await world.create(path, body)
    controller = DeploymentController(world.client, world.clock)
    await world.steps(controller)
    names = await world.names(PODS)
    assert len(names) == 3
    await world.delete(f"{PODS}/{names[0]}")
    await world.steps(controller)
    assert len(await world.names(PODS)) == 3
    made["spec"]["replicas"] = 1
    await world.write("PUT", f"{path}/d", made)
    await world.steps(controller)
    assert len(await world.names(PODS)) == 1


@asynccontextmanager
async def running(*controllers: Controller) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(controller.run()) for controller in controllers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_all_of_them_together_bring_a_job_to_its_end(world: World) -> None:
    kubelets = Kubelets(world.client, world.clock, lambda _: 20)
    await world.create(NODES, {"metadata": {"name": "n1"}})
    await world.template()
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        }
    }
    async with running(
        ClaimController(world.client, world.clock),
        GarbageCollector(world.client, world.clock),
        JobController(world.client, world.clock),
        kubelets,
        drivers.Drivers(world.client, world.clock, lambda node: drivers.gpus(_name(node))),
    ):
        await world.create(
            JOBS,
            {
                "metadata": {"name": "j"},
                "spec": {"template": template, "completions": 2, "parallelism": 2},
            },
        )
        await _soon(world, lambda pods: len(pods) == 2 and all(map(_has_claim, pods)))
        for index, pod in enumerate(await world.items(PODS)):
            [entry] = status(pod)["resourceClaimStatuses"]
            await world.allocate(entry["resourceClaimName"], pod, device=f"gpu-{index}")
            await world.bind(pod)
        await _soon(world, lambda pods: all(status(pod)["phase"] == "Running" for pod in pods))
        await world.clock.advance(25)
        await _soon(world, lambda pods: all(status(pod)["phase"] == "Succeeded" for pod in pods))
        await settle()
        assert await world.items(CLAIMS) == []
        assert status(await world.get(f"{JOBS}/j"))["conditions"][-1]["type"] == "Complete"
        await world.delete(f"{JOBS}/j")
        await _soon(world, lambda pods: not pods)
    assert kubelets.double_uses == []


def _has_claim(pod: Json) -> bool:
    return bool(status(pod).get("resourceClaimStatuses"))


async def _soon(world: World, holds: Any) -> None:
    for _ in range(200):
        if holds(await world.items(PODS)):
            await settle()
            return
        await settle()
    raise AssertionError(await world.items(PODS))


async def test_a_controller_survives_a_server_that_refuses(world: World) -> None:
    class Refusing:
        """Refuses the first writes."""

        def __init__(self) -> None:
            self.left = 3
            self.get = world.client.get
            self.watch = world.client.watch
            self.aclose = world.client.aclose

        async def write(self, *args: Any, **kwargs: Any) -> Any:
            if self.left:
                self.left -= 1
                return Rejected(429, "TooManyRequests", "slow down")
            return await world.client.write(*args, **kwargs)

    await world.template()
    await world.pod("p", gpu="template/t")
    async with running(ClaimController(Refusing(), world.clock)):
        for _ in range(10):
            await world.clock.advance(5)
    assert len(await world.items(CLAIMS)) == 1


async def test_a_mirror_goes_on_after_the_history_was_cut(world: World) -> None:
    controller = ClaimController(world.client, world.clock)
    await world.template()
    async with running(controller):
        await settle()
        await world.pod("p", gpu="template/t")
        world.server.store.compact()
        world.server.store._notify()
        for _ in range(4):
            await world.clock.advance(1)
        await world.pod("q", gpu="template/t")
        for _ in range(4):
            await world.clock.advance(1)
    owners = [item["metadata"]["ownerReferences"][0]["name"] for item in await world.items(CLAIMS)]
    assert sorted(owners) == ["p", "q"]
