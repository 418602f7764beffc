"""What `allocate` answers: always a value, never an exception.

`Allocated | DoesNotFit | NodeError | Fatal`, as upstream's allocator distinguishes them: a result, a nil result, an
error for this node only, and an error that ends the pod's attempt.
"""

from dataclasses import dataclass
from enum import StrEnum

from allocator.model.claims import AllocationResult
from allocator.model.devices import DeviceID


class ReasonKind(StrEnum):
    """Why something is refused. Closed: the values are metric labels, event reasons and JSON, and never change.

    The order matters: ties between kinds are decided by it.
    """

    CLAIM_NOT_FOUND = "ClaimNotFound"
    CLAIM_NOT_CREATED = "ClaimNotCreated"
    CLAIM_BEING_DELETED = "ClaimBeingDeleted"
    CLAIM_NOT_OWNED = "ClaimNotOwned"
    INVALID_CLAIM = "InvalidClaim"
    ALLOCATION_PENDING = "AllocationPending"
    DEVICE_CLASS_NOT_FOUND = "DeviceClassNotFound"
    POOL_INCOMPLETE = "PoolIncomplete"
    POOL_INVALID = "PoolInvalid"
    NO_MATCHING_DEVICE = "NoMatchingDevice"
    DEVICES_IN_USE = "DevicesInUse"
    CAPACITY_EXHAUSTED = "CapacityExhausted"
    COUNTERS_EXHAUSTED = "CountersExhausted"
    INCOMPATIBLE_GROUP = "IncompatibleGroup"
    DEVICE_TAINTED = "DeviceTainted"
    CONSTRAINT_UNSATISFIED = "ConstraintUnsatisfied"
    TOO_MANY_DEVICES = "TooManyDevices"
    SELECTOR_ERROR = "SelectorError"
    ADMIN_ACCESS_DENIED = "AdminAccessDenied"
    ALLOCATED_ELSEWHERE = "AllocatedElsewhere"
    TOO_MANY_CONSUMERS = "TooManyConsumers"
    BINDING_CONDITIONS_PENDING = "BindingConditionsPending"
    BINDING_FAILED = "BindingFailed"
    FEATURE_DISABLED = "FeatureDisabled"
    SEARCH_BUDGET_EXCEEDED = "SearchBudgetExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    NODE_FEATURE_MISSING = "NodeFeatureMissing"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    NODE_TAINTED = "NodeTainted"
    NODE_AFFINITY_MISMATCH = "NodeAffinityMismatch"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    PORT_CONFLICT = "PortConflict"
    TOPOLOGY_SPREAD = "TopologySpread"
    POD_AFFINITY = "PodAffinity"
    VOLUME_UNAVAILABLE = "VolumeUnavailable"
    SCHEDULING_GATED = "SchedulingGated"
    UNSUPPORTED = "Unsupported"
    NO_NODES = "NoNodes"
    WRITE_CONFLICT = "WriteConflict"
    API_UNAVAILABLE = "ApiUnavailable"
    PERMISSION_DENIED = "PermissionDenied"
    NOT_LEADER = "NotLeader"
    NOT_READY = "NotReady"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReason:
    """Why one device cannot serve the request: the furthest stage it reached."""

    device: DeviceID
    kind: ReasonKind
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a node or pod is refused.

    Attributes:
        kind: from the closed enum.
        message: stable and sorted; no counts, times or device names (a changing text re-queues the pod at once).
        claim: `name` of the claim concerned, or empty.
        request: `name` or `name/alternative`, or empty.
        devices: the devices looked at and what each failed on; for people, never in events.
    """

    kind: ReasonKind
    message: str
    claim: str = ""
    request: str = ""
    devices: tuple[DeviceReason, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocated:
    """One allocation a claim, in the order of the claims; timestamps are left to the writer."""

    allocations: tuple[AllocationResult, ...]


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """This node cannot serve the claims now. The usual answer, not an error."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class NodeError:
    """The search failed while a pool of this node is invalid; other nodes may do."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Fatal:
    """Upstream would end the pod's attempt on all nodes.

    Attributes:
        reason: what is wrong.
        depends_on_node: whether the error comes from this node or its devices (a CEL runtime error on a device, an
            incomplete or invalid pool under `All`, an exceeded budget), so that another node may do.
    """

    reason: Reason
    depends_on_node: bool


Outcome = Allocated | DoesNotFit | NodeError | Fatal
