"""The search thread: however a search ends, who waits for it hears of it."""

import asyncio
import threading

import pytest

from allocator.outcome import Outcome
from allocator.search import Solution
from scheduler.clock import SystemClock
from scheduler.engine import Engine, LongSearch, Plan
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.environment import ShouldStop
from scheduler.workers import SearchFailedError, SearchWorker, WorkerClosedError
from tests.builders import claim
from tests.pods import pod
from tests.scheduler.world import World, environment, gpu_nodes


class ScriptedEngine(Engine):
    """Its searches and lessons do what the test says, each once; then they work.

    Attributes:
        in_search: called in the thread before the search.
        in_learn: called in the loop before learning.
    """

    in_search: list[object]
    in_learn: list[object]

    def search(self, slow: LongSearch, should_stop: ShouldStop) -> Solution | Outcome:
        if act(self.in_search) == UNTIL_STOPPED:
            while not should_stop():
                pass
        return super().search(slow, should_stop)

    def learn(self, slow: LongSearch, result: Solution | Outcome) -> None:
        act(self.in_learn)
        super().learn(slow, result)


UNTIL_STOPPED = "until it is told to stop"


def act(script: list[object]) -> object:
    step = script.pop(0) if script else None
    if isinstance(step, BaseException):
        raise step
    if isinstance(step, threading.Event):
        step.wait()
    return step


def engine_for(*in_search: object, in_learn: object = None) -> ScriptedEngine:
    engine = ScriptedEngine(environment())
    engine.in_search, engine.in_learn = list(in_search), [in_learn, None]
    return engine


def slow_search(engine: Engine) -> tuple[World, LongSearch]:
    world = World(*gpu_nodes(1), claim("c"))
    state = engine.pre_filter(pod(claims=["c"]), world.cache)
    assert isinstance(state, CycleState)
    return world, LongSearch(state, "n00")


def is_learnt(engine: Engine, world: World) -> bool:
    """Whether a decision needs no search."""
    before = engine.searches
    state = engine.pre_filter(pod(claims=["c"]), world.cache)
    assert isinstance(state, CycleState)
    assert isinstance(engine.decide(state), Plan)
    return engine.searches == before


async def test_what_was_found_is_remembered() -> None:
    engine = engine_for()
    world, slow = slow_search(engine)
    worker = SearchWorker(engine, SystemClock())

    assert await worker.search(slow, 10.0) > 0.0

    assert is_learnt(engine, world)
    worker.close()


@pytest.mark.parametrize(
    "problem",
    [
        KeyError("rows"),
        MemoryError(),
        RecursionError(),
        SystemExit(1),
        asyncio.CancelledError(),
        GeneratorExit(),
        KeyboardInterrupt(),
    ],
    ids=lambda problem: type(problem).__name__,
)
async def test_whatever_a_search_raises_is_told_to_who_waits_and_to_nobody_else(
    problem: BaseException,
) -> None:  # fault core 11
    engine = engine_for(problem)
    world, slow = slow_search(engine)
    worker = SearchWorker(engine, SystemClock())

    with pytest.raises(SearchFailedError) as caught:
        await worker.search(slow, 10.0)
    assert caught.value.__cause__ is problem
    await worker.search(slow, 10.0)

    assert is_learnt(engine, world)
    worker.close()


async def test_a_defect_in_learning_is_told_too() -> None:
    engine = engine_for(in_learn=ZeroDivisionError())
    _, slow = slow_search(engine)
    worker = SearchWorker(engine, SystemClock())

    with pytest.raises(SearchFailedError) as caught:
        await worker.search(slow, 10.0)

    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    worker.close()


async def test_a_thread_that_does_not_answer_is_replaced() -> None:
    release = threading.Event()
    engine = engine_for(release)
    world, slow = slow_search(engine)
    worker = SearchWorker(engine, SystemClock(), grace_seconds=0.01)

    waiting = asyncio.create_task(worker.search(slow, 0.01))
    next_one = asyncio.create_task(worker.search(slow, 10.0))
    with pytest.raises(SearchFailedError):
        await waiting
    await next_one

    assert is_learnt(engine, world)
    release.set()
    worker.close()


async def test_who_goes_away_ends_the_search_and_nothing_is_remembered_of_it() -> None:
    release = threading.Event()
    engine = engine_for(release)
    world, slow = slow_search(engine)
    worker = SearchWorker(engine, SystemClock())

    caller = asyncio.create_task(worker.search(slow, 10.0))
    while engine.in_search:
        await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    following = asyncio.create_task(worker.search(slow, 10.0))
    release.set()
    await following

    assert len(engine.in_learn) == 1  # one lesson, of the second
    assert is_learnt(engine, world)
    worker.close()


async def test_a_search_that_nobody_waits_for_makes_room_for_the_next() -> None:
    engine = engine_for(UNTIL_STOPPED)
    _, slow = slow_search(engine)
    worker = SearchWorker(engine, SystemClock())
    caller = asyncio.create_task(worker.search(slow, 30.0))
    while engine.in_search:
        await asyncio.sleep(0)
    caller.cancel()

    async with asyncio.timeout(10.0):
        await worker.search(slow, 30.0)
    worker.close()


async def test_after_the_end_nobody_waits_for_ever() -> None:
    release = threading.Event()
    engine = engine_for(release)
    _, slow = slow_search(engine)
    worker = SearchWorker(engine, SystemClock())
    running, waiting = (asyncio.create_task(worker.search(slow, 10.0)) for _ in range(2))
    while engine.in_search:  # until the thread is at it
        await asyncio.sleep(0)

    worker.close()
    release.set()

    await running
    for late in (waiting, worker.search(slow, 10.0)):
        with pytest.raises(WorkerClosedError):
            await late
