"""Cases 81-83 of the behaviour reference: node selectors, configuration, and that inputs stay as they are."""

import copy

import msgspec
import pytest

from allocator import ReasonKind
from allocator.model.hooks import enc_hook
from tests.allocator.support import allocations, ask, depends_on_node, kind, names, results
from tests.builders import (
    NIC_DRIVER,
    capacity,
    claim,
    claim_config,
    consumes,
    counter_set,
    device,
    device_class,
    match,
    node,
    node_selector,
    only_node,
    request,
    requirement,
    resource_slice,
    snapshot,
    sub_request,
    valid_range,
)
from tests.builders import first_available as first

ON = node("node-1", zone="a", rack="7")
EVERYWHERE = resource_slice("s1", device("everywhere"), pool="p1", all_nodes=True)
ZONE = resource_slice(
    "s2", device("zone"), pool="p2", selector=node_selector(labels={"zone": "a", "rack": "7"})
)
RACK = resource_slice("s3", device("rack"), pool="p3", selector=node_selector(labels={"rack": "7"}))
LOCAL = resource_slice("s4", device("local"), pool="p4")


def selector_of(*slices):
    (allocation,) = allocations(
        ask(snapshot(*slices), claim("c", request(count=len(slices))), on=ON)
    )
    return allocation.node_selector


def test_case_81_a_local_device_ties_the_allocation_to_its_node_and_nothing_else() -> None:
    assert selector_of(EVERYWHERE, ZONE, LOCAL) == only_node("node-1")


def test_case_81_otherwise_the_requirements_are_joined_without_repeats() -> None:
    (term,) = selector_of(EVERYWHERE, ZONE, RACK).node_selector_terms

    assert term.match_expressions == (
        requirement("zone", "In", "a"),
        requirement("rack", "In", "7"),
    )
    assert term.match_fields is None


def test_case_81_devices_for_all_nodes_need_no_selector() -> None:
    assert selector_of(EVERYWHERE) is None


def test_requirements_are_equal_when_their_values_are_the_same_set() -> None:
    from allocator.model.nodes import NodeSelectorTerm

    def by(*values: str):
        term = NodeSelectorTerm(
            match_expressions=(requirement("zone", "In", *values),),
            match_fields=(requirement("metadata.name", "In", "node-1"),),
        )
        return node_selector(term)

    slices = [
        resource_slice("s1", device("x"), pool="p1", selector=by("a", "b")),
        resource_slice("s2", device("y"), pool="p2", selector=by("b", "a", "a")),
    ]
    (term,) = selector_of(*slices).node_selector_terms

    assert term.match_expressions == (requirement("zone", "In", "a", "b"),)
    assert term.match_fields == (requirement("metadata.name", "In", "node-1"),)


def test_a_selector_with_two_terms_is_fatal_once_its_device_is_chosen() -> None:
    from allocator.model.nodes import NodeSelectorTerm

    term = NodeSelectorTerm(match_expressions=(requirement("zone", "In", "a"),))
    two = node_selector(term, term)
    cluster = snapshot(resource_slice("s", device("a", selector=two), per_device=True))
    outcome = ask(cluster, claim(), on=ON)

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.POOL_INVALID
    assert depends_on_node(outcome)


# Configuration

CLASSES = [
    device_class("gpu", config=["c#1", "c#2"]),
    device_class("nic", config=["nic"]),
    device_class("plain"),
]
THREE = (
    request("a"),
    request("b", device_class="nic"),
    request("e"),
)


def config_of(*parts) -> list[tuple[str, str, tuple[str, ...] | None]]:
    """Source, text and requests of every entry."""
    devices = resource_slice("s", *(device(f"d{index}") for index in range(4)))
    (allocation,) = allocations(ask(snapshot(devices, classes=CLASSES), claim("c", *parts)))
    return [
        (entry.source, msgspec.json.decode(entry.opaque.parameters)["text"], entry.requests)
        for entry in allocation.devices.config or ()
        if entry.opaque is not None
    ]


def test_case_82_the_configuration_of_a_class_is_there_once_for_all_its_requests() -> None:
    own = [
        claim_config("all"),
        claim_config("b", "b"),
        claim_config("a,b,e", "a", "b", "e"),
        claim_config("e,a", "e", "a"),
    ]

    assert config_of(*THREE, *own) == [
        ("FromClass", "c#1", ("a", "e")),
        ("FromClass", "c#2", ("a", "e")),
        ("FromClass", "nic", ("b",)),
        ("FromClaim", "all", None),
        ("FromClaim", "b", ("b",)),
        ("FromClaim", "a,b,e", None),
        ("FromClaim", "e,a", ("e", "a")),
    ]


def test_case_82_the_configuration_of_the_only_class_names_no_request() -> None:
    assert config_of(request("a"), request("b")) == [
        ("FromClass", "c#1", None),
        ("FromClass", "c#2", None),
    ]


CHOICE = first(
    "r", sub_request("s0", "false", device_class="plain"), sub_request("s1", device_class="plain")
)
OTHER = request("other", device_class="plain")


@pytest.mark.parametrize(
    ("requests", "want"),
    [
        (("r/s0",), []),
        (("r/s0", "r/s1"), [("FromClaim", "x", ("r/s0", "r/s1"))]),
        (("r/s1", "other"), [("FromClaim", "x", None)]),
        (("r", "other"), [("FromClaim", "x", None)]),
        (("r",), [("FromClaim", "x", ("r",))]),
        (("nobody",), []),
    ],
)
def test_case_33_configuration_follows_the_chosen_alternative(requests, want) -> None:
    assert config_of(CHOICE, OTHER, claim_config("x", *requests)) == want


def test_a_class_of_an_alternative_that_is_not_chosen_gives_no_configuration() -> None:
    choice = first("r", sub_request("s0", "false"), sub_request("s1", device_class="nic"))

    assert config_of(choice, OTHER) == [("FromClass", "nic", ("r/s1",))]


def test_no_configuration_is_left_out() -> None:
    (allocation,) = allocations(ask(snapshot(EVERYWHERE), claim()))

    assert allocation.devices.config is None
    assert allocation.allocation_timestamp is None
    assert "config" not in str(msgspec.json.encode(allocation, enc_hook=enc_hook))


def test_case_83_inputs_are_not_modified() -> None:
    slices = (
        resource_slice(
            "s",
            device(
                "a",
                shareable=True,
                capacity={"memory": capacity(8, valid_range(1, 8, 1, default=1))},
                consumes=[consumes("set", memory=1)],
                attributes={"x": [1, 2]},
            ),
            device("b", conditions=["r"], failures=["f"]),
            count=2,
        ),
        resource_slice("t", counters=[counter_set("set", memory=8)], count=2),
        resource_slice("u", device("n"), driver=NIC_DRIVER, all_nodes=True),
    )
    claims = [
        claim("p", request(capacity={"memory": 2}), match("gpu.example.com/x"), claim_config("x")),
        claim("q", request("all", all_devices=True)),
    ]
    cluster = snapshot(*slices, classes=[device_class("gpu", config=["y"])])
    before = copy.deepcopy((slices, claims, dict(cluster.classes)))
    ask(cluster, *claims)

    assert (slices, claims, dict(cluster.classes)) == before


def test_the_same_question_has_the_same_answer() -> None:
    cluster = snapshot(EVERYWHERE, ZONE, RACK, LOCAL)
    wanted = claim("c", request(count=3))

    assert ask(cluster, wanted, on=ON) == ask(cluster, wanted, on=ON)


def test_results_come_in_the_order_of_requests_then_of_the_search() -> None:
    outcome = ask(
        snapshot(EVERYWHERE, ZONE, RACK, LOCAL),
        claim("c", request("two", count=2), request("one")),
        on=ON,
    )

    assert [(r.request, r.device) for r in results(outcome)] == [
        ("two", "everywhere"),
        ("two", "zone"),
        ("one", "rack"),
    ]
