"""Scores of nodes for a pod, given the devices chosen there. All functions answer 0..100, more is better.

`prioritized_list` is upstream's only score for devices; the strategies break ties that it leaves.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.model.devices import DeviceID, PoolID
from allocator.model.nodes import Node
from allocator.snapshot import PoolUsage, Snapshot

MAX_SCORE: Final = 100
_MOST_ALTERNATIVES: Final = 8


def raw_prioritized_list(
    claims: Sequence[ResourceClaim], allocations: Sequence[AllocationResult]
) -> int:
    """Add 8 minus the index of the chosen alternative, over all `firstAvailable` requests.

    Source: pkg/scheduler/framework/plugins/dynamicresources, Score.
    """
    score = 0
    for claim, allocation in zip(claims, allocations, strict=True):
        used = {result.request for result in allocation.devices.results or ()}
        for request in claim.spec.devices.requests or ():
            for index, alternative in enumerate(request.first_available or ()):
                if f"{request.name}/{alternative.name}" in used:
                    score += _MOST_ALTERNATIVES - index
                    break
    return score


def normalized(raw: Mapping[str, int]) -> dict[str, int]:
    """Scale raw scores of nodes to 0..100 of the best, as upstream does; all 0 when nobody scored."""
    best = max(raw.values(), default=0)
    if best <= 0:
        return dict.fromkeys(raw, 0)
    return {name: MAX_SCORE * score // best for name, score in raw.items()}


def prioritized_list(scores: Mapping[str, int]) -> dict[str, int]:
    """Upstream's node scores from `raw_prioritized_list` of every node."""
    return normalized(scores)


ScoreStrategy = Callable[[Sequence[AllocationResult], Node, Snapshot], int]
"""Scores one node for the allocations chosen there: 0..100."""


def most_allocated(allocations: Sequence[AllocationResult], node: Node, snapshot: Snapshot) -> int:
    """Prefer nodes whose pools are fuller afterwards: packs, and keeps whole nodes free."""
    used, total = _fill(allocations, node, snapshot)
    return MAX_SCORE * used // total if total else 0


def least_allocated(allocations: Sequence[AllocationResult], node: Node, snapshot: Snapshot) -> int:
    """Prefer nodes whose pools are emptier afterwards: spreads."""
    used, total = _fill(allocations, node, snapshot)
    return MAX_SCORE * (total - used) // total if total else 0


def fewest_tainted(allocations: Sequence[AllocationResult], node: Node, snapshot: Snapshot) -> int:
    """Prefer devices without taints, so that tainted ones are a last resort."""
    results = [r.device_id for a in allocations for r in a.devices.results or ()]
    if not results:
        return MAX_SCORE
    tainted = _tainted_devices({device.pool_id for device in results}, snapshot)
    clean = sum(device not in tainted for device in results)
    return MAX_SCORE * clean // len(results)


def no_preference(allocations: Sequence[AllocationResult], node: Node, snapshot: Snapshot) -> int:
    """As upstream: devices do not influence the choice of node."""
    return 0


STRATEGIES: Final[Mapping[str, ScoreStrategy]] = {
    "MostAllocated": most_allocated,
    "LeastAllocated": least_allocated,
    "FewestTainted": fewest_tainted,
    "None": no_preference,
}
"""Strategies by name in configuration."""


def _fill(
    allocations: Sequence[AllocationResult], node: Node, snapshot: Snapshot
) -> tuple[int, int]:
    """Count devices in use afterwards and devices there are, in the node's own pools and the pools taken from."""
    chosen = {
        result.device_id
        for allocation in allocations
        for result in allocation.devices.results or ()
    }
    pools = {prepared.pool_id for prepared in snapshot.slices.local(node.name)}
    pools |= {device.pool_id for device in chosen}
    used = total = 0
    for pool_id in pools:
        names = _device_names(pool_id, snapshot)
        busy = _busy(snapshot.allocated.usage(pool_id))
        busy |= {device.device for device in chosen if device.pool_id == pool_id}
        total += len(names)
        used += len(names & busy)
    return used, total


def _device_names(pool_id: PoolID, snapshot: Snapshot) -> set[str]:
    return {
        device.name
        for prepared in snapshot.slices.in_pool(pool_id)
        for device in prepared.slice.spec.devices or ()
    }


def _busy(usage: PoolUsage) -> set[str]:
    return {*usage.devices, *usage.shares, *usage.consumed}


def _tainted_devices(pools: set[PoolID], snapshot: Snapshot) -> set[DeviceID]:
    return {
        device_id
        for pool_id in pools
        for prepared in snapshot.slices.in_pool(pool_id)
        for device_id, device in zip(
            prepared.device_ids, prepared.slice.spec.devices or (), strict=True
        )
        if device.taints
    }
