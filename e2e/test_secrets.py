"""Nothing that is secret is in a log, whatever goes wrong: our token, and what tenants write into opaque parameters."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import aiohttp
import pytest

from e2e.harness import objects
from e2e.harness.api import CLAIMS, CLASSES, PODS
from e2e.harness.cluster import Cluster
from e2e.harness.proxy import Fault
from e2e.harness.stage import Name, Replica, Stage

pytestmark = pytest.mark.own_plane


async def pages(replica: Replica) -> str:
    """What the service shows at its health address."""
    found = []
    async with aiohttp.ClientSession(trust_env=False) as session:
        for page in ("metrics", "debug/state", "readyz", "livez"):
            async with session.get(replica.service.health_url + page) as response:
                found.append(await response.text())
    return "\n".join(found)


@pytest.mark.parametrize("name", ["standalone", "fast"])
async def test_no_secret_is_in_a_log_whatever_goes_wrong(tmp_path: Path, name: Name) -> None:
    canary = f"canary-{secrets.token_hex(8)}"
    echo = f'spec: Invalid value: {{"parameters":{{"password":"{canary}"}}}}: field is immutable'
    async with Stage.running(name, folder=tmp_path, flags=("-v", "-v")) as stage:
        replica = await stage.add_replica()
        async with Cluster.prepared(stage.api, "canary", stage.scheduler_name) as cluster:
            config = {
                "opaque": {"driver": cluster.driver, "parameters": {"password": canary}},
            }
            body = objects.device_class("canary-too", cluster.driver)
            body["spec"]["config"] = [config]
            await cluster.create(CLASSES, body)
            await cluster.add_nodes(2, devices=8)
            claims = CLAIMS.path(cluster.namespace)
            pods = PODS.path(cluster.namespace)
            faults = {
                "well": None,
                "refused": Fault("PUT|PATCH", f"{claims}/refused/status", answer=(422, echo)),
                "error": Fault("PUT|PATCH", f"{claims}/error/status", answer=(500, echo)),
                "lost": Fault("PUT|PATCH", f"{claims}/lost(/status)?", cut=True),
                "denied": Fault("POST", f"{pods}/denied/binding", answer=(403, "injected")),
                "unknown": Fault("PUT|PATCH", f"{claims}/unknown", answer=(401, "injected")),
                "broken": Fault(
                    "PUT|PATCH", f"{claims}/broken/status", spoil=lambda text: text[:-9]
                ),
            }
            with replica.proxy.fault(*(fault for fault in faults.values() if fault)):
                for pod in faults:
                    claim = objects.claim(
                        cluster.namespace, pod, objects.request("canary-too", name="gpu")
                    )
                    claim["spec"]["devices"]["config"] = [config]
                    await stage.api.create(CLAIMS, claim)
                    await cluster.pod(pod, claims={"gpu": pod})
                await cluster.bound(*faults, timeout_seconds=120)
            # And one that is refused for what it asks.
            selector = f'device.attributes["{cluster.driver}"].missing == 1'
            claim = objects.claim(cluster.namespace, "fails", cluster.request(selector=selector))
            claim["spec"]["devices"]["config"] = [config]
            await stage.api.create(CLAIMS, claim)
            await cluster.pod("fails", claims={"gpu": "fails"})
            await cluster.refused("fails")
            assert all(fault is None or fault.hit for fault in faults.values())
            shown = await pages(replica)
        async with stage.supervised():  # it may lose its lease meanwhile, and say why
            await stage.plane.restart_apiserver()
            await stage.leader()
        await asyncio.sleep(1)
        logs = "".join(log.read_text(errors="replace") for log in replica.logs)

    assert logs
    token = stage.plane.service_identity.token
    assert [secret for secret in (canary, token) if secret in logs + shown] == []
