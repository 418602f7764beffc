"""The cycle with a memory: the same answers as `scheduler.cycle`, without searching twice.

An answer is a function of question and node view (`architecture.md` 5.1), so equal nodes share one search, and there is
nothing to invalidate: the view is the key. A log of changes tells which nodes have to be looked at again at all. When
there are many nodes, `decide` stops as soon as it has enough that fit, as kube-scheduler does. The next time it begins
one node further on, not behind the nodes it has just seen as kube-scheduler does: all nodes get their turn, and hardly
any has to be searched for it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from allocator.allocate import broken_node_selector
from allocator.cel import Compiler
from allocator.memo import Memo
from allocator.model.nodes import NodeSelectorError
from allocator.outcome import Outcome
from allocator.pools import gather_pools
from allocator.requests import rules_of
from allocator.search import Solution
from scheduler import cycle
from scheduler.cache.layered import LayeredMap
from scheduler.cycle import Refusals
from scheduler.engine.answers import Answer, Told, Verdicts
from scheduler.engine.attempt import Attempt
from scheduler.engine.node_views import NodeViews
from scheduler.engine.questions import (
    Asked,
    Failure,
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
    SlowSearchError,
)
from scheduler.framework.environment import Environment, Mode, ShouldStop
from scheduler.framework.status import SUCCESS, Status
from scheduler.model import ClusterReader, ClusterSnapshot, NodeInfo, Pod
from scheduler.plugins import dynamic_resources

MAX_ANSWERS: Final = 100_000
ENOUGH_NODES: Final = 100
CHECK_EVERY: Final = 1000
LOOKS_PER_SEARCH: Final = 16  # that take about as long
_FEW: Final = 16
_WARM_NODES: Final = 100  # whose views are derived between two turns of the event loop
# Strategies whose score is a function of the view.
_OF_THE_VIEW: Final = frozenset({"MostAllocated", "LeastAllocated", "None"})


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
        looks: answers of nodes that were old, and made anew.
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
        self.looks = 0
        self.looked_up = 0
        self.mismatches = 0
        self._enough = enough_nodes
        self._check_every = check_every
        self._decisions = 0
        self._start = 0
        self._repelling = RepellingPods()
        self._views = NodeViews(rules_of(environment.features))

    def follow(self, cache: Followed) -> None:
        """Hear of the changes of the cache that will be asked about; cheaper than looking for them. May be repeated."""
        self._repelling.follow(cache)

    def warm(self, snapshot: ClusterSnapshot) -> Iterator[None]:
        """Derive the views of all nodes before anybody asks, in steps between which the caller may do other things."""
        devices = snapshot.devices
        nodes = list(snapshot.nodes.values())
        for start in range(0, len(nodes), _WARM_NODES):
            shared = self._views.catch_up(snapshot)  # somebody may have asked meanwhile
            for node in nodes[start : start + _WARM_NODES]:
                with suppress(NodeSelectorError):  # who asks is told
                    self._views.of(node.for_allocator, devices, shared)
            yield

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
        attempt = Attempt(state, self._views)
        self.looked_up += 1
        try:
            told: Told = attempt.answer(node)
        finally:
            self._account(attempt, state)
        if state.allocated:
            told = _with_allocated(state, node, told)
        attempt.question.end_attempt()
        return _verdict(state, told)

    def stale(self, state: CycleState, names: Sequence[str]) -> list[str]:
        """Those of some nodes that `filter_nodes` would have to look at."""
        attempt = Attempt(state, self._views)
        return self._old(attempt.question, names) if attempt.are_kept else []

    def refresh(self, state: CycleState, names: Iterable[str]) -> bool:
        """Look at some nodes, so that `filter_nodes` has less to do, also for attempts that come later.

        Returns:
            Whether there is any use in looking at others: an error may have ended the attempt.

        Raises:
            SlowSearchError: one search takes too long; what has been done is remembered.
        """
        attempt = Attempt(state, self._views)
        names = list(names)
        try:
            is_worth_more = self._refresh(attempt, state.snapshot.nodes, names)
        finally:
            self._account(attempt, state)
        if attempt.are_kept and not state.allocated:
            self._score(attempt.question, state, names)
        return is_worth_more

    @staticmethod
    def _score(question: Question, state: CycleState, names: Iterable[str]) -> None:
        """Score nodes that fit ahead of being asked to: where all differ, scoring all at once would take too long."""
        for name in names:
            answer = question.answers.get(name)
            if answer is not None and answer.status is SUCCESS and name not in question.stale:
                _raw_scores(state, state.snapshot.nodes[name], answer)

    def filter_nodes(self, state: CycleState, names: Iterable[str] | None = None) -> FilterResult:
        """As `cycle.filter_nodes`: all nodes, or those named, in order.

        Raises:
            SlowSearchError: one search takes too long; what has been done is remembered.
        """
        nodes = state.snapshot.nodes
        names = list(nodes if names is None else names)
        attempt = Attempt(state, self._views)
        question = attempt.question
        if not attempt.are_kept or state.allocated:
            return self._filter_in_turn(state, names)
        try:
            self._refresh(attempt, nodes, self._old(question, names))
        finally:
            self._account(attempt, state)
        if question.ending:
            return self._filter_in_turn(state, names)
        self.looked_up += len(names)
        fits = question.fitting
        fitting = names if fits.issuperset(names) else [name for name in names if name in fits]
        answers: dict[str, Told] = dict(question.answers)
        if not fitting:
            told = {name: answers.get(name, cycle.UNKNOWN_NODE) for name in names}
            return self._concluded(state, told, len(names))
        refusals: Refusals = ()
        if len(fitting) < len(names):
            refused = [name for name in names if name not in fits]
            refusals = cycle.count_refusals(answers.get(n, cycle.UNKNOWN_NODE) for n in refused)
        question.end_attempt()
        return _result(state, names, answers, len(names), fitting, refusals)

    @staticmethod
    def _refresh(attempt: Attempt, nodes: Mapping[str, NodeInfo], names: Iterable[str]) -> bool:
        """Look at nodes whose answers are old, until one ends the attempt."""
        question = attempt.question
        for name in names:
            if name not in question.stale:
                continue
            node = nodes.get(name)
            if node is None:
                question.forget(name)
                question.stale.discard(name)
            elif attempt.look(node).ends_attempt:
                return False
        return True

    def _filter_in_turn(self, state: CycleState, names: Sequence[str]) -> FilterResult:
        told, _ = self._scan(state, names, len(names) + 1, None)
        return self._concluded(state, told, len(names))

    def score_groups(
        self, state: CycleState, names: Sequence[str]
    ) -> list[tuple[int, Sequence[str]]]:
        """The nodes that fit, by score as `cycle.score_nodes` has it; one score may come several times.

        Equal nodes share the object that holds their scores, so a node costs a lookup.
        """
        attempt = Attempt(state, self._views)
        question = attempt.question
        groups: dict[int, list[str]] = {}
        raw: dict[int, RawScores] = {}
        try:
            if state.allocated or not attempt.are_kept or self._old(question, names):
                told = self._scored_in_turn(attempt, state, names)
            else:
                told = map(question.answers.get, names)
            for name, answer in zip(names, told, strict=True):
                if answer is None or answer.status is not SUCCESS:
                    continue
                scores = answer.scores if answer.__class__ is Answer else None
                if scores is None:
                    scores = _raw_scores(state, state.snapshot.nodes[name], answer)
                group = groups.get(id(scores))
                if group is None:
                    raw[id(scores)] = scores  # kept, so that nothing else gets its address
                    groups[id(scores)] = [name]
                else:
                    group.append(name)
        finally:
            self._account(attempt, state)
        question.end_attempt()
        scaled = cycle.scaled(raw, self.environment.mode)
        return [(scaled[key], group) for key, group in groups.items()]

    @staticmethod
    def _scored_in_turn(
        attempt: Attempt, state: CycleState, names: Iterable[str]
    ) -> Iterator[Told | None]:
        for name in names:
            node = state.snapshot.nodes.get(name)
            if node is None:
                yield None
            else:
                told = attempt.answer(node)
                yield _with_allocated(state, node, told) if state.allocated else told

    @staticmethod
    def _old(question: Question, names: Sequence[str]) -> list[str]:
        """The nodes to look at again before those named can be told of. Looking at a few others is cheaper than choosing."""
        stale = question.stale
        if len(stale) <= _FEW and question.slow.isdisjoint(stale):
            return list(stale)
        return [name for name in names if name in stale]

    def decide(
        self, state: CycleState, max_searches: int | None = None
    ) -> Decision | FilterResult | None:
        """Choose a node, or say why there is none. Looks at nodes only until enough of them fit.

        The nominated node is taken if it fits. Now and then the choice is run again without memory.

        Args:
            state: of the attempt.
            max_searches: after so many searches, or the work of so many, take the best node found, or stop; None: no
                limit.

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
        if failure is not None and failure.snapshot is state.snapshot and not state.allocated:
            return _failed(state, failure)
        nodes = state.snapshot.nodes
        order = nodes.order if isinstance(nodes, LayeredMap) else list(nodes)
        start = self._start % len(order) if len(order) > self._enough else 0
        in_turn = (order[place - len(order)] for place in range(start, start + len(order)))
        told, is_cut = self._scan(state, in_turn, self._enough, max_searches)
        fitting = {name: each for name, each in told.items() if each.status is SUCCESS}
        if is_cut and (not fitting or len(nodes) <= self._enough):
            return None
        # Slowly on: the next pod finds answers that are current on all but the last of its nodes.
        leading = next((i for i, v in enumerate(told.values()) if v.status is SUCCESS), 0)
        self._start = start + max(1, leading)
        if not fitting or next(reversed(told.values())).ends_attempt:
            return self._concluded(state, told, len(nodes), is_of_all=True)
        name = self._best(state, fitting)
        asked.question.end_attempt()
        decision = Decision(name, _verdict(state, fitting[name]))
        if self._is_to_be_checked() and not self.confirms(state, name, decision.verdict):
            plain = cycle.filter_nodes(self._plain(state))
            chosen = cycle.select_node(state, plain.fitting)
            return plain if chosen is None else Decision(chosen, plain.fitting[chosen])
        return decision

    def decide_among(self, state: CycleState, names: Sequence[str]) -> Decision | FilterResult:
        """Choose the best of some nodes, all of them looked at, or say why none will do; among equals the first named.

        Costs a lookup for each node, `decide` only for as many as are enough.
        """
        attempt = Attempt(state, self._views)
        question = attempt.question
        if attempt.are_kept and not state.allocated:
            try:
                self._refresh(attempt, state.snapshot.nodes, self._old(question, names))
            finally:
                self._account(attempt, state)
            fits, answers = question.fitting, question.answers
            fitting = {} if question.ending else {n: answers[n] for n in names if n in fits}
            if fitting:
                self.looked_up += len(names)
                best = self._best(state, fitting)
                question.end_attempt()
                return Decision(best, _verdict(state, fitting[best]))
        result = self.filter_nodes(state, names)
        chosen = None if result.failure else cycle.select_node(state, result.fitting)
        return result if chosen is None else Decision(chosen, result.fitting[chosen])

    def _is_to_be_checked(self) -> bool:
        self._decisions += 1
        return bool(self._check_every) and self._decisions % self._check_every == 0

    def confirms(self, state: CycleState, name: str, verdict: NodeVerdict) -> bool:
        """Run one node again without memory; if the answer differs, all memory is dropped."""
        plain = cycle.filter_node(self._plain(state), state.snapshot.nodes[name])
        if _devices(plain) == _devices(verdict) and plain.fits == verdict.fits:
            return True
        self.mismatches += 1
        self.memo.clear()
        return False

    def _plain(self, state: CycleState) -> CycleState:
        """The same attempt without memory, about the pod's own claims."""
        if not state.unallocated:
            return state
        prepared = dynamic_resources.prepare(
            state.unallocated, state.snapshot.devices, self.environment
        )
        return replace(state, prepared=prepared)

    # --- searches that take long ---------------------------------------------------------------------------------------

    def search(self, slow: SlowSearchError, should_stop: ShouldStop) -> Solution | Outcome:
        """Run one search to its end. May run in a thread: it reads immutable objects and touches no memory.

        Args:
            slow: which search.
            should_stop: says when to give up.
        """
        state = slow.state
        devices = state.snapshot.devices
        node = state.snapshot.nodes[slow.node_name].for_allocator
        environment = replace(self.environment, cel=Compiler(), start_deadline=lambda: should_stop)
        prepared = dynamic_resources.prepare(anonymous(state.unallocated), devices, environment)
        try:
            pools = gather_pools(node, devices.slices, prepared.rules)
        except NodeSelectorError as problem:
            return broken_node_selector(problem)
        state = replace(state, environment=environment, prepared=prepared)
        return dynamic_resources.solve_on(state, node, pools)

    def learn(self, slow: SlowSearchError, result: Solution | Outcome) -> None:
        """Remember what `search` found: as long as nothing it depends on changes, nobody searches there again."""
        state = slow.state
        Attempt(state, self._views).learn(state.snapshot.nodes[slow.node_name], result)

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

    def _scan(
        self,
        state: CycleState,
        names: Iterable[str],
        enough: int,
        max_searches: int | None,
    ) -> tuple[dict[str, Told], bool]:
        """What nodes say, one by one, until enough fit or an error ends the attempt.

        Returns:
            Their answers, and whether nodes are left because there were too many searches.
        """
        attempt = Attempt(state, self._views)
        is_fresh = bool(state.allocated)  # allocated claims are looked at afresh on every node
        # This is the inner loop of scheduling: a known answer costs two lookups.
        question, is_kept = attempt.question, attempt.are_kept
        answers, stale = question.answers, question.stale
        nodes = state.snapshot.nodes
        told: dict[str, Told] = {}
        found = 0
        is_cut = False
        try:
            for name in names:
                if max_searches is not None and (
                    attempt.searches >= max_searches
                    or attempt.looks >= max_searches * LOOKS_PER_SEARCH
                ):
                    is_cut = True
                    break
                answer: Told | None = answers.get(name) if is_kept and name not in stale else None
                if answer is None or is_fresh:
                    node = nodes.get(name)
                    if node is None:
                        told[name] = cycle.UNKNOWN_NODE
                        continue
                    answer = attempt.look(node) if answer is None else answer
                    if is_fresh:
                        answer = _with_allocated(state, node, answer)
                told[name] = answer
                if answer.status is SUCCESS:
                    found += 1
                    if found >= enough:
                        break
                elif answer.ends_attempt:
                    break
        finally:
            self.looked_up += len(told)
            self._account(attempt, state)
        return told, is_cut

    def _concluded(
        self, state: CycleState, told: dict[str, Told], total: int, *, is_of_all: bool = False
    ) -> FilterResult:
        """Sum up, and remember that no node could do."""
        question: Question = state.question.question
        fitting, refusals, status = cycle.sum_up(told)
        if status is None:
            question.end_attempt()
            return _result(state, list(told), told, total, list(fitting), refusals)
        failure = Failure(state.snapshot, told, total, refusals, status)
        if is_of_all and not state.allocated and len(told) == total:
            question.failure = failure
        question.end_attempt()
        return _failed(state, failure)

    def _best(self, state: CycleState, fitting: Mapping[str, Told]) -> str:
        """The best of some nodes that fit, as `cycle.select_node`; equal scores are weighed once."""
        nodes = state.snapshot.nodes
        first: dict[RawScores, str] = {}
        for name, told in fitting.items():
            scores = told.scores if told.__class__ is Answer else None
            if scores is None:
                scores = _raw_scores(state, nodes[name], told)
            first.setdefault(scores, name)
        weighed = cycle.weigh(first, self.environment.mode)
        return first[max(first, key=weighed.__getitem__)]

    def _account(self, attempt: Attempt, state: CycleState) -> None:
        """Count, and keep the memory in its bounds: questions nobody asks any more, nodes that are gone."""
        self.searches += attempt.searches
        self.looks += attempt.looks
        question = attempt.question
        more = len(question.answers) + 1 - question.weight
        if more:
            question.weight += more
            self.memo.grow(question.key, more)
        self._views.forget_nodes_not_in(state.snapshot.nodes)


def _verdict(state: CycleState, told: Told) -> NodeVerdict:
    """What a node says, in the words of the pod."""
    if isinstance(told, NodeVerdict):
        return told
    asked: Asked = state.question
    verdict = asked.verdict(told)
    found = told.found
    if (
        state.environment.features.node_allocatable_resources
        and verdict.allocations
        and found is not None
        and found.counts_for_node
    ):
        return dynamic_resources.with_demand(
            state, told.info, verdict, verdict.allocations.values()
        )
    return verdict


def _with_allocated(state: CycleState, node: NodeInfo, told: Told) -> NodeVerdict:
    """The verdict on a node for a pod some of whose claims are allocated: those are looked at each time."""
    asked: Asked = state.question
    if isinstance(told, NodeVerdict) or told.refused_by_predicates:
        return _verdict(state, told)
    verdict = dynamic_resources.filter_node(state, node, lambda *_: asked.outcome(told))
    status = asked.named(verdict.status)
    return verdict if status is verdict.status else replace(verdict, status=status)


def _result(
    state: CycleState,
    names: Sequence[str],
    told: Mapping[str, Told],
    total: int,
    fitting: Sequence[str],
    refusals: Refusals,
) -> FilterResult:
    """Some node fits."""
    asked: Asked = state.question
    verdicts = Verdicts(names, told, partial(_verdict, state), asked.named)
    in_words = tuple((asked.named(status), count) for status, count in refusals)
    return FilterResult(verdicts, total, verdicts.only(fitting), in_words)


def _failed(state: CycleState, failure: Failure) -> FilterResult:
    """No node fits."""
    asked: Asked = state.question
    told = failure.answers
    return FilterResult(
        Verdicts(list(told), told, partial(_verdict, state), asked.named),
        failure.total,
        {},
        tuple((asked.named(status), count) for status, count in failure.refusals),
        asked.named(failure.status),
    )


def _raw_scores(state: CycleState, node: NodeInfo, told: Told) -> RawScores:
    """As `cycle.raw_scores`; how well the devices serve the pod is asked once for all nodes with an equal view."""
    if isinstance(told, NodeVerdict):
        return cycle.raw_scores(state, node, told)
    scores = told.scores
    if scores is None:
        scores = told.scores = _scores_of(state, node, told)
    return scores


def _scores_of(state: CycleState, node: NodeInfo, told: Answer) -> RawScores:
    found, environment = told.found, state.environment
    if found is None:
        return cycle.scores_with(state, node, 0)
    if found.scores is not None and environment.mode is Mode.EXTENDER:
        return found.scores  # devices alone count
    if found.scores is not None:
        return cycle.scores_with(state, node, found.scores.devices)
    devices = cycle.device_score(state, node, _verdict(state, told))
    scores = cycle.scores_with(state, node, devices)
    if environment.device_strategy in _OF_THE_VIEW:
        found.scores = scores
    return scores


def _devices(verdict: NodeVerdict) -> list[list[tuple[str, str]]]:
    return [
        [(result.request, str(result.device_id)) for result in allocation.devices.results or ()]
        for allocation in verdict.allocations.values()
    ]
