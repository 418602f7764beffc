"""A type that the checker guessed is checked where it is used: `x - y` of unknown values is typed by the first overload."""

import pytest

from tests.allocator.cel.evaluation import ERROR, ask

A = 'device.attributes["d.example.com"]'
GUESSED = f"{A}.count - {A}.ints.reverse()[0]"  # typed as a double, and an int


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (f"uint({GUESSED}) == 2u", ERROR),
        (f"string({GUESSED}) == '2'", ERROR),
        (f"int({GUESSED}) == 2", ERROR),
        (f"double(-({GUESSED})) == -2.0", ERROR),
        (f"uint({GUESSED} - 1.0) == 1u", ERROR),
        (f"[{GUESSED}].max() == 2.0", ERROR),
        (f"uint(dyn({GUESSED})) == 2u", True),
        ("uint(1 + 1) == 2u", True),
        (f"uint({A}.count - 2) == 2u", True),
        (f"type({GUESSED}) == int", True),
    ],
)
def test_a_guess_that_is_wrong_finds_no_overload(expression, answer):
    assert ask(expression) == answer
