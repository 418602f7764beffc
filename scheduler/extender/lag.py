"""kube-scheduler's watch and ours are independent: it may ask about a pod a few milliseconds before we see its claims."""

from typing import Final

from allocator.outcome import ReasonKind
from scheduler.clock import Clock
from scheduler.framework.status import Status
from scheduler.model import ClusterReader, Pod
from scheduler.plugins.dynamic_resources import resolve_claims

# kube-scheduler's PreEnqueue asks about no pod whose claims it does not know. If we do not know them, our watch is behind
# its own, and the event that would wake the pod has been there: an error brings it back, a refusal would park it.
OURS_IS_BEHIND: Final = frozenset({ReasonKind.CLAIM_NOT_FOUND, ReasonKind.CLAIM_NOT_CREATED})
PATIENCE_SECONDS: Final = 0.25  # kube-scheduler asks about one pod after the other
STEP_SECONDS: Final = 0.005


async def until_claims_are_known(pod: Pod, reader: ClusterReader, clock: Clock) -> None:
    """Wait a moment for the watches, if they are behind: an error would cost the pod a second of backoff, or more.

    Args:
        pod: as kube-scheduler or the cache has it.
        reader: the cache.
        clock: ends the patience.
    """
    until = clock.monotonic() + PATIENCE_SECONDS
    while _is_behind(pod, reader) and clock.monotonic() < until:
        await clock.sleep(STEP_SECONDS)


def _is_behind(pod: Pod, reader: ClusterReader) -> bool:
    known = reader.pod(pod.metadata.uid)
    found = resolve_claims(pod if known is None else known, reader)
    if isinstance(found, Status) and known is not None:
        found = resolve_claims(pod, reader)  # the caller's may be the newer one
    return (
        isinstance(found, Status)
        and found.reason is not None
        and found.reason.kind in OURS_IS_BEHIND
    )
