"""The webhooks as kube-scheduler calls them, on the embedded API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest

from allocator.outcome import Reason
from scheduler.engine.engine import Engine
from scheduler.extender.app import ExtenderApp
from scheduler.extender.holds import Holds
from scheduler.extender.service import ExtenderService
from scheduler.extender.wakeup import WakeUp
from scheduler.framework.events import Event
from scheduler.model import FINALIZER
from tests.scheduler.embedded import LOST, World, claims_path, pods_path, world

JSON = {"content-type": "application/json"}


class Extender:
    """The application with a client."""

    def __init__(self, here: World, **options: Any) -> None:
        self.here = here
        self.reason: Reason | None = None
        self.service = ExtenderService(
            cache=here.cache,
            binder=here.binder,
            engine=Engine(here.environment),
            clock=here.clock,
            wakeup=options.pop("wakeup", None),
            **options,
        )
        app = ExtenderApp(self.service, unavailable=lambda: self.reason, clock=here.clock).create()
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://extender"
        )

    async def post(self, verb: str, body: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        return await self.http.post(f"/{verb}", content=content, headers=JSON)

    async def args(self, name: str, *nodes: str) -> dict[str, Any]:
        await self.here.settled()
        return {
            "Pod": await self.here.get(pods_path(name)),
            "Nodes": None,
            "NodeNames": list(nodes),
        }

    async def filter(self, name: str, *nodes: str) -> dict[str, Any]:
        response = await self.post("filter", await self.args(name, *nodes))
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def bind(self, name: str, node: str) -> str:
        pod = await self.here.get(pods_path(name))
        await self.here.settled()
        response = await self.post(
            "bind",
            {
                "PodName": name,
                "PodNamespace": "default",
                "PodUID": pod["metadata"]["uid"],
                "Node": node,
            },
        )
        assert response.status_code == 200, response.text
        error: str = response.json()["Error"]
        return error


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        await made.cluster(("node-1", 1), ("node-2", 2))
        yield made


async def test_filter_keeps_the_nodes_that_have_the_devices_and_writes_nothing(here: World) -> None:
    extender = Extender(here)
    await here.claim("c", count=2)
    await here.pod("p", "c")

    answer = await extender.filter("p", "node-1", "node-2")
    assert answer["NodeNames"] == ["node-2"]
    assert answer["Error"] == ""
    assert here.client.writes == []
    assert here.cache.in_flight_claims == 0


async def test_shortage_is_unresolvable_with_the_same_text_each_time(here: World) -> None:
    extender = Extender(here)
    await here.claim("c", count=3)
    await here.pod("p", "c")

    first = await extender.filter("p", "node-1", "node-2")
    assert not first["NodeNames"]
    assert not first["FailedNodes"]
    assert set(first["FailedAndUnresolvableNodes"]) == {"node-1", "node-2"}
    assert await extender.filter("p", "node-1", "node-2") == first


async def test_a_pod_without_claims_passes_with_every_node(here: World) -> None:
    extender = Extender(here)
    await here.pod("p")

    assert (await extender.filter("p", "node-1", "elsewhere"))["NodeNames"] == [
        "node-1",
        "elsewhere",
    ]
    assert await extender.bind("p", "node-1") == ""


async def test_a_claim_that_we_do_not_know_yet_is_an_error_and_no_refusal(here: World) -> None:
    """kube-scheduler knows it, or it would not ask: a refused pod would wait for an event that has been."""
    extender = Extender(here)
    await here.pod("p", "c")

    answer = await extender.filter("p", "node-1")

    assert "'c' not found" in answer["Error"]
    assert not answer["FailedAndUnresolvableNodes"]


async def test_a_missing_class_is_named(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    await here.delete("/apis/resource.k8s.io/v1/deviceclasses/gpu")

    answer = await extender.filter("p", "node-1")
    assert "device class gpu does not exist" in answer["FailedAndUnresolvableNodes"]["node-1"]


async def test_a_selector_that_fails_on_one_device_rejects_that_node_alone(here: World) -> None:
    extender = Extender(here)
    await here.node("node-3")
    await here.gpus("node-3", 1, devices=[{"name": "odd", "attributes": {"v": {"int": 1}}}])
    claim = await here.claim("base")
    del claim["metadata"]
    claim["metadata"] = {"name": "c", "namespace": "default"}
    expression = 'device.attributes["gpu.example.com"].v == 1'
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": expression}}
    ]
    await here.create(claims_path(), claim)
    await here.pod("p", "c")

    answer = await extender.filter("p", "node-1", "node-3")
    assert answer["NodeNames"] == ["node-3"]
    alone = await extender.filter("p", "node-1")
    assert "no such key: v" in alone["Error"]


async def test_prioritize_scores_within_the_contract(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    await extender.filter("p", "node-1", "node-2")

    response = await extender.post("prioritize", await extender.args("p", "node-1", "node-2"))
    scores = {entry["Host"]: entry["Score"] for entry in response.json()}
    assert set(scores) == {"node-1", "node-2"}
    assert all(isinstance(score, int) and 0 <= score <= 10 for score in scores.values())


async def test_preempt_keeps_only_nodes_whose_devices_fit_as_they_are(here: World) -> None:
    extender = Extender(here)
    await here.claim("c", count=2)
    await here.pod("p", "c")
    victims = {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}
    args = await extender.args("p")

    response = await extender.post(
        "preempt",
        {"Pod": args["Pod"], "NodeNameToMetaVictims": {"node-1": victims, "node-2": victims}},
    )
    assert response.json() == {"NodeNameToMetaVictims": {"node-2": victims}}


async def test_bind_allocates_reserves_and_binds(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")

    assert await extender.bind("p", "node-1") == ""
    claim = await here.get(claims_path("c"))
    assert claim["status"]["reservedFor"][0]["name"] == "p"
    assert (await here.get(pods_path("p")))["spec"]["nodeName"] == "node-1"


async def test_bind_again_is_a_success_on_the_same_node_and_an_error_elsewhere(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    await extender.bind("p", "node-1")

    assert await extender.bind("p", "node-1") == ""
    assert "another node" in await extender.bind("p", "node-2")


async def test_simultaneous_binds_of_one_pod_are_one_bind(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")

    answers = await asyncio.gather(*(extender.bind("p", "node-1") for _ in range(4)))
    assert answers == ["", "", "", ""]
    assert here.client.writes.count(("PUT", claims_path("c", "status"))) == 1


async def test_two_pods_filtered_before_the_first_bind_get_one_device_once(here: World) -> None:
    extender = Extender(here)
    for name in "ab":
        await here.claim(name)
        await here.pod(name, name)
        assert (await extender.filter(name, "node-1"))["NodeNames"] == ["node-1"]

    answers = await asyncio.gather(extender.bind("a", "node-1"), extender.bind("b", "node-1"))
    assert sorted(bool(answer) for answer in answers) == [False, True]
    loser = "a" if answers[0] else "b"
    assert not (await here.get(claims_path(loser))).get("status")


async def test_bind_survives_a_caller_that_hangs_up(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    gate = asyncio.Event()

    async def hang(_method: str, path: str, _body: bytes) -> Any:
        if path.endswith("c/status") and not gate.is_set():
            await gate.wait()
            return LOST
        return None

    here.client.faults.append(hang)
    call = asyncio.create_task(extender.bind("p", "node-1"))
    await here.settled()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    gate.set()

    assert await extender.bind("p", "node-1") == ""


# fault behaviour 11: kube-scheduler may ask for a pod that has ended
async def test_a_bind_for_a_pod_that_has_ended_reserves_nothing(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    await here.end("p")

    assert await extender.bind("p", "node-1") == "the pod has ended"
    assert here.client.writes == []
    assert not (await here.get(claims_path("c"))).get("status")


async def test_a_bind_for_a_pod_that_is_gone_ends_in_an_error(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    body = {"PodName": "p", "PodNamespace": "default", "PodUID": "another", "Node": "node-1"}

    assert "replaced" in (await extender.post("bind", body)).json()["Error"]


async def test_an_idle_claim_on_the_wrong_node_is_given_back(here: World) -> None:
    extender = Extender(here)
    await here.claim("c", finalizers=[FINALIZER])
    await here.pod("p", "c")
    stored = await here.get(claims_path("c"))
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    stored["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
    }
    await here.put(claims_path("c", "status"), stored)

    answer = await extender.filter("p", "node-2")
    assert not answer["NodeNames"]
    await here.settled()
    assert not ((await here.get(claims_path("c"))).get("status") or {}).get("allocation")
    assert (await extender.filter("p", "node-2"))["NodeNames"] == ["node-2"]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"null",
        b"[" * 60_000,
        b'{"Pod": {}',
        b'{"Pod": NaN}',
    ],
    ids=lambda body: str(body[:24]),
)
async def test_what_is_no_json_object_does_not_come_from_kube_scheduler(
    here: World, verb: str, body: bytes
) -> None:
    extender = Extender(here)

    response = await extender.post(verb, body)
    assert response.status_code == 400
    assert response.json()["Error"]
    assert here.client.writes == []
    await here.pod("p")
    assert (await extender.filter("p", "node-1"))["NodeNames"] == ["node-1"]


@pytest.mark.parametrize("length", ["5000000", "9" * 30, "9" * 5000])
async def test_a_body_that_is_announced_as_too_large_is_not_read(here: World, length: str) -> None:
    extender = Extender(here)
    headers = {**JSON, "content-length": length}
    response = await extender.http.post("/filter", content=b"{}", headers=headers)
    assert "larger than" in response.json()["Error"]


async def test_only_post_of_json_is_accepted(here: World) -> None:
    extender = Extender(here)

    assert (await extender.http.get("/filter")).status_code == 405
    text = await extender.http.post(
        "/filter", content=b"{}", headers={"content-type": "text/plain"}
    )
    assert text.status_code == 415
    for path in ("/docs", "/openapi.json", "/"):
        assert (await extender.http.get(path)).status_code == 404


async def test_shortlist_answers_the_best_few_unless_soft_preferences_decide(here: World) -> None:
    extender = Extender(here, shortlist=1)
    await here.claim("c")
    await here.pod("p", "c")
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    await here.pod("q", "c", topologySpreadConstraints=[spread])

    assert len((await extender.filter("p", "node-1", "node-2"))["NodeNames"]) == 1
    assert len((await extender.filter("q", "node-1", "node-2"))["NodeNames"]) == 2


async def test_forced_choice_holds_until_bind_pod_deletion_or_time(here: World) -> None:
    holds = Holds(here.cache, here.clock)
    here.cache.subscribe(holds.observe)
    extender = Extender(here, holds=holds)
    for name in "abc":
        await here.claim(name)
        await here.pod(name, name)

    assert (await extender.filter("a", "node-1"))["NodeNames"] == ["node-1"]
    assert not (await extender.filter("b", "node-1"))["NodeNames"]
    assert await extender.bind("a", "node-1") == ""
    assert len(holds) == 0

    assert (await extender.filter("b", "node-2"))["NodeNames"] == ["node-2"]
    assert len(holds) == 1
    await here.delete(pods_path("b"))
    await here.settled()
    assert len(holds) == 0
    assert here.cache.in_flight_claims == 0


async def test_wake_up_patches_the_sentinel_once_when_a_slice_appears(here: World) -> None:
    await here.claim("sentinel")
    wakeup = WakeUp(here.client, here.clock, lambda: True, "default", "sentinel")
    here.cache.subscribe(wakeup.observe)
    extender = Extender(here, wakeup=wakeup)
    await here.claim("c", count=3)
    await here.pod("p", "c")
    task = asyncio.create_task(wakeup.run())
    try:
        await here.node("node-3")
        await here.gpus("node-3", 1)
        await asyncio.sleep(0.2)
        assert here.client.writes == []  # nobody waits

        await extender.filter("p", "node-1", "node-2")
        await here.node("node-4")
        await here.gpus("node-4", 3)
        await asyncio.sleep(0.3)
        assert here.client.writes == [("PATCH", claims_path("sentinel"))]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


CPUS = {
    "devices": [
        {
            "name": "cpus",
            "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "6"}}},
        }
    ]
}


async def counting_node(here: World, name: str) -> None:
    """A node with 8 cpus and a device that stands for 6 of them."""
    await here.node(name)
    await here.gpus(name, 0, **CPUS)
    await here.settled()


@pytest.fixture
async def counts() -> AsyncIterator[World]:
    async with world(DRANodeAllocatableResources=True) as made:
        await made.device_class()
        yield made


BUSY = [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "3"}}}]


async def test_devices_that_count_in_resources_of_the_node_need_room_and_are_told_of(
    counts: World,
) -> None:
    await counting_node(counts, "node-3")
    await counting_node(counts, "node-4")
    extender = Extender(counts)
    await counts.claim("c")
    await counts.pod("p", "c")
    await counts.pod("busy", containers=BUSY, nodeName="node-4")

    answer = await extender.filter("p", "node-3", "node-4")
    assert answer["NodeNames"] == ["node-3"]
    alone = await extender.filter("p", "node-4")
    assert alone["FailedAndUnresolvableNodes"] == {"node-4": "Insufficient cpu"}
    assert "Insufficient cpu" in await extender.bind("p", "node-4")
    assert await extender.bind("p", "node-3") == ""
    told = (await counts.get(pods_path("p")))["status"]["nodeAllocatableResourceClaimStatuses"]
    assert told == [{"resourceClaimName": "c", "mapping": [{"name": "cpu", "quantity": "6"}]}]


async def test_without_the_gate_devices_count_nothing_and_nothing_is_told(here: World) -> None:
    await counting_node(here, "node-3")
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    await here.pod("busy", containers=BUSY, nodeName="node-3")

    assert await extender.bind("p", "node-3") == ""
    assert here.client.writes == [
        ("PUT", claims_path("c")),
        ("PUT", claims_path("c", "status")),
        ("POST", pods_path("p", "binding")),
    ]


@pytest.mark.parametrize("counts", [True, False])
async def test_room_that_is_freed_wakes_only_where_devices_count_in_it(
    here: World, *, counts: bool
) -> None:
    await here.claim("sentinel")
    wakeup = WakeUp(here.client, here.clock, lambda: True, "default", "sentinel")
    wakeup.helpful = Event.ROOM_FREED if counts else Event.NOTHING
    here.cache.subscribe(wakeup.observe)
    extender = Extender(here, wakeup=wakeup)
    await here.claim("c", count=3)
    await here.pod("p", "c")
    await here.pod("busy", nodeName="node-1")
    task = asyncio.create_task(wakeup.run())
    try:
        await extender.filter("p", "node-1", "node-2")
        await here.end("busy")
        await asyncio.sleep(0.3)
        assert here.client.writes == ([("PATCH", claims_path("sentinel"))] if counts else [])
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
