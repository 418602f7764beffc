"""The stand-alone scheduler: take a pod, decide, hand the decision to the binder, say why not.

Decisions are serial and never await between reading the cluster and holding what was decided; writes of different pods
overlap. The loop gives way to other tasks after every `SLICE_SECONDS` of deciding: a busy event loop is a slow watch
reader, and the API server ends the watches of slow readers.

No pod is lost: each pod in flight has an owner (the attempt that is being made, a search beside the loop, a bind), and
however its owner ends, the pod is bound, refused, or tried again. The sweep looks for pods that have none all the same.

Source: docs/design/scheduling-cycle.md; docs/design/write-protocol.md#steps, docs/design/scheduling-cycle.md#queue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from allocator.model.claims import ResourceClaim
from allocator.outcome import Reason, ReasonKind
from scheduler.binder import BindOutcome, Chain
from scheduler.clock import Clock
from scheduler.conclusion import NO_NODES, failure_message, pod_failure_message
from scheduler.config import Settings
from scheduler.engine import Attempt, Engine, LongSearch, Plan
from scheduler.events import NORMAL
from scheduler.framework.cycle_state import FilterResult
from scheduler.framework.status import Code, Status, error
from scheduler.model import (
    Change,
    ChangeListener,
    ClusterReader,
    Kind,
    Pod,
)
from scheduler.plugins.dynamic_resources import NAME as DYNAMIC_RESOURCES
from scheduler.plugins.dynamic_resources import claim_to_give_back, resolve_claims
from scheduler.scheduling_queue import Place, QueuedPod, SchedulingQueue
from scheduler.standalone.recheck import recheck_node
from scheduler.standalone.reports import Events, PodConditions, Reports
from scheduler.workers import TIME_IS_OVER, SearchWorker

_log: Final = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.01
SWEEP_SECONDS: Final = 60.0
# Nodes searched at a time, or 16 times as many looked at for the first time (about 8 ms): a slice is not over before its
# first decision is.
SLICE_SEARCHES: Final = 4
MAX_SLICES: Final = 1_000  # for one pod; then it is decided in one go, come what may
TAKEN_IN_AT_ONCE: Final = 256  # pods queued before others may run, when there are many: about 3 ms
NOT_LEADER_PAUSE_SECONDS: Final = 0.1
_DEFECT: Final = error(
    Reason(kind=ReasonKind.NOT_READY, message="the decision failed on an internal error")
)


class Cache(ClusterReader, Protocol):
    """What the loop asks of the cluster cache."""

    def subscribe(self, listener: ChangeListener) -> None:
        """Call back after every change."""
        ...

    def pending_pods(self) -> Sequence[Pod]:
        """Pods without node for which no bind is under way."""
        ...

    def assumed_node(self, pod_uid: str) -> str | None:
        """Where a pod is being bound to."""
        ...


class PodBinder(Protocol):
    """What the loop asks of the binder."""

    @property
    def pods(self) -> PodConditions:
        """Writes of single pods."""
        ...

    @property
    def open_chains(self) -> int:
        """Binds under way."""
        ...

    def chain(self, pod_uid: str) -> Chain | None:
        """The bind under way for a pod."""
        ...

    def start(self, plan: Plan, recheck: Callable[[], Status | None] | None = None) -> Chain:
        """Hold what was decided and begin to write it."""
        ...

    async def give_back(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Deallocate an idle claim of a pod."""
        ...


class LoopMetrics(Protocol):
    """What is counted of the loop."""

    def attempt(self, result: str) -> None:
        """An attempt ended: `scheduled`, `unschedulable` or `error`."""
        ...

    def refused(self, kind: str) -> None:
        """A pod was refused."""
        ...

    def decision(self, seconds: float) -> None:
        """A decision took so long."""
        ...

    def bind(self, outcome: str, seconds: float) -> None:
        """A bind took so long."""
        ...

    def pod_scheduled(self, seconds: float) -> None:
        """A pod waited so long, from first seen to bound."""
        ...

    def queue_depths(self, depths: Mapping[str, int]) -> None:
        """So many pods are in each place."""
        ...

    def pod_shed(self) -> None:
        """A pod found the queue full."""
        ...

    def pod_recovered(self) -> None:
        """The sweep found a waiting pod that nobody was working on."""
        ...


class Collaborators(Protocol):
    """Collaborators of the loop."""

    @property
    def settings(self) -> Settings:
        """Scheduler name and limits."""
        ...

    @property
    def cache(self) -> Cache:
        """The cluster as known."""
        ...

    @property
    def engine(self) -> Engine:
        """Decides."""
        ...

    @property
    def binder(self) -> PodBinder:
        """Writes."""
        ...

    @property
    def events(self) -> Events:
        """Records events."""
        ...

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    @property
    def metrics(self) -> LoopMetrics:
        """Counts."""
        ...

    def may_write(self) -> bool:
        """Whether this process may write now."""
        ...


class StandaloneLoop:
    """Schedules the pods that name us. Run once the cache is complete and while this process may write."""

    def __init__(self, core: Collaborators) -> None:
        """Store the collaborators."""
        self._cache = core.cache
        self._engine = core.engine
        self._binder = core.binder
        self._clock = core.clock
        self._metrics = core.metrics
        self._may_write = core.may_write
        self._scheduler_name = core.settings.scheduler_name
        self._max_binds = core.settings.binding.max_concurrent
        self._reports = Reports(core.cache, core.binder.pods, core.events, core.clock)
        self._first_seen: dict[str, float] = {}
        self._shed: set[str] = set()  # pods that found the queue full
        self._owners: dict[
            str, asyncio.Task[None]
        ] = {}  # pod UID -> its search or the end of its bind
        self._give_backs: set[asyncio.Task[None]] = set()
        self._work = asyncio.Event()
        self._is_stopping = False
        self._unfinished: tuple[QueuedPod, int] | None = (
            None  # a pod being decided, slices it has had
        )
        self._worker = SearchWorker(core.engine, core.clock)
        self._search_seconds = core.settings.allocation.timeout_seconds
        self._searched: dict[str, float] = {}  # pod UID -> seconds of slow searches in this attempt
        self._resumed: deque[QueuedPod] = deque()  # pods whose slow search has ended
        self.queue = SchedulingQueue(self._claims_resolve, awaits_claims=self._awaits_claims)

    async def run(self) -> None:
        """Schedule until `stop`. Binds under way go on; the binder knows them."""
        self._engine.follow(self._cache)
        self._cache.subscribe(self._observe)
        await self._take_in_all()
        reporting = asyncio.create_task(self._reports.run(), name="reports of the loop")
        sweep_at = self._clock.monotonic() + SWEEP_SECONDS
        try:
            while not self._is_stopping:
                now = self._clock.monotonic()
                if reporting.done():
                    reporting.result()  # it only ends by a defect, which ends this loop, too
                if now >= sweep_at:
                    sweep_at = now + SWEEP_SECONDS
                    await self._sweep(now)
                if not self._may_write():
                    self._work.clear()
                    await self._wait(NOT_LEADER_PAUSE_SECONDS)
                    continue
                self._work.clear()
                self._decide_slice()
                await self._pause(sweep_at)
        finally:
            self._is_stopping = True
            self._worker.close()
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    def stop(self) -> None:
        """Decide nothing more."""
        self._is_stopping = True
        self._work.set()

    # --- what happens in the cluster ----------------------------------------------------------------------------------

    def _is_ours(self, pod: Pod) -> bool:
        return (
            pod.spec.scheduler_name == self._scheduler_name
            and not pod.spec.node_name
            and not pod.is_terminal
            and pod.metadata.deletion_timestamp is None
        )

    def _claims_resolve(self, pod: Pod) -> bool:
        try:
            return not isinstance(resolve_claims(pod, self._cache), Status)
        except Exception:  # noqa: BLE001  # the event is everybody's; the attempt will meet the defect, too, and tell
            return True

    def _awaits_claims(self, pod: Pod) -> bool:
        """Whether the claim controller, or our watch of claims, has yet to come as far as this pod."""
        made = {
            each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()
        }
        for entry in pod.spec.resource_claims or ():
            if entry.resource_claim_template_name is None:
                continue
            if entry.name not in made:
                return True
            name = made[entry.name]
            if name is not None and self._cache.claim(pod.metadata.namespace, name) is None:
                return True
        return False

    async def _take_in_all(self, *, is_sweep: bool = False) -> None:
        """Queue every pod of ours that is not here yet: at the start, and for what a full queue refused, or anybody forgot."""
        for number, waiting in enumerate(self._cache.pending_pods(), start=1):
            uid = waiting.metadata.uid
            if uid not in self.queue and self._cache.assumed_node(uid) is None:
                pod = self._cache.pod(uid)
                if pod is not None and self._is_ours(pod):
                    if is_sweep and uid not in self._shed:
                        self._recovered(pod, "was not queued")
                    self._take_in(pod)
            if number % TAKEN_IN_AT_ONCE == 0:
                await self._clock.sleep(0)

    def _take_in(self, pod: Pod) -> None:
        now = self._clock.monotonic()
        uid = pod.metadata.uid
        if self.queue.add(pod, now):
            self._first_seen.setdefault(uid, now)
            self._shed.discard(uid)
        else:
            self._shed.add(uid)
            self._metrics.pod_shed()

    def _observe(self, change: Change) -> None:
        """Listen to the cache. Called between two decisions, never during one."""
        if self._is_stopping:
            return
        if change.kind is Kind.POD:
            self._observe_pod(change)
        self.queue.on_change(change, self._clock.monotonic())
        self._work.set()

    def _observe_pod(self, change: Change) -> None:
        pod = change.new
        if isinstance(pod, Pod) and self._is_ours(pod):
            # While its bind is under way, the pod is in flight: kept up to date for the case that the bind fails.
            self._take_in(pod)
            return
        for gone in (change.new, change.old):
            if isinstance(gone, Pod):
                self._forget(gone.metadata.uid)

    def _forget(self, uid: str) -> None:
        self.queue.delete(uid)
        self._searched.pop(uid, None)
        self._shed.discard(uid)
        self._reports.forget(uid)
        if self._binder.chain(uid) is None:  # else the end of the bind still wants to know
            self._first_seen.pop(uid, None)

    async def _sweep(self, now: float) -> None:
        self.queue.sweep(now)
        self._recover_unowned(now)
        await self._take_in_all(is_sweep=True)
        self._metrics.queue_depths({str(place): n for place, n in self.queue.counts().items()})

    # --- who works on what --------------------------------------------------------------------------------------------

    def _own(self, queued: QueuedPod, work: Coroutine[Any, Any, None]) -> None:
        """Leave a pod in flight to a task, until that ends."""
        task = asyncio.create_task(work)
        self._owners[queued.pod.metadata.uid] = task
        task.add_done_callback(partial(self._disown, queued))

    def _disown(self, queued: QueuedPod, task: asyncio.Task[None]) -> None:
        """A task has ended, in whatever way: the pod must be somewhere else by now."""
        uid = queued.pod.metadata.uid
        if self._owners.get(uid) is task:
            del self._owners[uid]
        problem = None if task.cancelled() else task.exception()
        if self._is_stopping:
            return
        if problem is not None:
            _log.error("an attempt for pod %s failed", queued.pod.key, exc_info=problem)
        self._settle(queued)

    def _is_unowned(self, queued: QueuedPod) -> bool:
        """Whether a pod is in flight, but nobody is going to end its attempt. Asked between two attempts."""
        uid = queued.pod.metadata.uid
        is_current = self._unfinished is not None and self._unfinished[0] is queued
        return (
            queued.place is Place.IN_FLIGHT
            and self.queue.get(uid) is queued
            and not is_current
            and uid not in self._owners
            and queued not in self._resumed
            and self._binder.chain(uid) is None
        )

    def _recover_unowned(self, now: float) -> None:
        for queued in self.queue.in_flight():
            if self._is_unowned(queued):
                self._recovered(queued.pod, "was in nobody's hands")
                self.queue.failed(queued.pod.metadata.uid, (), now, is_error=True)

    def _recovered(self, pod: Pod, how: str) -> None:
        _log.error("pod %s %s: it is queued again", pod.key, how)
        self._metrics.pod_recovered()

    def _settle(self, queued: QueuedPod) -> None:
        """After a defect: one pod's stops no other pod, and that pod is tried again, like after any error."""
        if self._is_unowned(queued):
            self._searched.pop(queued.pod.metadata.uid, None)
            self._refused(queued.pod, _DEFECT, frozenset(), _DEFECT.message)
            self._work.set()

    # --- deciding -----------------------------------------------------------------------------------------------------

    def _can_decide(self) -> bool:
        return self._binder.open_chains < self._max_binds and not self._is_stopping

    def _decide_slice(self) -> None:
        """Decide until the slice is over, the binder is full, or no pod is ready."""
        began = now = self._clock.monotonic()
        while self._can_decide() and now - began < SLICE_SECONDS:
            queued, slices = self._unfinished or (self._next(now), 0)
            if queued is None:
                return
            self._unfinished = None
            limit = SLICE_SEARCHES if slices < MAX_SLICES else None
            try:
                is_finished = self._try(queued, limit)
            except Exception:  # noqa: BLE001  # one pod's defect must not stop all others
                _log.exception("deciding for pod %s failed", queued.pod.key)
                self._settle(queued)
                is_finished = True
            if not is_finished:
                self._unfinished = (queued, slices + 1)
                return
            after = self._clock.monotonic()
            self._metrics.decision(after - now)
            now = after

    def _next(self, now: float) -> QueuedPod | None:
        return self._resumed.popleft() if self._resumed else self.queue.pop(now)

    async def _search_slowly(self, queued: QueuedPod, slow: LongSearch) -> None:
        """Run a search beside the loop, then go on with the attempt; all slow searches of an attempt share its time."""
        uid = queued.pod.metadata.uid
        left = self._search_seconds - self._searched.get(uid, 0.0)
        if left <= 0:
            self._searched.pop(uid, None)
            self._refused(slow.attempt.pod, TIME_IS_OVER, {DYNAMIC_RESOURCES}, TIME_IS_OVER.message)
            return
        took = await self._worker.search(slow, left)
        self._searched[uid] = self._searched.get(uid, 0.0) + took
        self._resumed.append(queued)
        self._work.set()

    async def _pause(self, sweep_at: float) -> None:
        """Yield to other tasks; wait if there is nothing to decide."""
        now = self._clock.monotonic()
        await asyncio.sleep(0)
        if self._work.is_set() or self._is_stopping:
            return
        if self._can_decide() and (
            self._unfinished is not None or self._resumed or self.queue.has_active(now)
        ):
            return
        until = sweep_at
        next_at = self.queue.next_at()
        if next_at is not None and self._can_decide():
            until = min(until, next_at)
        await self._wait(max(0.0, until - now))

    async def _wait(self, seconds: float) -> None:
        """Wait for work, but not longer than this."""
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        work = asyncio.ensure_future(self._work.wait())
        try:
            await asyncio.wait({timer, work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (timer, work):
                task.cancel()
            await asyncio.gather(timer, work, return_exceptions=True)

    def _try(self, queued: QueuedPod, max_searches: int | None) -> bool:
        """One attempt, from the pod's newest version to a bind that is under way; False if it needs another slice."""
        uid = queued.pod.metadata.uid
        if self.queue.get(uid) is not queued or self._binder.chain(uid) is not None:
            return True  # gone, between two slices; or it was forgotten and came back, and its bind decides
        pod = self._cache.pod(uid) or queued.pod
        if not self._is_ours(pod):
            self.queue.delete(uid)
            return True
        state = self._engine.pre_filter(pod, self._cache)
        if isinstance(state, Status):
            total = len(self._cache.snapshot().nodes)
            rejected_by = {state.plugin} if state.plugin else set()
            self._refused(pod, state, rejected_by, pod_failure_message(state, total))
            return True
        decided = self._engine.decide(state, max_searches)
        if decided is not None:
            self._carry_out(queued, state, decided)
        return decided is not None

    def _carry_out(
        self, queued: QueuedPod, attempt: Attempt, decided: Plan | FilterResult | LongSearch
    ) -> None:
        """Do what a decision says; until that has ended, the pod is in flight."""
        if isinstance(decided, LongSearch):
            self._own(queued, self._search_slowly(queued, decided))
            return
        self._searched.pop(queued.pod.metadata.uid, None)
        if isinstance(decided, FilterResult):
            self._none_fits(attempt, decided)
            return
        chain = self._binder.start(decided, recheck_node(attempt, decided, self._cache))
        self._own(queued, self._finish(attempt, chain, self._clock.monotonic()))

    def _none_fits(self, state: Attempt, result: FilterResult) -> None:
        failure = result.failure or NO_NODES
        self._refused(state.pod, failure, result.rejected_by, failure_message(result))
        if failure.code is Code.ERROR:
            return
        claim = claim_to_give_back(state, result.verdicts)
        if claim is not None:
            task = asyncio.create_task(self._give_back(claim, state.pod))
            self._give_backs.add(task)
            task.add_done_callback(self._give_backs.discard)

    def _refused(
        self, pod: Pod, status: Status, rejected_by: set[str] | frozenset[str], message: str
    ) -> None:
        is_error = status.code is Code.ERROR
        kind = ReasonKind.NOT_READY if status.reason is None else status.reason.kind
        self.queue.failed(pod.metadata.uid, rejected_by, self._clock.monotonic(), is_error=is_error)
        self._metrics.attempt("error" if is_error else "unschedulable")
        self._metrics.refused(str(kind))
        self._reports.failed(pod, Reason(kind=kind, message=message), is_error=is_error)

    # --- after the decision -------------------------------------------------------------------------------------------

    async def _give_back(self, claim: ResourceClaim, pod: Pod) -> None:
        """Let a claim of a pod go. The claim's own event brings the pod back; without it, a backoff does."""
        is_done = False
        try:
            is_done = await self._binder.give_back(claim, pod)
        except Exception:  # noqa: BLE001  # as in every attempt
            _log.exception("giving back claim %s of pod %s failed", claim.key, pod.key)
        finally:
            if not is_done:
                self.queue.retry(pod.metadata.uid, self._clock.monotonic())
                self._work.set()

    async def _finish(self, state: Attempt, chain: Chain, began: float) -> None:
        """Wait for a bind to end, however long its writes take: until then the pod may not be tried again."""
        await asyncio.wait({chain.task})
        uid = chain.pod.metadata.uid
        now = self._clock.monotonic()
        self._work.set()
        if chain.task.cancelled() or chain.task.exception() is not None:
            self.queue.failed(uid, (), now, is_error=True)
            self.queue.on_release(uid, now)
            self._metrics.bind("failed", now - began)
        elif chain.task.result().is_bound:
            self._bound(chain, now, began)
        else:
            self._not_bound(state, chain.task.result(), now, began)
        if uid not in self.queue:
            self._first_seen.pop(uid, None)

    def _bound(self, chain: Chain, now: float, began: float) -> None:
        uid = chain.pod.metadata.uid
        self.queue.done(uid)
        self._metrics.attempt("scheduled")
        self._metrics.bind("bound", now - began)
        self._metrics.pod_scheduled(now - self._first_seen.pop(uid, began))
        self._reports.event(
            chain.pod,
            NORMAL,
            "Scheduled",
            f"Successfully assigned {chain.pod.key} to {chain.node_name}",
        )

    def _not_bound(self, state: Attempt, outcome: BindOutcome, now: float, began: float) -> None:
        reason = outcome.reason or Reason(kind=ReasonKind.NOT_READY, message="no reason given")
        # Conditions that are pending come with an event of the claim; everything else may be over the next time.
        is_pending = reason.kind is ReasonKind.BINDING_CONDITIONS_PENDING
        rejected_by = [DYNAMIC_RESOURCES] if is_pending else []
        uid = state.pod.metadata.uid
        self.queue.failed(uid, rejected_by, now, is_error=not is_pending)
        self.queue.on_release(uid, now)
        self._metrics.attempt("unschedulable" if is_pending else "error")
        self._metrics.bind("pending" if is_pending else "failed", now - began)
        self._metrics.refused(str(reason.kind))
        if reason.kind is not ReasonKind.NOT_LEADER:
            self._reports.failed(state.pod, reason, is_error=not is_pending)
