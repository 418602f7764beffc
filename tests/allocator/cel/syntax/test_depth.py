"""How deep expressions may nest."""

import pytest

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
