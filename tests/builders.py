"""Builders: the shortest sentence that makes a real, frozen API object. What a test does not mention has a default."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from allocator.model.claims import (
    AllocationResult,
    CapacityRequirements,
    DeviceAllocationResult,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceDerivedAttribute,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from allocator.model.devices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CELDeviceSelector,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceCounterConsumption,
    DeviceID,
    DeviceSelector,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
    OpaqueDeviceConfiguration,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from allocator.model.meta import ObjectMeta
from allocator.model.nodes import (
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from allocator.quantity import Quantity
from allocator.snapshot import AllocatedState, SliceIndex, Snapshot

GPU_DRIVER = "gpu.example.com"
NIC_DRIVER = "nic.example.com"
GPU_CLASS = "gpu"
NODE = "node-1"

Scalar = str | int | bool
Value = Scalar | DeviceAttribute | Sequence[Scalar]


# Quantities, attributes, capacities


def quantity(text: str | int) -> Quantity:
    return Quantity.parse(str(text))


def attribute(value: Value) -> DeviceAttribute:
    """An attribute of the type of the value; lists make list attributes, `version(...)` makes versions."""
    if isinstance(value, DeviceAttribute):
        return value
    if isinstance(value, bool):
        return DeviceAttribute(bool_=value)
    if isinstance(value, int):
        return DeviceAttribute(int_=value)
    if isinstance(value, str):
        return DeviceAttribute(string=value)
    field = {bool: "bools", int: "ints", str: "strings"}[type(value[0]) if value else str]
    return DeviceAttribute(**{field: tuple(value)})  # type: ignore[arg-type]


def version(text: str) -> DeviceAttribute:
    return DeviceAttribute(version=text)


def versions(*texts: str) -> DeviceAttribute:
    return DeviceAttribute(versions=texts)


def capacity(value: str | int, policy: CapacityRequestPolicy | None = None) -> DeviceCapacity:
    return DeviceCapacity(value=quantity(value), request_policy=policy)


def valid_range(
    minimum: str | int | None = None,
    maximum: str | int | None = None,
    step: str | int | None = None,
    default: str | int | None = None,
) -> CapacityRequestPolicy:
    return CapacityRequestPolicy(
        default=_maybe(default),
        valid_range=CapacityRequestPolicyRange(
            min=_maybe(minimum), max=_maybe(maximum), step=_maybe(step)
        ),
    )


def valid_values(*values: str | int, default: str | int | None = None) -> CapacityRequestPolicy:
    return CapacityRequestPolicy(
        default=_maybe(default), valid_values=tuple(quantity(value) for value in values)
    )


def _maybe(text: str | int | None) -> Quantity | None:
    return None if text is None else quantity(text)


# Devices and slices


def device(
    name: str,
    /,
    *,
    capacity: Mapping[str, str | int | DeviceCapacity] | None = None,
    consumes: Sequence[DeviceCounterConsumption] | None = None,
    taints: Sequence[DeviceTaint] | None = None,
    shareable: bool | None = None,
    node: str | None = None,
    selector: NodeSelector | None = None,
    all_nodes: bool | None = None,
    binds_to_node: bool | None = None,
    conditions: Sequence[str] | None = None,
    failures: Sequence[str] | None = None,
    attributes: Mapping[str, Value] | None = None,
    **more: Value,
) -> Device:
    """A device; other keyword arguments are attributes of the driver's domain."""
    every = {**(attributes or {}), **more}
    return Device(
        name=name,
        attributes={key: attribute(value) for key, value in every.items()} or None,
        capacity=None
        if capacity is None
        else {
            key: value
            if isinstance(value, DeviceCapacity)
            else DeviceCapacity(value=quantity(value))
            for key, value in capacity.items()
        },
        consumes_counters=None if consumes is None else tuple(consumes),
        taints=None if taints is None else tuple(taints),
        allow_multiple_allocations=shareable,
        node_name=node,
        node_selector=selector,
        all_nodes=all_nodes,
        binds_to_node=binds_to_node,
        binding_conditions=None if conditions is None else tuple(conditions),
        binding_failure_conditions=None if failures is None else tuple(failures),
    )


def mapped(
    *, key: str | None = None, times: str | None = None, each: str | None = None
) -> NodeAllocatableResource:
    """A device stands for this much of a resource of its node: a multiple of a capacity, or so much each."""
    return NodeAllocatableResource(
        mapping=NodeAllocatableMapping(
            capacity_key=key, capacity_multiplier=_maybe(times), device_multiplier=_maybe(each)
        )
    )


def costs(pod: str | None = None, container: str | None = None) -> NodeAllocatableResource:
    """The use of a device costs this much of a resource of its node."""
    return NodeAllocatableResource(
        overhead=NodeAllocatableOverhead(per_pod=_maybe(pod), per_container=_maybe(container))
    )


def counting(card: Device, /, **resources: NodeAllocatableResource) -> Device:
    """The device, counting in resources of its node: `counting(device("cpu-0"), cpu=mapped(each="8"))`."""
    return msgspec.structs.replace(card, node_allocatable_resources=resources or None)


def consumes(
    counter_set: str, /, groups: Sequence[str] | None = None, **counters: str | int
) -> DeviceCounterConsumption:
    """Counters taken from one set: `consumes("card", memory="8Gi")`."""
    return DeviceCounterConsumption(
        counter_set=counter_set,
        counters={name: Counter(value=quantity(value)) for name, value in counters.items()},
        compatibility_groups=None if groups is None else tuple(groups),
    )


def counter_set(name: str, /, **counters: str | int) -> CounterSet:
    return CounterSet(
        name=name,
        counters={key: Counter(value=quantity(value)) for key, value in counters.items()},
    )


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> DeviceTaint:
    return DeviceTaint(key=key, value=value, effect=effect)


def toleration(
    key: str = "",
    value: str = "",
    effect: str = "",
    operator: str = "Equal",
    seconds: int | None = None,
) -> DeviceToleration:
    return DeviceToleration(
        key=key, value=value, effect=effect, operator=operator, toleration_seconds=seconds
    )


def taint_rule(
    name: str,
    taint: DeviceTaint,
    *,
    driver: str | None = None,
    pool: str | None = None,
    device: str | None = None,
    selects: bool = True,
) -> DeviceTaintRule:
    selector = DeviceTaintSelector(driver=driver, pool=pool, device=device) if selects else None
    return DeviceTaintRule(
        metadata=ObjectMeta(name=name),
        spec=DeviceTaintRuleSpec(device_selector=selector, taint=taint),
    )


def resource_slice(
    name: str,
    /,
    *devices: Device,
    pool: str = "pool-1",
    driver: str = GPU_DRIVER,
    node: str | None = NODE,
    generation: int = 1,
    count: int = 1,
    selector: NodeSelector | None = None,
    all_nodes: bool | None = None,
    per_device: bool | None = None,
    counters: Sequence[CounterSet] | None = None,
    skips: Sequence[str] | None = None,
) -> ResourceSlice:
    """A slice, local to `NODE` unless it says which other nodes it is for."""
    elsewhere = selector is not None or all_nodes is not None or per_device is not None
    return ResourceSlice(
        metadata=ObjectMeta(name=name),
        spec=ResourceSliceSpec(
            driver=driver,
            pool=ResourcePool(name=pool, generation=generation, resource_slice_count=count),
            node_name=None if elsewhere else node,
            node_selector=selector,
            all_nodes=all_nodes,
            per_device_node_selection=per_device,
            devices=devices or None,
            shared_counters=None if counters is None else tuple(counters),
            skip_node_operations=None if skips is None else tuple(skips),
        ),
    )


def gpu_slice(
    node: str, /, *names: str, memory: str | None = None, **attributes: Value
) -> ResourceSlice:
    """The slice of a node whose pool has the node's name, with equal GPUs."""
    return resource_slice(
        f"{node}-gpus",
        *(
            device(
                name,
                capacity=None if memory is None else {"memory": memory},
                attributes=attributes,
            )
            for name in names
        ),
        pool=node,
        node=node,
    )


# Classes, requests, claims


def selectors(*expressions: str) -> tuple[DeviceSelector, ...] | None:
    return tuple(DeviceSelector(cel=CELDeviceSelector(expression=e)) for e in expressions) or None


def device_class(
    name: str = GPU_CLASS, /, *expressions: str, config: Sequence[str] = ()
) -> DeviceClass:
    """A class; `config` are parameters, each a JSON text or a plain word."""
    return DeviceClass(
        metadata=ObjectMeta(name=name),
        spec=DeviceClassSpec(
            selectors=selectors(*expressions),
            config=tuple(DeviceClassConfiguration(opaque=opaque(text)) for text in config) or None,
        ),
    )


def opaque(text: str, driver: str = GPU_DRIVER) -> OpaqueDeviceConfiguration:
    return OpaqueDeviceConfiguration(
        driver=driver, parameters=msgspec.Raw(msgspec.json.encode({"text": text}))
    )


def request(
    name: str = "gpu",
    /,
    *expressions: str,
    device_class: str = GPU_CLASS,
    count: int = 1,
    all_devices: bool = False,
    mode: str | None = None,
    admin: bool | None = None,
    tolerations: Sequence[DeviceToleration] | None = None,
    capacity: Mapping[str, str | int] | None = None,
    derived: Mapping[str, str] | None = None,
) -> DeviceRequest:
    """A request for exactly `count` devices, or for all."""
    return DeviceRequest(
        name=name,
        exactly=ExactDeviceRequest(
            device_class_name=device_class,
            selectors=selectors(*expressions),
            allocation_mode=mode if mode is not None else ("All" if all_devices else "ExactCount"),
            count=0 if all_devices else count,
            admin_access=admin,
            tolerations=None if tolerations is None else tuple(tolerations),
            capacity=_requirements(capacity),
            derived_attributes=_derived(derived),
        ),
    )


def sub_request(
    name: str,
    /,
    *expressions: str,
    device_class: str = GPU_CLASS,
    count: int = 1,
    all_devices: bool = False,
    mode: str | None = None,
    tolerations: Sequence[DeviceToleration] | None = None,
    capacity: Mapping[str, str | int] | None = None,
    derived: Mapping[str, str] | None = None,
) -> DeviceSubRequest:
    """One alternative of `first_available`."""
    return DeviceSubRequest(
        name=name,
        device_class_name=device_class,
        selectors=selectors(*expressions),
        allocation_mode=mode if mode is not None else ("All" if all_devices else "ExactCount"),
        count=0 if all_devices else count,
        tolerations=None if tolerations is None else tuple(tolerations),
        capacity=_requirements(capacity),
        derived_attributes=_derived(derived),
    )


def _requirements(amounts: Mapping[str, str | int] | None) -> CapacityRequirements | None:
    if amounts is None:
        return None
    return CapacityRequirements(requests={key: quantity(value) for key, value in amounts.items()})


def _derived(expressions: Mapping[str, str] | None) -> tuple[DeviceDerivedAttribute, ...] | None:
    if expressions is None:
        return None
    return tuple(DeviceDerivedAttribute(name=n, expression=e) for n, e in expressions.items())


def first_available(name: str, /, *alternatives: DeviceSubRequest) -> DeviceRequest:
    return DeviceRequest(name=name, first_available=alternatives)


def match(attribute: str, *requests: str) -> DeviceConstraint:
    """Devices of these requests (or of all) have this attribute in common."""
    return DeviceConstraint(match_attribute=attribute, requests=requests or None)


def distinct(attribute: str, *requests: str) -> DeviceConstraint:
    return DeviceConstraint(distinct_attribute=attribute, requests=requests or None)


def claim_config(text: str, *requests: str) -> DeviceClaimConfiguration:
    return DeviceClaimConfiguration(opaque=opaque(text), requests=requests or None)


def claim(
    name: str = "claim",
    /,
    *parts: DeviceRequest | DeviceConstraint | DeviceClaimConfiguration,
    namespace: str = "default",
    allocation: AllocationResult | None = None,
) -> ResourceClaim:
    """A claim of requests, constraints and configuration; without parts, for one GPU."""
    requests = tuple(part for part in parts if isinstance(part, DeviceRequest))
    constraints = tuple(part for part in parts if isinstance(part, DeviceConstraint))
    config = tuple(part for part in parts if isinstance(part, DeviceClaimConfiguration))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}"),
        spec=ResourceClaimSpec(
            devices=DeviceClaim(
                requests=requests or (() if parts else (request(),)),
                constraints=constraints or None,
                config=config or None,
            )
        ),
        status=ResourceClaimStatus(allocation=allocation),
    )


def without_requests(name: str = "empty") -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"))


# What is in use


def used(
    device: str,
    *,
    pool: str = "pool-1",
    driver: str = GPU_DRIVER,
    share: str | None = None,
    consumed: Mapping[str, str | int] | None = None,
    admin: bool | None = None,
) -> DeviceRequestAllocationResult:
    """One result of another claim's allocation."""
    return DeviceRequestAllocationResult(
        request="r",
        driver=driver,
        pool=pool,
        device=device,
        admin_access=admin,
        share_id=share,
        consumed_capacity=None
        if consumed is None
        else {key: quantity(value) for key, value in consumed.items()},
    )


def allocated_claim(name: str, /, *results: DeviceRequestAllocationResult) -> ResourceClaim:
    """A claim of somebody else that holds devices."""
    return claim(name, allocation=AllocationResult(devices=DeviceAllocationResult(results=results)))


def share_id_of(owner: ResourceClaim, request_name: str, device_id: DeviceID) -> str:
    """A share id that tests can predict."""
    return f"share-{owner.metadata.name}-{request_name}-{device_id.device}"


# Nodes and snapshots


def node(name: str = NODE, /, *, features: Iterable[str] = (), **labels: str) -> Node:
    return Node(name=name, labels=labels, declared_features=frozenset(features))


def node_selector(
    *terms: NodeSelectorTerm, labels: Mapping[str, str] | None = None
) -> NodeSelector:
    """A selector of terms, or of one term that wants these labels."""
    if labels is not None:
        terms = (
            *terms,
            NodeSelectorTerm(
                match_expressions=tuple(requirement(k, "In", v) for k, v in labels.items())
            ),
        )
    return NodeSelector(node_selector_terms=terms)


def requirement(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values or None)


def only_node(name: str = NODE) -> NodeSelector:
    """The selector of an allocation that only one node can use."""
    return NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(match_fields=(requirement("metadata.name", "In", name),)),
        )
    )


def snapshot(
    *slices: ResourceSlice,
    classes: Sequence[DeviceClass] | None = None,
    claims: Iterable[ResourceClaim] = (),
    in_use: Iterable[DeviceRequestAllocationResult] = (),
    rules: Sequence[DeviceTaintRule] = (),
    consumable_capacity: bool = True,
) -> Snapshot:
    """A cluster: slices, classes (default: one for every device) and what other claims hold."""
    every = [device_class()] if classes is None else classes
    holders = [*claims, allocated_claim("other", *in_use)]
    return Snapshot(
        slices=SliceIndex.build(slices, rules),
        classes={item.metadata.name: item for item in every},
        allocated=AllocatedState.from_claims(holders, consumable_capacity=consumable_capacity),
    )
