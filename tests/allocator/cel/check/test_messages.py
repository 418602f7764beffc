"""Message literals and names of the environment, as the type checker sees them. Every answer is upstream's."""

import pytest

from tests.allocator.cel.evaluation import ERROR, REFUSED, ask, refusal

G = "google.protobuf."
WRAPPERS = [
    ("BoolValue", "true", "bool"),
    ("BytesValue", "b'x'", "bytes"),
    ("DoubleValue", "1.5", "double"),
    ("FloatValue", "1.5", "double"),
    ("Int32Value", "7", "int"),
    ("Int64Value", "7", "int"),
    ("StringValue", "'x'", "string"),
    ("UInt32Value", "7u", "uint"),
    ("UInt64Value", "7u", "uint"),
]


@pytest.mark.parametrize(("message", "value", "kind"), WRAPPERS)
def test_a_wrapper_is_its_value_and_null_may_stand_beside_it(message, value, kind):
    literal = f"{G}{message}{{value: {value}}}"
    assert ask(f"{literal} == {value}") is True
    assert ask(f"type({literal}) == {kind}") is True
    assert ask(f"{literal} == null") is False
    assert (
        ask(f"[{literal}, null].size() == 2") == REFUSED
    )  # a list of two types is refused all the same
    assert ask(f"[{literal}, {value}].size() == 2") is True
    assert ask(f"{literal}.value == {value}") == REFUSED
    assert ask(f"{G}{message} == {kind}") == REFUSED  # its name is no value


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (f"{G}Duration{{seconds: 90}} == duration('1m30s')", True),
        (f"{G}Timestamp{{seconds: 1, nanos: 5}} > timestamp(1)", True),
        (f"{G}Struct{{fields: {{'a': 1}}}} == {{'a': 1.0}}", True),
        (f"{G}Struct{{fields: {{'a': 1}}}}.a == 1", True),
        (
            f"{G}ListValue{{values: [1, 'a']}}.size() == 2",
            REFUSED,
        ),  # a mixed list, wherever it stands
        (f"{G}Value{{string_value: 'x'}} == 'x'", True),
        (f"{G}Value{{}} == null", True),
        (f"{G}Empty{{}} == {G}Empty{{}}", True),
        (f"type({G}Empty{{}}) == {G}Empty", True),
        (f"{G}NullValue.NULL_VALUE == 0", True),
        (f"{G}Int32Value{{value: 'x'}} == 1", REFUSED),
        (f"{G}Int32Value{{valeu: 1}} == 1", REFUSED),
        (f"{G}Int32Value{{?value: optional.of(1)}} == 1", True),
        (f"{G}Int32Value{{?value: optional.none()}} == 0", True),
        (f"{G}Int32Value{{?value: 1}} == 1", REFUSED),
        (f".{G}Int32Value{{`value`: 1,}} == 1", True),
        (f"{G}Int32Value{{,}} == 0", True),
        (f"{G}FieldMask{{}} == 1", REFUSED),
        ("int{} == 1", REFUSED),
        # what passes the checker and nothing can make
        ("kubernetes.DRADevice{driver: 'x'}.driver == 'x'", ERROR),
        ("kubernetes.DRADevice{drivers: 'x'}.driver == 'x'", REFUSED),
        ("kubernetes.DRADevice == type(device)", REFUSED),
        ("duration{seconds: 1} == duration('1s')", ERROR),
        ("list{values: [1]} == [1]", ERROR),
        ("kubernetes.Quantity{} == quantity('1')", REFUSED),
    ],
)
def test_literals_have_upstreams_types(expression, answer):
    assert ask(expression) == answer


def test_refusals_say_what_is_wrong():
    assert "'int' is not a message type" in refusal("int{} == 1")
    assert "undefined field 'nope'" in refusal(f"{G}Empty{{nope: 1}} == {G}Empty{{}}")
    assert "expected type of field 'value' is 'int' but provided type is 'string'" in refusal(
        f"{G}Int32Value{{value: 'x'}} == 1"
    )
    assert "undeclared reference to 'nope.Message'" in refusal("nope.Message{} == 1")
    assert "applied to '(wrapper(int), string)'" in refusal(f"{G}Int32Value{{}} == 'x'")
    assert refusal(f"{G}Any == int").endswith("reference to undefined type: Any")


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("[int].exists(t, t == int)", REFUSED),
        ("cel.bind(t, type(1), t == int)", REFUSED),
        ("[int].exists(string, string == string)", True),  # the name is what counts
        ("[int].exists(string, string == int)", False),
        ("[dyn(int)].exists(t, t == int)", True),
        ("{'t': int}.t == int", True),
    ],
)
def test_a_variable_that_holds_a_type_is_taken_for_a_type_of_its_name(expression, answer):
    assert ask(expression) == answer
