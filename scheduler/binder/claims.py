"""Writes of one claim: finalizer, then allocation and reservation together; and taking them back.

Every write starts from the claim's raw bytes, so that fields this version does not know survive, and carries its
resourceVersion. A write whose outcome is unknown is repeated unchanged until it is definite: its resourceVersion lets
at most one of the repetitions commit, and a conflict is settled by reading what is there.
Source: scheduler-and-claims 1.5, 1.6; reliability 2.1, 2.2.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import orjson

from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.outcome import ReasonKind
from scheduler.api.decode import allocation_tree, decode
from scheduler.binder.epochs import stamped_epoch
from scheduler.binder.outcome import BindError, LeaseLostError
from scheduler.binder.retry import Backoff, is_retryable
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
Document = dict[str, Any]


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
            document = await self._read(claim, fresh=attempt > 0)
            _check_alive(document, claim)
            self._check_epoch(document)
            is_reserved = _is_reserved(document, pod)
            if is_exclusive and not is_reserved and _consumers(document):
                raise BindError(
                    ReasonKind.TOO_MANY_CONSUMERS,
                    f"claim {name} cannot be shared, and another pod uses it by now",
                    claim=name,
                )
            if allocation is None:
                _check_as_decided(document, claim)
                if is_reserved:
                    return self._assume(orjson.dumps(document)).claim
            elif (current := _allocation(document)) is not None:
                if is_reserved and _same_devices(current, allocation):
                    # An answer was lost; the write was not.
                    return self._assume(orjson.dumps(document)).claim
                raise BindError(
                    ReasonKind.WRITE_CONFLICT,
                    f"claim {name} was allocated in the meantime",
                    claim=name,
                )
            else:
                protected = await self._protect(document, name)
                if protected is None:
                    await backoff.pause()
                    continue
                document = protected
            self._add_reservation(document, pod, allocation, name)
            answer = await self.put(document, "/status")
            if isinstance(answer, Committed):
                return self._assume(answer.body).claim
            if answer.status != 409:
                raise refusal(answer, name)
            await backoff.pause()
        raise BindError(ReasonKind.WRITE_CONFLICT, f"claim {name} keeps changing", claim=name)

    async def release(self, claim: ResourceClaim, pod_uid: str) -> None:
        """Take a pod's reservation back, and the allocation with it if nobody else holds the claim.

        Goes on until it is done, or the claim is gone or another one; or until the server has refused it for good: then
        the claim stays as it is, and the pod's next attempt finds it.

        Raises:
            LeaseLostError: this process may not write any more.
        """
        backoff = Backoff(self.clock, self.rng)
        refusals = 0
        while refusals < MAX_REFUSALS:
            try:
                document = await self._read(claim, fresh=True)
            except BindError as problem:
                if isinstance(problem, LeaseLostError):
                    raise
                if problem.reason.kind is ReasonKind.CLAIM_NOT_FOUND:
                    return
                await backoff.pause()
                continue
            if document["metadata"].get("uid") != claim.metadata.uid:
                return
            status = document.setdefault("status", {})
            consumers = status.get("reservedFor") or []
            rest = [consumer for consumer in consumers if consumer.get("uid") != pod_uid]
            if len(rest) == len(consumers):
                self._assume(orjson.dumps(document))
                return
            if rest:
                status["reservedFor"] = rest
            else:
                _deallocate(status)
            answer = await self.put(document, "/status")
            if isinstance(answer, Committed):
                self._assume(answer.body)
                return
            if answer.status == 404:
                return
            refusals += answer.status != 409
            await backoff.pause(answer)
        _log.error(
            "claim %s/%s cannot be released, its devices stay taken: the API server refuses",
            claim.metadata.namespace,
            claim.metadata.name,
        )

    async def give_back(self, claim: ResourceClaim, pod_uid: str) -> bool:
        """Deallocate a claim that nobody but this (unbound) pod may use, so that it can be allocated elsewhere.

        Returns:
            Whether it was; if not, it was in use or changing, and a later attempt will see.

        Source: PostFilter of the DynamicResources plugin.
        """
        record = self.cache.claim_record(claim.metadata.namespace, claim.metadata.name)
        if record is None or record.claim.metadata.uid != claim.metadata.uid:
            return False
        document: Document = orjson.loads(record.raw)
        status = document.get("status") or {}
        consumers = status.get("reservedFor") or []
        if not status.get("allocation") or any(entry.get("uid") != pod_uid for entry in consumers):
            return False
        _deallocate(status)
        answer = await self.put(document, "/status")
        if isinstance(answer, Committed):
            self._assume(answer.body)
            return True
        if answer.status == 409:
            # Perhaps an earlier try of ours: whoever binds next must not start from the version before.
            found = await self._read(claim, fresh=True)
            if found["metadata"].get("uid") == claim.metadata.uid:
                self._assume(orjson.dumps(found))
        return False

    async def put(self, document: Document, subresource: str = "") -> Committed | Rejected:
        """PUT a claim, repeating the very same request until its outcome is definite.

        Returns:
            The last answer. After a refusal nothing that was sent can commit any more; after a conflict something that
            was sent may have.

        Raises:
            LeaseLostError: this process may not write any more.
        """
        meta = document["metadata"]
        path = claim_path(meta["namespace"], meta["name"]) + subresource
        body = orjson.dumps(document)
        backoff = Backoff(self.clock, self.rng)
        is_open = False
        while True:
            if not self.may_write():
                raise LeaseLostError(is_open=is_open)
            answer = await self.client.write("PUT", path, body)
            if isinstance(answer, Unknown):
                is_open = True
            elif isinstance(answer, Committed) or answer.status in (404, 409):
                return answer
            elif not is_retryable(answer):
                if is_open:
                    await self._fence(meta)
                return answer
            await backoff.pause(answer)

    async def _fence(self, sent: Document) -> None:
        """Move a claim on from the version that a request under way was made for: it cannot commit after that.

        A refusal (permission, a webhook) says nothing of an earlier try of the same request whose answer was lost.

        Args:
            sent: metadata of that request.

        Raises:
            LeaseLostError: this process may not write any more.
        """
        path = claim_path(sent["namespace"], sent["name"])
        backoff = Backoff(self.clock, self.rng)
        while True:
            if not self.may_write():
                raise LeaseLostError(is_open=True)
            try:
                document: Document = orjson.loads(await self.client.get(path))
            except NotFoundError:
                return
            except (ApiError, UnavailableError):
                await backoff.pause()
                continue
            meta = document["metadata"]
            version = sent.get("resourceVersion")
            if meta.get("uid") != sent.get("uid") or meta.get("resourceVersion") != version:
                return
            meta["annotations"] = {**(meta.get("annotations") or {}), FENCE_ANNOTATION: version}
            answer = await self.client.write("PUT", path, orjson.dumps(document))
            if isinstance(answer, Committed):
                self._assume(answer.body)
                return
            await backoff.pause(answer)

    async def _protect(self, document: Document, name: str) -> Document | None:
        """Add the finalizer (and our epoch) unless they are there; None: a conflict, read again."""
        meta = document["metadata"]
        finalizers = meta.get("finalizers") or []
        epoch = self.epoch()
        stamped = (meta.get("annotations") or {}).get(EPOCH_ANNOTATION)
        # A claim that has the finalizer from its creation and no epoch needs no write of its own: the sweep after a
        # takeover changes its resourceVersion, and that alone stops the writes of an older leader.
        if FINALIZER in finalizers and (stamped is None or epoch == 0 or stamped == str(epoch)):
            return document
        if FINALIZER not in finalizers:
            meta["finalizers"] = [*finalizers, FINALIZER]
        if epoch > 0:
            meta["annotations"] = {**(meta.get("annotations") or {}), EPOCH_ANNOTATION: str(epoch)}
        answer = await self.put(document)
        if isinstance(answer, Committed):
            stored: Document = orjson.loads(self._assume(answer.body).raw)
            return stored
        if answer.status == 409:
            return None
        raise refusal(answer, name)

    def _check_epoch(self, document: Document) -> None:
        """A claim that a later leader has stamped is not ours to write, whatever our lease says (H5)."""
        if stamped_epoch(document["metadata"].get("annotations")) > self.epoch() > 0:
            raise LeaseLostError

    def _add_reservation(
        self, document: Document, pod: Pod, allocation: AllocationResult | None, name: str
    ) -> None:
        status = document.setdefault("status", {})
        consumers = status.get("reservedFor") or []
        if len(consumers) >= MAX_CONSUMERS:
            raise BindError(
                ReasonKind.TOO_MANY_CONSUMERS,
                f"claim {name} has as many consumers as it can have",
                claim=name,
            )
        if allocation is not None:
            # The timestamp goes with a new allocation only: adding it to an old one always fails, and without it
            # kube-scheduler could never share the claim.
            stamped = msgspec.structs.replace(
                allocation, allocation_timestamp=rfc3339(self.clock.now())
            )
            status["allocation"] = allocation_tree(stamped)
        entry = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
        status["reservedFor"] = [*consumers, entry]

    async def _read(self, claim: ResourceClaim, *, fresh: bool) -> Document:
        namespace, name = claim.metadata.namespace, claim.metadata.name
        if not fresh:
            record = self.cache.claim_record(namespace, name)
            if record is not None:
                document: Document = orjson.loads(record.raw)
                return document
        if not self.may_write():
            raise LeaseLostError
        try:
            found: Document = orjson.loads(await self.client.get(claim_path(namespace, name)))
        except NotFoundError as problem:
            raise BindError(
                ReasonKind.CLAIM_NOT_FOUND, f"claim {name} is gone", claim=name
            ) from problem
        except (ApiError, UnavailableError) as problem:
            raise BindError(
                ReasonKind.API_UNAVAILABLE,
                f"claim {name} cannot be read: the API server does not answer",
                claim=name,
            ) from problem
        return found

    def _assume(self, raw: bytes) -> ClaimRecord:
        """Tell the cache of a claim as the API server has it now."""
        record = decode(Kind.RESOURCE_CLAIM, raw)
        if not isinstance(record, ClaimRecord):
            raise TypeError(type(record))
        self.cache.assume_claim(record)
        return record


def claim_path(namespace: str, name: str) -> str:
    """The path of a claim in the API."""
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"


def refusal(answer: Rejected, claim: str) -> BindError:
    """What a definite refusal of a claim write means for the pod."""
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


def _check_alive(document: Document, claim: ResourceClaim) -> None:
    meta = document["metadata"]
    name = claim.metadata.name
    if meta.get("uid") != claim.metadata.uid:
        raise BindError(
            ReasonKind.CLAIM_NOT_FOUND, f"claim {name} was replaced by another one", claim=name
        )
    if meta.get("deletionTimestamp"):
        raise BindError(
            ReasonKind.CLAIM_BEING_DELETED, f"claim {name} is being deleted", claim=name
        )


def _check_as_decided(document: Document, claim: ResourceClaim) -> None:
    """A claim that was allocated when the node was chosen must still be: here, not on another node's devices."""
    name = claim.metadata.name
    if _allocation(document) is None:
        raise BindError(
            ReasonKind.WRITE_CONFLICT, f"claim {name} was deallocated in the meantime", claim=name
        )
    if document["metadata"].get("resourceVersion") == claim.metadata.resource_version:
        return
    record = decode(Kind.RESOURCE_CLAIM, orjson.dumps(document))
    if (
        not isinstance(record, ClaimRecord)
        or record.claim.status.allocation != claim.status.allocation
    ):
        raise BindError(
            ReasonKind.WRITE_CONFLICT,
            f"claim {name} was allocated otherwise in the meantime",
            claim=name,
        )


def _allocation(document: Document) -> Document | None:
    found: Document | None = (document.get("status") or {}).get("allocation")
    return found


def _consumers(document: Document) -> list[Document]:
    return (document.get("status") or {}).get("reservedFor") or []


def _is_reserved(document: Document, pod: Pod) -> bool:
    return any(entry.get("uid") == pod.metadata.uid for entry in _consumers(document))


def _same_devices(written: Document, ours: AllocationResult) -> bool:
    """Whether a stored allocation is the one we sent: shareID included, which is ours alone."""
    fields = ("request", "driver", "pool", "device", "shareID")
    results = (written.get("devices") or {}).get("results") or []
    stored = [tuple(result.get(field) for field in fields) for result in results]
    mine = [
        (result.request, result.driver, result.pool, result.device, result.share_id)
        for result in ours.devices.results or ()
    ]
    return stored == mine


def _deallocate(status: Document) -> None:
    for field in ("reservedFor", "allocation", "devices"):
        status.pop(field, None)
