"""Protobuf on the wire: what is not looked at keeps its bytes, what is no message is an error of its own."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.wire import (
    MAGIC,
    WireError,
    changed,
    encode_varint,
    fields,
    first,
    object_in,
    of_bytes,
    of_number,
    with_object,
)

NUMBERS = st.integers(1, 2**29 - 1)
FIELDS = st.one_of(
    st.builds(of_bytes, NUMBERS, st.binary(max_size=200)),
    st.builds(of_number, NUMBERS, st.integers(-(2**63), 2**63 - 1)),
    st.builds(
        lambda number, data: encode_varint(number << 3 | 1) + data,
        NUMBERS,
        st.binary(min_size=8, max_size=8),
    ),
    st.builds(
        lambda number, data: encode_varint(number << 3 | 5) + data,
        NUMBERS,
        st.binary(min_size=4, max_size=4),
    ),
)
MESSAGES = st.lists(FIELDS, max_size=6).map(b"".join)


@given(MESSAGES)
def test_a_message_is_the_sum_of_its_fields(message: bytes) -> None:
    assert b"".join(field.raw for field in fields(message)) == message


@given(MESSAGES, NUMBERS, st.binary(max_size=20))
def test_a_change_inside_changes_nothing_else(message: bytes, number: int, inner: bytes) -> None:
    others = b"".join(field.raw for field in fields(message) if field.number != number)
    outer = others + of_bytes(number, inner)
    after = changed(outer, number, lambda before: before + b"!")
    assert after == others + of_bytes(number, inner + b"!")
    assert first(after, number) == inner + b"!"
    assert changed(others, number, lambda before: before + b"!") == others + of_bytes(number, b"!")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert b"".join(field.raw for field in fields(data)) == data
    for read in (object_in, lambda body: with_object(body, bytes.upper)):
        with contextlib.suppress(WireError):
            read(MAGIC + data)


@pytest.mark.parametrize(
    "body", [b"", b"k8s", b"{}", b"<html>", b"k8s\x00\x12", b"k8s\x00\x10\x01"]
)
def test_what_is_no_body_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        object_in(body)


def test_numbers_are_written_seven_bits_a_byte() -> None:
    assert encode_varint(0) == b"\x00"
    assert encode_varint(300) == b"\xac\x02"
    assert of_number(1, -1) == b"\x08" + b"\xff" * 9 + b"\x01"
