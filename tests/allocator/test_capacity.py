"""Cases 58-69 of the behaviour reference: consumable capacity."""

import pytest

from allocator import ReasonKind
from allocator.capacity import CapacityError, add_amounts, consumption
from tests.allocator.support import STABLE, ask, depends_on_node, features, kind, names, results
from tests.builders import (
    capacity,
    claim,
    consumes,
    counter_set,
    device,
    match,
    quantity,
    request,
    resource_slice,
    snapshot,
    sub_request,
    used,
    valid_range,
    valid_values,
)
from tests.builders import first_available as first

OFF = features(consumable_capacity=False)


def shared(name: str = "a", **more):
    return device(name, shareable=True, **more)


def cluster_of(*devices, **more):
    return snapshot(resource_slice("s", *devices), **more)


def consumed(outcome) -> list[str]:
    return [str(r.consumed_capacity["memory"]) for r in results(outcome) if r.consumed_capacity]


def wants(amount, name: str = "r"):
    return request(name, capacity={"memory": amount})


RANGE = capacity(8, valid_range(2, 8, 2, default=4))


@pytest.mark.parametrize(
    ("amount", "want"),
    [(0, "2"), (1, "2"), (2, "2"), (3, "4"), (7, "8"), (8, "8"), (9, None), (None, "4")],
)
def test_case_58_a_range_raises_to_the_next_step(amount, want) -> None:
    wanted = request("r") if amount is None else wants(amount)
    outcome = ask(cluster_of(shared(capacity={"memory": RANGE})), claim("c", wanted))

    assert (names(outcome) and consumed(outcome)) == (want and [want])


@pytest.mark.parametrize(
    ("amount", "policy", "want"),
    [
        (2, valid_values(1, 3, default=1), "3"),
        (4, valid_values(1, 3, default=1), None),
        (0, valid_values(1, 3, default=1), "1"),
        (None, valid_values(1, 3, default=1), "1"),
        (None, None, "8"),
        (0, None, "0"),
        (5, None, "5"),
        (9, None, None),
        (3, valid_range(2, 8, default=2), "3"),
        (1, valid_range(2, 8, default=2), "2"),
        (3, valid_range(maximum=4, default=2), "3"),
        (5, valid_range(maximum=4, default=2), None),
    ],
)
def test_case_59_policies_and_defaults(amount, policy, want) -> None:
    wanted = request("r") if amount is None else wants(amount)
    card = shared(capacity={"memory": capacity(8, policy)})
    outcome = ask(cluster_of(card), claim("c", wanted))

    assert (names(outcome) and consumed(outcome)) == (want and [want])


def test_case_60_a_capacity_that_is_not_requested_is_consumed_in_full_or_by_its_default() -> None:
    card = shared(
        capacity={"memory": 8, "cores": capacity(4, valid_values(1, 2, default=1)), "io": 3}
    )
    (result,) = results(ask(cluster_of(card), claim("c", wants(2))))

    assert result.consumed_capacity == {
        "memory": quantity(2),
        "cores": quantity(1),
        "io": quantity(3),
    }


def test_case_61_a_device_without_the_requested_capacity_is_skipped() -> None:
    cluster = cluster_of(
        shared("none"),
        shared("other-name", capacity={"gpu.example.com/memory": 8}),
        shared("fits", capacity={"memory": 8}),
    )

    assert names(ask(cluster, claim("c", wants(2)))) == ["fits"]


def test_case_62_two_claims_share_a_device_until_it_is_full() -> None:
    cluster = cluster_of(shared(capacity={"memory": 2}))
    outcome = ask(cluster, claim("x", wants(1)), claim("y", wants(1)))

    assert names(outcome) == ["a", "a"]
    assert results(outcome, 0)[0].share_id != results(outcome, 1)[0].share_id
    assert names(ask(cluster, *(claim(c, wants(1)) for c in "xyz"))) is None


def test_case_62_without_request_and_policy_each_claim_needs_a_device_of_its_own() -> None:
    one = cluster_of(shared(capacity={"memory": 2}))
    two = cluster_of(shared("a", capacity={"memory": 2}), shared("b", capacity={"memory": 2}))

    assert names(ask(one, claim("x"), claim("y"))) is None
    assert names(ask(two, claim("x"), claim("y"))) == ["a", "b"]


def test_case_63_one_request_takes_a_shareable_device_once() -> None:
    cluster = cluster_of(shared(capacity={"memory": 8}))

    assert names(ask(cluster, claim("c", request(count=2, capacity={"memory": 1})))) is None
    assert names(ask(cluster, claim("c", wants(1, "p"), wants(1, "q")))) == ["a", "a"]


@pytest.mark.parametrize("amount", ["9223372036854775808", "9223372036854775807", "-1"])
def test_case_64_an_amount_that_cannot_be_represented_is_fatal(amount: str) -> None:
    odd = shared("odd", capacity={"memory": capacity("8Ei", valid_range(0, None, 2, default=0))})
    wanted = claim("c", wants(amount))
    if amount == "-1":
        odd = shared("odd", capacity={"memory": 8})
    outcome = ask(cluster_of(odd, shared("plain", capacity={"memory": "9Ei"})), wanted)

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.CAPACITY_EXHAUSTED
    assert depends_on_node(outcome)


def test_case_64_a_negative_capacity_is_fatal_under_all_as_well() -> None:
    cluster = cluster_of(device("a", capacity={"memory": -1}))

    assert names(ask(cluster, claim("c", request(all_devices=True)))) == "fatal"
    assert names(ask(cluster, claim("c", request(all_devices=True)), features=OFF)) == ["a"]


def test_case_65_use_of_the_other_kind_blocks_a_device() -> None:
    now_shared = cluster_of(shared(capacity={"memory": 8}), in_use=[used("a")])
    now_exclusive = cluster_of(
        device("a", capacity={"memory": 8}), in_use=[used("a", share="x", consumed={"memory": 1})]
    )
    outcome = ask(now_exclusive, claim())

    assert names(ask(now_shared, claim("c", wants(1)))) is None
    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.CAPACITY_EXHAUSTED


def test_a_leftover_share_without_amounts_does_not_block() -> None:
    cluster = cluster_of(device("a", capacity={"memory": 8}), in_use=[used("a", share="x")])

    assert names(ask(cluster, claim())) == ["a"]


def test_case_66_all_leaves_out_what_is_too_small_and_fails_on_what_is_too_full() -> None:
    cards = (shared("small", capacity={"memory": 2}), shared("large", capacity={"memory": 8}))
    wanted = claim("c", request("r", all_devices=True, capacity={"memory": 4}))
    full = cluster_of(*cards, in_use=[used("large", share="x", consumed={"memory": 5})])

    assert names(ask(cluster_of(*cards), wanted)) == ["large"]
    assert names(ask(full, wanted)) is None


def partition(*, with_memory: bool = True):
    memory = {"memory": capacity(8, valid_range(1, 8, 1, default=1))} if with_memory else None
    return snapshot_parts(shared("a", capacity=memory, consumes=[consumes("set", cores=4)]))


def snapshot_parts(*devices):
    return [
        resource_slice("s", *devices, count=2),
        resource_slice("t", counters=[counter_set("set", cores=4)], count=2),
    ]


def test_case_67_a_second_share_does_not_pay_counters_again() -> None:
    slices = partition()

    assert names(ask(snapshot(*slices), claim("x"), claim("y"))) == ["a", "a"]
    first_share = [used("a", share="s", consumed={"memory": 1})]
    assert names(ask(snapshot(*slices, in_use=first_share), claim("x"))) == ["a"]
    by_id_only = [used("a", share="s")]
    assert names(ask(snapshot(*slices, in_use=by_id_only), claim("x"))) == ["a"]


def test_case_67_a_share_that_is_taken_back_does_not_forget_the_first_one() -> None:
    slices = snapshot_parts(
        shared("a", capacity={}, consumes=[consumes("set", cores=4)]),
        device("b", good=True),
    )
    wanted = [
        claim("x", request("r", "device.allowMultipleAllocations")),
        claim("y", request("r", count=1)),
        claim("z", request("r", "device.allowMultipleAllocations")),
    ]

    assert names(ask(snapshot(*slices), *wanted)) == ["a", "a", "a"]


@pytest.mark.parametrize(
    ("amount", "off", "on"),
    [("250m", "1", "300m"), ("200m", "1", "200m"), ("100m", "200m", "200m"), ("1", "1", "1")],
)
def test_case_68_fractional_ranges(amount: str, off: str, on: str) -> None:
    card = shared(capacity={"memory": capacity(1, valid_range("200m", 1, "100m", default="200m"))})
    cluster = cluster_of(card)
    gate = features(fractional_capacity_range=True)
    outcome = ask(cluster, claim("c", wants(amount)))

    assert consumed(ask(cluster, claim("c", wants(amount)), features=gate)) == [on]
    assert consumed(outcome) == [off]


def test_finer_than_thousandths_is_fatal_with_the_fractional_gate() -> None:
    card = shared(capacity={"memory": capacity(1, valid_range("200m", 1, "100m", default="200m"))})
    gate = features(fractional_capacity_range=True)

    assert names(ask(cluster_of(card), claim("c", wants("250100u")), features=gate)) == "fatal"


def test_without_exact_thousandths_whole_units_are_used() -> None:
    card = shared(capacity={"memory": capacity(9, valid_range("1u", 9, 2, default="1u"))})
    gate = features(fractional_capacity_range=True)

    assert consumed(ask(cluster_of(card), claim("c", wants(2)), features=gate)) == ["3"]


def test_case_69_a_capacity_refusal_takes_constraints_back() -> None:
    # Under All the capacity is looked at after the constraints; the next alternative must start afresh.
    cluster = cluster_of(
        shared("full", capacity={"memory": 8}, x=1),
        shared("free", capacity={"memory": 8}, x=2),
        in_use=[used("full", share="s", consumed={"memory": 8})],
    )
    full = "device.attributes['gpu.example.com'].x == 1"
    wanted = claim(
        "c",
        first(
            "r",
            sub_request("all", full, all_devices=True, capacity={"memory": 1}),
            sub_request("one", capacity={"memory": 1}),
        ),
        match("gpu.example.com/x"),
    )

    assert names(ask(cluster, wanted)) == ["free"]


def test_a_capacity_request_filters_devices_that_are_not_shared() -> None:
    cluster = cluster_of(
        device("small", capacity={"memory": 2}), device("large", capacity={"memory": 8})
    )
    (result,) = results(ask(cluster, claim("c", wants(4))))

    assert result.device == "large"
    assert result.share_id is None
    assert result.consumed_capacity is None


def test_a_shareable_device_without_capacities_is_shared_without_limit() -> None:
    outcome = ask(cluster_of(shared()), *(claim(f"c{index}") for index in range(5)))

    assert names(outcome) == ["a"] * 5
    assert results(outcome)[0].share_id is not None
    assert results(outcome)[0].consumed_capacity is None


def test_nothing_consumed_is_recorded_as_well() -> None:
    (result,) = results(ask(cluster_of(shared(capacity={"memory": 8})), claim("c", wants(0))))

    assert result.consumed_capacity == {"memory": quantity(0)}


def test_a_default_beyond_the_value_makes_a_device_unallocatable_without_request() -> None:
    card = shared(capacity={"memory": capacity(2, valid_values(1, default=4))})

    assert names(ask(cluster_of(card), claim())) is None
    assert names(ask(cluster_of(card), claim("c", wants(1)))) == ["a"]
    assert names(ask(cluster_of(card), claim("c", request(all_devices=True)))) is None


@pytest.mark.parametrize("alternative", [False, True])
def test_a_capacity_request_with_the_gate_off_is_fatal(alternative: bool) -> None:
    wanted = wants(1)
    if alternative:
        wanted = first("r", sub_request("a"), sub_request("b", capacity={"memory": 1}))
    outcome = ask(cluster_of(device("a")), claim("c", wanted), features=OFF)

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.FEATURE_DISABLED


def test_the_stable_allocator_ignores_a_capacity_request() -> None:
    cluster = cluster_of(device("a"), consumable_capacity=False)

    assert names(ask(cluster, claim("c", wants(1)), features=STABLE)) == ["a"]


def test_with_the_gate_off_a_shareable_device_is_given_once() -> None:
    cluster = cluster_of(shared(), consumable_capacity=False)

    assert names(ask(cluster, claim("x"), claim("y"), features=OFF)) is None
    (result,) = results(ask(cluster, claim("x"), features=OFF))
    assert result.share_id is None


def test_with_the_gate_off_every_share_counts_as_exclusive_use() -> None:
    cluster = cluster_of(shared(), in_use=[used("a", share="x")], consumable_capacity=False)

    assert names(ask(cluster, claim(), features=OFF)) is None


def test_a_share_that_consumes_less_than_nothing_makes_no_room() -> None:
    """The API server stores such amounts; upstream adds them."""
    others = [used("a", share=f"s{amount}", consumed={"memory": amount}) for amount in (-5, 6)]
    cluster = cluster_of(shared(capacity={"memory": 8}), in_use=others)

    assert names(ask(cluster, claim("c", wants(2)))) == ["a"]
    assert names(ask(cluster, claim("c", wants(3)))) is None


def test_amounts_of_several_other_claims_add_up() -> None:
    others = [used("a", share=f"s{index}", consumed={"memory": 3}) for index in range(2)]
    cluster = cluster_of(shared(capacity={"memory": 8}), in_use=others)

    assert names(ask(cluster, claim("c", wants(2)))) == ["a"]
    outcome = ask(cluster, claim("c", wants(3)))
    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.CAPACITY_EXHAUSTED


def test_the_text_of_an_amount_is_the_canonical_one_of_what_was_asked() -> None:
    outcome = ask(cluster_of(shared(capacity={"memory": "80Gi"})), claim("c", wants("1.5Gi")))

    assert consumed(outcome) == ["1536Mi"]


# The arithmetic by itself


@pytest.mark.parametrize(
    ("policy", "amount"),
    [
        (valid_range(step=2, default=0), 1),
        (valid_range(0, step=0, default=0), 1),
        (valid_range(5, step=0, default=0), 1),
    ],
    ids=["step without minimum", "step of zero", "step of zero below the minimum"],
)
def test_ranges_that_upstream_would_crash_on_are_refused_cleanly(policy, amount) -> None:
    with pytest.raises(CapacityError):
        consumption({"memory": capacity(8, policy)}, {"memory": quantity(amount)}, fractional=False)


def test_a_step_of_less_than_a_thousandth_uses_whole_units() -> None:
    policy = valid_range(0, 8, "1u", default=0)
    found = consumption(
        {"memory": capacity(8, policy)}, {"memory": quantity("1500m")}, fractional=True
    )

    assert found is not None
    assert found.amounts == {"memory": quantity(2)}


def test_a_default_off_the_steps_is_accepted_as_it_is() -> None:
    found = consumption(
        {"memory": capacity(8, valid_range(0, 8, 2, default=3))}, None, fractional=False
    )

    assert found is not None
    assert found.amounts == {"memory": quantity(3)}


def test_a_minimum_off_the_thousandths_violates_a_range_in_thousandths() -> None:
    # The default is written in another format, so that the policy is looked at.
    policy = valid_range("100m", 8, "100m", default="1500u")
    capacities = {"memory": capacity("1500u", policy.__class__(valid_range=policy.valid_range))}

    assert consumption(capacities, None, fractional=True) is None


def test_amounts_are_added_by_name() -> None:
    left, right = {"a": quantity(1)}, {"a": quantity(2), "b": quantity(3)}

    assert add_amounts(left, right) == {"a": quantity(3), "b": quantity(3)}
    assert left == {"a": quantity(1)}
