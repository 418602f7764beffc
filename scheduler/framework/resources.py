"""What a pod requests of its node: resources and host ports.

Amounts are integers, as the scheduler compares them: `cpu` in thousandths, everything else in whole units, both rounded
up once, after summing exactly. Names that no predicate compares (anything but cpu, memory, ephemeral-storage, hugepages
and names with a domain) are left out.

An amount below zero counts nothing. The API server refuses it in specs, but not in the status of a pod, and upstream adds
it: then one pod would make room for others.

Source: k8s.io/component-helpers/resource (PodRequests), pkg/scheduler/framework/types.go; KEP-753, 1287, 2837.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from allocator.quantity import Quantity
from scheduler.model import (
    Container,
    ContainerStatus,
    HostPort,
    NodeAllocatableResourceClaimStatus,
    NodeObject,
    Pod,
)

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
HUGEPAGES_PREFIX: Final = "hugepages-"
IMPLICIT_EXTENDED_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
# What a container without a request counts in scoring, upstream's values: 100m and 200Mi.
_DEFAULT_CPU: Final = Quantity(100 * 10**6)
_DEFAULT_MEMORY: Final = Quantity(200 * 1024 * 1024 * 10**9)
ANY_IP: Final = "0.0.0.0"  # noqa: S104 - a value of the API that is compared, nothing listens on it

_Amounts = dict[str, int]  # resource name -> exact amount in nano-units
_Quantities = Mapping[str, Quantity] | None
_Pick = Callable[[Container, ContainerStatus | None, bool], _Quantities]


def is_compared(name: str) -> bool:
    """Whether the resource predicate looks at this resource (`pods` is counted, not summed)."""
    return (
        name in (CPU, MEMORY, EPHEMERAL_STORAGE)
        or "/" in name
        or name.startswith((HUGEPAGES_PREFIX, "attachable-volumes-"))
    )


def is_extended(name: str) -> bool:
    """Whether this is an extended resource: `domain/name` outside `kubernetes.io`, or the implicit name of a class."""
    if name.startswith(IMPLICIT_EXTENDED_PREFIX):
        return True
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def pod_requests(
    pod: Pod, of_claims: Sequence[NodeAllocatableResourceClaimStatus] = ()
) -> dict[str, int]:
    """What a pending pod needs: its spec alone decides, and what its devices count in resources of the node.

    Args:
        pod: whose spec.
        of_claims: what its claims count; whatever its own status says of that is of an earlier attempt.

    Returns:
        resource name -> amount (cpu in milli); a resource requested as zero is there with 0.
    """
    requests = container_requests(pod, of_claims)
    if pod.spec.resources is not None:
        _replace_pod_level(requests, _amounts(pod.spec.resources.requests))
    _add(requests, _amounts(pod.spec.overhead))
    return _rounded(requests)


def container_requests(
    pod: Pod, of_claims: Sequence[NodeAllocatableResourceClaimStatus] = ()
) -> dict[str, int]:
    """What the containers of a pod ask for together, and its devices count: without pod level and overhead.

    Returns:
        resource name -> exact amount in nano-units.
    """
    requests = _aggregate(pod, _from_spec, is_infeasible=False)
    if of_claims:  # hardly ever
        _add(requests, claim_resources(of_claims))
    return requests


def container_limits(
    pod: Pod, of_claims: Sequence[NodeAllocatableResourceClaimStatus] = ()
) -> dict[str, int]:
    """The limits of the containers of a pod together, raised by what its devices count.

    A resource without a limit has none because of a device either, except huge pages, which are never overcommitted.

    Returns:
        resource name -> exact amount in nano-units.
    """
    limits = _aggregate(pod, _limits, is_infeasible=False)
    for name, amount in claim_resources(of_claims).items():
        if name in limits or name.startswith(HUGEPAGES_PREFIX):
            limits[name] = limits.get(name, 0) + amount
    return limits


def claim_resources(statuses: Iterable[NodeAllocatableResourceClaimStatus]) -> dict[str, int]:
    """What devices of claims count in resources of the node.

    Returns:
        resource name -> exact amount in nano-units.

    Source: addDRANodeAllocatableClaimResources of component-helpers.
    """
    total: _Amounts = {}
    for status in statuses:
        _add(total, _amounts(status.resources))
        for mapped in status.mapping or ():
            if mapped.quantity is not None:
                _add(total, _amounts({mapped.name: mapped.quantity}))
        containers = len(status.containers or ())
        for overhead in status.overhead or ():
            per_pod = 0 if overhead.per_pod is None else max(0, overhead.per_pod.nanos)
            each = 0 if overhead.per_container is None else max(0, overhead.per_container.nanos)
            _add(total, {overhead.name: per_pod + containers * each})
    return total


def assigned_pod_requests(pod: Pod, *, counts_claims: bool = False) -> dict[str, int]:
    """What a pod on a node counts: the most of what it asks for, was promised and has, while it is being resized.

    A resize that the kubelet called infeasible will not happen: then the spec does not count.

    Args:
        pod: as its status has it.
        counts_claims: whether what its devices count in resources of the node is added (the feature gate).

    Returns:
        resource name -> amount (cpu in milli).
    """
    status = pod.status
    of_claims = status.node_allocatable_resource_claim_statuses if counts_claims else None
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return pod_requests(pod, of_claims or ())
    is_infeasible = _is_resize_infeasible(pod)
    actual_of_pod = status.resources.requests if status.resources is not None else None
    if status.allocated_resources is not None and actual_of_pod is not None:
        requests = _amounts(status.allocated_resources)
        _raise_to(requests, _amounts(actual_of_pod))
    else:
        # What a kubelet says of the whole pod has its devices in it, and so has what containers actually have; what
        # it has promised to containers has not.
        requests = _aggregate(pod, _allocated, is_infeasible=is_infeasible)
        _add(requests, claim_resources(of_claims or ()))
        _raise_to(requests, _aggregate(pod, _actual, is_infeasible=is_infeasible))
    if not is_infeasible:
        _raise_to(requests, container_requests(pod, of_claims or ()))
    _replace_pod_level(requests, _pod_level_of_assigned(pod, is_infeasible=is_infeasible))
    _add(requests, _amounts(pod.spec.overhead))
    return _rounded(requests)


def scoring_requests(
    pod: Pod, of_claims: Sequence[NodeAllocatableResourceClaimStatus] = ()
) -> tuple[int, int]:
    """Cpu in milli and memory in bytes as scoring counts them: a container that asks for nothing counts a little."""
    spec = pod.spec
    amounts = _aggregate(pod, _for_scoring, is_infeasible=False)
    if of_claims:
        _add(amounts, claim_resources(of_claims))
    if spec.resources is not None:
        _replace_pod_level(amounts, _amounts(spec.resources.requests))
    _add(amounts, _amounts(spec.overhead))
    return -(-amounts.get(CPU, 0) // 10**6), -(-amounts.get(MEMORY, 0) // 10**9)


def allocatable(node: NodeObject) -> dict[str, int]:
    """What a node offers, in the units of `pod_requests`, `pods` included; nothing if its status does not say."""
    return {
        name: quantity.milli_rounded_up() if name == CPU else quantity.rounded_up()
        for name, quantity in (node.status.allocatable or {}).items()
    }


def host_ports(pod: Pod) -> frozenset[HostPort]:
    """Host ports of containers and sidecars; ordinary init containers are gone before others could collide."""
    sidecars = (c for c in pod.spec.init_containers or () if c.is_sidecar)
    return frozenset(
        HostPort(ip=port.host_ip or ANY_IP, protocol=port.protocol or "TCP", port=port.host_port)
        for container in (*(pod.spec.containers or ()), *sidecars)
        for port in container.ports or ()
        if port.host_port > 0
    )


def _from_spec(
    container: Container, _status: ContainerStatus | None, _infeasible: bool
) -> _Quantities:
    return container.resources.requests


def _limits(
    container: Container, _status: ContainerStatus | None, _infeasible: bool
) -> _Quantities:
    return container.resources.limits


def _for_scoring(
    container: Container, _status: ContainerStatus | None, _infeasible: bool
) -> _Quantities:
    requests = container.resources.requests or {}
    return {
        CPU: requests.get(CPU, _DEFAULT_CPU),
        MEMORY: requests.get(MEMORY, _DEFAULT_MEMORY),
    }


def _allocated(
    container: Container, status: ContainerStatus | None, infeasible: bool
) -> _Quantities:
    if status is not None and status.allocated_resources is not None:
        return status.allocated_resources
    return None if infeasible else container.resources.requests


def _actual(container: Container, status: ContainerStatus | None, infeasible: bool) -> _Quantities:
    if (
        status is not None
        and status.resources is not None
        and status.resources.requests is not None
    ):
        return status.resources.requests
    return _allocated(container, status, infeasible)


def _aggregate(pod: Pod, pick: _Pick, *, is_infeasible: bool) -> _Amounts:
    """Sum containers and sidecars, and raise to what the most demanding moment of initialisation needs."""
    statuses: dict[str, ContainerStatus] = {}
    if pick is _allocated or pick is _actual:
        every = (
            *(pod.status.container_statuses or ()),
            *(pod.status.init_container_statuses or ()),
        )
        for each in every:
            statuses.setdefault(each.name, each)

    total: _Amounts = {}
    for container in pod.spec.containers or ():
        status = statuses.get(container.name) if statuses else None
        _add(total, _amounts(pick(container, status, is_infeasible)))
    sidecars: _Amounts = {}
    initialising: _Amounts = {}
    for container in pod.spec.init_containers or ():
        status = statuses.get(container.name) if statuses else None
        own = _amounts(pick(container, status, is_infeasible))
        if container.is_sidecar:
            _add(total, own)
            _add(sidecars, own)
            _raise_to(initialising, sidecars)
        else:
            _add(own, sidecars)
            _raise_to(initialising, own)
    _raise_to(total, initialising)
    return total


def _pod_level_of_assigned(pod: Pod, *, is_infeasible: bool) -> _Amounts:
    if pod.spec.resources is None or not any(map(is_pod_level, pod.spec.resources.requests or ())):
        return {}
    requests = {} if is_infeasible else _amounts(pod.spec.resources.requests)
    if pod.status.resources is None:
        return _amounts(pod.spec.resources.requests)
    _raise_to(requests, _amounts(pod.status.resources.requests))
    _raise_to(requests, _amounts(pod.status.allocated_resources))
    return requests


def is_pod_level(name: str) -> bool:
    """Whether a pod may ask for this resource as a whole."""
    return name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX)


def _replace_pod_level(requests: _Amounts, pod_level: _Amounts) -> None:
    for name, amount in pod_level.items():
        if is_pod_level(name):
            requests[name] = amount


def _is_resize_infeasible(pod: Pod) -> bool:
    for condition in pod.status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _amounts(quantities: _Quantities) -> _Amounts:
    if not quantities:
        return {}
    return {name: max(0, value.nanos) for name, value in quantities.items()}


def _add(total: _Amounts, more: _Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: _Amounts, least: _Amounts) -> None:
    for name, amount in least.items():
        if amount > total.get(name, 0) or name not in total:
            total[name] = amount


def _rounded(amounts: _Amounts) -> dict[str, int]:
    return {
        name: -(-amount // 10**6) if name == CPU else -(-amount // 10**9)
        for name, amount in amounts.items()
        if is_compared(name)
    }
