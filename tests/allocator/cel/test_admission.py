"""New expressions: what the API server of each release takes, and the costs it estimates."""

import json
from pathlib import Path

import pytest

from allocator.cel import Verdict, check_new_expression, compile_selector
from allocator.cel.cost.estimate import estimate
from allocator.cel.cost.ranges import MOST
from allocator.errors import CelCompileError
from allocator.features import Features
from tests.allocator.cel.evaluation import device

A = 'device.attributes["d.example.com"]'
CORPUS = Path(__file__).parents[2] / "conformance" / "cel" / "cel-corpus.jsonl"
CASES = [json.loads(line) for line in CORPUS.read_text().splitlines()]
DEFAULTS = Features.for_version("1.37")
LISTS = Features.for_version("1.37", {"DRAListTypeAttributes": True})


def verdict(expression, features=DEFAULTS, version="1.37", **options):
    return check_new_expression(expression, features, version, **options).verdict


def test_every_verdict_of_the_corpus_is_upstreams():
    wrong = [case["id"] for case in CASES if verdict(case["expr"]) != case["admission"]]
    assert wrong == []


def test_every_recorded_estimate_is_upstreams():
    wrong = []
    for case in CASES:
        if "maxCost" in case and case["expected"] != "compile_error":
            high = estimate(compile_selector(case["expr"]).ast.root).high
            if high != case["maxCost"]:
                wrong.append((case["id"], case["maxCost"], high))
    assert wrong == []


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (f"{A}.ints.exists(x, x == 1)", Verdict.COMPILE_ERROR),
        (f"dyn({A}.flag)", Verdict.COMPILE_ERROR),
        (f"{A}.flag", Verdict.OK),
        (f"{A}.ints.includes(1)", Verdict.COMPILE_ERROR),
        ("device.allowMultipleAllocations", Verdict.OK),
        (f"type({A}.x) == string", Verdict.TOO_EXPENSIVE),
        ("true || " * 2000 + "true", Verdict.TOO_LONG),
        ("lists.range(1000000).size() > 0", Verdict.TOO_EXPENSIVE),
        ("nothing", Verdict.COMPILE_ERROR),
        ("int('x') == 1", Verdict.COMPILE_ERROR),
    ],
)
def test_the_default_gates_of_the_newest_release(expression, answer):
    assert verdict(expression) == answer


def test_gates_open_what_they_are_for():
    assert verdict(f"{A}.ints.exists(x, x == 1)", LISTS) == Verdict.OK
    assert verdict(f"{A}.ints.includes(1)", LISTS) == Verdict.OK
    assert verdict(f"{A}.versions.exists(v, v == semver('1.0.0'))", LISTS) == Verdict.TOO_EXPENSIVE
    without = Features.for_version("1.37", {"DRAConsumableCapacity": False})
    assert verdict("device.allowMultipleAllocations", without) == Verdict.COMPILE_ERROR


def test_older_releases_know_fewer_functions():
    assert (
        verdict("[1, 2].sort() == [1, 2]", Features.for_version("1.34"), "1.34")
        == Verdict.COMPILE_ERROR
    )
    assert verdict("[1, 2].sort() == [1, 2]", Features.for_version("1.35"), "1.35") == Verdict.OK
    assert (
        verdict('semver("v1", true) == semver("1.0.0")', Features.for_version("1.34"), "1.34")
        == Verdict.OK
    )


def test_derived_attributes_are_lists_only_with_the_gate():
    assert verdict("[1]", derived=True) == Verdict.COMPILE_ERROR
    assert verdict("[1]", LISTS, derived=True) == Verdict.OK
    assert verdict("1", derived=True) == Verdict.OK


def test_refusals_say_why():
    assert check_new_expression("1", DEFAULTS, "1.37").message == (
        "must evaluate to bool or the unknown type, not int"
    )
    dear = check_new_expression("lists.range(1000000).size() > 0", DEFAULTS, "1.37")
    assert (dear.message, dear.cost) == ("too complex, exceeds cost limit", 1_000_013)


def test_no_evaluation_costs_more_than_its_estimate():
    for expression in (
        f'{A}.model == "A100" && {A}.count > 1',
        f"device.attributes.all(d, d.size() > 1) && {A}.model.matches('^A')",
        'device.capacity["d.example.com"].memory.isGreaterThan(quantity("1Gi"))',
        "[1, 2, 3].map(x, x * 2).exists(x, x == 4) && 'a,b'.split(',').size() == 2",
    ):
        program = compile_selector(expression)
        assert program.cost(device()) <= estimate(program.ast.root).high < MOST


def test_a_type_that_was_guessed_wrong_is_found_at_run_time():
    # x / x is typed as a double, because that overload comes first, and there is none of a list of ints for it.
    expression = f"{A}.ints.reverse().sortBy(x, x / x).isSorted()"
    with pytest.raises(Exception, match=r"no such overload: isSorted\(list\)"):
        compile_selector(expression).evaluate(device())
    with pytest.raises(CelCompileError):
        compile_selector("[[1]].isSorted()")
