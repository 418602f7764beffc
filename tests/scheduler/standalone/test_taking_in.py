"""Many pods at once do not hold up the event loop: they are queued in portions."""

import asyncio
import itertools

import pytest

from scheduler.model import Pod
from scheduler.scheduling_queue import SchedulingQueue
from scheduler.standalone import loop as loop_module
from scheduler.standalone.loop import StandaloneLoop
from tests.scheduler.embedded import world
from tests.scheduler.standalone.test_loop import Core


async def test_many_pods_that_wait_are_taken_in_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []
    add = SchedulingQueue.add

    def spied(queue: SchedulingQueue, pod: Pod, now: float) -> bool:
        happened.append("taken in")
        return add(queue, pod, now)

    monkeypatch.setattr(SchedulingQueue, "add", spied)
    monkeypatch.setattr(loop_module, "TAKEN_IN_AT_ONCE", 4)
    async with world() as made:
        for number in range(10):
            await made.pod(f"p{number}", schedulingGates=[{"name": "later"}])
        await made.settled()
        loop = StandaloneLoop(Core(made))
        task = asyncio.create_task(loop.run())
        while len(loop.queue) < 10:
            happened.append("turn")
            await asyncio.sleep(0)
        loop.stop()
        await task

    runs = [len(list(run)) for what, run in itertools.groupby(happened) if what == "taken in"]
    assert runs == [4, 4, 2]
