"""NodePorts: two pods of a node cannot use one host port."""

from typing import Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.resources import ANY_IP
from scheduler.framework.status import SUCCESS, Status, unschedulable
from scheduler.model import HostPort, NodeInfo

NAME: Final = "NodePorts"
_REASON: Final = Reason(
    kind=ReasonKind.PORT_CONFLICT,
    message="node(s) didn't have free ports for the requested pod ports",
)


def _collide(wanted: HostPort, used: HostPort) -> bool:
    return (
        wanted.port == used.port
        and wanted.protocol == used.protocol
        and (wanted.ip == used.ip or ANY_IP in (wanted.ip, used.ip))
    )


def filter_node(state: CycleState, node: NodeInfo) -> Status:
    """Refuse a node where one of the pod's host ports is taken; 0.0.0.0 collides with every address."""
    for wanted in state.ports:
        if any(_collide(wanted, used) for used in node.ports):
            return unschedulable(_REASON, NAME)
    return SUCCESS
