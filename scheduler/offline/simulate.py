"""Schedules the pods of manifests as a live scheduler would, one after another, and says what went where and why not.

The same input gives the same output, byte for byte: no clock, no random ids (a share id is a UUIDv5 of claim, request and
device). The decisions are `scheduler.engine`'s, and so `scheduler.cycle`'s; this module is the cluster around them.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from allocator.cel import Compiler
from allocator.features import Features
from allocator.model.claims import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from allocator.model.devices import DeviceID
from allocator.outcome import DeviceReason, Reason, ReasonKind
from allocator.snapshot import SliceIndex, Snapshot
from scheduler import cycle
from scheduler.api.decode import allocation_tree
from scheduler.cache.allocated import AllocatedIndex
from scheduler.cache.nodes import NodeIndex
from scheduler.conclusion import conclude, summary
from scheduler.engine import Engine, LongSearch
from scheduler.framework.cycle_state import FilterResult, NodeVerdict
from scheduler.framework.environment import Environment, Mode
from scheduler.framework.plan import Plan
from scheduler.framework.pod_info import PodInfo
from scheduler.framework.status import Code, Status
from scheduler.model import ClusterSnapshot, NodeObject, Pod
from scheduler.offline.inventory import InputError, Inventory, take_inventory
from scheduler.offline.manifests import Manifest
from scheduler.plugins import dynamic_resources, node_affinity, taint_toleration

_SHARE_NAMESPACE: Final = uuid.UUID("0f6e6c54-6d0b-5a53-8f0e-6a1d6f2b7c11")
_MOST_DEVICES: Final = 256
# Binding timeouts compare with a written timestamp: before all time nothing has timed out.
_BEFORE_ALL_TIME: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """How to simulate.

    Attributes:
        features: gates of the cluster.
        policy: a name in `allocator.policies.POLICIES`.
        on_node_error: `reject` the node, or `abort` the attempt as in-tree does.
        budget: candidate devices one search may try.
        explain: whether reasons tell about every device.
        all_nodes: whether pods that fit also say what every node is to them.
    """

    features: Features
    policy: str = "FirstFit"
    on_node_error: str = "reject"
    budget: int = 1_000_000
    explain: bool = True
    all_nodes: bool = False


@dataclass(frozen=True, slots=True)
class PodClaimResult:
    """A claim of a scheduled pod: entry of the pod, claim and its allocation."""

    entry: str
    claim: ResourceClaim
    allocation: AllocationResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResult:
    """What became of one pod.

    Attributes:
        namespace: of the pod.
        name: of the pod.
        node: where it runs; None if it does not fit.
        claims: its claims with their devices, in the pod's order; none if it does not fit.
        reason: why it does not fit.
        nodes: node → why not, or None where it would fit; in file order; as far as they were looked at and asked for.
    """

    namespace: str
    name: str
    node: str | None
    claims: tuple[PodClaimResult, ...] = ()
    reason: Reason | None = None
    nodes: Mapping[str, Reason | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Simulation:
    """The answer: pods that were to be scheduled, in the order they were tried, objects left out, and notes."""

    pods: tuple[PodResult, ...]
    errors: tuple[InputError, ...]
    notes: tuple[str, ...]


def simulate(manifests: Sequence[Manifest], options: SimulationOptions) -> Simulation:
    """Schedule every pod without a node, by priority, creation time and file order."""
    environment = environment_of(options)
    engine = Engine(environment)
    inventory = take_inventory(
        manifests, options.features, partial(is_daemon_eligible, environment)
    )
    cluster = OfflineCluster(inventory, options.features)
    notes = list(inventory.notes)
    notes.extend(cluster.place_running())
    results = [schedule(pod, cluster, engine, notes, options) for pod in in_order(inventory.pods)]
    return Simulation(tuple(results), tuple(inventory.errors), tuple(notes))


def environment_of(options: SimulationOptions) -> Environment:
    """What all decisions of a simulation have in common."""
    return Environment(
        features=options.features,
        cel=Compiler(),
        now=lambda: _BEFORE_ALL_TIME,
        new_share_id=share_id,
        budget=options.budget,
        policy=options.policy,
        on_node_error=options.on_node_error,
        mode=Mode.STANDALONE,
    )


def share_id(claim: ResourceClaim, request: str, device: DeviceID) -> str:
    """The id of a share, the same in every run."""
    text = "\n".join((claim.key, request, *device))
    return str(uuid.uuid5(_SHARE_NAMESPACE, text))


def in_order(pods: Iterable[Pod]) -> list[Pod]:
    """Pods to be scheduled: higher priority first, then the older, then file order (sorting is stable)."""
    pending = [
        pod for pod in pods if not pod.spec.node_name and pod.metadata.deletion_timestamp is None
    ]
    return sorted(
        pending,
        key=lambda pod: (
            -(pod.spec.priority or 0),
            pod.metadata.creation_timestamp is None,
            pod.metadata.creation_timestamp or "",
        ),
    )


def is_daemon_eligible(environment: Environment, pod: Pod, node: NodeObject) -> bool:
    """Whether the DaemonSet controller would make this pod for this node."""
    index = NodeIndex()
    index.set_node(node)
    info = index.infos()[node.metadata.name]
    asking = PodInfo(pod, environment.features)
    return (
        node_affinity.filter_node(asking, info).is_success
        and taint_toleration.filter_node(asking, info).is_success
    )


class OfflineCluster:
    """The cluster of the manifests while its pods are scheduled. A `ClusterReader`."""

    def __init__(self, inventory: Inventory, features: Features) -> None:
        self._inventory = inventory
        self._claims = dict(inventory.claims)
        self._pods = {pod.metadata.uid: pod for pod in inventory.pods}
        self._slices = SliceIndex.build(inventory.slices, inventory.rules)
        self._classes = {each.metadata.name: each for each in inventory.classes}
        self._index = NodeIndex(counts_claims=features.node_allocatable_resources)
        self._allocated = AllocatedIndex(consumable_capacity=features.consumable_capacity)
        self._snapshot: ClusterSnapshot | None = None
        for node in inventory.nodes:
            self._index.set_node(node)
        for claim in self._claims.values():
            self._allocated.set_written(claim.metadata.uid, claim.status.allocation, None)

    @property
    def node_names(self) -> list[str]:
        """All nodes in file order: among equal scores the first one wins."""
        return [node.metadata.name for node in self._inventory.nodes]

    def snapshot(self) -> ClusterSnapshot:
        """Nodes and devices, as they are now."""
        if self._snapshot is None:
            self._snapshot = ClusterSnapshot(
                nodes=self._index.infos(),
                devices=Snapshot(
                    slices=self._slices, classes=self._classes, allocated=self._allocated.state()
                ),
                revision=0,
            )
        return self._snapshot

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """A claim by name."""
        return self._claims.get(f"{namespace}/{name}")

    def in_flight(self, claim_uid: str) -> AllocationResult | None:
        """Nothing is ever in flight: every decision is written at once."""

    def pod(self, uid: str) -> Pod | None:
        """A pod by UID."""
        return self._pods.get(uid)

    def place_running(self) -> list[str]:
        """Count the pods that have a node already.

        Returns:
            notes about pods whose node or devices are not there.
        """
        notes = []
        known = set(self.node_names)
        for pod in self._inventory.pods:
            if not pod.spec.node_name:
                continue
            if pod.spec.node_name not in known:
                notes.append(
                    f"Pod/{pod.key}: runs on node {pod.spec.node_name!r}, which is not there"
                )
            self._index.put_pod(pod, pod.spec.node_name)
            claims = dynamic_resources.resolve_claims(pod, self)
            notes.extend(
                f"Pod/{pod.key}: runs on a node, but its claim {each.claim.metadata.name!r} has no devices:"
                " nobody allocates a claim for a pod that was placed by hand"
                for each in (() if isinstance(claims, Status) else claims)
                if not each.is_allocated
            )
        self._snapshot = None
        return notes

    def bind(self, plan: Plan) -> tuple[PodClaimResult, ...]:
        """Write the allocations and reservations of a pod's claims, and let it run on its node."""
        pod = msgspec.structs.replace(
            plan.pod,
            spec=msgspec.structs.replace(plan.pod.spec, node_name=plan.node_name),
            status=msgspec.structs.replace(
                plan.pod.status, node_allocatable_resource_claim_statuses=plan.demand or None
            ),
        )
        results = []
        for each in plan.claims:
            claim = self._claims[each.claim.key]
            allocation = plan.allocations.get(each.uid) or claim.status.allocation
            if allocation is None:
                raise AssertionError(f"claim {claim.key} of {pod.key} has no devices")
            self._put_claim(claim, allocation, pod)
            results.append(PodClaimResult(each.entry, claim, allocation))
        self._pods[pod.metadata.uid] = pod
        self._index.put_pod(pod, plan.node_name)
        self._snapshot = None
        return tuple(results)

    def _put_claim(
        self, claim: ResourceClaim, allocation: AllocationResult | None, pod: Pod | None
    ) -> None:
        reserved = claim.status.reserved_for or ()
        if pod is not None and not dynamic_resources.is_reserved_for(claim, pod.metadata.uid):
            consumer = ResourceClaimConsumerReference(
                resource="pods", name=pod.metadata.name, uid=pod.metadata.uid
            )
            reserved = (*reserved, consumer)
        status = msgspec.structs.replace(claim.status, allocation=allocation, reserved_for=reserved)
        self._claims[claim.key] = msgspec.structs.replace(claim, status=status)
        self._allocated.set_written(claim.metadata.uid, allocation, None)

    def give_back(self, claim: ResourceClaim) -> None:
        """Take the devices of an idle claim away again."""
        cleared = msgspec.structs.replace(claim.status, allocation=None, reserved_for=None)
        self._claims[claim.key] = msgspec.structs.replace(claim, status=cleared)
        self._allocated.set_written(claim.metadata.uid, None, None)
        self._snapshot = None


def schedule(
    pod: Pod,
    cluster: OfflineCluster,
    engine: Engine,
    notes: list[str],
    options: SimulationOptions,
) -> PodResult:
    """Try one pod, again after each of its own idle claims that was given back."""
    while True:
        state = engine.pre_filter(pod, cluster)
        if isinstance(state, Status):
            return _not_placed(pod, state.reason, {})
        result = engine.filter_nodes(state, cluster.node_names)
        if isinstance(result, LongSearch):
            raise AssertionError(f"the search for {pod.key} ran out of time, and has none offline")  # noqa: TRY004
        if result.failure is None:
            plan = engine.best(state, result)
            return _placed(plan, result, cluster, all_nodes=options.all_nodes)
        idle = (
            dynamic_resources.claim_to_give_back(state, result.verdicts)
            if result.failure.code is not Code.ERROR
            else None
        )
        if idle is None:
            break
        notes.append(
            f"ResourceClaim/{idle.key}: its idle allocation is given back for pod {pod.key}"
        )
        cluster.give_back(idle)
    if options.explain:
        explained, devices = _explained(pod, result, cluster, engine.environment)
        return _not_placed(pod, _with_devices(summary(explained), devices), explained.verdicts)
    return _not_placed(pod, summary(result), result.verdicts)


def _placed(
    plan: Plan, result: FilterResult, cluster: OfflineCluster, *, all_nodes: bool
) -> PodResult:
    reasons = _reasons(result.verdicts) if all_nodes else {}
    return PodResult(
        namespace=plan.pod.metadata.namespace,
        name=plan.pod.metadata.name,
        node=plan.node_name,
        claims=cluster.bind(plan),
        nodes=reasons,
    )


def _not_placed(pod: Pod, reason: Reason | None, verdicts: Mapping[str, NodeVerdict]) -> PodResult:
    return PodResult(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=None,
        reason=reason or Reason(kind=ReasonKind.NO_NODES, message="no reason was given"),
        nodes=_reasons(verdicts),
    )


def _reasons(verdicts: Mapping[str, NodeVerdict]) -> dict[str, Reason | None]:
    return {name: verdict.status.reason for name, verdict in verdicts.items()}


def _explained(
    pod: Pod, result: FilterResult, cluster: OfflineCluster, environment: Environment
) -> tuple[FilterResult, list[DeviceReason]]:
    """Look at the refused nodes again, without memory and hearing about every device."""
    state = cycle.pre_filter(pod, cluster, replace(environment, explain=True))
    if isinstance(state, Status):
        raise AssertionError(f"{pod.key} was refused by some nodes, now by all: {state.message}")  # noqa: TRY004
    nodes = state.snapshot.nodes
    verdicts = {
        name: cycle.filter_node(state, nodes[name]) for name in result.verdicts if name in nodes
    }
    explained = conclude(verdicts, total=len(cluster.node_names))
    devices: dict[tuple[str, str, DeviceID], DeviceReason] = {}
    of_pod = summary(explained)
    for verdict in verdicts.values():
        reason = verdict.status.reason
        if reason is None or of_pod is None or reason.request != of_pod.request:
            continue
        for each in reason.devices:
            devices.setdefault((reason.claim, reason.request, each.device), each)
    return explained, list(devices.values())[:_MOST_DEVICES]


def _with_devices(reason: Reason | None, devices: Sequence[DeviceReason]) -> Reason | None:
    if reason is None or not devices:
        return reason
    return Reason(
        kind=reason.kind,
        message=reason.message,
        claim=reason.claim,
        request=reason.request,
        devices=tuple(devices),
    )


def as_tree(simulation: Simulation) -> dict[str, Any]:
    """The answer as plain data, in the shape that `-o json` promises."""
    return {
        "pods": [_pod_tree(pod) for pod in simulation.pods],
        "errors": [
            {
                "file": error.file,
                "document": error.document,
                "object": error.object,
                "path": error.path,
                "message": error.message,
            }
            for error in simulation.errors
        ],
        "notes": list(simulation.notes),
    }


def _pod_tree(pod: PodResult) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "namespace": pod.namespace,
        "name": pod.name,
        "node": pod.node,
        "claims": [claim_tree(each) for each in pod.claims],
        "reason": None if pod.reason is None else reason_tree(pod.reason),
    }
    if pod.nodes or pod.node is None:
        tree["nodes"] = {
            name: None if reason is None else {"kind": reason.kind.value, "message": reason.message}
            for name, reason in pod.nodes.items()
        }
    return tree


def claim_tree(claim: PodClaimResult) -> dict[str, Any]:
    """A claim of a placed pod as plain data."""
    return {
        "entry": claim.entry,
        "name": claim.claim.metadata.name,
        "allocation": allocation_tree(claim.allocation),
    }


def reason_tree(reason: Reason) -> dict[str, Any]:
    """A reason as plain data; always this shape."""
    return {
        "kind": reason.kind.value,
        "message": reason.message,
        "details": {
            "claim": reason.claim or None,
            "request": reason.request or None,
            "devices": [
                {
                    "driver": each.device.driver,
                    "pool": each.device.pool,
                    "device": each.device.device,
                    "kind": each.kind.value,
                    "message": each.message,
                }
                for each in reason.devices
            ],
        },
    }
