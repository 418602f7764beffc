"""Before the first allocation of a new leader: make every write that an older one still has under way fail.

Claims that a pending pod names and that have no allocation get our epoch as an annotation; that changes their
resourceVersion, so that whatever an older leader sent with the old one cannot commit any more. At most 500 a second.
Only needed when the lease was not released. Source: docs/design/leader-election.md#h6, docs/design/invariants.md#s13.

What keeps a stamp away for good, such as a policy, does not keep us from leading for ever: a minute later nothing that
was sent before can commit, and should the old leader only have slept, the check of each claim after its write is left.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from scheduler.api.decode import DecodeError, decode
from scheduler.binder.claim_text import ClaimText, UnreadableClaimError
from scheduler.binder.edits import Mark, may_be_refused
from scheduler.binder.outcome import LeaseLostError
from scheduler.binder.requests import (
    MOVED,
    claim_path,
    exact_request,
    is_invalid,
    send,
)
from scheduler.binder.retry import Backoff
from scheduler.client import (
    MERGE_PATCH,
    ApiClient,
    ApiError,
    Committed,
    NotFoundError,
    UnavailableError,
    WriteOutcome,
)
from scheduler.clock import Clock
from scheduler.model import EPOCH_ANNOTATION, ClaimRecord, Kind

_log: Final = logging.getLogger(__name__)

QUARANTINE_SECONDS: Final = 5.0
CLAIMS_PER_SECOND: Final = 500
CONCURRENT: Final = 16
_TELL_AFTER: Final = 3  # rounds


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
    """Stamp our epoch onto unallocated claims, in rounds until it is done or has been tried for a minute.

    Returns:
        How many were stamped.

    Raises:
        LeaseLostError: this process may not write any more.
    """
    todo = [_Stamp(record) for record in claims if record.claim.status.allocation is None]
    stamper = _Stamper(epoch, client, may_write, assume)
    backoff: Backoff | None = None
    while True:
        await stamper.round(todo, clock)
        todo = [each for each in todo if each.problem]
        backoff = backoff or Backoff(clock, rng)  # a long first round takes nobody's second try
        if not todo:
            return stamper.stamped
        example = f"{todo[0].record.claim.key}: {todo[0].problem}"
        if backoff.is_over:
            _log.error(
                "%d claims cannot be stamped, going on without; the first is %s", len(todo), example
            )
            return stamper.stamped
        if backoff.tries == _TELL_AFTER:
            _log.warning(
                "%d claims cannot be stamped, nothing is scheduled before; the first is %s",
                len(todo),
                example,
            )
        await backoff.pause()


@dataclass(slots=True)
class _Stamp:
    """A claim to be stamped.

    Attributes:
        record: as it was listed.
        problem: why it is not stamped yet; empty: it is, or needs it no more.
    """

    record: ClaimRecord
    problem: str = ""


@dataclass(slots=True)
class _Stamper:
    epoch: int
    client: ApiClient
    may_write: Callable[[], bool]
    assume: Callable[[ClaimRecord], None]
    stamped: int = field(default=0)

    async def round(self, todo: Sequence[_Stamp], clock: Clock) -> None:
        """Try each claim once."""
        for start in range(0, len(todo), CONCURRENT):
            batch = todo[start : start + CONCURRENT]
            began = clock.monotonic()
            await asyncio.gather(*map(self._try, batch))
            least = len(batch) / CLAIMS_PER_SECOND
            await clock.sleep(max(0.0, least - (clock.monotonic() - began)))

    async def _try(self, stamp: _Stamp) -> None:
        if not self.may_write():
            raise LeaseLostError
        try:
            claim = await self._current(stamp)
            answer = None if claim is None else await self._write(claim)
        except NotFoundError:
            stamp.problem = ""
            return
        except (ApiError, UnavailableError, UnreadableClaimError) as error:
            stamp.problem = f"it cannot be read: {error}"
            return
        if claim is None:
            stamp.problem = ""
        elif isinstance(answer, Committed) and claim.is_in(answer.body):
            stamp.problem = ""
            self.stamped += 1
            self._tell(answer.body)
        else:
            stamp.problem = str(answer)

    def _tell(self, raw: bytes) -> None:
        try:
            stored = decode(Kind.RESOURCE_CLAIM, raw)
        except DecodeError as problem:
            _log.warning("what was written cannot be read: %s", problem)
            return
        if isinstance(stored, ClaimRecord):
            self.assume(stored)

    async def _current(self, stamp: _Stamp) -> ClaimText | None:
        """The claim as it is now; None: nothing that was sent for it can commit, or would allocate it.

        No refusal says so by itself: a policy answers 422 too, as does a name that another claim has by now.
        """
        listed = ClaimText.read(stamp.record.raw)
        if not stamp.problem:
            return listed
        meta = listed.metadata
        found = ClaimText.read(await self.client.get(claim_path(meta.namespace, meta.name)))
        return None if found.is_allocated or found.metadata.uid != meta.uid else found

    async def _write(self, claim: ClaimText) -> WriteOutcome:
        """Stamp a claim, once. In JSON by a patch, which a change of the claim since it was read does not stop."""
        meta = claim.metadata
        mark = Mark(annotations={EPOCH_ANNOTATION: str(self.epoch)})
        body = {"metadata": {"uid": meta.uid, "annotations": dict(mark.annotations)}}
        path = claim_path(meta.namespace, meta.name)
        answer = await self.client.write(
            "PATCH", path, orjson.dumps(body), content_type=MERGE_PATCH
        )
        if is_invalid(answer) and may_be_refused(mark, claim):
            request = await exact_request(self.client, claim, mark)
            return MOVED if request is None else await send(self.client, request)
        return answer
