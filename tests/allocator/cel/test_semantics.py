"""Rules of the language that surprise: missing things, equality, types, errors."""

import pytest

from tests.allocator.cel.evaluation import ERROR, REFUSED, ask, failure, refusal

A = 'device.attributes["d.example.com"]'
C = 'device.capacity["d.example.com"]'

MISSING = [
    ('device.attributes["x"].size() == 0', True),
    ('device.attributes["x"] == {}', True),
    ('device.attributes["x"].m == 1', ERROR),
    ('device.attributes["x"]["m"] == 1', ERROR),
    ('"x" in device.attributes', False),
    ('"d.example.com" in device.attributes', True),
    ("has(device.attributes.x)", True),
    ("device.attributes.?x.hasValue()", True),
    ('device.attributes[?"x"].hasValue()', True),
    ('device.attributes["x"].?m.hasValue()', False),
    ('has(device.attributes["x"].m)', False),
    ('"m" in device.attributes["x"]', False),
    ('device.attributes["x"].?m.orValue(0) == 0', True),
    ("device.attributes.size() == 2", True),
    ('device.attributes.exists(d, d == "x")', False),
    ('device.attributes.all(d, d.endsWith("example.com"))', True),
    ('device.capacity["x"].m == quantity("1")', ERROR),
    ("device.capacity.size() == 1", True),
    ('has(device.capacity["x"].m)', False),
]

TYPING = [
    ("1", REFUSED),
    ('"x"', REFUSED),
    ("null", REFUSED),
    ("[true]", REFUSED),
    (f"{A}.count", ERROR),
    (f"{A}.flag", True),
    (f'{A}.count == "4"', False),
    (f"{A}.flag == 1", False),
    (f"{A}.count == 4.0", True),
    (f"{A}.count == 4u", True),
    (f'{A}.v == "1.10.0"', ERROR),
    (f'{A}.v != "1.10.0"', True),
    (f'"1.10.0" == {A}.v', False),
    (f'{A}.v in ["1.10.0"]', ERROR),
    (f'{A}.v in [semver("1.10.0")]', True),
    (f'{A}.versions.includes("1.0.0")', False),
    (f'{A}.versions.includes(semver("1.0.0"))', True),
    (f"{A}.model < 3", ERROR),
    (f"{A}.v > {A}.pre", ERROR),
    (f'{C}.memory > quantity("1Gi")', REFUSED),
    ('semver("1.0.0") < semver("2.0.0")', REFUSED),
    ("1 == 1.0", REFUSED),
    ("1 < 1.5", True),
    ("dyn(1) == 1.0", True),
    ('[1, "a"] == []', REFUSED),
    ('{"a": 1, "a": 2}.size() == 1', True),
    ("[1, 2,] == [1, 2]", True),
    (f'{C}.memory.add(quantity("1Gi")) == quantity("81Gi")', True),
    (f'quantity("81Gi") == {C}.memory.add(quantity("1Gi"))', ERROR),
    ('quantity("1").sign() == 1', REFUSED),
    ('sign(quantity("1")) == 1', True),
    ('quantity("1000m").isInteger()', False),
    ('quantity("1.5Gi").isInteger()', False),
    ('quantity("1000m").asInteger() == 1', ERROR),
    ('quantity("1k").asInteger() == 1000', True),
    (f"has({A})", REFUSED),
    ('has({"k": 1}["k"])', REFUSED),
    ('device["driver"] == "x"', REFUSED),
    ("device.pool == 1", REFUSED),
    ("nothing", REFUSED),
    ("device.attributes[1].x == 1", REFUSED),
    ("device.attributes[dyn(1)].size() == 0", True),
    (f'{A}.namespace == "x"', ERROR),
    (f"{A}.in == 1", REFUSED),
    ("device.attributes.`d.example.com`.flag", True),
]

ERRORS = [
    (f"{A}.nope || true", True),
    (f"true || {A}.nope", True),
    (f"{A}.nope && false", False),
    (f"false && {A}.nope", False),
    (f"{A}.nope || false", ERROR),
    (f"{A}.nope && true", ERROR),
    (f"{A}.count || true", True),
    (f"{A}.count && false", False),
    (f"{A}.count ? true : false", ERROR),
    (f"[1, 2].exists(x, x == 2 || {A}.nope)", True),
    (f"[2, 1].exists(x, x == 1 || {A}.nope)", True),
    (f"[1, 2].all(x, x == 1 && {A}.nope)", False),
    (f"[1, 2].exists_one(x, x == 1 || {A}.nope)", ERROR),
    (f"[1].map(x, {A}.nope).size() == 0", ERROR),
    (f"[1].filter(x, {A}.nope).size() == 0", ERROR),
    (f"cel.bind(x, {A}.nope, true)", True),
    (f"cel.bind(x, {A}.nope, x == 1 || true)", True),
    (f"{A}.count.exists(x, true)", ERROR),
    # Upstream's cost rules of these need a list, and end the evaluation over anything else.
    ("[1 / 0].sort() == [1] || true", ERROR),
    ("[1 / 0].distinct() == [1] || true", ERROR),
    ("[1].sortBy(x, x / 0) == [1] || true", ERROR),
    ("[[1]].flatten(1 / 0) == [1] || true", ERROR),
    ("[1 / 0].reverse() == [1] || true", True),
    (f'{A}.v in ["1.10.0"] || true', ERROR),
    ("9223372036854775807 + 1 > 0", ERROR),
    ("1 / 0 == 0", ERROR),
    ("1 % 0 == 0", ERROR),
    ("-5 / 2 == -2", True),
    ("-5 % 3 == -2", True),
    ("[1][1] == 1", ERROR),
    ("[1][?1].hasValue()", False),
    ('"é".size() == 1', True),
    ('"abc".substring(4) == ""', ERROR),
    ('"abc".charAt(4) == ""', ERROR),
    ('"abc".charAt(3) == ""', True),
]

COMPILE_TIME = [
    '"x".matches("[")',
    '"x".matches("a(?=b)")',
    '"x".find("[") == ""',
    'duration("1 day") > duration("1s")',
    'timestamp("2024-02-30T00:00:00Z") > timestamp(0)',
    'int("4x") == 4',
    'bool("yes")',
    "uint(-1) == 0u",
    '"%d".format(["x"]) == ""',
    '"%s".format([1, 2]) == ""',
    '"%s %s".format([1]) == ""',
    '"%.999999999999999999999f".format([1.0]) == ""',
    "x.all(device, 1)",
    "[1].all(1, true)",
    "[1].all(a.b, true)",
    "[1].all(i, i, true)",
    "cel.bind(a.b, 1, true)",
    "nothing.Like{this: 1} == 1",
    "dyn({})[null] == 1",
]


@pytest.mark.parametrize(("expression", "answer"), MISSING)
def test_missing_domains_and_names_behave_as_upstream(expression, answer):
    assert ask(expression) is answer or ask(expression) == answer


@pytest.mark.parametrize(("expression", "answer"), TYPING)
def test_types_and_comparisons_behave_as_upstream(expression, answer):
    assert ask(expression) is answer or ask(expression) == answer


@pytest.mark.parametrize(("expression", "answer"), ERRORS)
def test_errors_are_absorbed_only_where_upstream_absorbs_them(expression, answer):
    assert ask(expression) is answer or ask(expression) == answer


@pytest.mark.parametrize("expression", COMPILE_TIME)
def test_what_can_be_known_early_does_not_compile(expression):
    assert ask(expression) == REFUSED


def test_known_messages_are_upstreams():
    assert failure(f"{A}.m == 1") == "no such key: m"
    assert failure(f"{A}.ints[7] == 1") == "index out of bounds: 7"
    assert failure(f"{A}.count.exists(x, true)") == "got 'types.Int', expected iterable type"
    assert refusal("1") == "must evaluate to bool or the unknown type, not int"
    assert refusal("nothing == 1") == (
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nothing' (in container '')\n"
        " | nothing == 1\n"
        " | ^"
    )
    assert "found no matching overload for '_==_' applied to '(int, string)'" in refusal('1 == "a"')
