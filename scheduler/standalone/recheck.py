"""The last check before a Binding: does the pod still fit on the node, where other schedulers may have bound pods meanwhile?

Nobody arbitrates cpu, memory and ports between two schedulers; whoever loses sees the kubelet fail its pod. The look
narrows that window to one request. Devices are not looked at: they are ours to give, and held.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plan import Demand, Plan
from scheduler.framework.resources import host_ports, pod_requests
from scheduler.framework.status import Status, error
from scheduler.model import ClusterReader, NodeInfo
from scheduler.plugins import node_allocatable
from scheduler.plugins.node_resources import REQUESTS

NODE_IS_GONE: Final = error(Reason(kind=ReasonKind.NO_NODES, message="the node no longer exists"))


def recheck_node(
    state: CycleState, plan: Plan, reader: ClusterReader
) -> Callable[[], Status | None]:
    """A look at a node as it is when called: None if the pod still fits, else why not.

    Args:
        state: of the attempt.
        plan: what was decided; what its claims count in resources of the node is counted there with the pod.
        reader: the cache.
    """

    def recheck() -> Status | None:
        node = reader.snapshot().nodes.get(plan.node_name)
        if node is None:
            return NODE_IS_GONE
        if node is state.snapshot.nodes.get(plan.node_name):
            return None
        others = _without_pod(node, state, plan.demand)
        status = state.profile.filter_node(state.info, others)
        return status or node_allocatable.check(state.pod, plan.demand, others)

    return recheck


def _without_pod(node: NodeInfo, state: CycleState, demand: Demand) -> NodeInfo:
    """The node as if the pod were not counted there already."""
    uid = state.pod.metadata.uid
    if uid not in node.pods:
        return node
    others = {other: pod for other, pod in node.pods.items() if other != uid}
    return replace(
        node,
        pods=others,
        requested=_minus(
            node.requested, pod_requests(state.pod, demand) if demand else state.info.read(REQUESTS)
        ),
        ports=frozenset(port for pod in others.values() for port in host_ports(pod)),
    )


def _minus(whole: Mapping[str, int], part: Mapping[str, int]) -> dict[str, int]:
    return {name: amount - part.get(name, 0) for name, amount in whole.items()}
