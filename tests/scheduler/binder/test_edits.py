"""Changes of claims as text and on the wire: what is ours changes, in both formats alike, and nothing else does."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.claims import ResourceClaimConsumerReference
from scheduler.api import wire
from scheduler.api.rawjson import RawJsonError
from scheduler.binder.claim_text import ClaimText, UnreadableClaimError, members
from scheduler.binder.edits import (
    Allocation,
    Deallocation,
    Mark,
    Release,
    Repeating,
    Reservation,
    Unmark,
    is_of_version,
    may_be_refused,
    may_rewrite,
)
from scheduler.lab.apiserver import opaque, protobuf
from scheduler.lab.apiserver.messages import CLAIM
from scheduler.lab.apiserver.objects import Json
from tests.opaque import TEXTS, allocation, claim_body

NAMES = st.sampled_from(["a", "b", "example.com/x", "é"])
WORDS = st.text(st.characters(codec="utf-8"), max_size=8)
CONSUMERS = st.lists(st.sampled_from("uvwxyz"), unique=True, max_size=4)
EDITS: st.SearchStrategy[Repeating] = st.one_of(
    st.builds(Mark, NAMES, st.dictionaries(NAMES, WORDS, max_size=2)),
    st.builds(Mark, annotations=st.dictionaries(NAMES, WORDS, min_size=1, max_size=2)),
    st.builds(Unmark, NAMES),
    st.builds(Release, st.frozensets(st.sampled_from("uvwxyz"))),
    st.builds(
        Reservation,
        st.builds(
            ResourceClaimConsumerReference,
            api_group=st.sampled_from(["", "example.com"]),
            resource=st.just("pods"),
            name=WORDS,
            uid=WORDS,
        ),
    ),
)


@st.composite
def claims(draw: st.DrawFn) -> Json:
    """In the stored shape, with opaque text everywhere."""
    texts = st.sampled_from([*TEXTS.values()]).map(opaque.Opaque)
    config = {"opaque": {"driver": "d", "parameters": draw(texts)}}
    consumers = [{"resource": "pods", "name": f"p-{uid}", "uid": uid} for uid in draw(CONSUMERS)]
    metadata = {
        "name": "c",
        "namespace": "default",
        "uid": "id",
        "resourceVersion": "5",
        "finalizers": draw(st.lists(NAMES, unique=True, max_size=2)),
        "annotations": draw(st.dictionaries(NAMES, WORDS.filter(bool), max_size=3)),
    }
    status: Json = {
        "allocation": {"devices": {"config": [{"source": "FromClass", **config}]}},
        "devices": [{"driver": "d", "pool": "p", "device": "x", "data": draw(texts)}],
        "reservedFor": consumers,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"devices": {"config": [config]}},
        "status": {key: value for key, value in status.items() if value},
    }


def shown(claim: Json) -> Json:
    """As one who reads it gets it; without what is empty."""
    kept = opaque.changed("ResourceClaim", claim, opaque.as_shown)
    kept = {**kept, **{key: _without_empty(kept[key]) for key in ("metadata", "status")}}
    return kept


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_empty(each) for key, each in value.items() if each not in ("", [], {})
        }
    return [_without_empty(each) for each in value] if isinstance(value, list) else value


@given(claims(), EDITS)
def test_a_change_is_the_same_in_both_formats(claim: Json, edit: Repeating) -> None:
    text = ClaimText.read(opaque.encode(claim))
    in_json = opaque.decode("ResourceClaim", edit.as_json(text))
    body = wire.with_object(protobuf.encode(CLAIM, claim), edit.as_protobuf)
    on_the_wire = protobuf.decode(CLAIM, body)
    assert shown(on_the_wire) == shown(in_json)


@given(claims(), EDITS)
def test_text_of_others_keeps_its_bytes_on_the_wire(claim: Json, edit: Repeating) -> None:
    body = wire.with_object(protobuf.encode(CLAIM, claim), edit.as_protobuf)
    changed = protobuf.decode(CLAIM, body)
    assert changed["spec"] == claim["spec"]
    assert changed["status"]["allocation"] == claim["status"]["allocation"]
    assert changed["status"]["devices"] == claim["status"]["devices"]


@given(claims(), EDITS)
def test_text_of_others_goes_back_in_json_as_it_was_read(claim: Json, edit: Repeating) -> None:
    raw = opaque.encode(claim)
    before, after = members(raw), members(edit.as_json(ClaimText.read(raw)))
    assert after["spec"] == before["spec"]
    for field in ("allocation", "devices"):
        assert members(after["status"])[field] == members(before["status"])[field]


@given(claims())
def test_a_deallocation_takes_all_and_leaves_fields_that_are_not_known(claim: Json) -> None:
    claim["status"]["later"] = {"field": 1}
    text = ClaimText.read(opaque.encode(claim))
    status = members(Deallocation().as_json(text))["status"]
    assert orjson.loads(bytes(status)) == {"later": {"field": 1}}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_an_allocation_is_sent_with_its_very_bytes(text: bytes) -> None:
    raw = claim_body("c", text).replace(b'"name":"c"', b'"name":"c","uid":"u"', 1)
    consumer = ResourceClaimConsumerReference(resource="pods", name="p", uid="v")
    sent = Allocation(allocation(text), consumer).as_json(ClaimText.read(raw))
    assert sent.count(text) == 2
    again = ClaimText.read(sent)
    assert again.is_allocated
    assert again.allocated_devices == [("gpu", "gpu.example.com", "node-1", "gpu-0", None)]
    assert again.is_reserved_for("v")


@pytest.mark.parametrize(
    ("expression", "spec_text", "data", "expected"),
    [
        ("true", b"", b"", (False, False)),
        ('\'"parameters": "data":\'', b"", b"", (False, False)),
        ("true", b',"config":[{"opaque":{"parameters":{}}}]', b"", (True, False)),
        ("true", b',"config":[{"opaque":{"parameters" : {}}}]', b"", (True, False)),
        ("true", b"", b',"devices":[{"data":{}}]', (False, True)),
    ],
)
def test_which_requests_may_not_be_json(
    expression: str, spec_text: bytes, data: bytes, expected: tuple[bool, bool]
) -> None:
    selector = orjson.dumps({"cel": {"expression": expression}})
    raw = (
        b'{"metadata":{"name":"c","uid":"u"},"spec":{"devices":{"requests":[{"exactly":{"selectors":[%b]}}]%b}},'
        b'"status":{"allocation":{}%b}}' % (selector, spec_text, data)
    )
    claim = ClaimText.read(raw)
    edit = Mark("f") if not data else Release({"x"})
    assert (may_be_refused(edit, claim), may_rewrite(edit, claim)) == expected
    assert not may_be_refused(Deallocation(), claim)


def test_a_message_of_another_version_or_claim_is_told_apart() -> None:
    claim: Json = {"metadata": {"name": "c", "uid": "u", "resourceVersion": "5"}}
    message = wire.object_in(protobuf.encode(CLAIM, claim))
    raw = b'{"metadata":{"name":"c","uid":"%b","resourceVersion":"%b"}}'
    assert is_of_version(message, ClaimText.read(raw % (b"u", b"5")))
    assert not is_of_version(message, ClaimText.read(raw % (b"u", b"6")))
    assert not is_of_version(message, ClaimText.read(raw % (b"v", b"5")))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b'{"kind":"Status","metadata":{}}',
        b'{"metadata":{"name":"c"}}',
        b'{"metadata":{"name":"c","uid":7}}',
        b'{"metadata":{"name":"c","uid":"u"},"status":[]}',
        b'{"metadata":{"name":"c","uid":"u"},"status":{"reservedFor":{}}}',
        b'{"metadata":{"name":"c","uid":"u"},"status":{"reservedFor":[1]}}',
        b'{"metadata":{"name":"c","uid":"u"},"status":{"reservedFor":[{"uid":1}]}}',
    ],
)
def test_what_is_no_claim_is_not_read(raw: bytes) -> None:
    with pytest.raises(UnreadableClaimError):
        ClaimText.read(raw)


@pytest.mark.parametrize("status", [b"null", b"{}", b'{"reservedFor":null,"allocation":null}'])
def test_what_is_null_is_absent(status: bytes) -> None:
    claim = ClaimText.read(b'{"metadata":{"name":"c","uid":"u"},"status":%b}' % status)
    assert not claim.is_allocated
    assert claim.consumers == []


def test_members_of_something_else_are_refused() -> None:
    with pytest.raises(RawJsonError):
        members(b"[1]")
