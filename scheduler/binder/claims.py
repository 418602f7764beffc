"""Writes of one claim: finalizer, then allocation and reservation together; and taking them back.

Every write starts from the claim as the API server has it, changes what is ours and leaves all else as it is (see
`edits`), and carries its resourceVersion. A write whose outcome is unknown is repeated unchanged until it is definite:
its resourceVersion lets at most one of the repetitions commit, and a conflict is settled by reading what is there.

Everything ends: who gets no answer for a minute gives up, after the last request cannot commit any more.
Source: docs/design/write-protocol.md#w2, docs/design/claims.md#api-server-rules; docs/design/write-protocol.md#steps,
docs/design/write-protocol.md#outcomes.
"""

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from allocator.model.claims import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from allocator.outcome import ReasonKind
from scheduler.api.decode import DecodeError, decode, encode_allocation, without_managed_fields
from scheduler.binder.claim_text import ClaimText, UnreadableClaimError
from scheduler.binder.edits import (
    Allocation,
    Deallocation,
    Edit,
    Mark,
    Release,
    Reservation,
    may_be_refused,
)
from scheduler.binder.epochs import is_later
from scheduler.binder.outcome import BindError, LeaseLostError
from scheduler.binder.requests import (
    MOVED,
    Request,
    claim_path,
    exact_request,
    is_invalid,
    request_for,
    send,
    send_once,
)
from scheduler.binder.retry import OPEN_SECONDS, Backoff, is_retryable
from scheduler.client import (
    ApiClient,
    ApiError,
    Committed,
    NotFoundError,
    Rejected,
    UnavailableError,
    Unknown,
)
from scheduler.clock import Clock, rfc3339
from scheduler.model import (
    DOMAIN,
    EPOCH_ANNOTATION,
    FINALIZER,
    MAX_CONSUMERS,
    ClaimRecord,
    Kind,
    Pod,
)

_log: Final = logging.getLogger(__name__)

MAX_CONFLICTS: Final = 5
MAX_REFUSALS: Final = 10
FENCE_ANNOTATION: Final = f"{DOMAIN}/fence"
_BINDING_PERMISSION: Final = "resourceclaims/binding"
_NEVER: Final = float("-inf")


class ClaimCache(Protocol):
    """What claim writes ask of the cache."""

    def claim_record(self, namespace: str, name: str) -> ClaimRecord | None:
        """The newest record known."""
        ...

    def assume_claim(self, record: ClaimRecord) -> None:
        """Remember what a write returned."""
        ...


@dataclass(frozen=True, slots=True)
class ClaimWriter:
    """Writes claims for pods.

    Attributes:
        client: where to.
        cache: read first, and told of every answer.
        clock: timestamps and pauses.
        rng: jitter.
        may_write: whether this process is (still) the one that may; asked before every request.
        epoch: of the leadership; 0: none, nothing is stamped.
    """

    client: ApiClient
    cache: ClaimCache
    clock: Clock
    rng: random.Random
    may_write: Callable[[], bool]
    epoch: Callable[[], int]

    async def reserve(
        self,
        claim: ResourceClaim,
        pod: Pod,
        allocation: AllocationResult | None,
        *,
        is_exclusive: bool = False,
    ) -> ResourceClaim:
        """Reserve a claim for a pod, allocating it in the same write if it has no allocation yet.

        Args:
            claim: the version the decision was made on.
            pod: the consumer.
            allocation: to write, or None if the claim has one.
            is_exclusive: whether no other pod may use it.

        Returns:
            The claim as stored.

        Raises:
            BindError: it cannot be done; this claim then has nothing of ours, or is as undoing expects it.
        """
        name = claim.metadata.name
        backoff = Backoff(self.clock, self.rng)
        for attempt in range(MAX_CONFLICTS):
            held = await self._read(claim, fresh=attempt > 0)
            _check_alive(held, claim)
            self._check_epoch(held)
            is_reserved = held.is_reserved_for(pod.metadata.uid)
            if is_exclusive and not is_reserved and held.consumers:
                raise BindError(
                    ReasonKind.TOO_MANY_CONSUMERS,
                    f"claim {name} cannot be shared and is now used by another pod",
                    claim=name,
                )
            if allocation is None:
                _check_as_decided(held, claim)
                if is_reserved:
                    return self._stored(held.raw, name)
            elif held.is_allocated:
                if is_reserved and _same_devices(held, allocation):
                    # An answer was lost; the write was not.
                    return self._stored(held.raw, name)
                raise BindError(
                    ReasonKind.WRITE_CONFLICT,
                    f"claim {name} was allocated in the meantime",
                    claim=name,
                )
            if backoff.is_over:
                raise BindError(
                    ReasonKind.API_UNAVAILABLE,
                    f"claim {name} cannot be written: the API server does not answer",
                    claim=name,
                )
            if allocation is not None:
                protected = await self._protect(held, name)
                if protected is None:
                    await backoff.pause()
                    continue
                held = protected
            answer = await self.put(held, self._reservation(held, pod, allocation))
            if isinstance(answer, Committed):
                return self._stored(answer.body, name)
            if answer.status != 409:
                raise refusal(answer, name)
            await backoff.pause()
        raise BindError(
            ReasonKind.WRITE_CONFLICT, f"claim {name} kept changing during the bind", claim=name
        )

    async def release(
        self, claim: ResourceClaim, pod_uid: str, is_bound: Callable[[], Awaitable[bool]]
    ) -> None:
        """Take a pod's reservation back, and the allocation with it if nobody else holds the claim.

        Goes on until it is done, or the claim is gone or another one; or until the server has refused it for good, or
        has not answered for a minute: then the claim stays as it is, and the pod's next attempt finds it.

        Args:
            claim: which.
            pod_uid: whose reservation.
            is_bound: whether the pod has a node by now, asked before every try: another replica may have finished what
                we gave up, and a pod that runs must not lose its devices.

        Raises:
            LeaseLostError: this process may not write any more.
        """
        backoff = Backoff(self.clock, self.rng)
        refusals = 0
        problem = ""
        while refusals < MAX_REFUSALS and not backoff.is_over:
            try:
                held = await self._read(claim, fresh=True)
            except LeaseLostError:
                raise
            except BindError as found:
                if found.reason.kind is ReasonKind.CLAIM_NOT_FOUND:
                    return
                problem = found.reason.message
                await backoff.pause()
                continue
            if held.metadata.uid != claim.metadata.uid:
                return
            if not held.is_reserved_for(pod_uid):
                self._tell(held.raw)
                return
            if await is_bound():
                return
            is_last = all(consumer.uid == pod_uid for consumer in held.consumers)
            edit = Deallocation() if is_last else Release({pod_uid})
            answer = await self.put(held, edit, is_patient=False)
            if isinstance(answer, Committed):
                self._tell(answer.body)
                return
            if answer.status == 404:
                return
            problem = f"HTTP {answer.status} {answer.reason}: {answer.message}"
            refusals += not (answer.status == 409 or is_retryable(answer))
            await backoff.pause(answer)
        _log.error(
            "claim %s cannot be released and stays reserved, its devices stay taken: %s",
            claim.key,
            problem,
        )

    async def give_back(self, claim: ResourceClaim, pod_uid: str) -> bool:
        """Deallocate a claim that nobody but this (unbound) pod may use, so that it can be allocated elsewhere.

        Returns:
            Whether it was; if not, it was in use or changing, and a later attempt will see.

        Raises:
            BindError: it is not known whether it was.

        Source: PostFilter of the DynamicResources plugin.
        """
        record = self.cache.claim_record(claim.metadata.namespace, claim.metadata.name)
        if record is None or record.claim.metadata.uid != claim.metadata.uid:
            return False
        held = await self._read(claim, fresh=False)
        if not held.is_allocated or any(entry.uid != pod_uid for entry in held.consumers):
            return False
        answer = await self.put(held, Deallocation())
        if isinstance(answer, Committed):
            self._tell(answer.body)
            return True
        if answer.status == 409:
            # Perhaps an earlier try of ours: whoever binds next must not start from the version before.
            found = await self._read(claim, fresh=True)
            if found.metadata.uid == claim.metadata.uid:
                self._tell(found.raw)
        return False

    async def put(
        self, claim: ClaimText, edit: Edit, *, is_patient: bool = True
    ) -> Committed | Rejected:
        """Write a claim, repeating the very same request until its outcome is definite, or cannot be found out.

        Args:
            claim: as it was read.
            edit: what changes.
            is_patient: whether a server that is busy or away is asked again; false: that is the answer, if nothing that
                was sent is open.

        Returns:
            The last answer. After a refusal nothing that was sent has committed, or can; after a conflict something
            that was sent may have, but cannot any more.

        Raises:
            LeaseLostError: this process may not write any more.
            BindError: the claim could not be read, and nothing was sent.
        """
        name = claim.metadata.name
        try:
            request = await request_for(self.client, claim, edit)
            answer = await self._send(claim, request, is_patient=is_patient)
            if is_invalid(answer) and may_be_refused(edit, claim):
                exact = await exact_request(self.client, claim, edit)
                answer = await self._send(claim, exact, is_patient=is_patient)
        except (ApiError, UnavailableError) as problem:
            raise _unreadable(name, problem) from problem
        return answer

    async def _send(
        self, claim: ClaimText, request: Request | None, *, is_patient: bool
    ) -> Committed | Rejected:
        """As `put`, for one request; None: the claim has changed."""
        if request is None:
            return MOVED
        backoff = Backoff(self.clock, self.rng)
        open_until = _NEVER  # a request without an answer may commit until then
        while True:
            if not self.may_write():
                raise LeaseLostError(is_open=self.clock.monotonic() < open_until)
            answer = await send(self.client, request)
            if isinstance(answer, Committed):
                if claim.is_in(answer.body):
                    return answer
                answer = Unknown("the answer is another object")
            if isinstance(answer, Unknown):
                open_until = self.clock.monotonic() + OPEN_SECONDS
            elif not is_retryable(answer):
                return await self._fence(claim, answer, open_until)
            elif not is_patient and open_until == _NEVER:
                return answer
            if backoff.is_over:
                if isinstance(answer, Rejected) and open_until == _NEVER:
                    return answer
                await self.clock.sleep(max(0.0, open_until - self.clock.monotonic()))
                return MOVED
            await backoff.pause(answer)

    async def _fence(self, claim: ClaimText, refused: Rejected, open_until: float) -> Rejected:
        """Move a claim on from the version that requests under way were made for: they cannot commit after that.

        A refusal (permission, a webhook, which may call it what it likes) says nothing of an earlier try of the same
        request whose answer was lost. What refuses that request may refuse the fence too: then the time after which
        nothing can commit is waited out.

        Args:
            claim: that the requests were made for.
            refused: how the last of them ended.
            open_until: until when an earlier one may commit, or could; never: there was none.

        Returns:
            `refused` if none has committed; else a conflict.

        Raises:
            LeaseLostError: this process may not write any more.
        """
        if open_until == _NEVER:
            return refused
        backoff = Backoff(self.clock, self.rng)
        while self.clock.monotonic() < open_until:
            if not self.may_write():
                raise LeaseLostError(is_open=True)
            outcome = await self._try_fence(claim, refused)
            if outcome is not None:
                return outcome
            await backoff.pause()
        return MOVED

    async def _try_fence(self, claim: ClaimText, refused: Rejected) -> Rejected | None:
        """One try of `_fence`; None: the claim is still of that version, as far as is known."""
        meta = claim.metadata
        path = claim_path(meta.namespace, meta.name)
        try:
            found = ClaimText.read(await self.client.get(path))
            version = (found.metadata.uid, found.metadata.resource_version)
            if version != (meta.uid, meta.resource_version):
                return MOVED
            fence = Mark(annotations={FENCE_ANNOTATION: meta.resource_version})
            answer = await send_once(self.client, found, fence)
        except NotFoundError:
            return Rejected(404, "NotFound", "the claim is gone")
        except (ApiError, UnavailableError, UnreadableClaimError):
            return None
        if isinstance(answer, Committed) and claim.is_in(answer.body):
            self._tell(answer.body)
            return refused
        return None

    async def _protect(self, held: ClaimText, name: str) -> ClaimText | None:
        """Add the finalizer (and our epoch) unless they are there; None: a conflict, read again."""
        epoch = self.epoch()
        stamped = (held.metadata.annotations or {}).get(EPOCH_ANNOTATION)
        has_finalizer = FINALIZER in (held.metadata.finalizers or ())
        # A claim that has the finalizer from its creation and no epoch needs no write of its own: the sweep after a
        # takeover changes its resourceVersion, and that alone stops the writes of an older leader.
        if has_finalizer and (stamped is None or epoch == 0 or stamped == str(epoch)):
            return held
        mark = Mark(
            finalizer="" if has_finalizer else FINALIZER,
            annotations={EPOCH_ANNOTATION: str(epoch)} if epoch > 0 else {},
        )
        answer = await self.put(held, mark)
        if isinstance(answer, Committed):
            self._tell(answer.body)
            return ClaimText.read(without_managed_fields(answer.body))
        if answer.status == 409:
            return None
        raise refusal(answer, name)

    def _check_epoch(self, held: ClaimText) -> None:
        """A claim that a later leader has stamped is not ours to write, whatever our lease says (H5).

        Whether there is such a leader the lease tells, not this annotation, which is anybody's to write.
        """
        name = held.metadata.name
        if is_later(held.metadata.annotations, self.epoch()):
            raise BindError(
                ReasonKind.WRITE_CONFLICT,
                f"claim {name} carries the stamp of a later leader (annotation {EPOCH_ANNOTATION})",
                claim=name,
            )

    def _reservation(self, held: ClaimText, pod: Pod, allocation: AllocationResult | None) -> Edit:
        name = held.metadata.name
        if len(held.consumers) >= MAX_CONSUMERS:
            raise BindError(
                ReasonKind.TOO_MANY_CONSUMERS,
                f"claim {name} already has the maximum number of consumers",
                claim=name,
            )
        consumer = ResourceClaimConsumerReference(
            resource="pods", name=pod.metadata.name, uid=pod.metadata.uid
        )
        if allocation is None:
            return Reservation(consumer)
        # The timestamp goes with a new allocation only: adding it to an old one always fails, and without it
        # kube-scheduler could never share the claim.
        stamped = msgspec.structs.replace(
            allocation, allocation_timestamp=rfc3339(self.clock.now())
        )
        return Allocation(encode_allocation(stamped), consumer)

    async def _read(self, claim: ResourceClaim, *, fresh: bool) -> ClaimText:
        namespace, name = claim.metadata.namespace, claim.metadata.name
        try:
            if not fresh:
                record = self.cache.claim_record(namespace, name)
                if record is not None:
                    return ClaimText.read(record.raw)
            if not self.may_write():
                raise LeaseLostError
            return ClaimText.read(await self.client.get(claim_path(namespace, name)))
        except (ApiError, UnavailableError, UnreadableClaimError) as problem:
            raise _unreadable(name, problem) from problem

    def _stored(self, raw: bytes, name: str) -> ResourceClaim:
        """As `_assume`, for a claim that is to be used.

        Raises:
            BindError: it cannot be read.
        """
        try:
            return self._assume(raw).claim
        except DecodeError as problem:
            raise BindError(
                ReasonKind.INVALID_CLAIM, f"claim {name} cannot be read: {problem}", claim=name
            ) from problem

    def _tell(self, raw: bytes) -> None:
        """As `_assume`, for a claim that is not used: what cannot be read comes with the watch, or stays as it was."""
        try:
            self._assume(raw)
        except DecodeError as problem:
            _log.warning("what was written cannot be read: %s", problem)

    def _assume(self, raw: bytes) -> ClaimRecord:
        """Tell the cache of a claim as the API server has it now.

        Raises:
            DecodeError: it cannot be read.
        """
        record = decode(Kind.RESOURCE_CLAIM, raw)
        if not isinstance(record, ClaimRecord):
            raise TypeError(type(record))
        self.cache.assume_claim(record)
        return record


def refusal(answer: Rejected, claim: str) -> BindError:
    """The error for the pod when a claim write was definitely refused."""
    if answer.status == 403 or (answer.status == 422 and _BINDING_PERMISSION in answer.message):
        return BindError(
            ReasonKind.PERMISSION_DENIED,
            f"claim {claim} cannot be written: {answer.message}",
            claim=claim,
        )
    if answer.status == 404:
        return BindError(ReasonKind.CLAIM_NOT_FOUND, f"claim {claim} is gone", claim=claim)
    if answer.status == 422:
        return BindError(
            ReasonKind.INVALID_CLAIM,
            f"claim {claim}: the API server refused: {answer.message}",
            claim=claim,
        )
    return BindError(
        ReasonKind.API_UNAVAILABLE,
        f"claim {claim} cannot be written: HTTP {answer.status} {answer.reason}",
        claim=claim,
    )


def _unreadable(name: str, problem: Exception) -> BindError:
    """What it means for the pod that a claim cannot be read."""
    if isinstance(problem, NotFoundError):
        return BindError(ReasonKind.CLAIM_NOT_FOUND, f"claim {name} is gone", claim=name)
    if isinstance(problem, ApiError) and problem.status == 403:
        return BindError(
            ReasonKind.PERMISSION_DENIED,
            f"claim {name} cannot be read: {problem.message or 'forbidden'}",
            claim=name,
        )
    return BindError(
        ReasonKind.API_UNAVAILABLE,
        f"claim {name} cannot be read: the API server does not answer",
        claim=name,
    )


def _check_alive(held: ClaimText, claim: ResourceClaim) -> None:
    name = claim.metadata.name
    if held.metadata.uid != claim.metadata.uid:
        raise BindError(
            ReasonKind.CLAIM_NOT_FOUND,
            f"claim {name} was replaced by another claim of the same name",
            claim=name,
        )
    if held.metadata.deletion_timestamp:
        raise BindError(
            ReasonKind.CLAIM_BEING_DELETED, f"claim {name} is being deleted", claim=name
        )


def _check_as_decided(held: ClaimText, claim: ResourceClaim) -> None:
    """A claim that was allocated when the node was chosen must still be: here, not on another node's devices."""
    name = claim.metadata.name
    if not held.is_allocated:
        raise BindError(
            ReasonKind.WRITE_CONFLICT, f"claim {name} was deallocated in the meantime", claim=name
        )
    if held.metadata.resource_version == claim.metadata.resource_version:
        return
    if _allocation(held) != claim.status.allocation:
        raise BindError(
            ReasonKind.WRITE_CONFLICT,
            f"claim {name} was allocated differently in the meantime",
            claim=name,
        )


def _allocation(held: ClaimText) -> AllocationResult | None:
    try:
        record = decode(Kind.RESOURCE_CLAIM, held.raw)
    except DecodeError:
        return None
    return record.claim.status.allocation if isinstance(record, ClaimRecord) else None


def _same_devices(held: ClaimText, ours: AllocationResult) -> bool:
    """Whether a stored allocation is the one we sent: shareID included, which is ours alone."""
    mine = [
        (result.request, result.driver, result.pool, result.device, result.share_id)
        for result in ours.devices.results or ()
    ]
    return held.allocated_devices == mine
