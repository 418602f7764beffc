"""Hostile expressions end soon, and with an error where upstream ends with one."""

import time

import pytest

from allocator.cel import compile_selector
from allocator.errors import CelRuntimeError
from tests.allocator.cel.evaluation import ERROR, REFUSED, ask, device, failure

# CPU time that tells an end from a hang on a slow machine; how fast things are is measured by `make bench`.
SECONDS = 60
TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"


def _nested(macro, innermost, levels):
    expression = innermost
    for level in range(levels):
        expression = f"{TEN}.{macro}(v{level}, {expression})"
    return expression


def _doubling(combine, first, last, levels=40):
    """cel.bind of a value that holds the previous one twice, `levels` times."""
    text = last.format(f"a{levels - 1}")
    for level in reversed(range(levels)):
        previous = f"a{level - 1}" if level else first
        text = f"cel.bind(a{level}, {combine.format(previous)}, {text})"
    return text


HOSTILE = {
    "a million rounds": (_nested("all", "true", 6), ERROR),
    "a million elements": (_nested("map", "1", 6) + ".size() > 0", ERROR),
    "growing replacements": (
        '"' + "x" * 10 + '"' + '.replace("x", "xxxxxxxxxx")' * 9 + ' == ""',
        ERROR,
    ),
    "a range beyond the limit": ("lists.range(50000000).size() > 0", ERROR),
    "a range of the whole budget": ("lists.range(1000000).size() > 0", ERROR),
    "a long but affordable loop": ("lists.range(100000).all(x, x >= 0)", True),
    "doubled strings": (_doubling("{0} + {0}", '"xy"', '{} == ""'), ERROR),
    "doubled lists": (_doubling("{0} + {0}", "[1]", "{}.size() == 1"), ERROR),
    "doubled nesting, compared": (_doubling("[dyn({0}), dyn({0})]", "1", "{0} == {0}"), ERROR),
    "doubled nesting, printed": (
        _doubling("[dyn({0}), dyn({0})]", "1", '"%s".format([{}]) == ""'),
        ERROR,
    ),
    "doubled formats": (_doubling('"%s%s".format([{0}, {0}])', '"x"', '{} == ""'), ERROR),
    "doubled optMap": ("optional.of(1)" + ".optMap(x, x)" * 200 + ".hasValue()", ERROR),
    "catastrophic pattern": ('"' + "a" * 4000 + 'b".matches("^(a+)+$")', False),
    "large repeats": ('"' + "a" * 3000 + '".findAll("(a?){100}a{100}").size() > 0', True),
    "a separator for every letter": (
        '"' + "a" * 4500 + '".split("").join("' + "b" * 4500 + '").size() > 0',
        ERROR,
    ),
    "the square of a list": ("lists.range(5000).distinct().size() == 5000", ERROR),
    "a huge exponent": ('quantity("1e999999999") == quantity("1")', ERROR),
    "a huge negative exponent": ('quantity("1e-999999999") == quantity("1n")', True),
    "a huge precision": ('"%.999999999f".format([1.0]) == ""', ERROR),
    "a deep flatten": ("[[[[1]]]].flatten(9223372036854775807).size() == 1", ERROR),
    "a long duration": ('duration("' + "s" * 3000 + '!") > duration("1s")', REFUSED),
    "a long number": ('int(dyn("' + "1" * 9000 + '")) == 1', REFUSED),
    "a long literal": ("1" * 9000 + " == 1", REFUSED),
    "an address of colons": ('isIP("' + ":" * 9000 + '")', False),
    "3,000 parentheses": ("(" * 3000 + "true" + ")" * 3000, REFUSED),
    "3,000 brackets": ("[" * 3000 + "]" * 3000, REFUSED),
    "9,000 negations": ("!" * 9000 + "true", True),
    "120 nested macros": (
        "".join(f"[1].all(v{i}, " for i in range(120)) + "true" + ")" * 120,
        True,
    ),
    "2,500 conjuncts": (" && ".join(["true"] * 2500), True),
    "many matches": ('"' + "a" * 9000 + '".findAll("a").size() == 9000', True),
    "many matches of several bytes": ('"' + "é" * 4500 + '".findAll("é").size() == 4500', True),
    "a pattern of a million steps": ('"a".matches("' + "(a{999})" * 1100 + '")', REFUSED),
    "a large pattern on a long text": (
        '"' + "a" * 5000 + 'b".matches("' + "(a?){1000}" * 40 + 'c")',
        ERROR,
    ),
    "a large pattern on a short text": ('"aab".matches("' + "(a?){1000}" * 40 + 'c")', False),
    "the largest of many": ("lists.range(400000).max() == 399999", True),
    "the sum of many": ("lists.range(400000).sum() > 0", True),
    "the last of many": ("lists.range(400000).lastIndexOf(0) == 0", True),
    "many in many": ("sets.contains(lists.range(900), lists.range(900))", True),
    "an open string of escapes": ('"' + "\\\\" * 5000, REFUSED),
}


@pytest.mark.no_cover  # counting every line of a million rounds says nothing and takes minutes
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_expression_ends_soon(name):
    expression, answer = HOSTILE[name]
    start = time.process_time()
    assert ask(expression) is answer or ask(expression) == answer
    assert time.process_time() - start < SECONDS


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "name",
    [
        "doubled nesting, compared",
        "doubled nesting, printed",
        "doubled lists",
        "a million rounds",
        "the largest of many",
    ],
)
def test_a_deadline_is_asked_before_costly_steps_too(name):
    program = compile_selector(HOSTILE[name][0])
    asked = 0

    def deadline():
        nonlocal asked
        asked += 1
        return asked > 1

    with pytest.raises(CelRuntimeError, match=r"operation interrupted$"):
        program.evaluate(device(), deadline=deadline)


def test_the_message_of_the_cost_limit_is_upstreams():
    assert failure(_nested("all", "true", 6)) == "operation cancelled: actual cost limit exceeded"


@pytest.mark.no_cover
def test_the_cost_limit_is_not_absorbed_as_an_error_would_be():
    assert ask(f"{_nested('all', 'true', 6)} || true") == ERROR
    assert ask("lists.range(-1).size() == 0 || true") is True


def test_costs_are_counted_on_devices_larger_than_the_api_admits():
    big = device(text={"string": "a" * 40_000})
    expression = 'device.attributes["d.example.com"].text'
    assert ask(f"{expression}.contains({expression})", big) == ERROR
    assert ask(f'{expression}.contains("a")', big) is True
