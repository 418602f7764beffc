"""Programs: derived attributes, deadlines, costs, threads."""

import pytest

from allocator.cel import compile_derived, compile_selector
from allocator.errors import CelCompileError, CelRuntimeError
from allocator.model.devices import DeviceAttribute
from tests.allocator.cel.evaluation import device

A = 'device.attributes["d.example.com"]'
C = 'device.capacity["d.example.com"]'


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (f"{A}.count", DeviceAttribute(int_=4)),
        (f"{A}.count > 3", DeviceAttribute(bool_=True)),
        (f"{A}.model.lowerAscii()", DeviceAttribute(string="a100")),
        (f"{A}.v", DeviceAttribute(version="1.10.0")),
        (f"{A}.ints", DeviceAttribute(ints=(3, 1, 2))),
        (f"{A}.versions", DeviceAttribute(versions=("1.0.0", "2.0.0"))),
        ("[1, 2].map(x, x * 2)", DeviceAttribute(ints=(2, 4))),
        ("[true]", DeviceAttribute(bools=(True,))),
        ("dyn([])", DeviceAttribute(strings=())),
    ],
)
def test_a_derived_attribute_takes_the_type_of_its_result(expression, value):
    assert compile_derived(expression).evaluate_value(device()) == value


@pytest.mark.parametrize("expression", ["1.5", 'quantity("1")', "{}", "[[1]]", "null", "b'x'"])
def test_other_results_are_refused_when_compiled(expression):
    with pytest.raises(CelCompileError, match="must evaluate to a primitive scalar"):
        compile_derived(expression)


@pytest.mark.parametrize(
    "expression", ["dyn(1.5)", "dyn([dyn(1), dyn('a')])", "dyn([1.5])", "dyn(null)", f"{A}.none"]
)
def test_other_results_fail_on_the_device(expression):
    with pytest.raises(CelRuntimeError):
        compile_derived(expression).evaluate_value(device())


def test_a_deadline_ends_a_loop():
    program = compile_selector("lists.range(100000).all(x, x >= 0)")
    with pytest.raises(CelRuntimeError, match="operation interrupted"):
        program.evaluate(device(), deadline=lambda: True)
    assert program.evaluate(device(), deadline=lambda: False) is True


def test_a_deadline_is_asked_once_after_compiling():
    program = compile_selector("true")
    with pytest.raises(CelRuntimeError, match="operation interrupted"):
        program.evaluate(device(), deadline=lambda: True)
    assert program.evaluate(device(), deadline=lambda: True) is True


@pytest.mark.parametrize(
    ("expression", "is_asked"),
    [
        (f'{A}.model == "A100"', False),
        (f'{A}.model.matches("^A[0-9]+")', False),
        (f'{A}.model.matches("(a?){{1000}}")', True),
        (f"{A}.model.matches({A}.model)", True),
        (f'"{"a" * 9000}".findAll("a").size() > 1', True),
        ("lists.range(1000).size() == 1000", True),
    ],
)
def test_a_deadline_is_asked_before_evaluations_that_may_take_long(expression, is_asked):
    program = compile_selector(expression)
    program.evaluate(device(), deadline=lambda: False)
    asked = []

    def deadline():
        asked.append(True)
        return False

    program.evaluate(device(), deadline=deadline)
    assert bool(asked) == is_asked


def test_the_cost_of_an_evaluation_is_upstreams():
    assert compile_selector(f'{A}.model == "A100"').cost(device()) == 5
    assert compile_selector(f'{C}.memory.compareTo(quantity("80Gi")) >= 0').cost(device()) == 7
    assert compile_selector(f"has({A}.nope) && {A}.nope == 1").cost(device()) == 3


def test_programs_may_run_in_several_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    program = compile_selector(
        f"[1, 2, 3].exists(x, x == {A}.count - 1) && cel.bind(y, {A}.model, y == 'A100')"
    )
    values = device()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: program.evaluate(values), range(400)))
