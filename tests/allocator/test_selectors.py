"""Cases 43-49 of the behaviour reference: what selectors decide, and when they are not asked."""

import pytest

from allocator import Features, ReasonKind
from allocator.cel import Compiler, Program, Read
from allocator.requests import prepare_claims, reads_of
from tests.allocator.support import ask, depends_on_node, kind, message, names
from tests.builders import (
    NIC_DRIVER,
    claim,
    device,
    device_class,
    request,
    resource_slice,
    snapshot,
    sub_request,
    used,
    version,
)
from tests.builders import first_available as first

OWN = "device.attributes['gpu.example.com']"
ODD = f"{OWN}.model == 'A100'"  # fails on a device without model


def test_case_43_a_runtime_error_on_the_first_device_is_fatal_behind_the_chosen_one_unnoticed() -> (
    None
):
    broken, good = device("broken"), device("good", model="A100")
    wanted = claim("c", request("r", ODD))
    outcome = ask(snapshot(resource_slice("s", broken, good)), wanted)

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.SELECTOR_ERROR
    assert depends_on_node(outcome)
    assert "claim default/c: selector #0" in message(outcome)
    assert "broken" not in message(outcome)
    assert outcome.reason.devices[0].device.device == "broken"
    assert names(ask(snapshot(resource_slice("s", good, broken)), wanted)) == ["good"]


def test_case_44_a_device_in_use_is_asked_by_all_only() -> None:
    cluster = snapshot(
        resource_slice("s", device("broken"), device("good", model="A100")),
        in_use=[used("broken")],
    )

    assert names(ask(cluster, claim("c", request("r", ODD)))) == ["good"]
    assert names(ask(cluster, claim("c", request("r", ODD, all_devices=True)))) == "fatal"


@pytest.mark.parametrize(
    ("expression", "want"),
    [(f"{OWN}.v == '1.2.3'", "fatal"), (f"{OWN}.i == '5'", None), (f"{OWN}.i == 5", ["a"])],
)
def test_case_45_comparing_different_types(expression: str, want) -> None:
    cluster = snapshot(resource_slice("s", device("a", v=version("1.2.3"), i=5)))

    assert names(ask(cluster, claim("c", request("r", expression)))) == want


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("'x' in device.attributes", None),
        ("has(device.attributes.x)", ["a"]),
        ("device.attributes['x'].m == 1", "fatal"),
        ("device.attributes['x'].?m.orValue(0) == 0", ["a"]),
        ("has(device.attributes['x'].m)", None),
    ],
)
def test_case_46_missing_domains_and_attributes(expression: str, want) -> None:
    cluster = snapshot(resource_slice("s", device("a", i=5)))

    assert names(ask(cluster, claim("c", request("r", expression)))) == want


def test_case_47_an_invalid_version_is_fatal_as_soon_as_any_selector_is_evaluated() -> None:
    cluster = snapshot(resource_slice("s", device("a", v=version("v1"))))

    assert names(ask(cluster, claim("c", request("r", "true")))) == "fatal"
    assert names(ask(cluster, claim())) == ["a"]


def test_case_48_an_expression_that_is_no_bool_at_run_time_is_fatal() -> None:
    cluster = snapshot(resource_slice("s", device("a", model="A100")))

    assert names(ask(cluster, claim("c", request("r", f"{OWN}.model")))) == "fatal"


def test_case_49_a_broken_expression_goes_unnoticed_without_devices() -> None:
    wanted = claim("c", request("r", "device.driver =="))
    outcome = ask(snapshot(resource_slice("s", device("a"))), wanted)

    assert names(ask(snapshot(), wanted)) is None
    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.SELECTOR_ERROR
    assert "compile error" in message(outcome)
    assert not depends_on_node(outcome)


def test_class_selectors_come_first_and_all_must_be_true() -> None:
    cluster = snapshot(
        resource_slice("s", device("a", model="T4"), device("b", model="A100")),
        resource_slice("t", device("n"), driver=NIC_DRIVER),
        classes=[device_class("gpu", "device.driver == 'gpu.example.com'", "true")],
    )

    # The class leaves the NIC out before the request's selector could fail on it.
    assert names(ask(cluster, claim("c", request("r", ODD, "true")))) == ["b"]
    assert names(ask(cluster, claim("c", request("r", ODD, "false")))) is None


def test_an_error_in_a_class_names_the_class() -> None:
    cluster = snapshot(resource_slice("s", device("a")), classes=[device_class("gpu", "true", ODD)])

    assert "class gpu: selector #1" in message(ask(cluster, claim()))


def test_a_class_selector_without_cel_is_refused_cleanly() -> None:
    from allocator.model.devices import DeviceClass, DeviceClassSpec, DeviceSelector
    from allocator.model.meta import ObjectMeta

    odd = DeviceClass(
        metadata=ObjectMeta(name="gpu"), spec=DeviceClassSpec(selectors=(DeviceSelector(),))
    )
    outcome = ask(snapshot(resource_slice("s", device("a")), classes=[odd]), claim())

    assert names(outcome) == "fatal"
    assert "CEL expression empty" in message(outcome)


def test_a_selector_answer_is_kept_with_the_slice_and_is_the_same_again() -> None:
    cluster = snapshot(resource_slice("s", device("a"), device("b", model="A100")))
    wanted = claim("c", request("r", f"has({OWN}.model)"))

    assert names(ask(cluster, wanted)) == ["b"]
    (prepared,) = cluster.slices
    (row,) = [
        row for question, row in prepared.memo["facts"].rows.items() if question[0] == "selectors"
    ]
    assert row == [False, True]
    assert names(ask(cluster, wanted)) == ["b"]


def test_a_device_of_another_node_is_asked_before_its_node_is_compared() -> None:
    cluster = snapshot(
        resource_slice(
            "s",
            device("other", node="node-2"),
            device("mine", node="node-1", model="A100"),
            per_device=True,
        )
    )

    assert names(ask(cluster, claim("c", request("r", ODD)))) == "fatal"


def test_alternatives_have_selectors_of_their_own() -> None:
    cluster = snapshot(resource_slice("s", device("a", model="A100")))
    wanted = claim(
        "c",
        first("r", sub_request("h100", f"{OWN}.model == 'H100'"), sub_request("a100", ODD)),
    )

    assert names(ask(cluster, wanted)) == ["a"]


def test_tenants_cannot_fill_a_slices_memory_with_expressions() -> None:
    cluster = snapshot(resource_slice("s", device("a", i=1)))
    for number in range(300):
        ask(cluster, claim("c", request("r", f"{OWN}.i == {number}")))
    (prepared,) = cluster.slices

    assert len(prepared.memo["facts"].rows) <= 128


class Watched(Compiler):
    """Counts what is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def selector(self, expression: str) -> Program:
        self.asked += 1
        return super().selector(expression)


@pytest.mark.parametrize(
    ("length", "reads", "asked"),
    [(100, frozenset({Read("attribute", "gpu.example.com", "model")}), 1), (5000, None, 0)],
)
def test_very_long_selectors_are_not_compiled_to_know_what_they_read(length, reads, asked) -> None:
    wanted = claim("c", request("r", f"{ODD} || '{'x' * length}' == ''"))
    world = snapshot(resource_slice("s", device("a", model="A100")))
    cel = Watched()

    assert reads_of(prepare_claims([wanted], world.classes, Features(), cel)) == reads
    assert cel.asked == asked
    assert names(ask(world, wanted)) == ["a"]
