"""Cases 34-42 of the behaviour reference: mode All and admin access."""

import pytest

from allocator import ReasonKind
from tests.allocator.support import ask, depends_on_node, features, kind, names, results
from tests.builders import (
    GPU_DRIVER,
    claim,
    consumes,
    counter_set,
    device,
    device_class,
    match,
    request,
    resource_slice,
    snapshot,
    taint,
    toleration,
    used,
)

ALL = request(all_devices=True)
ADMIN = request("admin", admin=True)


def plain(*names: str, **more):
    return resource_slice("s", *(device(name) for name in names), **more)


def test_all_means_every_matching_device() -> None:
    assert names(ask(snapshot(plain("a", "b", "c")), claim("c", ALL))) == ["a", "b", "c"]


def test_all_of_no_device_fails() -> None:
    outcome = ask(snapshot(), claim("c", ALL))

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.NO_MATCHING_DEVICE


def test_case_34_one_device_in_use_makes_all_fail_but_not_for_an_admin() -> None:
    cluster = snapshot(plain("a", "b"), in_use=[used("a")])
    admin = ask(cluster, claim("c", request(all_devices=True, admin=True)))
    outcome = ask(cluster, claim("c", ALL))

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.DEVICES_IN_USE
    assert names(admin) == ["a", "b"]
    assert [r.admin_access for r in results(admin)] == [True, True]


def test_case_35_one_tainted_device_makes_all_fail_unless_the_gate_is_off() -> None:
    cluster = snapshot(resource_slice("s", device("a"), device("b", taints=[taint("sick")])))
    outcome = ask(cluster, claim("c", ALL))

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.DEVICE_TAINTED
    assert names(ask(cluster, claim("c", ALL), features=features(device_taints=False))) == [
        "a",
        "b",
    ]


@pytest.mark.parametrize("all_first", [True, False])
def test_case_36_all_beside_a_request_of_another_class(all_first: bool) -> None:
    cluster = snapshot(
        resource_slice("s", device("a"), device("b")),
        resource_slice("t", device("n"), driver="nic.example.com"),
        classes=[
            device_class("gpu", f"device.driver == '{GPU_DRIVER}'"),
            device_class("nic", "device.driver == 'nic.example.com'"),
        ],
    )
    nic = request("nic", device_class="nic")
    requests = [ALL, nic] if all_first else [nic, ALL]

    assert sorted(names(ask(cluster, claim("c", *requests))) or ()) == ["a", "b", "n"]


@pytest.mark.parametrize("all_first", [True, False])
def test_case_36_all_and_one_of_the_same_class_do_not_share_a_device(all_first: bool) -> None:
    requests = [ALL, request("one")] if all_first else [request("one"), ALL]

    assert names(ask(snapshot(plain("a")), claim("c", *requests))) is None


def test_case_37_an_admin_request_blocks_admin_all_in_the_same_claim() -> None:
    wanted = claim("c", ADMIN, request("all", all_devices=True, admin=True))

    assert names(ask(snapshot(plain("device-1")), wanted)) is None


def test_case_38_two_admin_claims_share_a_device() -> None:
    assert names(ask(snapshot(plain("device-1")), claim("x", ADMIN), claim("y", ADMIN))) == [
        "device-1",
        "device-1",
    ]


def test_case_39_the_order_of_an_admin_and_a_normal_claim_matters() -> None:
    cluster = snapshot(plain("a"))

    assert names(ask(cluster, claim("n"), claim("a", ADMIN))) == ["a", "a"]
    refused = ask(cluster, claim("a", ADMIN), claim("n"))
    assert names(refused) is None
    assert kind(refused) is ReasonKind.DEVICES_IN_USE


def test_admin_requests_of_one_claim_take_different_devices() -> None:
    wanted = claim("c", ADMIN, request("more", admin=True))

    assert names(ask(snapshot(plain("a", "b")), wanted)) == ["a", "b"]
    assert names(ask(snapshot(plain("a")), wanted)) is None


def test_case_40_admin_access_needs_tolerations() -> None:
    cluster = snapshot(resource_slice("s", device("a", taints=[taint("sick")])))
    tolerant = request("admin", admin=True, tolerations=[toleration("sick", operator="Exists")])

    assert names(ask(cluster, claim("c", ADMIN))) is None
    assert names(ask(cluster, claim("c", tolerant))) == ["a"]


def test_case_41_admin_access_to_an_allocated_partition_pays_counters_again() -> None:
    cluster = snapshot(
        resource_slice("s", device("a", consumes=[consumes("set", memory=8)]), count=2),
        resource_slice("t", counters=[counter_set("set", memory=8)], count=2),
        in_use=[used("a")],
    )
    outcome = ask(cluster, claim("c", ADMIN))

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.COUNTERS_EXHAUSTED


@pytest.mark.parametrize("value", [True, False])
def test_case_42_admin_access_with_the_gate_off_is_fatal(value: bool) -> None:
    wanted = claim("c", request(admin=value))
    outcome = ask(snapshot(plain("a")), wanted, features=features(admin_access=False))

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.FEATURE_DISABLED
    assert not depends_on_node(outcome)


def test_an_explicit_false_leaves_admin_access_out_of_the_result() -> None:
    (result,) = results(ask(snapshot(plain("a")), claim("c", request(admin=False))))

    assert result.admin_access is None


def test_admin_access_occupies_nothing_for_others() -> None:
    assert names(ask(snapshot(plain("a"), in_use=[used("a", admin=True)]), claim())) == ["a"]


def test_admin_access_on_a_shareable_device_needs_free_capacity_and_is_a_share() -> None:
    shared = resource_slice("s", device("a", shareable=True, capacity={"memory": 8}))
    (result,) = results(ask(snapshot(shared), claim("c", ADMIN)))
    full = snapshot(shared, in_use=[used("a", share="x", consumed={"memory": 1})])

    assert result.share_id == "share-c-admin-a"
    assert result.admin_access is True
    assert names(ask(full, claim("c", ADMIN))) is None


def test_admin_access_needs_constraints() -> None:
    cluster = snapshot(resource_slice("s", device("a"), device("b", card=1)))

    assert names(ask(cluster, claim("c", ADMIN, match("gpu.example.com/card")))) == ["b"]


def test_more_than_32_devices_are_too_many_for_all() -> None:
    cluster = snapshot(plain(*(f"d{index:02}" for index in range(33))))
    outcome = ask(cluster, claim("c", ALL))

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.TOO_MANY_DEVICES
    assert depends_on_node(outcome)


def test_partitions_that_overlap_in_counters_make_all_fail() -> None:
    cluster = snapshot(
        resource_slice(
            "s",
            device("whole", consumes=[consumes("set", memory=8)]),
            device("half", consumes=[consumes("set", memory=4)]),
            count=2,
        ),
        resource_slice("t", counters=[counter_set("set", memory=8)], count=2),
    )

    assert names(ask(cluster, claim("c", ALL))) is None


def test_a_problem_of_a_later_request_does_not_hide_an_earlier_one_of_all() -> None:
    broken = snapshot(plain("a", count=2))
    whole = snapshot(plain("a"))
    wanted = claim("c", ALL, request("later", device_class="gone"))

    assert kind(ask(broken, wanted)) is ReasonKind.POOL_INCOMPLETE
    assert kind(ask(whole, wanted)) is ReasonKind.DEVICE_CLASS_NOT_FOUND


def test_a_problem_inside_first_available_leaves_its_limit_unchecked() -> None:
    from tests.builders import first_available, sub_request

    many = snapshot(plain(*(f"d{index:02}" for index in range(40))))
    wanted = claim(
        "c",
        first_available(
            "r", sub_request("all", all_devices=True), sub_request("s", device_class="gone")
        ),
    )

    assert kind(ask(many, wanted)) is ReasonKind.DEVICE_CLASS_NOT_FOUND
