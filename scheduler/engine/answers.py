"""What a node answered to a question, and what that answer depends on.

A search on a node reads: the node's labels and features; its own slices and those without a node, with the whole of
their pools (completeness, counters); what is in use in those pools. Snapshots are copied on write, so an unchanged part
is the same object, and "did anything change?" is a handful of identity checks. The parts themselves are kept here, so an
address is never used again for something else.
"""

from collections.abc import Callable

from allocator import Outcome
from allocator.model.devices import PoolID
from allocator.model.nodes import Node
from allocator.snapshot import NOTHING_USED, AllocatedState, PoolUsage, SliceIndex, Snapshot
from scheduler.framework.cycle_state import NodeVerdict
from scheduler.framework.status import Status
from scheduler.model import NodeInfo

UsageOf = Callable[[PoolID, PoolUsage], PoolUsage]
PoolView = tuple[PoolID, object, PoolUsage]  # pool, its slices, what is in use


def _pool_views(slices: object, devices: Snapshot) -> tuple[PoolView, ...]:
    pools = dict.fromkeys(prepared.pool_id for prepared in slices)  # type: ignore[attr-defined]
    return tuple(
        (pool, devices.slices.in_pool(pool), devices.allocated.usage(pool)) for pool in pools
    )


def _is_same(views: tuple[PoolView, ...], devices: Snapshot) -> bool:
    slices, allocated = devices.slices, devices.allocated
    for pool, group, usage in views:
        if slices.in_pool(pool) is not group or allocated.usage(pool) is not usage:
            return False
    return True


class SharedView:
    """Slices without a node, which any node may reach: one object for as long as nothing about them changes."""

    __slots__ = ("_pools", "_shared")

    def __init__(self, devices: Snapshot) -> None:
        self._shared = devices.slices.shared
        self._pools = _pool_views(self._shared, devices)

    def is_current(self, devices: Snapshot) -> bool:
        """Whether nothing changed. O(pools without a node)."""
        return devices.slices.shared is self._shared and _is_same(self._pools, devices)


class WholeView:
    """All slices and all that is in use: upstream's oldest allocator looks at slices of other nodes, too."""

    __slots__ = ("_allocated", "_slices")

    def __init__(self, devices: Snapshot) -> None:
        self._slices: SliceIndex = devices.slices
        self._allocated: AllocatedState = devices.allocated

    def is_current(self, devices: Snapshot) -> bool:
        """Whether nothing changed. O(1)."""
        return devices.slices is self._slices and devices.allocated is self._allocated


class Answer:
    """The last answer of one node to one question.

    Attributes:
        info: the node as the predicates saw it.
        predicate: what they said; None: all pass.
        outcome: of the search, if there was one.
        verdict: predicate and outcome together, about anonymous claims; None when it cannot be kept.
        slices: the whole index at which `verdict` was last found to be current.
        shared: likewise, what all nodes see.
        usages: (pool, what is in use) that `verdict` depends on.
    """

    __slots__ = (
        "_local",
        "_node",
        "_pools",
        "_shared",
        "info",
        "outcome",
        "predicate",
        "shared",
        "slices",
        "usages",
        "verdict",
    )

    def __init__(self) -> None:
        self.info: NodeInfo | None = None
        self.predicate: Status | None = None
        self.outcome: Outcome | None = None
        self.verdict: NodeVerdict | None = None
        self.slices: SliceIndex | None = None
        self.shared: object = None
        self.usages: tuple[tuple[PoolID, PoolUsage], ...] = ()
        self._node: Node | None = None
        self._local: object = None
        self._shared: object = None
        self._pools: tuple[PoolView, ...] = ()

    def is_current(self, node: Node, devices: Snapshot, shared: object) -> bool:
        """Whether a search would read the very things it has read for `outcome`."""
        return (
            self.outcome is not None
            and (self._node is node or self._node == node)
            and self._shared is shared
            and devices.slices.local(node.name) is self._local
            and _is_same(self._pools, devices)
        )

    def keep(self, outcome: Outcome, node: Node, devices: Snapshot, shared: object) -> None:
        """Remember an outcome with all that it depends on."""
        self.outcome = outcome
        self.verdict = None
        self._node = node
        self._shared = shared
        self._local = devices.slices.local(node.name)
        self._pools = _pool_views(self._local, devices)

    def settled(
        self, node: NodeInfo, slices: SliceIndex, shared: object, usage: UsageOf
    ) -> NodeVerdict | None:
        """The verdict if nothing at all has changed since it was last found right. O(pools of the node)."""
        if self.info is not node or self.slices is not slices or self.shared is not shared:
            return None
        for pool, used in self.usages:
            if usage(pool, NOTHING_USED) is not used:
                return None
        return self.verdict

    def settle(self, verdict: NodeVerdict, devices: Snapshot, shared: object) -> NodeVerdict:
        """Remember a verdict that is right now, so that the next look is a short one."""
        self.verdict = verdict
        self.slices = devices.slices
        self.shared = shared
        is_refused = self.predicate is not None or self.outcome is None
        self.usages = () if is_refused else tuple((pool, use) for pool, _, use in self._pools)
        return verdict
