"""What a scheduler expects of the cluster before its watch shows it, as told to whoever listens to a cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allocator.model.claims import AllocationResult, ResourceClaim
from scheduler.model import NodeAllocatableResourceClaimStatus, Pod


@dataclass(frozen=True, slots=True)
class HoldSet:
    """What a pod holds from now on: claim UID -> the claim and its allocation; empty: nothing."""

    pod_uid: str
    claims: Mapping[str, tuple[ResourceClaim, AllocationResult]]


@dataclass(frozen=True, slots=True)
class PlaceSet:
    """Where a pod counts from now on, with what its claims count there; no pod: nowhere any more."""

    pod_uid: str
    pod: Pod | None = None
    node_name: str = ""
    demand: Sequence[NodeAllocatableResourceClaimStatus] = ()


Expectation = HoldSet | PlaceSet
