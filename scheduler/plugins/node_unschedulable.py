"""NodeUnschedulable: a cordoned node takes only pods that tolerate the cordon."""

from typing import Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.model import NodeInfo, Taint
from scheduler.plugins.taint_toleration import is_tolerated

NAME: Final = "NodeUnschedulable"
_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_REASON: Final = Reason(kind=ReasonKind.NODE_UNSCHEDULABLE, message="node(s) were unschedulable")


def filter_node(state: CycleState, node: NodeInfo) -> Status:
    """Refuse a cordoned node unless the pod tolerates the taint that stands for the cordon."""
    if not node.node.spec.unschedulable or is_tolerated(_CORDON, state.pod.spec.tolerations):
        return SUCCESS
    return unresolvable(_REASON, NAME)
