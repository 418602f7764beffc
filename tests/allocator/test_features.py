"""Feature gates by version, and which of upstream's allocators a cluster runs."""

import pytest

from allocator.features import GATES, VERSIONS, FeatureGateError, Features, minor_version

# As upstream's list of gates has them: 1.34, 1.35, 1.36, 1.37.
STAGES = """
DynamicResourceAllocation                    GA+  GA_L  GA_L  GA_L
DRAAdminAccess                               B+   B+    GA_L  GA_L
DRAPrioritizedList                           B+   B+    GA+   GA_L
DRAPartitionableDevices                      A-   A-    B+    B+
DRADeviceTaints                              A-   A-    B+    GA+
DRADeviceTaintRules                          .    A-    B-    GA+
DRAConsumableCapacity                        A-   A-    B+    B+
DRAFractionalCapacityRange                   .    .     .     B-
DRADeviceBindingConditions                   A-   A-    B+    B+
DRAResourceClaimDeviceStatus                 B+   B+    B+    GA_L
DRAListTypeAttributes                        .    .     A-    A-
DRADerivedAttributes                         .    .     .     A-
DRADeviceCompatibilityGroups                 .    .     .     A-
DRAOptionalNodeOperations                    .    .     .     A-
DRAPartitionableDevicesType                  .    .     .     A-
DRANodeAllocatableResources                  .    .     A-    A-
DRAExtendedResource                          A-   A-    B+    GA_L
DRASchedulerFilterTimeout                    B+   B+    B+    B+
DRAWorkloadResourceClaims                    .    .     A-    B-
DRAResourceClaimGranularStatusAuthorization  .    .     B+    B+
"""


def test_every_gate_has_upstreams_stage_and_default_in_every_version() -> None:
    expected = {
        name: [text.replace("_", " ").replace(".", "") for text in stages]
        for name, *stages in (line.split() for line in STAGES.split("\n") if line)
    }
    assert {
        gate.name: [gate.stages.get(version, "") for version in VERSIONS] for gate in GATES
    } == expected
    for gate in GATES:
        for version, stage in zip(VERSIONS, expected[gate.name], strict=True):
            is_on = stage != "" and not stage.endswith("-")
            assert gate.default(version) is is_on
            if gate.field:
                assert getattr(Features.for_version(version), gate.field) is is_on


def test_gates_that_decide_nothing_about_devices_are_accepted() -> None:
    gates = {"DynamicResourceAllocation": True, "DRAWorkloadResourceClaims": True}
    assert Features.for_version("1.37", gates) == Features()
    with pytest.raises(FeatureGateError, match="locked on"):
        Features.for_version("1.37", {"DynamicResourceAllocation": False})


@pytest.mark.parametrize(
    ("version", "on", "off"),
    [
        (
            "1.34",
            {"DRAAdminAccess", "DRAPrioritizedList"},
            {"DRAPartitionableDevices", "DRADeviceTaints"},
        ),
        ("1.35", {"DRAAdminAccess"}, {"DRADeviceTaintRules", "DRAConsumableCapacity"}),
        ("1.36", {"DRADeviceTaints", "DRAConsumableCapacity"}, {"DRADeviceTaintRules"}),
        (
            "1.37",
            {"DRADeviceTaintRules", "DRAExtendedResource"},
            {"DRAFractionalCapacityRange", "DRAListTypeAttributes"},
        ),
    ],
)
def test_defaults_are_those_of_the_version(version: str, on, off) -> None:
    features = Features.for_version(version)
    fields = {gate.name: gate.field for gate in GATES}

    assert all(getattr(features, fields[name]) for name in on)
    assert not any(getattr(features, fields[name]) for name in off)


def test_the_newest_version_is_the_default() -> None:
    assert Features.for_version("1.37") == Features()


@pytest.mark.parametrize(
    ("features", "implementation"),
    [
        (Features.for_version("1.34"), "stable"),
        (Features.for_version("1.35"), "stable"),
        (Features.for_version("1.36"), "incubating"),
        (Features(), "incubating"),
        (Features(consumable_capacity=False), "incubating"),
        (Features(consumable_capacity=False, device_binding_conditions=False), "stable"),
        (
            Features(
                consumable_capacity=False,
                resource_claim_device_status=False,
                fractional_capacity_range=True,
            ),
            "incubating",
        ),
        (Features(list_type_attributes=True), "experimental"),
        (Features(derived_attributes=True), "experimental"),
        (Features(device_compatibility_groups=True), "experimental"),
        (Features(optional_node_operations=True), "experimental"),
    ],
)
def test_the_gates_select_the_allocator(features: Features, implementation: str) -> None:
    assert features.implementation == implementation


def test_gates_are_set_by_upstreams_names() -> None:
    features = Features.for_version("v1.37.2", {"DRAListTypeAttributes": True})

    assert features.list_type_attributes
    assert not features.with_gates(list_type_attributes=False).list_type_attributes


@pytest.mark.parametrize(
    ("version", "gates", "text"),
    [
        ("1.37", {"DRANonsense": True}, "unknown feature gate"),
        ("1.34", {"DRADerivedAttributes": True}, "does not exist in 1.34"),
        ("1.37", {"DRAAdminAccess": False}, "locked on in 1.37"),
        ("1.99", {}, "unknown Kubernetes version"),
    ],
)
def test_a_gate_that_cannot_be_set_is_an_error(version: str, gates, text: str) -> None:
    with pytest.raises(FeatureGateError, match=text):
        Features.for_version(version, gates)


def test_a_gate_that_a_version_does_not_know_may_be_off() -> None:
    assert not Features.for_version("1.34", {"DRADerivedAttributes": False}).derived_attributes


@pytest.mark.parametrize("text", ["1.37", "v1.37.2", "1.37+", "v1.37.0-alpha.1"])
def test_versions_are_reduced_to_the_minor_one(text: str) -> None:
    assert minor_version(text) == "1.37"
