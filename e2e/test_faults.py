"""The API server between two of our writes says no, says nothing, or has changed its mind."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from e2e.harness.api import CLAIMS, CLUSTER_ROLES, PODS, Api, Object
from e2e.harness.cluster import Cluster, eventually
from e2e.harness.judge import devices_of
from e2e.harness.mode import Mode
from e2e.harness.proxy import Call, Fault, FaultProxy
from e2e.test_claims import unallocated

WRITE = "PUT|PATCH"


def claim_path(cluster: Cluster, name: str, subresource: str = "") -> str:
    return re.escape(CLAIMS.path(cluster.namespace, name) + subresource)


def binding_path(cluster: Cluster, pod: str) -> str:
    return re.escape(PODS.path(cluster.namespace, pod) + "/binding")


async def label(cluster: Cluster, claim: str) -> None:
    """Changes a claim, so that a write of an older version of it is a conflict."""
    body: Object = {"metadata": {"labels": {"edited": "yes"}}}
    await cluster.api.patch(CLAIMS, claim, body, namespace=cluster.namespace)


@pytest.mark.parametrize("subresource", ["", "/status"], ids=["case_24", "case_25"])
async def test_a_conflict_on_a_claim_write_is_retried_into_one_allocation(
    faulty: Cluster, proxy: FaultProxy, subresource: str
) -> None:
    await faulty.add_nodes(2, devices=1)
    await faulty.claim("mine")

    async def edit(_: Call) -> None:
        await label(faulty, "mine")

    fault = Fault(WRITE, claim_path(faulty, "mine", subresource), before=edit)
    with proxy.fault(fault):
        await faulty.pod("a", claims={"gpu": "mine"})
        await faulty.bound("a")

    assert len(fault.hit) == 1
    claim = await faulty.get_claim("mine")
    assert claim["metadata"]["labels"] == {"edited": "yes"}
    assert len(faulty.recorder.allocations("mine")) == 1


async def test_case_26_a_claim_that_somebody_else_allocates_first_keeps_that_allocation(
    faulty: Cluster, proxy: FaultProxy
) -> None:
    nodes = await faulty.add_nodes(2, devices=1)
    await faulty.claim("mine")
    faulty.tolerated.add("S10")
    taken: list[str] = []

    async def allocate_elsewhere(call: Call) -> None:
        status = call.json()["status"]
        [result] = status["allocation"]["devices"]["results"]
        [other] = [node for node in nodes if node != result["pool"]]
        selector = {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [other]}]}
            ]
        }
        theirs: Object = {
            "devices": {"results": [{**result, "pool": other}]},
            "nodeSelector": selector,
            "allocationTimestamp": status["allocation"]["allocationTimestamp"],
        }
        taken.append(other)
        await faulty.api.patch(
            CLAIMS,
            "mine",
            {"status": {"allocation": theirs}},
            namespace=faulty.namespace,
            subresource="status",
        )

    fault = Fault(WRITE, claim_path(faulty, "mine", "/status"), before=allocate_elsewhere)
    with proxy.fault(fault):
        await faulty.pod("a", claims={"gpu": "mine"})
        [pod] = await faulty.bound("a")

    assert [pod["spec"]["nodeName"]] == taken
    assert len(faulty.recorder.allocations("mine")) == 1


async def test_case_41_a_device_that_another_writer_took_first_is_given_up(
    faulty: Cluster, proxy: FaultProxy, mode: Mode
) -> None:
    await faulty.add_nodes(1, devices=2)
    await faulty.claim("mine")
    await faulty.claim("theirs", finalizer=True)
    # For a moment two claims hold the device: that is what is tested.
    faulty.tolerated.update({"S1", "S10"})

    async def take_it(call: Call) -> None:
        allocation = call.json()["status"]["allocation"]
        body: Object = {"status": {"allocation": allocation}}
        await faulty.api.patch(
            CLAIMS, "theirs", body, namespace=faulty.namespace, subresource="status"
        )

    fault = Fault(WRITE, claim_path(faulty, "mine", "/status"), before=take_it)
    with proxy.fault(fault):
        await faulty.pod("a", claims={"gpu": "mine"})
        await faulty.bound("a")

    assert len(fault.hit) == 1

    async def told() -> bool:
        return any("ForeignAllocation" in event for event in await faulty.events("a"))

    await eventually("the pod's owner is told", told)
    metrics = await mode.service.metrics()
    assert any(value for name, value in metrics.items() if "foreign_allocation_total" in name)
    held = [devices_of(await faulty.get_claim(name)) for name in ("mine", "theirs")]
    assert sorted(device for [(_, _, device)] in held) == ["gpu-0", "gpu-1"]


async def test_case_27_a_status_write_whose_answer_is_lost_is_not_repeated(
    faulty: Cluster, proxy: FaultProxy
) -> None:
    await faulty.add_nodes(2, devices=1)
    await faulty.claim("mine")

    fault = Fault(WRITE, claim_path(faulty, "mine", "/status"), cut=True)
    with proxy.fault(fault):
        await faulty.pod("a", claims={"gpu": "mine"})
        await faulty.bound("a")

    assert len(fault.hit) == 1
    assert len(faulty.recorder.allocations("mine")) == 1


async def test_a_binding_whose_answer_is_lost_is_not_undone(
    faulty: Cluster, proxy: FaultProxy
) -> None:
    await faulty.add_nodes(2, devices=1)
    await faulty.claim("mine")

    fault = Fault("POST", binding_path(faulty, "a"), cut=True)
    with proxy.fault(fault):
        await faulty.pod("a", claims={"gpu": "mine"})
        await faulty.bound("a")
        await asyncio.sleep(2)

    assert len(fault.hit) == 1
    assert len(faulty.recorder.allocations("mine")) == 1
    claim = await faulty.get_claim("mine")
    assert [entry["name"] for entry in claim["status"]["reservedFor"]] == ["a"]


@contextlib.asynccontextmanager
async def without_binding_permission(api: Api) -> AsyncIterator[None]:
    """Takes `resourceclaims/binding` out of every role of ours while the context is open."""
    ours = [
        role
        for role in await api.objects(CLUSTER_ROLES)
        if "resourceclaims/binding" in _resources(role)
        and not role["metadata"]["name"].startswith("system:")
    ]
    assert ours, "no role of ours grants resourceclaims/binding"
    for role in ours:
        rules = []
        for rule in role["rules"]:
            left = [r for r in rule.get("resources", []) if r != "resourceclaims/binding"]
            if left or not rule.get("resources"):
                rules.append({**rule, "resources": left} if left else rule)
        await api.patch(CLUSTER_ROLES, role["metadata"]["name"], {"rules": rules})
    try:
        yield
    finally:
        for role in ours:
            await api.patch(CLUSTER_ROLES, role["metadata"]["name"], {"rules": role["rules"]})


def _resources(role: Object) -> set[str]:
    return {r for rule in role.get("rules") or [] for r in rule.get("resources") or []}


# As an extender it has the rights of its kube-scheduler too, and those include this one.
@pytest.mark.own_plane
@pytest.mark.modes("standalone")
async def test_case_28_a_missing_binding_permission_is_named_and_its_grant_is_noticed(
    cluster: Cluster,
) -> None:
    await cluster.add_nodes(1, devices=1)
    await cluster.claim("mine")

    async with without_binding_permission(cluster.api):
        await cluster.pod("a", claims={"gpu": "mine"})
        await cluster.refused("a", "resourceclaims/binding")
        await cluster.stays_pending("a")

    await cluster.bound("a")


async def test_case_29_a_pod_deleted_before_its_binding_gives_the_device_back(
    faulty: Cluster, proxy: FaultProxy
) -> None:
    await faulty.add_nodes(1, devices=1)
    await faulty.template()
    claims: list[str] = []

    async def delete(_: Call) -> None:
        claims.append(await faulty.generated_claim("a"))
        await faulty.delete_pod("a")

    with proxy.fault(Fault("POST", binding_path(faulty, "a"), before=delete)):
        await faulty.pod("a", templates={"gpu": "gpu"})
        await eventually("the binding was tried", _has(claims))
        await faulty.gone(CLAIMS, claims[0])

    await faulty.pod("b", templates={"gpu": "gpu"})
    await faulty.bound("b")


async def test_case_30_a_binding_that_fails_once_is_repeated_with_the_same_allocation(
    faulty: Cluster, proxy: FaultProxy
) -> None:
    await faulty.add_nodes(3, devices=2)
    await faulty.claim("mine")

    fault = Fault("POST", binding_path(faulty, "a"), answer=(500, "injected"))
    with proxy.fault(fault):
        await faulty.pod("a", claims={"gpu": "mine"})
        [pod] = await faulty.bound("a")

    assert len(fault.hit) == 1
    tried = fault.hit[0].json()["target"]["name"]
    assert pod["spec"]["nodeName"] == tried
    assert len(faulty.recorder.allocations("mine")) == 1


async def test_case_31_a_failure_on_one_claim_undoes_the_pods_other_claim(
    faulty: Cluster, proxy: FaultProxy
) -> None:
    await faulty.add_nodes(1, devices=2)
    await faulty.claim("one")
    await faulty.claim("two")

    fault = Fault(WRITE, claim_path(faulty, "two", "/status"), times=1000, answer=(422, "injected"))
    with proxy.fault(fault):
        await faulty.pod("a", claims={"x": "one", "y": "two"})
        await faulty.refused("a")

        async def undone() -> bool:
            status = (await faulty.get_claim("one")).get("status") or {}
            return not status.get("reservedFor") and not status.get("allocation")

        await eventually("the first claim is free again", undone)
        assert fault.hit
        await faulty.stays_pending("a", seconds=1)

    await faulty.bound("a")
    claims = [await faulty.get_claim(name) for name in ("one", "two")]
    assert sorted(d for claim in claims for _, _, d in devices_of(claim)) == ["gpu-0", "gpu-1"]


async def test_a_finished_pod_frees_a_claim_that_was_written_through_faults(
    faulty: Cluster, proxy: FaultProxy
) -> None:
    await faulty.add_nodes(1, devices=1)
    await faulty.claim("mine")
    with (
        proxy.fault(Fault(WRITE, claim_path(faulty, "mine"), answer=(503, "injected"))),
        proxy.fault(Fault(WRITE, claim_path(faulty, "mine", "/status"), cut=True)),
    ):
        await faulty.pod("a", claims={"gpu": "mine"})
        await faulty.bound("a")

    await faulty.finish("a")

    await unallocated(faulty, "mine")


@pytest.mark.modes("safe")
async def test_case_71_a_write_slower_than_the_schedulers_patience_leaks_nothing(
    faulty: Cluster, proxy: FaultProxy, mode: Mode
) -> None:
    await faulty.add_nodes(1, devices=1)
    await faulty.claim("mine")

    # Longer than the service waits for an answer, twice: its time for the whole bind is over.
    fault = Fault(WRITE, claim_path(faulty, "mine", "/status"), times=2, delay_seconds=9)
    with proxy.fault(fault):
        await faulty.pod("a", claims={"gpu": "mine"})
        await faulty.refused("a", "SchedulerError")
        assert len(fault.hit) == 2
        assert (await faulty.get_pod("a"))["spec"].get("nodeName") is None

    await faulty.bound("a", timeout_seconds=60)
    # What was written too late was undone; what is there now is this attempt's.
    claim = await faulty.get_claim("mine")
    assert [entry["name"] for entry in claim["status"]["reservedFor"]] == ["a"]
    assert await mode.service.live()


@pytest.mark.modes("standalone", "safe")
@pytest.mark.parametrize("died_before", ["status", "binding"], ids=["case_32", "case_33"])
async def test_a_crash_between_two_writes_is_finished_after_the_restart(
    faulty: Cluster, proxy: FaultProxy, mode: Mode, died_before: str
) -> None:
    await faulty.add_nodes(2, devices=2)
    await faulty.claim("mine")

    async def crash(_: Call) -> None:
        await mode.service.kill()

    path = {"status": claim_path(faulty, "mine", "/status"), "binding": binding_path(faulty, "a")}
    fault = Fault(
        "PUT|PATCH|POST", path[died_before], before=crash, answer=(503, "nobody is listening")
    )
    with proxy.fault(fault):
        await faulty.pod("a", claims={"gpu": "mine"})
        await eventually("the service died", _has(fault.hit))
    before = await faulty.get_claim("mine")
    await mode.restart(proxied=True)

    [pod] = await faulty.bound("a", timeout_seconds=60)
    assert len(faulty.recorder.allocations("mine")) == 1
    if died_before == "binding":
        after = await faulty.get_claim("mine")
        assert after["status"]["allocation"] == before["status"]["allocation"]
        assert pod["spec"]["nodeName"] == devices_of(after)[0][1]


def _has(things: Sequence[object]) -> Callable[[], Awaitable[bool]]:
    async def probe() -> bool:
        return bool(things)

    return probe
