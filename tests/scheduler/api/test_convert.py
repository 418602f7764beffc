"""Older versions become v1, and what the API server fills in and drops."""

import copy

import pytest

from allocator.features import Features
from scheduler.api.convert import UnknownVersionError, to_v1
from scheduler.api.defaults import with_defaults, without_disabled_fields


def claim(version, *requests, kind="ResourceClaim"):
    spec = {"devices": {"requests": list(requests), "constraints": [{"matchAttribute": "d/a"}]}}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": "c"},
        "spec": {"spec": spec} if kind.endswith("Template") else spec,
    }


def requests_of(obj):
    spec = obj["spec"]
    return spec.get("spec", spec)["devices"]["requests"]


def test_flat_request_fields_move_under_exactly_and_the_input_stays():
    old = claim("v1beta1", {"name": "r", "deviceClassName": "gpu", "count": 2, "unknown": 1})
    before = copy.deepcopy(old)
    assert requests_of(to_v1("ResourceClaim", old)) == [
        {"name": "r", "unknown": 1, "exactly": {"deviceClassName": "gpu", "count": 2}}
    ]
    assert old == before


def test_templates_are_converted_one_level_deeper():
    old = claim("v1beta1", {"name": "r", "deviceClassName": "gpu"}, kind="ResourceClaimTemplate")
    assert requests_of(to_v1("ResourceClaimTemplate", old)) == [
        {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    ]


def test_first_available_stays_where_it_is():
    request = {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}
    assert requests_of(to_v1("ResourceClaim", claim("v1beta1", request))) == [request]


def test_both_forms_in_one_request_survive_for_validation_to_refuse():
    request = {"name": "r", "deviceClassName": "gpu", "firstAvailable": [{"name": "a"}]}
    (converted,) = requests_of(to_v1("ResourceClaim", claim("v1beta1", request)))
    assert set(converted) == {"name", "exactly", "firstAvailable"}


def test_basic_is_flattened_and_may_be_missing():
    old = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceSlice",
        "spec": {
            "nodeName": "",
            "allNodes": False,
            "devices": [{"name": "a", "basic": {"attributes": {"x": {"int": 1}}}}, {"name": "b"}],
        },
    }
    assert to_v1("ResourceSlice", old)["spec"] == {
        "devices": [{"name": "a", "attributes": {"x": {"int": 1}}}, {"name": "b"}]
    }


def test_v1beta2_only_changes_its_version():
    old = claim("v1beta2", {"name": "r", "exactly": {"deviceClassName": "gpu"}})
    assert to_v1("ResourceClaim", old) == {**old, "apiVersion": "resource.k8s.io/v1"}


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta2", "v1"])
def test_taint_rules_exist_in_three_versions(version):
    rule = {"apiVersion": f"resource.k8s.io/{version}", "kind": "DeviceTaintRule", "spec": {}}
    assert to_v1("DeviceTaintRule", rule)["apiVersion"] == "resource.k8s.io/v1"


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("ResourceSlice", "resource.k8s.io/v1alpha3"),
        ("Pod", "v2"),
        ("DeviceTaintRule", "resource.k8s.io/v1beta1"),
    ],
)
def test_an_unknown_version_is_refused(kind, version):
    with pytest.raises(UnknownVersionError, match="has no version"):
        to_v1(kind, {"apiVersion": version})


@pytest.mark.parametrize(
    "spec", [None, "x", {"devices": 3}, {"devices": {"requests": [3, None]}}, {"devices": [1]}]
)
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceSlice"])
def test_values_of_the_wrong_type_pass_through_for_decoding_to_report(kind, spec):
    obj = {"apiVersion": "resource.k8s.io/v1beta1", "spec": spec}
    converted = to_v1(kind, obj)
    assert converted["spec"] == spec
    with_defaults(kind, converted)
    without_disabled_fields(kind, converted, Features())


def test_mode_count_and_operator_get_their_defaults():
    obj = claim(
        "v1",
        {"name": "r", "exactly": {"deviceClassName": "g", "tolerations": [{"key": "k"}]}},
        {
            "name": "s",
            "firstAvailable": [{"name": "a", "allocationMode": "All"}, {"name": "b", "count": 0}],
        },
    )
    first, second = requests_of(with_defaults("ResourceClaim", obj))
    assert first["exactly"] == {
        "deviceClassName": "g",
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "k", "operator": "Equal"}],
    }
    assert second["firstAvailable"] == [
        {"name": "a", "allocationMode": "All"},
        {"name": "b", "allocationMode": "ExactCount", "count": 1},
    ]


DEVICE = {
    "name": "d",
    "attributes": {"a": {"ints": [1]}, "b": {"int": 1}},
    "capacity": {"c": {"value": "1", "requestPolicy": {}}},
    "consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["g"]}],
    "taints": [{"key": "k"}],
    "bindsToNode": True,
    "bindingConditions": ["a"],
    "allowMultipleAllocations": True,
    "nodeAllocatableResources": {"cpu": {}},
}


@pytest.mark.parametrize(
    ("flag", "gone"),
    [
        ("device_taints", {"taints"}),
        ("consumable_capacity", {"allowMultipleAllocations"}),
        ("device_binding_conditions", {"bindsToNode", "bindingConditions"}),
        ("resource_claim_device_status", {"bindsToNode", "bindingConditions"}),
        ("partitionable_devices", {"consumesCounters"}),
        ("node_allocatable_resources", {"nodeAllocatableResources"}),
    ],
)
def test_fields_of_a_disabled_gate_are_dropped(flag, gone):
    everything = Features(
        list_type_attributes=True, device_compatibility_groups=True, node_allocatable_resources=True
    )
    obj = {"kind": "ResourceSlice", "spec": {"devices": [DEVICE]}}
    assert without_disabled_fields("ResourceSlice", obj, everything) == obj
    pruned = without_disabled_fields("ResourceSlice", obj, everything.with_gates(**{flag: False}))
    assert set(DEVICE) - set(pruned["spec"]["devices"][0]) == gone


def test_lists_policies_and_groups_are_dropped_inside_devices():
    obj = {"kind": "ResourceSlice", "spec": {"devices": [DEVICE]}}
    features = Features(consumable_capacity=False)
    device = without_disabled_fields("ResourceSlice", obj, features)["spec"]["devices"][0]
    assert device["attributes"] == {"a": {}, "b": {"int": 1}}
    assert device["capacity"] == {"c": {"value": "1"}}
    assert device["consumesCounters"] == [{"counterSet": "s"}]


def test_claim_fields_of_disabled_gates_are_dropped():
    off = Features(
        admin_access=False, device_taints=False, consumable_capacity=False, prioritized_list=False
    )
    obj = claim(
        "v1",
        {
            "name": "r",
            "exactly": {"adminAccess": True, "tolerations": [], "capacity": {}, "count": 1},
        },
        {"name": "s", "firstAvailable": [{"name": "a"}]},
    )
    obj["spec"]["devices"]["constraints"] = [{"distinctAttribute": "d/a"}]
    pruned = without_disabled_fields("ResourceClaim", obj, off)
    assert requests_of(pruned) == [{"name": "r", "exactly": {"count": 1}}, {"name": "s"}]
    assert pruned["spec"]["devices"]["constraints"] == [{}]
