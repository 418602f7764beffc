"""Regular expressions as Go has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cel.library.regex import compile_regex
from allocator.errors import CelRuntimeError
from tests.allocator.cel.evaluation import ERROR, REFUSED, ask, failure


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ('"aa😀a😀".findAll("\\\\B").size() == 2', True),
        ('"é😀".findAll("").size() == 3', True),
        ('"a😀b".matches("\\\\B")', False),
        ('"a😀 b".matches("\\\\B")', True),
        ('"aXbX".findAll("X*") == ["", "X", "X"]', True),
    ],
)
def test_matches_lie_between_characters_not_between_bytes(expression, answer):
    assert ask(expression) is answer


@pytest.mark.parametrize(
    ("text", "pattern", "answer"),
    [
        ("a" * 64, "." * 10_000, False),
        ("a" * 64, ".?" * 5_000, True),
        ("a" * 64, "[^b]" * 2_500, False),
        ("a" * 64, "\\\\pL" * 3_000, False),
        ("a" * 64, "\\\\PL" * 3_000, False),
        ("a" * 64, "(\\\\pL{100}){10}", False),
        ("a" * 2_000, "(a|b)" * 1_500, True),
        ("a" * 3_000, "a" * 3_000, True),
        ("aé日" * 21, ".?" * 5_000, True),
        ("a" * 64, "[^é]" * 500 + "\\\\pL" * 2_000, False),
        ("é" * 64, "\\\\pL" * 3_000, ERROR),  # too large for us in a text that is not ASCII
        ("a" * 64, "(a?){1000}" * 100, ERROR),  # repetition that costs do not see
        ("a", "(a{10}){101}", REFUSED),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else str(value),
)
def test_patterns_of_thousands_of_characters_are_upstreams(text, pattern, answer):
    assert ask(f"'{text}'.matches('{pattern}')") == answer


def test_what_is_too_large_is_said_so():
    pattern = "\\\\pL" * 1_000
    assert "too large for other texts than ASCII" in failure(f"'é'.matches('{pattern}')")
    assert "too large for a text of this size" in failure(
        f"'{'a' * 64}'.matches('{'(a?){1000}' * 100}')"
    )


@pytest.mark.parametrize(
    ("opening", "closing", "deepest"),
    [("(", ")", 999), ("(a", ")", 500), ("(a|b", ")", 333), ("(", ")*", 499), ("(a{2}", ")", 499)],
)
def test_parentheses_nest_as_deep_as_in_go(opening, closing, deepest):
    for depth, answer in ((deepest, False), (deepest + 1, REFUSED)):
        pattern = opening * depth + "x" + closing * depth
        found = ask(f"'y'.matches('{pattern}')")
        assert (found == REFUSED) is (answer == REFUSED)


def test_groups_that_capture_nothing_add_no_level():
    for opening, closing in (("(?:", ")"), ("(?:a", ")"), ("(?:a*", ")"), ("(?i:a", ")")):
        assert ask(f"'y'.matches('{opening * 2000}x{closing * 2000}')") is False


PIECES = st.sampled_from(
    [
        "a",
        "b",
        "[ab]",
        "\\pL",
        ".",
        "\\d",
        "(a|b)",
        "a?",
        "b*",
        "\\b",
        "^",
        "$",
        "[^a]",
        "(?:ab)+",
        "(?s:A)",
        "é",
        "é?",
        "[^é]",
        "[é-ü]",
        "[1-é]",
    ]
)


@given(st.lists(PIECES, min_size=1, max_size=6), st.text("abAB1 ", max_size=12))
def test_a_large_pattern_finds_what_the_same_pattern_finds_alone(pieces, text):
    small = "".join(pieces)
    large = small + "(?:\\pL{1000}#)?"
    one, other = compile_regex(f"(?:{small})"), compile_regex(f"(?:{large})")
    assert not other.is_small
    assert one.search(text) is other.search(text)
    assert one.find(text) == other.find(text)
    assert one.find_all(text, -1) == other.find_all(text, -1)


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(CelRuntimeError, match="missing closing"):
        compile_regex("(" * 600)
