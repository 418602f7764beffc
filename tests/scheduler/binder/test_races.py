"""Binds against everything that may happen between two of their writes."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from allocator.model.meta import ObjectMeta
from allocator.outcome import ReasonKind
from scheduler import cycle
from scheduler.binder import BindError, BindOutcome, Chain, PodWriter
from scheduler.binder.epochs import MAX_EPOCH
from scheduler.binder.retry import Backoff
from scheduler.client import Rejected, Unknown
from scheduler.clock import SystemClock
from scheduler.config import BindSettings
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plan import Plan, plan_of
from scheduler.model import EPOCH_ANNOTATION, FINALIZER, Kind, Pod
from tests.scheduler.embedded import CONFLICT, LOST, World, claims_path, pods_path, world

FORBIDDEN = Rejected(403, "Forbidden", "no")


class FastClock(SystemClock):
    """Pauses take no time but move the clock."""

    def __init__(self) -> None:
        self.offset = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.offset

    async def sleep(self, seconds: float) -> None:
        self.offset += seconds
        await asyncio.sleep(0)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        await made.cluster(("node-1", 2), ("node-2", 2))
        yield made


async def decide(here: World, name: str, node: str = "node-1") -> Plan:
    pod = await here.known_pod(name)
    state = cycle.pre_filter(pod, here.cache, here.environment)
    assert isinstance(state, CycleState), state
    verdict = cycle.filter_node(state, state.snapshot.nodes[node])
    assert verdict.fits, verdict.status
    return plan_of(state, node, verdict)


async def start(here: World, name: str, node: str = "node-1") -> Chain:
    return here.binder.start(await decide(here, name, node))


async def bind(here: World, name: str, node: str = "node-1") -> BindOutcome:
    return await here.binder.wait(await start(here, name, node))


async def claim(here: World, name: str = "c") -> dict[str, Any]:
    return await here.get(claims_path(name))


async def node_of(here: World, name: str) -> str:
    found: str = (await here.get(pods_path(name)))["spec"].get("nodeName", "")
    return found


async def allocate(here: World, name: str, node: str, device: str = "gpu-0") -> None:
    """Allocate a claim behind the scheduler's back, as another writer does."""
    stored = await claim(here, name)
    if FINALIZER not in stored["metadata"].get("finalizers", ()):
        stored["metadata"]["finalizers"] = [FINALIZER]
        stored = await here.put(claims_path(name), stored)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    stored["status"] = {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "gpu",
                        "driver": "gpu.example.com",
                        "pool": node,
                        "device": device,
                    }
                ]
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
    }
    await here.put(claims_path(name, "status"), stored)


async def deallocate(here: World, name: str) -> None:
    stored = await claim(here, name)
    stored["status"] = {}
    await here.put(claims_path(name, "status"), stored)


async def is_clean(here: World, name: str = "c") -> bool:
    """Nothing is left of an attempt, in the cluster or in memory."""
    await here.settled()
    status = (await claim(here, name)).get("status") or {}
    return (
        not status.get("allocation")
        and not status.get("reservedFor")
        and here.cache.in_flight_claims == 0
        and here.cache.assumed_claims == 0
        and here.binder.open_chains == 0
    )


def reason(outcome: BindOutcome) -> ReasonKind:
    assert outcome.reason is not None
    return outcome.reason.kind


# --- claims that change between the decision and the write ------------------------------------------------------------


async def test_a_claim_that_has_moved_to_another_node_is_not_bound_to_this_one(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    await allocate(here, "c", "node-1")
    decision = await decide(here, "p", "node-1")

    await deallocate(here, "c")
    await allocate(here, "c", "node-2")
    await here.settled()

    outcome = await here.binder.wait(here.binder.start(decision))
    assert reason(outcome) is ReasonKind.WRITE_CONFLICT
    assert await node_of(here, "p") == ""
    assert "reservedFor" not in (await claim(here))["status"]


async def test_a_claim_that_moves_while_it_is_reserved_is_not_bound_to_the_old_node(
    here: World,
) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    await allocate(here, "c", "node-1")

    async def move() -> None:
        await deallocate(here, "c")
        await allocate(here, "c", "node-2")

    here.before_once("PUT", "c/status", move)

    assert reason(await bind(here, "p", "node-1")) is ReasonKind.WRITE_CONFLICT
    assert await node_of(here, "p") == ""


async def test_a_claim_released_while_the_next_one_is_written_stops_the_binding(
    here: World,
) -> None:
    await here.claim("c")
    await here.claim("d")
    await here.pod("p", "c", "d")
    here.before_once("PUT", "d/status", lambda: deallocate(here, "c"))

    assert reason(await bind(here, "p")) is ReasonKind.WRITE_CONFLICT
    assert await node_of(here, "p") == ""
    assert await is_clean(here, "c")
    assert await is_clean(here, "d")


async def test_a_claim_that_a_later_leader_has_stamped_is_not_even_reserved(here: World) -> None:
    here.epoch = 3
    await here.claim("c", annotations={EPOCH_ANNOTATION: "4"})
    await here.pod("p", "c")
    await allocate(here, "c", "node-1")

    assert reason(await bind(here, "p")) is ReasonKind.WRITE_CONFLICT
    assert here.client.writes == []


# A stamp that is far ahead was made up by a tenant.
@pytest.mark.parametrize("stamp", ["9" * 5000, "-1", "", "none", "٣", "1004", str(MAX_EPOCH)])
async def test_a_stamp_that_is_no_epoch_means_nothing(here: World, stamp: str) -> None:
    here.epoch = 3
    await here.claim("c", annotations={EPOCH_ANNOTATION: stamp})
    await here.pod("p", "c")

    assert (await bind(here, "p")).is_bound


# --- shared claims ----------------------------------------------------------------------------------------------------


async def test_a_sharer_keeps_the_claim_when_the_first_pods_binding_fails(here: World) -> None:
    await here.claim("c")
    await here.pod("a", "c")
    await here.pod("b", "c")
    gate = asyncio.Event()

    async def hang(_method: str, path: str, _body: bytes) -> Any:
        if path.endswith("a/binding"):
            await gate.wait()
            return FORBIDDEN
        return None

    here.client.faults.append(hang)
    first = await start(here, "a")
    await here.settled()
    assert (await bind(here, "b")).is_bound
    gate.set()

    assert reason(await here.binder.wait(first)) is ReasonKind.PERMISSION_DENIED
    status = (await claim(here))["status"]
    assert [entry["name"] for entry in status["reservedFor"]] == ["b"]
    assert status["allocation"]


async def test_a_sharer_that_reserves_while_the_claim_is_taken_back_is_not_bound_without_it(
    here: World,
) -> None:
    await here.claim("c")
    await here.pod("a", "c")
    await here.pod("b", "c")
    second: list[Chain] = []

    async def refuse(_method: str, path: str, _body: bytes) -> Any:
        if path.endswith("a/binding"):
            second.append(here.binder.start(await decide(here, "b")))
            return FORBIDDEN
        return None

    here.client.faults.append(refuse)
    assert reason(await bind(here, "a")) is ReasonKind.PERMISSION_DENIED
    outcome = await here.binder.wait(second[0])

    status = (await claim(here)).get("status") or {}
    if outcome.is_bound:
        assert status["allocation"]
        assert [entry["name"] for entry in status["reservedFor"]] == ["b"]
    else:
        assert await is_clean(here)


async def test_a_sharer_of_a_device_given_twice_gives_way_too(here: World) -> None:
    await here.claim("c")
    await here.claim("foreign")
    await here.pod("p", "c")
    await allocate(here, "foreign", "node-1", "gpu-1")
    await allocate(here, "c", "node-1", "gpu-1")

    assert reason(await bind(here, "p")) is ReasonKind.WRITE_CONFLICT
    assert await node_of(here, "p") == ""


# --- outcomes that are not known --------------------------------------------------------------------------------------


async def test_an_allocation_that_may_still_commit_cannot_after_it_was_given_up(
    here: World,
) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    late: list[tuple[str, str, bytes]] = []

    def lose_then_refuse(method: str, path: str, body: bytes) -> Any:
        if not path.endswith("c/status"):
            return None
        if not late:
            late.append((method, path, body))
            return LOST
        return FORBIDDEN

    here.client.faults.append(lose_then_refuse)
    assert reason(await bind(here, "p")) is ReasonKind.PERMISSION_DENIED
    here.client.faults.clear()

    assert isinstance(await here.client.send(*late[0]), Rejected)
    assert await is_clean(here)


async def test_a_binding_that_may_still_commit_is_waited_for_before_anything_is_taken_back(
    here: World,
) -> None:
    await here.pod("p")
    clock = FastClock()
    writer = PodWriter(here.client, clock, random.Random(5), lambda: True)
    began = clock.monotonic()
    late: list[tuple[str, str, bytes]] = []

    async def lose_then_refuse(method: str, path: str, body: bytes) -> Any:
        if not late:
            late.append((method, path, body))
            return LOST
        if clock.monotonic() - began > 5.0 and len(late) == 1:
            late.append(late[0])
            await here.client.send(*late[0])
        return FORBIDDEN

    here.client.faults.append(lose_then_refuse)
    pod = await here.known_pod("p")
    await writer.bind(pod, "node-1", is_expired=lambda: False)
    assert await node_of(here, "p") == "node-1"


async def test_a_binding_refused_long_after_a_lost_answer_is_given_up(here: World) -> None:
    await here.pod("p")
    clock = FastClock()
    writer = PodWriter(here.client, clock, random.Random(5), lambda: True)
    answers = iter([LOST])
    here.client.faults.append(lambda *_: next(answers, FORBIDDEN))

    with pytest.raises(BindError):
        await writer.bind(await here.known_pod("p"), "node-1", is_expired=lambda: False)
    assert clock.offset >= 10.0


async def test_devices_of_a_write_that_may_still_commit_are_held_when_the_lease_is_lost(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    clock = SystemClock()

    async def wait(_seconds: float) -> None:
        await gate.wait()

    monkeypatch.setattr(clock, "sleep", wait)
    await here.claim("c")
    await here.pod("p", "c")

    def lose(_method: str, path: str, _body: bytes) -> Unknown | None:
        if not path.endswith("c/status"):
            return None
        here.may_write = False
        return LOST

    here.client.faults.append(lose)
    binder = here.make_binder(BindSettings())
    binder._clock = clock  # only the binder's own pauses
    chain = binder.start(await decide(here, "p"))
    await here.settled()
    for _ in range(20):
        await asyncio.sleep(0)
    assert here.cache.in_flight_claims == 1
    gate.set()
    assert reason(await binder.wait(chain)) is ReasonKind.NOT_LEADER
    assert here.cache.in_flight_claims == 0


async def test_an_outage_of_hours_ends_no_chain() -> None:
    clock = FastClock()
    backoff = Backoff(clock, random.Random(1))
    for _ in range(3000):
        await backoff.pause(LOST)
    assert 3000.0 < clock.offset < 15000.0


async def test_an_undo_that_is_refused_for_good_ends_and_frees_no_device(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")

    def refuse(_method: str, path: str, _body: bytes) -> Rejected | None:
        is_undo = here.client.writes.count(("PUT", claims_path("c", "status"))) > 1
        if path.endswith("binding") or (path.endswith("c/status") and is_undo):
            return Rejected(422, "Invalid", "no")
        return None

    here.client.faults.append(refuse)
    assert not (await bind(here, "p")).is_bound
    assert await here.binder.drain(5.0)
    await here.settled()
    assert here.cache.in_flight_claims == 0
    assert here.cache.snapshot().devices.allocated.pools
    here.client.faults.clear()
    assert (await bind(here, "p")).is_bound


# --- defects ----------------------------------------------------------------------------------------------------------


async def test_a_defect_in_a_chain_is_an_answer_and_leaves_nothing(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.claim("c")
    await here.pod("p", "c")

    def broken(_uid: str) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(here.cache, "conflicts", broken)
    outcome = await bind(here, "p")
    assert outcome.reason is not None
    assert "internal error" in outcome.reason.message
    assert "defect" not in outcome.reason.message
    assert await is_clean(here)


async def test_a_defect_while_binding_takes_nothing_from_a_pod_that_may_be_bound(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.claim("c")
    await here.pod("p", "c")

    async def bound_and_broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(PodWriter, "bind", bound_and_broken)
    assert not (await bind(here, "p")).is_bound
    await here.settled()
    assert (await claim(here))["status"]["reservedFor"]
    assert here.cache.in_flight_claims == 0


# --- giving back ------------------------------------------------------------------------------------------------------


async def test_the_claim_of_a_bound_pod_is_not_given_back(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    assert (await bind(here, "p")).is_bound
    pod = await here.known_pod("p")
    held = here.cache.claim("default", "c")
    assert held is not None

    assert not await here.binder.give_back(held, pod)
    assert (await claim(here))["status"]["allocation"]


async def test_a_claim_is_not_given_back_under_a_bind(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    answers: list[bool] = []

    async def give_back() -> None:
        await here.settled()
        pod, held = await here.known_pod("p"), here.cache.claim("default", "c")
        assert held is not None
        answers.append(await here.binder.give_back(held, pod))

    here.before_once("POST", "binding", give_back)
    assert (await bind(here, "p")).is_bound
    assert answers == [False]
    assert (await claim(here))["status"]["allocation"]


async def test_a_bind_that_begins_during_a_give_back_is_not_bound_without_its_claim(
    here: World,
) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    await allocate(here, "c", "node-1")
    stored = await claim(here)
    entry = {"resource": "pods", "name": "p", "uid": (await here.known_pod("p")).metadata.uid}
    stored["status"]["reservedFor"] = [entry]
    await here.put(claims_path("c", "status"), stored)
    decision = await decide(here, "p", "node-1")
    held = here.cache.claim("default", "c")
    assert held is not None
    chains: list[Chain] = []

    async def begin() -> None:
        chains.append(here.binder.start(decision))

    here.before_once("PUT", "c/status", begin)
    given = await here.binder.give_back(held, decision.pod)
    outcome = await here.binder.wait(chains[0])

    assert given
    assert reason(outcome) is ReasonKind.WRITE_CONFLICT
    assert await node_of(here, "p") == ""
    assert await is_clean(here)


# --- pods and claims that go, or come again ---------------------------------------------------------------------------


async def replace_claim(here: World) -> None:
    stored = await claim(here)
    if stored["metadata"].pop("finalizers", None):
        await here.put(claims_path("c"), stored)
    await here.delete(claims_path("c"))
    await here.claim("c")


async def replace_pod(here: World) -> None:
    await here.delete(pods_path("p"))
    await here.pod("p", "c")


@pytest.mark.parametrize(
    "step", [("PUT", "resourceclaims/c"), ("PUT", "c/status"), ("POST", "p/binding")]
)
@pytest.mark.parametrize("what", [replace_claim, replace_pod])
@pytest.mark.parametrize("lost", [False, True], ids=["", "and the answer is lost"])
async def test_what_is_replaced_under_its_name_gets_nothing_of_the_old_one(
    here: World, step: tuple[str, str], what: Callable[[World], Awaitable[None]], *, lost: bool
) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    here.before_once(*step, lambda: what(here))
    if lost:
        here.answer_once(*step, LOST, commit=False)

    outcome = await bind(here, "p")
    await here.settled()
    if what is replace_claim and step[0] == "POST":
        return  # nobody can notice in time: the finalizer was taken away by force
    assert not outcome.is_bound
    assert await node_of(here, "p") == ""
    assert await is_clean(here)


async def test_a_pod_that_went_while_the_watch_was_broken_is_assumed_no_more(here: World) -> None:
    """The cache never had it: no event tells that it is gone, only that a later list does not have it."""
    meta = ObjectMeta(name="q", namespace="default", uid="q", resource_version="999998")
    pod = Pod(metadata=meta)
    here.cache.assume_pod(pod, "node-1")
    pods = list(here.cache.pods())
    here.cache.replace(Kind.POD, pods, 999_997)
    assert here.cache.assumed_node("q") == "node-1"
    here.cache.replace(Kind.POD, pods, 999_999)
    assert here.cache.assumed_node("q") is None
    assert here.cache.recount() == []


async def test_a_conflict_that_never_ends_is_given_up(here: World) -> None:
    await here.claim("c")
    await here.pod("p", "c")
    conflicts = [5]

    def refuse(_method: str, path: str, _body: bytes) -> Rejected | None:
        if path.endswith("c/status") and conflicts[0]:
            conflicts[0] -= 1
            return CONFLICT
        return None

    here.client.faults.append(refuse)
    assert reason(await bind(here, "p")) is ReasonKind.WRITE_CONFLICT
    assert await is_clean(here)
