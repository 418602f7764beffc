"""No pod is lost: however what works on it ends, it is bound, refused or tried again, and the sweep finds the rest."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from allocator.model.claims import ResourceClaim
from allocator.outcome import Outcome
from allocator.search import Solution
from scheduler.cache.cluster import ClusterCache
from scheduler.client import Rejected
from scheduler.engine import Attempt, Engine, LongSearch, Plan
from scheduler.framework.cycle_state import FilterResult
from scheduler.framework.environment import ShouldStop
from scheduler.scheduling_queue import Place, SchedulingQueue
from scheduler.standalone import loop as loop_module
from scheduler.standalone.loop import SWEEP_SECONDS
from tests.scheduler.embedded import claims_path, pods_path
from tests.scheduler.standalone.test_loop import Core, Running, running, uid_of

DEFECT = ("SchedulerError", "the decision failed on an internal error")


class SlowEngine(Engine):
    """Decides only once a search has run in the thread; searches and lessons raise what they are told to.

    Attributes:
        problems: what the next searches raise.
        lessons: what the next lessons raise.
        is_searched: whether a search has come to an outcome.
        gate: searches wait for it in the thread.
    """

    problems: list[BaseException]
    lessons: list[BaseException]
    is_searched: bool
    gate: threading.Event

    def decide(
        self, attempt: Attempt, max_searches: int | None = None
    ) -> Plan | FilterResult | LongSearch | None:
        if not self.is_searched:
            return LongSearch(attempt, "n1")
        return super().decide(attempt, max_searches)

    def search(self, slow: LongSearch, should_stop: ShouldStop) -> Solution | Outcome:
        self.gate.wait()
        if self.problems:
            raise self.problems.pop()
        return super().search(slow, should_stop)

    def learn(self, slow: LongSearch, result: Solution | Outcome) -> None:
        if self.lessons:
            raise self.lessons.pop()
        super().learn(slow, result)
        self.is_searched = True


def slow(
    problems: list[BaseException],
    lessons: list[BaseException] | None = None,
    *,
    is_held: bool = False,
) -> Callable[[Core], None]:
    def change(core: Core) -> None:
        core.engine.__class__ = SlowEngine
        made: Any = core.engine
        made.problems, made.lessons, made.is_searched = problems, lessons or [], False
        made.gate = threading.Event()
        if not is_held:
            made.gate.set()

    return change


def open_gate(it: Running) -> None:
    engine: Any = it.core.engine
    engine.gate.set()


async def searched(it: Running) -> None:
    """Let the thread and the loop come to rest, however busy the machine is."""
    async with asyncio.timeout(20.0):
        for _ in range(3):
            await it.settled()
            while it.loop._owners:
                await asyncio.sleep(0)


def counted(it: Running, name: str) -> float:
    value = it.core.metrics.registry.get_sample_value(f"dra_scheduler_{name}_total")
    return 0.0 if value is None else value


DEFECTS = {
    "search: KeyError": slow([KeyError("rows")]),
    "search: MemoryError": slow([MemoryError()]),
    "search: SystemExit": slow([SystemExit(1)]),
    "search: CancelledError": slow([asyncio.CancelledError()]),
    "lesson: KeyError": slow([], [KeyError("rows")]),
    "lesson: MemoryError": slow([], [MemoryError()]),
}


@pytest.mark.parametrize("change", DEFECTS.values(), ids=DEFECTS)
async def test_a_pod_whose_search_fails_is_tried_again_and_its_owner_hears_of_it(
    change: Callable[[Core], None],
) -> None:  # fault core 11
    async with running(("n1", 1), change=change) as it:
        await it.world.claim("c")
        created = await it.world.pod("p", "c")
        await searched(it)

        assert it.place(await uid_of(created)) is Place.BACKOFF
        assert await it.condition("p") == DEFECT
        errors = it.core.metrics.registry.get_sample_value(
            "dra_scheduler_scheduling_attempts_total", {"result": "error"}
        )
        assert errors == 1

        await it.after(1.0)
        await searched(it)
        assert await it.node_of("p") == "n1"
        assert counted(it, "pods_recovered") == 0


async def test_a_search_that_always_fails_backs_off_like_any_error() -> None:
    problems: list[BaseException] = [KeyError("rows") for _ in range(100)]
    async with running(("n1", 1), change=slow(problems)) as it:
        await it.world.claim("c")
        await it.world.pod("p", "c")
        for _ in range(20):
            await it.after(1.0)
            await searched(it)

        assert 100 - len(problems) == 5  # after 0, 1, 3, 7 and 15 seconds


async def test_a_pod_made_anew_while_its_search_runs_is_a_pod_of_its_own() -> None:
    async with running(("n1", 1), change=slow([], is_held=True)) as it:
        await it.world.claim("c")
        first = await it.world.pod("p", "c")
        await it.world.settled()
        await it.world.delete(pods_path("p"))
        second = await it.world.pod("p", "c")
        open_gate(it)
        await searched(it)

        assert it.loop.queue.get(await uid_of(first)) is None
        assert await it.node_of("p") == "n1"
        assert it.loop.queue.get(await uid_of(second)) is None


async def test_the_loop_ends_while_a_search_runs() -> None:
    async with running(("n1", 1), change=slow([], is_held=True)) as it:
        await it.world.claim("c")
        uid = await uid_of(await it.world.pod("p", "c"))
        await it.world.settled()
        assert it.place(uid) is Place.IN_FLIGHT
    open_gate(it)


# --- binds --------------------------------------------------------------------------------------------------------------


def held(it: Running, ending: str) -> asyncio.Event:
    """Writes whose path ends so wait for the event."""
    release = asyncio.Event()

    async def hold(_method: str, path: str, _body: bytes) -> None:
        if path.endswith(ending):
            await release.wait()

    it.world.client.faults.append(hold)
    return release


async def test_a_pod_whose_bind_is_cancelled_is_tried_again() -> None:
    async with running(("n1", 1)) as it:
        release = held(it, "/binding")
        created = await it.world.pod("p")
        await it.world.settled()
        uid = await uid_of(created)
        chain = it.core.binder.chain(uid)
        assert chain is not None

        chain.task.cancel()
        await it.settled()
        assert it.place(uid) is Place.BACKOFF

        release.set()
        await it.after(1.0)
        assert await it.node_of("p") == "n1"


async def test_a_pod_whose_bind_ends_while_another_leads_is_tried_again_when_we_lead() -> None:
    async with running(("n1", 1)) as it:
        release = held(it, "/resourceclaims/c")
        await it.world.claim("c")
        created = await it.world.pod("p", "c")
        await it.world.settled()
        it.core.leads = it.world.may_write = False
        it.world.answer_once("PUT", "/status", Rejected(409, "Conflict", "no"), commit=False)
        release.set()
        await it.settled()
        await it.after(20.0)

        assert it.core.binder.open_chains == 0
        assert it.place(await uid_of(created)) in (Place.BACKOFF, Place.ACTIVE)
        it.core.leads = it.world.may_write = True
        await it.after(11.0)
        assert await it.node_of("p") == "n1"
        assert counted(it, "pods_recovered") == 0


async def test_a_pod_made_anew_while_its_bind_runs_is_a_pod_of_its_own() -> None:
    async with running(("n1", 1)) as it:
        release = held(it, "/binding")
        first = await it.world.pod("p")
        await it.world.settled()
        await it.world.delete(pods_path("p"))
        await it.world.pod("p")
        await it.world.settled()
        release.set()
        await it.settled()
        await it.after(1.0)

        assert it.loop.queue.get(await uid_of(first)) is None
        assert await it.node_of("p") == "n1"
        assert len(it.loop.queue) == 0


async def test_a_pod_that_comes_back_while_its_bind_runs_waits_for_the_end_of_that() -> None:
    async with running(("n1", 1)) as it:
        release = held(it, "/binding")
        it.world.answer_once("POST", "/binding", Rejected(403, "Forbidden", "no"), commit=False)
        uid = await uid_of(await it.world.pod("p"))
        await it.world.settled()
        known = it.core.cache.pod(uid)
        assert known is not None
        it.loop.queue.delete(uid)
        it.loop.queue.add(known, it.core.clock.monotonic())
        await it.world.node("n2")  # gives the loop something to do
        await it.world.settled()
        assert it.place(uid) is Place.IN_FLIGHT

        release.set()
        await it.settled()
        assert it.place(uid) is Place.BACKOFF
        await it.after(1.0)
        assert await it.node_of("p") == "n1"


# --- claims that are given back -----------------------------------------------------------------------------------------


def broken_once() -> Callable[[str, str, bytes], Rejected | None]:
    pending = [True]

    def fault(method: str, path: str, _body: bytes) -> Rejected | None:
        if pending and method == "PUT" and path.endswith("/resourceclaims/c/status"):
            pending.clear()
            raise RuntimeError("a defect")
        return None

    return fault


@pytest.mark.parametrize("is_defect", [False, True], ids=["refused", "defect"])
async def test_a_claim_that_could_not_be_given_back_is_tried_again_without_any_event(
    is_defect: bool,
) -> None:
    async with running(("n1", 1), ("n2", 1)) as it:
        await it.world.claim("c")
        await it.world.pod("first", "c", nodeSelector={"kubernetes.io/hostname": "n1"})
        assert await it.node_of("first") == "n1"
        claim = await it.world.get(claims_path("c"))
        claim["status"].pop("reservedFor")
        await it.world.put(claims_path("c", "status"), claim)
        if is_defect:
            it.world.client.faults.append(broken_once())
        else:
            refusal = Rejected(403, "Forbidden", "no")
            it.world.answer_once("PUT", "/status", refusal, commit=False)
        await it.world.pod("second", "c", nodeSelector={"kubernetes.io/hostname": "n2"})
        await it.settled()
        for _ in range(4):
            await it.after(1.0)

        assert await it.node_of("second") == "n2"


# --- the sweep ----------------------------------------------------------------------------------------------------------


async def test_the_sweep_finds_a_pod_in_flight_that_is_in_nobodys_hands() -> None:
    async with running(("n1", 1)) as it:
        it.core.leads = False
        uid = await uid_of(await it.world.pod("p"))
        await it.world.settled()
        assert it.loop.queue.pop(it.core.clock.monotonic()) is not None
        it.core.leads = True
        await it.after(SWEEP_SECONDS - 1.0)
        assert it.place(uid) is Place.IN_FLIGHT

        await it.after(3.0)  # and a second of backoff
        assert counted(it, "pods_recovered") == 1
        assert await it.node_of("p") == "n1"


async def test_the_sweep_finds_a_pod_that_the_queue_does_not_know() -> None:
    async with running(("n1", 1)) as it:
        it.core.leads = False
        uid = await uid_of(await it.world.pod("p"))
        await it.world.settled()
        it.loop.queue.delete(uid)
        it.core.leads = True

        await it.after(SWEEP_SECONDS + 1.0)
        assert counted(it, "pods_recovered") == 1
        assert await it.node_of("p") == "n1"


async def test_a_pod_that_found_the_queue_full_is_not_counted_as_lost() -> None:
    async with running(("n1", 0)) as it:
        it.core.leads = False
        it.loop.queue = SchedulingQueue(max_pods=1)
        for name in "abc":
            await it.world.pod(name)
        await it.settled()
        it.core.leads = True
        await it.after(2 * SWEEP_SECONDS + 2.0)

        assert [await it.node_of(name) for name in "abc"] == ["n1"] * 3
        assert counted(it, "pods_recovered") == 0


async def test_the_sweep_leaves_alone_what_somebody_works_on() -> None:
    async with running(("n1", 3)) as it:
        bindings, claims = held(it, "/binding"), held(it, "/resourceclaims/c")
        await it.world.claim("c")
        uids = [await uid_of(await it.world.pod("p")), await uid_of(await it.world.pod("q", "c"))]
        gate = {"schedulingGates": [{"name": "g"}]}
        uids.append(await uid_of(await it.world.pod("gated", **gate)))
        await it.world.settled()
        for _ in range(3):
            await it.core.clock.advance(SWEEP_SECONDS)
            await it.world.settled()

        places = [it.place(uid) for uid in uids]
        assert places == [Place.IN_FLIGHT, Place.IN_FLIGHT, Place.GATED]
        assert counted(it, "pods_recovered") == 0
        bindings.set()
        claims.set()
        await it.settled()


async def test_a_pod_that_waits_for_its_search_is_left_alone_by_the_sweep() -> None:
    async with running(("n1", 1), change=slow([], is_held=True)) as it:
        await it.world.claim("c")
        uid = await uid_of(await it.world.pod("p", "c"))
        await it.world.settled()
        await it.core.clock.advance(SWEEP_SECONDS + 1.0)
        assert it.place(uid) is Place.IN_FLIGHT
        open_gate(it)
        await searched(it)
        await it.after(1.0)

        assert counted(it, "pods_recovered") == 0
        assert await it.node_of("p") == "n1"


async def test_an_attempt_that_is_interrupted_by_another_leader_is_left_alone_by_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_module, "SLICE_SEARCHES", 2)
    async with running(*((f"n{number}", 1) for number in range(70))) as it:
        it.core.leads = False
        await it.world.claim("c", count=2)
        uid = await uid_of(await it.world.pod("p", "c"))
        await it.settled()
        it.core.leads = True
        await it.world.node("x")
        while it.core.engine.looks < 32:  # the first of three slices
            await asyncio.sleep(0)
        it.core.leads = False
        await it.core.clock.advance(SWEEP_SECONDS + 1.0)
        assert it.place(uid) is Place.IN_FLIGHT
        assert counted(it, "pods_recovered") == 0

        it.core.leads = True
        await it.after(1.0)
        assert it.place(uid) is Place.UNSCHEDULABLE


async def test_a_search_that_ends_while_another_leads_is_left_alone_by_the_sweep() -> None:
    async with running(("n1", 1), change=slow([], is_held=True)) as it:
        await it.world.claim("c")
        uid = await uid_of(await it.world.pod("p", "c"))
        await it.world.settled()
        it.core.leads = False
        open_gate(it)
        await searched(it)
        await it.core.clock.advance(SWEEP_SECONDS + 1.0)
        assert it.place(uid) is Place.IN_FLIGHT
        assert counted(it, "pods_recovered") == 0

        it.core.leads = True
        await it.after(1.0)
        assert await it.node_of("p") == "n1"


async def test_a_bind_that_is_nobodys_is_left_alone_until_it_has_failed() -> None:
    async with running(("n1", 1)) as it:
        release = held(it, "/binding")
        it.world.answer_once("POST", "/binding", Rejected(403, "Forbidden", "no"), commit=False)
        it.core.leads = False
        await it.world.pod("p")
        await it.world.settled()
        queued = it.loop.queue.pop(it.core.clock.monotonic())
        assert queued is not None
        it.core.binder.start(Plan(pod=queued.pod, node_name="n1"))
        it.core.leads = True
        await it.core.clock.advance(SWEEP_SECONDS + 1.0)
        assert counted(it, "pods_recovered") == 0

        release.set()
        await it.settled()
        await it.after(SWEEP_SECONDS + 1.0)
        assert counted(it, "pods_recovered") == 1
        await it.after(2.0)
        assert await it.node_of("p") == "n1"


# --- events -------------------------------------------------------------------------------------------------------------


class BrokenCache(ClusterCache):
    """Cannot be asked for one claim, from some moment on."""

    is_broken = False

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        if self.is_broken and name == "bad":
            raise ZeroDivisionError
        return super().claim(namespace, name)


async def test_a_defect_that_an_event_brings_to_light_is_its_pods_alone() -> None:
    async with running(("n1", 2)) as it:
        bad = await uid_of(await it.world.pod("p", "bad"))
        good = await uid_of(await it.world.pod("q", "good"))
        await it.settled()
        assert it.place(bad) is it.place(good) is Place.UNSCHEDULABLE

        it.core.cache.__class__ = BrokenCache
        it.core.cache.is_broken = True  # type: ignore[attr-defined]
        await it.world.claim("bad")
        await it.world.claim("good")
        await it.after(1.0)

        assert await it.node_of("q") == "n1"
        assert it.place(bad) is Place.BACKOFF
