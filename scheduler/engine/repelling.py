"""Running pods with anti-affinity, kept by node: there are few, and they change seldom."""

from collections.abc import Iterable, Mapping
from itertools import chain, compress
from operator import is_not

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
        old = self._nodes
        # Both are in the order of names: as many nodes, and each changed one in its old place, are the same nodes.
        # Compared without a step of Python a node: this runs for every pod, over all nodes.
        is_changed = list(map(is_not, old.values(), nodes.values()))
        changed = list(compress(nodes.values(), is_changed))
        before = compress(old.values(), is_changed)
        if len(old) != len(nodes) or any(
            o.name != n.name for o, n in zip(before, changed, strict=True)
        ):
            self._by_node = {}
            changed = list(nodes.values())
        for node in changed:
            found = repelling_on(node)
            if found:
                self._by_node[node.name] = found
            else:
                self._by_node.pop(node.name, None)
        self._nodes = nodes
