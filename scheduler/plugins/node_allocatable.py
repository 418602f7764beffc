"""Devices that count in resources of their node: what a pod's claims add to what it requests, and whether that fits.

A device may stand for cpu or memory itself (`mapping`), or cost some to whoever uses it (`overhead`). What a claim counts
is known only when its devices are chosen; it is checked then, written to the pod's status before the pod is bound, and
counted from there by this scheduler and the kubelet.

Behind feature gate `DRANodeAllocatableResources`; without it nothing here is called.

Source: pkg/scheduler/framework/plugins/dynamicresources/nodeallocatabledynamicresources.go; KEP-5517;
docs/reference/features.md#node-allocatable-resources.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from allocator.model.claims import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from allocator.model.devices import Device, NodeAllocatableMapping, NodeAllocatableOverhead
from allocator.model.nodes import Node, NodeSelector, NodeSelectorError, matches_node_selector
from allocator.outcome import Reason, ReasonKind
from allocator.quantity import Quantity
from allocator.snapshot import PreparedSlice, SliceIndex
from scheduler.framework.events import NODE_ANY, Event
from scheduler.framework.plan import Demand
from scheduler.framework.plugin import IN_EVERY_MODE, Plugin, Reads
from scheduler.framework.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    allocatable,
    claim_resources,
    container_limits,
    container_requests,
    is_pod_level,
    pod_requests,
)
from scheduler.framework.status import Status, error, unresolvable
from scheduler.model import (
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
    NodeInfo,
    Pod,
)
from scheduler.plugins.node_resources import shortage

NAME: Final = "NodeAllocatableResources"
PLUGIN: Final = Plugin(
    name=NAME,
    modes=IN_EVERY_MODE,
    # Room for what devices count, or other devices.
    events=NODE_ANY
    | Event.ROOM_FREED
    | Event.CLAIM_CHANGED
    | Event.CLAIM_FREED
    | Event.DEVICES_CHANGED,
    reads=Reads(
        pod=(
            "spec.containers.name",
            "spec.containers.resources.requests",
            "spec.containers.resources.limits",
            "spec.init_containers.resources.requests",
            "spec.init_containers.resources.limits",
            "spec.init_containers.restart_policy",
            "spec.resources.requests",
            "spec.resources.limits",
            "spec.overhead",
        ),
        node=("node.status.allocatable", "is_unlimited", "requested"),
    ),
    is_about_devices=True,
    lists_shortages=True,
)
DeviceOf = Callable[[DeviceRequestAllocationResult], Device | None]
_ALWAYS_COMPARED: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_NANO: Final = 10**9
# Kubernetes 1.36 had another shape of it, and other rules. Refused, never half-honoured.
_OF_1_36: Final = unresolvable(
    Reason(
        kind=ReasonKind.UNSUPPORTED,
        message="devices with nodeAllocatableResourceMappings, as Kubernetes 1.36 has them, are not"
        " supported by this scheduler",
    ),
    NAME,
)


# --- which device -----------------------------------------------------------------------------------------------------


def devices_anywhere(slices: SliceIndex) -> DeviceOf:
    """Finds the device of a result, wherever it is; None: it is not published (any more)."""
    return lambda result: _find(slices.in_pool(result.device_id.pool_id), result.device, None)


def devices_on(slices: SliceIndex, node: Node) -> DeviceOf:
    """Finds the device of a result among those that a node can reach."""

    def device_of(result: DeviceRequestAllocationResult) -> Device | None:
        here = [each for each in slices.in_pool(result.device_id.pool_id) if _is_for(each, node)]
        return _find(here, result.device, node)

    return device_of


def _find(slices: Iterable[PreparedSlice], name: str, node: Node | None) -> Device | None:
    """The device of that name; of several generations the newest, where upstream takes any."""
    for prepared in sorted(slices, key=lambda each: -each.slice.spec.pool.generation):
        for device in prepared.slice.spec.devices or ():
            if device.name != name:
                continue
            is_by_device = bool(prepared.slice.spec.per_device_node_selection)
            return device if not is_by_device or _reaches(device, node) else None
    return None


def _is_for(prepared: PreparedSlice, node: Node) -> bool:
    spec = prepared.slice.spec
    if spec.node_name == node.name or spec.all_nodes:
        return True
    if spec.node_selector is not None:
        return _selects(spec.node_selector, node)
    return bool(spec.per_device_node_selection)


def _reaches(device: Device, node: Node | None) -> bool:
    if node is None or device.node_name == node.name or device.all_nodes:
        return True
    return device.node_selector is not None and _selects(device.node_selector, node)


def _selects(selector: NodeSelector, node: Node) -> bool:
    try:
        return matches_node_selector(selector, node.labels, node.name)
    except NodeSelectorError:
        return False


def is_mapped(allocation: AllocationResult, device_of: DeviceOf) -> bool:
    """Whether some device of an allocation stands for a resource of its node: then one pod alone may use the claim."""
    for result in allocation.devices.results or ():
        device = device_of(result)
        resources = {} if device is None else device.node_allocatable_resources or {}
        if any(resource.mapping is not None for resource in resources.values()):
            return True
    return False


# --- how much ---------------------------------------------------------------------------------------------------------


class _CannotTellError(Exception):
    """What a claim counts cannot be told; the text says why, without names."""


def demand_of(
    pod: Pod, claims: Iterable[tuple[ResourceClaim, AllocationResult]], device_of: DeviceOf
) -> Demand | Status:
    """What the claims of a pod count in resources of the node, as it is written to the pod's status.

    Args:
        pod: whose containers use the claims.
        claims: with the devices they have or would get.
        device_of: finds devices of the node.

    Returns:
        One entry for each claim that counts anything, in the order of their names; or an error.
    """
    users: Mapping[str, Sequence[str]] | None = None
    statuses: list[NodeAllocatableResourceClaimStatus] = []
    for claim, allocation in claims:
        results = allocation.devices.results or ()
        devices = [device_of(result) for result in results]
        if not any(device is not None and device.counts_for_node for device in devices):
            continue
        if any(
            device is not None and device.node_allocatable_resource_mappings for device in devices
        ):
            return _OF_1_36
        if users is None:
            users = containers_of_claims(pod)
        try:
            status = _claim_status(claim, results, devices, users)
        except _CannotTellError as problem:
            reason = Reason(
                kind=ReasonKind.INVALID_CLAIM,
                message=f"node-allocatable resources of the devices cannot be computed: {problem}",
            )
            return error(reason, NAME)
        if status is not None:
            statuses.append(status)
    return tuple(sorted(statuses, key=lambda status: status.resource_claim_name))


def containers_of_claims(pod: Pod) -> dict[str, list[str]]:
    """Claim name -> names of the containers that use it, init containers first.

    Differs from upstream: a container that reaches one claim by two entries is counted once, as the API has it; upstream
    counts it twice and then cannot write that down.
    """
    made = {status.name: status for status in pod.status.resource_claim_statuses or ()}
    names: dict[str, str] = {}
    for entry in pod.spec.resource_claims or ():
        name = entry.resource_claim_name
        if name is None and entry.name in made:
            name = made[entry.name].resource_claim_name
        if name is not None:
            names[entry.name] = name
    users: dict[str, list[str]] = {}
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        used = (names.get(each.get("name", "")) for each in container.resources.claims or ())
        for claim_name in dict.fromkeys(name for name in used if name is not None):
            users.setdefault(claim_name, []).append(container.name)
    return users


def _claim_status(
    claim: ResourceClaim,
    results: Sequence[DeviceRequestAllocationResult],
    devices: Sequence[Device | None],
    users: Mapping[str, Sequence[str]],
) -> NodeAllocatableResourceClaimStatus | None:
    mapped: dict[str, _Exact] = {}
    overhead: dict[str, NodeAllocatableOverheadResources] = {}
    for result, device in zip(results, devices, strict=True):
        if device is None:
            raise _CannotTellError("a device is not published for the node")
        for name, resource in (device.node_allocatable_resources or {}).items():
            if resource.mapping is not None:
                _add_mapping(mapped, name, resource.mapping, result)
            if resource.overhead is not None:
                _add_overhead(overhead, name, resource.overhead)
    if not mapped and not overhead:
        return None
    return NodeAllocatableResourceClaimStatus(
        resource_claim_name=claim.metadata.name,
        containers=tuple(users.get(claim.metadata.name, ())) or None,
        mapping=tuple(
            NodeAllocatableMappedResources(name=name, quantity=mapped[name].quantity())
            for name in sorted(mapped)
        )
        or None,
        overhead=tuple(overhead[name] for name in sorted(overhead)) or None,
    )


class _Exact:
    """A sum of products of quantities, exact; written down it is rounded up to a nano-unit, once."""

    __slots__ = ("_attos", "_format")

    def __init__(self) -> None:
        self._attos = 0
        self._format = ""

    def add(self, quantity: Quantity, times: Quantity | None = None) -> None:
        """Add a quantity, or a multiple of it. The format is that of the first that is not zero."""
        if not self._attos:
            self._format = quantity.format
        self._attos += quantity.nanos * (_NANO if times is None else times.nanos)

    def quantity(self) -> Quantity:
        """The sum."""
        return Quantity(-(-self._attos // _NANO), self._format)


def _add_mapping(
    mapped: dict[str, _Exact],
    name: str,
    mapping: NodeAllocatableMapping,
    result: DeviceRequestAllocationResult,
) -> None:
    if mapping.capacity_key:
        if result.consumed_capacity is None:
            raise _CannotTellError(
                f"{name} maps to capacity {mapping.capacity_key} of a device that consumes none"
            )
        consumed = result.consumed_capacity.get(mapping.capacity_key)
        if consumed is not None:
            _check_sign(f"capacity {mapping.capacity_key} that a claim consumes", consumed)
            _check_sign(f"{name} of its mapping", mapping.capacity_multiplier)
            mapped.setdefault(name, _Exact()).add(consumed, mapping.capacity_multiplier)
    elif mapping.device_multiplier is not None:
        _check_sign(f"{name} of its mapping", mapping.device_multiplier)
        mapped.setdefault(name, _Exact()).add(mapping.device_multiplier)


def _add_overhead(
    total: dict[str, NodeAllocatableOverheadResources], name: str, more: NodeAllocatableOverhead
) -> None:
    if more.per_pod is None and more.per_container is None:
        return
    _check_sign(f"{name} of its overhead", more.per_pod, more.per_container)
    known = total.get(name) or NodeAllocatableOverheadResources(name=name)
    total[name] = NodeAllocatableOverheadResources(
        name=name,
        per_pod=_sum(known.per_pod, more.per_pod),
        per_container=_sum(known.per_container, more.per_container),
    )


def _check_sign(what: str, *amounts: Quantity | None) -> None:
    """Refuse an amount below zero: it would make room on the node."""
    if any(amount is not None and amount.nanos < 0 for amount in amounts):
        raise _CannotTellError(f"a device's amount is below zero: {what}")


def _sum(known: Quantity | None, more: Quantity | None) -> Quantity | None:
    if known is None or more is None:
        return known or more
    return known + more


# --- does it fit ------------------------------------------------------------------------------------------------------


def check(pod: Pod, demand: Demand, node: NodeInfo) -> Status | None:
    """Whether a node has room for a pod with what its claims count; None: it has.

    Args:
        pod: not counted on the node.
        demand: of its claims.
        node: with what is in use.
    """
    if not demand:
        return None
    problem = _pod_level_problem(pod, demand)
    if problem is not None:
        reason = Reason(kind=ReasonKind.INSUFFICIENT_RESOURCES, message=problem)
        return unresolvable(reason, NAME)
    return _check_room(pod_requests(pod, demand), node)


def _check_room(requests: Mapping[str, int], node: NodeInfo) -> Status | None:
    if node.is_unlimited:
        return None
    compared = (
        (name, amount)
        for name, amount in requests.items()
        if name.startswith(HUGEPAGES_PREFIX) or (amount > 0 and name in _ALWAYS_COMPARED)
    )
    return shortage(compared, allocatable(node.node), node, NAME)


def _pod_level_problem(pod: Pod, demand: Demand) -> str | None:
    """What a pod asks for as a whole has to cover its containers and its devices; None: it does.

    Requests cover the sum. Limits of huge pages cover the sum too, any other limit each container for itself.
    """
    resources = pod.spec.resources
    if resources is None:
        return None
    if resources.requests:
        needed = container_requests(pod, demand)
        for name, quantity in sorted(resources.requests.items()):
            if is_pod_level(name) and needed.get(name, 0) > quantity.nanos:
                return f"the pod's request for {name} does not cover its containers and devices"
    if not resources.limits:
        return None
    limits = {name: quantity.nanos for name, quantity in sorted(resources.limits.items())}
    of_containers = container_limits(pod, demand)
    for name, limit in limits.items():
        if name.startswith(HUGEPAGES_PREFIX) and of_containers.get(name, 0) > limit:
            return f"the pod's limit for {name} does not cover its containers and devices"
    return _container_problem(pod, demand, limits)


def _container_problem(pod: Pod, demand: Demand, limits: Mapping[str, int]) -> str | None:
    for container in pod.spec.containers or ():
        used = [_of_container(each) for each in demand if container.name in (each.containers or ())]
        devices = claim_resources(used)
        for name, own in sorted((container.resources.limits or {}).items()):
            if name.startswith(HUGEPAGES_PREFIX) or name not in limits:
                continue
            if own.nanos + devices.get(name, 0) > limits[name]:
                return (
                    f"the pod's limit for {name} does not cover container {container.name}"
                    " and its devices"
                )
    return None


def _of_container(
    status: NodeAllocatableResourceClaimStatus,
) -> NodeAllocatableResourceClaimStatus:
    """What a claim counts for one of its containers: all that is not of the others."""
    return NodeAllocatableResourceClaimStatus(
        containers=(status.containers or ())[:1], mapping=status.mapping, overhead=status.overhead
    )
