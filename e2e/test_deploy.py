"""What deploy/ holds, before a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness import manifests, objects
from e2e.harness.api import CLAIMS, NAMESPACES, PODS
from e2e.harness.cluster import Cluster, eventually
from e2e.harness.controlplane import SERVICE_NAMESPACE
from e2e.harness.target import DEPLOY, Target

COMPONENTS = DEPLOY / "components"
FOLDERS = [DEPLOY / "base", DEPLOY / "overlays/extender", *sorted(COMPONENTS.iterdir())]

standalone_only = pytest.mark.modes("standalone")


@pytest.mark.own_plane
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
async def test_the_api_server_accepts_every_manifest(target: Target, folder: Path) -> None:
    if COMPONENTS in folder.parents and target.minor() < 36:
        pytest.skip("MutatingAdmissionPolicy is v1 since 1.36")
    if await target.admin.find(NAMESPACES, SERVICE_NAMESPACE) is None:
        await target.admin.create(NAMESPACES, {"metadata": {"name": SERVICE_NAMESPACE}})

    items = manifests.kustomization(folder)

    assert items
    for item in items:
        answer = await target.admin.apply(item, dry_run=True)
        assert answer["kind"] == item["kind"]


@standalone_only
@pytest.mark.own_plane
async def test_the_finalizer_policy_saves_a_write(
    cluster: Cluster, target: Target, numbers: Iterator[int]
) -> None:
    if target.minor() < 36:
        pytest.skip("MutatingAdmissionPolicy is v1 since 1.36")
    await cluster.add_nodes(1, devices=1)
    await cluster.template()
    async with target.applied(COMPONENTS / "finalizer-at-creation"):

        async def in_force() -> bool:
            name = f"probe-{next(numbers)}"
            await cluster.pod(name, templates={"gpu": "gpu"}, scheduler="nobody")
            claim = await cluster.get_claim(await cluster.generated_claim(name))
            await cluster.delete_pod(name)
            finalizers: list[str] = claim["metadata"].get("finalizers", [])
            return finalizers == [objects.FINALIZER]

        # The API server takes a moment to compile a new policy.
        await eventually("the policy sets the finalizer", in_force)
        position = target.audit.position()
        await cluster.pod("a", templates={"gpu": "gpu"})
        await cluster.bound("a")
        claim = await cluster.generated_claim("a")
        writes = [
            (request.resource, request.verb)
            for request in target.audit.writes_to(cluster.namespace, position)
            if request.name == claim
        ]
        assert [resource for resource, _ in writes] == ["resourceclaims/status"]
        await cluster.finish("a")
        await cluster.gone(CLAIMS, claim)


@standalone_only
@pytest.mark.own_plane
async def test_the_routing_policy_sends_us_the_pods_with_claims(
    cluster: Cluster, target: Target, numbers: Iterator[int]
) -> None:
    if target.minor() < 36:
        pytest.skip("MutatingAdmissionPolicy is v1 since 1.36")
    async with target.applied(COMPONENTS / "route-pods"):

        async def scheduler_of(name: str, scheduler: str, **options: object) -> str:
            body = cluster.pod_body(name, scheduler=scheduler, **options)  # type: ignore[arg-type]
            made = await cluster.api.create(PODS, body)
            chosen: str = made["spec"]["schedulerName"]
            return chosen

        default = "default-scheduler"

        async def in_force() -> bool:
            name = f"probe-{next(numbers)}"
            return await scheduler_of(name, default, claims={"gpu": "x"}) != default

        await eventually("the policy routes pods", in_force)
        assert await scheduler_of("routed", default, claims={"gpu": "x"}) == "dra-scheduler"
        assert await scheduler_of("no-claim", default) == default
        assert await scheduler_of("own", "own-scheduler", claims={"gpu": "x"}) == "own-scheduler"
