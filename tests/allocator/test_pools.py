"""Cases 1-18 of the behaviour reference: pools, generations, order, node selection."""

import pytest

from allocator import ReasonKind
from tests.allocator.support import ask, depends_on_node, features, kind, message, names, results
from tests.builders import (
    GPU_DRIVER,
    NIC_DRIVER,
    claim,
    consumes,
    counter_set,
    device,
    device_class,
    node,
    node_selector,
    only_node,
    request,
    requirement,
    resource_slice,
    snapshot,
    sub_request,
    used,
)
from tests.builders import first_available as first

TWO = claim("c", request(count=2))
ALL = claim("c", request(all_devices=True))


def pools(*names: str):
    return [resource_slice(name, device(f"in-{name}"), pool=name) for name in names]


def test_case_1_pools_are_taken_by_name() -> None:
    outcome = ask(snapshot(*pools("pool-3", "pool-2", "pool-1")), TWO)

    assert names(outcome) == ["in-pool-1", "in-pool-2"]


def test_case_2_pool_names_compare_as_text() -> None:
    assert names(ask(snapshot(*pools("pool-2", "pool-10")), claim())) == ["in-pool-10"]


def test_drivers_come_before_pool_names() -> None:
    slices = [
        resource_slice("a", device("gpu"), pool="z", driver="a.example.com"),
        resource_slice("b", device("nic"), pool="a", driver="b.example.com"),
    ]

    assert names(ask(snapshot(*slices), claim())) == ["gpu"]


def test_case_3_pools_with_binding_conditions_come_last() -> None:
    waiting = resource_slice(
        "s", device("waits", conditions=["ready"], failures=["broken"]), pool="pool-1"
    )
    outcome = ask(snapshot(waiting, *pools("pool-3", "pool-2")), TWO)

    assert names(outcome) == ["in-pool-2", "in-pool-3"]


def test_an_empty_list_of_conditions_moves_the_pool_as_well() -> None:
    waiting = resource_slice("s", device("waits", conditions=[]), pool="pool-1")

    assert names(ask(snapshot(waiting, *pools("pool-2")), claim())) == ["in-pool-2"]
    assert names(
        ask(
            snapshot(waiting, *pools("pool-2")),
            claim(),
            features=features(device_binding_conditions=False),
        )
    ) == ["in-pool-2"]


def test_case_4_slices_with_binding_conditions_stay_where_they_are() -> None:
    slices = [
        resource_slice("slice-3", device("c"), count=3),
        resource_slice("slice-2", device("b"), count=3),
        resource_slice("slice-1", device("a", conditions=["r"], failures=["f"]), count=3),
    ]

    assert names(ask(snapshot(*slices), TWO)) == ["a", "b"]


def test_case_5_devices_keep_the_order_of_their_slice() -> None:
    assert names(ask(snapshot(resource_slice("s", device("z"), device("a"))), claim())) == ["z"]


def test_case_6_an_incomplete_pool_serves_nobody_and_stops_all() -> None:
    cluster = snapshot(resource_slice("s", device("a"), count=2))
    one, everything = ask(cluster, claim()), ask(cluster, ALL)

    assert names(one) is None
    assert kind(one) is ReasonKind.POOL_INCOMPLETE
    assert names(everything) == "fatal"
    assert kind(everything) is ReasonKind.POOL_INCOMPLETE
    assert message(everything) == (
        "claim default/c, request gpu: asks for all devices, but a resource pool is currently being updated"
    )
    assert [str(d.device) for d in everything.reason.devices] == [f"{GPU_DRIVER}/pool-1/"]
    assert depends_on_node(everything)


def test_an_incomplete_pool_without_matching_device_is_not_the_reason() -> None:
    cluster = snapshot(
        resource_slice("s", device("a", model="T4"), count=2),
        classes=[device_class("gpu", "'model' in device.attributes['x']")],
    )

    assert kind(ask(cluster, claim())) is ReasonKind.NO_MATCHING_DEVICE


def test_case_7_more_slices_than_announced_is_incomplete_too() -> None:
    slices = [resource_slice("s1", device("a")), resource_slice("s2", device("b"))]

    assert names(ask(snapshot(*slices), claim())) is None


def test_case_8_the_same_device_name_twice_makes_the_pool_invalid() -> None:
    slices = [resource_slice(name, device("a"), count=2) for name in ("s1", "s2")]
    outcome = ask(snapshot(*slices), claim())

    assert names(outcome) == "node error"
    assert kind(outcome) is ReasonKind.POOL_INVALID


def test_case_9_a_good_pool_beside_an_invalid_one_serves_until_it_is_exhausted() -> None:
    slices = [
        resource_slice("bad", device("x"), device("x"), pool="bad"),
        resource_slice("good", device("a"), pool="good"),
    ]

    assert names(ask(snapshot(*slices), claim())) == ["a"]
    assert names(ask(snapshot(*slices, in_use=[used("a", pool="good")]), claim())) == "node error"


@pytest.mark.parametrize("as_alternative", [False, True])
def test_case_10_an_invalid_pool_of_another_driver_stops_all(as_alternative: bool) -> None:
    slices = [
        resource_slice("bad", device("x"), device("x"), pool="bad", driver=NIC_DRIVER),
        resource_slice("good", device("a"), pool="good"),
    ]
    healthy = f"device.driver == '{GPU_DRIVER}'"
    everything = request("r", healthy, all_devices=True)
    if as_alternative:
        everything = first(
            "r", sub_request("one", healthy), sub_request("all", healthy, all_devices=True)
        )
    outcome = ask(snapshot(*slices), claim("c", everything))

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.POOL_INVALID
    assert depends_on_node(outcome)


def test_case_11_a_newer_generation_elsewhere_hides_an_old_incomplete_pool() -> None:
    slices = [
        resource_slice("old", device("a"), generation=1, count=2),
        resource_slice("new", device("b"), generation=2, count=2, node="node-2"),
    ]
    outcome = ask(snapshot(*slices), claim())

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.NO_MATCHING_DEVICE
    # Invisible: not even All minds it.
    assert names(ask(snapshot(*slices), ALL)) is None


def test_case_12_a_complete_old_pool_is_used_although_another_node_has_moved_on() -> None:
    slices = [
        resource_slice("s1", device("a"), generation=1, count=2),
        resource_slice("s2", device("b"), generation=1, count=2),
        resource_slice("s3", device("c"), generation=2, count=2, node="node-2"),
    ]

    assert names(ask(snapshot(*slices), TWO)) == ["a", "b"]


def test_a_lower_generation_is_dropped_and_a_higher_one_replaces() -> None:
    slices = [
        resource_slice("s1", device("old"), generation=1),
        resource_slice("s2", device("new"), generation=2),
        resource_slice("s3", device("older"), generation=0),
    ]

    assert names(ask(snapshot(*slices), claim())) == ["new"]


def test_case_13_all_is_limited_to_the_devices_of_the_node() -> None:
    slices = [
        resource_slice("s1", device("mine"), count=2),
        resource_slice("s2", device("other"), count=2, node="node-2"),
    ]

    assert names(ask(snapshot(*slices), ALL)) == ["mine"]


def test_case_14_counters_may_be_in_a_slice_for_another_node() -> None:
    slices = [
        resource_slice("s1", device("a", consumes=[consumes("set", memory=4)]), count=2),
        resource_slice("s2", counters=[counter_set("set", memory=8)], count=2, node="node-2"),
    ]

    assert names(ask(snapshot(*slices), claim())) == ["a"]


COUNTERS = resource_slice("counters", counters=[counter_set("set", memory=8)], count=3)
BROKEN_COUNTERS = {
    "duplicate set": [
        COUNTERS,
        resource_slice("again", counters=[counter_set("set", memory=8)], count=3),
        resource_slice("s", device("a"), count=3),
    ],
    "unknown set": [
        COUNTERS,
        resource_slice("s", device("a"), count=3),
        resource_slice("t", device("b", consumes=[consumes("nope", memory=1)]), count=3),
    ],
    "unknown counter": [
        COUNTERS,
        resource_slice("s", device("a"), count=3),
        resource_slice("t", device("b", consumes=[consumes("set", cores=1)]), count=3),
    ],
    "set of another pool": [
        resource_slice("p2", counters=[counter_set("set", memory=8)], pool="pool-2"),
        resource_slice("s", device("a", consumes=[consumes("set", memory=1)])),
    ],
    "only a slice of another node is wrong": [
        COUNTERS,
        resource_slice("s", device("a"), count=3),
        resource_slice(
            "t", device("b", consumes=[consumes("nope", memory=1)]), count=3, node="node-2"
        ),
    ],
}


@pytest.mark.parametrize("slices", BROKEN_COUNTERS.values(), ids=BROKEN_COUNTERS)
def test_case_15_broken_counter_sets_make_the_pool_invalid(slices) -> None:
    assert names(ask(snapshot(*slices), claim())) == "node error"


def test_without_the_partitionable_gate_counter_sets_are_not_checked() -> None:
    slices = [
        resource_slice("s", device("a"), device("b", consumes=[consumes("nope", memory=1)])),
    ]
    off = features(partitionable_devices=False)

    assert names(ask(snapshot(*slices), claim(), features=off)) == ["a"]
    assert names(ask(snapshot(*slices), TWO, features=off)) is None


def test_case_16_equal_pool_names_of_two_drivers_keep_their_counters_apart() -> None:
    def driver(name: str, size: int):
        return [
            resource_slice(
                f"{name}-d",
                device(f"{name}-a", consumes=[consumes("set", memory=8)]),
                driver=name,
                count=2,
            ),
            resource_slice(
                f"{name}-c", counters=[counter_set("set", memory=size)], driver=name, count=2
            ),
        ]

    cluster = snapshot(*driver("a.example.com", 4), *driver("b.example.com", 8))

    assert names(ask(cluster, claim())) == ["b.example.com-a"]


def test_case_17_devices_choose_their_nodes_themselves() -> None:
    cluster = snapshot(
        resource_slice(
            "s",
            device("other", node="node-2"),
            device("mine", node="node-1"),
            device("anywhere", all_nodes=True),
            device("zone", selector=node_selector(labels={"zone": "a"})),
            per_device=True,
        )
    )
    mine = ask(cluster, claim())
    elsewhere = ask(cluster, claim(), on=node("node-3"))

    assert names(mine) == ["mine"]
    assert mine.allocations[0].node_selector == only_node("node-1")
    assert names(elsewhere) == ["anywhere"]
    assert elsewhere.allocations[0].node_selector is None
    assert names(ask(cluster, TWO, on=node("node-3", zone="a"))) == ["anywhere", "zone"]


def test_case_18_without_the_partitionable_gate_such_slices_are_ignored() -> None:
    off = features(partitionable_devices=False)
    zone = {"zone": "a"}
    by_device = snapshot(resource_slice("s", device("a", node="node-1"), per_device=True))
    said_false = snapshot(
        resource_slice("s", device("a"), per_device=False, selector=node_selector(labels=zone))
    )

    here = node("node-1", **zone)
    assert names(ask(by_device, claim(), features=off)) is None
    assert names(ask(said_false, claim(), on=here, features=off)) is None
    assert names(ask(said_false, claim(), on=here)) == ["a"]


def test_a_slice_with_no_known_node_selection_is_ignored() -> None:
    assert names(ask(snapshot(resource_slice("s", device("a"), node=None)), claim())) is None


def test_slices_are_for_nodes_by_selector_or_for_all() -> None:
    zone = resource_slice("s", device("a"), selector=node_selector(labels={"zone": "a"}))
    everywhere = resource_slice("t", device("b"), all_nodes=True, pool="pool-2")

    assert names(ask(snapshot(zone, everywhere), claim(), on=node("n", zone="a"))) == ["a"]
    assert names(ask(snapshot(zone, everywhere), claim(), on=node("n", zone="b"))) == ["b"]


def test_a_node_selector_that_cannot_be_parsed_ends_the_attempt() -> None:
    from allocator.model.nodes import NodeSelectorTerm

    broken = node_selector(NodeSelectorTerm(match_expressions=(requirement("zone", "Is", "a"),)))
    slices = [
        resource_slice("s", device("a")),
        resource_slice("t", device("b"), pool="p2", driver=NIC_DRIVER, selector=broken),
    ]
    outcome = ask(snapshot(*slices), claim())

    assert names(outcome) == "fatal"
    assert "node selector that cannot be parsed" in message(outcome)


def test_a_device_with_a_broken_node_selector_ends_the_attempt_when_it_is_tested() -> None:
    from allocator.model.nodes import NodeSelectorTerm

    broken = node_selector(NodeSelectorTerm(match_expressions=(requirement("zone", "Is", "a"),)))
    cluster = snapshot(
        resource_slice(
            "s", device("a", node="node-1"), device("b", selector=broken), per_device=True
        )
    )

    assert names(ask(cluster, claim())) == ["a"]
    assert names(ask(cluster, TWO)) == "fatal"


def test_the_count_of_the_first_slice_is_believed_the_nodes_own_slices_come_first() -> None:
    slices = [
        resource_slice("shared", device("b"), all_nodes=True, count=7),
        resource_slice("local", device("a"), count=2),
    ]

    assert names(ask(snapshot(*slices), TWO)) == ["a", "b"]


def test_a_hidden_slice_still_counts_for_completeness() -> None:
    slices = [
        resource_slice("s", device("a"), count=2),
        resource_slice("t", device("b", node="node-1"), per_device=True, count=2),
    ]
    off = features(partitionable_devices=False)

    assert names(ask(snapshot(*slices), claim(), features=off)) == ["a"]


def test_the_results_name_driver_pool_and_device() -> None:
    (result,) = results(ask(snapshot(resource_slice("s", device("a"))), claim()))

    assert (result.request, result.driver, result.pool, result.device) == (
        "gpu",
        GPU_DRIVER,
        "pool-1",
        "a",
    )
