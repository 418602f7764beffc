"""How deep expressions may nest."""

import pytest

from allocator.cel.syntax.tree import ListNode, Literal
from allocator.cel.syntax.walk import walk
from tests.allocator.cel.evaluation import REFUSED, ask, refusal


@pytest.mark.parametrize(
    ("make", "deepest"),
    [
        (lambda n: "(" * n + "true" + ")" * n, 249),
        (lambda n: "[" * n + "1" + "]" * n + ".size() == 1", 249),
        (lambda n: " + ".join(["1"] * (n + 1)) + " > 0", 249),
        (lambda n: "1" + " + (1" * n + ")" * n + " > 0", 124),
        (lambda n: "has(device.attributes" + ".a" * n + ")", 249),
        (lambda n: "true ? true : " * n + "true", 249),
        (lambda n: "true ? (" * n + "true" + ") : true" * n, 249),
        (lambda n: "(" * n + "true == true)" + " == true)" * (n - 1), 248),
        (lambda n: "1 + 2" + " * (1 + 2" * n + ")" * n + " > 0", 82),
    ],
    ids=[
        "parentheses",
        "lists",
        "sums",
        "right sums",
        "selections",
        "else branches",
        "then branches",
        "comparisons",
        "products",
    ],
)
def test_nesting_is_limited_where_upstream_limits_it(make, deepest):
    assert ask(make(deepest)) != REFUSED
    assert ask(make(deepest + 1)) == REFUSED


def test_too_deep_is_said_so():
    assert "recursion" in refusal("(" * 300 + "true" + ")" * 300)


@pytest.mark.parametrize(
    ("opening", "inner", "closing", "deepest"),
    [
        ("dyn(-", "1", ")", 247),
        ("[1].map(x, ", "1", ")", 247),
        ("cel.bind(x, ", "true", ", x)", 247),
        ("{'a': dyn(-", "1", ")}.a", 123),
        ("google.protobuf.Int32Value{value: -", "1", "}", 247),
        ("google.protobuf.Struct{fields: ", "{}", "}", 247),
    ],
)
def test_nesting_of_several_kinds_costs_no_frames(opening, inner, closing, deepest):
    for levels, answer in ((deepest, True), (deepest + 1, REFUSED)):
        assert ask(f"type(dyn({opening * levels}{inner}{closing * levels})) != null_type") == answer


def test_a_walk_asks_in_order_and_sends_what_it_was_asked_for():
    numbers = [Literal(0, number) for number in range(3)]
    root = ListNode(0, tuple(numbers))
    asked = []

    def visit(node):
        if isinstance(node, Literal):
            asked.append(node.value)
            return [node.value]
        return together(node)

    def together(node):
        found = []
        for element in node.elements:
            found += yield element
        return found

    assert walk(root, visit) == asked == [0, 1, 2]
    assert walk(numbers[2], visit) == [2]
