"""What messages become when they are made."""

import contextlib
import json
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cel.run.messages import make
from allocator.cel.run.wire import unpack
from allocator.cel.values.comparison import equal
from allocator.errors import CelRuntimeError
from tests.allocator.cel.evaluation import ERROR, ask, failure

G = "google.protobuf."
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
NUMBERS = st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes((number,))


def part(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def wire(value):
    """A google.protobuf.Value."""
    if value is None:
        return b"\x08\x00"
    if isinstance(value, bool):
        return b"\x20" + bytes((value,))
    if isinstance(value, float):
        return b"\x11" + struct.pack("<d", value)
    if isinstance(value, str):
        return part(3, value.encode())
    if isinstance(value, list):
        return part(6, b"".join(part(1, wire(each)) for each in value))
    entries = (part(1, key.encode()) + part(2, wire(each)) for key, each in value.items())
    return part(5, b"".join(part(1, entry) for entry in entries))


@given(JSON)
def test_what_is_json_stays_as_it_is_and_comes_out_of_its_wire_format(value):
    assert equal(make(f"{G}ListValue", {"values": [value]}), [value]) is True
    assert equal(unpack(f"x/{G}Value", wire(value)), value) is True


@given(
    st.sampled_from(
        ["Int32Value", "Struct", "Value", "ListValue", "Any", "StringValue", "Timestamp"]
    ),
    st.binary(max_size=30),
)
def test_any_bytes_are_a_message_or_an_error(message, data):
    with contextlib.suppress(CelRuntimeError):
        unpack(f"x/{G}{message}", data)


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        ("9007199254740991", "9007199254740991.0"),
        ("9007199254740992", "'9007199254740992'"),
        ("-9007199254740992", "'-9007199254740992'"),
        ("9007199254740992u", "'9007199254740992'"),
        ("1u", "1.0"),
        ("b'\\xff\\x00'", "'/wA='"),
        ("duration('90s')", "'90s'"),
        ("timestamp('2024-01-01T00:00:00+05:30')", "'2024-01-01T00:00:00+05:30'"),
        ("optional.of([1u])", "[1.0]"),
        (f"{G}Struct.FieldsEntry{{key: 'k'}}", "{'key': 'k'}"),
    ],
)
def test_other_values_become_json(value, becomes):
    assert ask(f"dyn({G}ListValue{{values: [dyn({value})]}}) == [{becomes}]") is True


@pytest.mark.parametrize(
    "value", ["int", "quantity('1')", "semver('1.0.0')", "{1: 2}", "optional.none()", "device.capacity", "[dyn(int)]"]
)  # fmt: skip
def test_what_json_does_not_have_fails(value):
    assert ask(f"{G}Value{{list_value: [dyn({value})]}} == null") == ERROR


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (f"{G}Int32Value{{value: 2147483648}} == 1", ERROR),
        (f"{G}UInt32Value{{value: 4294967296u}} == 1u", ERROR),
        (f"{G}FloatValue{{value: 0.1}} == 0.1", False),
        (f"{G}FloatValue{{value: 1e300}} == 1.0 / 0.0", True),
        (f"{G}StringValue{{value: dyn(quantity('1024Mi'))}} == '1Gi'", True),
        (f"{G}BytesValue{{value: dyn([1u, 255u])}} == b'\\x01\\xff'", True),
        (f"{G}BytesValue{{value: dyn([256u])}} == b''", ERROR),
        (f"{G}Int64Value{{value: dyn('1')}} == 1", ERROR),
        (f"{G}Duration{{seconds: 9223372037}} == {G}Duration{{seconds: 9300000000}}", True),  # the longest
        (f"{G}Int64Value{{value: 1, value: 2}} == 2", True),
        (f"{G}Int64Value{{value: 1, ?value: optional.none()}} == 0", True),
        (f"{G}Value{{list_value: dyn({{'values': [1]}})}} == [1]", True),
        (f"{G}Value{{list_value: dyn({{'others': [1]}})}} == [1]", ERROR),
        (f"has({G}Struct.FieldsEntry{{key: 'a'}}.value)", False),
        (f"{G}Struct.FieldsEntry{{key: 'a'}}.value == null", True),
        (f"dyn({G}Empty{{}}).nope == 1", ERROR),
        (f"{{{G}Empty{{}}: 1, {G}Empty{{}}: 2}}.size() == 2", True),  # keys by identity
        (f"optional.ofNonZeroValue({G}Empty{{}}).hasValue()", False),
        (f"optional.ofNonZeroValue({G}Struct.FieldsEntry{{key: 'a'}}).hasValue()", True),
        (f"{G}Any{{type_url: 'x/{G}Int32Value', value: b'\\x08\\x07'}} == 7", True),
        (f"{G}Any{{type_url: 'x/google.rpc.Status'}} == 7", ERROR),
        (f"{G}Any{{}} == {G}Any{{}}", ERROR),
    ],
)  # fmt: skip
def test_fields_take_upstreams_values(expression, answer):
    assert ask(expression) == answer


def test_errors_name_what_cannot_be_made():
    assert failure("kubernetes.DRADevice{}.driver == ''") == "unknown type 'kubernetes.DRADevice'"
    assert "from 'string' to 'int32'" in failure(f"{G}Int32Value{{value: dyn('1')}} == 1")


def test_a_list_held_many_times_is_converted_once():
    value: object = [json.loads("1.0")]
    for _ in range(60):  # two to the 60th elements, if each were converted
        value = [value, value]
    made = make(f"{G}ListValue", {"values": value})
    assert made[0] is made[1]


def test_much_data_are_refused_and_many_parts_are_read_soon():
    with pytest.raises(CelRuntimeError, match="too large"):
        unpack(f"x/{G}Empty", bytes(2**20 + 1))
    many = part(6, b"") * 200_000
    start = time.process_time()
    assert unpack(f"x/{G}Value", many[: 2**20 // 2 * 2]) == []
    assert time.process_time() - start < 30


def test_lists_in_lists_are_unpacked_as_deep_as_expressions_nest():
    value: object = "x"
    for _ in range(150):
        value = [value]
    assert equal(unpack(f"x/{G}Value", wire(value)), value) is True


def test_doubled_nesting_in_a_message_ends_soon():
    text = f"{G}ListValue{{values: a39}}.size() == 2"
    for level in reversed(range(40)):
        previous = f"a{level - 1}" if level else "1"
        text = f"cel.bind(a{level}, [dyn({previous}), dyn({previous})], {text})"
    assert ask(text) == ERROR
