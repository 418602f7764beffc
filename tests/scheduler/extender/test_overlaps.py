"""Webhook calls that overlap: with a bind under way, with changes of the cluster, with callers that gave up."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest

from scheduler.client import Rejected, UnavailableError
from scheduler.clock import SystemClock
from scheduler.config import BindSettings
from scheduler.extender import service as service_module
from scheduler.extender.holds import HOLD_SECONDS, Holds
from scheduler.extender.wakeup import WakeUp
from scheduler.model import FINALIZER
from tests.scheduler.embedded import World, claims_path, pods_path, world
from tests.scheduler.extender.test_extender import Extender


class StepClock(SystemClock):
    """Moves when told."""

    def __init__(self) -> None:
        self.offset = 0.0

    def monotonic(self) -> float:
        return self.offset

    async def sleep(self, seconds: float) -> None:
        until = self.offset + seconds
        while self.offset < until:
            await asyncio.sleep(0)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        await made.cluster(("node-1", 1), ("node-2", 2))
        yield made


def hang(here: World, ending: str) -> asyncio.Event:
    """Writes whose path ends so wait for the event."""
    gate = asyncio.Event()

    async def wait(_method: str, path: str, _body: bytes) -> None:
        if path.endswith(ending):
            await gate.wait()

    here.client.faults.append(wait)
    return gate


async def spin(turns: int = 200) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def test_a_pod_whose_bind_is_under_way_gets_an_error_and_keeps_its_claim(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    gate = hang(here, "binding")
    binding = asyncio.create_task(extender.bind("p", "node-1"))
    await spin()
    assert (await here.get(claims_path("c")))["status"]["allocation"]

    answer = await extender.filter("p", "node-2")
    assert "already" in answer["Error"]
    await spin()
    assert (await here.get(claims_path("c")))["status"]["allocation"]
    gate.set()
    assert await binding == ""


async def test_a_bound_pod_gets_an_error_and_keeps_its_claim(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    assert await extender.bind("p", "node-1") == ""

    for _ in range(2):
        assert "already" in (await extender.filter("p", "node-2"))["Error"]
        await here.settled()
    assert (await here.get(claims_path("c")))["status"]["allocation"]


async def test_forced_choice_never_replaces_what_a_bind_holds(here: World) -> None:
    holds = Holds(here.cache, here.clock)
    extender = Extender(here, holds=holds)
    await here.claim("c")
    await here.pod("p", "c")
    gate = hang(here, "c/status")
    binding = asyncio.create_task(extender.bind("p", "node-1"))
    await spin()
    before = here.cache.in_flight_claims

    assert "already" in (await extender.filter("p", "node-1", "node-2"))["Error"]
    assert (before, here.cache.in_flight_claims, len(holds)) == (1, 1, 0)
    gate.set()
    assert await binding == ""


async def test_forced_choice_lets_go_in_time_though_nobody_asks(here: World) -> None:
    clock, expired = StepClock(), asyncio.Event()
    holds = Holds(here.cache, clock, expired.set)
    extender = Extender(here, holds=holds)
    await here.claim("c")
    await here.pod("p", "c")
    assert (await extender.filter("p", "node-1"))["NodeNames"] == ["node-1"]
    running = asyncio.create_task(holds.run())
    try:
        clock.offset = HOLD_SECONDS - 1
        await spin()
        assert here.cache.in_flight_claims == 1
        clock.offset = HOLD_SECONDS + 1
        await spin()
        assert here.cache.in_flight_claims == 0
        assert expired.is_set()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_bind_of_an_unknown_pod_answers_though_the_server_does_not(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: Any) -> bytes:
        raise UnavailableError("no answer")

    monkeypatch.setattr(here.client, "get", silent)
    monkeypatch.setattr(service_module, "READ_SECONDS", 0.05)
    extender = Extender(here)
    body = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "node-1"}

    async with asyncio.timeout(2.0):
        response = await extender.post("bind", body)
    assert "cannot be read" in response.json()["Error"]


@pytest.mark.parametrize("name", ["p/log", "../../secrets/s", "p?x=1", "P", "-", "p\n"])
async def test_a_pod_name_is_never_made_into_another_path(
    here: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    extender = Extender(here)
    monkeypatch.setattr(here.client, "get", lambda path, _query=None: asked.append(path))
    body = {"PodName": name, "PodNamespace": "default", "PodUID": "u", "Node": "node-1"}

    assert (await extender.post("bind", body)).json()["Error"]
    assert asked == []


async def test_a_defect_is_answered_and_not_told(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    extender = Extender(here)
    await here.pod("p")

    async def broken(*_: Any) -> Any:
        raise RuntimeError("a secret")

    monkeypatch.setattr(extender.service, "filter", broken)
    response = await extender.post("filter", await extender.args("p", "node-1"))
    assert response.status_code == 200
    assert response.json()["Error"] == "internal error"


# --- waking rejected pods ---------------------------------------------------------------------------------------------


class Waking:
    """A running wake-up under a clock that moves when told."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.clock = StepClock()
        self.may_write = True
        self.wakeup = WakeUp(here.client, self.clock, lambda: self.may_write, "default", "sentinel")
        here.cache.subscribe(self.wakeup.observe)
        self.task = asyncio.create_task(self.wakeup.run())

    @property
    def patches(self) -> int:
        return self.here.client.writes.count(("PATCH", claims_path("sentinel")))

    async def after(self, seconds: float) -> int:
        """Patches after so much time, in small steps."""
        for _ in range(round(seconds * 10)):
            self.clock.offset += 0.1
            await spin(20)
        return self.patches


@pytest.fixture
async def waking(here: World) -> AsyncIterator[Waking]:
    await here.claim("sentinel")
    await here.settled()
    made = Waking(here)
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)


async def new_slice(here: World, name: str) -> None:
    await here.node(name)
    await here.gpus(name, 1)
    await here.settled()


async def test_a_claim_event_seen_late_does_not_swallow_the_wake_up(
    here: World, waking: Waking
) -> None:
    """kube-scheduler may have seen that event, and asked us, before we saw the slice."""
    waking.wakeup.rejected("pod")
    await new_slice(here, "node-3")
    await here.claim("unrelated")
    await here.settled()

    assert await waking.after(1.0) == 0
    assert await waking.after(6.0) == 1
    assert await waking.after(20.0) == 1


async def test_no_patch_if_every_rejected_pod_was_tried_again(here: World, waking: Waking) -> None:
    waking.wakeup.rejected("pod")
    await new_slice(here, "node-3")
    await here.claim("unrelated")
    await here.settled()
    await waking.after(0.5)
    waking.wakeup.rejected("pod")

    assert await waking.after(10.0) == 0


async def test_steady_claim_writes_do_not_put_the_wake_up_off_for_ever(
    here: World, waking: Waking
) -> None:
    waking.wakeup.rejected("pod")
    await new_slice(here, "node-3")
    for index in range(20):
        await here.claim(f"c{index}")
        await here.settled()
        await waking.after(0.5)

    assert waking.patches == 1


async def test_a_slice_right_after_our_own_patch_is_told_as_well(
    here: World, waking: Waking
) -> None:
    waking.wakeup.rejected("pod")
    await new_slice(here, "node-3")
    assert await waking.after(0.3) == 1
    waking.wakeup.rejected("pod")
    here.client.faults.clear()
    await new_slice(here, "node-4")
    await here.client.send(
        "PATCH",
        claims_path("sentinel"),
        orjson.dumps({"metadata": {"labels": {"a": "b"}}}),
        content_type="application/merge-patch+json",
    )
    await here.settled()

    assert await waking.after(2.5) == 2


async def test_a_pod_judged_before_the_change_is_woken_though_rejected_after_it(
    here: World, waking: Waking
) -> None:
    seen = waking.wakeup.changes
    await new_slice(here, "node-3")
    waking.wakeup.rejected("pod", seen)

    assert await waking.after(1.0) == 1


async def test_a_new_leader_wakes_everybody_once_it_may_write(here: World, waking: Waking) -> None:
    waking.may_write = False
    waking.wakeup.begin()
    assert await waking.after(3.0) == 0
    waking.may_write = True
    assert await waking.after(3.0) == 1
    assert await waking.after(10.0) == 1


async def test_devices_that_a_failed_bind_held_are_told(here: World, waking: Waking) -> None:
    extender = Extender(here, wakeup=waking.wakeup)
    for name in "ab":
        await here.claim(name)
        await here.pod(name, name)
    gate = hang(here, "resourceclaims/a")
    binding = asyncio.create_task(extender.bind("a", "node-1"))
    await spin()
    assert not (await extender.filter("b", "node-1"))["NodeNames"]
    stored = await here.get(claims_path("a"))
    assert FINALIZER not in stored["metadata"].get("finalizers", ())
    await here.delete(claims_path("a"))
    gate.set()
    assert await binding

    assert await waking.after(8.0) == 1


async def test_a_failed_bind_without_devices_wakes_nobody(here: World, waking: Waking) -> None:
    extender = Extender(here, wakeup=waking.wakeup)
    await here.pod("p")
    waking.wakeup.rejected("pod")
    here.client.faults.append(
        lambda _method, path, _body: (
            Rejected(403, "Forbidden", "no") if path.endswith("binding") else None
        )
    )
    assert await extender.bind("p", "node-1")
    assert await waking.after(8.0) == 0


# --- bodies -----------------------------------------------------------------------------------------------------------


async def test_a_body_in_pieces_is_counted_whatever_its_announced_length(here: World) -> None:
    extender = Extender(here)
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 64 * 1024
            yield b" " * 64 * 1024

    response = await extender.http.post(
        "/bind", content=pieces(), headers={"content-type": "application/json"}
    )
    assert "larger than" in response.json()["Error"]
    assert isinstance(response, httpx.Response)


async def test_filter_of_a_pod_that_is_gone_writes_nothing(here: World) -> None:
    """A forged or late pod that names somebody else's idle claim."""
    extender = Extender(here)
    await here.claim("c", finalizers=[FINALIZER])
    await here.pod("p", "c")
    args = await extender.args("p", "node-2")
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
    await here.delete(pods_path("p"))
    await here.settled()

    response = await extender.post("filter", args)
    assert not response.json()["NodeNames"]
    await here.settled()
    assert (await here.get(claims_path("c")))["status"]["allocation"]
    assert here.client.writes == []


async def test_reading_the_pod_is_part_of_the_time_for_its_bind(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or we would bind it after kube-scheduler has given up, which then calls a bound pod unscheduled."""
    extender = Extender(here)
    await here.pod("p")
    pod = await here.known_pod("p")
    here.binder = extender.service._binder = here.make_binder(BindSettings(budget_seconds=0.2))
    read = here.client.get

    async def slow(path: str, query: Any = None) -> bytes:
        await asyncio.sleep(0.3)
        return await read(path, query)

    monkeypatch.setattr(here.client, "get", slow)
    monkeypatch.setattr(here.cache, "pod", lambda _uid: None)
    body = {
        "PodName": "p",
        "PodNamespace": "default",
        "PodUID": pod.metadata.uid,
        "Node": "node-1",
    }
    answer = (await extender.post("bind", body)).json()["Error"]
    assert "in time" in answer
    assert here.client.writes == []


# --- what a bind must notice ------------------------------------------------------------------------------------------


async def test_a_bind_for_another_node_does_not_join_the_one_under_way(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    gate = hang(here, "binding")
    first = asyncio.create_task(extender.bind("p", "node-1"))
    await spin()

    assert "another node" in await extender.bind("p", "node-2")
    assert not first.done()
    gate.set()
    assert await first == ""
    assert (await here.get(pods_path("p")))["spec"]["nodeName"] == "node-1"


@pytest.mark.parametrize("node", ["node-1", "node-2"])
async def test_a_bind_that_read_its_pod_while_another_began_answers_as_that_one_ends(
    here: World, monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    """Both find no bind under way; the second has still to read the pod when the first begins, which then fails."""
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    uid = (await here.known_pod("p")).metadata.uid
    reading, go_on = asyncio.Event(), asyncio.Event()
    read = here.client.get

    async def slow(path: str, query: Any = None) -> bytes:
        if path == pods_path("p") and not reading.is_set():
            reading.set()
            await go_on.wait()
        return await read(path, query)

    monkeypatch.setattr(here.client, "get", slow)
    gate = hang(here, "binding")
    pods = dict(here.cache._pods._key_by_uid)
    here.cache._pods._key_by_uid.clear()  # the watch has not shown it yet
    body = {"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": node}
    late = asyncio.create_task(extender.post("bind", body))
    await reading.wait()
    here.cache._pods._key_by_uid.update(pods)
    early = asyncio.create_task(extender.bind("p", "node-1"))
    while not here.binder.open_chains:
        await asyncio.sleep(0)
    here.answer_once("POST", "/binding", Rejected(403, "Forbidden", "no"), commit=False)
    go_on.set()
    await spin()

    assert late.done() == (node == "node-2")
    gate.set()
    assert "no" in await early
    told = (await late).json()["Error"]
    assert told == await early if node == "node-1" else "another node" in told


async def test_nor_does_one_whose_search_took_long(here: World) -> None:
    here.environment = replace(
        here.environment, start_deadline=lambda: takes_long, hands_over_searches=True
    )
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    await here.settled()
    gate = hang(here, "binding")
    calls = {node: asyncio.create_task(extender.bind("p", node)) for node in ("node-1", "node-2")}

    [refused], _ = await asyncio.wait(calls.values(), return_when=asyncio.FIRST_COMPLETED)
    assert "another node" in refused.result()
    gate.set()
    [chosen] = [node for node, call in calls.items() if call is not refused]
    assert await calls[chosen] == ""
    assert (await here.get(pods_path("p")))["spec"]["nodeName"] == chosen


def takes_long() -> bool:
    return True


async def is_taken_back(here: World) -> bool:
    """The pod has no node, and its claim no devices."""
    await here.settled()
    claim = await here.get(claims_path("c"))
    return (
        not (await here.get(pods_path("p")))["spec"].get("nodeName")
        and not (claim.get("status") or {}).get("reservedFor")
        and not (claim.get("status") or {}).get("allocation")
        and here.cache.in_flight_claims == 0
    )


async def test_a_node_that_goes_while_the_claims_are_written_is_noticed(here: World) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    here.before_once("PUT", "/status", lambda: here.delete("/api/v1/nodes/node-1"))

    assert await extender.bind("p", "node-1") == "the node no longer exists"

    assert ("POST", pods_path("p", "binding")) not in here.client.writes
    assert await is_taken_back(here)


class StuckBarrier:
    """The watch of claims does not come as far as our writes."""

    async def reached(self, _resource_version: int, _timeout_seconds: float) -> bool:
        return False


async def test_a_watch_that_does_not_follow_our_writes_stops_the_bind(here: World) -> None:
    """Nobody knows then whether another writer was first (W3)."""
    here.binder._barrier = StuckBarrier()
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")

    assert "is behind" in await extender.bind("p", "node-1")

    assert ("POST", pods_path("p", "binding")) not in here.client.writes
    assert await is_taken_back(here)


async def test_answers_of_nodes_count_in_the_memory_and_old_questions_make_room(
    here: World,
) -> None:
    extender = Extender(here)
    engine = extender.service._engine
    engine.memo.limit = 8
    for number in range(1, 6):
        await here.claim(f"c{number}", count=number)
        await here.pod(f"p{number}", f"c{number}")
        await extender.filter(f"p{number}", "node-1", "node-2")
        questions = [question for question, _ in engine.memo._entries.values()]
        held = sum(1 + len(question.answers) for question in questions)
        assert engine.memo.weight == held <= 8

    assert engine.memo.evictions == 3  # a question with two answers weighs three


# --- tasks that nobody waits for --------------------------------------------------------------------------------------


async def test_a_wake_up_that_breaks_is_repeated(here: World, waking: Waking) -> None:
    pending = [True]

    def broken(method: str, path: str, _body: bytes) -> None:
        if pending and method == "PATCH":
            pending.clear()
            raise RuntimeError("a defect")

    here.client.faults.append(broken)
    waking.wakeup.rejected("pod")
    await new_slice(here, "node-3")

    assert await waking.after(0.5) == 1
    assert await waking.after(3.0) == 2
    assert not waking.task.done()


@pytest.mark.parametrize("is_defect", [False, True], ids=["refused", "defect"])
async def test_a_pod_whose_claim_could_not_be_given_back_is_woken(
    here: World, waking: Waking, is_defect: bool
) -> None:
    """The claim's own event, which would bring it back, does not come."""
    extender = Extender(here, wakeup=waking.wakeup)
    await here.claim("c", finalizers=[FINALIZER])
    await here.pod("p", "c")
    await here.pod("q", "c")
    assert await extender.bind("p", "node-1") == ""
    stored = await here.get(claims_path("c"))
    del stored["status"]["reservedFor"]
    await here.put(claims_path("c", "status"), stored)
    await here.settled()
    await waking.after(10.0)
    before = waking.patches

    def fail(method: str, path: str, _body: bytes) -> Rejected | None:
        if method != "PUT":
            return None
        if is_defect:
            raise RuntimeError("a defect")
        return Rejected(403, "Forbidden", "no")

    here.client.faults.append(fail)
    assert not (await extender.filter("q", "node-2"))["NodeNames"]

    assert await waking.after(3.0) == before + 1
    assert await waking.after(10.0) == before + 1
