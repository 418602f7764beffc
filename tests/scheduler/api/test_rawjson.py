"""JSON told apart on bytes: the same parts as a parser finds, whatever is in them, and errors instead of anything else."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.rawjson import (
    RawJsonError,
    elements,
    find,
    members,
    members_and_elements,
    string_at,
    text_of,
    value_at,
    without,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
SPACES = st.sampled_from([None, 1])


def dumped(value, indent, *, ascii_only=True) -> bytes:
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")


@given(st.dictionaries(st.text(max_size=4), VALUES), SPACES)
def test_members_are_those_that_a_parser_finds(value, indent):
    raw = dumped(value, indent)
    found = {each.key: json.loads(raw[slice(*each.value)]) for each in members(raw)}
    # A text with half a surrogate pair is read as Go reads it.
    assert list(found.values()) == list(value.values())
    assert list(found) == [text_of(json.dumps(key).encode()) for key in value]


@given(st.lists(VALUES), SPACES)
def test_elements_are_those_that_a_parser_finds(value, indent):
    raw = dumped(value, indent)
    assert [json.loads(raw[slice(*span)]) for span in elements(raw)] == value


@given(st.lists(VALUES), VALUES, SPACES)
def test_a_list_in_an_object_comes_element_by_element(items, other, indent):
    raw = dumped({"before": other, "items": items, "after": other}, indent)
    found = [
        (key, json.loads(raw[slice(*span)])) for key, span in members_and_elements(raw, "items")
    ]
    assert found == [("before", other), *(("items", item) for item in items), ("after", other)]


@given(st.dictionaries(st.sampled_from("abc"), VALUES), st.sampled_from("abc"), SPACES)
def test_cutting_a_member_leaves_all_others(value, key, indent):
    raw = dumped({"metadata": value, "kind": "x"}, indent)
    rest = {name: item for name, item in value.items() if name != key}
    assert json.loads(without(raw, "metadata", key)) == {"metadata": rest, "kind": "x"}


@given(st.binary(max_size=40) | st.text('{}[]",:\\ a1', max_size=30).map(str.encode))
def test_any_bytes_give_parts_or_an_error(raw):
    for look in (
        lambda: value_at(raw),
        lambda: list(members(raw)),
        lambda: list(elements(raw)),
        lambda: list(members_and_elements(raw, "a")),
        lambda: find(raw, "a", "b"),
        lambda: without(raw, "a", "b"),
        lambda: text_of(raw),
    ):
        with suppress(RawJsonError):
            look()
    assert isinstance(string_at(raw, "a", "b"), str)


@pytest.mark.parametrize(
    "raw", [b'{"a":"b}', b'{"a"}', b'{"a":1', b'{"a":[}', b"[1 2]", b'{"a" 1}', b"{1:2}", b""]
)
def test_what_is_malformed_is_an_error(raw):
    with pytest.raises(RawJsonError):
        [*members(raw), *elements(raw)]


def test_depth_costs_no_stack():
    raw = b'{"x":' + b'{"a":[' * 100_000 + b"]}" * 100_000 + b',"y":1}'
    assert [each.key for each in members(raw)] == ["x", "y"]


def test_the_last_of_equal_keys_counts_and_all_are_cut():
    raw = b'{"m":{"a":1,"b":2,"a":3}}'
    span = find(raw, "m", "a")
    assert span is not None
    assert raw[slice(*span)] == b"3"
    assert without(raw, "m", "a") == b'{"m":{"b":2}}'


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb'"\ud800"', "�"),
        (rb'"\udc00\ud800x"', "��x"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (b'"\xff"', "�"),
        (b'"\t"', "\t"),
        (rb'"\u0000"', "\x00"),
    ],
)
def test_text_is_read_as_go_reads_it(raw, text):
    assert text_of(raw) == text


@pytest.mark.parametrize("raw", [b'"\\x"', b"1", b'"', b'"a" "b"'])
def test_what_is_no_text_is_an_error(raw):
    with pytest.raises(RawJsonError):
        text_of(raw)
