"""Devices that count in cpu of their node, with the gate on everywhere: what is written, and who has to wait."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from e2e.conftest import VERSION
from e2e.harness.api import MERGE, NODES, SLICES, Object
from e2e.harness.cluster import Cluster
from e2e.harness.controlplane import ControlPlane, build
from e2e.harness.mode import Mode, Name
from e2e.harness.proxy import FaultProxy
from e2e.harness.target import Target

GATE = "DRANodeAllocatableResources=true"

pytestmark = [
    pytest.mark.own_plane,
    pytest.mark.skipif(VERSION in {"1.34", "1.35"}, reason="the gate came with 1.36"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def gated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    """A control plane of its own, with the gate."""
    folder = tmp_path_factory.mktemp("gated")
    async with ControlPlane(await build(VERSION), folder, VERSION, GATE) as plane:
        yield Target(plane.admin, folder, plane, VERSION)


def cpus(name: str, cpu: str) -> Object:
    """A device that stands for some cpu, and costs each container that uses it a little."""
    counted = {"mapping": {"deviceMultiplier": cpu}, "overhead": {"perContainer": "100m"}}
    return {"name": name, "nodeAllocatableResources": {"cpu": counted}}


@pytest.mark.parametrize("name", ["standalone", "safe", "fast"])
async def test_what_devices_count_is_written_and_waited_for(gated: Target, name: Name) -> None:
    proxy = FaultProxy(gated.admin.server, gated.admin.tls)
    async with (
        Mode.running(name, gated, proxy) as mode,
        Cluster.prepared(gated.admin, f"counted-{name}", mode.scheduler_name) as cluster,
    ):
        [node] = await cluster.add_nodes(1, allocatable={"cpu": "6"})
        declared: Object = {"status": {"declaredFeatures": ["DRANodeAllocatableResources"]}}
        await gated.admin.patch(NODES, node, declared, subresource="status", content_type=MERGE)
        cards = [cpus("cpu-0", "4"), cpus("cpu-1", "4")]
        await cluster.create(SLICES, cluster.slice(node, cards))
        for claim in ("one", "two"):
            await cluster.claim(claim)

        await cluster.pod("a", claims={"cpu": "one"}, requests={"cpu": "1"})
        [pod] = await cluster.bound("a")
        assert pod["status"]["nodeAllocatableResourceClaimStatuses"] == [
            {
                "resourceClaimName": "one",
                "containers": [pod["spec"]["containers"][0]["name"]],
                "mapping": [{"name": "cpu", "quantity": "4"}],
                "overhead": [{"name": "cpu", "perContainer": "100m"}],
            }
        ]

        # 6 - 5.1 is left: nothing of that size, with a claim or without, has room.
        await cluster.pod("b", claims={"cpu": "two"}, requests={"cpu": "1"})
        await cluster.refused("b", "Insufficient cpu")
        await cluster.pod("plain", requests={"cpu": "1"})
        await cluster.refused("plain", "Insufficient cpu")
        assert (await cluster.get_claim("two")).get("status", {}).get("allocation") is None

        await cluster.delete_pod("plain")
        await cluster.delete_pod("a")
        await cluster.bound("b", timeout_seconds=60)
        assert await cluster.findings() == []
