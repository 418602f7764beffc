"""Objects, pages and events from bytes; errors name object and path."""

import json
from typing import Any

import pytest

from allocator.quantity import Quantity
from scheduler.api import decode as module
from scheduler.api.decode import DecodeError, without_managed_fields
from scheduler.framework.resources import assigned_pod_requests, host_ports
from scheduler.model import Kind, NodeObject, Pod

# What comes out depends on the kind; here each test knows which.
decode: Any = module.decode
decode_tree_object: Any = module.decode_tree_object
decode_list: Any = module.decode_list
decode_event: Any = module.decode_event
page_decoder: Any = module.PageDecoder
allocation_tree: Any = module.allocation_tree


def raw(value) -> bytes:
    return json.dumps(value).encode()


def claim_object(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {
            "devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]
            }
        },
        **fields,
    }


def test_a_claim_comes_with_its_bytes_and_without_managed_fields():
    obj = claim_object(futureField={"kept": [1.50]})
    obj["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    record = decode(Kind.RESOURCE_CLAIM, raw(obj))
    assert type(record).__name__ == "ClaimRecord"
    assert record.claim.spec.devices.requests[0].exactly.count == 2
    kept = json.loads(record.raw)
    assert "managedFields" not in kept["metadata"]
    assert kept["futureField"] == {"kept": [1.5]}


def test_bytes_around_managed_fields_stay_as_they_are():
    text = b'{"metadata":{"a":1.500,"managedFields":[{}],"b":"x"},"spec":{"n":1e2}}'
    assert without_managed_fields(text) == b'{"metadata":{"a":1.500,"b":"x"},"spec":{"n":1e2}}'


@pytest.mark.parametrize(
    ("kind", "obj", "object_", "path", "problem"),
    [
        (
            "ResourceSlice",
            {
                "metadata": {"name": "x"},
                "spec": {"devices": [{"name": "d", "capacity": {"mem": {"value": True}}}]},
            },
            "ResourceSlice/x",
            'spec.devices[0].capacity["mem"].value',
            "expected a quantity, got a boolean",
        ),
        (
            "ResourceSlice",
            {
                "metadata": {"name": "x"},
                "spec": {"devices": [{"name": "d", "capacity": {"a/b": {}}}]},
            },
            "ResourceSlice/x",
            'spec.devices[0].capacity["a/b"].value',
            "is required",
        ),
        (
            "ResourceClaim",
            claim_object(spec={"devices": {"requests": {"name": "r"}}}),
            "ResourceClaim/ns/c",
            "spec.devices.requests",
            "expected a list, got an object",
        ),
        (
            "ResourceClaim",
            claim_object(
                spec={"devices": {"requests": [{"name": "r", "exactly": {"count": "2"}}]}}
            ),
            "ResourceClaim/ns/c",
            "spec.devices.requests[0].exactly.count",
            "expected a whole number, got text",
        ),
        (
            "ResourceClaim",
            claim_object(apiVersion="resource.k8s.io/v1beta7"),
            "ResourceClaim/ns/c",
            "apiVersion",
            "ResourceClaim has no version 'resource.k8s.io/v1beta7' here; known: "
            "resource.k8s.io/v1, resource.k8s.io/v1beta2, resource.k8s.io/v1beta1",
        ),
        (
            "Node",
            {"metadata": {"name": 3}},
            "Node",
            "metadata.name",
            "expected text, got a whole number",
        ),
        ("Node", [], "Node", "", "expected an object"),
        (
            "Pod",
            {
                "metadata": {"name": "p", "namespace": "n"},
                "spec": {"overhead": {"cpu": "1e999999999"}},
            },
            "Pod/n/p",
            'spec.overhead["cpu"]',
            "'1e999999999' is not a quantity: its exponent is beyond 400",
        ),
    ],
)
def test_an_error_names_object_path_and_problem(kind, obj, object_, path, problem):
    with pytest.raises(DecodeError) as caught:
        decode(kind, raw(obj))
    assert (caught.value.object, caught.value.path) == (object_, path)
    assert problem in caught.value.problem


def test_numbers_beyond_64_bits_are_refused():
    pod = {"metadata": {"name": "p"}, "spec": {"priority": 2**70}}
    with pytest.raises(DecodeError, match=r"spec\.priority: the number does not fit into 64 bits"):
        decode_tree_object("Pod", pod)


@pytest.mark.parametrize("text", [b"", b"{", b"nul", b'{"a": NaN}', b"[" * 100_000, b"\xff"])
def test_malformed_json_is_an_error_and_nothing_else(text):
    with pytest.raises(DecodeError):
        decode("ResourceSlice", text)


def test_nulls_count_as_absent_as_in_go():
    pod = decode(
        "Pod", b'{"metadata":{"name":"p","labels":null},"spec":{"nodeName":null,"containers":null}}'
    )
    assert isinstance(pod, Pod)
    assert pod.spec.node_name == ""


def test_a_bare_fraction_is_a_quantity_with_all_its_digits():
    node = decode(
        "Node", b'{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":0.1,"memory":1}}}'
    )
    assert isinstance(node, NodeObject)
    assert node.status.allocatable == {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("1")}


def test_v1beta1_claims_come_out_as_v1_with_v1_bytes():
    obj = claim_object(
        apiVersion="resource.k8s.io/v1beta1",
        spec={"devices": {"requests": [{"name": "r", "deviceClassName": "gpu", "count": 2}]}},
    )
    record = decode("ResourceClaim", raw(obj))
    assert record.claim.spec.devices.requests[0].exactly.device_class_name == "gpu"
    assert json.loads(record.raw)["apiVersion"] == "resource.k8s.io/v1"


def test_a_page_keeps_going_past_an_object_that_cannot_be_read():
    good = claim_object()
    bad = claim_object(spec={"devices": {"requests": 5}})
    body = raw(
        {
            "apiVersion": "resource.k8s.io/v1",
            "metadata": {"resourceVersion": "9", "continue": "t"},
            "items": [bad, good],
        }
    )
    page = decode_list(Kind.RESOURCE_CLAIM, body)
    assert [item.claim.key for item in page.items] == ["ns/c"]
    assert (page.resource_version, page.continue_token) == ("9", "t")
    assert [str(error) for error in page.refused] == [
        "ResourceClaim/ns/c: spec.devices.requests: expected a list, got a whole number"
    ]


def test_claims_of_a_page_own_their_bytes():
    body = raw({"metadata": {}, "items": [claim_object(), claim_object()]})
    page = decode_list(Kind.RESOURCE_CLAIM, body)
    assert all(type(item.raw) is bytes and len(item.raw) < len(body) // 2 for item in page.items)


def pod_object(phase: str, node: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"a": "b"},
            "annotations": {"long": "text"},
        },
        "spec": {
            "nodeName": node,
            "schedulerName": "s",
            "priority": 5,
            "containers": [
                {
                    "name": "main",
                    "resources": {"requests": {"cpu": "1"}},
                    "ports": [{"containerPort": 80, "hostPort": 80}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                }
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"a": "b"},
            "affinity": {"podAntiAffinity": {"x": []}},
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "2"}}],
        },
    }


def as_cached(pod: dict[str, Any]) -> list[Any]:
    """What reflectors make of it, listed and watched."""
    listed = page_decoder(Kind.POD, raw({"metadata": {}, "items": [pod]})).page()
    return [*listed.items, decode_event(Kind.POD, raw({"type": "ADDED", "object": pod})).object]


@pytest.mark.parametrize(
    ("phase", "node"), [("Pending", ""), ("Running", "n1"), ("Pending", "n1"), ("Failed", "n1")]
)
def test_pods_are_kept_without_what_nobody_asks_of_them(phase, node):
    body = raw({"metadata": {}, "items": [pod_object(phase, node)]})
    (whole,) = decode_list(Kind.POD, body).items
    for cached in as_cached(pod_object(phase, node)):
        assert cached.metadata.annotations is None
        assert cached.metadata.labels == {"a": "b"}
        assert (cached.key, cached.is_terminal) == (whole.key, whole.is_terminal)
        assert cached.spec.node_name == node
        assert cached.spec.resource_claims == whole.spec.resource_claims
        if phase == "Failed":
            assert cached.spec.containers is cached.status.container_statuses is None
            continue
        assert assigned_pod_requests(cached) == assigned_pod_requests(whole)
        assert host_ports(cached) == host_ports(whole)
        assert cached.spec.affinity == whole.spec.affinity
        is_waiting = not node
        assert (cached.spec == whole.spec) is is_waiting
        assert bool(cached.spec.volumes) is is_waiting
        assert bool(cached.spec.tolerations) is is_waiting
        assert bool(cached.status.conditions) is is_waiting


def test_nodes_are_kept_without_annotations():
    node = {"metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {"long": "text"}}}
    (cached,) = page_decoder(Kind.NODE, raw({"metadata": {}, "items": [node]})).page().items
    assert (cached.metadata.labels, cached.metadata.annotations) == ({"a": "b"}, None)


def test_equal_quantities_are_one_object():
    first, second = (as_cached(pod_object("Running", "n1"))[0] for _ in range(2))
    one, other = (each.spec.containers[0].resources.requests["cpu"] for each in (first, second))
    assert one is other


def test_a_page_decoded_in_steps_is_the_same_page():
    bad = claim_object(spec={"devices": {"requests": 5}})
    items = [claim_object(), bad, *[claim_object()] * 5]
    body = raw({"metadata": {"resourceVersion": "9"}, "items": items})
    size = len(raw(claim_object()))
    decoder = page_decoder(Kind.RESOURCE_CLAIM, body)
    steps = 1
    while decoder.step(2 * size - 1):
        steps += 1
    whole = decode_list(Kind.RESOURCE_CLAIM, body)
    assert steps >= 4
    assert decoder.page()[:3] == whole[:3]
    assert list(map(str, decoder.page().refused)) == list(map(str, whole.refused))


def test_items_of_an_old_list_take_its_version():
    item = {
        "metadata": {"name": "s"},
        "spec": {"devices": [{"name": "d", "basic": {"attributes": {"a": {"int": 1}}}}]},
    }
    body = raw({"apiVersion": "resource.k8s.io/v1beta1", "metadata": {}, "items": [item]})
    (decoded,) = decode_list(Kind.RESOURCE_SLICE, body).items
    assert type(decoded).__name__ == "ResourceSlice"
    assert decoded.spec.devices[0].attributes["a"].int_ == 1


def test_an_empty_page_may_say_null():
    assert decode_list(Kind.POD, b'{"metadata":{"resourceVersion":"1"},"items":null}').items == []


@pytest.mark.parametrize("body", [b"", b"[]", b'{"items":3}'])
def test_a_body_that_is_no_list_is_an_error(body):
    with pytest.raises(DecodeError, match="PodList"):
        decode_list(Kind.POD, body)


def test_events_carry_object_and_version():
    event = decode_event(Kind.RESOURCE_CLAIM, raw({"type": "ADDED", "object": claim_object()}))
    assert (event.type, event.object.claim.key, event.resource_version) == ("ADDED", "ns/c", "7")


def test_a_bookmark_carries_only_the_version():
    event = decode_event(
        Kind.POD,
        raw({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "12"}}}),
    )
    assert (event.type, event.object, event.resource_version) == ("BOOKMARK", None, "12")


def test_an_error_event_carries_the_status():
    event = decode_event(
        Kind.POD,
        raw(
            {
                "type": "ERROR",
                "object": {
                    "kind": "Status",
                    "code": 410,
                    "reason": "Expired",
                    "message": "too old",
                },
            }
        ),
    )
    assert (event.status.code, event.status.reason) == (410, "Expired")


def test_an_allocation_is_encoded_without_absent_fields():
    obj = claim_object(
        status={
            "allocation": {
                "devices": {
                    "results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]
                }
            }
        }
    )
    record = decode("ResourceClaim", raw(obj))
    assert allocation_tree(record.claim.status.allocation) == {
        "devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}
    }


def test_opaque_parameters_keep_their_text():
    parameters = {"driver": "d", "parameters": {"ratio": 0.10, "big": 12345678901234567890123}}
    obj = claim_object(
        status={
            "allocation": {"devices": {"config": [{"source": "FromClaim", "opaque": parameters}]}}
        }
    )
    text = raw(obj).replace(b"0.1,", b"0.100,")
    record = decode("ResourceClaim", text)
    raw_parameters = record.claim.status.allocation.devices.config[0].opaque.parameters
    assert bytes(raw_parameters) == b'{"ratio": 0.100, "big": 12345678901234567890123}'
