"""Opaque text in claims: kept as the bytes that were sent, compared byte for byte, shown as Go's encoder writes it."""

from collections.abc import Mapping

import orjson
import pytest

from scheduler.api import wire
from scheduler.client import (
    APPLY_PATCH,
    JSON,
    MERGE_PATCH,
    PROTOBUF,
    STRATEGIC_MERGE_PATCH,
    Committed,
    Rejected,
    WriteOutcome,
)
from scheduler.lab.apiserver.messages import CLAIM
from scheduler.lab.apiserver.opaque import Opaque
from scheduler.lab.apiserver.protobuf import decode
from tests.contract.api import FINALIZER, Api, Json, allocation, consumer, request, with_status
from tests.opaque import HIDDEN, PLAIN, TEXTS, UNDECODABLE, UNUSUAL, claim_body, shown
from tests.opaque import allocation as allocation_body

DEVICE = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}


def table(texts: Mapping[str, bytes] = TEXTS) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("text", texts.values(), ids=texts.keys())


async def stored(api: Api, name: str = "a") -> Json:
    """A claim with the bytes that are stored."""
    return decode(CLAIM, await api.client.get(api.claims(name), accept=PROTOBUF))


def parameters(claim: Json, *path: str) -> bytes:
    for step in path:
        claim = claim[step]
    [config] = claim["devices"]["config"]
    value = config["opaque"]["parameters"]
    assert isinstance(value, Opaque)
    return value.raw


async def make(api: Api, text: bytes, name: str = "a") -> None:
    outcome = await api.client.write("POST", api.claims(), claim_body(name, text))
    assert isinstance(outcome, Committed), outcome


async def put_status(api: Api, status: bytes) -> WriteOutcome:
    meta = (await stored(api))["metadata"]
    body = b'{"metadata":%b,"status":%b}' % (
        orjson.dumps({key: meta[key] for key in ("name", "uid", "resourceVersion")}),
        status,
    )
    return await api.client.write("PUT", f"{api.claims('a')}/status", body)


def reserved(allocation: bytes, *uids: str, devices: bytes = b"[]") -> bytes:
    consumers = orjson.dumps([consumer(uid) for uid in uids])
    return b'{"allocation":%b,"reservedFor":%b,"devices":%b}' % (allocation, consumers, devices)


def is_refused(outcome: WriteOutcome, field: str) -> bool:
    return isinstance(outcome, Rejected) and outcome.status == 422 and field in outcome.message


@table()
async def test_the_bytes_that_were_sent_are_kept_and_shown_as_go_writes_them(
    api: Api, text: bytes
) -> None:
    await make(api, text)
    assert parameters(await stored(api), "spec") == text
    assert shown(text) in await api.client.get(api.claims("a"))
    assert shown(text) in await api.client.get(api.claims(), {"limit": "5"})


@pytest.mark.parametrize(
    "text",
    [b"[1]", b'"a"', b"1", b"null", b'{"x":"%b"}' % (b"y" * 10_240)],
    ids=["list", "text", "number", "null", "too long"],
)
async def test_parameters_are_an_object_of_at_most_10_kib(api: Api, text: bytes) -> None:
    outcome = await api.client.write("POST", api.claims(), claim_body("a", text))
    assert is_refused(outcome, "spec.devices.config[0].opaque.parameters")


async def test_spaces_count_for_the_length_of_parameters(api: Api) -> None:
    await make(api, b'{"a":1%b}' % (b" " * (10_240 - 7)))
    outcome = await api.client.write(
        "POST", api.claims(), claim_body("b", b'{"a":1%b}' % (b" " * (10_240 - 6)))
    )
    assert is_refused(outcome, "spec.devices.config[0].opaque.parameters")


@pytest.mark.parametrize(
    "text", [b'{"a":1,}', b'{"a":01}', b'{"a":"\\x"}', b'{"a"}', b'{"a":"\t"}']
)
async def test_what_is_no_json_is_not_read(api: Api, text: bytes) -> None:
    outcome = await api.client.write("POST", api.claims(), claim_body("a", text))
    assert isinstance(outcome, Rejected)
    assert outcome.status == 400


# --- what each way of writing does to the bytes of others (the table in `scheduler.binder.edits`) ---------------------

WAYS: Mapping[str, str] = {
    "PUT": JSON,
    "merge": MERGE_PATCH,
    "strategic": STRATEGIC_MERGE_PATCH,
    "apply": APPLY_PATCH,
}
KEEPS_UNUSUAL = ("PUT", "merge")


async def add_finalizer(api: Api, way: str) -> WriteOutcome:
    """In JSON, from what a client reads."""
    patch = orjson.dumps({"metadata": {"finalizers": [FINALIZER]}})
    match way:
        case "PUT":
            body = (await api.client.get(api.claims("a"))).replace(
                b'"metadata":{', b'"metadata":{"finalizers":["%b"],' % FINALIZER.encode(), 1
            )
            return await api.client.write("PUT", api.claims("a"), body)
        case "apply":
            named = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
            body = orjson.dumps({**named, **orjson.loads(patch)})
            query = {"fieldManager": "tester"}
            return await api.client.write(
                "PATCH", api.claims("a"), body, content_type=APPLY_PATCH, query=query
            )
        case _:
            return await api.client.write("PATCH", api.claims("a"), patch, content_type=WAYS[way])


@pytest.mark.parametrize("way", WAYS)
@table(PLAIN)
async def test_any_way_of_writing_does_for_plain_text(api: Api, way: str, text: bytes) -> None:
    await make(api, text)
    assert isinstance(await add_finalizer(api, way), Committed)
    assert parameters(await stored(api), "spec") == text


@pytest.mark.parametrize("way", WAYS)
@table({**UNUSUAL, "half a pair": UNDECODABLE["half a pair"]})
async def test_unusual_text_goes_through_json_but_not_through_a_decoder(
    api: Api, way: str, text: bytes
) -> None:
    await make(api, text)
    outcome = await add_finalizer(api, way)
    assert isinstance(outcome, Committed) if way in KEEPS_UNUSUAL else is_refused(outcome, "spec")
    assert parameters(await stored(api), "spec") == text


@pytest.mark.parametrize("way", WAYS)
@table(HIDDEN)
async def test_text_that_is_shown_otherwise_cannot_be_written_back_in_json(
    api: Api, way: str, text: bytes
) -> None:
    await make(api, text)
    assert is_refused(await add_finalizer(api, way), "spec")
    assert parameters(await stored(api), "spec") == text


@table()
async def test_protobuf_changed_on_the_wire_keeps_every_text(api: Api, text: bytes) -> None:
    await make(api, text)
    body = await api.client.get(api.claims("a"), accept=PROTOBUF)
    finalizer = wire.of_bytes(14, FINALIZER.encode())
    changed = wire.with_object(body, lambda claim: wire.changed(claim, 1, lambda m: m + finalizer))
    outcome = await api.client.write("PUT", api.claims("a"), changed, content_type=PROTOBUF)
    assert isinstance(outcome, Committed), outcome
    claim = await stored(api)
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert parameters(claim, "spec") == text


@table()
async def test_an_allocation_keeps_the_bytes_it_was_written_with(api: Api, text: bytes) -> None:
    await make(api, HIDDEN["spaces"])
    written = await put_status(api, reserved(allocation_body(text), "u1"))
    assert isinstance(written, Committed), written
    assert parameters(await stored(api), "status", "allocation") == text
    same = await put_status(api, reserved(allocation_body(text), "u1", "u2"))
    assert isinstance(same, Committed), same


@table(HIDDEN)
async def test_an_allocation_in_other_words_is_another_one(api: Api, text: bytes) -> None:
    await make(api, b"{}")
    await put_status(api, reserved(allocation_body(text), "u1"))
    again = await put_status(api, reserved(allocation_body(shown(text)), "u1", "u2"))
    assert is_refused(again, "status.allocation")
    freed = await put_status(api, b"{}")
    assert isinstance(freed, Committed), freed


async def test_a_write_to_the_status_does_not_touch_what_the_spec_says(api: Api) -> None:
    await make(api, HIDDEN["spaces"])
    body = orjson.dumps({"status": {"allocation": allocation(), "reservedFor": [consumer("u1")]}})
    for content_type in (MERGE_PATCH, STRATEGIC_MERGE_PATCH):
        path = f"{api.claims('a')}/status"
        outcome = await api.client.write("PATCH", path, body, content_type=content_type)
        assert isinstance(outcome, Committed), outcome
    assert parameters(await stored(api), "spec") == HIDDEN["spaces"]


# --- what drivers say of devices --------------------------------------------------------------------------------------


async def data(api: Api) -> bytes:
    [device] = (await stored(api))["status"]["devices"]
    value = device["data"]
    assert isinstance(value, Opaque)
    return value.raw


@table()
async def test_data_of_a_device_is_kept_and_rewritten_by_who_writes_back_what_is_shown(
    api: Api, text: bytes
) -> None:
    await make(api, b"{}")
    devices = orjson.dumps([{**DEVICE, "data": "@@"}]).replace(b'"@@"', text)
    written = await put_status(api, reserved(allocation_body(b"{}"), "u1", devices=devices))
    assert isinstance(written, Committed), written
    assert await data(api) == text
    body = (await api.client.get(api.claims("a"))).replace(
        b'"reservedFor":[', b'"reservedFor":[%b,' % orjson.dumps(consumer("u2"))
    )
    again = await api.client.write("PUT", f"{api.claims('a')}/status", body)
    assert isinstance(again, Committed), again
    assert await data(api) == shown(text)


@pytest.mark.parametrize(
    "text", [b"[1]", b'"a"', b'{"x":"%b"}' % (b"y" * 10_240)], ids=["list", "text", "too long"]
)
async def test_data_is_an_object_of_at_most_10_kib(api: Api, text: bytes) -> None:
    await make(api, b"{}")
    devices = orjson.dumps([{**DEVICE, "data": "@@"}]).replace(b'"@@"', text)
    written = await put_status(api, reserved(allocation_body(b"{}"), "u1", devices=devices))
    assert is_refused(written, "status.devices[0].data")


# --- templates and classes --------------------------------------------------------------------------------------------


@table()
async def test_a_template_and_a_class_keep_the_bytes_too(api: Api, text: bytes) -> None:
    config = b'[{"opaque":{"driver":"d.example.com","parameters":%b}}]' % text
    spec = orjson.dumps({"requests": [request("gpu")], "config": "@@"})
    template = b'{"metadata":{"name":"t"},"spec":{"spec":{"devices":%b}}}'
    path = api.path("resourceclaimtemplates", "", "resource.k8s.io/v1")
    made = await api.client.write("POST", path, template % spec.replace(b'"@@"', config))
    assert isinstance(made, Committed), made
    assert shown(text) in made.body
    name = api.unique("class")
    path = "/apis/resource.k8s.io/v1/deviceclasses"
    body = b'{"metadata":{"name":"%b"},"spec":{"config":%b}}' % (name.encode(), config)
    made = await api.client.write("POST", path, body)
    assert isinstance(made, Committed), made
    assert shown(text) in await api.client.get(f"{path}/{name}")
    await api.client.write("DELETE", f"{path}/{name}", b"")


# --- claims as protobuf -----------------------------------------------------------------------------------------------


async def test_a_claim_is_the_same_in_both_formats(api: Api) -> None:
    alternatives = [
        {
            "name": "big",
            "deviceClassName": "c",
            "selectors": [{"cel": {"expression": "true"}}],
            "allocationMode": "All",
        },
        {"name": "small", "deviceClassName": "d", "capacity": {"requests": {"memory": "1Gi"}}},
    ]
    tolerations = [
        {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    ]
    owner = await api.pod("owner")
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner.meta["uid"]}
    spec = {
        "devices": {
            "requests": [
                request("gpu", tolerations=tolerations, count=2),
                {"name": "alternatives", "firstAvailable": alternatives},
            ],
            "constraints": [{"requests": ["gpu"], "matchAttribute": "d.example.com/x"}],
            "config": [{"opaque": {"driver": "d.example.com", "parameters": {"a": 1}}}],
        }
    }
    meta = {
        "name": "a",
        "labels": {"l": "v"},
        "annotations": {"n": "Ünï"},
        "finalizers": ["example.com/hold"],
        "ownerReferences": [{**reference, "controller": True}],
    }
    made = await api.made(api.claims(), {"metadata": meta, "spec": spec})
    results = [
        {
            **DEVICE,
            "request": "gpu",
            "shareID": "2b1c7e0a-7f7e-4a3e-9a55-0f0a6c1d2e3f",
            "consumedCapacity": {"memory": "10"},
            "bindingConditions": ["example.com/ready"],
            "bindingFailureConditions": ["example.com/failed"],
            "tolerations": tolerations,
        }
    ]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    held = {
        "devices": {
            "results": results,
            "config": [
                {
                    "source": "FromClass",
                    "requests": ["gpu"],
                    "opaque": {"driver": "d.example.com", "parameters": {"b": 2}},
                }
            ],
        },
        "nodeSelector": {"nodeSelectorTerms": [term]},
        "allocationTimestamp": "2026-11-29T10:00:00Z",
    }
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Because",
        "message": "",
        "lastTransitionTime": "2026-11-29T10:00:00Z",
    }
    device = {
        **{key: results[0][key] for key in ("driver", "pool", "device", "shareID")},
        "conditions": [condition],
        "networkData": {"interfaceName": "eth0", "ips": ["10.0.0.1/24"]},
    }
    written = await api.put(
        f"{api.claims('a')}/status",
        with_status(made, allocation=held, reservedFor=[consumer("u1")], devices=[device]),
    )
    assert written.ok, written
    exact = orjson.loads(
        orjson.dumps(
            await stored(api),
            default=lambda value: orjson.loads(value.raw),
            option=orjson.OPT_PASSTHROUGH_DATACLASS,
        )
    )
    del condition["message"]  # empty, which protobuf does not tell from absent
    [shown_device] = written.body["status"]["devices"]
    shown_device["conditions"] = [condition]
    assert exact == written.body
    await api.delete(api.claims("a"))
    await api.merge(api.claims("a"), {"metadata": {"finalizers": None}})
