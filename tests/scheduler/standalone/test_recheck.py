"""The last look before a Binding."""

from collections.abc import Callable

from scheduler import cycle
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plan import Demand, Plan
from scheduler.framework.status import Status
from scheduler.model import NodeAllocatableMappedResources, NodeAllocatableResourceClaimStatus
from scheduler.standalone.recheck import NODE_IS_GONE, recheck_node
from tests.builders import quantity
from tests.pods import container, node_object, pod, port
from tests.scheduler.world import World, environment

SMALL = node_object("a", allocatable={"cpu": "4", "pods": "2"})
WAITING = pod(
    containers=[container("m", {"cpu": "3"}, ports=[port(80)])],
)


def begun(world: World) -> CycleState:
    state = cycle.pre_filter(WAITING, world.cache, environment())
    assert isinstance(state, CycleState)
    return state


def rechecking(world: World, demand: Demand = ()) -> Callable[[], Status | None]:
    """The last look at node a for the waiting pod."""
    state = begun(world)
    plan = Plan(pod=WAITING, node_name="a", demand=demand)
    return recheck_node(state, plan, world.cache)


def test_a_node_that_did_not_change_is_not_looked_at_again() -> None:
    world = World(SMALL)

    assert rechecking(world)() is None


def test_a_node_that_is_gone() -> None:
    world = World(SMALL)
    recheck = rechecking(world)
    world.remove(SMALL)

    assert recheck() is NODE_IS_GONE


def test_a_node_that_was_cordoned() -> None:
    world = World(SMALL)
    recheck = rechecking(world)
    world.put(node_object("a", unschedulable=True))

    status = recheck()
    assert status is not None
    assert status.message == "node(s) were unschedulable"


def test_the_assumed_pod_does_not_stand_in_its_own_way() -> None:
    world = World(SMALL, WAITING)
    recheck = rechecking(world)
    world.cache.assume_pod(WAITING, "a")
    world.put(pod("small", node_name="a", requests={"cpu": "1"}))

    assert recheck() is None


def test_others_that_came_do_even_when_the_pod_is_counted() -> None:
    for name, other in {
        "Insufficient cpu": pod("other", node_name="a", requests={"cpu": "2"}),
        "node(s) didn't have free ports for the requested pod ports": pod(
            "other", node_name="a", containers=[container("m", ports=[port(80)])]
        ),
    }.items():
        for is_assumed in (True, False):
            world = World(SMALL, WAITING)
            recheck = rechecking(world)
            if is_assumed:
                world.cache.assume_pod(WAITING, "a")
            world.put(other)

            status = recheck()
            assert status is not None
            assert status.message == name


def test_too_many_pods_are_counted_without_the_pod_itself() -> None:
    world = World(SMALL, WAITING)
    recheck = rechecking(world)
    world.cache.assume_pod(WAITING, "a")
    world.put(pod("one", node_name="a"))
    assert recheck() is None

    world.put(pod("two", node_name="a"))
    status = recheck()
    assert status is not None
    assert status.message == "Too many pods"


def test_what_devices_count_must_still_fit_and_does_not_stand_in_its_own_way() -> None:
    amount = NodeAllocatableMappedResources(name="cpu", quantity=quantity("1"))
    demand = (NodeAllocatableResourceClaimStatus(resource_claim_name="c", mapping=(amount,)),)
    world = World(SMALL, WAITING)
    recheck = rechecking(world, demand)
    world.cache.assume_pod(WAITING, "a", demand)
    world.put(node_object("a", allocatable={"cpu": "4", "pods": "3"}))
    assert recheck() is None

    world.put(pod("other", node_name="a", requests={"cpu": "1m"}))
    status = recheck()
    assert status is not None
    assert status.message == "Insufficient cpu"
