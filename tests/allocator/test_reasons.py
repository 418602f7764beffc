"""Which reason a node is refused with: the first request that cannot be served, by the furthest its devices came."""

import pytest

from allocator import DoesNotFit, ReasonKind, prepare_claims
from allocator.model.claims import DeviceRequest
from allocator.report import Explanation, NullReporter
from tests.allocator.support import CEL, DEFAULTS, ask, features, kind, message, names
from tests.builders import (
    GPU_CLASS,
    claim,
    consumes,
    counter_set,
    device,
    device_class,
    match,
    request,
    resource_slice,
    snapshot,
    sub_request,
    taint,
    used,
)
from tests.builders import first_available as first

NEVER = "device.driver == 'nobody'"
IS_A = "device.attributes['gpu.example.com'].model == 'A'"


def on_node(*devices, **more):
    return snapshot(
        resource_slice("s", *devices, count=2),
        resource_slice("t", counters=[counter_set("set", memory=8)], count=2),
        **more,
    )


IN_USE = device("used", model="A")
SMALL = device("small", model="A", shareable=True, capacity={"memory": 2})
PARTITION = device("part", model="A", consumes=[consumes("set", memory=9)])
TAINTED = device("tainted", model="A", taints=[taint("sick", "very")])
WRONG = device("wrong", model="A", other=1)
NOT_IT = device("not-it", model="B")


@pytest.mark.parametrize(
    ("devices", "want"),
    [
        ((), ReasonKind.NO_MATCHING_DEVICE),
        ((NOT_IT,), ReasonKind.NO_MATCHING_DEVICE),
        ((NOT_IT, IN_USE), ReasonKind.DEVICES_IN_USE),
        ((IN_USE, SMALL), ReasonKind.CAPACITY_EXHAUSTED),
        ((PARTITION, SMALL, IN_USE), ReasonKind.CAPACITY_EXHAUSTED),
        ((TAINTED, IN_USE, NOT_IT), ReasonKind.DEVICE_TAINTED),
        ((TAINTED, device("c", model="A")), ReasonKind.CONSTRAINT_UNSATISFIED),
    ],
)
def test_the_furthest_stage_of_any_device_is_the_reason(devices, want) -> None:
    wanted = claim(
        "c", request("r", IS_A, capacity={"memory": 4}), match("gpu.example.com/missing")
    )
    if want in {ReasonKind.DEVICE_TAINTED, ReasonKind.CONSTRAINT_UNSATISFIED}:
        wanted = claim("c", request("r", IS_A), match("gpu.example.com/missing"))
    outcome = ask(on_node(*devices, in_use=[used("used")]), wanted)

    assert kind(outcome) is want
    assert isinstance(outcome, DoesNotFit)
    assert (outcome.reason.claim, outcome.reason.request) == ("c", "r")


def test_counters_are_further_than_capacity() -> None:
    wanted = claim("c", request("r", IS_A))
    outcome = ask(on_node(PARTITION, in_use=[used("used")]), wanted)

    assert kind(outcome) is ReasonKind.COUNTERS_EXHAUSTED


def test_a_device_in_use_that_does_not_match_is_no_device_in_use() -> None:
    wanted = claim("c", request("r", NEVER))
    outcome = ask(on_node(IN_USE, in_use=[used("used")]), wanted)

    assert kind(outcome) is ReasonKind.NO_MATCHING_DEVICE


def test_an_error_on_a_device_in_use_is_no_match_either() -> None:
    odd = "device.attributes['gpu.example.com'].missing == 1"
    outcome = ask(on_node(IN_USE, in_use=[used("used")]), claim("c", request("r", odd)))

    assert kind(outcome) is ReasonKind.NO_MATCHING_DEVICE


def test_the_first_request_that_cannot_be_served_is_named() -> None:
    wanted = claim("c", request("ok"), request("bad", NEVER), request("unseen", NEVER))
    outcome = ask(on_node(device("a"), device("b")), wanted)

    assert message(outcome) == "claim default/c, request bad: not enough devices match"


def test_the_first_claim_that_cannot_be_served_is_named() -> None:
    outcome = ask(on_node(device("a")), claim("x"), claim("y"), claim("z"))

    assert message(outcome) == "claim default/y, request gpu: matching devices are in use"


def test_a_request_with_alternatives_is_named_as_a_whole() -> None:
    choice = first("r", sub_request("s0", NEVER), sub_request("s1", IS_A))
    outcome = ask(on_node(IN_USE, in_use=[used("used")]), claim("c", choice))

    assert kind(outcome) is ReasonKind.DEVICES_IN_USE
    assert outcome.reason.request == "r"


def test_messages_have_no_counts_and_no_device_names() -> None:
    devices = [device(f"device-{index}", taints=[taint("sick")]) for index in range(7)]
    text = message(ask(on_node(*devices), claim("c", request(count=3))))

    assert "7" not in text
    assert "device-" not in text


# Details


def details(outcome) -> dict[str, tuple[str, str]]:
    return {d.device.device: (d.kind.value, d.message) for d in outcome.reason.devices}


def test_details_tell_what_each_device_failed_on_when_asked() -> None:
    wanted = claim(
        "c", request("r", IS_A, capacity={"memory": 4}), match("gpu.example.com/missing")
    )
    large = {"memory": 8}
    devices = [
        NOT_IT,
        IN_USE,
        device("used-and-other", model="B"),
        SMALL,
        device("part", model="A", capacity=large, consumes=[consumes("set", memory=9)]),
        device("tainted", model="A", capacity=large, taints=[taint("sick", "very"), taint("x")]),
        device("plain", model="A", capacity=large, taints=[taint("calm", effect="None")]),
    ]
    cluster = on_node(*devices, in_use=[used("used"), used("used-and-other")])
    no_match = ("NoMatchingDevice", "class, selectors or node do not match")

    assert details(ask(cluster, wanted)) == {}
    assert details(ask(cluster, wanted, explain=True)) == {
        "not-it": no_match,
        "used": ("DevicesInUse", "in use"),
        "used-and-other": no_match,
        "small": ("CapacityExhausted", "not enough capacity left (memory 4)"),
        "part": ("CountersExhausted", "not enough shared counters left (counter sets set)"),
        "tainted": ("DeviceTainted", "taint sick=very:NoSchedule is not tolerated"),
        "plain": ("ConstraintUnsatisfied", "a constraint of the claim is not satisfied"),
    }


def test_details_tell_of_broken_pools_without_device_name() -> None:
    cluster = snapshot(
        resource_slice("s", device("a"), count=2, pool="incomplete"),
        resource_slice("t", device("a"), device("a"), pool="invalid"),
    )
    outcome = ask(cluster, claim(), explain=True)

    assert [(d.device.pool, d.kind.value, d.message) for d in outcome.reason.devices] == [
        ("incomplete", "PoolIncomplete", "it is being updated"),
        ("invalid", "PoolInvalid", "device name a occurs twice"),
    ]


def test_details_are_bounded() -> None:
    slices = [
        resource_slice(f"s{i}", *(device(f"d{i}-{n}") for n in range(128)), count=3)
        for i in range(3)
    ]
    outcome = ask(
        snapshot(*slices, classes=[device_class(GPU_CLASS, NEVER)]), claim(), explain=True
    )

    assert len(outcome.reason.devices) == 256


def test_the_furthest_a_device_came_is_kept() -> None:
    explanation = Explanation()
    outcome = ask(
        on_node(device("a", x=1), device("b", x=2)),
        claim("c", request(count=2), match("gpu.example.com/x")),
        reporter=explanation,
    )

    assert names(outcome) is None
    assert {d.device: stage for d, (stage, _) in explanation.refused[0, 0].items()} == {"b": 8}
    assert explanation.candidates == 2
    assert explanation.steps == 2


def test_a_null_reporter_hears_nothing() -> None:
    reporter = NullReporter()

    assert names(ask(on_node(device("a")), claim(), reporter=reporter)) == ["a"]
    assert (
        names(ask(on_node(device("a")), claim("c", request("r", NEVER)), reporter=reporter)) is None
    )


def test_a_later_stage_replaces_an_earlier_one_of_the_same_device_and_not_the_reverse() -> None:
    explanation = Explanation(limit=1)
    a, b = (resource_slice("s", device(n)).pool_id for n in "ab")
    from allocator.model.devices import DeviceID

    first_id, second_id = DeviceID(*a, "a"), DeviceID(*b, "b")
    explanation.rejected(0, 0, first_id, 3, "x")
    explanation.rejected(0, 0, first_id, 5, "y")
    explanation.rejected(0, 0, first_id, 4, "z")
    explanation.rejected(0, 0, second_id, 4, "beyond the limit")

    assert explanation.refused == {(0, 0): {first_id: (5, "y")}}


# What is wrong with a claim itself


@pytest.mark.parametrize(
    ("part", "want", "text"),
    [
        (request("r", device_class=""), ReasonKind.INVALID_CLAIM, "deviceClassName is empty"),
        (request("r", mode=""), ReasonKind.INVALID_CLAIM, "unsupported count mode ''"),
        (request("r", mode="Some"), ReasonKind.INVALID_CLAIM, "unsupported count mode 'Some'"),
        (DeviceRequest(name="r"), ReasonKind.INVALID_CLAIM, "neither exactly nor firstAvailable"),
    ],
)
def test_a_claim_that_makes_no_sense_is_fatal_on_every_node(part, want, text: str) -> None:
    outcome = ask(snapshot(), claim("c", part))

    assert names(outcome) == "fatal"
    assert kind(outcome) is want
    assert text in message(outcome)
    assert not outcome.depends_on_node


def test_a_request_selector_without_cel_is_fatal() -> None:
    from allocator.model.claims import ExactDeviceRequest
    from allocator.model.devices import DeviceSelector

    odd = DeviceRequest(
        name="r",
        exactly=ExactDeviceRequest(
            device_class_name="gpu",
            allocation_mode="ExactCount",
            count=1,
            selectors=(DeviceSelector(),),
        ),
    )

    assert "a selector has no CEL expression" in message(ask(snapshot(), claim("c", odd)))


def test_first_available_with_the_gate_off_is_fatal() -> None:
    wanted = claim("c", first("r", sub_request("s")))
    outcome = ask(snapshot(), wanted, features=features(prioritized_list=False))

    assert kind(outcome) is ReasonKind.FEATURE_DISABLED


def test_the_first_problem_of_several_is_the_answer() -> None:
    prepared = prepare_claims(
        [claim("ok"), claim("bad", request("r", mode="")), claim("worse", request("r", mode="?"))],
        snapshot().classes,
        DEFAULTS,
        CEL,
    )

    assert prepared.problem is not None
    assert prepared.problem.claim == "bad"
