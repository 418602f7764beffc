"""What the owner of a pod is told, and how often."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from allocator.outcome import Reason, ReasonKind
from scheduler.model import Pod, PodCondition
from scheduler.standalone.reports import MAX_PENDING, PACE_SECONDS, Reports
from tests.fakes import FakeClock, settle
from tests.pods import pod
from tests.scheduler.standalone.test_loop import RecordedEvents
from tests.scheduler.world import World


def because(text: str) -> Reason:
    return Reason(kind=ReasonKind.DEVICES_IN_USE, message=text)


@dataclass
class Conditions:
    """Writes conditions into the world."""

    world: World
    written: list[tuple[str, str, bool]] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    async def set_unscheduled(self, pod: Pod, reason: Reason, *, is_error: bool) -> bool:
        await asyncio.sleep(0)
        if pod.metadata.name in self.broken:
            raise RuntimeError("a defect")
        self.written.append((pod.metadata.name, reason.message, is_error))
        condition = PodCondition(
            type="PodScheduled",
            status="False",
            reason="SchedulerError" if is_error else "Unschedulable",
            message=reason.message,
        )
        status = msgspec.structs.replace(pod.status, conditions=(condition,))
        self.world.put(msgspec.structs.replace(pod, status=status))
        return True


@dataclass
class Office:
    world: World
    conditions: Conditions
    events: RecordedEvents
    clock: FakeClock
    reports: Reports


@asynccontextmanager
async def office(*objects: Pod) -> AsyncIterator[Office]:
    world = World(*objects)
    conditions, events, clock = Conditions(world), RecordedEvents(), FakeClock()
    reports = Reports(world.cache, conditions, events, clock)
    task = asyncio.create_task(reports.run())
    try:
        yield Office(world, conditions, events, clock, reports)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_only_the_newest_report_of_a_pod_is_written() -> None:
    async with office(pod()) as it:
        it.reports.failed(pod(), because("old"), is_error=True)
        it.reports.failed(pod(), because("new"), is_error=False)
        await settle()

        assert it.conditions.written == [("p", "new", False)]


async def test_a_report_that_cannot_be_written_does_not_end_the_others() -> None:
    async with office(pod("bad"), pod("good")) as it:
        it.conditions.broken.add("bad")
        for name in ("bad", "good"):
            it.reports.failed(pod(name), because("text"), is_error=False)
        await it.clock.advance(1.0)

        assert it.conditions.written == [("good", "text", False)]


async def test_what_the_pod_says_already_is_not_told_again() -> None:
    async with office(pod()) as it:
        for _ in range(2):
            it.reports.failed(pod(), because("text"), is_error=False)
            await it.clock.advance(1.0)
        it.reports.failed(pod(), because("text"), is_error=True)
        await it.clock.advance(1.0)

        assert it.conditions.written == [("p", "text", False), ("p", "text", True)]
        assert it.events.of("p", "FailedScheduling") == ["text", "text"]


async def test_first_reports_are_written_at_once_and_changes_one_by_one_with_a_pause() -> None:
    pods = [pod(f"p{number}") for number in range(3)]
    async with office(*pods) as it:
        for each in pods:
            it.reports.failed(each, because("first"), is_error=False)
        await settle()
        assert len(it.conditions.written) == 3

        for each in pods:
            it.reports.failed(each, because("second"), is_error=False)
        await settle()
        assert len(it.conditions.written) == 4
        await it.clock.advance(PACE_SECONDS)
        assert len(it.conditions.written) == 5


async def test_nothing_is_told_of_a_pod_that_is_gone_bound_or_forgotten() -> None:
    gone, bound, forgotten = pod("gone"), pod("bound"), pod("forgotten")
    async with office(gone, bound, forgotten) as it:
        for each in (gone, bound, forgotten):
            it.reports.failed(each, because("text"), is_error=False)
        it.world.remove(gone)
        it.world.put(pod("bound", node_name="n1"))
        it.reports.forget("uid-forgotten")
        it.reports.failed(pod("never seen"), because("text"), is_error=False)
        await settle()

        assert it.conditions.written == []


async def test_the_oldest_report_goes_when_too_many_wait() -> None:
    pods = [pod(f"p{number}") for number in range(MAX_PENDING + 1)]
    world = World(*pods)
    reports = Reports(world.cache, Conditions(world), RecordedEvents(), FakeClock())
    for each in pods:
        reports.failed(each, because("text"), is_error=False)

    assert len(reports._pending) == MAX_PENDING
    assert "uid-p0" not in reports._pending
