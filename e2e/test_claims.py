"""The life of a claim: cases 1 to 22 and 35, 36 of docs/reference/behaviours.md#cluster, in every mode."""

from __future__ import annotations

import asyncio

import pytest

from e2e.harness import objects
from e2e.harness.api import (
    CLAIMS,
    CLASSES,
    JOBS,
    PODS,
    Object,
)
from e2e.harness.cluster import Cluster, eventually
from e2e.harness.judge import devices_of
from e2e.harness.mode import Mode
from e2e.harness.target import Target

CLAIM_WRITES = {"resourceclaims", "resourceclaims/status", "pods/binding"}


async def held_by_hand(
    cluster: Cluster, name: str, node: str, device: str, *, timestamp: bool
) -> Object:
    """Makes an allocated, unreserved claim, as a third party or an old version leaves it."""
    await cluster.claim(name, finalizer=True)
    allocation: Object = {
        "devices": {
            "results": [
                {"request": "gpu", "driver": cluster.driver, "pool": node, "device": device}
            ]
        },
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            ]
        },
    }
    if timestamp:
        allocation["allocationTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.tolerated.add("S10")
    return await cluster.api.patch(
        CLAIMS,
        name,
        {"status": {"allocation": allocation}},
        namespace=cluster.namespace,
        subresource="status",
    )


async def unallocated(cluster: Cluster, name: str) -> Object:
    """Waits until a claim has no allocation, no reservation and no finalizer."""

    async def probe() -> Object | None:
        claim = await cluster.get_claim(name)
        status = claim.get("status") or {}
        free = not status.get("allocation") and not status.get("reservedFor")
        return claim if free and not claim["metadata"].get("finalizers") else None

    return await eventually(f"claim {name} deallocated", probe) or {}


def node_of(pod: Object) -> str:
    node: str = pod["spec"]["nodeName"]
    return node


@pytest.mark.own_plane
async def test_case_1_the_claim_is_written_in_the_protocols_order(
    cluster: Cluster, target: Target, mode: Mode
) -> None:
    await cluster.add_nodes(2, devices=1)
    await cluster.template()
    position = target.audit.position()

    await cluster.pod("a", templates={"gpu": "gpu"})
    await cluster.bound("a")

    ours = [
        (request.resource, request.verb)
        for request in target.audit.writes_to(cluster.namespace, position)
        if request.user == mode.user and request.resource in CLAIM_WRITES
    ]
    assert [resource for resource, _ in ours] == [
        "resourceclaims",
        "resourceclaims/status",
        "pods/binding",
    ]


async def test_case_2_a_finished_pod_leaves_the_users_claim_unallocated(cluster: Cluster) -> None:
    await cluster.add_nodes(1, devices=1)
    await cluster.claim("mine")
    await cluster.pod("a", claims={"gpu": "mine"})
    await cluster.bound("a")

    await cluster.finish("a")

    await unallocated(cluster, "mine")


async def test_case_3_a_finished_pods_generated_claim_is_deleted(cluster: Cluster) -> None:
    await cluster.add_nodes(1, devices=1)
    await cluster.template()
    await cluster.pod("a", templates={"gpu": "gpu"})
    await cluster.bound("a")
    claim = await cluster.generated_claim("a")

    await cluster.finish("a")

    await cluster.gone(CLAIMS, claim)


async def test_case_4_a_running_pods_generated_claim_disappears_with_it(cluster: Cluster) -> None:
    await cluster.add_nodes(1, devices=1)
    await cluster.template()
    await cluster.pod("a", templates={"gpu": "gpu"})
    await cluster.bound("a")
    claim = await cluster.generated_claim("a")

    await cluster.delete_pod("a")

    await cluster.gone(CLAIMS, claim)


async def test_case_5_a_pod_deleted_before_scheduling_leaves_nothing(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.template()
    await cluster.pod("a", templates={"gpu": "gpu"})
    claim = await cluster.generated_claim("a")
    await cluster.refused("a")

    await cluster.delete_pod("a")

    await cluster.gone(CLAIMS, claim)
    assert cluster.recorder.allocations(claim) == []


async def test_case_6_a_finalizer_that_is_there_already_is_not_repeated(cluster: Cluster) -> None:
    await cluster.add_nodes(1, devices=1)
    await cluster.claim("mine", finalizer=True)

    await cluster.pod("a", claims={"gpu": "mine"})
    await cluster.bound("a")

    claim = await cluster.get_claim("mine")
    assert claim["metadata"]["finalizers"] == [objects.FINALIZER]


@pytest.mark.own_plane
async def test_case_7_the_in_tree_scheduler_can_share_a_claim_that_we_allocated(
    cluster: Cluster, target: Target
) -> None:
    if target.minor() < 36:
        pytest.skip("allocationTimestamp is alpha before 1.36")
    await cluster.add_nodes(3, devices=1)
    await cluster.claim("mine")
    await cluster.pod("ours", claims={"gpu": "mine"})
    [ours] = await cluster.bound("ours")
    before = (await cluster.get_claim("mine"))["status"]["allocation"]
    assert before["allocationTimestamp"]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "in-tree"}],
    }

    in_tree = await target.plane.start_scheduler("kube-scheduler-in-tree", config)
    try:
        await cluster.pod("theirs", claims={"gpu": "mine"}, scheduler="in-tree")
        [theirs] = await cluster.bound("theirs")
    finally:
        await in_tree.stop()

    assert node_of(theirs) == node_of(ours)
    assert (await cluster.get_claim("mine"))["status"]["allocation"] == before


async def test_case_8_an_allocation_without_timestamp_is_reserved_as_it_is(
    cluster: Cluster,
) -> None:
    cluster.tolerated.add("timestamp")
    _, second = await cluster.add_nodes(2, devices=1)
    before = await held_by_hand(cluster, "mine", second, "gpu-0", timestamp=False)

    await cluster.pod("a", claims={"gpu": "mine"})
    [pod] = await cluster.bound("a")

    assert node_of(pod) == second
    claim = await cluster.get_claim("mine")
    assert claim["status"]["allocation"] == before["status"]["allocation"]
    assert [entry["name"] for entry in claim["status"]["reservedFor"]] == ["a"]


async def test_case_10_a_shared_claims_device_is_free_after_its_last_pod(cluster: Cluster) -> None:
    await cluster.add_nodes(1, devices=1)
    await cluster.add_nodes(1)
    await cluster.claim("shared")
    await cluster.claim("other")
    await cluster.pod("a", claims={"gpu": "shared"})
    await cluster.pod("b", claims={"gpu": "shared"})
    first, second = await cluster.bound("a", "b")
    assert node_of(first) == node_of(second)
    await cluster.pod("waiting", claims={"gpu": "other"})
    await cluster.refused("waiting")

    await cluster.finish("a")
    await cluster.stays_pending("waiting")
    await cluster.finish("b")

    await cluster.bound("waiting")


async def test_case_11_a_sharing_pod_that_wants_another_node_waits(cluster: Cluster) -> None:
    first, second = await cluster.add_nodes(2, devices=1)
    await cluster.claim("shared")
    await cluster.pod("a", claims={"gpu": "shared"}, node=first)
    await cluster.bound("a")

    await cluster.pod("b", claims={"gpu": "shared"}, node=second)
    await cluster.refused("b")
    await cluster.stays_pending("b")
    await cluster.finish("a")

    [pod] = await cluster.bound("b")
    assert node_of(pod) == second


async def test_case_12_an_idle_claim_on_the_wrong_node_is_given_back(cluster: Cluster) -> None:
    first, second = await cluster.add_nodes(2, devices=1)
    await held_by_hand(cluster, "mine", first, "gpu-0", timestamp=True)

    await cluster.pod("a", claims={"gpu": "mine"}, node=second)
    [pod] = await cluster.bound("a")

    assert node_of(pod) == second
    [device] = devices_of(await cluster.get_claim("mine"))
    assert device == (cluster.driver, second, "gpu-0")


async def test_case_13_two_pods_of_one_claim_cause_one_allocation(cluster: Cluster) -> None:
    await cluster.add_nodes(3, devices=2)
    await cluster.claim("shared")

    await asyncio.gather(
        cluster.pod("a", claims={"gpu": "shared"}), cluster.pod("b", claims={"gpu": "shared"})
    )
    first, second = await cluster.bound("a", "b")

    assert node_of(first) == node_of(second)
    assert len(cluster.recorder.allocations("shared")) == 1


async def test_case_14_a_claim_being_deleted_is_not_used_but_its_successor_is(
    cluster: Cluster,
) -> None:
    await cluster.add_nodes(1, devices=1)
    old = await cluster.claim("mine")
    hold: Object = {"metadata": {"finalizers": ["e2e.example.com/hold"]}}
    await cluster.api.patch(CLAIMS, "mine", hold, namespace=cluster.namespace)
    await cluster.api.delete(CLAIMS, "mine", cluster.namespace)

    await cluster.pod("a", claims={"gpu": "mine"})
    await cluster.stays_pending("a")
    release: Object = {"metadata": {"finalizers": None}}
    await cluster.api.patch(CLAIMS, "mine", release, namespace=cluster.namespace)
    await cluster.gone(CLAIMS, "mine")
    new = await cluster.claim("mine")

    await cluster.bound("a")
    assert old["metadata"]["uid"] != new["metadata"]["uid"]
    assert (await cluster.get_claim("mine"))["metadata"]["uid"] == new["metadata"]["uid"]


async def test_case_15_a_claim_of_another_pod_is_not_used(cluster: Cluster, mode: Mode) -> None:
    await cluster.add_nodes(2, devices=1)
    await cluster.template()
    await cluster.pod("owner", templates={"gpu": "gpu"})
    await cluster.bound("owner")
    stolen = await cluster.generated_claim("owner")
    # The template does not exist, so that the controller cannot correct the status; the gate keeps
    # the pod from being tried before the status is there.
    gates = {"schedulingGates": [{"name": "e2e.example.com/wait"}]}
    await cluster.pod("thief", templates={"gpu": "no-such-template"}, spec=gates)
    status: Object = {
        "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": stolen}]}
    }

    await cluster.api.patch(
        PODS, "thief", status, namespace=cluster.namespace, subresource="status"
    )
    ungated: Object = {"spec": {"schedulingGates": None}}
    await cluster.api.patch(PODS, "thief", ungated, namespace=cluster.namespace)

    if not mode.is_extender:
        # In-tree PreEnqueue leaves such a pod without a condition; we do not.
        await cluster.refused("thief", stolen)
    await cluster.stays_pending("thief")


async def test_case_16_an_entry_that_needs_no_claim_is_skipped(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.pod("a", templates={"gpu": "no-such-template"})
    status: Object = {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}

    await cluster.api.patch(PODS, "a", status, namespace=cluster.namespace, subresource="status")

    await cluster.bound("a")


async def test_case_17_a_missing_claim_schedules_the_pod_when_it_comes(
    cluster: Cluster, mode: Mode
) -> None:
    await cluster.add_nodes(1, devices=1)
    await cluster.pod("a", claims={"gpu": "later"})
    if not mode.is_extender:
        await cluster.refused("a", "later")
    await cluster.stays_pending("a")

    await cluster.claim("later")

    await cluster.bound("a", timeout_seconds=10)


async def test_case_18_a_missing_class_schedules_the_pod_when_it_comes(cluster: Cluster) -> None:
    await cluster.add_nodes(1, devices=1)
    late = f"{cluster.name}-late"
    await cluster.claim("mine", objects.request(late))
    await cluster.pod("a", claims={"gpu": "mine"})
    await cluster.refused("a", late)

    await cluster.create(CLASSES, objects.device_class(late, cluster.driver))

    await cluster.bound("a", timeout_seconds=15)


async def test_case_19_a_deleted_class_changes_the_message_of_a_waiting_pod(
    cluster: Cluster, mode: Mode
) -> None:
    [node] = await cluster.add_nodes(1)
    await cluster.claim("mine")
    await cluster.pod("a", claims={"gpu": "mine"})
    before = await cluster.refused("a")

    await cluster.api.delete(CLASSES, cluster.device_class)
    # A deleted class wakes nobody by itself: nothing became possible. New devices do.
    await cluster.publish(node, "gpu-0")
    after = await cluster.refused("a", "does not exist")
    assert after != before
    assert await mode.alive()

    await cluster.create(CLASSES, objects.device_class(cluster.device_class, cluster.driver))
    await cluster.bound("a")


async def test_case_20_a_claim_without_requests_is_allocated_empty(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    body: Object = {
        "metadata": {"name": "empty", "namespace": cluster.namespace},
        "spec": {"devices": {}},
    }
    await cluster.api.create(CLAIMS, body)

    await cluster.pod("a", claims={"gpu": "empty"})
    await cluster.bound("a")

    claim = await cluster.get_claim("empty")
    assert devices_of(claim) == []
    assert [entry["name"] for entry in claim["status"]["reservedFor"]] == ["a"]


async def test_case_21_two_entries_may_name_one_claim(cluster: Cluster) -> None:
    await cluster.add_nodes(1, devices=2)
    await cluster.claim("mine")

    await cluster.pod("a", claims={"x": "mine", "y": "mine"})
    await cluster.bound("a")

    claim = await cluster.get_claim("mine")
    assert len(devices_of(claim)) == 1
    assert len(claim["status"]["reservedFor"]) == 1


async def test_case_22_an_entry_that_no_container_uses_is_allocated_too(cluster: Cluster) -> None:
    await cluster.add_nodes(1, devices=1)
    await cluster.claim("mine")

    await cluster.pod("a", claims={"gpu": "mine"}, unused=["gpu"])
    await cluster.bound("a")

    claim = await cluster.get_claim("mine")
    assert len(devices_of(claim)) == 1
    assert [entry["name"] for entry in claim["status"]["reservedFor"]] == ["a"]


async def test_case_35_a_freed_device_goes_to_the_next_pod_at_once(
    cluster: Cluster, mode: Mode
) -> None:
    await cluster.add_nodes(1, devices=1)
    await cluster.template()
    await cluster.pod("first", templates={"gpu": "gpu"})
    await cluster.bound("first")
    await cluster.pod("second", templates={"gpu": "gpu"})
    await cluster.refused("second")
    # What is measured is the wake-up, not the back-off after the first refusals.
    await asyncio.sleep(2)
    claim = await cluster.generated_claim("first")

    await cluster.finish("first")
    await cluster.gone(CLAIMS, claim)

    # kube-scheduler wakes the pod already when the first one ends, before its device is free, and
    # in profile fast that attempt costs a back-off: 1, 2, and then 4 seconds.
    await cluster.bound("second", timeout_seconds=6 if mode.name == "fast" else 2)


async def test_case_36_a_burst_over_few_devices_never_shares_one(cluster: Cluster) -> None:
    await cluster.add_nodes(5, devices=2)
    await cluster.template()
    pods = [cluster.pod_body(f"p{i}", templates={"gpu": "gpu"}) for i in range(30)]
    await cluster.api.create_all(PODS, pods)

    finished: set[str] = set()

    async def all_had_their_turn() -> bool:
        running = {
            pod["metadata"]["name"]
            for pod in await cluster.pods()
            if pod["spec"].get("nodeName") and pod["metadata"]["name"] not in finished
        }
        assert len(running) <= 10
        if len(running) == 10 or len(finished) + len(running) == len(pods):
            await cluster.finish(*running)
            finished.update(running)
        return len(finished) == len(pods)

    await eventually("30 pods had a device", all_had_their_turn, 60)


@pytest.mark.own_plane
async def test_a_jobs_pods_each_get_a_claim_of_their_own(cluster: Cluster) -> None:
    await cluster.add_nodes(2, devices=2)
    await cluster.template()
    spec = cluster.pod_body("any", templates={"gpu": "gpu"})["spec"]
    job: Object = {
        "metadata": {"name": "work", "namespace": cluster.namespace},
        "spec": {
            "parallelism": 4,
            "completions": 6,
            "template": {"spec": {**spec, "restartPolicy": "Never"}},
        },
    }
    await cluster.api.create(JOBS, job)
    done: set[str] = set()

    async def complete() -> bool:
        for pod in await cluster.pods():
            name = pod["metadata"]["name"]
            if pod["spec"].get("nodeName") and name not in done:
                done.add(name)
                await cluster.finish(name)
        status = (await cluster.api.get(JOBS, "work", cluster.namespace)).get("status") or {}
        # Without a kubelet nobody reports more than the phase; six finished pods are the job.
        return len(done) == 6 or status.get("succeeded") == 6

    await eventually("six pods of the job ran", complete, 60)
