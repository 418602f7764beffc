"""Cases 19-25 of the behaviour reference: exact counts, limits and going back."""

from collections.abc import Iterator

import pytest

from allocator import FIRST_FIT, ReasonKind, prepare_claims
from allocator.pools import gather_pools
from allocator.report import NullReporter
from allocator.search import Limits, Search
from tests.allocator.support import (
    CEL,
    DEFAULTS,
    STABLE,
    ask,
    by_request,
    depends_on_node,
    kind,
    message,
    names,
)
from tests.builders import (
    claim,
    consumes,
    counter_set,
    device,
    device_class,
    match,
    node,
    request,
    resource_slice,
    snapshot,
    sub_request,
    taint,
    used,
    without_requests,
)
from tests.builders import first_available as first

SMALL = "device.attributes['gpu.example.com'].size == 'small'"
LARGE = "device.attributes['gpu.example.com'].size == 'large'"


def plain(*names: str):
    return resource_slice("s", *(device(name) for name in names))


def many(number: int):
    """Devices beyond one slice's 128 are not needed anywhere here."""
    return plain(*(f"d{index:02}" for index in range(number)))


def steps(cluster, *claims) -> tuple[list[str] | None, int]:
    """Device names of the first solution and the solver steps to it, counted as upstream counts them."""
    prepared = prepare_claims(claims, cluster.classes, DEFAULTS, CEL)
    pools = gather_pools(node(), cluster.slices, prepared.rules)
    search = Search(prepared, node(), pools, cluster.allocated, Limits(shortcuts=False))
    search.prepare_all()
    solution = FIRST_FIT.choose(search.solutions())
    if solution is None:
        return None, search.steps
    return [d.candidate.name for devices in solution.devices for d in devices], search.steps


def test_case_19_an_earlier_request_gives_way_in_one_claim_and_across_claims() -> None:
    cluster = snapshot(
        resource_slice("s", device("large", size="large"), device("small", size="small"))
    )
    any_then_large = (request("any"), request("large", LARGE))
    one = claim("c", *any_then_large)
    two = [claim(r.name, r) for r in any_then_large]

    assert by_request(ask(cluster, one)) == [("any", "small"), ("large", "large")]
    assert by_request(ask(cluster, *two)) == [("any", "small"), ("large", "large")]


def test_case_20_two_devices_make_room_for_a_specific_request_in_12_steps() -> None:
    cluster = snapshot(
        resource_slice(
            "s",
            device("d1", special=True),
            device("d2", special=False),
            device("d3", special=False),
        )
    )
    special = "device.attributes['gpu.example.com'].special == true"
    found, taken = steps(cluster, claim("c", request("two", count=2), request("one", special)))

    assert found == ["d2", "d3", "d1"]
    assert taken == 12


def test_case_21_five_of_four_devices_fail_in_16_steps() -> None:
    assert steps(snapshot(many(4)), claim("c", request(count=5))) == (None, 16)


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        ([claim("c", request(count=32))], 32),
        ([claim("c", request(count=33))], "fatal"),
        ([claim("c", request("a", count=20), request("b", count=20))], "fatal"),
        ([claim("c", request("a", count=16), request("b", count=16))], 32),
        ([claim("c", request("a", count=20)), claim("d", request("b", count=20))], 40),
    ],
    ids=["32", "33", "20 + 20", "16 + 16", "two claims of 20"],
)
def test_case_22_a_claim_holds_32_devices(claims, want) -> None:
    found = names(ask(snapshot(many(60)), *claims))

    assert (len(found) if isinstance(found, list) else found) == want


def test_case_22_the_fatal_error_names_the_request_that_is_too_much() -> None:
    outcome = ask(snapshot(many(60)), claim("c", request("a", count=20), request("b", count=20)))

    assert kind(outcome) is ReasonKind.TOO_MANY_DEVICES
    assert message(outcome) == ("claim default/c, request b: exceeds the limit of 32 devices")
    assert not depends_on_node(outcome)


def test_case_23_counts_near_the_largest_integer_are_fatal() -> None:
    huge = 2**63 - 1

    assert names(ask(snapshot(many(1)), claim("c", request(count=huge)))) == "fatal"
    assert (
        names(ask(snapshot(many(1)), claim("c", request("a"), request("b", count=huge)))) == "fatal"
    )


def test_case_24_allocated_devices_are_not_given_again() -> None:
    outcome = ask(snapshot(plain("a", "b"), in_use=[used("a"), used("b")]), claim())

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.DEVICES_IN_USE


def test_a_device_in_use_is_skipped() -> None:
    assert names(ask(snapshot(plain("a", "b"), in_use=[used("a")]), claim())) == ["b"]


def test_case_25_without_selectors_any_device_of_any_driver_will_do() -> None:
    cluster = snapshot(
        resource_slice("s", device("nic"), driver="a.example.com"),
        resource_slice("t", device("gpu"), driver="b.example.com"),
    )

    assert names(ask(cluster, claim("c", request(count=2)))) == ["nic", "gpu"]


def test_all_claims_or_none() -> None:
    assert names(ask(snapshot(plain("a", "b")), claim("x"), claim("y", request(count=2)))) is None


def test_no_claims_and_claims_without_requests_are_allocated_trivially() -> None:
    nothing = ask(snapshot(), without_requests())

    assert names(ask(snapshot())) == []
    assert names(nothing) == []
    assert nothing.allocations[0].devices.results is None
    assert nothing.allocations[0].node_selector is None


def test_a_count_of_zero_succeeds_with_no_device() -> None:
    assert names(ask(snapshot(), claim("c", request(count=0)))) == []


def test_one_request_never_takes_a_device_twice() -> None:
    assert names(ask(snapshot(plain("a")), claim("c", request(count=2)))) is None


def test_results_of_one_request_are_in_search_order() -> None:
    cluster = snapshot(
        resource_slice("s", *(device(n, card=c) for n, c in [("a", 1), ("b", 2), ("c", 2)]))
    )

    assert names(ask(cluster, claim("c", request(count=2), match("gpu.example.com/card")))) == [
        "b",
        "c",
    ]


def test_the_stable_allocator_finds_the_same_first_solution() -> None:
    cluster = snapshot(
        resource_slice("s", device("large", size="large"), device("small", size="small"))
    )
    wanted = claim("c", request("any"), request("large", LARGE))

    assert names(ask(cluster, wanted, features=STABLE)) == ["small", "large"]


# How the search ends early


def test_the_search_gives_up_when_its_budget_is_used_up() -> None:
    part = [consumes("set", memory=1)]
    cluster = snapshot(
        resource_slice("s", *(device(f"d{index}", consumes=part) for index in range(8)), count=2),
        resource_slice("t", counters=[counter_set("set", memory=4)], count=2),
    )
    hopeless = claim("c", request(count=5))
    outcome = ask(cluster, hopeless, budget=50)

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.SEARCH_BUDGET_EXCEEDED
    assert message(outcome).endswith("stopped at its budget of 50 candidate devices")
    assert depends_on_node(outcome)
    assert names(ask(cluster, hopeless, budget=1_000)) is None
    tried = ask(cluster, hopeless, budget=50, explain=True).reason.devices
    assert {d.kind for d in tried} == {ReasonKind.COUNTERS_EXHAUSTED}
    assert (
        ask(cluster, hopeless, budget=50, explain=True, reporter=NullReporter()).reason.devices
        == ()
    )


def test_too_few_devices_are_noticed_without_trying_every_combination() -> None:
    fifteen_of_sixteen = snapshot(many(16), in_use=[used("d07")])
    tainted = snapshot(
        resource_slice(
            "s", *(device(f"d{n}", taints=[taint("sick")] if n == 3 else None) for n in range(16))
        )
    )
    mixed = snapshot(resource_slice("s", *(device(f"d{n}", x=n == 5) for n in range(16))))
    whole_node = claim("c", request(count=16))

    for cluster, wanted in [
        (fifteen_of_sixteen, whole_node),
        (tainted, whole_node),
        (mixed, claim("c", request(count=16), match("gpu.example.com/x"))),
        (snapshot(many(128)), claim("c", request(count=32), match("gpu.example.com/x"))),
    ]:
        assert names(ask(cluster, wanted, budget=2_000)) is None


def test_a_request_that_nothing_can_serve_ends_the_search_at_once() -> None:
    gpus = resource_slice("s", *(device(f"d{n:02}") for n in range(64)))
    wanted = [claim("gpus", request(count=16)), claim("nic", request(device_class="none"))]
    outcome = ask(snapshot(gpus, classes=[device_class(), NOTHING]), *wanted, budget=2_000)

    assert names(outcome) is None
    assert message(outcome) == "claim default/nic, request gpu: not enough devices match"


def test_shortcuts_do_not_hide_an_error_that_trying_everything_would_meet() -> None:
    odd = "device.attributes['gpu.example.com'].x == 1"
    devices = [device("a", x=1), device("b"), device("c", x=1)]
    only_c = "device.attributes['gpu.example.com'].?y.orValue(0) == 1"
    nobody = request("nobody", "false")

    # `b` is judged once the search goes back behind `a`.
    met = snapshot(resource_slice("s", *devices))
    assert names(ask(met, claim("c", request("odd", odd), nobody))) == "fatal"
    # Here the only device that would be an error is always taken by the request before.
    taken = snapshot(resource_slice("s", device("t", y=1), device("a", x=1)))
    never = claim("c", request("y", only_c), request("odd", odd), nobody)
    assert names(ask(taken, never)) is None


def test_the_budget_is_counted_in_candidate_devices() -> None:
    assert names(ask(snapshot(many(3)), claim("c", request(count=3)), budget=3)) == [
        "d00",
        "d01",
        "d02",
    ]
    assert names(ask(snapshot(many(3)), claim("c", request(count=3)), budget=2)) == "fatal"
    everything = claim("c", request(all_devices=True))
    assert names(ask(snapshot(many(3)), everything, budget=2)) == "fatal"


def test_the_search_stops_when_told_to() -> None:
    answers: Iterator[bool] = iter([False, False, True])
    outcome = ask(
        snapshot(many(3)), claim("c", request(count=3)), should_stop=lambda: next(answers)
    )

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.DEADLINE_EXCEEDED
    assert depends_on_node(outcome)


def test_a_long_walk_over_devices_asks_whether_to_stop() -> None:
    asked = []

    def should_stop() -> bool:
        asked.append(True)
        return False

    never = device_class("gpu", "device.driver == 'nobody asked for it before'")
    names(ask(snapshot(many(128), classes=[never]), claim(), should_stop=should_stop))

    assert len(asked) == 3  # at the start, when the selector was compiled, and after 64 devices


def test_many_claims_do_not_run_into_the_recursion_limit() -> None:
    claims = [claim(f"c{index}", request(count=32)) for index in range(40)]
    slices = [
        resource_slice(f"s{index:02}", *(device(f"d{index:02}-{n}") for n in range(128)), count=10)
        for index in range(10)
    ]
    found = names(ask_without_verify(snapshot(*slices), *claims))

    assert found is not None
    assert len(found) == 1280


def ask_without_verify(cluster, *claims):
    from allocator import allocate
    from tests.builders import share_id_of

    return allocate(claims, node(), cluster, features=DEFAULTS, cel=CEL, new_share_id=share_id_of)


# 26-33: firstAvailable

NOTHING = device_class("none", "device.driver == 'nobody'")
CLASSES = [device_class(), NOTHING]


def test_case_26_the_second_alternative_serves_when_no_device_is_of_the_first_class() -> None:
    wanted = claim("c", first("r", sub_request("s0", device_class="none"), sub_request("s1")))

    assert by_request(ask(snapshot(plain("a"), classes=CLASSES), wanted)) == [("r/s1", "a")]


def test_case_27_an_alternative_that_asks_for_too_much_is_passed_over() -> None:
    wanted = claim("c", first("r", sub_request("s0", count=500), sub_request("s1")))

    assert by_request(ask(snapshot(plain("a")), wanted)) == [("r/s1", "a")]


def test_case_27_the_least_of_the_alternatives_counts_for_the_limit() -> None:
    wanted = claim(
        "c",
        request("a", count=20),
        first("r", sub_request("s0", count=24), sub_request("s1", count=20)),
    )

    assert names(ask(snapshot(many(60)), wanted)) == "fatal"


def test_case_28_alternatives_share_the_limit_of_the_claim_in_75_steps() -> None:
    def either(name: str):
        return first(name, sub_request("big", count=32), sub_request("small", count=16))

    wanted = claim("c", either("r0"), either("r1"))
    found, taken = steps(snapshot(many(64)), wanted)

    assert {r for r, _ in by_request(ask(snapshot(many(64)), wanted))} == {"r0/small", "r1/small"}
    assert found is not None
    assert len(found) == 32
    assert taken == 75


def test_a_request_beyond_the_limit_falls_back_within_the_next_claim_too() -> None:
    wanted = [
        claim("one", request(count=32)),
        claim("two", first("r", sub_request("big", count=33), sub_request("small"))),
    ]

    assert names(ask(snapshot(many(60)), *wanted)) == [f"d{i:02}" for i in range(33)]


def test_all_alternatives_of_a_later_claim_beyond_the_limit_is_a_plain_failure() -> None:
    wanted = [
        claim("one", first("x", sub_request("s", count=2))),
        claim(
            "two",
            first("a", sub_request("s", count=31), sub_request("t")),
            first("b", sub_request("s", count=32), sub_request("t", count=32)),
        ),
    ]
    outcome = ask(snapshot(many(40)), *wanted)

    assert names(outcome) == "fatal"


def test_case_29_a_request_falls_back_for_the_sake_of_a_later_one() -> None:
    cluster = snapshot(
        resource_slice("s", device("large", size="large"), device("small", size="small"))
    )
    wanted = claim(
        "c", first("r0", sub_request("s0", LARGE), sub_request("s1", SMALL)), request("r1", LARGE)
    )

    assert by_request(ask(cluster, wanted)) == [("r0/s1", "small"), ("r1", "large")]


def test_an_earlier_request_keeps_its_preferred_alternative() -> None:
    def two_or_one(name: str):
        return first(name, sub_request("two", count=2), sub_request("one"))

    found = by_request(ask(snapshot(many(3)), claim("c", two_or_one("a"), two_or_one("b"))))

    assert [r for r, _ in found] == ["a/two", "a/two", "b/one"]


def test_case_30_all_falls_back_when_a_device_is_in_use_or_none_matches() -> None:
    in_use = claim("c", first("r", sub_request("all", all_devices=True), sub_request("one")))
    none = claim(
        "c",
        first("r", sub_request("all", device_class="none", all_devices=True), sub_request("one")),
    )

    assert by_request(ask(snapshot(plain("a", "b"), in_use=[used("a")]), in_use)) == [
        ("r/one", "b")
    ]
    assert by_request(ask(snapshot(plain("a"), classes=CLASSES), none)) == [("r/one", "a")]


def test_case_31_all_blocked_by_a_constraint_ends_the_attempt_at_once() -> None:
    cluster = snapshot(resource_slice("s", device("a", card=1), device("b", card=2)))
    wanted = claim(
        "c",
        first("r", sub_request("all", all_devices=True), sub_request("one")),
        match("gpu.example.com/card"),
    )
    outcome = ask(cluster, wanted)

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.CONSTRAINT_UNSATISFIED
    assert depends_on_node(outcome)


def test_case_32_a_missing_class_in_the_last_alternative_is_fatal() -> None:
    wanted = claim("c", first("r", sub_request("s0"), sub_request("s1", device_class="gone")))
    outcome = ask(snapshot(plain("a")), wanted)

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.DEVICE_CLASS_NOT_FOUND
    assert "device class gone" in message(outcome)
    assert not depends_on_node(outcome)


def test_the_limit_is_named_when_nothing_else_stood_in_the_way() -> None:
    wanted = claim(
        "c",
        first(
            "a", sub_request("big", count=31), sub_request("small", count=1, device_class="none")
        ),
        request("b", count=2),
    )
    outcome = ask(snapshot(many(40), classes=CLASSES), wanted)

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.TOO_MANY_DEVICES


@pytest.mark.no_cover
def test_a_costly_selector_is_stopped_within_one_device_and_its_answer_is_not_kept() -> None:
    costly = "lists.range(100000).all(x, x >= 0)"
    cluster = snapshot(many(1))
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    wanted = claim("c", request("gpu", costly))
    outcome = ask(cluster, wanted, should_stop=should_stop)
    assert kind(outcome) is ReasonKind.DEADLINE_EXCEEDED
    assert names(ask(cluster, wanted)) == ["d00"]
