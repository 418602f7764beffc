"""What one attempt to place one pod knows: made by `plugins.pre_filter`, read by all later steps, never changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from allocator import PreparedClaims
from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.outcome import ReasonKind
from scheduler.framework.environment import Environment
from scheduler.framework.pod_info import PodInfo
from scheduler.framework.profile import Profile
from scheduler.framework.status import SUCCESS, Status
from scheduler.model import ClusterSnapshot, NodeAllocatableResourceClaimStatus, Pod


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim of the pod.

    Attributes:
        entry: name of the first entry of `spec.resourceClaims` that leads to it.
        claim: the newest version known when the attempt began.
    """

    entry: str
    claim: ResourceClaim

    @property
    def uid(self) -> str:
        """`metadata.uid` of the claim."""
        return self.claim.metadata.uid

    @property
    def is_allocated(self) -> bool:
        """Whether it had its devices when the attempt began."""
        return self.claim.status.allocation is not None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CycleState:
    """One attempt.

    Attributes:
        pod: the newest version known.
        info: the same as plugins see it.
        profile: the plugins that run.
        environment: settings and collaborators.
        snapshot: nodes and devices, as all steps of the attempt see them.
        now: wall-clock time of the attempt.
        claims: the pod's claims in the pod's order, each once.
        allocated: those that had their devices when the attempt began.
        unallocated: the claims that need devices, in the same order.
        prepared: `unallocated` as the allocator prepared them; None if there are none.
    """

    pod: Pod
    info: PodInfo
    profile: Profile
    environment: Environment
    snapshot: ClusterSnapshot
    now: datetime
    claims: tuple[PodClaim, ...] = ()
    allocated: tuple[PodClaim, ...] = ()
    unallocated: tuple[ResourceClaim, ...] = ()
    prepared: PreparedClaims | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NodeVerdict:
    """One node's verdict for one pod.

    Attributes:
        status: success, or why not.
        allocations: claim UID -> new allocation, for every unallocated claim; empty unless the node fits.
        unavailable: UIDs of allocated claims that cannot be used here; giving one back may help.
        ends_attempt: whether the error is not the node's, so that no other node will do better.
        demand: what the claims count in resources of the node, for the pod's status; empty unless the node fits.
    """

    status: Status = SUCCESS
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    unavailable: tuple[str, ...] = ()
    ends_attempt: bool = False
    demand: tuple[NodeAllocatableResourceClaimStatus, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the pod may run there."""
        return self.status.is_success

    @property
    def is_of_time(self) -> bool:
        """Whether the search ran out of time: another try may end differently."""
        reason = self.status.reason
        return reason is not None and reason.kind is ReasonKind.DEADLINE_EXCEEDED


@dataclass(frozen=True, slots=True, eq=False)
class FilterResult:
    """Verdicts of all examined nodes for one pod.

    Attributes:
        verdicts: node name -> verdict, in the order looked at.
        total: number of nodes there are.
        fitting: those of the verdicts that are a success, unless the attempt as a whole has failed.
        refusals: what the nodes that do not fit say, each once, with the number of nodes that say so.
        failure: None if some node fits; else why the attempt ends: the error that does not depend on the node, or an
            error of some node when none fits, or else the refusal that sums up all of them.
    """

    verdicts: Mapping[str, NodeVerdict]
    total: int
    fitting: Mapping[str, NodeVerdict] = field(default_factory=dict)
    refusals: tuple[tuple[Status, int], ...] = ()
    failure: Status | None = None

    @property
    def rejected_by(self) -> frozenset[str]:
        """Plugins that refused some node."""
        return frozenset(status.plugin for status, _ in self.refusals if status.plugin)

    @property
    def feasible(self) -> tuple[str, ...]:
        """Names of the nodes that fit, in the order looked at."""
        return tuple(self.fitting)

    def messages(self) -> dict[str, str]:
        """What each node says, in words."""
        return {name: verdict.status.message for name, verdict in self.verdicts.items()}
