"""Cases 70-75 of the behaviour reference: shared counters and compatibility groups."""

import pytest

from allocator import ReasonKind
from tests.allocator.support import STABLE, ask, features, kind, names
from tests.builders import (
    claim,
    consumes,
    counter_set,
    device,
    match,
    request,
    resource_slice,
    snapshot,
    sub_request,
    taint,
    used,
)
from tests.builders import first_available as first

GROUPS = features(device_compatibility_groups=True)


def partition(name: str, memory: int, **more):
    return device(name, consumes=[consumes("set", memory=memory)], **more)


def card(*devices, counters=None, **more):
    """A pool of devices and, in a slice of its own, a counter set of 8."""
    return snapshot(
        resource_slice("devices", *devices, count=2),
        resource_slice("counters", counters=counters or [counter_set("set", memory=8)], count=2),
        **more,
    )


def test_case_70_two_devices_that_fit_together_are_found() -> None:
    cluster = card(partition("five", 5), partition("four", 4), partition("also-four", 4))

    assert names(ask(cluster, claim("c", request(count=2)))) == ["four", "also-four"]


def test_counters_are_shared_by_all_claims_of_the_pod() -> None:
    cluster = card(partition("a", 5), partition("b", 4))

    outcome = ask(cluster, claim("x"), claim("y"))
    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.COUNTERS_EXHAUSTED


def test_case_71_a_device_of_another_node_has_consumed_of_the_same_set() -> None:
    cluster = snapshot(
        resource_slice("here", partition("four", 4), partition("two", 2), count=3),
        resource_slice("there", partition("six", 6), count=3, node="node-2"),
        resource_slice("counters", counters=[counter_set("set", memory=8)], count=3),
        in_use=[used("six")],
    )

    assert names(ask(cluster, claim())) == ["two"]
    assert names(ask(cluster, claim(), features=STABLE)) == ["two"]


def test_case_72_one_overdrawn_set_blocks_every_consumer_of_the_pool() -> None:
    sets = [counter_set("set", memory=8), counter_set("other", memory=8)]
    cluster = card(
        partition("gone-a", 8),
        partition("gone-b", 8),
        device("elsewhere", consumes=[consumes("other", memory=1)]),
        device("none"),
        counters=sets,
        in_use=[used("gone-a"), used("gone-b")],
    )

    assert names(ask(cluster, claim())) == ["none"]
    assert names(ask(cluster, claim("c", request(count=2)))) is None


def test_a_set_used_up_exactly_blocks_only_its_own_consumers() -> None:
    sets = [counter_set("set", memory=8), counter_set("other", memory=8)]
    cluster = card(
        partition("gone", 8),
        partition("more", 1),
        device("elsewhere", consumes=[consumes("other", memory=8)]),
        counters=sets,
        in_use=[used("gone")],
    )

    assert names(ask(cluster, claim())) == ["elsewhere"]


@pytest.mark.parametrize(
    "refused",
    [partition("refused", 8, x=1, taints=[taint("sick")]), partition("refused", 8)],
    ids=["by a taint", "by a constraint"],
)
def test_case_73_counters_of_a_refused_device_are_given_back(refused) -> None:
    cluster = card(refused, partition("good", 8, x=1))

    assert names(ask(cluster, claim("c", request(), match("gpu.example.com/x")))) == ["good"]


def test_case_74_without_the_gate_only_devices_without_counters_are_given() -> None:
    cluster = snapshot(resource_slice("s", partition("part", 1), device("plain")))
    off = features(partitionable_devices=False)

    assert names(ask(cluster, claim(), features=off)) == ["plain"]
    outcome = ask(cluster, claim("c", request(count=2)), features=off)
    assert kind(outcome) is ReasonKind.FEATURE_DISABLED


def test_an_allocated_device_that_left_its_slice_consumes_nothing() -> None:
    assert names(ask(card(partition("a", 8), in_use=[used("gone")]), claim())) == ["a"]


def test_a_device_may_consume_from_several_sets_and_the_same_one_twice() -> None:
    sets = [counter_set("set", memory=8), counter_set("other", memory=2)]
    both = [consumes("set", memory=4), consumes("other", memory=2)]
    twice = [consumes("set", memory=3), consumes("set", memory=3)]
    cluster = card(
        device("both", consumes=both),
        device("twice", consumes=twice),
        partition("two", 2),
        counters=sets,
    )

    assert names(ask(cluster, claim("c", request(count=2)))) == ["both", "two"]


def test_going_back_gives_counters_back() -> None:
    cluster = card(partition("whole", 8), partition("half-a", 4), partition("half-b", 4))
    wanted = claim("c", first("r", sub_request("three", count=3), sub_request("two", count=2)))

    assert names(ask(cluster, wanted)) == ["half-a", "half-b"]


@pytest.mark.parametrize("how", ["one claim", "two claims", "allocated"])
def test_a_device_that_takes_less_than_nothing_makes_no_room(how: str) -> None:
    """The API server stores such amounts; upstream subtracts them."""
    cluster = card(
        partition("a", -8),
        partition("b", 6),
        partition("c", 6),
        in_use=[used("a")] if how == "allocated" else [],
    )
    if how == "allocated":
        assert names(ask(cluster, claim("c", request(count=1)))) == ["b"]
        assert names(ask(cluster, claim("c", request(count=2)))) is None
    elif how == "two claims":
        assert names(ask(cluster, claim("x", request(count=2)), claim("y"))) is None
    else:
        assert names(ask(cluster, claim("c", request(count=2)))) == ["a", "b"]
        assert names(ask(cluster, claim("c", request(count=3)))) is None


def test_a_counter_below_zero_has_no_room() -> None:
    cluster = card(
        partition("zero", 0),
        partition("less", -1),
        device("plain"),
        counters=[counter_set("set", memory=-1)],
    )
    assert names(ask(cluster, claim())) == ["plain"]


# Compatibility groups


def member(name: str, *groups: str, in_set: str = "set"):
    return device(name, consumes=[consumes(in_set, list(groups), memory=1)])


@pytest.mark.parametrize(
    ("left", "right", "want"),
    [
        (member("a", "mig"), member("b", "mig"), ["a", "b"]),
        (member("a", "mig"), member("b", "vgpu"), None),
        (member("a"), member("b", "mig"), None),
        (member("a", "mig"), member("b"), None),
        (member("a"), member("b"), ["a", "b"]),
        (member("a", "mig"), member("b", "vgpu", in_set="other"), ["a", "b"]),
    ],
    ids=["same", "different", "none first", "none second", "both none", "different sets"],
)
@pytest.mark.parametrize("how", ["one claim", "two claims", "allocated"])
def test_case_75_devices_on_a_set_need_a_group_in_common(left, right, want, how: str) -> None:
    sets = [counter_set("set", memory=8), counter_set("other", memory=8)]
    in_use = [used("a")] if how == "allocated" else []
    cluster = card(left, right, counters=sets, in_use=in_use)
    wanted = [claim("c", request(count=2))] if how == "one claim" else [claim("x"), claim("y")]
    if how == "allocated":
        wanted, want = [claim()], want and ["b"]
    outcome = ask(cluster, *wanted, features=GROUPS)

    assert names(outcome) == want
    if want is None:
        assert kind(outcome) is ReasonKind.INCOMPATIBLE_GROUP


def test_case_75_with_the_gate_off_the_whole_pool_is_unusable_other_pools_are_not() -> None:
    slices = [
        resource_slice("s", member("a", "mig"), count=3),
        resource_slice("t", device("plain"), count=3),
        resource_slice("u", counters=[counter_set("set", memory=8)], count=3),
        resource_slice("v", device("other"), pool="pool-2"),
    ]

    for flags in (features(), STABLE):
        assert names(ask(snapshot(*slices), claim(), features=flags)) == ["other"]
    outcome = ask(snapshot(*slices[:3]), claim(), features=features())
    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.POOL_INCOMPLETE


def test_the_common_groups_narrow_and_widen_again() -> None:
    cluster = card(
        member("both", "x", "y"), member("only-x", "x"), member("only-y", "y"), member("y2", "y")
    )

    assert names(ask(cluster, claim("c", request(count=3)), features=GROUPS)) == [
        "both",
        "only-y",
        "y2",
    ]


def test_a_further_share_is_not_compared_again() -> None:
    shared = device("a", shareable=True, consumes=[consumes("set", ["x"], memory=1)])
    cluster = card(shared, member("b", "y"), in_use=[used("a", share="s"), used("b")])

    assert names(ask(cluster, claim(), features=GROUPS)) == ["a"]


def test_allocated_devices_that_do_not_go_together_admit_nobody_with_groups() -> None:
    cluster = card(
        member("a", "x"),
        member("b", "y"),
        member("c", "x"),
        member("d"),
        in_use=[used("a"), used("b")],
    )

    assert names(ask(cluster, claim(), features=GROUPS)) is None


@pytest.mark.parametrize("order", [["none", "x"], ["x", "none"]])
def test_a_mix_of_allocated_devices_is_what_the_first_one_was(order) -> None:
    members = {"none": member("none"), "x": member("x", "x")}
    cluster = card(
        *(members[name] for name in order),
        member("new-none"),
        member("new-x", "x"),
        in_use=[used("none"), used("x")],
    )

    assert names(ask(cluster, claim(), features=GROUPS)) == [
        "new-none" if order[0] == "none" else "new-x"
    ]


def test_a_device_must_be_admitted_by_every_set_it_consumes_from() -> None:
    two_sets = device(
        "wide", consumes=[consumes("set", ["x"], memory=1), consumes("other", ["y"], memory=1)]
    )
    sets = [counter_set("set", memory=8), counter_set("other", memory=8)]
    cluster = card(member("z", "z", in_set="other"), two_sets, member("x2", "x"), counters=sets)

    # `wide` is refused by the second set; what the first set noted of it is taken back.
    assert names(ask(cluster, claim("c", request(count=2)), features=GROUPS)) == ["z", "x2"]
