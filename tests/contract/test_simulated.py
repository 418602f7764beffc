"""The simulated drivers and kubelets on both servers, and the simulated controllers against the real ones.

On the embedded server our controllers do what kube-controller-manager does on the real one; the end is the same.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from scheduler.clock import Clock, SystemClock
from scheduler.lab.apiserver.client import EmbeddedClient
from scheduler.lab.simulated import drivers
from scheduler.lab.simulated.claim_controller import ClaimController
from scheduler.lab.simulated.garbage import GarbageCollector
from scheduler.lab.simulated.kubelets import Kubelets
from scheduler.lab.simulated.mirror import Controller
from scheduler.lab.simulated.workloads import JobController
from tests.contract.api import (
    FINALIZER,
    Api,
    Json,
    allocation,
    consumer,
    with_metadata,
    with_status,
)
from tests.contract.conftest import FastClock

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODES = "/api/v1/nodes"
PATIENCE_SECONDS = 20


@pytest.fixture
def clock(api: Api) -> Clock:
    return FastClock() if isinstance(api.client, EmbeddedClient) else SystemClock()


@pytest.fixture
async def node(api: Api) -> AsyncIterator[str]:
    name = api.unique("node")
    await api.made(NODES, {"metadata": {"name": name}, "status": {"capacity": {"cpu": "4"}}})
    yield name
    await api.delete(f"{NODES}/{name}")


@asynccontextmanager
async def running(api: Api, clock: Clock, *controllers: Controller) -> AsyncIterator[None]:
    """Run these, and what a cluster has anyway."""
    started = list(controllers)
    if isinstance(api.client, EmbeddedClient):
        started += [
            ClaimController(api.client, clock),
            GarbageCollector(api.client, clock),
            JobController(api.client, clock),
        ]
    async with AsyncExitStack() as stack:
        tasks = [asyncio.create_task(controller.run()) for controller in started]
        stack.push_async_callback(lambda: asyncio.gather(*tasks, return_exceptions=True))
        for task in tasks:
            stack.callback(task.cancel)
        yield


async def until(api: Api, path: str, holds: Callable[[Json], bool]) -> Json:
    """Wait for what a path answers (empty when there is nothing)."""
    last: Json = {}
    for _ in range(PATIENCE_SECONDS * 50):
        answer = await api.get(path)
        last = answer.body if answer.ok else {}
        if holds(last):
            return last
        await asyncio.sleep(0.02)
    raise AssertionError(last)


def is_gone(obj: Json) -> bool:
    return not obj


async def allocate(api: Api, name: str, *consumers: Json) -> None:
    held = await api.get(api.claims(name))
    held = await api.put(api.claims(name), with_metadata(held, finalizers=[FINALIZER]))
    status = with_status(held, allocation=allocation(), reservedFor=list(consumers))
    assert (await api.put(f"{api.claims(name)}/status", status)).ok


def user(pod: Json) -> Json:
    return {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}


async def test_drivers_publish_for_a_node_until_it_goes(api: Api, clock: Clock, node: str) -> None:
    def publish(obj: Json) -> list[Json]:
        if obj["metadata"]["name"] != node:
            return []
        return [
            *drivers.gpus(node),
            *drivers.nics(node),
            *drivers.partitionable_cards(node),
            *drivers.shared_cards(node),
        ]

    def of_node(listed: Json) -> list[str]:
        return [item["metadata"]["name"] for item in listed["items"] if _node(item) == node]

    async with running(api, clock, drivers.Drivers(api.client, clock, publish)):
        await until(api, SLICES, lambda listed: len(of_node(listed)) == 5)
        await api.delete(f"{NODES}/{node}")
        await until(api, SLICES, lambda listed: not of_node(listed))


def _node(published: Json) -> str:
    return str(published["spec"].get("nodeName"))


async def test_a_job_with_a_template_runs_to_its_end(api: Api, clock: Clock, node: str) -> None:
    kubelets = Kubelets(api.client, clock, lambda _: 0.2, is_ours=lambda name: name == node)
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    templates = api.path("resourceclaimtemplates", group="resource.k8s.io/v1")
    jobs = api.path("jobs", group="batch/v1")
    await api.made(templates, {"metadata": {"name": "t"}, "spec": {"spec": spec}})
    template = {
        "spec": {
            "restartPolicy": "Never",
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        }
    }
    async with running(api, clock, kubelets):
        await api.made(jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
        listed = await until(api, api.pods(), lambda found: _is_claimed(found["items"]))
        [pod] = listed["items"]
        claim = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        assert claim.startswith(f"{pod['metadata']['name']}-gpu-")
        await allocate(api, claim, user(pod))
        assert (await api.bind(pod["metadata"]["name"], node)).ok
        done = await until(api, f"{jobs}/j", _is_complete)
        assert done["status"]["succeeded"] == 1
        await until(api, api.claims(claim), is_gone)
        await api.delete(f"{jobs}/j", {"propagationPolicy": "Background"})
        await until(api, api.pods(), lambda found: not found["items"])
    assert kubelets.double_uses == []


def _is_claimed(pods: list[Json]) -> bool:
    return bool(pods) and all(pod["status"].get("resourceClaimStatuses") for pod in pods)


def _is_complete(job: Json) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(held["type"] == "Complete" and held["status"] == "True" for held in conditions)


async def test_a_made_up_pod_loses_its_reservation(api: Api, clock: Clock) -> None:
    await api.claim("a")
    async with running(api, clock):
        nobody = {"resource": "pods", "name": "nobody", "uid": "u"}
        await allocate(api, "a", nobody)
        # Two writes: the status, then the finalizer.
        await until(api, api.claims("a"), _is_released)


def _is_released(claim: Json) -> bool:
    return not claim.get("status") and "finalizers" not in claim["metadata"]


async def test_a_reservation_of_an_unknown_kind_stays(api: Api, clock: Clock) -> None:
    await api.claim("a")
    nobody = {"resource": "pods", "name": "nobody", "uid": "u"}
    async with running(api, clock):
        await allocate(api, "a", nobody, consumer("u2"))
        held = await until(api, api.claims("a"), lambda obj: len(obj["status"]["reservedFor"]) == 1)
    assert held["status"]["reservedFor"] == [consumer("u2")]
    assert held["status"]["allocation"]


async def test_a_pod_set_on_a_node_by_hand_is_let_in(api: Api, clock: Clock, node: str) -> None:
    kubelets = Kubelets(api.client, clock, is_ours=lambda name: name == node)
    first = await api.pod("first", {"resourceClaims": [_entry("a")]})
    await api.claim("a")
    async with running(api, clock, kubelets):
        await allocate(api, "a", user(first.body))
        await api.pod("second", {"nodeName": node, "resourceClaims": [_entry("a")]})
        await until(api, api.pods("second"), lambda obj: obj["status"]["phase"] == "Running")
        held = await api.get(api.claims("a"))
        assert [entry["name"] for entry in held.body["status"]["reservedFor"]] == [
            "first",
            "second",
        ]
        await api.delete(api.pods("second"))
        await until(api, api.pods("second"), is_gone)
        await until(api, api.claims("a"), lambda obj: len(obj["status"]["reservedFor"]) == 1)


def _entry(claim: str) -> Json:
    return {"name": "gpu", "resourceClaimName": claim}


async def test_a_deleted_claim_waits_for_its_pod(api: Api, clock: Clock, node: str) -> None:
    kubelets = Kubelets(api.client, clock, is_ours=lambda name: name == node)
    pod = await api.pod("p", {"resourceClaims": [_entry("a")]})
    await api.claim("a")
    async with running(api, clock, kubelets):
        await allocate(api, "a", user(pod.body))
        assert (await api.bind("p", node)).ok
        await until(api, api.pods("p"), lambda obj: obj["status"]["phase"] == "Running")
        await api.delete(api.claims("a"))
        assert (await api.get(api.claims("a"))).body["status"]["allocation"]
        kubelets.finish(pod.meta["uid"])
        await until(api, api.claims("a"), is_gone)


async def test_claims_go_with_their_pod(api: Api, clock: Clock) -> None:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    templates = api.path("resourceclaimtemplates", group="resource.k8s.io/v1")
    await api.made(templates, {"metadata": {"name": "t"}, "spec": {"spec": spec}})
    async with running(api, clock):
        entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
        await api.pod("p", {"resourceClaims": [entry]})
        await until(api, api.claims(), lambda listed: len(listed["items"]) == 1)
        await api.delete(api.pods("p"))
        await until(api, api.claims(), lambda listed: not listed["items"])
