"""The API types: JSON in the shape of resource.k8s.io/v1, quantities as text, owners."""

import json

import msgspec
import pytest

from allocator.errors import CelCompileError, QuantityError
from allocator.features import GATES, feature_table
from allocator.model.claims import ResourceClaim
from allocator.model.devices import DeviceCapacity, ResourceSlice
from allocator.model.hooks import dec_hook, enc_hook
from allocator.model.meta import ObjectMeta, OwnerReference
from tests.builders import (
    capacity,
    claim,
    claim_config,
    consumes,
    device,
    distinct,
    match,
    quantity,
    request,
    resource_slice,
    sub_request,
    taint,
    toleration,
    used,
    valid_range,
    version,
)
from tests.builders import first_available as first


def decode(text: str, type_):
    return msgspec.json.decode(text, type=type_, dec_hook=dec_hook)


@pytest.mark.parametrize(("text", "want"), [('"1.5Gi"', "1536Mi"), ("3", "3")])
def test_quantities_are_text_or_whole_numbers(text: str, want: str) -> None:
    assert decode(f'{{"value": {text}}}', DeviceCapacity).value == quantity(want)


@pytest.mark.parametrize("text", ["1.5", "true", "null", "[]", '"much"', "{}"])
def test_anything_else_is_no_quantity(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(f'{{"value": {text}}}', DeviceCapacity)


def test_hooks_know_no_other_type() -> None:
    with pytest.raises(NotImplementedError):
        dec_hook(complex, "1")
    with pytest.raises(NotImplementedError):
        enc_hook(1j)


OBJECTS = [
    claim(
        "c",
        request("r", "true", capacity={"memory": "1Gi"}, derived={"a/b": "1"}, admin=True),
        first("f", sub_request("s", tolerations=[toleration("k", "v", seconds=0)])),
        match("a/b", "r"),
        distinct("a/c"),
        claim_config("x", "r"),
    ),
    resource_slice(
        "s",
        device(
            "d",
            x=version("1.0.0"),
            y=[1, 2],
            capacity={"memory": capacity(8, valid_range(1, 8, 1, default=1))},
            consumes=[consumes("set", ["g"], memory=1)],
            taints=[taint("k", "v")],
            shareable=True,
            conditions=["a"],
            failures=["b"],
            binds_to_node=True,
        ),
        per_device=True,
        skips=["*"],
    ),
]


@pytest.mark.parametrize("value", OBJECTS, ids=["claim", "slice"])
def test_objects_survive_the_wire(value) -> None:
    text = msgspec.json.encode(value, enc_hook=enc_hook)

    assert decode(text.decode(), type(value)) == value


def test_names_on_the_wire_are_upstreams() -> None:
    result = json.loads(msgspec.json.encode(used("d", share="x"), enc_hook=enc_hook))

    assert result["shareID"] == "x"
    assert "adminAccess" not in result


def test_absent_lists_and_null_are_the_same() -> None:
    body = '{"spec": {"devices": {"requests": null, "constraints": null}}}'

    assert decode(body, ResourceClaim).spec.devices.requests is None
    assert decode('{"spec": {"devices": null}}', ResourceSlice).spec.devices is None


def test_the_controller_is_the_owner_that_says_so() -> None:
    other, controller = OwnerReference(name="a"), OwnerReference(name="b", controller=True)

    assert ObjectMeta(owner_references=(other, controller)).controller is controller
    assert ObjectMeta(owner_references=(other,)).controller is None
    assert ObjectMeta().controller is None


def test_a_claim_is_known_by_namespace_and_name() -> None:
    assert claim("c").key == "default/c"


def test_errors_say_what_is_wrong() -> None:
    assert (
        str(QuantityError("much", "it has no digits"))
        == "'much' is not a quantity: it has no digits"
    )
    assert str(CelCompileError("found no matching overload")) == "found no matching overload"


def test_the_feature_table_has_a_row_for_every_gate() -> None:
    rows = feature_table().splitlines()

    assert len(rows) == len(GATES) + 2
    assert "| Admin access | `DRAAdminAccess` | B+ | B+ | GA L | GA L |" in rows
