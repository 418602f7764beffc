"""What the allocator and the command line use: programs, their reads, the cache, explanations, derived attributes."""

import json
from pathlib import Path

import msgspec
import pytest

from allocator.cel import Compiler, Read, compile_derived, compile_selector, explain, prepare_device
from allocator.errors import CelCompileError, CelRuntimeError
from allocator.model.devices import Device, DeviceAttribute
from allocator.model.hooks import dec_hook
from tests.allocator.cel.evaluation import device

A = 'device.attributes["d.example.com"]'
C = 'device.capacity["d.example.com"]'


CORPUS = Path(__file__).parents[2] / "conformance" / "cel" / "cel-corpus.jsonl"


def attribute(name, domain="d.example.com"):
    return Read("attribute", domain, name)


READS = [
    ("true", set()),
    ('device.driver == "x"', {Read("driver")}),
    ("device.allowMultipleAllocations", {Read("allowMultipleAllocations")}),
    (f"{A}.model == 'x' && {A}['count'] == 1", {attribute("model"), attribute("count")}),
    ("device.attributes.d.m == 1", {attribute("m", "d")}),
    (f"{A}.?m.hasValue() || {A}[?'n'].hasValue()", {attribute("m"), attribute("n")}),
    (f"has({A}.m)", {attribute("m")}),
    (f"'m' in {A}", {attribute("m")}),
    (f'{C}.memory.isLessThan(quantity("1"))', {Read("capacity", "d.example.com", "memory")}),
    (f"cel.bind(g, {A}, g.model == 'x' && has(g.n))", {attribute("model"), attribute("n")}),
    (f"[1].exists(x, x == {A}.count)", {attribute("count")}),
    (f"{A}.model.startsWith('x') ? {A}.flag : false", {attribute("model"), attribute("flag")}),
    ("device.attributes.size() == 1", None),
    ('"d" in device.attributes', None),
    (f"{A}.size() == 1", None),
    (f"{A}[device.driver] == 1", None),
    (f"cel.bind(g, {A}, g.size() == 1)", None),
    ("device.attributes.exists(d, d == 'x')", None),
    ("dyn(device).driver == 'x'", None),
]


@pytest.mark.parametrize(("expression", "reads"), READS)
def test_a_program_knows_what_it_reads(expression, reads):
    found = compile_selector(expression).reads
    assert found == (None if reads is None else frozenset(reads))


def _reduced(body, reads):
    """The device without everything that is not among the reads, and with the flag turned round."""
    driver = body["driver"]

    def kept(kind, entries):
        return {
            name: value
            for name, value in (entries or {}).items()
            if Read(kind, *(name.split("/", 1) if "/" in name else (driver, name))) in reads
        }

    flag = body.get("allowMultipleAllocations", False)
    return {
        "attributes": kept("attribute", body.get("attributes")),
        "capacity": kept("capacity", body.get("capacity")),
        "allowMultipleAllocations": flag if Read("allowMultipleAllocations") in reads else not flag,
    }


def _verdict(program, driver, body):
    values = prepare_device(
        driver, msgspec.convert({"name": "d", **body}, Device, dec_hook=dec_hook)
    )
    try:
        return program.evaluate(values)
    except CelRuntimeError:
        return None


def test_what_a_program_does_not_read_does_not_matter():
    wrong, compared = [], 0
    for line in CORPUS.read_text().splitlines():
        case = json.loads(line)
        body = {name: value for name, value in case["device"].items() if name != "driver"}
        driver = case["device"]["driver"]
        if case["expected"] not in ("true", "false") or case["kind"] == "cost":
            continue
        program = compile_selector(case["expr"])
        if program.reads is None:
            continue
        compared += 1
        smaller = _reduced(case["device"], program.reads)
        if _verdict(program, driver, body) != _verdict(program, driver, smaller):
            wrong.append(case["id"])
    assert wrong == []
    assert compared > 300


def test_the_cache_returns_the_same_program_and_forgets_the_oldest():
    compiler = Compiler(size=2)
    first = compiler.selector("true")
    assert compiler.selector("true") is first
    compiler.selector("false")
    compiler.selector("true")
    compiler.selector("1 == 1")  # drops "false", the one not used for longest
    assert compiler.selector("true") is first


def test_the_cache_remembers_errors():
    compiler = Compiler()
    with pytest.raises(CelCompileError) as once:
        compiler.selector("nothing")
    with pytest.raises(CelCompileError) as again:
        compiler.selector("nothing")
    assert once.value.message == again.value.message
    assert compiler.derived("1").evaluate_value(device()) == DeviceAttribute(int_=1)


def test_selectors_and_derived_attributes_are_kept_apart():
    compiler = Compiler()
    assert compiler.derived("1") is not None
    with pytest.raises(CelCompileError):
        compiler.selector("1")


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


def test_an_explanation_names_the_clauses_that_were_false_and_what_was_found():
    program = compile_selector(
        f'device.driver == "d.example.com" && {A}.model == "H100" && ({A}.count >= 8 && {A}.nope == 1)'
        f' && !{A}.flag && {C}.memory.compareTo(quantity("1Ti")) >= 0 && {A}.v.isLessThan(semver("1.0.0"))'
    )
    shown = [(clause.text, clause.found, clause.error) for clause in explain(program, device())]
    assert shown == [
        (f'{A}.model == "H100"', '"A100"', ""),
        (f"{A}.count >= 8", "4", ""),
        (f"{A}.nope == 1", "", "no such key: nope"),
        (f"!{A}.flag", "true", ""),
        (f'{C}.memory.compareTo(quantity("1Ti")) >= 0', "80Gi", ""),
        (f'{A}.v.isLessThan(semver("1.0.0"))', "1.10.0", ""),
    ]


@pytest.mark.parametrize(
    ("clause", "found"),
    [
        (f'{A}.count > 8 || {A}.model == "H100"', 'count = 4, model = "A100"'),
        (f"{A}.count in [1, 2] ? true : {A}.?nope.orValue(false)", "count = 4, no nope"),
        (f'[{A}.model].exists(m, m == "H100")', '"A100"'),
        (f"has({A}.nope)", "no nope"),
        (f'has({C}.nope) || device.driver == "x"', 'no nope, driver = "d.example.com"'),
        ("device.allowMultipleAllocations", "false"),
        (f"{A}.flag && false", ""),
        ("device.attributes.exists(d, d == 'x')", ""),
    ],
)
def test_an_explanation_of_any_clause_shows_what_it_read(clause, found):
    shown = [each.found for each in explain(compile_selector(clause), device())]
    assert shown == [found]


def test_a_broken_device_explains_itself():
    clauses = explain(compile_selector("true"), device(bad={"version": "9.0"}))
    assert [clause.error for clause in clauses] == [
        "attribute bad: parse semantic version: No Major.Minor.Patch elements found"
    ]


def test_programs_may_run_in_several_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    program = compile_selector(
        f"[1, 2, 3].exists(x, x == {A}.count - 1) && cel.bind(y, {A}.model, y == 'A100')"
    )
    values = device()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: program.evaluate(values), range(400)))
