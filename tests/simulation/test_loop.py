"""The event loop of the simulation: virtual time, an order that the seed decides, processes that stop dead."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from tests.simulation.loop import Owner, SimulatedLoop, StuckError


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    made = SimulatedLoop(random.Random(1))
    yield made
    made.close()


def test_waiting_takes_no_time(loop: SimulatedLoop) -> None:
    loop.run_until_complete(asyncio.sleep(86_400.0))
    assert loop.time() == pytest.approx(86_400.0, abs=1.0)


def test_whoever_polls_until_a_deadline_reaches_it(loop: SimulatedLoop) -> None:
    async def poll() -> None:
        while loop.time() < 0.01:
            await asyncio.sleep(0)

    loop.run_until_complete(poll())


def order(seed: int) -> list[int]:
    loop = SimulatedLoop(random.Random(seed))
    done: list[int] = []

    async def one(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        done.append(number)

    async def all_of_them() -> None:
        await asyncio.gather(*map(one, range(8)))

    loop.run_until_complete(all_of_them())
    loop.close()
    return done


def test_the_seed_decides_the_order_and_nothing_else() -> None:
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 5


class Process:
    """Counts the tenths of a second that it sees."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.owner = Owner("p")
        self.seen = 0
        self.cleaned = False
        self.task = loop.spawn(self.owner, self._run())

    async def _run(self) -> None:
        try:
            while True:
                await asyncio.sleep(0.1)
                self.seen += 1
        finally:
            self.cleaned = True


def test_a_killed_process_runs_nothing_any_more_not_even_its_finally(loop: SimulatedLoop) -> None:
    process = Process(loop)
    loop.run_until_complete(asyncio.sleep(1.05))
    process.owner.kill()
    seen = process.seen
    loop.run_until_complete(asyncio.sleep(1.0))
    assert process.seen == seen >= 9
    assert not process.cleaned


def test_a_paused_process_goes_on_where_it_was(loop: SimulatedLoop) -> None:
    process = Process(loop)
    process.owner.pause()
    loop.run_until_complete(asyncio.sleep(1.0))
    assert process.seen == 0
    loop.resume(process.owner)
    loop.run_until_complete(asyncio.sleep(1.0))
    assert process.seen >= 8


def test_tasks_of_a_process_belong_to_it(loop: SimulatedLoop) -> None:
    owner = Owner("p")
    seen: list[str] = []

    async def child() -> None:
        await asyncio.sleep(0.5)
        seen.append("child")

    async def parent() -> None:
        await asyncio.gather(child(), child())

    task = loop.spawn(owner, parent())
    loop.run_until_complete(asyncio.sleep(0.1))
    owner.kill()
    loop.run_until_complete(asyncio.sleep(1.0))
    assert not task.done()
    assert seen == []


def test_work_for_a_thread_is_one_step_and_its_callbacks_come_before_its_end(
    loop: SimulatedLoop,
) -> None:
    seen: list[str] = []

    async def ask() -> None:
        def work() -> str:
            loop.call_soon_threadsafe(seen.append, "callback")
            return "result"

        seen.append(await loop.run_in_executor(None, work))

    loop.run_until_complete(ask())
    assert seen == ["callback", "result"]


def test_an_error_in_a_thread_is_raised_where_it_is_awaited(loop: SimulatedLoop) -> None:
    def fail() -> None:
        raise ValueError("no")

    async def ask() -> None:
        await loop.run_in_executor(None, fail)

    with pytest.raises(ValueError, match="no"):
        loop.run_until_complete(ask())


def test_nothing_to_do_is_no_endless_loop(loop: SimulatedLoop) -> None:
    async def forever() -> None:
        await loop.create_future()

    with pytest.raises(StuckError):
        loop.run_until_complete(forever())
