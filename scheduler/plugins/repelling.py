"""Running pods with required anti-affinity, kept up to date incrementally: they are few and change seldom."""

from collections.abc import Iterable, Mapping
from itertools import chain, compress
from operator import is_not

from scheduler.framework.cursor import OLDER, SnapshotCursor
from scheduler.model import ClusterSnapshot, NodeInfo
from scheduler.plugins.anti_affinity import RepellingPod, repelling_on, repelling_pods


class RepellingPods:
    """As `anti_affinity.repelling_pods`, without looking at every pod again.

    Nothing but snapshots is looked at: a node with its pods is one object there for as long as nothing of it changes,
    whatever the order in which nodes and pods came, went, or were only decided. The log of changes tells which nodes
    are worth a look; without it all nodes are compared.
    """

    __slots__ = ("_by_node", "_cursor", "_nodes")

    def __init__(self) -> None:
        self._cursor = SnapshotCursor()
        self._nodes: Mapping[str, NodeInfo] = {}
        self._by_node: dict[str, list[RepellingPod]] = {}

    def of(self, snapshot: ClusterSnapshot) -> Iterable[RepellingPod]:
        """The pods of a snapshot. O(nodes that changed) + O(those pods)."""
        nodes = snapshot.nodes
        if nodes is not self._nodes:
            changed = self._cursor.catch_up(snapshot, None)
            if changed is OLDER:
                return repelling_pods(snapshot)
            if changed is None:
                self._compare(nodes)
            else:
                for name in changed:
                    self._look(name, nodes.get(name))
            self._nodes = nodes
        return chain.from_iterable(self._by_node.values())

    def _compare(self, nodes: Mapping[str, NodeInfo]) -> None:
        old = self._nodes
        # Both are in the order of names: as many nodes, and each changed one in its old place, are the same nodes.
        is_changed = list(map(is_not, old.values(), nodes.values()))
        changed = list(compress(nodes.values(), is_changed))
        before = compress(old.values(), is_changed)
        is_same_nodes = len(old) == len(nodes) and all(
            known.name == new.name for known, new in zip(before, changed, strict=True)
        )
        if not is_same_nodes:
            self._by_node = {}
            changed = list(nodes.values())
        for node in changed:
            self._look(node.name, node)

    def _look(self, name: str, node: NodeInfo | None) -> None:
        found = None if node is None else repelling_on(node)
        if found:
            self._by_node[name] = found
        else:
            self._by_node.pop(name, None)
