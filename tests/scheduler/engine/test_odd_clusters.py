"""Clusters in which nodes look equal and are not: stale generations, names that are there twice, one amount in two formats.

Each was an answer of the memory that differed from the plain search.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from allocator.features import Features
from scheduler import cycle
from scheduler.engine import Attempt, Engine, LongSearch, Plan
from scheduler.framework.cycle_state import CycleState, FilterResult, NodeVerdict
from scheduler.framework.environment import Mode
from scheduler.framework.status import Status
from scheduler.model import Pod
from tests.builders import (
    allocated_claim,
    capacity,
    claim,
    consumes,
    counter_set,
    counting,
    device,
    device_class,
    mapped,
    node_selector,
    request,
    resource_slice,
    used,
    valid_values,
)
from tests.pods import node_object, pod
from tests.scheduler.engine.test_engine import EVERYTHING_ON, told
from tests.scheduler.world import World, environment, filtered, gpu_nodes

POD = pod(claims=["c"])


def engine_with(**settings: Any) -> Engine:
    return Engine(environment(**{"features": EVERYTHING_ON, **settings}), check_every=0)


def both(engine: Engine, world: World, waiting: Pod = POD) -> tuple[Any, Any]:
    """All that the plain search says of a pod, and all that the engine says."""
    plain_state = cycle.pre_filter(waiting, world.cache, engine.environment)
    state = engine.pre_filter(waiting, world.cache)
    assert isinstance(plain_state, CycleState)
    assert isinstance(state, CycleState)
    plain, remembered = cycle.filter_nodes(plain_state), filtered(engine, state)
    groups = engine.score_groups(state, list(remembered.fitting))
    assert not isinstance(groups, LongSearch)
    scores = {name: score for score, group in groups for name in group}
    return (
        everything(plain, cycle.score_nodes(plain_state, plain.fitting)),
        everything(remembered, scores),
    )


def everything(result: FilterResult, scores: dict[str, int]) -> Any:
    verdicts: Iterable[tuple[str, NodeVerdict]] = result.verdicts.items()
    failure: Status | None = result.failure
    return {name: told(each) for name, each in verdicts}, failure and failure.reason, scores


def test_one_amount_in_two_formats_is_two_questions() -> None:
    """A default need not be a valid value, but must be written as the default is."""
    policy = valid_values("100", default="0.5Ki")
    card = device("d", shareable=True, capacity={"memory": capacity("2000", policy)})
    world = World(device_class(), node_object("n0"), resource_slice("n0", card, node="n0"))
    world.put(claim("c", request(capacity={"memory": "0.5Ki"})))
    world.put(claim("d", request(capacity={"memory": "512"})))
    engine = engine_with()

    answers = []
    for name in ("c", "d"):
        plain, remembered = both(engine, world, pod(name, claims=[name]))
        assert remembered == plain
        answers.append(plain)
    assert [bool(scores) for _, _, scores in answers] == [True, False]


def test_what_devices_of_an_old_generation_count_is_not_asked() -> None:
    world = World(device_class(), node_object("n0"), claim("c"))
    huge = mapped(each="1000")
    engine = engine_with()
    answers = []
    for old, new in ((None, huge), (huge, None)):
        for generation, cpu in ((1, old), (2, new)):
            card = device("gpu-0") if cpu is None else counting(device("gpu-0"), cpu=cpu)
            name = f"of-{generation}"
            world.put(resource_slice(name, card, pool="n0", node="n0", generation=generation))
        plain, remembered = both(engine, world)
        assert remembered == plain
        answers.append(bool(plain[2]))
    assert answers == [False, True]


def test_equal_devices_leave_room_on_some_nodes_only() -> None:
    """The search is shared, the room is not: what runs on a node comes and goes."""
    world = World(device_class(), claim("c"))
    card = counting(device("cpu-0"), cpu=mapped(each="3"))
    for number in range(3):
        name = f"n{number}"
        world.put(node_object(name, allocatable={"cpu": "4", "pods": "9"}))
        world.put(resource_slice(name, card, pool=name, node=name))
    engine = engine_with()
    busy = pod("busy", node_name="n1", requests={"cpu": "1500m"})

    for change, fitting in (
        (lambda: None, ["n0", "n1", "n2"]),
        (lambda: world.put(busy), ["n0", "n2"]),
        (lambda: world.put(allocated_claim("other", used("cpu-0", pool="n0"))), ["n2"]),
        (lambda: world.remove(busy), ["n1", "n2"]),
    ):
        change()
        plain, remembered = both(engine, world)
        assert remembered == plain
        assert list(plain[2]) == fitting
    assert engine.searches == 2


@pytest.mark.parametrize("explain", [False, True])
def test_a_pool_that_is_broken_is_told_of_with_its_own_devices(explain: bool) -> None:
    world = World(device_class(), claim("c", request(all_devices=True)))
    for number in range(2):
        name, twice = f"n{number}", device(f"gpu-{number}")
        world.put(node_object(name), resource_slice(name, twice, twice, pool=name, node=name))

    plain, remembered = both(engine_with(explain=explain), world)

    assert remembered == plain
    assert "gpu-1" in str(plain[0]["n1"])


def test_a_node_without_devices_is_not_told_of_those_of_another() -> None:
    world = World(device_class(), claim("c", request("r", 'device.driver == "none"')))
    world.put(node_object("n0"), resource_slice("n0", device("gpu-0"), pool="n0", node="n0"))
    world.put(node_object("n1"))

    plain, remembered = both(engine_with(explain=True), world)

    assert remembered == plain


def test_a_failure_names_no_device_of_a_node_that_is_gone() -> None:
    missing = 'device.attributes["gpu.example.com"].missing == 1'
    world = World(device_class(), claim("c", request("r", missing)))
    for name in ("n0", "n1"):
        world.put(node_object(name))
        world.put(resource_slice(name, device(f"card-{name}"), pool=name, node=name))
    engine = engine_with()
    assert both(engine, world)[0] == both(engine, world)[1]

    world.remove(node_object("n0"))
    plain, remembered = both(engine, world)

    assert remembered == plain
    assert "card-n1" in str(plain[1])


def test_a_device_name_that_several_nodes_have_in_one_pool_is_in_use_on_all_of_them() -> None:
    """Its counters are taken as often as it is there."""
    wanted = 'device.attributes["gpu.example.com"].kind == "wanted"'
    world = World(device_class(), claim("c", request("r", wanted)))
    six, four = [consumes("card", memory="6")], [consumes("card", memory="4")]
    for pool, numbers, others in (("p", (0, 1), ("x", "w")), ("q", (2, 3), ("y", "z"))):
        own, other = (f"n{number}" for number in numbers)
        for name in (own, other):
            world.put(node_object(name, labels={"pool": pool}))
        counters = [counter_set("card", memory="10")]
        here = node_selector(labels={"pool": pool})
        world.put(
            resource_slice(f"{pool}-c", pool=pool, count=3, counters=counters, selector=here),
            resource_slice(
                f"{pool}-1",
                device("x", kind="x", consumes=six),
                device("z", kind="wanted", consumes=four),
                pool=pool,
                node=own,
                count=3,
            ),
            resource_slice(
                f"{pool}-2",
                device(others[0], kind="x", consumes=six),
                device(others[1], kind="x"),
                pool=pool,
                node=other,
                count=3,
            ),
            allocated_claim(f"holder-{pool}", used("x", pool=pool)),
        )

    plain, remembered = both(engine_with(), world)

    assert remembered == plain
    assert plain[0]["n0"] != plain[0]["n2"]


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("strategy", ["MostAllocated", "LeastAllocated"])
def test_scores_count_devices_of_old_generations_in_pools_without_a_node(
    mode: Mode, strategy: str
) -> None:
    world = World(device_class(), node_object("n0"), node_object("n1"), claim("c"))
    cards = [device("a"), device("b")]
    world.put(
        resource_slice("own", *cards, pool="a", node="n1"),
        resource_slice(
            "old", device("old"), device("older"), pool="net", all_nodes=True, generation=1
        ),
        resource_slice("new", *cards, pool="net", all_nodes=True, generation=2),
    )
    engine = engine_with(mode=mode, device_strategy=strategy)
    before, remembered = both(engine, world)
    assert remembered == before

    world.put(allocated_claim("holder", used("old", pool="net")))
    plain, remembered = both(engine, world)

    assert remembered == plain
    assert plain != before


def test_answers_of_nodes_that_are_gone_are_dropped() -> None:
    world = World(*gpu_nodes(2), claim("c"))
    engine = Engine(environment(features=Features()), enough_nodes=2, check_every=0)

    def asked() -> Attempt:
        state = engine.pre_filter(POD, world.cache)
        assert isinstance(state, CycleState)
        return state

    for number in range(100):
        name = f"new-{number}"
        world.put(node_object(name))
        state = asked()
        engine.filter_node(state, state.snapshot.nodes[name])
        world.remove(node_object(name))
        engine.decide(asked())

    question = asked().question
    assert set(question.answers) == {"n00", "n01"}
    assert question.stale <= {"n00", "n01"}


def test_nodes_that_are_not_known_say_nothing_of_those_that_are() -> None:
    world = World(*gpu_nodes(2), claim("c"))
    engine = engine_with()
    state = engine.pre_filter(POD, world.cache)
    assert isinstance(state, CycleState)
    assert filtered(engine, state, ["unknown", "another"]).failure is not None

    assert isinstance(engine.decide(state), Plan)


def test_scores_count_all_devices_of_pools_without_a_node() -> None:
    """Two pools that searches cannot tell apart, of which one has more devices in slices of an old generation."""
    world = World(device_class(), claim("c"))
    for number, pool in enumerate(("p", "q")):
        here = node_selector(labels={"pool": pool})
        old = [device(f"old-{each}") for each in range(1 + number)]
        world.put(
            node_object(f"n{number}", labels={"pool": pool}),
            resource_slice(f"{pool}-1", *old, pool=pool, selector=here, generation=1),
            resource_slice(f"{pool}-2", device("gpu-0"), pool=pool, selector=here, generation=2),
        )

    plain, remembered = both(engine_with(), world)

    assert remembered == plain
    assert plain[2]["n0"] > plain[2]["n1"]


def test_an_old_snapshot_scores_no_answers_of_a_newer_one() -> None:
    world = World(*gpu_nodes(2), claim("c"))
    engine = engine_with()
    old = engine.pre_filter(POD, world.cache)
    assert isinstance(old, CycleState)
    world.put(node_object("n99"), allocated_claim("holder", used("gpu-0", pool="n00")))
    new = engine.pre_filter(POD, world.cache)
    assert isinstance(new, CycleState)
    filtered(engine, new)

    engine.refresh(old, ["n00", "n99"])

    plain, remembered = both(engine, world)
    assert remembered == plain
