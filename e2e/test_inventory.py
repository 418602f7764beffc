"""Drivers that come late, taints that go: cases 42 and 43."""

from __future__ import annotations

import pytest

from e2e.harness import objects
from e2e.harness.api import SLICES, TAINT_RULES
from e2e.harness.cluster import Cluster
from e2e.harness.judge import devices_of
from e2e.harness.mode import Mode
from e2e.harness.target import Target


async def test_case_42_a_late_driver_schedules_the_pods_that_wait_for_it(cluster: Cluster) -> None:
    _, second = await cluster.add_nodes(2)
    await cluster.template()
    await cluster.pod("a", templates={"gpu": "gpu"})
    await cluster.refused("a")

    await cluster.publish(second, "gpu-0")

    [pod] = await cluster.bound("a", timeout_seconds=5)
    assert pod["spec"]["nodeName"] == second


async def test_case_43_a_tainted_device_is_avoided_until_the_rule_is_gone(
    cluster: Cluster, target: Target
) -> None:
    if target.minor() < 37:
        pytest.skip("DeviceTaintRule is on by default, and v1, since 1.37")
    [node] = await cluster.add_nodes(1, devices=2)
    rule = {
        "metadata": {"name": cluster.name},
        "spec": {
            "deviceSelector": {"driver": cluster.driver, "pool": node, "device": "gpu-0"},
            "taint": {"key": "e2e.example.com/broken", "value": "yes", "effect": "NoSchedule"},
        },
    }
    await cluster.create(TAINT_RULES, rule)
    await cluster.claim("first")
    await cluster.claim("second")

    await cluster.pod("a", claims={"gpu": "first"})
    await cluster.bound("a")
    assert devices_of(await cluster.get_claim("first")) == [(cluster.driver, node, "gpu-1")]
    await cluster.pod("b", claims={"gpu": "second"})
    await cluster.refused("b")
    await cluster.stays_pending("b")
    await cluster.api.delete(TAINT_RULES, cluster.name)

    await cluster.bound("b", timeout_seconds=10)
    assert devices_of(await cluster.get_claim("second")) == [(cluster.driver, node, "gpu-0")]


@pytest.mark.modes("safe", "fast")
async def test_case_73_the_only_device_is_found_behind_a_hundred_nodes(
    cluster: Cluster, mode: Mode
) -> None:
    names = await cluster.add_nodes(120)
    last = max(names)
    await cluster.create(SLICES, cluster.slice(last, [objects.device("gpu-0")]))
    await cluster.claim("mine")

    await cluster.pod("a", claims={"gpu": "mine"})

    [pod] = await cluster.bound("a")
    assert pod["spec"]["nodeName"] == last
