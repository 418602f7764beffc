"""Feature gates: one flag for every optional rule, under upstream's gate name, with defaults by Kubernetes version.

Source: pkg/features/kube_features.go; the table in docs/reference/features.md is generated from `GATES`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Self

VERSIONS: Final = ("1.34", "1.35", "1.36", "1.37")
LATEST_VERSION: Final = "1.37"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate.

    Attributes:
        name: upstream's name.
        field: the flag of `Features` it sets; empty: nothing here depends on it.
        stages: version -> "A-", "B+", "GA", "GA L" (L: locked on); a version without entry does not know the gate.
        what: the feature in a few words.
    """

    name: str
    field: str
    stages: Mapping[str, str]
    what: str

    def default(self, version: str) -> bool:
        """Whether the gate is on by default in this version (minor, e.g. `1.37`)."""
        stage = self.stages.get(version, "")
        return (stage.startswith("GA") and not stage.endswith("-")) or stage.endswith("+")


def _stages(*values: str) -> dict[str, str]:
    return {version: value for version, value in zip(VERSIONS, values, strict=True) if value}


GATES: Final[tuple[Gate, ...]] = (
    Gate("DRAAdminAccess", "admin_access", _stages("B+", "B+", "GA L", "GA L"), "Admin access"),
    Gate(
        "DRAPrioritizedList",
        "prioritized_list",
        _stages("B+", "B+", "GA+", "GA L"),
        "Prioritized list",
    ),
    Gate(
        "DRAPartitionableDevices",
        "partitionable_devices",
        _stages("A-", "A-", "B+", "B+"),
        "Partitionable devices",
    ),
    Gate("DRADeviceTaints", "device_taints", _stages("A-", "A-", "B+", "GA+"), "Device taints"),
    Gate(
        "DRADeviceTaintRules",
        "device_taint_rules",
        _stages("", "A-", "B-", "GA+"),
        "Device taint rules",
    ),
    Gate(
        "DRAConsumableCapacity",
        "consumable_capacity",
        _stages("A-", "A-", "B+", "B+"),
        "Consumable capacity",
    ),
    # Its beta default depends on the minimum compatibility version, which is 1.36 in a stock 1.37 binary: off.
    Gate(
        "DRAFractionalCapacityRange",
        "fractional_capacity_range",
        _stages("", "", "", "B-"),
        "Fractional capacity ranges",
    ),
    Gate(
        "DRADeviceBindingConditions",
        "device_binding_conditions",
        _stages("A-", "A-", "B+", "B+"),
        "Binding conditions",
    ),
    Gate(
        "DRAResourceClaimDeviceStatus",
        "resource_claim_device_status",
        _stages("B+", "B+", "B+", "GA L"),
        "Claim device status",
    ),
    Gate(
        "DRAListTypeAttributes",
        "list_type_attributes",
        _stages("", "", "A-", "A-"),
        "List attributes",
    ),
    Gate(
        "DRADerivedAttributes",
        "derived_attributes",
        _stages("", "", "", "A-"),
        "Derived attributes",
    ),
    Gate(
        "DRADeviceCompatibilityGroups",
        "device_compatibility_groups",
        _stages("", "", "", "A-"),
        "Compatibility groups",
    ),
    Gate(
        "DRAOptionalNodeOperations",
        "optional_node_operations",
        _stages("", "", "", "A-"),
        "Optional node operations",
    ),
    Gate(
        "DRAPartitionableDevicesType",
        "partitionable_devices_type",
        _stages("", "", "", "A-"),
        "Partition type attribute",
    ),
    Gate(
        "DRANodeAllocatableResources",
        "node_allocatable_resources",
        _stages("", "", "A-", "A-"),
        "Node-allocatable resources",
    ),
    Gate(
        "DRAExtendedResource",
        "extended_resource",
        _stages("A-", "A-", "B+", "GA L"),
        "Extended resources",
    ),
    # Known, so that a kube-scheduler's gates can be handed over as they are; they decide nothing about devices.
    Gate("DynamicResourceAllocation", "", _stages("GA+", "GA L", "GA L", "GA L"), "Structured DRA"),
    Gate("DRASchedulerFilterTimeout", "", _stages("B+", "B+", "B+", "B+"), "Filter timeout"),
    Gate("DRAWorkloadResourceClaims", "", _stages("", "", "A-", "B-"), "PodGroup claims"),
    Gate(
        "DRAResourceClaimGranularStatusAuthorization",
        "",
        _stages("", "", "B+", "B+"),
        "Status write authorization",
    ),
)
_BY_NAME: Final = {gate.name: gate for gate in GATES}


class FeatureGateError(ValueError):
    """A gate or version is unknown, or a locked gate would be changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Which optional rules apply. Defaults: those of the newest version."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    device_taint_rules: bool = True
    consumable_capacity: bool = True
    fractional_capacity_range: bool = False
    device_binding_conditions: bool = True
    resource_claim_device_status: bool = True
    list_type_attributes: bool = False
    derived_attributes: bool = False
    device_compatibility_groups: bool = False
    optional_node_operations: bool = False
    partitionable_devices_type: bool = False
    node_allocatable_resources: bool = False
    extended_resource: bool = True

    @classmethod
    def for_version(cls, version: str, overrides: Mapping[str, bool] | None = None) -> Self:
        """Defaults of a Kubernetes version (`1.37` or `v1.37.2`), changed by gate name.

        Raises:
            FeatureGateError: unknown version or gate, or a gate this version does not have or has locked on.
        """
        minor = minor_version(version)
        values = {gate.field: gate.default(minor) for gate in GATES if gate.field}
        for name, on in (overrides or {}).items():
            gate = _BY_NAME.get(name)
            if gate is None:
                raise FeatureGateError(f"unknown feature gate {name!r}")
            stage = gate.stages.get(minor)
            if stage is None and on:
                raise FeatureGateError(f"feature gate {name} does not exist in {minor}")
            if stage is not None and stage.endswith("L") and not on:
                raise FeatureGateError(f"feature gate {name} is locked on in {minor}")
            if gate.field:
                values[gate.field] = on
        return cls(**values)

    @property
    def binding(self) -> bool:
        """Binding conditions need two gates."""
        return self.device_binding_conditions and self.resource_claim_device_status

    @property
    def implementation(self) -> str:
        """Which of upstream's allocators such a cluster runs: stable, incubating or experimental."""
        if (
            self.list_type_attributes
            or self.derived_attributes
            or self.device_compatibility_groups
            or self.optional_node_operations
        ):
            return "experimental"
        if self.consumable_capacity or self.fractional_capacity_range or self.binding:
            return "incubating"
        return "stable"

    def with_gates(self, **flags: bool) -> Self:
        """The same with some flags (field names) changed."""
        return replace(self, **flags)


def minor_version(version: str) -> str:
    """Reduce `v1.37.2`, `1.37+` or `1.37` to `1.37`.

    Raises:
        FeatureGateError: not a version this scheduler knows.
    """
    parts = version.lstrip("v").split(".")
    minor = ".".join(parts[:2]).rstrip("+")
    if minor not in VERSIONS:
        raise FeatureGateError(
            f"unknown Kubernetes version {version!r}; known: {', '.join(VERSIONS)}"
        )
    return minor


_FIELDS: Final = {field.name for field in fields(Features)}
if {gate.field for gate in GATES} - {""} != _FIELDS:
    raise AssertionError("every flag needs a gate and every flag of a gate must be there")


def feature_table() -> str:
    """The version x feature table of docs/reference/features.md, in Markdown; a test compares the two."""
    lines = [
        f"| Feature | Gate | {' | '.join(VERSIONS)} |",
        f"|---|---|{'---|' * len(VERSIONS)}",
    ]
    for gate in GATES:
        stages = " | ".join(gate.stages.get(version, "") or " " for version in VERSIONS)
        lines.append(f"| {gate.what} | `{gate.name}` | {stages} |")
    return "\n".join(lines) + "\n"
