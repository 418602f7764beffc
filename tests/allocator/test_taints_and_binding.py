"""Cases 76-80 of the behaviour reference: taints, binding conditions, node operations."""

import pytest

from allocator import ReasonKind
from tests.allocator.support import STABLE, ask, features, kind, names, results
from tests.builders import (
    claim,
    device,
    node,
    node_selector,
    only_node,
    request,
    resource_slice,
    snapshot,
    sub_request,
    taint,
    taint_rule,
    toleration,
)
from tests.builders import first_available as first

EXISTS = toleration("sick", operator="Exists")


def tainted(*taints):
    return snapshot(resource_slice("s", device("a", taints=taints)))


def tolerating(*tolerations):
    return claim("c", request("r", tolerations=tolerations))


@pytest.mark.parametrize(
    ("taints", "tolerations", "fits"),
    [
        ([taint("sick", "very")], [EXISTS], True),
        ([taint("sick", "very")], [toleration("sick", "very")], True),
        ([taint("sick", "very")], [toleration("sick", "a-bit")], False),
        ([taint("sick", "very")], [toleration("other", "very")], False),
        ([taint("sick", "very")], [toleration("sick", "very", operator="")], True),
        ([taint("sick", "very")], [toleration("sick", "very", operator="Odd")], False),
        ([taint("sick", "very")], [], False),
        ([taint("sick")], [toleration()], True),
        ([taint("sick", "very")], [toleration()], False),
        ([taint("sick", "very")], [toleration(operator="Exists")], True),
        ([taint("sick", effect="None")], [], True),
        ([taint("sick", effect="Unheard")], [], True),
        ([taint("sick"), taint("hot")], [EXISTS], False),
        ([taint("sick"), taint("hot")], [EXISTS, toleration("hot")], True),
    ],
)
def test_case_76_every_blocking_taint_needs_a_toleration(taints, tolerations, fits) -> None:
    outcome = ask(tainted(*taints), tolerating(*tolerations))

    assert names(outcome) == (["a"] if fits else None)
    if not fits:
        assert kind(outcome) is ReasonKind.DEVICE_TAINTED


@pytest.mark.parametrize(
    ("effect", "tolerated", "fits"),
    [
        ("NoExecute", "NoSchedule", False),
        ("NoExecute", "NoExecute", True),
        ("NoExecute", "", True),
        ("NoSchedule", "NoSchedule", True),
    ],
)
def test_case_77_a_toleration_of_one_effect_does_not_cover_another(effect, tolerated, fits) -> None:
    wanted = tolerating(toleration("sick", effect=tolerated, operator="Exists"))

    assert names(ask(tainted(taint("sick", effect=effect)), wanted)) == (["a"] if fits else None)


def test_case_77_toleration_seconds_do_not_matter_for_allocation() -> None:
    brief = toleration("sick", operator="Exists", seconds=0)

    assert names(ask(tainted(taint("sick")), tolerating(brief))) == ["a"]


def test_tolerations_are_copied_needed_or_not_gate_or_not() -> None:
    cluster = snapshot(resource_slice("s", device("a")))
    for flags in (features(), features(device_taints=False)):
        (result,) = results(ask(cluster, tolerating(EXISTS), features=flags))

        assert result.tolerations == (EXISTS,)


def test_alternatives_have_tolerations_of_their_own() -> None:
    wanted = claim(
        "c", first("r", sub_request("healthy"), sub_request("sick", tolerations=[EXISTS]))
    )
    (result,) = results(ask(tainted(taint("sick")), wanted))

    assert (result.request, result.tolerations) == ("r/sick", (EXISTS,))


@pytest.mark.parametrize(
    ("selector", "applies"),
    [
        ({"device": "a"}, True),
        ({"pool": "pool-1"}, True),
        ({"driver": "gpu.example.com", "pool": "pool-1", "device": "a"}, True),
        ({}, True),
        ({"device": "b"}, False),
        ({"pool": "pool-2"}, False),
        ({"driver": "other"}, False),
        ({"selects": False}, False),
    ],
)
def test_a_taint_rule_taints_the_devices_it_selects(selector, applies: bool) -> None:
    rules = [taint_rule("rule", taint("sick"), **selector)]
    cluster = snapshot(resource_slice("s", device("a", taints=[taint("hot")])), rules=rules)
    hot = toleration("hot")

    assert names(ask(cluster, tolerating(hot))) == (None if applies else ["a"])
    assert names(ask(cluster, tolerating(hot, EXISTS))) == ["a"]


def test_case_78_a_device_that_binds_to_its_node_is_for_that_node_only() -> None:
    cluster = snapshot(
        resource_slice(
            "s", device("a", binds_to_node=True), selector=node_selector(labels={"zone": "a"})
        )
    )
    (allocation,) = ask(cluster, claim(), on=node("n", zone="a")).allocations

    assert allocation.node_selector == only_node("n")
    off = features(device_binding_conditions=False)
    (allocation,) = ask(cluster, claim(), on=node("n", zone="a"), features=off).allocations
    assert allocation.node_selector == only_node("n")


def test_the_stable_allocator_does_not_know_binding_to_a_node() -> None:
    selector = node_selector(labels={"zone": "a"})
    cluster = snapshot(resource_slice("s", device("a", binds_to_node=True), selector=selector))
    (allocation,) = ask(cluster, claim(), on=node("n", zone="a"), features=STABLE).allocations

    assert allocation.node_selector == selector


WAITS = device("a", conditions=["ready"], failures=["broken"])


@pytest.mark.parametrize("gate", ["device_binding_conditions", "resource_claim_device_status"])
def test_case_79_with_either_gate_off_a_device_with_conditions_is_not_given(gate: str) -> None:
    cluster = snapshot(resource_slice("s", WAITS))
    outcome = ask(cluster, claim(), features=features(**{gate: False}))

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.FEATURE_DISABLED
    everything = claim("c", request(all_devices=True))
    assert names(ask(cluster, everything, features=features(**{gate: False}))) is None


def test_binding_conditions_are_copied() -> None:
    (result,) = results(ask(snapshot(resource_slice("s", WAITS)), claim()))

    assert result.binding_conditions == ("ready",)
    assert result.binding_failure_conditions == ("broken",)


SKIPS = snapshot(resource_slice("s", device("a"), skips=["*"]))
OPERATIONS = features(optional_node_operations=True)


def test_case_80_node_operations_are_skipped_only_on_nodes_that_can() -> None:
    able = node(features=["DRAOptionalNodeOperations"])
    outcome = ask(SKIPS, claim(), features=OPERATIONS)
    (result,) = results(ask(SKIPS, claim(), features=OPERATIONS, on=able))

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.NODE_FEATURE_MISSING
    assert result.skip_node_operations == ("*",)


def test_case_80_the_experimental_allocator_refuses_them_with_the_gate_off() -> None:
    outcome = ask(SKIPS, claim(), features=features(list_type_attributes=True))

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.FEATURE_DISABLED


def test_case_80_the_other_allocators_do_not_know_them() -> None:
    for flags in (features(), STABLE):
        (result,) = results(ask(SKIPS, claim(), features=flags))

        assert result.skip_node_operations is None
