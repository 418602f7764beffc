"""The check that the indexes are what a count from nothing gives, in steps short enough for a loop.

See docs/design/cache-and-watches.md#r11.

What is compared is captured at the start and immutable, so the cache may move on between steps.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from allocator.model.claims import AllocationResult
from allocator.snapshot import AllocatedState
from scheduler.cache.allocated import AllocatedIndex
from scheduler.cache.nodes import NodeIndex
from scheduler.cache.store import version_of
from scheduler.model import ClaimRecord, NodeInfo, NodeObject, Pod

T = TypeVar("T")
_STEP: Final = 500  # objects; about 3 ms


def recount_devices(
    state: AllocatedState,
    claims: Sequence[ClaimRecord],
    held: Mapping[str, Sequence[AllocationResult]],
    *,
    consumable_capacity: bool,
) -> Iterator[list[str]]:
    """Compare what is in use with the claims.

    Args:
        state: what the index says.
        claims: all there are.
        held: claim UID -> allocations in flight.
        consumable_capacity: as for the index.

    Yields:
        differences found in each step, as texts; empty if the index is right.
    """
    fresh = AllocatedIndex(consumable_capacity=consumable_capacity)
    for number, record in enumerate(claims):
        fresh.set_written(record.claim.metadata.uid, record.claim.status.allocation)
        if number % _STEP == _STEP - 1:
            fresh.state()
            yield []
    for uid, allocations in held.items():
        fresh.set_held(uid, allocations)
    expected = fresh.state()
    for pools in _chunks(state.pools.keys() | expected.pools.keys()):
        yield [
            f"pool {pool_id}: the index and the claims disagree on what is in use"
            for pool_id in pools
            if state.usage(pool_id) != expected.usage(pool_id)
        ]


def recount_moments(
    moments: Mapping[str, int], watched: Sequence[ClaimRecord]
) -> Iterator[list[str]]:
    """Check when allocations were set against the claims that have them.

    Args:
        moments: claim UID -> version, as the index says.
        watched: all claims that the watch has shown.

    Yields:
        differences found in each step, as texts; empty if none of them can be seen to be wrong.
    """
    newest = {
        record.claim.metadata.uid: version_of(record.claim.metadata)
        for record in watched
        if record.claim.status.allocation is not None
    }
    for uids in _chunks(moments):
        yield [
            f"claim {uid}: it is not so that it was allocated at version {moments[uid]}"
            for uid in uids
            if moments[uid] > newest.get(uid, -1)
        ]


def recount_nodes(
    infos: Mapping[str, NodeInfo],
    nodes: Sequence[NodeObject],
    pods: Sequence[Pod],
    assumed: Mapping[str, tuple[Pod, str]],
    *,
    counts_claims: bool = False,
) -> Iterator[list[str]]:
    """Compare what runs on nodes with the pods.

    Args:
        infos: what the index says.
        nodes: all there are.
        pods: all there are.
        assumed: UID -> pod and the node it counts on, for pods being bound.
        counts_claims: as of the index.

    Yields:
        differences found in each step, as texts; empty if the index is right.
    """
    fresh = NodeIndex(counts_claims=counts_claims)
    for number, node in enumerate(nodes):
        fresh.set_node(node)
        if number % _STEP == _STEP - 1:
            fresh.infos()
            yield []
    for number, pod in enumerate(pods):
        if pod.spec.node_name and not pod.is_terminal:
            fresh.put_pod(pod, pod.spec.node_name)
        if number % _STEP == _STEP - 1:
            fresh.infos()
            yield []
    for pod, node_name in assumed.values():
        fresh.put_pod(pod, node_name)
    expected = fresh.infos()
    for names in _chunks(infos.keys() | expected.keys()):
        yield [
            f"node {name}: the index and the pods disagree on what is in use"
            for name in names
            if _facts(infos.get(name)) != _facts(expected.get(name))
        ]


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    every = list(items)
    for start in range(0, len(every), _STEP):
        yield every[start : start + _STEP]


def _facts(info: NodeInfo | None) -> object:
    if info is None:
        return None
    return (info.node, info.pods, info.requested, info.ports)
