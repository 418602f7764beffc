"""Carries a decision out: claims first, then the Binding; or takes everything back.

A bind is a chain of writes in a task of its own, with a strong reference, that no caller's disconnect can cancel. A
repeated call for the same pod and node joins the chain; for another node it is refused. The devices stay held from the
decision until the chain has ended: written and bound, or taken back, with every outcome definite.
Source: docs/decisions/0006-bind-decides-again.md; docs/design/write-protocol.md#steps,
docs/design/write-protocol.md#outcomes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.outcome import Reason, ReasonKind
from scheduler.binder.claims import ClaimCache, ClaimWriter
from scheduler.binder.outcome import (
    BOUND,
    BindError,
    BindOutcome,
    LeaseLostError,
    UnreadableError,
)
from scheduler.binder.pods import PodWriter
from scheduler.binder.retry import OPEN_SECONDS
from scheduler.cache.allocated import Conflict
from scheduler.clock import Clock
from scheduler.config import BindSettings
from scheduler.framework.cycle_state import PodClaim
from scheduler.framework.plan import Plan
from scheduler.framework.status import Status
from scheduler.model import NodeAllocatableResourceClaimStatus, Pod
from scheduler.plugins.dynamic_resources import is_ready_for_binding, is_reserved_for

_log: Final = logging.getLogger(__name__)

VERSION_TIMEOUT_SECONDS: Final = 5.0


class BinderCache(ClaimCache, Protocol):
    """What binding asks of the cache."""

    def hold(
        self, pod_uid: str, claims: Mapping[str, tuple[ResourceClaim, AllocationResult]]
    ) -> Any:
        """Count these allocations as used until released."""
        ...

    def release(self, pod_uid: str) -> Any:
        """Release what is held for a pod."""
        ...

    def assume_pod(
        self,
        pod: Pod,
        node_name: str,
        demand: Sequence[NodeAllocatableResourceClaimStatus] = (),
    ) -> Any:
        """Count a pod, and what its claims count, on a node until the watch shows where it is."""
        ...

    def forget_pod(self, uid: str) -> Any:
        """Stop counting an assumed pod."""
        ...

    def pod(self, uid: str) -> Pod | None:
        """The newest pod known."""
        ...

    def conflicts(self, uid: str) -> Sequence[Conflict]:
        """Where this claim, with what is written of others, uses more than there is."""
        ...


class ClaimBarrier(Protocol):
    """Waits for the claim watch."""

    async def reached(self, resource_version: int, timeout_seconds: float) -> bool:
        """Wait until the cache has seen all claim writes up to a version; False when it takes too long."""
        ...


@dataclass(slots=True, eq=False)
class Chain:
    """One bind under way.

    Attributes:
        pod: whom.
        node_name: where.
        deadline: on the clock; the caller does not wait longer, and nothing new is begun after it.
        holds_devices: whether devices are held for it until it ends.
        demand: what its claims count in resources of the node, to be written to its status.
        tells_demand: whether such a thing may have been written.
    """

    pod: Pod
    node_name: str
    deadline: float
    holds_devices: bool
    demand: Sequence[NodeAllocatableResourceClaimStatus] = ()
    tells_demand: bool = False
    task: "asyncio.Task[BindOutcome]" = field(init=False)


class Binder:
    """The only code that changes pods and claims."""

    def __init__(
        self,
        *,
        claims: ClaimWriter,
        pods: PodWriter,
        cache: BinderCache,
        barrier: ClaimBarrier,
        clock: Clock,
        settings: BindSettings,
        on_conflict: Callable[[Pod, Conflict], None],
        counts_claims: bool = False,
    ) -> None:
        """Store the collaborators.

        `on_conflict` hears of devices that another writer gave away too; `counts_claims`: devices may count in resources
        of their node (the feature gate).
        """
        self._claims = claims
        self._pods = pods
        self._cache = cache
        self._barrier = barrier
        self._clock = clock
        self._settings = settings
        self._on_conflict = on_conflict
        self._counts_claims = counts_claims
        self._chains: dict[str, Chain] = {}
        self._giving_back: dict[str, asyncio.Future[None]] = {}
        self._slots = asyncio.Semaphore(settings.max_concurrent)
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def pods(self) -> PodWriter:
        """Writes of single pods."""
        return self._pods

    @property
    def open_chains(self) -> int:
        """Binds under way."""
        return len(self._chains)

    def deadline(self) -> float:
        """When a bind that is asked for now has to be over."""
        return self._clock.monotonic() + self._settings.budget_seconds

    def chain(self, pod_uid: str) -> Chain | None:
        """The bind under way for a pod."""
        return self._chains.get(pod_uid)

    def start(
        self,
        plan: Plan,
        recheck: Callable[[], Status | None] | None = None,
        deadline: float | None = None,
    ) -> Chain:
        """Hold what was decided and begin to write it. Synchronous: the next decision already sees it.

        Args:
            plan: what was decided.
            recheck: asked once more right before the Binding; a status that is no success stops it.
            deadline: when the caller stops waiting, on the clock; None: a whole budget from now.
        """
        pod = plan.pod
        uid = pod.metadata.uid
        if uid in self._chains:
            raise AssertionError(f"pod {pod.key} is being bound already")
        self._cache.hold(uid, plan.held)
        told = pod.status.node_allocatable_resource_claim_statuses or ()
        self._cache.assume_pod(pod, plan.node_name, plan.demand)
        chain = Chain(
            pod,
            plan.node_name,
            self.deadline() if deadline is None else deadline,
            bool(plan.allocations),
            plan.demand,
            # An earlier attempt may have ended before it could take back what it had written.
            tells_demand=self._counts_claims and bool(told),
        )
        chain.task = asyncio.create_task(
            self._run(chain, plan.claims, plan.allocations, recheck), name=f"bind {pod.key}"
        )
        self._chains[uid] = chain
        self._idle.clear()
        return chain

    async def wait(self, chain: Chain) -> BindOutcome:
        """Wait for a chain to end, or for its deadline; the chain goes on either way."""
        left = max(0.0, chain.deadline - self._clock.monotonic())
        done, _ = await asyncio.wait({chain.task}, timeout=left)
        if not done:
            return BindOutcome(
                Reason(
                    kind=ReasonKind.DEADLINE_EXCEEDED, message="the pod could not be bound in time"
                )
            )
        return chain.task.result()

    async def give_back(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Deallocate an idle claim of a pod that it keeps from fitting; False if it is not idle any more.

        A claim that is reserved for this pod alone is idle only as long as the pod has no node: the caller's word is not
        taken for that (S9), and no bind of the pod may be under way.
        """
        uid = pod.metadata.uid
        if uid in self._chains or uid in self._giving_back:
            return False
        done = self._giving_back[uid] = asyncio.get_running_loop().create_future()
        try:
            current = await self._pods.read(pod)
            if current.spec.node_name or uid in self._chains:
                return False
            return await self._claims.give_back(claim, uid)
        except BindError:
            return False
        finally:
            del self._giving_back[uid]
            done.set_result(None)

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait until no bind is under way.

        Returns:
            Whether that was reached in time.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _run(
        self,
        chain: Chain,
        claims: Sequence[PodClaim],
        allocations: Mapping[str, AllocationResult],
        recheck: Callable[[], Status | None] | None,
    ) -> BindOutcome:
        outcome: BindOutcome | None = None
        try:
            async with self._slots:
                outcome = await self._carry_out(chain, claims, allocations, recheck)
                return outcome
        finally:
            uid = chain.pod.metadata.uid
            if outcome is None or not outcome.is_bound:
                self._cache.forget_pod(uid)
            self._cache.release(uid)
            del self._chains[uid]
            if not self._chains:
                self._idle.set()

    async def _carry_out(
        self,
        chain: Chain,
        claims: Sequence[PodClaim],
        allocations: Mapping[str, AllocationResult],
        recheck: Callable[[], Status | None] | None,
    ) -> BindOutcome:
        touched: list[ResourceClaim] = []
        is_binding = False
        try:
            giving_back = self._giving_back.get(chain.pod.metadata.uid)
            if giving_back is not None:
                await asyncio.wait({giving_back})  # what it leaves behind decides
            self._check_waits(chain.pod)
            stored = await self._write_claims(chain, claims, allocations, touched)
            await self._write_demand(chain)
            self._check_time(chain)
            self._check_waits(chain.pod)
            self._check_kept(stored, chain.pod)
            self._recheck(recheck)
            is_binding = True
            await self._pods.bind(
                chain.pod,
                chain.node_name,
                is_expired=lambda: self._is_late(chain),
            )
        except BindError as problem:
            if not problem.keep:
                await self._undo(chain, touched)
            elif problem.is_open:
                # The write may still commit: its devices must not be given to anybody else until it cannot any more.
                await self._clock.sleep(OPEN_SECONDS)
            return BindOutcome(problem.reason)
        except Exception:  # noqa: BLE001  # whatever it was, devices and claims must not hang on it
            _log.exception("internal error while binding pod %s", chain.pod.key)
            if not is_binding:  # else it may be bound; the next attempt finds what is reserved and goes on from there
                await self._undo(chain, touched)
            return BindOutcome(
                Reason(kind=ReasonKind.NOT_READY, message="the bind failed on an internal error")
            )
        return BOUND

    @staticmethod
    def _recheck(recheck: Callable[[], Status | None] | None) -> None:
        status = recheck() if recheck is not None else None
        if status is None or status.is_success:
            return
        reason = status.reason
        kind = ReasonKind.NOT_READY if reason is None else reason.kind
        raise BindError(kind, status.message if reason is None else reason.message)

    async def _write_claims(
        self,
        chain: Chain,
        claims: Sequence[PodClaim],
        allocations: Mapping[str, AllocationResult],
        touched: list[ResourceClaim],
    ) -> Sequence[ResourceClaim]:
        ordered = sorted(claims, key=lambda c: (c.claim.metadata.namespace, c.claim.metadata.name))
        # A claim that stands for a resource of its node counts once: two pods that use it would count it twice.
        mapped = {entry.resource_claim_name for entry in chain.demand if entry.mapping}
        stored: list[ResourceClaim] = []
        for pod_claim in ordered:
            self._check_time(chain)
            touched.append(
                pod_claim.claim
            )  # before the write: a failed one may have left something behind
            stored.append(
                await self._claims.reserve(
                    pod_claim.claim,
                    chain.pod,
                    allocations.get(pod_claim.uid),
                    is_exclusive=pod_claim.claim.metadata.name in mapped,
                )
            )
        if stored:
            await self._check_alone(chain, stored)
        self._check_conditions(stored)
        return stored

    async def _write_demand(self, chain: Chain) -> None:
        """Write the node resources that the claims consume to the pod's status. Does nothing for most pods."""
        if chain.demand or chain.tells_demand:
            chain.tells_demand = True
            await self._pods.write_demand(
                chain.pod, chain.demand, is_expired=lambda: self._is_late(chain)
            )

    async def _check_alone(self, chain: Chain, written: Sequence[ResourceClaim]) -> None:
        """W3: once the watch has passed our writes, every earlier writer is visible; give way to those.

        Also for claims that were allocated before: whoever shares one may come before its allocator has been here.
        """
        version = max(int(claim.metadata.resource_version or 0) for claim in written)
        if not await self._barrier.reached(version, VERSION_TIMEOUT_SECONDS):
            raise BindError(
                ReasonKind.API_UNAVAILABLE,
                "the watch of claims is behind: the bind could not be verified",
            )
        for claim in written:
            for conflict in self._cache.conflicts(claim.metadata.uid):
                if conflict.other_uid:
                    self._on_conflict(chain.pod, conflict)
                if conflict.other_is_earlier:
                    name = claim.metadata.name
                    problem = (
                        f"claim {name}: {conflict.problem}"
                        if conflict.problem
                        else f"a device of claim {name} was allocated to another claim by another scheduler"
                    )
                    raise BindError(ReasonKind.WRITE_CONFLICT, problem, claim=name)

    def _check_waits(self, pod: Pod) -> None:
        """A pod that has ended gets nothing, although the API server would bind it (kubernetes#141274).

        It may end without a node: by its deadline, or by whoever sets its phase.
        """
        known = self._cache.pod(pod.metadata.uid)
        if pod.is_terminal or (known is not None and known.is_terminal):
            raise BindError(ReasonKind.WRITE_CONFLICT, "the pod has ended")

    def _check_kept(self, stored: Sequence[ResourceClaim], pod: Pod) -> None:
        """Right before the Binding: every claim is still there, allocated as it was and reserved for the pod (S5)."""
        for claim in stored:
            meta = claim.metadata
            record = self._cache.claim_record(meta.namespace, meta.name)
            if record is None or record.claim.metadata.uid != meta.uid:
                raise BindError(
                    ReasonKind.CLAIM_NOT_FOUND,
                    f"claim {meta.name} no longer exists",
                    claim=meta.name,
                )
            same_devices = record.claim.status.allocation == claim.status.allocation
            if not (same_devices and is_reserved_for(record.claim, pod.metadata.uid)):
                raise BindError(
                    ReasonKind.WRITE_CONFLICT,
                    f"claim {meta.name} was released in the meantime",
                    claim=meta.name,
                )

    @staticmethod
    def _check_conditions(stored: Sequence[ResourceClaim]) -> None:
        for claim in stored:
            ready = is_ready_for_binding(claim)
            name = claim.metadata.name
            if ready is None:
                raise BindError(
                    ReasonKind.BINDING_FAILED,
                    f"claim {name}: preparing its devices failed",
                    claim=name,
                )
            if not ready:
                raise BindError(
                    ReasonKind.BINDING_CONDITIONS_PENDING,
                    f"claim {name}: waiting for the binding conditions of its devices",
                    claim=name,
                    keep=True,
                )

    def _is_late(self, chain: Chain) -> bool:
        return self._clock.monotonic() >= chain.deadline

    def _check_time(self, chain: Chain) -> None:
        if self._is_late(chain):
            raise BindError(ReasonKind.DEADLINE_EXCEEDED, "the pod could not be bound in time")

    async def _undo(self, chain: Chain, touched: Sequence[ResourceClaim]) -> None:
        """Take reservations back, latest first. Never for a pod that turns out to be bound.

        What cannot be taken back stays reserved for a pending pod: whoever tries it next, or leads next, finishes it.
        """
        if not touched:
            return
        try:
            if not await self._is_bound(chain.pod):
                for claim in reversed(touched):
                    await self._claims.release(
                        claim, chain.pod.metadata.uid, lambda: self._is_bound(chain.pod)
                    )
                await self._clear_demand(chain)
        except LeaseLostError:
            return
        except UnreadableError as problem:
            _log.warning("claims reserved for pod %s stay reserved: %s", chain.pod.key, problem)
        except Exception:  # noqa: BLE001  # whatever it was, devices and claims must not hang on it
            _log.exception("claims reserved for pod %s stay reserved", chain.pod.key)

    async def _clear_demand(self, chain: Chain) -> None:
        """A pod that is not bound counts nothing. What cannot be taken back is replaced by the next attempt."""
        if not chain.tells_demand:
            return
        ends = self._clock.monotonic() + OPEN_SECONDS
        try:
            await self._pods.write_demand(
                chain.pod, (), is_expired=lambda: self._clock.monotonic() >= ends
            )
        except LeaseLostError:
            raise
        except BindError as problem:
            _log.warning("the status of pod %s: %s", chain.pod.key, problem)

    async def _is_bound(self, pod: Pod) -> bool:
        try:
            current = await self._pods.read(pod)
        except (LeaseLostError, UnreadableError):
            raise
        except BindError:
            return False  # gone or replaced: nobody uses what was reserved
        return bool(current.spec.node_name)
