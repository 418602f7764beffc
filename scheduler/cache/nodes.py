"""Nodes with what runs on them: sums kept pod by pod, frozen node by node for snapshots.

Source: docs/design/scheduling-cycle.md#which-pods: every pod with a node counts until it is terminal, terminating ones
and other schedulers' too, and those we have decided and not yet seen bound.
"""

from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from allocator.model.nodes import Node
from scheduler.cache.layered import LayeredMap
from scheduler.framework.resources import assigned_pod_requests, host_ports
from scheduler.model import HostPort, NodeInfo, NodeObject, Pod, UnreadableNode

_MAX_INTERNED: Final = 10_000  # pods with requests all their own must not fill the memory


class _Usage(NamedTuple):
    """What one pod takes of its node; equal ones are one object, since most pods come in many copies."""

    requests: Mapping[str, int]
    ports: frozenset[HostPort]


class _NodeState:
    """A node while its pods come and go."""

    __slots__ = ("for_allocator", "node", "pods", "ports", "requested")

    def __init__(self) -> None:
        self.node: NodeObject | None = None
        self.for_allocator: Node | None = None
        self.pods: dict[str, Pod] = {}
        self.requested: dict[str, int] = {}
        self.ports: dict[HostPort, int] = {}


class NodeIndex:
    """Nodes by name, each with its pods.

    Attributes:
        revision: grows with every change.
    """

    def __init__(self, *, counts_claims: bool = False, silent_is_unlimited: bool = False) -> None:
        """Start empty.

        Args:
            counts_claims: whether what devices of pods count in resources of the node is in use, as their status says.
            silent_is_unlimited: whether a node has all there is if its status does not say what it has. Never in a
                cluster: there such a node has nothing, since its kubelet has not come up yet.
        """
        self._counts_claims = counts_claims
        self._silent_is_unlimited = silent_is_unlimited
        self._states: dict[str, _NodeState] = {}
        self._usage: dict[str, _Usage] = {}
        self._node_of: dict[str, str] = {}
        self._interned: dict[object, _Usage] = {}
        self._dirty: set[str] = set()
        self._infos: LayeredMap[str, NodeInfo] = LayeredMap()
        self.revision = 0

    @property
    def dirty(self) -> Set[str]:
        """Names of the nodes that changed since the last `infos()`; a view, empty after the next one."""
        return self._dirty

    def set_node(self, node: NodeObject) -> None:
        """Add a node, or its new state. One that cannot be read is as one that is not there: nothing is put there."""
        if isinstance(node, UnreadableNode):
            self.remove_node(node.metadata.name)
            return
        state = self._state(node.metadata.name)
        state.node = node
        state.for_allocator = node.for_allocator()
        self._touch(node.metadata.name)

    def remove_node(self, name: str) -> None:
        """Take a node away; its pods stay known, in case it comes back before they go."""
        state = self._states.get(name)
        if state is None or state.node is None:
            return
        state.node = state.for_allocator = None
        self._touch(name)
        if not state.pods:
            del self._states[name]

    def put_pod(self, pod: Pod, node_name: str) -> None:
        """Count a pod on a node, instead of wherever it counted before."""
        uid = pod.metadata.uid
        requests = assigned_pod_requests(pod, counts_claims=self._counts_claims)
        usage = self._intern(requests, host_ports(pod))
        if self._node_of.get(uid) == node_name and self._usage[uid] is usage:
            self._states[node_name].pods[uid] = pod
            self._touch(node_name)
            return
        self.remove_pod(uid)
        state = self._state(node_name)
        state.pods[uid] = pod
        for name, amount in usage.requests.items():
            state.requested[name] = state.requested.get(name, 0) + amount
        for port in usage.ports:
            state.ports[port] = state.ports.get(port, 0) + 1
        self._usage[uid] = usage
        self._node_of[uid] = node_name
        self._touch(node_name)

    def remove_pod(self, uid: str) -> None:
        """Stop counting a pod."""
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        usage = self._usage.pop(uid)
        state = self._states[node_name]
        del state.pods[uid]
        for name, amount in usage.requests.items():
            state.requested[name] -= amount
            if not state.requested[name]:
                del state.requested[name]
        for port in usage.ports:
            state.ports[port] -= 1
            if not state.ports[port]:
                del state.ports[port]
        self._touch(node_name)
        if state.node is None and not state.pods:
            del self._states[node_name]

    def node_of(self, uid: str) -> str | None:
        """Where a pod counts."""
        return self._node_of.get(uid)

    def infos(self) -> Mapping[str, NodeInfo]:
        """All nodes by name in name order, immutable; only changed nodes are made again."""
        if not self._dirty:
            return self._infos
        changes: dict[str, NodeInfo | None] = {}
        is_sorted = True
        for name in self._dirty:
            state = self._states.get(name)
            if state is None or state.node is None or state.for_allocator is None:
                changes[name] = None
                continue
            is_sorted = is_sorted and name in self._infos
            changes[name] = NodeInfo(
                node=state.node,
                for_allocator=state.for_allocator,
                pods=dict(state.pods),
                requested=dict(state.requested),
                ports=frozenset(state.ports),
                generation=self.revision,
                is_unlimited=self._silent_is_unlimited and state.node.status.allocatable is None,
            )
        self._dirty.clear()
        infos = self._infos.changed(changes)
        self._infos = infos if is_sorted else LayeredMap(dict(sorted(infos.items())))
        return self._infos

    def _state(self, name: str) -> _NodeState:
        state = self._states.get(name)
        if state is None:
            state = self._states[name] = _NodeState()
        return state

    def _touch(self, name: str) -> None:
        self.revision += 1
        self._dirty.add(name)

    def _intern(self, requests: Mapping[str, int], ports: frozenset[HostPort]) -> _Usage:
        positive = {name: amount for name, amount in requests.items() if amount}
        key = (tuple(sorted(positive.items())), ports)
        found = self._interned.get(key)
        if found is None:
            if len(self._interned) > _MAX_INTERNED:
                self._interned.clear()
            found = self._interned[key] = _Usage(positive, ports)
        return found
