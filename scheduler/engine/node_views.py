"""The view of every node, derived again only where something that searches read has changed.

What a node's searches read is: labels and features of the node; its own slices and those without a node, with the whole
of their pools (completeness, counters); what is in use in those pools. Snapshots are copied on write, so an unchanged
part is the same object, and "did anything change?" is a handful of identity checks. The parts themselves are kept here,
so an address is never used again for something else.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from allocator.columns import Interner
from allocator.model.devices import PoolID
from allocator.model.nodes import Node
from allocator.pools import Pool, PoolRules, gather_pools
from allocator.snapshot import PoolUsage, PreparedSlice, Snapshot
from allocator.view import NodeView, UsageKeys, usage_of, view_of
from scheduler.framework.cursor import OLDER, SnapshotCursor
from scheduler.model import ClusterSnapshot

_SPARE_VIEWS: Final = 64  # of nodes that are gone, before they are looked for

PoolParts = tuple[PoolID, object, PoolUsage]
"""A pool, its slices, and what is in use of it."""


def _pool_parts(slices: Iterable[PreparedSlice], devices: Snapshot) -> tuple[PoolParts, ...]:
    pools = dict.fromkeys(prepared.pool_id for prepared in slices)
    return tuple(
        (pool, devices.slices.in_pool(pool), devices.allocated.usage(pool)) for pool in pools
    )


class SharedParts:
    """What any node may read: one object for as long as nothing of it changes.

    Attributes:
        structure: the same object for as long as only what is in use changes.
    """

    __slots__ = ("_pools", "_slices", "structure")

    def __init__(
        self, slices: Sequence[PreparedSlice], devices: Snapshot, before: "SharedParts | None"
    ) -> None:
        self._slices = slices
        self._pools = _pool_parts(slices, devices)
        is_same = before is not None and before._has_structure(slices, self._pools)
        self.structure: object = before.structure if before is not None and is_same else object()

    def _has_structure(self, slices: Sequence[PreparedSlice], pools: tuple[PoolParts, ...]) -> bool:
        return (
            self._slices == slices
            and len(pools) == len(self._pools)
            and all(old[1] is new[1] for old, new in zip(self._pools, pools, strict=True))
        )

    def is_current(self, slices: Sequence[PreparedSlice], devices: Snapshot) -> bool:
        """Whether nothing changed. O(pools without a node)."""
        return self._slices == slices and _is_same(self._pools, devices)


def _is_same(pools: tuple[PoolParts, ...], devices: Snapshot) -> bool:
    slices, in_use = devices.slices, devices.allocated
    for pool, group, usage in pools:
        if slices.in_pool(pool) is not group or in_use.usage(pool) is not usage:
            return False
    return True


class _CachedView:
    """A view with what it was derived from."""

    __slots__ = ("local", "pools", "shared", "view")

    def __init__(
        self, view: NodeView, local: object, shared: SharedParts, pools: tuple[PoolParts, ...]
    ) -> None:
        self.view = view
        self.local = local
        self.shared = shared
        self.pools = pools


class NodeViews:
    """Views of nodes for one set of gates. What two views of a node agree on is shared."""

    def __init__(self, rules: PoolRules) -> None:
        """Start without any view.

        Args:
            rules: how pools are gathered, from the gates.
        """
        self._rules = rules
        self._interner = Interner()
        self._usage_keys = UsageKeys()
        self._views: dict[str, _CachedView] = {}
        self._shared: SharedParts | None = None
        self._shared_of: Snapshot | None = None
        self._cursor = SnapshotCursor()
        self._stale: set[str] = set()
        self._are_kept = False
        self._most_pools = _SPARE_VIEWS

    def shared(self, devices: Snapshot) -> SharedParts:
        """What any node may read of a snapshot; the same object while nothing of it changes."""
        if self._shared is None or self._shared_of is not devices:
            slices = devices.slices.shared
            if self._rules.stable:
                # The stable allocator looks at the counters of every node.
                slices = (*slices, *devices.slices.with_counters)
            if self._shared is None or not self._shared.is_current(slices, devices):
                self._shared = SharedParts(slices, devices, self._shared)
            self._shared_of = devices
        return self._shared

    def catch_up(self, snapshot: ClusterSnapshot) -> SharedParts:
        """Learn which views may be old by now.

        Returns:
            What any node may read of the snapshot.
        """
        shared = self.shared(snapshot.devices)
        changed = self._cursor.catch_up(snapshot, shared)
        self._are_kept = changed is not OLDER
        if changed is None:
            self._stale = set(self._views)
        elif changed:
            if self._stale:
                self._stale |= changed
            else:
                self._stale = set(changed)
        return shared

    def of(self, node: Node, devices: Snapshot, shared: SharedParts) -> NodeView:
        """The view of a node in the snapshot that was caught up with last; the same object while what it shows does not change.

        Raises:
            NodeSelectorError: a slice that the node must look at has a selector that cannot be parsed.
        """
        name = node.name
        kept = self._views.get(name)
        if kept is not None and self._are_kept and name not in self._stale:
            return kept.view
        view = self._looked_at(kept, node, devices, shared)
        if self._are_kept:
            self._stale.discard(name)
        else:
            self._stale.add(name)
        return view

    def _looked_at(
        self, kept: _CachedView | None, node: Node, devices: Snapshot, shared: SharedParts
    ) -> NodeView:
        local = devices.slices.local(node.name)
        if kept is None or not self._is_structure(kept, node, local, shared, devices):
            return self._derived(node, devices, local, shared)
        if kept.shared is shared and _is_same(kept.pools, devices):
            return kept.view
        return self._used(kept, devices, local, shared)

    @staticmethod
    def _is_structure(
        kept: _CachedView, node: Node, local: object, shared: SharedParts, devices: Snapshot
    ) -> bool:
        """Whether a view is current but for what is in use."""
        view = kept.view
        slices = devices.slices
        return (
            (view.node is node or view.node == node)
            and kept.shared.structure is shared.structure
            and kept.local is local
            and all(slices.in_pool(pool) is group for pool, group, _ in kept.pools)
        )

    def _derived(
        self,
        node: Node,
        devices: Snapshot,
        local: Sequence[PreparedSlice],
        shared: SharedParts,
    ) -> NodeView:
        pools: list[Pool] = gather_pools(node, devices.slices, self._rules)
        view = view_of(
            node, pools, devices.slices, devices.allocated, self._interner, self._usage_keys
        )
        self._views[node.name] = _CachedView(view, local, shared, _pool_parts(local, devices))
        return view

    def _used(
        self,
        kept: _CachedView,
        devices: Snapshot,
        local: Sequence[PreparedSlice],
        shared: SharedParts,
    ) -> NodeView:
        old = kept.view
        usage = usage_of(
            old.pools, old.own_names, devices.slices, devices.allocated, self._usage_keys
        )
        if usage == old.usage:
            view = old
        else:
            view = NodeView(old.node, old.pools, old.structure, usage, old.columns, old.own_names)
        self._views[old.node.name] = _CachedView(view, local, shared, _pool_parts(local, devices))
        return view

    def forget_nodes_not_in(self, nodes: Mapping[str, object]) -> None:
        """Drop views of nodes, and keys of pools, that are gone, once there are enough of them."""
        is_full = len(self._usage_keys) > self._most_pools
        if len(self._views) <= len(nodes) + _SPARE_VIEWS and not is_full:
            return
        self._views = {name: kept for name, kept in self._views.items() if name in nodes}
        self._stale &= self._views.keys()
        views = [kept.view for kept in self._views.values()]
        self._usage_keys.keep(
            chain((pool.id for view in views for pool in view.pools), *(v.own_names for v in views))
        )
        self._most_pools = 2 * len(self._usage_keys) + _SPARE_VIEWS
