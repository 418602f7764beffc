"""The cycle with a memory: the same answers as `scheduler.cycle`, without searching twice.

An answer is used again only when everything it depends on is unchanged (`engine.answers`), so there is nothing to
invalidate: a stale answer is never current. When there are many nodes, `decide` stops as soon as it has enough that
fit, as kube-scheduler does. The next time it begins one node further on, not behind the nodes it has just seen as
kube-scheduler does: all nodes get their turn, and hardly any has to be searched for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Final

from allocator.cel import Compiler
from allocator.memo import Memo
from allocator.outcome import DoesNotFit, Fatal, NodeError, Outcome, ReasonKind
from scheduler import cycle
from scheduler.engine.answers import Answer, SharedView, WholeView
from scheduler.engine.questions import (
    Asked,
    Question,
    anonymous,
    classes_named,
    question_key,
)
from scheduler.engine.repelling import Followed, RepellingPods
from scheduler.framework.cycle_state import (
    CycleState,
    FilterResult,
    NodeVerdict,
    RawScores,
    ScoreMemo,
    SlowSearchError,
)
from scheduler.framework.environment import Environment, ShouldStop
from scheduler.framework.status import SUCCESS, Status
from scheduler.model import ClusterReader, ClusterSnapshot, NodeInfo, Pod
from scheduler.plugins import dynamic_resources

MAX_ANSWERS: Final = 100_000
ENOUGH_NODES: Final = 100
CHECK_EVERY: Final = 1000


@dataclass(frozen=True, slots=True)
class Decision:
    """A node for a pod, with the allocations that go with it."""

    node_name: str
    verdict: NodeVerdict


class Engine:
    """Decides for one environment. One writer; methods never await.

    Attributes:
        environment: settings and collaborators of all its decisions.
        memo: questions with their answers.
        searches: searches that were run.
        looked_up: answers of nodes that were asked for.
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
            enough_nodes: nodes that fit after which `decide` stops.
            check_every: decisions of which one is run again plain; 0: none.
        """
        self.environment = environment
        self.memo: Memo[bytes, Question] = Memo(max_answers)
        self.searches = 0
        self.looked_up = 0
        self.mismatches = 0
        self._enough = enough_nodes
        self._check_every = check_every
        self._decisions = 0
        self._start = 0
        self._repelling = RepellingPods()
        self._shared: SharedView | WholeView | None = None
        self._shared_of: ClusterSnapshot | None = None

    def follow(self, cache: Followed) -> None:
        """Hear of the changes of the cache that will be asked about; cheaper than looking for them. May be repeated."""
        self._repelling.follow(cache)

    @property
    def reused(self) -> int:
        """Answers that needed no search."""
        return self.looked_up - self.searches

    def pre_filter(self, pod: Pod, reader: ClusterReader) -> CycleState | Status:
        """As `cycle.pre_filter`."""
        state = cycle.pre_filter(
            pod,
            reader,
            self.environment,
            prepare=lambda *_: None,
            repelling=self._repelling.pods,
        )
        if isinstance(state, Status):
            return state
        question = self._question(state)
        asked = Asked(question, state.unallocated, self.environment.new_share_id)
        return replace(state, prepared=question.prepared, question=asked)

    def filter_node(self, state: CycleState, node: NodeInfo) -> NodeVerdict:
        """As `cycle.filter_node`."""
        asked: Asked = state.question
        known = len(asked.question.answers)
        self.looked_up += 1
        verdict = self._verdict(state, node, self._shared_view(state))
        self._account(state, known)
        asked.question.end_attempt()
        return asked.verdict(verdict)

    def filter_nodes(self, state: CycleState, names: Iterable[str] | None = None) -> FilterResult:
        """As `cycle.filter_nodes`: all nodes, or those named, in order."""
        nodes = state.snapshot.nodes
        names = list(nodes if names is None else names)
        named = ((name, nodes.get(name)) for name in names)
        verdicts, _ = self._scan(state, named, len(names) + 1, None)
        return self._concluded(state, verdicts, len(names))

    def decide(
        self, state: CycleState, max_searches: int | None = None
    ) -> Decision | FilterResult | None:
        """Choose a node, or say why there is none. Looks at nodes only until enough of them fit.

        The nominated node is taken if it fits. Now and then the choice is run again without memory.

        Args:
            state: of the attempt.
            max_searches: after so many searches take the best node found, or stop; None: no limit.

        Returns:
            A decision, a failure, or None when it stopped without either: call again, in a new attempt. What has been
            searched is remembered, so that each call comes further.
        """
        nominated = state.snapshot.nodes.get(state.pod.status.nominated_node_name)
        if nominated is not None:
            verdict = self.filter_node(state, nominated)
            if verdict.fits:
                return Decision(nominated.name, verdict)
        asked: Asked = state.question
        failure = asked.question.failure
        if failure is not None and failure[0] is state.snapshot and not state.allocated:
            return asked.result(failure[1])
        nodes = state.snapshot.nodes
        start = self._start % len(nodes) if len(nodes) > self._enough else 0
        in_turn = chain(islice(nodes.items(), start, None), islice(nodes.items(), start))
        verdicts, is_cut = self._scan(state, in_turn, self._enough, max_searches)
        fitting = {name: each for name, each in verdicts.items() if each.status is SUCCESS}
        if is_cut and (not fitting or len(nodes) <= self._enough):
            return None
        # Slowly on: the next pod finds answers that are current on all but the last of its nodes.
        leading = next((i for i, v in enumerate(verdicts.values()) if v.status is SUCCESS), 0)
        self._start = start + max(1, leading)
        if not fitting or next(reversed(verdicts.values())).ends_attempt:
            return self._concluded(state, verdicts, len(nodes))
        name = self._best(state, fitting)
        asked.question.end_attempt()
        decision = Decision(name, asked.verdict(fitting[name]))
        if self._is_to_be_checked() and not self.confirms(state, name, decision.verdict):
            result = asked.result(cycle.filter_nodes(state))
            plain = cycle.select_node(state, result.fitting)
            return result if plain is None else Decision(plain, result.fitting[plain])
        return decision

    def _is_to_be_checked(self) -> bool:
        self._decisions += 1
        return bool(self._check_every) and self._decisions % self._check_every == 0

    def confirms(self, state: CycleState, name: str, verdict: NodeVerdict) -> bool:
        """Run one node again without memory; if the answer differs, all memory is dropped."""
        plain = cycle.filter_node(state, state.snapshot.nodes[name])
        if _devices(plain) == _devices(verdict) and plain.fits == verdict.fits:
            return True
        self.mismatches += 1
        self.memo.clear()
        return False

    # --- searches that take long ---------------------------------------------------------------------------------------

    def search(self, slow: SlowSearchError, should_stop: ShouldStop) -> Outcome:
        """Run one search to its end. May run in a thread: it reads immutable objects and touches no memory.

        Args:
            slow: which search.
            should_stop: says when to give up.
        """
        state = slow.state
        environment = replace(self.environment, cel=Compiler(), start_deadline=lambda: should_stop)
        prepared = dynamic_resources.prepare(
            anonymous(state.unallocated), state.snapshot.devices, environment
        )
        return dynamic_resources.allocate_on(
            replace(state, environment=environment, prepared=prepared),
            state.snapshot.nodes[slow.node_name],
        )

    def learn(self, slow: SlowSearchError, outcome: Outcome) -> None:
        """Remember what `search` found: as long as nothing it depends on changes, nobody searches there again."""
        state = slow.state
        node = state.snapshot.nodes[slow.node_name]
        asked: Asked = state.question
        answer = asked.question.answers.setdefault(node.name, Answer())
        answer.info = node
        answer.predicate = cycle.check_predicates(state, node)
        answer.keep(outcome, node.for_allocator, state.snapshot.devices, self._shared_view(state))

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

    def _scan(
        self,
        state: CycleState,
        nodes: Iterable[tuple[str, NodeInfo | None]],
        enough: int,
        max_searches: int | None,
    ) -> tuple[dict[str, NodeVerdict], bool]:
        """Verdicts about anonymous claims, node by node, until enough fit or an error ends the attempt.

        This is the inner loop of scheduling: a node whose answer is current costs some comparisons of addresses.

        Returns:
            The verdicts, and whether nodes are left because there were too many searches.
        """
        answers = state.question.question.answers
        devices = state.snapshot.devices
        slices, usage = devices.slices, devices.allocated.pools.get
        shared = self._shared_view(state)
        is_fresh = bool(state.allocated)  # allocated claims are looked at afresh on every node
        known = len(answers)
        verdicts: dict[str, NodeVerdict] = {}
        found = 0
        last_search = None if max_searches is None else self.searches + max_searches
        is_cut = False
        for name, node in nodes:
            if last_search is not None and self.searches >= last_search:
                is_cut = True
                break
            if node is None:
                verdicts[name] = cycle.UNKNOWN_NODE
                continue
            answer = answers.get(name)
            verdict = None
            if answer is not None and not is_fresh:
                verdict = answer.settled(node, slices, shared, usage)
            if verdict is None:
                verdict = self._verdict(state, node, shared)
            verdicts[name] = verdict
            if verdict.status is SUCCESS:
                found += 1
                if found >= enough:
                    break
            elif verdict.ends_attempt:
                break
        self.looked_up += len(verdicts)
        self._account(state, known)
        return verdicts, is_cut

    def _concluded(
        self, state: CycleState, verdicts: dict[str, NodeVerdict], total: int
    ) -> FilterResult:
        """Sum up, and remember that no node could do."""
        asked: Asked = state.question
        result = cycle.conclude(verdicts, total)
        if (
            result.failure is not None
            and not state.allocated
            and len(verdicts) == total == len(state.snapshot.nodes)
        ):
            asked.question.failure = (state.snapshot, result)
        asked.question.end_attempt()
        return asked.result(result)

    def _best(self, state: CycleState, fitting: dict[str, NodeVerdict]) -> str:
        """The best of some nodes that fit, as `cycle.select_node`; equal scores are weighed once."""
        nodes = state.snapshot.nodes
        first: dict[RawScores, str] = {}
        for name, verdict in fitting.items():
            memo = verdict.score_memo
            scores = None if memo is None else memo.scores
            if scores is None:
                scores = cycle.raw_scores(state, nodes[name], verdict)
            first.setdefault(scores, name)
        weighed = cycle.weigh(first, self.environment.mode)
        return first[max(first, key=weighed.__getitem__)]

    def _verdict(self, state: CycleState, node: NodeInfo, shared: object) -> NodeVerdict:
        """What a node says of the pod's anonymous claims (and of those of its claims that are allocated)."""
        asked: Asked = state.question
        answers = asked.question.answers
        answer = answers.get(node.name)
        if answer is None:
            answer = answers[node.name] = Answer()
        devices = state.snapshot.devices
        if answer.info is not node:
            answer.info = node
            answer.predicate = cycle.check_predicates(state, node)
            answer.verdict = None
        if answer.predicate is not None:
            return answer.settle(answer.verdict or NodeVerdict(answer.predicate), devices, shared)
        if state.unallocated and not answer.is_current(node.for_allocator, devices, shared):
            self.searches += 1
            outcome = dynamic_resources.allocate_on(state, node)
            answer.keep(outcome, node.for_allocator, devices, shared)
        if not state.allocated and answer.verdict is not None:
            return answer.settle(answer.verdict, devices, shared)
        verdict = dynamic_resources.filter_node(state, node, lambda *_: _outcome(answer))
        if _depends_on_time(answer.outcome):
            asked.question.timed_out.add(node.name)
        if not state.allocated:
            verdict = answer.settle(replace(verdict, score_memo=ScoreMemo()), devices, shared)
        return verdict

    def _account(self, state: CycleState, known: int) -> None:
        """Keep the memory in its bounds: answers of nodes that are gone, and questions nobody asks any more."""
        nodes = state.snapshot.nodes
        question: Question = state.question.question
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
