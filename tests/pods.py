"""Builders of pods and nodes: defaults for all that a test does not mention, real objects out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allocator.model.meta import ObjectMeta, OwnerReference
from allocator.quantity import Quantity
from scheduler.framework.resources import assigned_pod_requests, host_ports
from scheduler.model import (
    Affinity,
    Container,
    ContainerPort,
    HostPort,
    NodeInfo,
    NodeObject,
    NodeSpec,
    NodeStatus,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    SchedulingGate,
    Taint,
    Toleration,
)

SCHEDULER_NAME = "dra-scheduler"


def quantities(**amounts: str) -> dict[str, Quantity]:
    """`quantities(cpu="1", memory="1Gi")`, or `quantities(**{"example.com/gpu": "1"})`."""
    return {name: Quantity.parse(text) for name, text in amounts.items()}


def requirements(
    requests: Mapping[str, str] | None = None, limits: Mapping[str, str] | None = None
) -> ResourceRequirements:
    return ResourceRequirements(
        requests=None if requests is None else quantities(**requests),
        limits=None if limits is None else quantities(**limits),
    )


def container(
    name: str = "main",
    requests: Mapping[str, str] | None = None,
    *,
    sidecar: bool = False,
    ports: Sequence[ContainerPort] = (),
    claims: Sequence[str] = (),
    **fields: Any,
) -> Container:
    """A container; `claims` are entries of its pod."""
    used = tuple({"name": entry} for entry in claims) or None
    return Container(
        name=name,
        resources=msgspec.structs.replace(requirements(requests), claims=used),
        restart_policy="Always" if sidecar else None,
        ports=tuple(ports) or None,
        **fields,
    )


def port(number: int, *, ip: str = "", protocol: str = "TCP") -> ContainerPort:
    return ContainerPort(container_port=number, host_port=number, host_ip=ip, protocol=protocol)


def pod(
    name: str = "p",
    *,
    namespace: str = "default",
    uid: str | None = None,
    claims: Iterable[str] = (),
    templates: Mapping[str, str | None] | None = None,
    requests: Mapping[str, str] | None = None,
    containers: Sequence[Container] | None = None,
    init_containers: Sequence[Container] = (),
    node_name: str = "",
    scheduler_name: str = SCHEDULER_NAME,
    node_selector: dict[str, str] | None = None,
    affinity: Affinity | None = None,
    tolerations: Sequence[Toleration] = (),
    gates: Iterable[str] = (),
    priority: int | None = None,
    created: str = "2026-01-01T00:00:00Z",
    deleted: str | None = None,
    labels: dict[str, str] | None = None,
    status: PodStatus | None = None,
    **spec: Any,
) -> Pod:
    """A pod.

    Args:
        claims: names of claims it uses; the entries are named alike.
        templates: entry name -> name of the claim made from the template; None: not made yet.
        requests: of its only container.
        spec: further fields of `PodSpec`.
    """
    entries = [PodResourceClaim(name=claim, resource_claim_name=claim) for claim in claims]
    statuses = []
    for entry, made in (templates or {}).items():
        entries.append(
            PodResourceClaim(name=entry, resource_claim_template_name=f"{entry}-template")
        )
        if made is not None:
            statuses.append(PodResourceClaimStatus(name=entry, resource_claim_name=made))
    if containers is None:
        containers = (container(requests=requests),)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{name}" if uid is None else uid,
            resource_version="1",
            creation_timestamp=created,
            deletion_timestamp=deleted,
            labels=labels,
        ),
        spec=PodSpec(
            node_name=node_name,
            scheduler_name=scheduler_name,
            priority=priority,
            node_selector=node_selector,
            affinity=affinity,
            tolerations=tuple(tolerations) or None,
            containers=tuple(containers),
            init_containers=tuple(init_containers) or None,
            resource_claims=tuple(entries) or None,
            scheduling_gates=tuple(SchedulingGate(name=gate) for gate in gates) or None,
            **spec,
        ),
        status=status
        or PodStatus(phase="Pending", resource_claim_statuses=tuple(statuses) or None),
    )


def pod_owner(owner: Pod) -> OwnerReference:
    """The reference that the claim controller puts on a claim made for a pod."""
    return OwnerReference(
        api_version="v1",
        kind="Pod",
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
    )


def node_object(
    name: str = "n1",
    *,
    labels: dict[str, str] | None = None,
    taints: Sequence[Taint] = (),
    unschedulable: bool = False,
    allocatable: Mapping[str, str] | None = None,
    silent: bool = False,
) -> NodeObject:
    """A node; by default with plenty of everything. `silent`: its status does not say what it has."""
    offered = (
        {"cpu": "64", "memory": "256Gi", "pods": "110"} if allocatable is None else allocatable
    )
    return NodeObject(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            labels={"kubernetes.io/hostname": name} if labels is None else labels,
        ),
        spec=NodeSpec(unschedulable=unschedulable, taints=tuple(taints) or None),
        status=NodeStatus(allocatable=None if silent else quantities(**offered)),
    )


def node_info(
    node: NodeObject | None = None,
    pods: Iterable[Pod] = (),
    generation: int = 1,
    *,
    unlimited: bool = False,
) -> NodeInfo:
    """A node with what runs on it, summed by the rules for assigned pods."""
    node = node_object() if node is None else node
    running = {each.metadata.uid: each for each in pods}
    requested: dict[str, int] = {}
    ports: set[HostPort] = set()
    for each in running.values():
        for resource, amount in assigned_pod_requests(each).items():
            requested[resource] = requested.get(resource, 0) + amount
        ports |= host_ports(each)
    return NodeInfo(
        node=node,
        for_allocator=node.for_allocator(),
        pods=running,
        requested=requested,
        ports=frozenset(ports),
        generation=generation,
        is_unlimited=unlimited,
    )
