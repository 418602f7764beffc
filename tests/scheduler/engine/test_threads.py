"""A search in the thread and a decision in the loop, on the same slices, at the same time."""

from allocator.outcome import Outcome
from allocator.search import Solution
from scheduler.engine import Attempt, Engine, LongSearch
from scheduler.framework.cycle_state import CycleState, FilterResult
from tests.builders import claim, device, device_class, request, resource_slice
from tests.pods import node_object, pod
from tests.scheduler.world import World, environment, filtered
from tests.threads import at_once

CARDS = 30


def world_of() -> World:
    """Two nodes that see the same devices, each in a slice of its own."""
    slices = [
        resource_slice(
            f"s{number:02}", device("d"), pool=f"p{number:02}", node=None, all_nodes=True
        )
        for number in range(CARDS)
    ]
    claims = [claim(name, request("r", count=CARDS)) for name in ("of-thread", "of-loop")]
    return World(device_class(), node_object("n1"), node_object("n2"), *slices, *claims)


def asking(world: World, engine: Engine, name: str) -> Attempt:
    state = engine.pre_filter(pod(name, claims=[name]), world.cache)
    assert isinstance(state, CycleState)
    return state


def devices_on(result: FilterResult, node: str) -> list[str]:
    [allocation] = result.verdicts[node].allocations.values()
    return [each.pool for each in allocation.devices.results or ()]


def test_the_loop_learns_what_the_thread_has_found_whoever_saw_the_slices_first() -> (
    None
):  # fault core 10
    """Devices are told apart by identity where what was found on one node is moved to an equal one."""
    for _ in range(150):  # each time new slices, of which nobody knows anything yet
        world = world_of()
        engine = Engine(environment(), check_every=0)
        slow = LongSearch(asking(world, engine, "of-thread"), "n1")
        of_loop = asking(world, engine, "of-loop")
        found: list[Solution | Outcome] = []

        at_once(
            lambda: found.append(engine.search(slow, lambda: False)),  # noqa: B023
            lambda: filtered(engine, of_loop),  # noqa: B023
        )

        engine.memo.clear()  # what the loop has found itself
        state = asking(world, engine, "of-thread")
        engine.learn(LongSearch(state, "n1"), found[0])
        before = engine.searches
        result = filtered(engine, state)
        assert engine.searches == before
        for node in ("n1", "n2"):
            assert devices_on(result, node) == [f"p{number:02}" for number in range(CARDS)]
