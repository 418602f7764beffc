"""Pods and nodes as scheduling sees them, and the values that pass between cache, cycle and binder. Plain data.

API types decode only the fields that are read; a field that is only tested for presence is kept as `Any`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, cast, get_args

import msgspec

from allocator.model.claims import AllocationResult, Condition, ResourceClaim
from allocator.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from allocator.model.meta import ApiStruct, ObjectMeta
from allocator.model.nodes import Node, NodeSelector, NodeSelectorTerm
from allocator.quantity import Quantity
from allocator.snapshot import Snapshot

FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
MAX_CONSUMERS = 256
DOMAIN = "dra-scheduler.dev"
EPOCH_ANNOTATION = f"{DOMAIN}/epoch"


class Taint(ApiStruct, frozen=True, kw_only=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(ApiStruct, frozen=True, kw_only=True):
    """A toleration of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    """What a container (or pod) requests and is limited to."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None
    claims: tuple[Any, ...] | None = None


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """A port of a container; only those with a host port matter here."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(ApiStruct, frozen=True, kw_only=True):
    """A container; an init container with restartPolicy Always is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None
    restart_policy_rules: Any = None
    volume_mounts: Any = None

    @property
    def is_sidecar(self) -> bool:
        """Whether it runs beside the containers (as an init container that never ends)."""
        return self.restart_policy == "Always"


class PreferredSchedulingTerm(ApiStruct, frozen=True, kw_only=True):
    """A node preference."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct, frozen=True, kw_only=True):
    """Node affinity of a pod."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: (
        tuple[PreferredSchedulingTerm, ...] | None
    ) = None


class Affinity(ApiStruct, frozen=True, kw_only=True):
    """Affinities of a pod; pod (anti-)affinity is kept as it came."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class PodResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """An entry of `spec.resourceClaims`."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGate(ApiStruct, frozen=True, kw_only=True):
    """Keeps a pod from being scheduled."""

    name: str = ""


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """The part of a pod's spec that scheduling reads."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    topology_spread_constraints: tuple[Any, ...] | None = None
    volumes: tuple[dict[str, Any], ...] | None = None
    scheduling_group: Any = None
    workload_ref: Any = None
    host_network: bool = False
    host_users: bool | None = None
    os: Any = None


class PodCondition(ApiStruct, frozen=True, kw_only=True):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Which claim was made for an entry; a null name says that none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodExtendedResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """The claim made for extended resources."""

    resource_claim_name: str = ""


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """What a container actually has, while it is being resized."""

    name: str = ""
    allocated_resources: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None


class NodeAllocatableMappedResources(ApiStruct, frozen=True, kw_only=True):
    """How much of one resource of its node a claim's devices stand for."""

    name: str = ""
    quantity: Quantity | None = None


class NodeAllocatableOverheadResources(ApiStruct, frozen=True, kw_only=True):
    """How much of one resource of its node the use of a claim's devices costs: a pod, and each of its containers."""

    name: str = ""
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """What one claim of a pod counts in resources of the node; `resources` is how 1.36 wrote it."""

    resource_claim_name: str = ""
    resources: dict[str, Quantity] | None = None
    containers: tuple[str, ...] | None = None
    mapping: tuple[NodeAllocatableMappedResources, ...] | None = None
    overhead: tuple[NodeAllocatableOverheadResources, ...] | None = None


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """The part of a pod's status that scheduling reads."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] | None = None
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    allocated_resources: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None
    node_allocatable_resource_claim_statuses: (
        tuple[NodeAllocatableResourceClaimStatus, ...] | None
    ) = None


class Pod(ApiStruct, frozen=True, kw_only=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_terminal(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.status.phase in ("Succeeded", "Failed")


class NodeSpec(ApiStruct, frozen=True, kw_only=True):
    """The part of a node's spec that scheduling reads."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    """The part of a node's status that scheduling reads. What `allocatable` does not name, the node does not have."""

    allocatable: dict[str, Quantity] | None = None
    declared_features: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] | None = None


class NodeObject(ApiStruct, frozen=True, kw_only=True):
    """A node as the API has it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def for_allocator(self) -> Node:
        """What device allocation reads of it."""
        return Node(
            name=self.metadata.name,
            labels=self.metadata.labels or {},
            declared_features=frozenset(self.status.declared_features or ()),
        )


class UnreadableNode(NodeObject, frozen=True, kw_only=True):
    """A node of which something that is needed cannot be read. Nothing is put there."""

    problem: str = ""
    lost: tuple[str, ...] = ()


class UnreadablePod(Pod, frozen=True, kw_only=True):
    """A pod of which something that is needed cannot be read. It counts where it runs, and is not scheduled."""

    problem: str = ""
    lost: tuple[str, ...] = ()


class UnreadableClaim(ResourceClaim, frozen=True, kw_only=True):
    """A claim of which something that is needed cannot be read. What it may hold is held, and it gets no more."""

    problem: str = ""
    lost: tuple[str, ...] = ()


class UnreadableSlice(ResourceSlice, frozen=True, kw_only=True):
    """A slice of which something that is needed cannot be read. Nothing new comes from its pool."""

    problem: str = ""
    lost: tuple[str, ...] = ()


class UnreadableClass(DeviceClass, frozen=True, kw_only=True):
    """A class of which something that is needed cannot be read. Nothing is allocated through it."""

    problem: str = ""
    lost: tuple[str, ...] = ()


class UnreadableRule(DeviceTaintRule, frozen=True, kw_only=True):
    """A taint rule of which something that is needed cannot be read. It taints all that it may be meant for."""

    problem: str = ""
    lost: tuple[str, ...] = ()


Unreadable = (
    UnreadableNode
    | UnreadablePod
    | UnreadableClaim
    | UnreadableSlice
    | UnreadableClass
    | UnreadableRule
)
"""An object as far as it could be read.

Attributes:
    problem: the first thing that is wrong, with its path, for a person. Constant while the object does not change.
    lost: paths of all that could not be read; these fields are empty, or what they were in the last readable version.
"""


class HostPort(msgspec.Struct, frozen=True, gc=False):
    """A host port in use on a node."""

    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True, eq=False)
class NodeInfo:
    """A node with what runs on it. Immutable: a pod added or gone makes a new one.

    Attributes:
        node: the API object.
        for_allocator: what device allocation reads of it.
        pods: pods assigned or assumed here that are not terminal, by UID.
        requested: resource name -> summed requests (cpu in milli, others in units).
        ports: host ports in use.
        generation: grows with every change of this node's info.
        is_unlimited: whether it has whatever is asked for: a node in a manifest that does not say what it has.
    """

    node: NodeObject
    for_allocator: Node
    pods: Mapping[str, Pod]
    requested: Mapping[str, int]
    ports: frozenset[HostPort]
    generation: int
    is_unlimited: bool = False

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.node.metadata.name


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A claim and the bytes it was decoded from: writes start from the bytes, so that unknown fields survive."""

    claim: ResourceClaim
    raw: bytes


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSnapshot:
    """What one decision sees. Immutable.

    Attributes:
        nodes: all nodes by name, in the order of their names.
        devices: slices, classes and what is in use, assumed and in-flight allocations included.
        revision: grows with every change of any of these.
        changes: tells which nodes changed since an earlier revision; the same object in all snapshots of one cache.
            None: nobody knows.
    """

    nodes: Mapping[str, NodeInfo]
    devices: Snapshot
    revision: int
    changes: "Changes | None" = None


class Changes(Protocol):
    """What changed between revisions."""

    def since(self, revision: int) -> frozenset[str] | None:
        """Names of nodes changed, added or removed after a revision; None: that is not known, or all of them."""
        ...


class Kind(StrEnum):
    """Kinds that are watched."""

    NODE = "Node"
    POD = "Pod"
    RESOURCE_CLAIM = "ResourceClaim"
    RESOURCE_SLICE = "ResourceSlice"
    DEVICE_CLASS = "DeviceClass"
    DEVICE_TAINT_RULE = "DeviceTaintRule"


Watched = NodeObject | Pod | ClaimRecord | ResourceSlice | DeviceClass | DeviceTaintRule


_UNREADABLE = frozenset(get_args(Unreadable))


def unreadable(item: Watched) -> Unreadable | None:
    """What is known of an object that cannot be read; None: it can. Asked of every object, so it is quick."""
    obj = item.claim if isinstance(item, ClaimRecord) else item
    return cast("Unreadable", obj) if type(obj) in _UNREADABLE else None


@dataclass(frozen=True, slots=True)
class Change:
    """One object changed in the cache: added (no old), updated, or deleted (no new)."""

    kind: Kind
    old: Watched | None
    new: Watched | None


ChangeListener = Callable[[Change], None]


class ClusterReader(Protocol):
    """What a decision may ask of the cache. Answers hold until the caller awaits."""

    def snapshot(self) -> ClusterSnapshot:
        """Nodes and devices, immutable; the same object while nothing changes."""
        ...

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The newest claim known: assumed or watched."""
        ...

    def in_flight(self, claim_uid: str) -> AllocationResult | None:
        """The allocation decided for a claim and not yet seen written, if any."""
        ...

    def pod(self, uid: str) -> Pod | None:
        """The newest pod known by UID."""
        ...
