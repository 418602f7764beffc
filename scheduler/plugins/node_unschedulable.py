"""NodeUnschedulable: a cordoned node takes only pods that tolerate the cordon."""

from typing import Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.events import Event
from scheduler.framework.plugin import Plugin, Reads
from scheduler.framework.pod_info import PodInfo
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.model import NodeInfo, Taint
from scheduler.plugins.taint_toleration import is_tolerated

NAME: Final = "NodeUnschedulable"
_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_REASON: Final = Reason(kind=ReasonKind.NODE_UNSCHEDULABLE, message="node(s) were unschedulable")


def filter_node(pod: PodInfo, node: NodeInfo) -> Status:
    """Refuse a cordoned node unless the pod tolerates the taint that stands for the cordon."""
    if not node.node.spec.unschedulable or is_tolerated(_CORDON, pod.spec.tolerations):
        return SUCCESS
    return unresolvable(_REASON, NAME)


PLUGIN: Final = Plugin(
    name=NAME,
    filter=filter_node,
    events=Event.NODE_ADDED | Event.NODE_TAINTS,
    reads=Reads(pod=("spec.tolerations",), node=("node.spec.unschedulable",)),
)
