"""The cycle with a memory: the same answers as `scheduler.cycle`, without searching twice.

An answer is used again only when everything it depends on is unchanged (`engine.answers`), so there is nothing to
invalidate: a stale answer is never current. When there are many nodes, `find_nodes` stops as soon as it has enough that
fit, and goes on from there the next time, as kube-scheduler does.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec

from allocator.memo import Memo
from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.outcome import DoesNotFit, Fatal, NodeError, Outcome, ReasonKind
from scheduler import cycle
from scheduler.engine.answers import Answer, SharedView, WholeView
from scheduler.engine.questions import (
    Asked,
    NamedVerdicts,
    Question,
    anonymous,
    classes_named,
    question_key,
)
from scheduler.framework.cycle_state import CycleState, FilterResult, NodeVerdict, ScoreMemo
from scheduler.framework.environment import Environment
from scheduler.framework.status import SUCCESS, Status
from scheduler.model import ClusterReader, ClusterSnapshot, NodeInfo, Pod
from scheduler.plugins import dynamic_resources

MAX_ANSWERS: Final = 200_000
ENOUGH_NODES: Final = 100
CHECK_EVERY: Final = 1000


class Engine:
    """Decides for one environment. One writer; methods never await.

    Attributes:
        environment: settings and collaborators of all its decisions.
        memo: questions with their answers.
        searches: searches that were run.
        reused: searches that were not.
        mismatches: answers of the memory that a plain search did not confirm; anything but 0 is a defect.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        max_answers: int = MAX_ANSWERS,
        enough_nodes: int = ENOUGH_NODES,
        check_every: int = CHECK_EVERY,
    ) -> None:
        """Start without any memory.

        Args:
            environment: of all decisions.
            max_answers: answers (one a question and node) to keep.
            enough_nodes: nodes that fit after which `find_nodes` stops.
            check_every: decisions of which one is run again plain; 0: none.
        """
        self.environment = environment
        self.memo: Memo[bytes, Question] = Memo(max_answers)
        self.searches = 0
        self.reused = 0
        self.mismatches = 0
        self._enough = enough_nodes
        self._check_every = check_every
        self._decisions = 0
        self._start = 0
        self._shared: SharedView | WholeView | None = None
        self._shared_of: ClusterSnapshot | None = None
        self._names: tuple[ClusterSnapshot, list[str]] | None = None

    def pre_filter(self, pod: Pod, reader: ClusterReader) -> CycleState | Status:
        """As `cycle.pre_filter`."""
        state = cycle.pre_filter(pod, reader, self.environment, prepare=lambda *_: None)
        if isinstance(state, Status):
            return state
        question = self._question(state)
        asked = Asked(question, state.unallocated)
        return replace(state, prepared=question.prepared, question=asked)

    def filter_node(self, state: CycleState, node: NodeInfo) -> NodeVerdict:
        """As `cycle.filter_node`."""
        asked: Asked = state.question
        question = asked.question
        known = len(question.answers)
        verdict = self._verdict(state, question, node, self._shared_view(state))
        self._account(state, question, known)
        return self._for_pod(state, verdict) if verdict.fits else asked.verdict(verdict)

    def filter_nodes(self, state: CycleState, names: Iterable[str] | None = None) -> FilterResult:
        """As `cycle.filter_nodes`: all nodes, or those named, in order."""
        snapshot = state.snapshot
        names = self._all_names(snapshot) if names is None else list(names)
        return self._look(state, names, 0, len(names))

    def find_nodes(self, state: CycleState) -> FilterResult:
        """Look for enough nodes that fit; all nodes are looked at only if few of them do."""
        snapshot = state.snapshot
        nominated = snapshot.nodes.get(state.pod.status.nominated_node_name)
        if nominated is not None:
            result = self._look(state, [nominated.name], 0, 1)
            if result.failure is None:
                return result
        asked: Asked = state.question
        failure = asked.question.failure
        if failure is not None and failure[0] is snapshot and not state.allocated:
            return asked.failure(failure[1])
        names = self._all_names(snapshot)
        start = self._start % len(names) if len(names) > self._enough else 0
        result = self._look(state, names, start, self._enough)
        self._start = start + len(result.verdicts)
        return result

    def select_node(self, state: CycleState, result: FilterResult) -> str | None:
        """As `cycle.select_node`; now and then the choice is run again without memory."""
        name = cycle.select_node(state, result.fitting)
        if name is None or not self._check_every:
            return name
        self._decisions += 1
        if self._decisions % self._check_every:
            return name
        return name if self.confirms(state, name, result.fitting[name]) else None

    def confirms(self, state: CycleState, name: str, verdict: NodeVerdict) -> bool:
        """Run one node again without memory; if the answer differs, all memory is dropped."""
        plain = cycle.filter_node(state, state.snapshot.nodes[name])
        if _devices(plain) == _devices(verdict) and plain.fits == verdict.fits:
            return True
        self.mismatches += 1
        self.memo.clear()
        return False

    # --- inside -------------------------------------------------------------------------------------------------------

    def _question(self, state: CycleState) -> Question:
        key = question_key(state)
        devices = state.snapshot.devices
        question = self.memo.get(key)
        if question is not None and question.is_current(devices.classes):
            return question
        prepared = None
        if state.unallocated:
            claims = anonymous(state.unallocated)
            prepared = dynamic_resources.prepare(claims, devices, self.environment)
        question = Question(key, prepared, classes_named(state.unallocated, devices.classes))
        self.memo.put(key, question)
        return question

    def _all_names(self, snapshot: ClusterSnapshot) -> list[str]:
        if self._names is None or self._names[0].nodes is not snapshot.nodes:
            self._names = (snapshot, list(snapshot.nodes))
        return self._names[1]

    def _shared_view(self, state: CycleState) -> SharedView | WholeView:
        """What all nodes see; the same object while nothing of it changes."""
        devices = state.snapshot.devices
        if self._shared is None or (
            self._shared_of is not state.snapshot and not self._shared.is_current(devices)
        ):
            is_stable = self.environment.features.implementation == "stable"
            self._shared = WholeView(devices) if is_stable else SharedView(devices)
        self._shared_of = state.snapshot
        return self._shared

    def _look(self, state: CycleState, names: list[str], start: int, enough: int) -> FilterResult:
        asked: Asked = state.question
        question = asked.question
        nodes = state.snapshot.nodes
        shared = self._shared_view(state)
        anonymous_verdicts: dict[str, NodeVerdict] = {}
        known = len(question.answers)
        found = 0
        for index in range(start, start + len(names)):
            name = names[index % len(names)]
            node = nodes.get(name)
            if node is None:
                anonymous_verdicts[name] = cycle.UNKNOWN_NODE
                continue
            verdict = anonymous_verdicts[name] = self._verdict(state, question, node, shared)
            if verdict.status is SUCCESS:
                found += 1
                if found >= enough:
                    break
            elif verdict.ends_attempt:
                break
        self._account(state, question, known)
        result = cycle.conclude(anonymous_verdicts, total=len(names))
        if result.failure is None:
            fitting = {name: self._for_pod(state, each) for name, each in result.fitting.items()}
            verdicts = NamedVerdicts(asked, result.verdicts, fitting)
            return FilterResult(verdicts, result.total, fitting, asked.refusals(result.refusals))
        if len(result.verdicts) == len(nodes) == len(names) and not state.allocated:
            question.failure = (state.snapshot, result)
        return asked.failure(result)

    def _verdict(
        self, state: CycleState, question: Question, node: NodeInfo, shared: object
    ) -> NodeVerdict:
        """What a node says of the pod's anonymous claims (and of those of its claims that are allocated)."""
        answer = question.answers.get(node.name)
        if answer is None:
            answer = question.answers[node.name] = Answer()
        if answer.info is not node:
            answer.info = node
            answer.predicate = cycle.check_predicates(state, node)
            answer.verdict = None
        if answer.predicate is not None:
            return NodeVerdict(answer.predicate)
        if state.unallocated:
            devices = state.snapshot.devices
            if answer.is_current(node.for_allocator, devices, shared):
                self.reused += 1
            else:
                self.searches += 1
                outcome = dynamic_resources.allocate_on(state, node)
                answer.keep(outcome, node.for_allocator, devices, shared)
        if state.allocated:
            # Allocated claims have a state of their own: looked at afresh each time.
            verdict = dynamic_resources.filter_node(state, node, lambda *_: _outcome(answer))
        elif answer.verdict is not None:
            return answer.verdict
        else:
            verdict = dynamic_resources.filter_node(state, node, lambda *_: _outcome(answer))
            verdict = answer.verdict = replace(verdict, score_memo=ScoreMemo())
        if _depends_on_time(answer.outcome):
            answer.outcome = answer.verdict = None
        return verdict

    def _for_pod(self, state: CycleState, verdict: NodeVerdict) -> NodeVerdict:
        """A verdict about anonymous claims, for the claims of this pod."""
        if not state.unallocated:
            return verdict
        allocations = {
            claim.metadata.uid: self._with_share_ids(claim, allocation)
            for claim, allocation in zip(
                state.unallocated, verdict.allocations.values(), strict=True
            )
        }
        return NodeVerdict(SUCCESS, allocations, (), False, verdict.score_memo)

    def _with_share_ids(
        self, claim: ResourceClaim, allocation: AllocationResult
    ) -> AllocationResult:
        """Shares of another claim need ids of their own."""
        results = allocation.devices.results or ()
        if all(result.share_id is None for result in results):
            return allocation
        new = tuple(
            result
            if result.share_id is None
            else msgspec.structs.replace(
                result,
                share_id=self.environment.new_share_id(claim, result.request, result.device_id),
            )
            for result in results
        )
        devices = msgspec.structs.replace(allocation.devices, results=new)
        return msgspec.structs.replace(allocation, devices=devices)

    def _account(self, state: CycleState, question: Question, known: int) -> None:
        """Keep the memory in its bounds: answers of nodes that are gone, and questions nobody asks any more."""
        nodes = state.snapshot.nodes
        answers = question.answers
        if len(answers) > 2 * len(nodes) + 64:
            for name in [name for name in answers if name not in nodes]:
                del answers[name]
        elif len(answers) > known:
            self.memo.grow(question.key, len(answers) - known)


def _outcome(answer: Answer) -> Outcome:
    if answer.outcome is None:
        raise AssertionError("asked for devices before searching")
    return answer.outcome


def _depends_on_time(outcome: Outcome | None) -> bool:
    """Whether another try might end differently on the same node: a deadline, not a budget, which counts devices."""
    return (
        isinstance(outcome, DoesNotFit | NodeError | Fatal)
        and outcome.reason.kind is ReasonKind.DEADLINE_EXCEEDED
    )


def _devices(verdict: NodeVerdict) -> list[list[tuple[str, str]]]:
    return [
        [(result.request, str(result.device_id)) for result in allocation.devices.results or ()]
        for allocation in verdict.allocations.values()
    ]
