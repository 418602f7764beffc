"""Before the first allocation of a new leader: make every write that an older one still has under way fail.

Claims that a pending pod names and that have no allocation get our epoch by a patch; that changes their
resourceVersion, so that whatever an older leader sent with the old one cannot commit any more. At most 500 a second.
Only needed when the lease was not released. Source: reliability H6, S13.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from typing import Final

import orjson

from scheduler.api.decode import decode
from scheduler.binder.claims import claim_path
from scheduler.binder.outcome import LeaseLostError
from scheduler.binder.retry import Backoff
from scheduler.client import MERGE_PATCH, ApiClient, Committed, Rejected
from scheduler.clock import Clock
from scheduler.model import EPOCH_ANNOTATION, ClaimRecord, Kind

_log: Final = logging.getLogger(__name__)

QUARANTINE_SECONDS: Final = 5.0
CLAIMS_PER_SECOND: Final = 500
CONCURRENT: Final = 16
_TELL_AFTER: Final = 3  # tries


async def sweep(
    claims: Iterable[ClaimRecord],
    *,
    epoch: int,
    client: ApiClient,
    clock: Clock,
    rng: random.Random,
    may_write: Callable[[], bool],
    assume: Callable[[ClaimRecord], None],
) -> int:
    """Stamp our epoch onto unallocated claims.

    Returns:
        How many were stamped.

    Raises:
        LeaseLostError: this process may not write any more.
    """
    todo = [record for record in claims if record.claim.status.allocation is None]
    stamped = 0
    for start in range(0, len(todo), CONCURRENT):
        batch = todo[start : start + CONCURRENT]
        began = clock.monotonic()
        done = await asyncio.gather(
            *(_stamp(record, epoch, client, clock, rng, may_write, assume) for record in batch)
        )
        stamped += sum(done)
        await clock.sleep(max(0.0, len(batch) / CLAIMS_PER_SECOND - (clock.monotonic() - began)))
    return stamped


async def _stamp(
    record: ClaimRecord,
    epoch: int,
    client: ApiClient,
    clock: Clock,
    rng: random.Random,
    may_write: Callable[[], bool],
    assume: Callable[[ClaimRecord], None],
) -> bool:
    meta = record.claim.metadata
    body = orjson.dumps(
        {"metadata": {"uid": meta.uid, "annotations": {EPOCH_ANNOTATION: str(epoch)}}}
    )
    backoff = Backoff(clock, rng)
    while True:
        if not may_write():
            raise LeaseLostError
        answer = await client.write(
            "PATCH", claim_path(meta.namespace, meta.name), body, content_type=MERGE_PATCH
        )
        if isinstance(answer, Committed):
            stored = decode(Kind.RESOURCE_CLAIM, answer.body)
            if isinstance(stored, ClaimRecord):
                assume(stored)
            return True
        if isinstance(answer, Rejected) and answer.status in (404, 422):
            return False  # gone, or another claim has its name: nothing old can write to it
        if backoff.tries == _TELL_AFTER:
            _log.warning(
                "claim %s/%s cannot be stamped, nothing is scheduled before: %s",
                meta.namespace,
                meta.name,
                answer,
            )
        await backoff.pause(answer)
