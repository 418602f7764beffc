"""Which nodes changed between two snapshots, so that whoever knew the first need not look at all nodes of the second."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from allocator.model.devices import PoolID
from allocator.snapshot import SliceIndex

MOST_REVISIONS: Final = 512
"""Steps that are remembered; who comes back later looks at every node."""


class ChangeLog:
    """For each of the latest revisions the nodes that may look different from the revision before."""

    __slots__ = ("_newest", "_steps")

    def __init__(self, most: int = MOST_REVISIONS) -> None:
        """Start empty.

        Args:
            most: revisions to remember.
        """
        self._steps: deque[tuple[int, frozenset[str] | None]] = deque(maxlen=most)
        self._newest = 0

    def note(self, revision: int, nodes: Iterable[str] | None) -> None:
        """Add the newest revision; None: any node may have changed."""
        self._steps.append((revision, None if nodes is None else frozenset(nodes)))
        self._newest = revision

    def since(self, revision: int) -> frozenset[str] | None:
        """Names of nodes changed, added or removed after a revision; None: that is not known, or all of them."""
        changed: frozenset[str] = frozenset()
        if revision >= self._newest:
            return changed
        for at, nodes in reversed(self._steps):
            if at <= revision:
                return changed
            if nodes is None:
                return None
            changed |= nodes
            if at == revision + 1:
                return changed
        return None


def nodes_reading(pools: Iterable[PoolID], slices: SliceIndex) -> frozenset[str] | None:
    """The nodes whose searches read some pools; None: all, since a slice of them is not for one node alone."""
    names = set()
    for pool in pools:
        for prepared in slices.in_pool(pool):
            name = prepared.source.spec.node_name
            if not name:
                return None
            names.add(name)
    return frozenset(names)
