"""ResourceSlices, DeviceClasses and DeviceTaintRules in the shape of `resource.k8s.io/v1`.

Source: k8s.io/api/resource/v1/types.go; KEP-4381, 4815 (counters), 5055 (taints), 5075 (capacity), 5007 (binding).
"""

from typing import Any, NamedTuple

import msgspec

from allocator.model.meta import ApiStruct, ObjectMeta
from allocator.model.nodes import NodeSelector
from allocator.quantity import Quantity


class PoolID(NamedTuple):
    """A pool: two drivers may use the same pool name."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


class DeviceID(NamedTuple):
    """A device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"

    @property
    def pool_id(self) -> PoolID:
        """The pool it is in."""
        return PoolID(self.driver, self.pool)


class DeviceAttribute(ApiStruct, frozen=True, kw_only=True):
    """One value of one type; exactly one field is set in a valid object."""

    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRequestPolicyRange(ApiStruct, frozen=True, kw_only=True):
    """Consumption must be min + n*step, at most max."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(ApiStruct, frozen=True, kw_only=True):
    """How a capacity may be consumed."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(ApiStruct, frozen=True, kw_only=True):
    """A capacity of a device: its total value, never reduced by consumption."""

    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class Counter(ApiStruct, frozen=True, kw_only=True):
    """An amount in a counter set, or taken from one."""

    value: Quantity


class CounterSet(ApiStruct, frozen=True, kw_only=True):
    """Counters that the devices of one pool share."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class DeviceCounterConsumption(ApiStruct, frozen=True, kw_only=True):
    """What a device takes from one counter set of its pool."""

    counter_set: str = ""
    counters: dict[str, Counter] | None = None
    compatibility_groups: tuple[str, ...] | None = None


class DeviceTaint(ApiStruct, frozen=True, kw_only=True):
    """Keeps claims without a toleration away; effects None, NoSchedule, NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeAllocatableMapping(ApiStruct, frozen=True, kw_only=True):
    """Node resources that a device provides, by consumed capacity or by device."""

    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class NodeAllocatableOverhead(ApiStruct, frozen=True, kw_only=True):
    """Node resources that using a device costs."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(ApiStruct, frozen=True, kw_only=True):
    """How a device counts in one resource of its node."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(ApiStruct, frozen=True, kw_only=True):
    """A device as its driver publishes it."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: tuple[DeviceCounterConsumption, ...] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableResource] | None = None
    node_allocatable_resource_mappings: Any = None  # the same in the words of 1.36, only noticed

    @property
    def counts_for_node(self) -> bool:
        """Whether it counts in resources of its node, where the feature gate lets it."""
        return bool(self.node_allocatable_resources or self.node_allocatable_resource_mappings)


class ResourcePool(ApiStruct, frozen=True, kw_only=True):
    """Which pool a slice is part of, and how many slices that pool has in this generation."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(ApiStruct, frozen=True, kw_only=True):
    """Devices or shared counters of one pool, and the nodes that can reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] | None = None
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] | None = None


class ResourceSlice(ApiStruct, frozen=True, kw_only=True):
    """A part of a pool."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()

    @property
    def pool_id(self) -> PoolID:
        """The pool this slice is part of."""
        return PoolID(self.spec.driver, self.spec.pool.name)


class CELDeviceSelector(ApiStruct, frozen=True, kw_only=True):
    """A CEL expression over `device`."""

    expression: str = ""


class DeviceSelector(ApiStruct, frozen=True, kw_only=True):
    """One criterion; `cel` is the only kind there is."""

    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Parameters that only the driver understands; kept as the JSON text they came in."""

    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class DeviceClassConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Configuration for every device allocated through a class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(ApiStruct, frozen=True, kw_only=True):
    """Selectors and configuration of a class."""

    selectors: tuple[DeviceSelector, ...] | None = None
    config: tuple[DeviceClassConfiguration, ...] | None = None
    extended_resource_name: str | None = None


class DeviceClass(ApiStruct, frozen=True, kw_only=True):
    """A kind of device that claims can ask for."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceTaintSelector(ApiStruct, frozen=True, kw_only=True):
    """Every field that is set must be equal; no field set selects every device."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiStruct, frozen=True, kw_only=True):
    """A taint for the devices a selector names; without selector it applies to none."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(ApiStruct, frozen=True, kw_only=True):
    """A taint that an administrator adds from outside."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
