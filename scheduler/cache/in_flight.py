"""Allocations decided for pods and not yet known to be written or given up.

Held from the decision (before the next pod is looked at) until the bind has ended, so that no other decision gives
the same devices away. Two pods that share a claim may both hold it; the claim stays held until the last lets go.
Source: docs/design/claims.md#memory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from allocator.model.claims import AllocationResult, ResourceClaim


@dataclass(frozen=True, slots=True)
class Hold:
    """What one pod holds of one claim."""

    claim: ResourceClaim
    allocation: AllocationResult


class InFlight:
    """Holds by claim and by pod."""

    def __init__(self) -> None:
        self._by_claim: dict[str, dict[str, Hold]] = {}
        self._by_pod: dict[str, tuple[str, ...]] = {}

    def hold(
        self, pod_uid: str, claims: Mapping[str, tuple[ResourceClaim, AllocationResult]]
    ) -> set[str]:
        """Hold these claims for a pod, instead of what it held before.

        Returns:
            UIDs of claims whose holds changed.
        """
        touched = self.release(pod_uid)
        for uid, (claim, allocation) in claims.items():
            self._by_claim.setdefault(uid, {})[pod_uid] = Hold(claim, allocation)
        if claims:
            self._by_pod[pod_uid] = tuple(claims)
        return touched | claims.keys()

    def release(self, pod_uid: str) -> set[str]:
        """Let go of everything a pod holds.

        Returns:
            UIDs of claims whose holds changed.
        """
        uids = self._by_pod.pop(pod_uid, ())
        for uid in uids:
            holders = self._by_claim[uid]
            del holders[pod_uid]
            if not holders:
                del self._by_claim[uid]
        return set(uids)

    def allocation(self, claim_uid: str) -> AllocationResult | None:
        """The allocation decided for a claim, by the first pod that holds it."""
        for hold in self._by_claim.get(claim_uid, {}).values():
            return hold.allocation
        return None

    def allocations(self, claim_uid: str) -> tuple[AllocationResult, ...]:
        """Every allocation that is held for a claim."""
        return tuple(hold.allocation for hold in self._by_claim.get(claim_uid, {}).values())

    def claims_of(self, pod_uid: str) -> tuple[str, ...]:
        """UIDs of the claims that a pod holds."""
        return self._by_pod.get(pod_uid, ())

    @property
    def claims(self) -> Iterable[str]:
        """UIDs of all claims that are held."""
        return self._by_claim.keys()

    def __len__(self) -> int:
        return len(self._by_claim)
