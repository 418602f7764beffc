"""Running pods with anti-affinity, kept by node: there are few, and they change seldom."""

from collections.abc import Iterable, Mapping
from itertools import chain

from scheduler.framework.cycle_state import RepellingPod
from scheduler.model import ClusterSnapshot, NodeInfo
from scheduler.plugins.inter_pod_affinity import repelling_on


class RepellingPods:
    """As `inter_pod_affinity.repelling_pods`, looking again only at nodes that changed."""

    __slots__ = ("_by_node", "_nodes")

    def __init__(self) -> None:
        self._nodes: Mapping[str, NodeInfo] = {}
        self._by_node: dict[str, list[RepellingPod]] = {}

    def pods(self, snapshot: ClusterSnapshot) -> Iterable[RepellingPod]:
        """The pods of a snapshot; costs a comparison of addresses a node."""
        nodes = snapshot.nodes
        if nodes is not self._nodes:
            self._refresh(nodes)
        return chain.from_iterable(self._by_node.values())

    def _refresh(self, nodes: Mapping[str, NodeInfo]) -> None:
        # Both are in the order of names: as many nodes, and each changed one in its old place, are the same nodes.
        pairs = zip(self._nodes.values(), nodes.values(), strict=False)
        changes = [(known, new) for known, new in pairs if known is not new]
        is_same_nodes = len(self._nodes) == len(nodes)
        if not is_same_nodes or any(known.name != new.name for known, new in changes):
            self._by_node = {}
            changes = [(new, new) for new in nodes.values()]
        for _, node in changes:
            found = repelling_on(node)
            if found:
                self._by_node[node.name] = found
            else:
                self._by_node.pop(node.name, None)
        self._nodes = nodes
