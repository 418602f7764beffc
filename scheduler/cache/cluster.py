"""The cluster as far as it is known: everything watched, everything assumed, and the indexes made from both.

One writer, no waiting: stores and indexes change in the same step, so whoever does not await sees them agree.
Readers take a snapshot: immutable, copied on write, the same object while nothing changes.
Source: docs/design/claims.md#memory, docs/design/scheduling-cycle.md#which-pods;
docs/design/cache-and-watches.md#reflectors.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, cast

from msgspec.structs import replace

from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.model.devices import (
    DeviceClass,
    DeviceID,
    DeviceTaintRule,
    PoolID,
    ResourceSlice,
)
from allocator.snapshot import SliceIndex, Snapshot
from scheduler.cache.allocated import AllocatedIndex, Conflict, Use
from scheduler.cache.assume import AssumeCache
from scheduler.cache.changes import ChangeLog, nodes_reading
from scheduler.cache.conflicts import Judge
from scheduler.cache.expectations import Expectation, HoldSet, PlaceSet
from scheduler.cache.in_flight import InFlight
from scheduler.cache.limits import PoolLimits, limits_of
from scheduler.cache.nodes import NodeIndex
from scheduler.cache.pods import PodIndex, claim_names
from scheduler.cache.recount import recount_devices, recount_moments, recount_nodes
from scheduler.cache.store import Changed, EventType, Store, WatchEvent, meta_of, version_of
from scheduler.cache.unreadable import is_lost
from scheduler.model import (
    Change,
    ChangeListener,
    ClaimRecord,
    ClusterSnapshot,
    Kind,
    NodeAllocatableResourceClaimStatus,
    NodeObject,
    Pod,
    Watched,
    unreadable,
)

ConflictListener = Callable[[Conflict], None]
ProgressListener = Callable[[Kind, int], None]
ExpectationListener = Callable[[Expectation], None]
_MANY_SLICES: Final = (
    256  # beyond this, indexing all slices anew is cheaper than inserting them one by one
)


class ClusterCache:
    """Nodes, pods, claims, slices, classes and taint rules, with what is decided and not yet seen."""

    def __init__(
        self,
        *,
        consumable_capacity: bool = True,
        counts_claims: bool = False,
        silent_is_unlimited: bool = False,
    ) -> None:
        """Start empty.

        Args:
            consumable_capacity: the gate: off, a result with a share id takes the whole device.
            counts_claims: the gate of node-allocatable resources: on, what devices of pods count in them is in use.
            silent_is_unlimited: as of `NodeIndex`; for objects that come from manifests.
        """
        self._consumable_capacity = consumable_capacity
        self._counts_claims = counts_claims
        self._silent_is_unlimited = silent_is_unlimited
        self._nodes: Store[NodeObject] = Store(meta_of)
        self._pods: Store[Pod] = Store(meta_of)
        self._slices: Store[ResourceSlice] = Store(meta_of)
        self._classes: Store[DeviceClass] = Store(meta_of)
        self._rules: Store[DeviceTaintRule] = Store(meta_of)
        self._claims = AssumeCache()
        self._stores: dict[Kind, Store[Any] | AssumeCache] = {
            Kind.NODE: self._nodes,
            Kind.POD: self._pods,
            Kind.RESOURCE_CLAIM: self._claims,
            Kind.RESOURCE_SLICE: self._slices,
            Kind.DEVICE_CLASS: self._classes,
            Kind.DEVICE_TAINT_RULE: self._rules,
        }
        self._in_flight = InFlight()
        self._assumed_pods: dict[str, tuple[Pod, str]] = {}
        self._pod_index = PodIndex()
        self._allocated = AllocatedIndex(consumable_capacity=consumable_capacity)
        self._judge = self._make_judge()
        self._node_index = self._make_node_index()
        self._slice_index = SliceIndex.build(())
        self._slices_changed: dict[str, ResourceSlice | None] = {}
        self._rules_changed = False
        self._class_map: Mapping[str, DeviceClass] = MappingProxyType({})
        self._classes_changed = False
        self._unreadable: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        self._listeners: list[ChangeListener] = []
        self._conflict_listeners: list[ConflictListener] = []
        self._progress_listeners: list[ProgressListener] = []
        self._expectation_listeners: list[ExpectationListener] = []
        self._snapshot: ClusterSnapshot | None = None
        self._snapshot_of = (-1, -1)
        self._revision = 0
        self._changes = ChangeLog()
        self._changed_with_slices: frozenset[str] | None = frozenset()

    # -- what the watch says ------------------------------------------------------------------------------------

    def replace(
        self,
        kind: Kind,
        objects: Iterable[Watched],
        resource_version: int,
        *,
        is_reset: bool = False,
    ) -> bool:
        """Take a complete list of a kind: what is not in it is gone.

        Args:
            kind: of the objects.
            objects: all there are.
            resource_version: of the list.
            is_reset: whether the server has gone back to a state before what has been seen (etcd restored): then what
                was seen, assumed and expected of this kind since belongs to a history that is gone.

        Returns:
            Whether the list differs from what was known.

        Raises:
            ValueError: the list is older than what has been seen (docs/design/failure-model.md#f13).
        """
        store = self._stores[kind]
        changes = store.replace(cast("Iterable[Any]", objects), resource_version, is_reset=is_reset)
        if kind is Kind.POD:
            self._forget_vanished(is_reset=is_reset)
        if is_reset and kind is Kind.RESOURCE_CLAIM:
            self._claims.forget_moments()  # they are versions of that history, too
        self._changed(kind, changes)
        self._progressed(kind)
        return any(old is None or new is None or not _is_same(old, new) for old, new in changes)

    def apply(self, event: WatchEvent) -> None:
        """Take one event of a watch; repeated and older ones change nothing."""
        store: Any = self._stores[event.kind]
        changes: Sequence[Changed[Any]]
        if event.type is EventType.DELETED and isinstance(event.object, Pod):
            self._forget(self._pods.identified(event.object).metadata.uid)  # seen before or not
        match event.type:
            case EventType.BOOKMARK:
                changes = store.progress(event.resource_version) or ()
            case EventType.DELETED:
                changes = store.delete(event.object)
            case EventType.ADDED | EventType.MODIFIED:
                changes = store.upsert(event.object)
        self._changed(event.kind, changes)
        self._progressed(event.kind)

    def resource_version(self, kind: Kind) -> int:
        """Everything up to this version has been seen."""
        return self._stores[kind].resource_version

    # -- what we know before the watch does -----------------------------------------------------------------------

    def assume_claim(self, record: ClaimRecord) -> None:
        """Remember the claim that one of our writes returned, until the watch has come as far."""
        self._changed(Kind.RESOURCE_CLAIM, self._claims.assume(record))

    def restore_claim(self, uid: str) -> None:
        """Forget what was assumed of a claim."""
        self._changed(Kind.RESOURCE_CLAIM, self._claims.restore(uid))

    def hold(
        self, pod_uid: str, claims: Mapping[str, tuple[ResourceClaim, AllocationResult]]
    ) -> None:
        """Hold what was decided for a pod: claim UID -> the claim and its allocation. Replaces its earlier hold."""
        self._held(self._in_flight.hold(pod_uid, claims))
        self._expect(HoldSet(pod_uid, claims))

    def release(self, pod_uid: str) -> None:
        """End a pod's hold: what it decided is written, or given up."""
        self._held(self._in_flight.release(pod_uid))
        self._expect(HoldSet(pod_uid, {}))

    def assume_pod(
        self,
        pod: Pod,
        node_name: str,
        demand: Sequence[NodeAllocatableResourceClaimStatus] = (),
    ) -> None:
        """Count a pod on the node decided for it, until the watch shows it bound or gone, or it is forgotten.

        Args:
            pod: whom.
            node_name: where.
            demand: what its claims count in resources of the node; its status may say it later, or never.
        """
        uid = pod.metadata.uid
        known = self._pods.by_uid(uid)
        if known is None and 0 < version_of(pod.metadata) <= self._pods.resource_version:
            return  # the watch has come past this pod and does not have it: it is gone
        if known is not None and known.spec.node_name:
            return
        counted = _with_demand(known or pod, demand)
        self._assumed_pods[uid] = (counted, node_name)
        self._node_index.put_pod(counted, node_name)
        self._expect(PlaceSet(uid, pod, node_name, demand))

    def forget_pod(self, uid: str) -> None:
        """Stop counting a pod on its decided node: the bind failed."""
        if self._assumed_pods.pop(uid, None) is not None:
            self._node_index.remove_pod(uid)
        self._expect(PlaceSet(uid))

    # -- what can be asked ------------------------------------------------------------------------------------------

    def snapshot(self) -> ClusterSnapshot:
        """Nodes and devices, immutable; the same object while nothing changes."""
        self._refresh_devices()
        parts = (self._node_index.revision, self._allocated.revision)
        if self._snapshot is None or self._snapshot_of != parts:
            self._snapshot_of = parts
            self._revision += 1
            self._note_changes()
            self._snapshot = ClusterSnapshot(
                nodes=self._node_index.infos(),
                devices=Snapshot(
                    slices=self._slice_index,
                    classes=self._class_map,
                    allocated=self._allocated.state(),
                ),
                revision=self._revision,
                changes=self._changes,
            )
        return self._snapshot

    def _note_changes(self) -> None:
        """Tell which nodes the next snapshot shows changed, before its parts are made."""
        of_slices, self._changed_with_slices = self._changed_with_slices, frozenset()
        of_pools = nodes_reading(self._allocated.dirty, self._slice_index)
        if of_slices is None or of_pools is None:
            self._changes.note(self._revision, None)
        else:
            self._changes.note(self._revision, of_slices | of_pools | self._node_index.dirty)

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The newest claim known: assumed or watched."""
        record = self._claims.get(f"{namespace}/{name}")
        return None if record is None else record.claim

    def claim_record(self, namespace: str, name: str) -> ClaimRecord | None:
        """The newest claim known, with its bytes."""
        return self._claims.get(f"{namespace}/{name}")

    def claim_by_uid(self, uid: str) -> ClaimRecord | None:
        """The newest claim known by UID, with its bytes."""
        return self._claims.by_uid(uid)

    def claims(self) -> Iterator[ResourceClaim]:
        """All claims of which it is known what they ask for, the newest known of each."""
        for record in self._claims:
            partial = unreadable(record)
            if partial is None or not is_lost(partial, "spec"):
                yield record.claim

    def objects(self, kind: Kind) -> Iterator[Watched]:
        """All objects of a kind, the newest known of each."""
        return iter(self._stores[kind])

    def claim_records(self) -> Iterator[ClaimRecord]:
        """All claims with their bytes, the newest known of each."""
        return iter(self._claims)

    def claims_of_pod(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """The claims that a pod names and that are known, in name order."""
        found = (self.claim(pod.metadata.namespace, name) for name in sorted(claim_names(pod)))
        return tuple(claim for claim in found if claim is not None)

    def in_flight(self, claim_uid: str) -> AllocationResult | None:
        """The allocation decided for a claim and not yet seen written, if any."""
        return self._in_flight.allocation(claim_uid)

    @property
    def in_flight_claims(self) -> int:
        """How many claims are held."""
        return len(self._in_flight)

    @property
    def assumed_claims(self) -> int:
        """How many claims are known from our writes alone."""
        return len(self._claims.assumed)

    def pod(self, uid: str) -> Pod | None:
        """The newest pod known by UID."""
        return self._pods.by_uid(uid)

    def pod_by_name(self, namespace: str, name: str) -> Pod | None:
        """The newest pod known by name."""
        return self._pods.get(f"{namespace}/{name}")

    def pods(self) -> Iterator[Pod]:
        """All pods."""
        return iter(self._pods)

    def pending_pods(self) -> tuple[Pod, ...]:
        """Pods that have no node, have not ended, and that no bind is under way for."""
        return tuple(
            pod for pod in self._pod_index.pending() if pod.metadata.uid not in self._assumed_pods
        )

    def pods_by_claim(self, namespace: str, name: str) -> tuple[Pod, ...]:
        """Pods that name a claim."""
        found = (self._pods.by_uid(uid) for uid in self._pod_index.by_claim(namespace, name))
        return tuple(pod for pod in found if pod is not None)

    def assumed_node(self, pod_uid: str) -> str | None:
        """The node a pod is being bound to, as far as it is decided and not yet seen."""
        assumed = self._assumed_pods.get(pod_uid)
        return None if assumed is None else assumed[1]

    def node(self, name: str) -> NodeObject | None:
        """A node by name."""
        return self._nodes.get(name)

    def device_class(self, name: str) -> DeviceClass | None:
        """A class by name."""
        return self._classes.get(name)

    # -- devices given twice ----------------------------------------------------------------------------------------

    def conflicts(self, claim_uid: str) -> Sequence[Conflict]:
        """Where this claim, with what is written of others, uses more than there is, and which was first (bind's W3)."""
        return self._judge.of(claim_uid)

    def double_allocations(self) -> Sequence[Conflict]:
        """Everything that claims use more of than there is; from the side of each claim."""
        return self._judge.all()

    def uses(self, device: DeviceID) -> Sequence[Use]:
        """Who uses a device."""
        return self._allocated.uses(device)

    # -- who wants to know ------------------------------------------------------------------------------------------

    def subscribe(self, listener: ChangeListener) -> None:
        """Call back after every change of an object, when stores and indexes agree again."""
        self._listeners.append(listener)

    def subscribe_conflicts(self, listener: ConflictListener) -> None:
        """Call back when a claim turns out to use more than others leave: another writer is at work.

        See docs/design/failure-model.md#f32.
        """
        self._conflict_listeners.append(listener)

    def subscribe_progress(self, listener: ProgressListener) -> None:
        """Call back with the version whenever the watch of a kind has come further."""
        self._progress_listeners.append(listener)

    def subscribe_expectations(self, listener: ExpectationListener) -> None:
        """Call back when a pod holds or releases devices, or counts on a node before the watch shows it there."""
        self._expectation_listeners.append(listener)

    # -- checks -----------------------------------------------------------------------------------------------------

    def digest(self) -> dict[Kind, str]:
        """For each kind a hash over UID and version of all watched objects: equal to that of a fresh list."""
        return {
            kind: digest_of(store.watched if isinstance(store, AssumeCache) else store)
            for kind, store in self._stores.items()
        }

    def count(self, kind: Kind) -> int:
        """How many objects of a kind the watch has shown."""
        store = self._stores[kind]
        return sum(1 for _ in store.watched) if isinstance(store, AssumeCache) else len(store)

    def watched(self, kind: Kind) -> tuple[Watched, ...]:
        """All objects of a kind that the watch has shown."""
        store = self._stores[kind]
        return tuple(store.watched if isinstance(store, AssumeCache) else store)

    def unreadable_count(self) -> int:
        """How many objects are here of which something that is needed cannot be read."""
        return sum(map(len, self._unreadable.values()))

    def recount_steps(self) -> Iterator[list[str]]:
        """Compare the indexes with a count from nothing, in steps between which the caller may do other things.

        Yields:
            differences found in each step; all empty if the indexes are right. If not: `rebuild`.
        """
        snapshot = self.snapshot()
        # Captured in one go and at full speed; everything else is done step by step.
        claims, nodes, pods = tuple(self._claims), tuple(self._nodes), tuple(self._pods)
        held = {uid: self._in_flight.allocations(uid) for uid in self._in_flight.claims}
        return chain(
            recount_devices(
                snapshot.devices.allocated,
                claims,
                held,
                consumable_capacity=self._consumable_capacity,
            ),
            recount_moments(dict(self._claims.moments), tuple(self._claims.watched)),
            recount_nodes(
                snapshot.nodes,
                nodes,
                pods,
                dict(self._assumed_pods),
                counts_claims=self._counts_claims,
            ),
        )

    def recount(self) -> list[str]:
        """Compare the indexes with a count from nothing, at once; empty if they are right."""
        return [difference for step in self.recount_steps() for difference in step]

    def rebuild(self) -> None:
        """Make the indexes anew from the stores (after `recount` found them wrong)."""
        allocated = AllocatedIndex(consumable_capacity=self._consumable_capacity)
        allocated.revision = self._allocated.revision + 1
        for record in self._claims:
            claim = record.claim
            allocated.set_written(claim.metadata.uid, claim.status.allocation)
        for uid in self._in_flight.claims:
            allocated.set_held(uid, self._in_flight.allocations(uid))
        self._claims.forget_moments()
        nodes = self._make_node_index()
        nodes.revision = self._node_index.revision + 1
        for node in self._nodes:
            nodes.set_node(node)
        for pod in self._pods:
            if pod.spec.node_name and not pod.is_terminal:
                nodes.put_pod(pod, pod.spec.node_name)
        for pod, node_name in self._assumed_pods.values():
            nodes.put_pod(pod, node_name)
        self._allocated, self._node_index = allocated, nodes
        self._judge = self._make_judge()
        self._changed_with_slices = None

    # -- inside -----------------------------------------------------------------------------------------------------

    def _changed(self, kind: Kind, changes: Sequence[Changed[Any]]) -> None:
        """Update the indexes, then notify subscribers."""
        if not changes:
            return
        self._note_unreadable(kind, changes)
        conflicts: list[Conflict] = []
        for old, new in changes:
            match kind:
                case Kind.NODE:
                    self._node_changed(old, new)
                case Kind.POD:
                    self._pod_changed(old, new)
                case Kind.RESOURCE_CLAIM:
                    conflicts.extend(self._claim_changed(old, new))
                case Kind.RESOURCE_SLICE:
                    self._slices_changed[meta_of(cast("Watched", new or old)).name] = new
                case Kind.DEVICE_CLASS:
                    self._classes_changed = True
                case Kind.DEVICE_TAINT_RULE:
                    self._rules_changed = True
        for old, new in changes:
            for listener in self._listeners:
                listener(Change(kind, old, new))
        self._tell_conflicts(conflicts)

    def _note_unreadable(self, kind: Kind, changes: Sequence[Changed[Any]]) -> None:
        here = self._unreadable[kind]
        for old, new in changes:
            if here and old is not None:
                here.discard(meta_of(old).uid)
            if new is not None and unreadable(new) is not None:
                here.add(meta_of(new).uid)

    def _node_changed(self, old: NodeObject | None, new: NodeObject | None) -> None:
        if new is not None:
            self._node_index.set_node(new)
        elif old is not None:
            self._node_index.remove_node(old.metadata.name)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self._pod_index.changed(old, new)
        if new is None:
            if old is not None:
                self._forget(old.metadata.uid)
            return
        uid = new.metadata.uid
        if new.spec.node_name or new.is_terminal:
            self._assumed_pods.pop(uid, None)
        assumed = self._assumed_pods.get(uid)
        if assumed is not None:
            told = assumed[0].status.node_allocatable_resource_claim_statuses
            new = _with_demand(new, told or ())
            self._assumed_pods[uid] = (new, assumed[1])
        node_name = new.spec.node_name or (assumed[1] if assumed is not None else "")
        if node_name and not new.is_terminal:
            self._node_index.put_pod(new, node_name)
        else:
            self._node_index.remove_pod(uid)

    def _forget_vanished(self, *, is_reset: bool) -> None:
        """Forget assumed pods that a list should have and has not: those never seen go without an event.

        After a reset all of them: their binding may be of a history that is gone.
        """
        for uid, (pod, _) in list(self._assumed_pods.items()):
            version = version_of(pod.metadata)
            is_missing = self._pods.by_uid(uid) is None and (
                0 < version <= self._pods.resource_version
            )
            if is_reset or is_missing:
                self._forget(uid)

    def _forget(self, uid: str) -> None:
        self._assumed_pods.pop(uid, None)
        self._node_index.remove_pod(uid)

    def _claim_changed(self, old: ClaimRecord | None, new: ClaimRecord | None) -> list[Conflict]:
        if new is None:
            if old is not None:
                self._allocated.set_written(old.claim.metadata.uid, None)
            return []
        uid = new.claim.metadata.uid
        added = self._allocated.set_written(uid, new.claim.status.allocation)
        return self._judge.brought(uid, added) if added else []

    def _held(self, claim_uids: Iterable[str]) -> None:
        conflicts: list[Conflict] = []
        for uid in claim_uids:
            added = self._allocated.set_held(uid, self._in_flight.allocations(uid))
            if added:
                conflicts.extend(self._judge.brought(uid, added))
        self._tell_conflicts(conflicts)

    def _make_node_index(self) -> NodeIndex:
        return NodeIndex(
            counts_claims=self._counts_claims, silent_is_unlimited=self._silent_is_unlimited
        )

    def _make_judge(self) -> Judge:
        return Judge(self._allocated, self._limits_of, self._claims.allocated_at, self._is_bound)

    def _limits_of(self, pool_id: PoolID) -> PoolLimits:
        self._refresh_devices()
        return limits_of(self._slice_index.in_pool(pool_id))

    def _is_bound(self, claim_uid: str) -> bool:
        """Whether the watch has shown a pod with a node that a claim is reserved for."""
        record = self._claims.by_uid(claim_uid)
        consumers = () if record is None else record.claim.status.reserved_for or ()
        pods = (self._pods.by_uid(consumer.uid) for consumer in consumers)
        return any(pod is not None and bool(pod.spec.node_name) for pod in pods)

    def _expect(self, expectation: Expectation) -> None:
        for listener in self._expectation_listeners:
            listener(expectation)

    def _tell_conflicts(self, conflicts: Sequence[Conflict]) -> None:
        for conflict in conflicts:
            for listener in self._conflict_listeners:
                listener(conflict)

    def _progressed(self, kind: Kind) -> None:
        reached = self._stores[kind].resource_version
        for listener in self._progress_listeners:
            listener(kind, reached)

    def _refresh_devices(self) -> None:
        """Bring slices and classes of the next snapshot up to date: all changes since the last one together."""
        if not (self._slices_changed or self._rules_changed or self._classes_changed):
            return
        self._snapshot = None
        if self._classes_changed:
            self._classes_changed = False
            self._class_map = MappingProxyType({item.metadata.name: item for item in self._classes})
        rules = self._sorted_rules()
        if len(self._slices_changed) > _MANY_SLICES:
            ordered = sorted(self._slices, key=lambda item: item.metadata.name)
            self._slice_index = SliceIndex.build(ordered, rules)
            self._changed_with_slices = None
        else:
            if self._slices_changed:
                self._change_slices()
            if self._rules_changed:
                self._slice_index = self._slice_index.with_rules(rules)
                self._changed_with_slices = None
        self._slices_changed = {}
        self._rules_changed = False

    def _change_slices(self) -> None:
        """Insert and remove single slices; their pools look different to every node that reads them, before or after."""
        upserts = [new for new in self._slices_changed.values() if new is not None]
        removed = [name for name, new in self._slices_changed.items() if new is None]
        before = self._slice_index
        old = [slice_ for name in self._slices_changed if (slice_ := before.get(name)) is not None]
        pools = {each.pool_id for each in upserts} | {each.pool_id for each in old}
        self._slice_index = before.changed(upserts, removed)
        for index in (before, self._slice_index):
            touched = nodes_reading(pools, index)
            if touched is None or self._changed_with_slices is None:
                self._changed_with_slices = None
                return
            self._changed_with_slices |= touched

    def _sorted_rules(self) -> Sequence[DeviceTaintRule]:
        return sorted(self._rules, key=lambda rule: rule.metadata.name)


def _is_same(old: Watched, new: Watched) -> bool:
    before, after = meta_of(old), meta_of(new)
    return (before.uid, before.resource_version) == (after.uid, after.resource_version)


def _with_demand(pod: Pod, demand: Sequence[NodeAllocatableResourceClaimStatus]) -> Pod:
    """A pod that says what its claims count in resources of the node."""
    told = pod.status.node_allocatable_resource_claim_statuses or ()
    if tuple(demand) == told:
        return pod
    status = replace(pod.status, node_allocatable_resource_claim_statuses=tuple(demand) or None)
    return replace(pod, status=status)


def digest_of(objects: Iterable[Watched]) -> str:
    """Hash UID and version of objects, in whatever order they come."""
    lines = sorted(f"{meta.uid} {meta.resource_version}" for meta in map(meta_of, objects))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
