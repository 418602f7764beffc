"""NodeResourcesFit: the node must have enough unused resources for the pod's requests; LeastAllocated scores nodes with more left higher.

A node that does not say what it has, has nothing, not even room for a pod; only in manifests without a cluster it is
unlimited.

Source: pkg/scheduler/framework/plugins/noderesources (fit.go, least_allocated.go).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.events import Event
from scheduler.framework.plugin import Plugin, Reads
from scheduler.framework.pod_info import Derived, PodInfo
from scheduler.framework.resources import (
    CPU,
    MEMORY,
    PODS,
    allocatable,
    pod_requests,
    scoring_requests,
)
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.model import NodeInfo

NAME: Final = "NodeResourcesFit"
REQUESTS: Final = Derived(lambda pod: pod_requests(pod.pod))
"""Resource name -> amount (cpu in milli)."""
SCORING_REQUESTS: Final = Derived(lambda pod: scoring_requests(pod.pod))
"""Cpu in milli and memory in bytes as scoring counts them."""
_TOO_MANY_PODS: Final = "Too many pods"


def filter_node(pod: PodInfo, node: NodeInfo) -> Status:
    """Refuse a node that has not enough left; unresolvable when even an empty node would not have."""
    if node.is_unlimited:
        return SUCCESS
    offered = allocatable(node.node)
    short = [_TOO_MANY_PODS] if len(node.pods) + 1 > offered.get(PODS, 0) else []
    wanted = ((name, amount) for name, amount in pod.read(REQUESTS).items() if amount)
    return shortage(wanted, offered, node, NAME, short) or SUCCESS


def shortage(
    wanted: Iterable[tuple[str, int]],
    offered: Mapping[str, int],
    node: NodeInfo,
    plugin: str,
    others: Iterable[str] = (),
) -> Status | None:
    """What a node has not enough left of, as a refusal of a plugin; None: of nothing.

    Args:
        wanted: resource name and amount (cpu in milli).
        offered: what the node has when it is empty.
        node: with what is in use.
        plugin: who refuses.
        others: more that is short, in words.
    """
    short = list(others)
    is_resolvable = True
    for name, amount in wanted:
        limit = offered.get(name, 0)
        if amount > limit - node.requested.get(name, 0):
            short.append(f"Insufficient {name}")
            is_resolvable = is_resolvable and amount <= limit
    if not short:
        return None
    code = Code.UNSCHEDULABLE if is_resolvable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    reason = Reason(kind=ReasonKind.INSUFFICIENT_RESOURCES, message=", ".join(sorted(short)))
    return Status(code, reason, plugin)


def requested_for_scoring(node: NodeInfo, *, counts_claims: bool = False) -> tuple[int, int]:
    """Cpu in milli and memory in bytes of all pods on the node, as scoring counts them. O(pods).

    Args:
        node: which.
        counts_claims: whether what devices of pods count in resources of the node is added.
    """
    cpu = memory = 0
    for pod in node.pods.values():
        of_claims = pod.status.node_allocatable_resource_claim_statuses if counts_claims else None
        pod_cpu, pod_memory = scoring_requests(pod, of_claims or ())
        cpu += pod_cpu
        memory += pod_memory
    return cpu, memory


def score_node(pod: PodInfo, node: NodeInfo, requested: tuple[int, int] | None = None) -> int:
    """Score 0-100: the mean share of cpu and memory that would be left.

    Args:
        pod: to be placed.
        node: that fits.
        requested: `requested_for_scoring(node)`, if the caller has it already.
    """
    if node.is_unlimited:
        return 0
    offered = allocatable(node.node)
    if requested is None:
        counts_claims = pod.features.node_allocatable_resources
        requested = requested_for_scoring(node, counts_claims=counts_claims)
    total = resources = 0
    for name, taken, more in zip((CPU, MEMORY), requested, pod.read(SCORING_REQUESTS), strict=True):
        limit = offered.get(name, 0)
        if limit:
            resources += 1
            total += max(0, (limit - taken - more) * 100 // limit)
    return total // resources if resources else 0


PLUGIN: Final = Plugin(
    name=NAME,
    filter=filter_node,
    score=score_node,
    weight=1,
    events=Event.NODE_ADDED | Event.NODE_ALLOCATABLE | Event.ROOM_FREED,
    reads=Reads(
        pod=(
            "spec.containers.resources.requests",
            "spec.init_containers.resources.requests",
            "spec.init_containers.restart_policy",
            "spec.resources.requests",
            "spec.overhead",
        ),
        node=("node.status.allocatable", "is_unlimited", "requested", "pods"),
    ),
    lists_shortages=True,
)
