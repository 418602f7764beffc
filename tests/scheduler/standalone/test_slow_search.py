"""A claim that no search can settle quickly holds up neither the event loop nor other pods."""

import asyncio
import random
from dataclasses import replace

from allocator.features import Features
from scheduler.bootstrap.build import build_core, build_loop
from scheduler.config import AllocationSettings, Settings
from scheduler.framework.environment import Mode
from scheduler.leader import AlwaysLeader
from tests.scheduler.embedded import DRIVER, World, claims_path, pods_path, world

NUMA = f"{DRIVER}/numa"


async def hostile_cluster(here: World) -> None:
    """64 devices that all look alike to a claim that cannot be satisfied: 16 with distinct values of which there are 8."""
    await here.device_class()
    for node in ("node-1", "node-2"):
        await here.node(node)
        devices = [
            {"name": f"gpu-{index}", "attributes": {"numa": {"int": index % 8}}}
            for index in range(64)
        ]
        await here.gpus(node, 0, devices=devices)
    made = await here.claim("base", count=8)
    request = made["spec"]["devices"]["requests"][0]
    spec = {
        "devices": {
            "requests": [{**request, "name": "a"}, {**request, "name": "b"}],
            "constraints": [{"distinctAttribute": NUMA}],
        }
    }
    meta = {"name": "hostile", "namespace": "default"}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta}
    await here.create(claims_path(), {**body, "spec": spec})


async def condition(here: World, name: str) -> str:
    pod = await here.get(pods_path(name))
    for each in pod["status"].get("conditions", []):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return str(each["message"])
    return ""


async def test_other_pods_are_bound_while_a_hostile_claim_is_searched() -> None:
    async with world() as here:
        await hostile_cluster(here)
        settings = replace(Settings(), allocation=AllocationSettings(timeout_seconds=1.5))
        core = build_core(
            settings,
            here.admin,
            AlwaysLeader(),
            Features(),
            here.clock,
            random.Random(5),
            Mode.STANDALONE,
        )
        loop = build_loop(core)
        reflecting = asyncio.create_task(core.reflectors.run())
        await core.reflectors.synced.wait()
        running = asyncio.create_task(loop.run())
        try:
            await here.pod("hostile", "hostile")
            await asyncio.sleep(0.1)
            await here.claim("c")
            await here.pod("p", "c")
            async with asyncio.timeout(10.0):
                while not (await here.get(pods_path("p")))["spec"].get("nodeName"):
                    await asyncio.sleep(0.005)
                assert await condition(here, "hostile") == ""  # still being searched
                while not (message := await condition(here, "hostile")):
                    await asyncio.sleep(0.01)
            assert "timed out" in message
            assert not (await here.get(claims_path("hostile"))).get("status")
        finally:
            loop.stop()
            for task in (running, reflecting):
                task.cancel()
            await asyncio.gather(running, reflecting, return_exceptions=True)
