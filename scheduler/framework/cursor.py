"""How far somebody has come with a cache's snapshots, and what changed since then."""

from typing import Final

from scheduler.model import Changes, ClusterSnapshot

OLDER: Final[frozenset[str]] = frozenset({"\0"})  # no node has this name
"""The snapshot is older than what has been seen already."""


class SnapshotCursor:
    """The latest snapshot that was looked at."""

    __slots__ = ("_changes", "_revision", "_shared", "_snapshot")

    def __init__(self) -> None:
        self._revision = -1
        self._changes: Changes | None = None
        self._shared: object = None
        self._snapshot: ClusterSnapshot | None = None  # where there is no log of changes

    def catch_up(self, snapshot: ClusterSnapshot, shared: object) -> frozenset[str] | None:
        """Take a snapshot as the latest.

        Args:
            snapshot: the new one.
            shared: what all nodes see of it; another object whenever that changes.

        Returns:
            The nodes that may have changed since the one before; None: any; `OLDER`: it is older, and not taken.
        """
        changes = snapshot.changes
        is_known = changes is not None and changes is self._changes
        changed: frozenset[str] | None = None
        if is_known and snapshot.revision < self._revision:
            return OLDER
        if snapshot is self._snapshot:
            changed = frozenset()
        elif is_known and changes is not None and shared is self._shared:
            changed = changes.since(self._revision)
        self._revision = snapshot.revision
        self._changes = changes
        self._shared = shared
        self._snapshot = snapshot if changes is None else None
        return changed
