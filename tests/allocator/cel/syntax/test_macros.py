"""Which calls are macros, and what they take for a variable. Every answer is upstream's."""

import pytest

from tests.allocator.cel.evaluation import ERROR, REFUSED, ask


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("[1].exists_one(x, x == 1)", True),
        ("[1].existsOne(x, x == 1)", REFUSED),  # known with two variables only
        ("[1].existsOne(i, x, x == 1)", True),
        ("has(has({'a': 1}.a))", True),  # of a test its field is what is asked for
        ("has({'a': 1}['a'])", REFUSED),
        ("[1].all(.x, true)", True),  # a variable that nothing can read
        ("[1].all(.x, y, y == 1)", True),
        ("[1].all(.x, x == 1)", REFUSED),
        ("[1].filter(.x, true) == [1]", REFUSED),
        ("cel.bind(.x, 1, true)", REFUSED),
        ("[1].all(x, x, true)", REFUSED),
        ("{}.sortBy(x, x) == []", REFUSED),
        ("google.protobuf.ListValue{values: [1]}.sortBy(x, x) == [1]", REFUSED),
        ("dyn(1).allowed()", ERROR),  # declared, with nothing to call it on
        ("dyn(1).path('/').check('get').allowed()", ERROR),
        ("'x'.allowed()", REFUSED),
    ],
)
def test_macros_and_methods_are_upstreams(expression, answer):
    assert ask(expression) == answer
