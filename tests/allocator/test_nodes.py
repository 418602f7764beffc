"""Node selectors."""

import pytest

from allocator.model.nodes import (
    NodeSelector,
    NodeSelectorError,
    NodeSelectorTerm,
    matches_node_selector,
)
from tests.builders import node_selector, requirement

LABELS = {"zone": "a", "cores": "16", "word": "many"}


def by(*requirements, fields=()) -> NodeSelector:
    return node_selector(
        NodeSelectorTerm(
            match_expressions=tuple(requirements) or None, match_fields=tuple(fields) or None
        )
    )


def matches(selector: NodeSelector) -> bool:
    return matches_node_selector(selector, LABELS, "node-1")


@pytest.mark.parametrize(
    ("key", "operator", "values", "want"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("gone", "In", ("a",), False),
        ("zone", "NotIn", ("b",), True),
        ("zone", "NotIn", ("a",), False),
        ("gone", "NotIn", ("a",), True),
        ("zone", "Exists", (), True),
        ("gone", "Exists", (), False),
        ("zone", "DoesNotExist", (), False),
        ("gone", "DoesNotExist", (), True),
        ("cores", "Gt", ("15",), True),
        ("cores", "Gt", ("16",), False),
        ("cores", "Lt", ("17",), True),
        ("cores", "Lt", ("16",), False),
        ("word", "Gt", ("1",), False),
        ("gone", "Lt", ("1",), False),
        ("example.com/zone", "DoesNotExist", (), True),
    ],
)
def test_a_requirement_on_a_label(key: str, operator: str, values, want: bool) -> None:
    assert matches(by(requirement(key, operator, *values))) == want


@pytest.mark.parametrize(
    ("key", "operator", "values"),
    [
        ("zone", "Is", ("a",)),
        ("zone", "In", ()),
        ("zone", "NotIn", ()),
        ("zone", "Exists", ("a",)),
        ("zone", "DoesNotExist", ("a",)),
        ("zone", "Gt", ("1", "2")),
        ("zone", "Lt", ("x",)),
        ("zone", "Gt", ("9223372036854775808",)),
        ("not a key", "Exists", ()),
        ("Not.A.Prefix/x", "Exists", ()),
        ("zone", "In", ("not a value",)),
    ],
)
def test_a_requirement_that_cannot_be_parsed_is_an_error_also_beside_one_that_matches(
    key: str, operator: str, values
) -> None:
    good = NodeSelectorTerm(match_expressions=(requirement("zone", "In", "a"),))
    bad = NodeSelectorTerm(match_expressions=(requirement(key, operator, *values),))
    with pytest.raises(NodeSelectorError):
        matches(node_selector(good, bad))


# What the Go packages say (labels.NewRequirement and Matches, apimachinery 0.37.2):
# text, whether it is a bound, what it says as a label of "> 4" and of "< 4".
NUMBERS = [
    ("5", True, True, False),
    ("+5", False, True, False),  # a number, but no label value
    ("-5", False, False, True),
    ("007", True, True, False),
    ("-0", False, False, True),
    ("0", True, False, True),
    ("000", True, False, True),
    ("0" * 63, True, False, True),
    ("0" * 28 + "5", True, True, False),
    ("09223372036854775807", True, True, False),
    ("9223372036854775807", True, True, False),
    ("9223372036854775808", False, False, False),
    ("0" * 10 + "9" * 25, False, False, False),
    ("-9223372036854775808", False, False, True),
    ("-9223372036854775809", False, False, False),
    ("1_0", False, False, False),
    (" 5", False, False, False),
    ("5 ", False, False, False),
    ("5\n", False, False, False),
    ("", False, False, False),
    ("+", False, False, False),
    ("-", False, False, False),
    ("--5", False, False, False),
    ("+-5", False, False, False),
    ("0x5", False, False, False),
    ("0b1", False, False, False),
    ("5.0", False, False, False),
    ("5e0", False, False, False),
    ("1,000", False, False, False),
    ("\u0665", False, False, False),  # a five, in Arabic
    ("\u00b2", False, False, False),  # a superscript two
]


@pytest.mark.parametrize(("text", "is_bound", "above_4", "below_4"), NUMBERS)
def test_numbers_are_read_as_go_reads_them(
    text: str, is_bound: bool, above_4: bool, below_4: bool
) -> None:
    labels = {"n": text}
    above, below = by(requirement("n", "Gt", "4")), by(requirement("n", "Lt", "4"))
    assert matches_node_selector(above, labels, "n1") is above_4
    assert matches_node_selector(below, labels, "n1") is below_4
    bounded = by(requirement("n", "Gt", text))
    if is_bound:
        assert matches_node_selector(bounded, {"n": str(2**63 - 1)}, "n1") is (
            int(text) < 2**63 - 1
        )
        assert not matches_node_selector(bounded, {"n": str(int(text))}, "n1")
        assert not matches_node_selector(bounded, {"n": text}, "n1")
    else:
        with pytest.raises(NodeSelectorError):
            matches_node_selector(bounded, {"n": "5"}, "n1")


@pytest.mark.parametrize(
    ("operator", "value", "want"),
    [
        ("In", "node-1", True),
        ("In", "node-2", False),
        ("NotIn", "node-2", True),
        ("NotIn", "node-1", False),
    ],
)
def test_a_field_is_the_name_of_the_node(operator: str, value: str, want: bool) -> None:
    assert matches(by(fields=[requirement("metadata.name", operator, value)])) == want


@pytest.mark.parametrize(
    ("operator", "values"), [("Exists", ()), ("In", ("node-1", "node-2")), ("In", ())]
)
def test_a_field_that_cannot_be_parsed_is_an_error(operator: str, values) -> None:
    with pytest.raises(NodeSelectorError):
        matches(by(fields=[requirement("metadata.name", operator, *values)]))


def test_a_field_that_nodes_do_not_have_is_empty_text() -> None:
    assert matches(by(fields=[requirement("spec.x", "NotIn", "y")]))
    assert not matches(by(fields=[requirement("spec.x", "In", "y")]))


def test_terms_are_ored_requirements_are_anded() -> None:
    yes, no = requirement("zone", "In", "a"), requirement("zone", "In", "b")

    assert not matches(by(yes, no))
    assert matches(node_selector(*(NodeSelectorTerm(match_expressions=(r,)) for r in (no, yes))))


def test_nothing_matches_nothing() -> None:
    assert not matches(NodeSelector())
    assert not matches(by())
