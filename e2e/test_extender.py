"""kube-scheduler and our extender, over TLS with client certificates: cases 66 to 77."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest

from e2e.harness.api import LEASES, PODS, PRIORITY_CLASSES, Object
from e2e.harness.cluster import Cluster, eventually
from e2e.harness.controlplane import SERVICE_NAMESPACE, SERVICE_USER
from e2e.harness.judge import devices_of
from e2e.harness.mode import Mode
from e2e.harness.target import Target

extender_only = pytest.mark.modes("safe", "fast")

NOBODY = "nobody"


@extender_only
@pytest.mark.own_plane
async def test_case_66_a_pod_without_claims_is_bound_by_us(
    cluster: Cluster, target: Target
) -> None:
    await cluster.add_nodes(2)
    position = target.audit.position()

    await cluster.pod("a")
    await cluster.bound("a")

    writes = target.audit.writes_to(cluster.namespace, position)
    [binding] = [request for request in writes if request.resource == "pods/binding"]
    assert binding.user == SERVICE_USER
    assert not binding.agent.startswith("kube-scheduler")


@extender_only
async def test_case_67_a_shortage_everywhere_is_one_counted_text_and_no_preemption(
    cluster: Cluster,
) -> None:
    await cluster.add_nodes(3)
    await cluster.claim("mine")

    await cluster.pod("a", claims={"gpu": "mine"})
    message = await cluster.refused("a", "0/3 nodes")

    assert "3 " in message.split("available:", 1)[1]
    await asyncio.sleep(2)
    events = await cluster.events("a")
    assert any(event.startswith("FailedScheduling") for event in events)
    assert not any("at least one victim" in event for event in events)
    assert (await cluster.get_pod("a"))["status"].get("nominatedNodeName") is None


@extender_only
@pytest.mark.own_plane
async def test_case_68_a_refused_pod_is_tried_at_most_twice_until_something_happens(
    cluster: Cluster, mode: Mode
) -> None:
    await cluster.add_nodes(3)
    await cluster.claim("mine")
    before = await mode.kube_scheduler.attempts()

    await cluster.pod("a", claims={"gpu": "mine"})
    await cluster.refused("a")
    await asyncio.sleep(8)

    assert await mode.kube_scheduler.attempts() - before <= 2


@extender_only
async def test_case_69_while_the_extender_is_down_nothing_is_bound(
    cluster: Cluster, mode: Mode
) -> None:
    await cluster.add_nodes(2, devices=1)
    await cluster.claim("mine")

    await mode.service.kill()
    await cluster.pod("a", claims={"gpu": "mine"})
    await cluster.refused("a", "SchedulerError")
    await cluster.stays_pending("a", seconds=1)
    await mode.restart(proxied=False)

    await cluster.bound("a", timeout_seconds=40)


@pytest.mark.modes("safe")
@pytest.mark.own_plane
async def test_case_70_an_extender_whose_neighbour_does_not_lead_answers_an_error(
    cluster: Cluster, mode: Mode
) -> None:
    [node] = await cluster.add_nodes(1, devices=1)
    await cluster.claim("mine")
    pod = await cluster.pod("a", claims={"gpu": "mine"})
    await cluster.bound("a")
    body: Object = {"Pod": pod, "Nodes": None, "NodeNames": [node]}

    await mode.kube_scheduler.stop()

    async def refuses() -> bool:
        answer = await mode.service.call("filter", body)
        return answer["NodeNames"] is None and "not the leader" in answer["Error"]

    await eventually("filter is refused", refuses, 40)
    assert await mode.service.ready()
    await mode.start_kube_scheduler()
    await cluster.claim("other")
    await cluster.add_nodes(1, devices=1)
    await cluster.pod("b", claims={"gpu": "other"})
    await cluster.bound("b")


@pytest.mark.modes("fast")
@pytest.mark.own_plane
async def test_case_70_an_extender_that_is_not_leader_answers_an_error(
    cluster: Cluster, mode: Mode
) -> None:
    await cluster.add_nodes(2, devices=1)
    await cluster.claim("mine")
    await mode.service.stop()
    [name] = [
        lease["metadata"]["name"]
        for lease in await cluster.api.objects(LEASES, SERVICE_NAMESPACE)
        if "kube-scheduler" not in lease["metadata"]["name"]
    ]
    await hold_lease(cluster, name, "somebody-else")

    await mode.restart(proxied=False, leading=False)
    await cluster.pod("a", claims={"gpu": "mine"})
    await cluster.refused("a", "SchedulerError")
    await cluster.stays_pending("a", seconds=1)
    await hold_lease(cluster, name, "")

    await cluster.bound("a", timeout_seconds=45)


async def hold_lease(cluster: Cluster, name: str, holder: str) -> None:
    """Writes a lease as its holder does; an empty holder has released it."""
    spec: Object = {"holderIdentity": holder, "leaseDurationSeconds": 3600 if holder else 1}
    await cluster.api.patch(LEASES, name, {"spec": spec}, namespace=SERVICE_NAMESPACE)


@extender_only
async def test_case_75_of_two_pods_that_saw_one_device_exactly_one_is_bound(
    cluster: Cluster, mode: Mode
) -> None:
    [node] = await cluster.add_nodes(1, devices=1)
    pods = []
    for name in ("a", "b"):
        await cluster.claim(name)
        # Nobody schedules them: the webhooks are called here, in the order that hurts.
        pods.append(await cluster.pod(name, claims={"gpu": name}, scheduler=NOBODY))

    async def both_seen() -> bool:
        answers = [
            await mode.service.call("filter", {"Pod": pod, "Nodes": None, "NodeNames": [node]})
            for pod in pods
        ]
        return all(answer["NodeNames"] == [node] for answer in answers)

    await eventually("filter lets both pods pass", both_seen)
    answers = await asyncio.gather(*(bind(mode, pod, node) for pod in pods))

    errors = [answer.get("Error") or "" for answer in answers]
    assert sorted(bool(error) for error in errors) == [False, True]
    bound = [pod for pod in await cluster.pods() if pod["spec"].get("nodeName")]
    assert len(bound) == 1
    claims = await cluster.claims()
    assert sum(len(devices_of(claim)) for claim in claims) == 1


async def bind(mode: Mode, pod: Object, node: str) -> Object:
    metadata = pod["metadata"]
    body = {
        "PodName": metadata["name"],
        "PodNamespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "Node": node,
    }
    answer: Object = await mode.service.call("bind", body)
    return answer


@extender_only
async def test_the_same_bind_twice_is_one_binding(cluster: Cluster, mode: Mode) -> None:
    [node] = await cluster.add_nodes(1, devices=2)
    await cluster.claim("mine")
    pod = await cluster.pod("a", claims={"gpu": "mine"}, scheduler=NOBODY)

    async def known() -> bool:
        body = {"Pod": pod, "Nodes": None, "NodeNames": [node]}
        answer = await mode.service.call("filter", body)
        return bool(answer["NodeNames"])

    await eventually("filter knows the claim", known)
    answers = await asyncio.gather(bind(mode, pod, node), bind(mode, pod, node))

    assert [answer.get("Error") or "" for answer in answers] == ["", ""]
    assert len(cluster.recorder.allocations("mine")) == 1


@extender_only
@pytest.mark.own_plane
async def test_case_77_a_pod_whose_claim_is_not_there_yet_is_not_even_tried(
    cluster: Cluster, mode: Mode
) -> None:
    await cluster.add_nodes(1, devices=1)
    before = await mode.kube_scheduler.attempts()

    await cluster.pod("a", templates={"gpu": "later"})
    await cluster.stays_pending("a", seconds=3)

    assert await mode.kube_scheduler.attempts() == before
    await cluster.template("later")
    await cluster.bound("a")


@extender_only
@pytest.mark.parametrize("certificate", [None, "stranger"])
async def test_a_client_without_our_certificate_is_not_served(
    cluster: Cluster, mode: Mode, certificate: str | None
) -> None:
    body: Object = {"Pod": None, "Nodes": None, "NodeNames": []}

    with pytest.raises(aiohttp.ClientError):
        await mode.service.call("filter", body, certificate=certificate)


@extender_only
@pytest.mark.own_plane
@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
async def test_bad_input_is_refused_and_nothing_is_written(
    cluster: Cluster, target: Target, mode: Mode, verb: str
) -> None:
    no_objects = [b"", b"{", b"[]", b"\xff\xfe"]
    # Objects in the wrong shape, and bodies that are too large (nodeCacheCapable is missing), are answered in the verb's
    # own form, which kube-scheduler shows: 200 with the reason.
    objects = [
        b'{"Pod": 7, "NodeNames": {}}',
        b'{"PodName": ["a"], "Node": null}',
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b" " * 10_000_000,
    ]
    position = target.audit.position()

    statuses = [await mode.service.post(verb, body) for body in no_objects]
    answered = []
    for body in objects:
        # A server may also hang up on a body that is much too large.
        with contextlib.suppress(aiohttp.ClientError):
            answered.append(await mode.service.post(verb, body))

    assert all(400 <= status < 500 for status in statuses), statuses
    assert len(answered) >= len(objects) - 1
    assert all(status == 200 or 400 <= status < 500 for status in answered), answered
    assert await mode.service.post(verb, b"{}", content_type="text/plain") == 415
    assert await mode.service.live()
    assert target.audit.writes_to(cluster.namespace, position) == []


@pytest.mark.parametrize("holders", [False, True], ids=["no-devices", "devices-held"])
async def test_a_pod_short_of_a_device_evicts_nobody(cluster: Cluster, holders: bool) -> None:
    nodes = await cluster.add_nodes(4, devices=1 if holders else 0, allocatable={"cpu": "4"})
    low, high = f"{cluster.name}-low", f"{cluster.name}-high"
    for name, value in ((low, 100), (high, 1000)):
        await cluster.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    await cluster.template()
    low_spec = {"priorityClassName": low}
    innocents = [
        cluster.pod_body(f"cpu-{node}", node=node, requests={"cpu": "3"}, spec=low_spec)
        for node in nodes
    ]
    if holders:
        innocents += [
            cluster.pod_body(
                f"gpu-{node}",
                node=node,
                templates={"gpu": "gpu"},
                requests={"cpu": "1"},
                spec=low_spec,
            )
            for node in nodes
        ]
    await cluster.api.create_all(PODS, innocents)
    names = [pod["metadata"]["name"] for pod in innocents]
    before = {pod["metadata"]["uid"] for pod in await cluster.bound(*names)}

    await cluster.pod(
        "important",
        templates={"gpu": "gpu"},
        requests={"cpu": "2"},
        spec={"priorityClassName": high},
    )
    await cluster.refused("important")
    await cluster.stays_pending("important", seconds=8)

    after = {
        pod["metadata"]["uid"]
        for pod in await cluster.pods()
        if pod["metadata"].get("deletionTimestamp") is None
    }
    assert before <= after
