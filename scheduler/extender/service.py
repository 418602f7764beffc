"""The extender's verbs, from decoded arguments to answers. Knows no HTTP.

Filter and prioritize reserve nothing. Bind decides again on the current state, synchronously with marking what it
decided, and lets the binder write. Source: docs/design/extender.md; docs/design/write-protocol.md#steps.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from allocator.model.claims import ResourceClaim
from allocator.model.meta import ObjectMeta
from allocator.outcome import Reason, ReasonKind
from scheduler.api.decode import DecodeError
from scheduler.api.extender_v1 import BindArgs, FilterArgs, PreemptArgs
from scheduler.binder import BOUND, Binder, BindError, BindOutcome, Chain
from scheduler.cache.cluster import ClusterCache
from scheduler.clock import Clock
from scheduler.conclusion import conclude
from scheduler.engine import Attempt, Engine, LongSearch
from scheduler.engine.results import SharedResult
from scheduler.extender.holds import Holds
from scheduler.extender.lag import OURS_IS_BEHIND, until_claims_are_known
from scheduler.extender.shortlist import best_nodes, may_shorten
from scheduler.extender.wakeup import WakeUp
from scheduler.framework.cycle_state import FilterResult, NodeVerdict
from scheduler.framework.plan import plan_of
from scheduler.framework.status import Code, Status, error
from scheduler.model import Pod
from scheduler.plugins.dynamic_resources import claim_to_give_back
from scheduler.plugins.unsupported import BACKED_RESOURCES
from scheduler.workers import TIME_IS_OVER, SearchWorker, WorkerClosedError

_log: Final = logging.getLogger(__name__)

_T = TypeVar("_T")

STEP_SECONDS: Final = 0.008  # that looking at nodes may hold up the event loop
MOST_STEPS: Final = 25
SLICE_NODES: Final = 250  # likewise, where each of them is looked at afresh
STEP_NODES: Final = 16  # looked at between two looks at the clock
DELAY_SECONDS: Final = 5.0
MAX_SCORE: Final = 10
READ_SECONDS: Final = (
    2.0  # for a pod that the watch has not shown; with the bind's budget less than the caller waits
)
_NAME: Final = re.compile(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
)  # what the API server accepts, near enough


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """What filter says.

    Attributes:
        node_names: nodes that fit, in the caller's order.
        unresolvable: node -> text, when no node fits; evicting pods would not help.
        error: the attempt failed; repeated with backoff.
    """

    node_names: Sequence[str] = ()
    unresolvable: Mapping[str, str] | None = None
    error: str = ""


NO_REASON: Final = "no reason is known"
_SHUTTING_DOWN: Final = error(
    Reason(kind=ReasonKind.NOT_READY, message="this extender is shutting down")
)
_BEING_BOUND: Final = FilterAnswer(error="the pod is already bound, or a bind is in progress")


class ExtenderService:
    """Answers kube-scheduler."""

    def __init__(
        self,
        *,
        cache: ClusterCache,
        binder: Binder,
        engine: Engine,
        clock: Clock,
        wakeup: WakeUp | None,
        max_open_binds: int = 64,
        shortlist: int = 0,
        holds: Holds | None = None,
        search_seconds: float = 10.0,
    ) -> None:
        """Store the collaborators.

        Args:
            cache: the cluster as known.
            binder: writes.
            engine: decides, in extender mode.
            clock: for expiry and delays.
            wakeup: wakes the pods that filter rejected; None: nobody does (tests).
            max_open_binds: beyond it filter is delayed, since kube-scheduler's cycle is serial.
            shortlist: nodes that a filter answer may hold; 0: all that fit.
            holds: forced choice: one node is answered and its devices held; None: filter holds nothing.
            search_seconds: what all long searches of one call may take together.
        """
        self._cache = cache
        self._binder = binder
        self._engine = engine
        self._clock = clock
        self._wakeup = wakeup
        self._max_open_binds = max_open_binds
        self._shortlist = shortlist
        self._holds = holds
        self._give_backs: set[asyncio.Task[None]] = set()
        self._worker = SearchWorker(engine, clock)
        self._search_seconds = search_seconds

    def close(self) -> None:
        """Give up searches under way."""
        self._worker.close()

    async def _patiently(self, decide: Callable[[], _T | LongSearch], deadline: float) -> _T:
        """Decide synchronously; a search that takes long runs beside the loop, and then the decision is made again.

        Raises:
            ServiceError: the time is over.
        """
        while True:
            decided = decide()
            if not isinstance(decided, LongSearch):
                return decided
            await self._search(decided, deadline)

    async def _search(self, slow: LongSearch, deadline: float) -> None:
        """Run a long search beside the loop, and remember what it found.

        Raises:
            ServiceError: the time is over, or the process ends.
        """
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise ServiceError(TIME_IS_OVER) from None
        try:
            await self._worker.search(slow, left)
        except WorkerClosedError:
            raise ServiceError(_SHUTTING_DOWN) from None

    def _deadline(self) -> float:
        return self._clock.monotonic() + self._search_seconds

    # --- filter -------------------------------------------------------------------------------------------------------

    async def filter(self, args: FilterArgs) -> FilterAnswer:
        """Answer filter: the nodes that can serve the pod.

        Raises:
            ServiceError: it cannot be said now.
        """
        await self._delay()
        if self._holds is not None:
            self._holds.release_expired()
            self._holds.release(args.pod.metadata.uid)
        since = 0 if self._wakeup is None else self._wakeup.changes
        await until_claims_are_known(args.pod, self._cache, self._clock)
        answer = await self._decide(args)
        if self._is_placed(args.pod):
            return _BEING_BOUND
        if isinstance(answer, Status):
            return self._refused(args.pod, answer, args.node_names, since)
        state, result = answer
        if result is None:
            return FilterAnswer(args.node_names)
        if result.failure is not None:
            return self._none_fits(state, result, since)
        if self._wakeup is not None:
            self._wakeup.accepted(state.pod.metadata.uid)
        return FilterAnswer(self._choice(state, result))

    async def _decide(self, args: FilterArgs) -> tuple[Attempt, FilterResult | None] | Status:
        """Look at the nodes; without a result: the pod needs no devices, every node will do.

        The answer is as the cluster is now, so that what forced choice holds is free.
        """
        names = args.node_names

        def decide(state: Attempt) -> tuple[Attempt, FilterResult | None] | LongSearch | None:
            if not _needs_devices(state):
                return state, None
            result = self._confirmed(state, names)
            return (state, result) if isinstance(result, FilterResult) else result

        if len(names) > SLICE_NODES:
            state = self._engine.pre_filter(args.pod, self._cache)
            if isinstance(state, Attempt) and state.allocated:
                result = await self._in_slices(state, names)
                if self._holds is None or self._cache.snapshot() is state.snapshot:
                    return state, result
        return await self._up_to_date(args.pod, names, decide)

    def _confirmed(self, state: Attempt, names: Sequence[str]) -> SharedResult | LongSearch | None:
        """What the nodes say; None if that turned out to be wrong, and all that was remembered is dropped."""
        result = self._engine.filter_nodes(state, names)
        if isinstance(result, LongSearch) or self._engine.confirms(state, result):
            return result
        return None

    async def _in_slices(self, state: Attempt, names: Sequence[str]) -> FilterResult:
        """Look at the nodes of one snapshot, slice by slice: allocated claims are looked at afresh on every node.

        Raises:
            ServiceError: the time is over.
        """
        deadline = self._deadline()
        verdicts: dict[str, NodeVerdict] = {}
        for start in range(0, len(names), SLICE_NODES):
            some = names[start : start + SLICE_NODES]
            part = await self._patiently(partial(self._engine.filter_nodes, state, some), deadline)
            verdicts.update(part.verdicts)
            if any(verdict.ends_attempt for verdict in part.verdicts.values()):
                break
            await asyncio.sleep(0)
        return conclude(verdicts, total=len(names))

    async def _up_to_date(
        self,
        pod: Pod,
        names: Sequence[str],
        decide: Callable[[Attempt], _T | LongSearch | None],
    ) -> _T | Status:
        """Decide on the current state, with no await in between, once there is hardly anything left to search.

        What may take long is done before, in steps between which the event loop has its turn; each step begins with the
        cluster as it is then, and what has been found out is remembered.

        Args:
            pod: whom.
            names: of the nodes.
            decide: makes the answer; None: what was remembered is wrong and has been dropped, begin again.

        Raises:
            ServiceError: the time is over.
        """
        deadline = self._deadline()
        steps = 0
        while True:
            state = self._engine.pre_filter(pod, self._cache)
            if isinstance(state, Status):
                return state
            # A pool that all nodes share may change in every step: then the rest is done at once, come what may.
            is_last = steps >= MOST_STEPS or not _needs_devices(state)
            refreshed = True if is_last else self._refresh(state, names)
            decided = decide(state) if refreshed is True else refreshed
            if isinstance(decided, LongSearch):
                await self._search(decided, deadline)
                continue
            if decided is None:
                steps = 0
            elif decided is not False:
                return decided
            if self._clock.monotonic() >= deadline:
                raise ServiceError(TIME_IS_OVER)
            steps += 1
            await asyncio.sleep(0)

    def _refresh(self, state: Attempt, names: Sequence[str]) -> bool | LongSearch:
        """Look at nodes whose answers are old, as long as the event loop may be held up; whether that was all of them."""
        until = self._clock.monotonic() + STEP_SECONDS
        stale = self._engine.stale(state, names)
        for start in range(0, len(stale), STEP_NODES):
            if start and self._clock.monotonic() >= until:
                return False
            is_worth_more = self._engine.refresh(state, stale[start : start + STEP_NODES])
            if isinstance(is_worth_more, LongSearch):
                return is_worth_more
            if not is_worth_more:
                break
        return True

    def _is_placed(self, pod: Pod) -> bool:
        """Whether the pod has a node, or its bind is still under way: kube-scheduler has stopped waiting, or is behind.

        Nothing can be said of other nodes then, and nothing of what the pod holds may be given away.
        """
        uid = pod.metadata.uid
        known = self._cache.pod(uid)
        return (
            self._binder.chain(uid) is not None
            or self._cache.assumed_node(uid) is not None
            or (known is not None and bool(known.spec.node_name))
        )

    def _choice(self, state: Attempt, result: FilterResult) -> Sequence[str]:
        """The nodes to answer: all that fit, the best few, or the one that is held."""
        if self._holds is not None and state.unallocated:
            [name] = self._best(state, result, 1)
            self._holds.hold(plan_of(state, name, result.fitting[name]))
            return [name]
        if self._shortlist and may_shorten(state.pod):
            return self._best(state, result, self._shortlist)
        return result.feasible

    def _best(self, state: Attempt, result: FilterResult, most: int) -> Sequence[str]:
        feasible = result.feasible
        if len(feasible) <= most:
            return feasible
        groups = self._engine.score_groups(state, feasible)
        if isinstance(groups, LongSearch):  # hardly ever: all of them have just been looked at
            return feasible[:most]
        return best_nodes(feasible, groups, most)

    def _refused(self, pod: Pod, status: Status, names: Sequence[str], since: int) -> FilterAnswer:
        if status.code is Code.ERROR or (status.reason and status.reason.kind in OURS_IS_BEHIND):
            return FilterAnswer(error=status.message or NO_REASON)
        self._note_rejection(pod, since)
        return FilterAnswer(unresolvable=dict.fromkeys(names, status.message))

    def _none_fits(self, state: Attempt, result: FilterResult, since: int) -> FilterAnswer:
        failure = result.failure
        if failure is not None and failure.code is Code.ERROR:
            return FilterAnswer(error=failure.message or NO_REASON)
        self._note_rejection(state.pod, since)
        claim = claim_to_give_back(state, result.verdicts)
        if claim is not None:
            # As in-tree's PostFilter. Filter itself writes nothing.
            task = asyncio.create_task(self._give_back(claim, state.pod))
            self._give_backs.add(task)
            task.add_done_callback(self._give_backs.discard)
        return FilterAnswer(unresolvable=result.messages())

    async def _give_back(self, claim: ResourceClaim, pod: Pod) -> None:
        """Let a claim of a pod go. The claim's own event brings the pod back; without it, waking it does."""
        is_done = False
        try:
            is_done = await self._binder.give_back(claim, pod)
        except Exception:  # noqa: BLE001  # nobody waits for this task
            _log.exception("giving back claim %s of pod %s failed", claim.key, pod.key)
        finally:
            if not is_done and self._wakeup is not None:
                self._wakeup.forgotten(pod.metadata.uid)

    def _note_rejection(self, pod: Pod, since: int) -> None:
        if self._wakeup is not None:
            self._wakeup.rejected(pod.metadata.uid, since)

    async def _delay(self) -> None:
        """Delay filter while many binds are in progress, so that kube-scheduler does not queue up more."""
        deadline = self._clock.monotonic() + DELAY_SECONDS
        while (
            self._binder.open_chains > self._max_open_binds and self._clock.monotonic() < deadline
        ):
            await self._clock.sleep(0.01)

    # --- prioritize, preempt ------------------------------------------------------------------------------------------

    async def prioritize(self, args: FilterArgs) -> dict[int, list[str]]:
        """Score nodes that passed filter: score, 0-10 -> nodes. No claims, or a node that does not fit now: 0.

        Raises:
            ServiceError: it cannot be said now.
        """
        names = args.node_names

        def score(state: Attempt) -> Sequence[tuple[int, Sequence[str]]] | LongSearch:
            # A pod that needs no more devices likes all nodes that passed filter alike.
            return self._engine.score_groups(state, names) if state.unallocated else ()

        groups = await self._up_to_date(args.pod, names, score)
        by_score: dict[int, list[str]] = {}
        for score_, group in () if isinstance(groups, Status) else groups:
            small = min(MAX_SCORE, max(0, round(score_ / MAX_SCORE)))
            by_score.setdefault(small, []).extend(group)
        if sum(map(len, by_score.values())) < len(names):
            scored = {name for group in by_score.values() for name in group}
            by_score.setdefault(0, []).extend(name for name in names if name not in scored)
        return by_score

    async def preempt(self, args: PreemptArgs) -> dict[str, dict[str, Any]]:
        """Keep the nodes whose devices fit as things are: evicting the victims frees none of theirs.

        Raises:
            ServiceError: it cannot be said now.
        """
        names = list(args.victims)

        def decide(state: Attempt) -> Sequence[str] | LongSearch | None:
            if not _needs_devices(state):
                return names
            result = self._confirmed(state, names)
            return result.feasible if isinstance(result, FilterResult) else result

        fitting = await self._up_to_date(args.pod, names, decide)
        if isinstance(fitting, Status):
            if fitting.code is Code.ERROR:
                raise ServiceError(fitting)
            return {}
        return {name: args.victims[name] for name in fitting}

    # --- bind ---------------------------------------------------------------------------------------------------------

    async def bind(self, args: BindArgs) -> BindOutcome:
        """Give the pod its devices on this node and bind it; a repeated call joins the one under way."""
        deadline = (
            self._binder.deadline()
        )  # reading and searching are part of what the caller waits for
        joined = await self._join(args)
        if joined is not None:
            return joined
        known = self._cache.pod(args.pod_uid)
        if known is not None:
            await until_claims_are_known(known, self._cache, self._clock)
        pod = await self._newest_pod(args)
        # Another call may have come first meanwhile. That its pod counts on the node does not mean that it is bound.
        joined = await self._join(args)
        if joined is not None:
            return joined
        if isinstance(pod, BindOutcome):
            return pod
        started = self._start(pod, args.node, deadline)
        if isinstance(started, LongSearch):
            started = await self._start_slowly(pod, args, deadline)
        if isinstance(started, BindOutcome):
            return started
        if self._wakeup is not None and started.holds_devices:
            started.task.add_done_callback(self._bind_ended)
        return await self._end_of(started)

    def _bind_ended(self, task: "asyncio.Task[BindOutcome]") -> None:
        """Devices that a failed bind held are free from now on, which no event of the cluster tells."""
        if self._wakeup is not None and not (
            not task.cancelled() and task.exception() is None and task.result().is_bound
        ):
            self._wakeup.freed()

    async def _join(self, args: BindArgs) -> BindOutcome | None:
        """Wait for the bind under way, if it is for this node; None: there is none."""
        chain = self._binder.chain(args.pod_uid)
        if chain is None:
            return None
        if chain.node_name != args.node:
            return _BOUND_ELSEWHERE
        return await self._end_of(chain)

    async def _end_of(self, chain: Chain) -> BindOutcome:
        """Wait for a bind, which goes on if the caller does not."""
        try:
            return await self._binder.wait(chain)
        except asyncio.CancelledError:
            if not chain.task.cancelled():
                raise  # it is the call that is cancelled
            return _failed(ReasonKind.NOT_READY, "the bind was stopped before its end")

    async def _start_slowly(self, pod: Pod, args: BindArgs, deadline: float) -> Chain | BindOutcome:
        """As `_start`, by the engine's memory: the plain search would hold up the loop each time."""

        def start() -> Chain | BindOutcome | LongSearch:
            chain = self._binder.chain(args.pod_uid)  # another call may have come first
            if chain is not None:
                return chain if chain.node_name == args.node else _BOUND_ELSEWHERE
            return self._start(pod, args.node, deadline, from_memory=True)

        try:
            return await self._patiently(start, min(self._deadline(), deadline))
        except ServiceError as problem:
            return _outcome(problem.status)

    def _start(
        self, pod: Pod, node_name: str, deadline: float, *, from_memory: bool = False
    ) -> Chain | BindOutcome | LongSearch:
        """Decide on the current state and hold the devices, with no await between; the filter's answer is not trusted."""
        if self._holds is not None:
            self._holds.release(pod.metadata.uid)  # what is decided below holds them again
        plan = self._engine.place(pod, self._cache, node_name, from_memory=from_memory)
        if isinstance(plan, Status):
            return _outcome(plan)
        if isinstance(plan, LongSearch):
            return plan

        def recheck() -> Status | None:
            """The node must still be there."""
            if node_name in self._cache.snapshot().nodes:
                return None
            return error(Reason(kind=ReasonKind.NO_NODES, message="the node no longer exists"))

        return self._binder.start(plan, recheck, deadline)

    async def _newest_pod(self, args: BindArgs) -> Pod | BindOutcome:
        """The pod as the cache has it, or as the API server has it if the watch is behind; or what ends the call."""
        pod = self._cache.pod(args.pod_uid) or await self._read_pod(args)
        if isinstance(pod, BindOutcome):
            return pod
        bound_to = pod.spec.node_name or self._cache.assumed_node(args.pod_uid)
        if bound_to == args.node and bound_to:
            return BOUND
        if bound_to:
            return _failed(ReasonKind.WRITE_CONFLICT, "the pod is already bound to another node")
        if pod.metadata.deletion_timestamp is not None:
            return _failed(ReasonKind.WRITE_CONFLICT, "the pod is being deleted")
        if pod.is_terminal:
            return _failed(ReasonKind.WRITE_CONFLICT, "the pod has ended")
        return pod

    async def _read_pod(self, args: BindArgs) -> Pod | BindOutcome:
        if not (_NAME.fullmatch(args.pod_name) and _NAME.fullmatch(args.pod_namespace)):
            return _failed(ReasonKind.WRITE_CONFLICT, "not a valid pod name")
        meta = ObjectMeta(name=args.pod_name, namespace=args.pod_namespace, uid=args.pod_uid)
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await self._binder.pods.read(Pod(metadata=meta))
        except BindError as problem:
            return BindOutcome(problem.reason)
        except (TimeoutError, DecodeError):
            return _failed(ReasonKind.API_UNAVAILABLE, "the pod cannot be read")


class ServiceError(Exception):
    """A call has no answer now.

    Attributes:
        status: why.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


_BOUND_ELSEWHERE: Final = BindOutcome(
    Reason(kind=ReasonKind.WRITE_CONFLICT, message="the pod is already being bound to another node")
)


def _needs_devices(state: Attempt) -> bool:
    return bool(state.claims or state.info.fact(BACKED_RESOURCES))


def _failed(kind: ReasonKind, message: str) -> BindOutcome:
    return BindOutcome(Reason(kind=kind, message=message))


def _outcome(status: Status) -> BindOutcome:
    return BindOutcome(status.reason) if status.reason else _failed(ReasonKind.NOT_READY, NO_REASON)
