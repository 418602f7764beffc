"""Literals of any length."""

import pytest

from tests.allocator.cel.evaluation import REFUSED, ask

ZEROS = "0" * 5000


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (f"{ZEROS}1 == 1", True),
        (f"{ZEROS}1u == 1u", True),
        (f"0x{ZEROS}1F == 31", True),
        (f"-{ZEROS}9223372036854775808 < 0", True),
        (f"{ZEROS}9223372036854775808 > 0", REFUSED),
        (f"1{ZEROS} > 0", REFUSED),
        (f"1.{ZEROS}1 == 1.0", True),
        (f"'{'a' * 5000}'.size() == 5000", True),
    ],
)
def test_zeros_in_front_do_not_count(expression, answer):
    assert ask(expression) == answer
