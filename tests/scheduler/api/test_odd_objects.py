"""An object with odd text in it is read like any other; one with a wrong field is read as far as it goes (fault core 03)."""

import json
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.claims import ResourceClaimTemplate
from allocator.model.devices import DeviceClass
from scheduler.api.decode import DecodeError, PageDecoder, decode, decode_event, decode_list
from scheduler.api.lenient import plain, read
from scheduler.api.metadata import listed
from scheduler.api.rawjson import RawJsonError
from scheduler.cache.store import meta_of
from scheduler.model import (
    ClaimRecord,
    Kind,
    UnreadableClaim,
    UnreadableClass,
    UnreadableNode,
    UnreadablePod,
    UnreadableRule,
    UnreadableSlice,
)
from tests.odd_json import ODD, TEXTS, config, with_text

V1 = "resource.k8s.io/v1"
CLAIM = Kind.RESOURCE_CLAIM


def meta(name: str = "c", version: int = 7, **more: Any) -> dict[str, Any]:
    names = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return {**names, "resourceVersion": str(version), **more}


def claim(name: str = "c", api_version: str = V1, **fields: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    request = (
        {"name": "r", "exactly": exactly}
        if api_version != f"{V1}beta1"
        else {
            "name": "r",
            **exactly,
        }
    )
    return {
        "apiVersion": api_version,
        "kind": "ResourceClaim",
        "metadata": meta(name, managedFields=[{"manager": "m", "fieldsV1": {"f:spec": {}}}]),
        "spec": {"devices": {"requests": [request], "config": [config()]}},
        **fields,
    }


def decoded_claim(raw: bytes) -> ClaimRecord:
    record = decode(CLAIM, raw)
    assert isinstance(record, ClaimRecord)
    return record


def parameters_of(record: ClaimRecord) -> list[bytes]:
    allocation = record.claim.status.allocation
    configs: list[Any] = [*(record.claim.spec.devices.config or ())]
    if allocation is not None:
        configs += allocation.devices.config or ()
    return [bytes(each.opaque.parameters) for each in configs]


@pytest.mark.parametrize("api_version", [V1, f"{V1}beta2", f"{V1}beta1"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_claim_with_odd_parameters_is_read_and_keeps_their_bytes(text, api_version):
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
    allocation = {"devices": {"results": [result], "config": [{"source": "FromClaim", **config()}]}}
    obj = claim(api_version=api_version, status={"allocation": allocation}, future={"x": "@@"})
    record = decoded_claim(with_text(obj, text))

    (request,) = record.claim.spec.devices.requests or ()
    assert request.exactly is not None
    assert (request.exactly.device_class_name, request.exactly.count) == ("gpu", 2)
    assert record.claim.status.allocation is not None
    assert parameters_of(record) == [text, text]
    # A write starts from these bytes.
    assert record.raw.count(text) >= 2
    assert api_version != V1 or b'"future":{"x":' + text in record.raw
    assert b"managedFields" not in record.raw
    assert b'"apiVersion":"resource.k8s.io/v1"' in record.raw


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_a_driver_says_of_a_device_is_nobodys_business(text):
    device = {
        "driver": "d",
        "pool": "p",
        "device": "x",
        "data": "@@",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    record = decoded_claim(with_text(claim(status={"devices": [device]}), text))
    (status,) = record.claim.status.devices or ()
    assert [condition.type for condition in status.conditions or ()] == ["Ready"]
    assert b'"data":' + text in record.raw


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_a_class_and_a_template_with_odd_parameters_are_read(text):
    obj = {"apiVersion": V1, "metadata": meta(), "spec": {"config": [config(), config()]}}
    found = decode(Kind.DEVICE_CLASS, with_text(obj, text))
    assert isinstance(found, DeviceClass)
    assert [bytes(each.opaque.parameters) for each in found.spec.config or () if each.opaque] == [
        text,
        text,
    ]
    spec = {"spec": {"devices": {"requests": [{"name": "r"}], "config": [config()]}}}
    template = decode("ResourceClaimTemplate", with_text({"metadata": meta(), "spec": spec}, text))
    assert isinstance(template, ResourceClaimTemplate)
    (entry,) = template.spec.spec.devices.config or ()
    assert entry.opaque is not None
    assert bytes(entry.opaque.parameters) == text


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_unknown_fields_and_managed_fields_hold_what_they_like(text, kind):
    managed = [{"manager": "m", "fieldsV1": "@@"}]
    obj = {"metadata": meta(managedFields=managed), "future": "@@", "spec": {"future": ["@@"]}}
    raw = with_text(obj, text)
    assert meta_of(decode(kind, raw)).uid == "uid-c"  # type: ignore[arg-type]
    event = decode_event(kind, b'{"type":"MODIFIED","object":%b}' % raw)
    assert (event.refused, event.resource_version) == (None, "7")


@pytest.mark.parametrize("kind", list(Kind))
def test_text_that_is_none_is_read_as_go_reads_it(kind):
    raw = with_text({"metadata": meta(labels={"a": "@@"})}, b'"\\ud800b\xff"')
    assert meta_of(decode(kind, raw)).labels == {"a": "�b�"}  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
@pytest.mark.parametrize("api_version", [V1, f"{V1}beta1"])
def test_a_page_and_a_watch_line_with_it_are_read(text, api_version):
    items = [claim("a", api_version), {**claim("odd", api_version)}, claim("b", api_version)]
    for item in items:
        del item["apiVersion"]
    items[0]["spec"]["devices"]["config"] = items[2]["spec"]["devices"]["config"] = None
    body = {"apiVersion": api_version, "metadata": {"resourceVersion": "9", "continue": "t"}}
    page = decode_list(CLAIM, with_text({**body, "items": items}, text))
    assert [meta_of(item).name for item in page.items] == ["a", "odd", "b"]
    assert (page.resource_version, page.continue_token, page.refused) == ("9", "t", [])
    assert listed(with_text({**body, "items": items}, text)) == (
        {f"uid-{name}": "7" for name in ("a", "odd", "b")},
        "9",
        "t",
    )
    line = with_text({"type": "ADDED", "object": claim("odd", api_version)}, text)
    event = decode_event(CLAIM, line)
    assert (event.type, event.resource_version, event.refused) == ("ADDED", "7", None)
    assert isinstance(event.object, ClaimRecord)
    assert parameters_of(event.object) == [text]


def test_a_page_is_told_apart_in_steps():
    items = [{**claim(f"c{number}")} for number in range(20)]
    body = with_text({"metadata": {"resourceVersion": "9"}, "items": items}, ODD["1,600 objects"])
    decoder = PageDecoder(CLAIM, body)
    steps = 1
    while decoder.step(1):
        steps += 1
    assert steps >= len(items)
    assert len(decoder.page().items) == len(items)


@pytest.mark.parametrize("cut", [1, 5, 50])
def test_a_page_that_is_cut_off_is_no_page(cut):
    page = {"metadata": {"resourceVersion": "9"}, "items": [claim("a")]}
    body = with_text(page, ODD["half a surrogate pair"])
    with pytest.raises(DecodeError, match="ResourceClaimList"):
        decode_list(CLAIM, body[:-cut])


RESULTS = [
    {"request": "r", "driver": "d", "pool": "p", "device": "x"},
    {"request": "r", "driver": "d", "pool": "p", "device": 7},
    {"request": "r", "driver": "d", "pool": "p", "device": "y", "consumedCapacity": {"m": "1e"}},
]


def refused(kind: Kind, obj: Any) -> Any:
    """What remains of an object that cannot be read."""
    with pytest.raises(DecodeError) as caught:
        decode(kind, obj if isinstance(obj, bytes) else orjson.dumps(obj))
    return caught.value.remains


def test_of_a_claim_remain_who_it_is_and_all_results_that_can_be_read():
    status = {"allocation": {"devices": {"results": RESULTS}}, "reservedFor": [{"uid": "u"}, 3]}
    record = refused(CLAIM, claim(status=status))
    assert type(record.claim) is UnreadableClaim
    left: Any = record.claim
    assert left.metadata == meta_of(decoded_claim(orjson.dumps(claim())))
    assert [each.device for each in left.status.allocation.devices.results] == ["x", "", "y"]
    assert [each.uid for each in left.status.reserved_for] == ["u"]
    assert left.problem == (
        "status.allocation.devices.results[1].device: expected text, got a whole number"
    )
    assert left.lost == ("status.allocation.devices.results", "status.reservedFor")


@pytest.mark.parametrize(
    ("kind", "spec", "type_"),
    [
        (Kind.NODE, {"taints": 7}, UnreadableNode),
        (Kind.POD, {"containers": [3]}, UnreadablePod),
        (Kind.RESOURCE_SLICE, {"devices": {}}, UnreadableSlice),
        (Kind.DEVICE_CLASS, {"selectors": [{"cel": 1}]}, UnreadableClass),
        (Kind.DEVICE_TAINT_RULE, {"taint": []}, UnreadableRule),
    ],
)
def test_each_kind_remains_as_what_it_is(kind, spec, type_):
    found = refused(kind, {"metadata": meta(), "spec": spec})
    assert type(found) is type_
    assert (found.metadata.name, found.metadata.resource_version) == ("c", "7")
    assert found.problem.startswith("spec.")


def test_an_unreadable_slice_is_of_a_generation_that_never_gets_complete():
    pool = {"name": "p", "generation": 3, "resourceSliceCount": 1}
    spec = {"driver": "d", "pool": pool, "nodeName": "n", "devices": [{"name": 7}, {"name": "x"}]}
    found = refused(Kind.RESOURCE_SLICE, {"metadata": meta(), "spec": spec})
    assert (found.pool_id, found.spec.node_name) == (("d", "p"), "n")
    assert found.spec.pool.generation > 2**40
    assert found.spec.pool.resource_slice_count < 0
    assert [device.name for device in found.spec.devices] == ["", "x"]


@pytest.mark.parametrize(
    ("spec", "selector", "effect"),
    [
        (
            {"deviceSelector": {"driver": "d", "pool": 7}, "taint": {"effect": "NoExecute"}},
            ("d", None),
            "NoExecute",
        ),
        ({"deviceSelector": 7, "taint": {"effect": "None"}}, (None, None), "None"),
        ({"deviceSelector": {"driver": "d"}, "taint": {"effect": 3}}, ("d", None), "NoSchedule"),
        ({"deviceSelector": {"driver": "d"}, "taint": 3}, ("d", None), "NoSchedule"),
        (7, (None, None), "NoSchedule"),
    ],
)
def test_an_unreadable_rule_taints_all_that_it_may_be_meant_for(spec, selector, effect):
    found = refused(Kind.DEVICE_TAINT_RULE, {"metadata": meta(), "spec": spec})
    chosen = found.spec.device_selector
    assert (chosen.driver, chosen.pool) == selector
    assert found.spec.taint.effect == effect


@pytest.mark.parametrize(
    "raw",
    [
        b'{"metadata":{"name":"c","namespace":"ns","uid":"u","resourceVersion":"7"},"spec":nonsense}',
        b'{"metadata":{"name":"c","namespace":"ns","uid":"u","resourceVersion":"7"},"spec":{"a" 1}}',
        b'{"spec":{"x":"\\q"},"metadata":{"resourceVersion":"7","uid":"u","namespace":"ns","name":"c"}}',
    ],
)
def test_who_it_is_is_found_in_what_is_no_json(raw):
    for kind in Kind:
        found = refused(kind, raw)
        metadata = meta_of(found)
        assert (metadata.name, metadata.namespace, metadata.uid) == ("c", "ns", "u")
        event = decode_event(kind, b'{"object":%b,"type":"DELETED"}' % raw)
        assert (event.type, event.resource_version) == ("DELETED", "7")
        assert event.object is not None


def test_an_object_of_an_unknown_version_counts_as_lost_as_a_whole():
    record = refused(CLAIM, claim(api_version=f"{V1}beta7"))
    assert record.claim.lost[0] == ""
    assert "has no version" in record.claim.problem


@pytest.mark.parametrize(
    "line",
    [b"<html>", b"[1]", b'{"type":"ADDED","object":3}', b'{"type":"BOOKMARK","object":{}}', b"{"],
)
def test_a_line_without_a_version_is_no_event(line):
    with pytest.raises(DecodeError, match="watch of Pod"):
        decode_event(Kind.POD, line)


def test_plain_data_is_had_of_what_can_be_read():
    text = ODD["half a surrogate pair"]
    raw = with_text({"items": [claim(), claim()]}, text)
    assert [
        item["spec"]["devices"]["config"][0]["opaque"]["parameters"] for item in plain(raw)["items"]
    ] == [{}, {}]
    assert plain(b'{"parameters":{"a":"\\ud800"},"data":{"b":1.50}}') == {
        "parameters": {},
        "data": {"b": 1.5},
    }
    with pytest.raises(RawJsonError):
        plain(b'{"a":')


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
PATHS = st.sampled_from(
    [
        ("metadata",),
        ("metadata", "labels"),
        ("metadata", "ownerReferences"),
        ("metadata", "uid"),
        ("metadata", "name"),
        ("spec",),
        ("spec", "devices"),
        ("spec", "devices", "requests"),
        ("spec", "devices", "config"),
        ("spec", "containers"),
        ("spec", "nodeName"),
        ("spec", "pool"),
        ("spec", "taint"),
        ("spec", "volumes"),
        ("spec", "affinity"),
        ("status",),
        ("status", "allocation"),
        ("status", "allocatable"),
        ("status", "devices"),
        ("apiVersion",),
    ]
)


@given(st.sampled_from(list(Kind)), PATHS, JSON, st.sampled_from([V1, f"{V1}beta1", f"{V1}beta2"]))
def test_an_object_with_anything_anywhere_is_read_or_refused(kind, path, value, api_version):
    obj: Any = claim(api_version=api_version)
    here = obj
    for key in path[:-1]:
        here = here.setdefault(key, {})
    here[path[-1]] = value
    raw = json.dumps(obj).replace('"@@"', '{"x":"\\ud800"}').encode()
    reading = read(kind, raw)
    assert reading.decoded is not None or reading.problems
    if path != ("metadata",):
        event = decode_event(kind, b'{"type":"ADDED","object":%b}' % raw)
        assert event.resource_version == "7"


@given(st.sampled_from(list(Kind)), st.sampled_from(list(ODD)[:5]), st.data())
def test_mutilated_lines_and_pages_are_read_or_refused(kind, odd, data):
    page = {"metadata": {"resourceVersion": "9"}, "items": [claim("a"), claim("b")]}
    raw = with_text(page, ODD[odd])
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 10)))
    mutilated = raw[:start] + data.draw(st.binary(max_size=6)) + raw[end:]
    for look in (decode_list, decode_event, decode):
        with suppress(DecodeError):
            look(kind, mutilated)
    with suppress(ValueError):
        listed(mutilated)
