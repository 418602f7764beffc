"""ResourceClaims, templates and allocation results in the shape of `resource.k8s.io/v1`.

Source: k8s.io/api/resource/v1/types.go; KEP-4381, 4816 (firstAvailable), 5018 (admin access).
"""

import msgspec

from allocator.model.devices import DeviceID, DeviceSelector, OpaqueDeviceConfiguration
from allocator.model.meta import ApiStruct, ObjectMeta
from allocator.model.nodes import NodeSelector
from allocator.quantity import Quantity


class DeviceToleration(ApiStruct, frozen=True, kw_only=True):
    """Tolerates taints with this key, operator, value and effect; empty fields match more."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(ApiStruct, frozen=True, kw_only=True):
    """How much of each capacity a request consumes; names are compared as raw keys."""

    requests: dict[str, Quantity] | None = None


class DeviceDerivedAttribute(ApiStruct, frozen=True, kw_only=True):
    """An attribute computed by CEL, seen only by constraints of its own request."""

    name: str = ""
    expression: str = ""


class ExactDeviceRequest(ApiStruct, frozen=True, kw_only=True):
    """A request for devices of one class."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] | None = None


class DeviceSubRequest(ApiStruct, frozen=True, kw_only=True):
    """One alternative of a `firstAvailable` request."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] | None = None


class DeviceRequest(ApiStruct, frozen=True, kw_only=True):
    """A named request: exactly one of `exactly` and `first_available` is set in a valid claim."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] | None = None


class DeviceConstraint(ApiStruct, frozen=True, kw_only=True):
    """What the devices of some (or all) requests must have in common, or must not."""

    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Configuration for the devices of some (or all) requests."""

    requests: tuple[str, ...] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(ApiStruct, frozen=True, kw_only=True):
    """Requests, constraints and configuration of a claim."""

    requests: tuple[DeviceRequest, ...] | None = None
    constraints: tuple[DeviceConstraint, ...] | None = None
    config: tuple[DeviceClaimConfiguration, ...] | None = None


class ResourceClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """What is claimed."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(ApiStruct, frozen=True, kw_only=True):
    """One device for one request; `request` is `name` or `name/alternative`."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] | None = None
    skip_node_operations: tuple[str, ...] | None = None

    @property
    def device_id(self) -> DeviceID:
        """The device in the cluster."""
        return DeviceID(self.driver, self.pool, self.device)


class DeviceAllocationConfiguration(ApiStruct, frozen=True, kw_only=True):
    """A configuration that applies to an allocation; `source` is FromClass or FromClaim."""

    source: str = ""
    requests: tuple[str, ...] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(ApiStruct, frozen=True, kw_only=True):
    """The devices of a claim."""

    results: tuple[DeviceRequestAllocationResult, ...] | None = None
    config: tuple[DeviceAllocationConfiguration, ...] | None = None


class AllocationResult(ApiStruct, frozen=True, kw_only=True):
    """`status.allocation`: devices and the nodes that can reach them (no selector: all nodes)."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(ApiStruct, frozen=True, kw_only=True):
    """A pod (or PodGroup) that may use a claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class Condition(ApiStruct, frozen=True, kw_only=True):
    """A condition of an object or an allocated device."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class AllocatedDeviceStatus(ApiStruct, frozen=True, kw_only=True):
    """What the driver says of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] | None = None


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """The allocation of a claim and who may use it."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] | None = None
    devices: tuple[AllocatedDeviceStatus, ...] | None = None


class ResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """A claim for devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class ResourceClaimTemplateSpec(ApiStruct, frozen=True, kw_only=True):
    """Metadata and spec for the claims made from a template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(ApiStruct, frozen=True, kw_only=True):
    """A pattern for claims, one for each pod that names it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
