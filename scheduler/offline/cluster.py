"""The cluster of the manifests while its pods are scheduled: the cache that a live scheduler decides on, filled at once.

Whatever the simulation decides is written into it as a watch would show it, so that the engine hears of every change and
looks again only at the nodes that changed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from allocator.features import Features
from allocator.model.claims import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent, undated
from scheduler.framework.plan import Plan
from scheduler.framework.status import Status
from scheduler.model import (
    ClaimRecord,
    Kind,
    Pod,
    Watched,
)
from scheduler.offline.inventory import Inventory
from scheduler.plugins.dynamic_resources import is_reserved_for, resolve_claims

_LISTED: Final = 1


@dataclass(frozen=True, slots=True)
class PodClaimResult:
    """A claim of a pod that has a node: entry of the pod, claim and its allocation."""

    entry: str
    claim: ResourceClaim
    allocation: AllocationResult


class OfflineCluster:
    """Nodes, devices, claims and pods of the manifests.

    Attributes:
        cache: what decisions are made on.
        node_names: in file order: among equal scores the first one wins.
    """

    def __init__(self, inventory: Inventory, features: Features) -> None:
        """Fill the cache.

        Args:
            inventory: the objects.
            features: gates of the cluster.
        """
        self.node_names = [node.metadata.name for node in inventory.nodes]
        self.cache = ClusterCache(
            consumable_capacity=features.consumable_capacity,
            counts_claims=features.node_allocatable_resources,
            silent_is_unlimited=True,
        )
        self._running = [pod for pod in inventory.pods if pod.spec.node_name]
        lists: Mapping[Kind, Iterable[Any]] = {
            Kind.NODE: inventory.nodes,
            Kind.POD: inventory.pods,
            Kind.RESOURCE_CLAIM: map(_record, inventory.claims.values()),
            Kind.RESOURCE_SLICE: inventory.slices,
            Kind.DEVICE_CLASS: inventory.classes,
            Kind.DEVICE_TAINT_RULE: inventory.rules,
        }
        for kind, items in lists.items():
            self.cache.replace(kind, [undated(item) for item in items], _LISTED)

    def notes_on_running(self) -> list[str]:
        """What is odd about the pods that have a node already: that it is not there, or that their devices are not."""
        notes = []
        for pod in self._running:
            if self.cache.node(pod.spec.node_name) is None:
                notes.append(
                    f"Pod/{pod.key}: runs on node {pod.spec.node_name!r}, which is not there"
                )
            claims = resolve_claims(pod, self.cache)
            notes.extend(
                f"Pod/{pod.key}: runs on a node, but its claim {each.claim.metadata.name!r} has no devices:"
                " nobody allocates a claim for a pod that was placed by hand"
                for each in (() if isinstance(claims, Status) else claims)
                if not each.is_allocated
            )
        return notes

    def bind(self, plan: Plan) -> tuple[PodClaimResult, ...]:
        """Write the allocations and reservations of a pod's claims, and let it run.

        Returns:
            its claims, in the pod's order.
        """
        results = []
        pod = plan.pod
        for each in plan.claims:
            claim = each.claim
            allocation = plan.allocations.get(each.uid) or claim.status.allocation
            if allocation is None:
                raise AssertionError(f"claim {claim.key} of {pod.key} has no devices")
            self._put(Kind.RESOURCE_CLAIM, _record(_reserved(claim, allocation, pod)))
            results.append(PodClaimResult(each.entry, claim, allocation))
        spec = replace(pod.spec, node_name=plan.node_name)
        status = replace(pod.status, node_allocatable_resource_claim_statuses=plan.demand or None)
        self._put(Kind.POD, replace(pod, spec=spec, status=status))
        return tuple(results)

    def give_back(self, claim: ResourceClaim) -> None:
        """Take the devices of an idle claim away again."""
        status = replace(claim.status, allocation=None, reserved_for=None)
        self._put(Kind.RESOURCE_CLAIM, _record(replace(claim, status=status)))

    def _put(self, kind: Kind, item: Watched) -> None:
        self.cache.apply(WatchEvent(kind, EventType.MODIFIED, item, _LISTED))


def _record(claim: ResourceClaim) -> ClaimRecord:
    """A claim as the cache keeps it; nobody writes it back, so its bytes are of no use."""
    return ClaimRecord(claim, b"")


def _reserved(claim: ResourceClaim, allocation: AllocationResult, pod: Pod) -> ResourceClaim:
    consumers = claim.status.reserved_for or ()
    if not is_reserved_for(claim, pod.metadata.uid):
        consumer = ResourceClaimConsumerReference(
            resource="pods", name=pod.metadata.name, uid=pod.metadata.uid
        )
        consumers = (*consumers, consumer)
    status = replace(claim.status, allocation=allocation, reserved_for=consumers)
    return replace(claim, status=status)
