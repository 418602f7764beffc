"""NodePorts: two pods on one node cannot use the same host port."""

from typing import Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.events import Event
from scheduler.framework.plugin import Plugin, Reads
from scheduler.framework.pod_info import Derived, PodInfo
from scheduler.framework.resources import ANY_IP, host_ports
from scheduler.framework.status import SUCCESS, Status, unschedulable
from scheduler.model import HostPort, NodeInfo

NAME: Final = "NodePorts"
PORTS: Final = Derived(lambda pod: host_ports(pod.pod))
"""The host ports that the pod wants."""
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


def filter_node(pod: PodInfo, node: NodeInfo) -> Status:
    """Refuse a node where one of the pod's host ports is taken; 0.0.0.0 collides with every address."""
    for wanted in pod.read(PORTS):
        if any(_collide(wanted, used) for used in node.ports):
            return unschedulable(_REASON, NAME)
    return SUCCESS


PLUGIN: Final = Plugin(
    name=NAME,
    filter=filter_node,
    events=Event.NODE_ADDED | Event.ROOM_FREED,
    reads=Reads(
        pod=(
            "spec.containers.ports",
            "spec.init_containers.ports",
            "spec.init_containers.restart_policy",
        ),
        node=("ports",),
    ),
)
