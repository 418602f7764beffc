"""Why a device does not match."""

import pytest

from allocator.cel import compile_selector, explain
from tests.allocator.cel.evaluation import device

A = 'device.attributes["d.example.com"]'
C = 'device.capacity["d.example.com"]'


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
