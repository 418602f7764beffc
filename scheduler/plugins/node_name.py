"""NodeName: a pod with `nodeName` can only run on that node."""

from typing import Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.events import Event
from scheduler.framework.plugin import Plugin, Reads
from scheduler.framework.pod_info import PodInfo
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.model import NodeInfo

NAME: Final = "NodeName"
_REASON: Final = Reason(
    kind=ReasonKind.NODE_AFFINITY_MISMATCH,
    message="node(s) didn't match the requested node name",
)


def filter_node(pod: PodInfo, node: NodeInfo) -> Status:
    """Refuse every node but the one that `spec.nodeName` names."""
    wanted = pod.spec.node_name
    return SUCCESS if not wanted or wanted == node.name else unresolvable(_REASON, NAME)


PLUGIN: Final = Plugin(
    name=NAME,
    filter=filter_node,
    events=Event.NODE_ADDED,
    reads=Reads(pod=("spec.node_name",), node=("node.metadata.name",)),
)
