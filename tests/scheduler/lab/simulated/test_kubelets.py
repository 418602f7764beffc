"""Kubelets: when pods start, when they end, and what must be true of their claims."""

import pytest

from scheduler.lab.simulated.claim_controller import ClaimController
from scheduler.lab.simulated.kubelets import Kubelets
from tests.scheduler.lab.simulated.world import CLAIMS, PODS, World, status


@pytest.fixture
def world() -> World:
    return World()


def kubelets(world: World, seconds: float | None = None) -> Kubelets:
    return Kubelets(world.client, world.clock, lambda _: seconds)


async def phase(world: World, name: str) -> str:
    return str(status(await world.get(f"{PODS}/{name}"))["phase"])


async def test_a_bound_pod_without_claims_runs(world: World) -> None:
    pod = await world.pod("p")
    agent = kubelets(world)
    await agent.sync_once()
    assert await phase(world, "p") == "Pending"
    await world.bind(pod)
    await agent.sync_once()
    running = await world.get(f"{PODS}/p")
    assert status(running)["phase"] == "Running"
    assert {held["type"]: held["status"] for held in status(running)["conditions"]} == {
        "PodScheduled": "True",
        "Ready": "True",
    }


async def test_a_pod_waits_for_its_claims(world: World) -> None:
    pod = await world.pod("p", "n1", gpu="c")
    uid = pod["metadata"]["uid"]
    agent = kubelets(world)
    await agent.sync_once()
    assert "does not exist" in agent.waiting[uid]
    await world.claim("c")
    await agent.sync_once()
    assert "not reserved" in agent.waiting[uid]
    await world.allocate("c", pod)
    await agent.sync_once()
    assert agent.waiting == {}
    assert await phase(world, "p") == "Running"


async def test_an_allocation_for_somebody_else_is_not_enough(world: World) -> None:
    pod = await world.pod("p", "n1", gpu="c")
    other = await world.pod("q", "n1", gpu="c")
    await world.claim("c")
    await world.allocate("c", other)
    agent = kubelets(world)
    await agent.sync_once()
    assert await phase(world, "q") == "Running"
    assert "not reserved" in agent.waiting[pod["metadata"]["uid"]]


async def test_a_pod_waits_for_the_claim_controller(world: World) -> None:
    await world.template()
    pod = await world.pod("p", "n1", gpu="template/t")
    agent = kubelets(world)
    await agent.sync_once()
    assert "not known" in agent.waiting[pod["metadata"]["uid"]]
    await ClaimController(world.client, world.clock).sync_once()
    [claim] = await world.names(CLAIMS)
    await world.allocate(claim, pod)
    await agent.sync_once()
    assert await phase(world, "p") == "Running"


async def test_a_pod_succeeds_when_its_time_is_over(world: World) -> None:
    await world.pod("p", "n1")
    agent = kubelets(world, 30)
    await agent.sync_once()
    assert agent.next_due() == 30
    await world.clock.advance(29)
    await agent.sync_once()
    assert await phase(world, "p") == "Running"
    await world.clock.advance(1)
    await agent.sync_once()
    assert await phase(world, "p") == "Succeeded"
    assert agent.next_due() is None


async def test_a_pod_succeeds_on_demand(world: World) -> None:
    pod = await world.pod("p", "n1")
    agent = kubelets(world)
    await agent.sync_once()
    agent.finish(pod["metadata"]["uid"])
    await agent.sync_once()
    assert await phase(world, "p") == "Succeeded"


async def test_a_deleted_pod_goes_before_its_grace_period_is_over(world: World) -> None:
    await world.pod("p", "n1")
    agent = kubelets(world)
    await agent.sync_once()
    await world.delete(f"{PODS}/p")
    assert await world.names(PODS) == ["p"]
    await agent.sync_once()
    assert await world.names(PODS) == []


async def test_other_nodes_are_left_alone(world: World) -> None:
    await world.pod("p", "n1")
    await world.pod("q", "n2")
    agent = Kubelets(world.client, world.clock, is_ours=lambda name: name == "n2")
    await agent.sync_once()
    assert (await phase(world, "p"), await phase(world, "q")) == ("Pending", "Running")


async def test_nodes_become_ready(world: World) -> None:
    taints = [{"key": "mine", "effect": "NoSchedule"}]
    await world.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "spec": {"taints": taints}})
    await kubelets(world).sync_once()
    assert (await world.get("/api/v1/nodes/n1"))["spec"]["taints"] == taints


async def test_one_device_prepared_for_two_claims_is_noticed(world: World) -> None:
    agent = kubelets(world)
    claims = []
    for name in ("a", "b"):
        pod = await world.pod(f"pod-{name}", "n1", gpu=name)
        claims.append((await world.claim(name))["metadata"]["uid"])
        await world.allocate(name, pod, device="gpu-7")
    await agent.sync_once()
    [found] = agent.double_uses
    assert found.device == ("d.example.com", "n1", "gpu-7")
    assert set(found.claims) == set(claims)


async def test_a_device_may_be_used_again_after_its_pod_has_ended(world: World) -> None:
    agent = kubelets(world)
    for name in ("a", "b"):
        pod = await world.pod(f"pod-{name}", "n1", gpu=name)
        await world.claim(name)
        await world.allocate(name, pod, device="gpu-7")
        await agent.sync_once()
        agent.finish(pod["metadata"]["uid"])
        await agent.sync_once()
    assert agent.double_uses == []


async def test_a_restarted_kubelet_takes_over_what_runs(world: World) -> None:
    await world.pod("p", "n1")
    await kubelets(world, 30).sync_once()
    again = kubelets(world, 10)
    await again.sync_once()
    assert again.next_due() == 10
