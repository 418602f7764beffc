"""Regular expressions as Go has them."""

import pytest

from tests.allocator.cel.evaluation import ask


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
