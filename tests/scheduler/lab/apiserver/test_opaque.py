"""Opaque text in the embedded server, as pure functions; what they are to do is measured in tests/contract/test_opaque.py."""

import contextlib
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.wire import WireError
from scheduler.lab.apiserver import opaque, protobuf
from scheduler.lab.apiserver.messages import CLAIM, FIELDS
from scheduler.lab.apiserver.objects import copy, same, without_nulls
from scheduler.lab.apiserver.opaque import Opaque, is_json
from tests.opaque import TEXTS, claim_body, shown

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('ab\\"<', max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_each_text_comes_through(text: bytes) -> None:
    decoded = opaque.decode("ResourceClaim", claim_body("c", text))
    [config] = decoded["spec"]["devices"]["config"]
    assert config["opaque"]["parameters"] == Opaque(text)
    assert shown(text) in opaque.encode(decoded)
    assert same(copy(decoded), decoded)
    assert same(without_nulls(decoded), decoded)


def test_only_what_is_opaque_is_kept_as_text() -> None:
    body = b'{"metadata":{"annotations":{"parameters":"{ }","data":"x"}},"data":{ "a":1}}'
    assert opaque.decode("ResourceClaim", body) == orjson.loads(body)
    assert opaque.decode("ConfigMap", body) == orjson.loads(body)


@given(VALUES)
def test_what_python_takes_is_json_and_its_shown_text_means_the_same(value: Any) -> None:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    assert is_json(text)
    text_shown = Opaque(text).shown
    assert orjson.loads(text_shown) == value
    assert Opaque(text_shown).shown == text_shown
    assert not set(b"<>&\n") & set(text_shown)


@given(st.text('{}[]",:\\u0d8a1e+-. \n', max_size=14).map(str.encode))
def test_what_is_json_to_us_is_json_to_go_as_well(text: bytes) -> None:
    """Only half pairs and deep nesting are more than orjson takes: neither is in here."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        expected = False
    else:
        expected = True
    assert is_json(text) == expected or b"\\ud8" in text


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,}',
        b'{"a":01}',
        b'{"a":"\\x"}',
        b'{"a":"\n"}',
        b'{"a":1e400}',
        b"[1 2]",
        b"{} {}",
        b'{"a":' * 1600 + b"x" + b"}" * 1600,
        b'{"a":' * 1600 + b"1" + b"}" * 1599,
        b'{"a":' * 1600 + b"1" + b"}" * 1599 + b"]",
    ],
)
def test_what_is_no_json_is_told(text: bytes) -> None:
    assert not is_json(text)


@given(VALUES.filter(lambda value: isinstance(value, dict)))
def test_decoding_twice_is_decoding_once(value: Any) -> None:
    once = opaque.as_decoded(Opaque(orjson.dumps(value)))
    assert opaque.as_decoded(once) == once
    # A double that is a whole number is written as one.
    assert json.loads(once.raw, parse_int=float) == json.loads(orjson.dumps(value), parse_int=float)


@given(st.binary(max_size=80))
def test_any_body_is_a_claim_or_a_wire_error(body: bytes) -> None:
    for data in (body, b"k8s\x00" + body):
        with contextlib.suppress(WireError):
            protobuf.decode(CLAIM, data)


def test_every_message_that_is_named_is_described() -> None:
    plain = {"text", "int", "number", "bool", "time", "quantity", "opaque", "fields"}
    for message, known in FIELDS.items():
        numbers = [field.number for field in known]
        assert len(set(numbers)) == len(numbers), message
        assert {field.type for field in known} <= plain | FIELDS.keys(), message
