"""With nothing to do the service is quiet. Runs before the large tests, whose events take a while."""

from __future__ import annotations

import asyncio

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.controlplane import SERVICE_USER
from e2e.harness.target import Target


@pytest.mark.own_plane
async def test_an_idle_service_asks_the_api_server_at_most_once_a_second(
    cluster: Cluster, target: Target
) -> None:
    await asyncio.sleep(2)
    position = target.audit.position()
    await asyncio.sleep(10)

    requests = [
        request
        for request in target.audit.requests(position, SERVICE_USER)
        if not request.agent.startswith("kube-scheduler") and request.verb != "watch"
    ]
    assert len(requests) <= 10
