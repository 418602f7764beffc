"""Every device once: 100 nodes of 8 devices, 700 pods, then 800."""

from __future__ import annotations

import asyncio

import pytest

from e2e.harness.api import PODS
from e2e.harness.cluster import Cluster
from e2e.harness.judge import devices_of

NODES, DEVICES = 100, 8


@pytest.mark.own_plane
async def test_seven_hundred_pods_and_then_all_devices_exactly_once(cluster: Cluster) -> None:
    nodes = await cluster.add_nodes(NODES, devices=DEVICES)
    await cluster.template()
    loop = asyncio.get_running_loop()
    started = loop.time()

    bodies = [cluster.pod_body(f"p{i}", templates={"gpu": "gpu"}) for i in range(700)]
    await cluster.api.create_all(PODS, bodies)
    await cluster.all_bound(700, timeout_seconds=120)
    print(f"700 pods created and bound in {loop.time() - started:.1f} s")
    assert await cluster.findings() == []

    bodies = [cluster.pod_body(f"p{i}", templates={"gpu": "gpu"}) for i in range(700, 800)]
    await cluster.api.create_all(PODS, bodies)
    await cluster.all_bound(NODES * DEVICES, timeout_seconds=60)

    used = [device for claim in await cluster.claims() for device in devices_of(claim)]
    everything = {(cluster.driver, node, f"gpu-{i}") for node in nodes for i in range(DEVICES)}
    assert len(used) == len(everything)
    assert set(used) == everything
    # And one more has to wait.
    await cluster.pod("p800", templates={"gpu": "gpu"})
    await cluster.refused("p800")
