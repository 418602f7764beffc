"""What has been decided for one pod and is not written yet. Whoever decides makes it; whoever writes takes it, whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from allocator.model.claims import AllocationResult, ResourceClaim
from scheduler.framework.cycle_state import CycleState, NodeVerdict, PodClaim
from scheduler.model import NodeAllocatableResourceClaimStatus, Pod

Demand = tuple[NodeAllocatableResourceClaimStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """A node for a pod, and all that goes with it.

    Attributes:
        pod: as the decision saw it: its UID and version say which pod is meant.
        node_name: where it is to run.
        claims: all claims of the pod, as the decision saw them, in the pod's order.
        allocations: claim UID -> allocation, for the claims that have none yet.
        demand: what the claims count in resources of the node, to be written to the pod's status.
    """

    pod: Pod
    node_name: str
    claims: tuple[PodClaim, ...] = ()
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    demand: Demand = ()

    @property
    def held(self) -> dict[str, tuple[ResourceClaim, AllocationResult]]:
        """The devices that nobody else may have from now on: claim UID -> claim, allocation."""
        return {
            each.uid: (each.claim, self.allocations[each.uid])
            for each in self.claims
            if each.uid in self.allocations
        }


def plan_of(state: CycleState, node_name: str, verdict: NodeVerdict) -> Plan:
    """The plan to put a pod on a node that fits."""
    return Plan(
        pod=state.pod,
        node_name=node_name,
        claims=state.claims,
        allocations=verdict.allocations,
        demand=verdict.demand,
    )
