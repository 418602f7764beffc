"""The write protocol of bind, under every outcome a write can have."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from allocator.outcome import Reason, ReasonKind
from scheduler import cycle
from scheduler.binder import BindOutcome
from scheduler.client import Rejected
from scheduler.config import BindSettings
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plan import plan_of
from scheduler.framework.status import Status, error
from scheduler.model import EPOCH_ANNOTATION, FINALIZER
from tests.scheduler.embedded import CONFLICT, LOST, World, claims_path, pods_path, world


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        await made.cluster(("node-1", 2))
        yield made


async def bind(
    here: World, name: str, node: str = "node-1", recheck: Callable[[], Status | None] | None = None
) -> BindOutcome:
    pod = await here.known_pod(name)
    state = cycle.pre_filter(pod, here.cache, here.environment)
    assert isinstance(state, CycleState), state
    verdict = cycle.filter_node(state, state.snapshot.nodes[node])
    assert verdict.fits, verdict.status
    chain = here.binder.start(plan_of(state, node, verdict), recheck)
    return await here.binder.wait(chain)


async def claim(here: World, name: str = "c") -> dict[str, Any]:
    return await here.get(claims_path(name))


async def is_untouched(here: World, name: str = "c") -> bool:
    await here.settled()
    status = (await claim(here, name)).get("status") or {}
    nothing_held = here.cache.snapshot().devices.allocated.pools == {}
    return (
        not status.get("allocation")
        and not status.get("reservedFor")
        and nothing_held
        and here.cache.in_flight_claims == 0
        and here.cache.assumed_claims == 0
    )


async def test_writes_finalizer_then_allocation_with_reservation_then_binding(here: World) -> None:
    await here.claim("c")
    pod = await here.pod("p", "c")

    outcome = await bind(here, "p")

    assert outcome.is_bound
    assert here.client.writes == [
        ("PUT", claims_path("c")),
        ("PUT", claims_path("c", "status")),
        ("POST", pods_path("p", "binding")),
    ]
    written = await claim(here)
    assert written["metadata"]["finalizers"] == [FINALIZER]
    assert written["status"]["reservedFor"] == [
        {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    ]
    assert written["status"]["allocation"]["allocationTimestamp"]
    assert (await here.get(pods_path("p")))["spec"]["nodeName"] == "node-1"


async def test_a_pod_without_claims_is_only_bound(here: World) -> None:
    await here.pod("p")

    assert (await bind(here, "p")).is_bound
    assert here.client.writes == [("POST", pods_path("p", "binding"))]


async def test_a_second_consumer_reserves_without_touching_the_allocation(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    await here.pod("q", "c")
    await bind(here, "p")
    allocation = (await claim(here))["status"]["allocation"]

    assert (await bind(here, "q")).is_bound
    status = (await claim(here))["status"]
    assert status["allocation"] == allocation
    assert [entry["name"] for entry in status["reservedFor"]] == ["p", "q"]


async def test_unknown_fields_of_a_claim_survive(here: World) -> None:
    await here.claim("c", annotations={"other.example.com/note": "kept"})
    await here.pod("p", "c")

    await bind(here, "p")
    assert (await claim(here))["metadata"]["annotations"]["other.example.com/note"] == "kept"


async def test_finalizer_that_is_there_costs_no_write(here: World) -> None:
    await here.claim("c", finalizers=[FINALIZER])
    await here.pod("p", "c")

    assert (await bind(here, "p")).is_bound
    assert ("PUT", claims_path("c")) not in here.client.writes
    assert (await claim(here))["metadata"]["finalizers"] == [FINALIZER]


async def test_epoch_is_stamped_with_the_finalizer(here: World) -> None:
    here.epoch = 3
    await here.claim("c")
    await here.pod("p", "c")

    await bind(here, "p")
    assert (await claim(here))["metadata"]["annotations"][EPOCH_ANNOTATION] == "3"


async def test_a_higher_epoch_stops_us(here: World) -> None:
    here.epoch = 3
    await here.claim("c", annotations={EPOCH_ANNOTATION: "4"})
    await here.pod("p", "c")

    outcome = await bind(here, "p")
    assert outcome.reason is not None
    assert outcome.reason.message == (
        f"claim c carries the stamp of a later leader (annotation {EPOCH_ANNOTATION})"
    )
    assert here.client.writes == []


@pytest.mark.parametrize("ending", ["resourceclaims/c", "c/status", "p/binding"])
@pytest.mark.parametrize("commit", [True, False], ids=["committed", "not committed"])
async def test_a_lost_answer_leads_to_one_allocation_and_a_bound_pod(
    here: World, ending: str, *, commit: bool
) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    method = "POST" if ending.endswith("binding") else "PUT"
    here.answer_once(method, ending, LOST, commit=commit)

    assert (await bind(here, "p")).is_bound
    written = await claim(here)
    assert len(written["status"]["allocation"]["devices"]["results"]) == 1
    assert len(written["status"]["reservedFor"]) == 1
    assert len(written["metadata"]["finalizers"]) == 1


@pytest.mark.parametrize("ending", ["resourceclaims/c", "c/status"])
async def test_a_conflict_is_read_again_and_tried_again(here: World, ending: str) -> None:
    await here.claim("c")
    await here.pod("p", "c")

    async def relabel() -> None:
        stored = await claim(here)
        stored["metadata"]["labels"] = {"touched": "yes"}
        await here.put(claims_path("c"), stored)

    here.before_once("PUT", ending, relabel)

    assert (await bind(here, "p")).is_bound
    written = await claim(here)
    assert written["metadata"]["labels"] == {"touched": "yes"}
    assert len(written["status"]["reservedFor"]) == 1


async def test_a_claim_allocated_by_somebody_else_in_between_ends_the_bind(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")

    async def allocate() -> None:
        stored = await claim(here)
        stored["metadata"]["finalizers"] = [FINALIZER]
        stored = await here.put(claims_path("c"), stored)
        result = {
            "request": "gpu",
            "driver": "gpu.example.com",
            "pool": "node-1",
            "device": "gpu-1",
        }
        stored["status"] = {"allocation": {"devices": {"results": [result]}}}
        await here.put(claims_path("c", "status"), stored)

    here.before_once("PUT", "c/status", allocate)

    outcome = await bind(here, "p")
    assert outcome.reason is not None
    assert outcome.reason.kind is ReasonKind.WRITE_CONFLICT
    stored = await claim(here)
    assert stored["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-1"
    assert "reservedFor" not in stored["status"]
    assert (await bind(here, "p")).is_bound


async def test_a_pod_deleted_before_its_binding_leaves_nothing(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    here.before_once("POST", "binding", lambda: here.delete(pods_path("p")))

    outcome = await bind(here, "p")
    assert outcome.reason is not None
    assert await is_untouched(here)


async def test_a_binding_refused_for_good_gives_everything_back(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    here.client.faults.append(
        lambda _method, path, _body: (
            Rejected(403, "Forbidden", "no pods/binding") if path.endswith("/binding") else None
        )
    )

    outcome = await bind(here, "p")
    assert outcome.reason is not None
    assert outcome.reason.kind is ReasonKind.PERMISSION_DENIED
    assert await is_untouched(here)


async def test_a_binding_that_fails_once_is_repeated_with_the_same_allocation(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    here.answer_once("POST", "binding", CONFLICT, commit=False)

    assert (await bind(here, "p")).is_bound
    assert here.client.writes.count(("PUT", claims_path("c", "status"))) == 1


async def test_second_claim_refused_undoes_the_first(here: World) -> None:
    await here.claim("c")
    await here.claim("d")
    await here.pod("p", "c", "d")
    here.client.faults.append(
        lambda method, path, _body: (
            Rejected(422, "Invalid", "no resourceclaims/binding permission")
            if (method, path) == ("PUT", claims_path("d", "status"))
            and ("PUT", claims_path("c", "status")) in here.client.writes
            and here.client.writes.count((method, path)) == 1
            else None
        )
    )

    outcome = await bind(here, "p")
    assert outcome.reason is not None
    assert outcome.reason.kind is ReasonKind.PERMISSION_DENIED
    assert await is_untouched(here, "c")
    assert await is_untouched(here, "d")


async def test_devices_stay_held_while_the_outcome_of_the_allocation_is_unknown(
    here: World,
) -> None:
    await here.claim("c", count=2)
    await here.claim("d")
    await here.pod("p", "c")
    await here.pod("q", "d")
    gate = asyncio.Event()

    async def hang(method: str, path: str, _body: bytes) -> Any:
        if (method, path) == ("PUT", claims_path("c", "status")) and not gate.is_set():
            await gate.wait()
            return LOST
        return None

    here.client.faults.append(hang)
    binding = asyncio.create_task(bind(here, "p"))
    await here.settled()

    pod = await here.known_pod("q")
    state = cycle.pre_filter(pod, here.cache, here.environment)
    assert isinstance(state, CycleState)
    verdict = cycle.filter_node(state, state.snapshot.nodes["node-1"])
    assert not verdict.fits
    gate.set()
    assert (await binding).is_bound


async def test_a_late_bind_answers_in_time_and_is_taken_back(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    here.binder = here.make_binder(BindSettings(budget_seconds=0.05))
    gate = asyncio.Event()

    async def hang(method: str, path: str, _body: bytes) -> Any:
        if (method, path) == ("PUT", claims_path("c", "status")) and not gate.is_set():
            await gate.wait()
        return None

    here.client.faults.append(hang)
    outcome = await bind(here, "p")
    assert outcome.reason is not None
    assert outcome.reason.kind is ReasonKind.DEADLINE_EXCEEDED

    gate.set()
    assert await here.binder.drain(5.0)
    assert await is_untouched(here)
    assert ("POST", pods_path("p", "binding")) not in here.client.writes


async def test_recheck_before_the_binding_stops_it(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    gone = error(Reason(kind=ReasonKind.NO_NODES, message="the node is gone"))

    outcome = await bind(here, "p", recheck=lambda: gone)
    assert outcome.reason is not None
    assert outcome.reason.message == "the node is gone"
    assert await is_untouched(here)


async def test_nothing_is_sent_once_the_lease_is_lost(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    here.client.faults.append(
        lambda _method, path, _body: setattr(here, "may_write", not path.endswith("c/status"))
    )

    outcome = await bind(here, "p")
    assert outcome.reason is not None
    assert outcome.reason.kind is ReasonKind.NOT_LEADER
    assert ("POST", pods_path("p", "binding")) not in here.client.writes


async def test_a_device_given_away_earlier_by_another_writer_is_noticed_and_given_up(
    here: World,
) -> None:
    await here.claim("c")
    await here.claim("foreign", finalizers=[FINALIZER])
    await here.pod("p", "c")

    async def steal() -> None:
        stored = await claim(here, "foreign")
        result = {
            "request": "gpu",
            "driver": "gpu.example.com",
            "pool": "node-1",
            "device": "gpu-0",
        }
        stored["status"] = {"allocation": {"devices": {"results": [result]}}}
        await here.put(claims_path("foreign", "status"), stored)

    here.before_once("PUT", "c/status", steal)

    outcome = await bind(here, "p")
    assert outcome.reason is not None
    assert outcome.reason.kind is ReasonKind.WRITE_CONFLICT
    assert [conflict.device.device for conflict in here.conflicts] == ["gpu-0"]
    assert not ((await claim(here)).get("status") or {}).get("allocation")
    assert (await bind(here, "p")).is_bound


async def test_pending_binding_conditions_keep_the_claim_and_end_the_call(here: World) -> None:
    await here.node("node-2")
    await here.gpus(
        "node-2",
        1,
        devices=[
            {
                "name": "gpu-0",
                "bindingConditions": ["example.com/ready"],
                "bindingFailureConditions": ["example.com/failed"],
            }
        ],
    )
    await here.claim("c")
    await here.pod("p", "c")

    outcome = await bind(here, "p", "node-2")
    assert outcome.reason is not None
    assert outcome.reason.kind is ReasonKind.BINDING_CONDITIONS_PENDING
    assert (await claim(here))["status"]["reservedFor"]

    stored = await claim(here)
    condition = {
        "type": "example.com/ready",
        "status": "True",
        "reason": "r",
        "message": "",
        "lastTransitionTime": "2026-11-29T10:00:00Z",
    }
    device = {"driver": "gpu.example.com", "pool": "node-2", "device": "gpu-0"}
    stored["status"]["devices"] = [{**device, "conditions": [condition]}]
    await here.put(claims_path("c", "status"), stored)
    assert (await bind(here, "p", "node-2")).is_bound


async def test_an_idle_claim_is_given_back_and_a_used_one_is_not(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    await here.pod("q", "c")
    await bind(here, "p")
    q = await here.known_pod("q")
    held = here.cache.claim("default", "c")
    assert held is not None
    assert not await here.binder.give_back(held, q)

    stored = await claim(here)
    stored["status"]["reservedFor"] = []
    await here.put(claims_path("c", "status"), stored)
    await here.settled()
    idle = here.cache.claim("default", "c")
    assert idle is not None
    assert await here.binder.give_back(idle, q)
    assert await is_untouched(here)
