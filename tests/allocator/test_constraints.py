"""Cases 50-57 of the behaviour reference: matchAttribute, distinctAttribute, lists, derived attributes."""

import pytest

from allocator import ReasonKind
from allocator.model.claims import DeviceConstraint
from allocator.model.devices import DeviceAttribute
from tests.allocator.support import (
    EXPERIMENTAL,
    STABLE,
    ask,
    by_request,
    depends_on_node,
    features,
    kind,
    message,
    names,
)
from tests.builders import (
    claim,
    device,
    distinct,
    match,
    request,
    resource_slice,
    snapshot,
    sub_request,
    version,
    versions,
)
from tests.builders import first_available as first

ATTRIBUTE = "gpu.example.com/x"
LISTS = features(list_type_attributes=True)
# The incubating allocator does not know lists; the experimental one does, and minds the gate.
NO_LISTS = [features(), EXPERIMENTAL.with_gates(list_type_attributes=False)]
DERIVED = features(derived_attributes=True)
TWO = claim("c", request(count=2), match(ATTRIBUTE))


def cards(*values, key: str = "x"):
    """One device for each value, named a, b, c, ...; None has no attribute."""
    return resource_slice(
        "s",
        *(
            device(name, attributes={} if value is None else {key: value})
            for name, value in zip("abcdefgh", values, strict=False)
        ),
    )


def test_case_50_a_missing_attribute_is_a_refusal_even_for_one_device() -> None:
    outcome = ask(snapshot(cards(None)), claim("c", request(), match(ATTRIBUTE)))

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.CONSTRAINT_UNSATISFIED


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 2),
        (1, "1"),
        ("a", "b"),
        (True, False),
        (1, True),
        (version("1.0.0"), version("1.0.1")),
        (version("1.0.0+x"), version("1.0.0+y")),
        (version("1.0.0"), "1.0.0"),
    ],
)
def test_case_50_different_values_do_not_match(left, right) -> None:
    assert names(ask(snapshot(cards(left, right)), TWO)) is None
    assert names(ask(snapshot(cards(left, right)), TWO, features=LISTS)) is None


@pytest.mark.parametrize("value", [1, "a", True, version("1.0.0")])
def test_equal_values_match(value) -> None:
    assert names(ask(snapshot(cards(value, value)), TWO)) == ["a", "b"]
    assert names(ask(snapshot(cards(value, value)), TWO, features=LISTS)) == ["a", "b"]


def test_case_51_a_constraint_on_one_request_leaves_the_other_free() -> None:
    wanted = claim("c", request("req-0", count=2), request("req-1"), match(ATTRIBUTE, "req-0"))

    assert by_request(ask(snapshot(cards(1, 2, 2)), wanted)) == [
        ("req-0", "b"),
        ("req-0", "c"),
        ("req-1", "a"),
    ]


def test_case_51_a_constraint_on_an_alternative_that_is_not_used_has_no_effect() -> None:
    requests = (
        first("r", sub_request("s0", "false"), sub_request("s1")),
        request("other"),
    )

    assert names(
        ask(snapshot(cards(1, 2)), claim("c", *requests, match(ATTRIBUTE, "r/s0", "other")))
    )
    assert (
        names(ask(snapshot(cards(1, 2)), claim("c", *requests, match(ATTRIBUTE, "r/s1", "other"))))
        is None
    )
    assert (
        names(ask(snapshot(cards(1, 2)), claim("c", *requests, match(ATTRIBUTE, "r", "other"))))
        is None
    )


def test_case_52_the_search_goes_back_to_find_a_match() -> None:
    assert names(ask(snapshot(cards("a", "b", "b")), TWO)) == ["b", "c"]


def test_case_53_distinct_values() -> None:
    three = claim("c", request(count=3), distinct(ATTRIBUTE))

    assert names(ask(snapshot(cards(1, 2, 1, 3)), three)) == ["a", "b", "d"]
    assert names(ask(snapshot(cards(1, 2, 1, 2)), three)) is None
    assert names(ask(snapshot(cards(1, 2, None)), three)) is None


@pytest.mark.parametrize("flags", [features(), LISTS])
@pytest.mark.parametrize("value", [1, "a", True, version("1.0.0")])
def test_equal_values_are_not_distinct(value, flags) -> None:
    two = claim("c", request(count=2), distinct(ATTRIBUTE))

    assert names(ask(snapshot(cards(value, value)), two, features=flags)) is None


def test_different_types_are_distinct() -> None:
    two = claim("c", request(count=2), distinct(ATTRIBUTE))

    assert names(ask(snapshot(cards(1, "1")), two)) == ["a", "b"]
    assert names(ask(snapshot(cards(1, "1")), two, features=LISTS)) == ["a", "b"]


def test_case_54_one_shareable_device_is_not_distinct_from_itself() -> None:
    shared = resource_slice("s", device("a", shareable=True, x=1))
    wanted = claim("c", request("p"), request("q"), distinct(ATTRIBUTE))

    assert names(ask(snapshot(shared), wanted)) is None
    assert names(ask(snapshot(shared), claim("c", request("p"), request("q")))) == ["a", "a"]


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (([1, 2], [2], [1, 2, 3]), ["a", "b", "c"]),
        (([1, 2], [2, 3], [1, 3]), None),
        (([1, 2], 2, [2, 2]), ["a", "b", "c"]),
        ((["x", "y"], ["y"], "y"), ["a", "b", "c"]),
        (([True], True, [True, False]), ["a", "b", "c"]),
        ((versions("1.0.0", "2.0.0"), version("2.0.0"), versions("2.0.0")), ["a", "b", "c"]),
        (([1], ["1"], [1]), None),
        ((DeviceAttribute(ints=()), [1], [1]), None),
    ],
)
def test_case_55_lists_match_in_a_value_common_to_all(values, want) -> None:
    three = claim("c", request(count=3), match(ATTRIBUTE))

    assert names(ask(snapshot(cards(*values)), three, features=LISTS)) == want


@pytest.mark.parametrize("flags", NO_LISTS)
def test_case_55_without_the_gate_a_list_serves_one_device_only(flags) -> None:
    one = claim("c", request(), match(ATTRIBUTE))

    assert names(ask(snapshot(cards([1])), one, features=flags)) == ["a"]
    assert names(ask(snapshot(cards([1], [1])), TWO, features=flags)) is None


@pytest.mark.parametrize("flags", NO_LISTS)
def test_without_the_gate_distinct_takes_a_list_as_the_first_device_only(flags) -> None:
    two = claim("c", request(count=2), distinct(ATTRIBUTE))

    assert names(ask(snapshot(cards([1], 2)), two, features=flags)) == ["a", "b"]
    assert names(ask(snapshot(cards(2, [1])), two, features=flags)) is None


@pytest.mark.parametrize(
    ("values", "want"),
    [(([1, 2], [3], [4, 5]), ["a", "b", "c"]), (([1, 2], [2, 3], [4]), None)],
)
def test_distinct_lists_share_no_value(values, want) -> None:
    three = claim("c", request(count=3), distinct(ATTRIBUTE))

    assert names(ask(snapshot(cards(*values)), three, features=LISTS)) == want


def test_distinct_refuses_a_list_without_values() -> None:
    wanted = claim("c", request(), distinct(ATTRIBUTE))

    assert names(ask(snapshot(cards(DeviceAttribute())), wanted, features=LISTS)) is None


def test_case_56_going_back_restores_the_common_values() -> None:
    values = ([1, 2], [1], [2], [2, 3])
    three = claim("c", request(count=3), match(ATTRIBUTE))

    # a and b leave {1}; nobody else has it. Taking b back must bring {1, 2} back.
    assert names(ask(snapshot(cards(*values)), three, features=LISTS)) == ["a", "c", "d"]


def derived_request(name: str, expression: str):
    return request(name, derived={ATTRIBUTE: expression})


DOUBLE = "device.attributes['gpu.example.com'].y"


def test_case_57_a_derived_attribute_shadows_the_real_one_in_its_own_request() -> None:
    cluster = snapshot(resource_slice("s", device("a", x=1, y=7), device("b", x=7, y=1)))
    wanted = claim("c", derived_request("r", DOUBLE), request("q"), match(ATTRIBUTE))

    assert by_request(ask(cluster, wanted, features=DERIVED)) == [("r", "a"), ("q", "b")]


def test_case_57_a_missing_key_in_a_derived_attribute_is_fatal() -> None:
    cluster = snapshot(resource_slice("s", device("a", x=1)))
    wanted = claim("c", derived_request("r", DOUBLE), match(ATTRIBUTE))
    outcome = ask(cluster, wanted, features=DERIVED)

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.SELECTOR_ERROR
    assert depends_on_node(outcome)


def test_a_derived_attribute_that_does_not_compile_is_fatal_on_every_node() -> None:
    cluster = snapshot(resource_slice("s", device("a", x=1)))
    wanted = claim("c", derived_request("r", "1 +"), match(ATTRIBUTE))
    outcome = ask(cluster, wanted, features=DERIVED)

    assert names(outcome) == "fatal"
    assert not depends_on_node(outcome)
    # The same answer from what is remembered.
    assert names(ask(cluster, wanted, features=DERIVED)) == "fatal"


@pytest.mark.parametrize(
    "flags", [features(), STABLE, EXPERIMENTAL.with_gates(derived_attributes=False)]
)
def test_case_57_a_derived_attribute_with_the_gate_off_is_fatal(flags) -> None:
    wanted = claim("c", derived_request("r", DOUBLE))
    outcome = ask(snapshot(), wanted, features=flags)

    assert names(outcome) == "fatal"
    assert kind(outcome) is ReasonKind.FEATURE_DISABLED


def test_a_derived_attribute_is_evaluated_only_where_a_constraint_asks() -> None:
    cluster = snapshot(resource_slice("s", device("a", x=1)))

    assert names(ask(cluster, claim("c", derived_request("r", DOUBLE)), features=DERIVED)) == ["a"]


def test_an_attribute_is_found_by_its_full_name_or_by_its_id_in_the_drivers_domain() -> None:
    full = snapshot(cards(1, 1, key=ATTRIBUTE))
    other_domain = claim("c", request(count=2), match("other.example.com/x"))
    no_domain = claim("c", request(count=2), match("x"))

    assert names(ask(full, TWO)) == ["a", "b"]
    assert names(ask(full, other_domain)) is None
    assert names(ask(snapshot(cards(1, 1)), other_domain)) is None
    assert names(ask(snapshot(cards(1, 1)), no_domain)) == ["a", "b"]
    assert names(ask(full, no_domain)) is None


def test_constraints_never_span_claims() -> None:
    one = claim("p", request(), match(ATTRIBUTE))
    two = claim("q", request(), match(ATTRIBUTE))

    assert names(ask(snapshot(cards(1, 2)), one, two)) == ["a", "b"]


def test_several_constraints_hold_at_once() -> None:
    cluster = snapshot(
        resource_slice("s", device("a", x=1, y=1), device("b", x=1, y=1), device("c", x=1, y=2))
    )
    wanted = claim("c", request(count=2), match(ATTRIBUTE), distinct("gpu.example.com/y"))

    assert names(ask(cluster, wanted)) == ["a", "c"]


def test_match_wins_when_both_are_set() -> None:
    both = DeviceConstraint(match_attribute=ATTRIBUTE, distinct_attribute=ATTRIBUTE)

    assert names(ask(snapshot(cards(1, 1)), claim("c", request(count=2), both))) == ["a", "b"]


def test_a_constraint_without_attribute_is_fatal() -> None:
    outcome = ask(snapshot(cards(1)), claim("c", request(), DeviceConstraint()))

    assert names(outcome) == "fatal"
    assert "empty constraint" in message(outcome)


def test_the_stable_allocator_does_not_know_distinct() -> None:
    wanted = claim("c", request(), distinct(ATTRIBUTE))
    outcome = ask(snapshot(cards(1)), wanted, features=STABLE)

    assert names(outcome) == "fatal"
    assert "empty constraint" in message(outcome)
