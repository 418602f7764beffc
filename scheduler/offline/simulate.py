"""Schedules the pods of manifests as a live scheduler would, one after another, and says what went where and why not.

The same input gives the same output, byte for byte: no clock, no random ids (a share id is a UUIDv5 of claim, request and
device). The decisions are `scheduler.engine`'s, and so `scheduler.cycle`'s; this module is the cluster around them.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from allocator.cel import Compiler
from allocator.features import Features
from allocator.model.claims import ResourceClaim
from allocator.model.devices import DeviceID
from allocator.outcome import Reason, ReasonKind
from scheduler.cache.nodes import NodeIndex
from scheduler.conclusion import summary
from scheduler.engine import Attempt, Engine, LongSearch, Plan
from scheduler.framework.cycle_state import NodeVerdict
from scheduler.framework.environment import Environment, Mode
from scheduler.framework.pod_info import PodInfo
from scheduler.framework.status import Code, Status
from scheduler.model import NodeObject, Pod
from scheduler.offline.cluster import OfflineCluster, PodClaimResult
from scheduler.offline.explaining import with_devices
from scheduler.offline.inventory import InputError, Inventory, take_inventory
from scheduler.offline.manifests import Manifest
from scheduler.offline.progress import Progress, no_progress
from scheduler.plugins import dynamic_resources, node_affinity, taint_toleration

_SHARE_NAMESPACE: Final = uuid.UUID("0f6e6c54-6d0b-5a53-8f0e-6a1d6f2b7c11")
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


def simulate(
    manifests: Sequence[Manifest],
    options: SimulationOptions,
    progress: Progress = no_progress,
) -> Simulation:
    """Schedule every pod without a node, by priority, creation time and file order.

    Args:
        manifests: in input order.
        options: how.
        progress: told what is going on, how far it is, and how far it goes.
    """
    progress("reading", 0, 1)
    inventory = take_inventory(
        manifests, options.features, partial(is_daemon_eligible, environment_of(options))
    )
    scheduling = Scheduling(inventory, options)
    pending = in_order(inventory.pods)
    results = []
    for done, pod in enumerate(pending):
        progress("pods", done, len(pending))
        results.append(scheduling.schedule(pod))
    return Simulation(tuple(results), tuple(inventory.errors), tuple(scheduling.notes))


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


class Scheduling:
    """Schedules the pods of one offline cluster, one after another.

    Attributes:
        cluster: as it is by now.
        engine: decides.
        notes: what happened besides.
    """

    def __init__(self, inventory: Inventory, options: SimulationOptions) -> None:
        """Begin with the cluster of the manifests."""
        self.cluster = OfflineCluster(inventory, options.features)
        self.engine = Engine(environment_of(options))
        self.engine.follow(self.cluster.cache)
        self.notes = [*inventory.notes, *self.cluster.notes_on_running()]
        self._options = options

    def schedule(self, pod: Pod) -> PodResult:
        """Try one pod, again after each of its own idle claims that was given back."""
        cluster, engine = self.cluster, self.engine
        while True:
            state = engine.pre_filter(pod, cluster.cache)
            if isinstance(state, Status):
                return _not_placed(pod, state.reason, {})
            decided = engine.decide_among(state, cluster.node_names)
            if isinstance(decided, LongSearch):
                raise AssertionError(pod.key, "a search without deadline ran out of time")  # noqa: TRY004
            if isinstance(decided, Plan):
                return self._placed(state, decided)
            idle = (
                dynamic_resources.claim_to_give_back(state, decided.verdicts)
                if decided.failure is not None and decided.failure.code is not Code.ERROR
                else None
            )
            if idle is None:
                break
            self.notes.append(
                f"ResourceClaim/{idle.key}: its unused allocation is released for pod {pod.key}"
            )
            cluster.give_back(idle)
        reason = summary(decided)
        if reason is not None and self._options.explain:
            reason = with_devices(pod, reason, decided.verdicts, cluster.cache, engine.environment)
        return _not_placed(pod, reason, decided.verdicts)

    def _placed(self, attempt: Attempt, plan: Plan) -> PodResult:
        nodes: Mapping[str, Reason | None] = {}
        if self._options.all_nodes:
            result = self.engine.filter_nodes(attempt, self.cluster.node_names)
            nodes = {} if isinstance(result, LongSearch) else _reasons(result.verdicts)
        return PodResult(
            namespace=plan.pod.metadata.namespace,
            name=plan.pod.metadata.name,
            node=plan.node_name,
            claims=self.cluster.bind(plan),
            nodes=nodes,
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
