"""What has been decided lately and what the cluster was then: changes and decisions in their order, as many as fit.

A change is kept as the two objects that the cache has seen, so it costs two references. Where the log begins, the
cluster is not copied: it is the cluster of now with the changes taken back. So recording costs nothing that grows with
the cluster, and a recording can be taken at any time.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from allocator.model.claims import AllocationResult, ResourceClaim
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.expectations import Expectation, HoldSet, PlaceSet
from scheduler.cache.store import meta_of
from scheduler.framework.environment import Environment
from scheduler.framework.plan import Plan
from scheduler.framework.status import Status
from scheduler.model import (
    Change,
    Kind,
    Pod,
    Watched,
)

MOST: Final = 20_000
"""Changes, and nodes looked at by decisions, that are kept; some MiB, and some minutes of a busy cluster."""

V = TypeVar("V")
Held = Mapping[str, tuple[ResourceClaim, AllocationResult]]


@dataclass(frozen=True, slots=True)
class HoldChanged:
    """What a pod holds; None: nothing."""

    pod_uid: str
    before: Held | None
    after: Held | None


@dataclass(frozen=True, slots=True)
class PlaceChanged:
    """Where a pod counts; None: nowhere."""

    pod_uid: str
    before: PlaceSet | None
    after: PlaceSet | None


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision.

    Attributes:
        number: of the process, from 1.
        at: wall-clock time, RFC 3339.
        pod: as it was decided about.
        versions: how far the watch of each kind had come.
        looked_at: the nodes that were looked at, in this order; None: all there were, in the order of their names.
        outcome: the plan, or why there is none.
    """

    number: int
    at: str
    pod: Pod
    versions: Mapping[Kind, int]
    looked_at: tuple[str, ...] | None
    outcome: Plan | Status


Entry = Change | HoldChanged | PlaceChanged | Decision


@dataclass(frozen=True, slots=True)
class Recording:
    """What a recorder knows at one moment.

    Attributes:
        objects: of each kind, as they were where the entries begin.
        held: pod UID -> what it held there.
        placed: pod UID -> where it counted there.
        entries: what came after, in order.
    """

    objects: Mapping[Kind, Sequence[Watched]]
    held: Mapping[str, Held]
    placed: Mapping[str, PlaceSet]
    entries: Sequence[Entry]


class FlightRecorder:
    """Listens to a cache and an engine."""

    def __init__(self, cache: ClusterCache, environment: Environment, most: int = MOST) -> None:
        """Begin to listen.

        Args:
            cache: that decisions are made on.
            environment: of the decisions.
            most: entries that are kept, each node that a decision looked at counted as one.
        """
        self.environment = environment
        self._cache = cache
        self._most = most
        self._entries: deque[Entry] = deque()
        self._weight = 0
        self._number = 0
        self._held: dict[str, Held] = {}
        self._placed: dict[str, PlaceSet] = {}
        cache.subscribe(self._changed)
        cache.subscribe_expectations(self._expected)

    def decided(self, pod: Pod, looked_at: Sequence[str] | None, outcome: Plan | Status) -> None:
        """Note a decision; arguments as the attributes of `Decision`."""
        self._number += 1
        versions = {kind: self._cache.resource_version(kind) for kind in Kind}
        names = None if looked_at is None else tuple(looked_at)
        at = self.environment.now().isoformat()
        self._add(Decision(self._number, at, pod, versions, names, outcome))

    def recording(self) -> Recording:
        """All that is known, from the first entry that is kept."""
        objects = {kind: {_key(item): item for item in self._cache.objects(kind)} for kind in Kind}
        held, placed = dict(self._held), dict(self._placed)
        for entry in reversed(self._entries):
            match entry:
                case Change(kind=kind, old=old, new=new):
                    if new is not None:
                        objects[kind].pop(_key(new), None)
                    if old is not None:
                        objects[kind][_key(old)] = old
                case HoldChanged(pod_uid=uid, before=before):
                    _put(held, uid, before)
                case PlaceChanged(pod_uid=uid, before=earlier):
                    _put(placed, uid, earlier)
                case Decision():
                    pass
        return Recording(
            {kind: tuple(items.values()) for kind, items in objects.items()},
            held,
            placed,
            tuple(self._entries),
        )

    def _changed(self, change: Change) -> None:
        self._add(change)
        pod = change.new or change.old
        uid = pod.metadata.uid if isinstance(pod, Pod) else ""
        # The cache lets go of what it expected once the watch shows more.
        if uid in self._placed and self._cache.assumed_node(uid) is None:
            self._place(uid, None)

    def _expected(self, expectation: Expectation) -> None:
        match expectation:
            case HoldSet(pod_uid=uid, claims=claims):
                self._add(HoldChanged(uid, self._held.get(uid), claims or None))
                _put(self._held, uid, claims or None)
            case PlaceSet(pod_uid=uid, pod=pod):
                self._place(uid, None if pod is None else expectation)

    def _place(self, uid: str, after: PlaceSet | None) -> None:
        self._add(PlaceChanged(uid, self._placed.get(uid), after))
        _put(self._placed, uid, after)

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._weight += _weight(entry)
        while self._weight > self._most and len(self._entries) > 1:
            self._weight -= _weight(self._entries.popleft())


def _weight(entry: Entry) -> int:
    return 1 + len(entry.looked_at or ()) if isinstance(entry, Decision) else 1


def _key(item: Watched) -> str:
    return meta_of(item).uid or f"{meta_of(item).namespace}/{meta_of(item).name}"


def _put(into: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value
