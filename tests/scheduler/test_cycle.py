"""The cycle as a whole: errors of nodes and of pods, the pod's own reason, texts, scores, choice."""

from typing import Any

import msgspec
import pytest

from allocator.outcome import Reason, ReasonKind
from scheduler import conclusion, cycle
from scheduler.framework.cycle_state import CycleState, FilterResult, NodeVerdict
from scheduler.framework.environment import Environment, Mode
from scheduler.framework.status import Code, Status, error, unresolvable, unschedulable
from scheduler.model import (
    Affinity,
    NodeAffinity,
    Pod,
    PreferredSchedulingTerm,
    Taint,
)
from scheduler.plugins import dynamic_resources
from tests.builders import (
    claim,
    device,
    device_class,
    first_available,
    gpu_slice,
    request,
    resource_slice,
    sub_request,
)
from tests.pods import node_object, pod
from tests.scheduler.plugins.test_predicates import term
from tests.scheduler.world import World, environment, gpu_nodes

ONE = pod(claims=["c"])


def started(world: World, waiting: Pod = ONE, env: Environment | None = None) -> CycleState:
    state = cycle.pre_filter(waiting, world.cache, env or environment())
    assert isinstance(state, CycleState), state
    return state


def filtered(world: World, waiting: Pod = ONE, env: Environment | None = None) -> FilterResult:
    return cycle.filter_nodes(started(world, waiting, env))


def refusal(kind: ReasonKind, text: str, plugin: str = dynamic_resources.NAME) -> NodeVerdict:
    return NodeVerdict(unresolvable(Reason(kind=kind, message=text), plugin))


def kind_of(status: Status | None) -> ReasonKind | None:
    return None if status is None or status.reason is None else status.reason.kind


# Errors (a device whose driver publishes something the selector cannot handle)

FRAGILE = 'device.attributes["gpu.example.com"].model == "a"'


def one_odd_node(*extra: Any) -> World:
    return World(
        device_class("gpu", FRAGILE),
        node_object("a"),
        resource_slice("a", device("gpu-0"), node="a", pool="a"),
        node_object("b"),
        gpu_slice("b", "gpu-0", model="a"),
        claim("c"),
        *extra,
    )


def test_an_error_of_one_nodes_device_rejects_that_node_alone() -> None:
    result = filtered(one_odd_node())

    assert result.feasible == ("b",)
    assert result.verdicts["a"].status.code is Code.ERROR
    assert kind_of(result.verdicts["a"].status) is ReasonKind.SELECTOR_ERROR


def test_an_error_of_a_node_is_reported_when_no_node_fits() -> None:
    result = filtered(one_odd_node(node_object("b", unschedulable=True)))

    assert result.failure is not None
    assert result.failure.code is Code.ERROR
    assert kind_of(result.failure) is ReasonKind.SELECTOR_ERROR


def test_told_to_abort_an_error_of_a_node_ends_the_attempt_as_in_tree() -> None:
    result = filtered(one_odd_node(), env=environment(on_node_error="abort"))

    assert result.feasible == ()
    assert list(result.verdicts) == ["a"]
    assert kind_of(result.failure) is ReasonKind.SELECTOR_ERROR


def test_a_selector_that_does_not_compile_ends_the_attempt() -> None:
    world = World(*gpu_nodes(3), claim("c", request("r", "device.")))

    result = filtered(world)

    assert result.failure is not None
    assert (result.failure.code, len(result.verdicts)) == (Code.ERROR, 1)


def test_a_node_that_is_not_known_is_an_error_of_that_node() -> None:
    world = World(*gpu_nodes(1), claim("c"))
    state = started(world)

    assert cycle.filter_nodes(state, ["n00", "new"]).feasible == ("n00",)
    assert kind_of(cycle.filter_nodes(state, ["new"]).failure) is ReasonKind.NOT_READY


def test_no_nodes_at_all() -> None:
    result = filtered(World(), pod())

    assert kind_of(result.failure) is ReasonKind.NO_NODES
    assert conclusion.failure_message(result) == (
        "0/0 nodes are available: no nodes available to schedule pods."
    )


# The pod's own reason


def test_the_pods_kind_is_that_of_most_nodes_which_pass_the_other_predicates() -> None:
    result = conclusion.conclude(
        {
            "a": refusal(ReasonKind.NODE_TAINTED, "taint", "TaintToleration"),
            "b": refusal(ReasonKind.NODE_TAINTED, "taint", "TaintToleration"),
            "c": refusal(ReasonKind.NODE_TAINTED, "taint", "TaintToleration"),
            "d": refusal(ReasonKind.DEVICES_IN_USE, "in use"),
            "e": refusal(ReasonKind.DEVICES_IN_USE, "in use"),
            "f": refusal(ReasonKind.NO_MATCHING_DEVICE, "no match"),
        },
        total=6,
    )

    assert kind_of(result.failure) is ReasonKind.DEVICES_IN_USE


def test_ties_go_to_the_kind_that_comes_first() -> None:
    result = conclusion.conclude(
        {
            "a": refusal(ReasonKind.DEVICES_IN_USE, "in use"),
            "b": refusal(ReasonKind.NO_MATCHING_DEVICE, "no match"),
        },
        total=2,
    )

    assert kind_of(result.failure) is ReasonKind.NO_MATCHING_DEVICE


def test_without_device_refusals_the_other_predicates_decide() -> None:
    result = conclusion.conclude(
        {
            "a": refusal(ReasonKind.NODE_TAINTED, "taint", "TaintToleration"),
            "b": refusal(ReasonKind.NODE_UNSCHEDULABLE, "cordon", "NodeUnschedulable"),
            "c": refusal(ReasonKind.NODE_TAINTED, "taint", "TaintToleration"),
        },
        total=3,
    )

    assert kind_of(result.failure) is ReasonKind.NODE_TAINTED


def test_evicting_may_help_if_it_may_on_one_node() -> None:
    short = unschedulable(Reason(kind=ReasonKind.INSUFFICIENT_RESOURCES, message="cpu"), "x")
    result = conclusion.conclude(
        {"a": refusal(ReasonKind.DEVICES_IN_USE, "in use"), "b": NodeVerdict(short)}, total=2
    )

    assert result.failure is not None
    assert result.failure.code is Code.UNSCHEDULABLE
    assert result.rejected_by == {dynamic_resources.NAME, "x"}


# Texts


def test_the_text_counts_nodes_by_text_in_order() -> None:
    world = World(
        node_object("a", unschedulable=True),
        node_object("b", allocatable={"cpu": "1", "memory": "1Gi", "pods": "0"}),
        node_object("c", allocatable={"cpu": "1", "memory": "9Gi", "pods": "9"}),
        node_object("d", taints=[Taint(key="a", effect="NoSchedule")]),
    )

    result = filtered(world, pod(requests={"cpu": "2", "memory": "2Gi"}))

    assert conclusion.failure_message(result) == (
        "0/4 nodes are available: 1 Insufficient memory, 1 Too many pods, 1 node(s) had taints"
        " that the pod didn't tolerate, 1 node(s) were unschedulable, 2 Insufficient cpu."
    )


def test_the_text_of_an_error_is_the_error() -> None:
    result = conclusion.conclude(
        {"a": NodeVerdict(error(Reason(kind=ReasonKind.SELECTOR_ERROR, message="boom")))}, total=1
    )

    assert conclusion.failure_message(result) == "boom"


def test_a_refusal_of_the_whole_pod_speaks_of_all_nodes() -> None:
    world = World(*gpu_nodes(2))
    status = cycle.pre_filter(ONE, world.cache, environment())

    assert isinstance(status, Status)
    assert conclusion.pod_failure_message(status, total=2) == (
        "0/2 nodes are available: resourceclaim 'c' not found."
    )


def test_the_text_of_a_shortage_does_not_change_with_what_is_in_use() -> None:
    world = World(*gpu_nodes(2, gpus=2), claim("c", request(count=2)), claim("d"), claim("e"))
    texts: list[str] = []
    for name in ("d", "e"):
        taking = pod(f"take-{name}", claims=[name])
        state = started(world, taking)
        result = cycle.filter_nodes(state, [f"n0{len(texts)}"])
        node = cycle.select_node(state, result.fitting)
        assert node is not None
        world.bind(taking, node, dict(result.fitting[node].allocations))
        texts.append(conclusion.failure_message(cycle.filter_nodes(started(world), ["n00"])))

    assert texts[0] == texts[1]


# Scores and choice


def test_a_node_that_offers_an_earlier_alternative_scores_higher() -> None:
    world = World(
        device_class("new"),
        device_class("old", "false"),
        node_object("a"),
        resource_slice("a", device("gpu-0"), node="a", pool="a"),
        claim(
            "c",
            first_available(
                "r",
                sub_request("two", device_class="new", count=2),
                sub_request("one", device_class="new"),
            ),
        ),
        node_object("b"),
        resource_slice("b", device("gpu-0"), device("gpu-1"), node="b", pool="b"),
    )
    for mode in Mode:
        state = started(world, env=environment(mode))
        result = cycle.filter_nodes(state)

        assert result.feasible == ("a", "b")
        scores = cycle.score_nodes(state, result.fitting)
        assert scores["b"] > scores["a"]
        assert cycle.select_node(state, result.fitting) == "b"


def test_scores_are_between_0_and_100_and_only_for_nodes_that_fit() -> None:
    world = World(*gpu_nodes(3), node_object("n01", unschedulable=True), claim("c"))
    for mode in Mode:
        state = started(world, env=environment(mode))
        result = cycle.filter_nodes(state)
        scores = cycle.score_nodes(state, result.verdicts)

        assert all(0 <= score <= 100 for score in scores.values())
        if mode is Mode.STANDALONE:
            assert list(scores) == ["n00", "n02"]


def test_fewer_devices_left_over_wins_among_equal_alternatives() -> None:
    world = World(
        device_class(),
        node_object("a"),
        gpu_slice("a", "gpu-0", "gpu-1"),
        node_object("b"),
        gpu_slice("b", "gpu-0"),
        claim("c"),
    )
    state = started(world)

    assert cycle.select_node(state, cycle.filter_nodes(state).fitting) == "b"


def test_preferred_affinity_and_soft_taints_decide_without_claims() -> None:
    preferred = PreferredSchedulingTerm(weight=1, preference=term(("good", "Exists")))
    liking = pod(
        affinity=Affinity(
            node_affinity=NodeAffinity(
                preferred_during_scheduling_ignored_during_execution=(preferred,)
            )
        )
    )
    world = World(
        node_object("a"), node_object("b", labels={"good": "1"}), node_object("c"), node_object("d")
    )
    state = started(world, liking)
    assert cycle.select_node(state, cycle.filter_nodes(state).fitting) == "b"

    world.put(
        node_object("a", taints=[Taint(key="x", effect="PreferNoSchedule")]),
        node_object("b", taints=[Taint(key="x", effect="PreferNoSchedule")]),
    )
    state = started(world, pod())
    assert cycle.select_node(state, cycle.filter_nodes(state).fitting) == "c"


def test_the_emptier_node_wins_without_claims() -> None:
    world = World(
        node_object("a"),
        node_object("b"),
        pod("user", requests={"cpu": "32"}, node_name="a"),
    )
    state = started(world, pod())

    assert cycle.select_node(state, cycle.filter_nodes(state).fitting) == "b"


def test_among_equals_the_first_looked_at_wins() -> None:
    world = World(*gpu_nodes(3), claim("c"))
    state = started(world)

    assert cycle.select_node(state, cycle.filter_nodes(state, ["n02", "n00"]).fitting) == "n02"


def test_nothing_fits_no_choice() -> None:
    state = started(World(node_object("a", unschedulable=True)), pod())

    assert cycle.select_node(state, cycle.filter_nodes(state).verdicts) is None


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_other_predicates_count_only_when_nobody_else_looks(mode: Mode) -> None:
    world = World(*gpu_nodes(1), node_object("n00", unschedulable=True), claim("c"))

    result = filtered(world, env=environment(mode))

    assert bool(result.feasible) is (mode is Mode.EXTENDER)


def test_the_same_arguments_give_the_same_answers() -> None:
    world = World(*gpu_nodes(3), claim("c"))
    first, second = started(world), started(world)

    one = cycle.filter_nodes(first).fitting
    two = cycle.filter_nodes(second).fitting
    assert {n: v.allocations for n, v in one.items()} == {n: v.allocations for n, v in two.items()}
    assert msgspec.json.encode(cycle.rank_nodes(first, one)) == msgspec.json.encode(
        cycle.rank_nodes(second, two)
    )
