"""Running pods with anti-affinity: there are few, and they change seldom."""

from collections.abc import Iterable, Mapping
from itertools import chain, compress
from operator import is_not

from scheduler.framework.pod_info import Followed
from scheduler.model import Change, ClusterSnapshot, Kind, NodeInfo, Pod
from scheduler.plugins.anti_affinity import (
    RepellingPod,
    repelling_on,
    repelling_pods,
    required_terms,
)


class RepellingPods:
    """As `anti_affinity.repelling_pods`, without looking at every pod again.

    Until it follows a cache it looks for nodes that changed, which costs a comparison a node; from then on it hears of
    every pod, and costs nothing.
    """

    __slots__ = ("_by_node", "_followed", "_nodes", "_pods")

    def __init__(self) -> None:
        self._nodes: Mapping[str, NodeInfo] = {}
        self._by_node: dict[str, list[RepellingPod]] = {}
        self._pods: dict[str, Pod] = {}
        self._followed: Followed | None = None

    def follow(self, cache: Followed) -> None:
        """Hear of every change of a cache, whose snapshots are the ones asked about."""
        if self._followed is cache:
            return
        self._followed = cache
        self._pods = {pod.metadata.uid: pod for pod, _ in repelling_pods(cache.snapshot())}
        cache.subscribe(self._observe)

    def of(self, snapshot: ClusterSnapshot) -> Iterable[RepellingPod]:
        """The pods of a snapshot."""
        nodes = snapshot.nodes
        if self._followed is not None:
            return [
                (pod, nodes[pod.spec.node_name].for_allocator.labels)
                for pod in self._pods.values()
                if pod.spec.node_name in nodes
            ]
        if nodes is not self._nodes:
            self._refresh(nodes)
        return chain.from_iterable(self._by_node.values())

    def _observe(self, change: Change) -> None:
        if change.kind is not Kind.POD:
            return
        pod = change.new
        if isinstance(pod, Pod) and pod.spec.node_name and not pod.is_terminal:
            if required_terms(pod):
                self._pods[pod.metadata.uid] = pod
            return
        for gone in (change.new, change.old):
            if isinstance(gone, Pod):
                self._pods.pop(gone.metadata.uid, None)

    def _refresh(self, nodes: Mapping[str, NodeInfo]) -> None:
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
            found = repelling_on(node)
            if found:
                self._by_node[node.name] = found
            else:
                self._by_node.pop(node.name, None)
        self._nodes = nodes
