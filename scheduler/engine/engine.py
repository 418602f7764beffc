"""The scheduling cycle with remembered answers: the same answers as `scheduler.cycle`, without searching twice.

An answer is a function of question and node view (docs/design/engine.md#question-and-view), so equal nodes share one
search, and there is nothing to invalidate: the view is the key. A log of changes tells which nodes have to be looked at
again at all. When there are many nodes, `decide` stops as soon as it has enough that fit, as kube-scheduler does. The
next time it begins one node further on, not behind the nodes it has just seen as kube-scheduler does: all nodes get
their turn, and hardly any has to be searched for it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

from allocator.allocate import broken_node_selector
from allocator.cel import Compiler
from allocator.memo import Memo
from allocator.model.nodes import NodeSelectorError
from allocator.outcome import Outcome, Reason, ReasonKind
from allocator.pools import gather_pools
from allocator.requests import rules_of
from allocator.search import Solution
from scheduler import cycle
from scheduler.cache.layered import LayeredMap
from scheduler.conclusion import Refusals, count_refusals, sum_up
from scheduler.engine.answers import UNKNOWN, Answer
from scheduler.engine.attempt import Attempt, LongSearch, attempt_of
from scheduler.engine.node_answers import NodeAnswers, Walk
from scheduler.engine.node_views import NodeViews
from scheduler.engine.questions import NoNodeFits, Question, classes_named, question_key
from scheduler.engine.results import SharedResult, failed_result, fitting_result
from scheduler.engine.scores import scores_of
from scheduler.engine.self_check import Check, PlainAttempt, said_by
from scheduler.engine.words import anonymous
from scheduler.framework.cycle_state import CycleState, FilterResult, NodeVerdict
from scheduler.framework.environment import Environment, ShouldStop
from scheduler.framework.plan import Plan, plan_of
from scheduler.framework.pod_info import Fact, Index
from scheduler.framework.profile import Profile, Scores
from scheduler.framework.status import SUCCESS, Status, error
from scheduler.model import ClusterReader, ClusterSnapshot, NodeInfo, Pod
from scheduler.plugins import PROFILES, dynamic_resources
from scheduler.plugins.pre_filter import pre_filter

MAX_ANSWERS: Final = 100_000
ENOUGH_NODES: Final = 100
CHECK_EVERY: Final = 1000
_WARM_NODES: Final = 100  # whose views are derived between two turns of the event loop

NODE_NOT_KNOWN: Final = error(
    Reason(kind=ReasonKind.NOT_READY, message="the node is not known (yet)")
)
Decided = Plan | FilterResult
"""A plan, or why no node can do."""


class DecisionObserver(Protocol):
    """Hears of decisions."""

    def decided(self, pod: Pod, looked_at: Sequence[str] | None, outcome: Plan | Status) -> None:
        """A decision has been made.

        Args:
            pod: whom it is about.
            looked_at: the nodes that were looked at, in order; None: all there are, in whatever order.
            outcome: the plan, or why there is none.
        """
        ...


class Engine:
    """Decides for one environment. One writer; methods never await.

    Attributes:
        environment: settings and collaborators of all its decisions.
        memo: questions with their answers.
        searches: searches that were run.
        looks: answers of nodes that were old, and made anew.
        looked_up: answers of nodes that were asked for.
        mismatches: answers of the memory that a plain search did not confirm; anything but 0 is a defect.
        observer: hears of every decision; None: nobody does.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        profile: Profile | None = None,
        max_answers: int = MAX_ANSWERS,
        enough_nodes: int = ENOUGH_NODES,
        check_every: int = CHECK_EVERY,
    ) -> None:
        """Start without any memory.

        Args:
            environment: of all decisions.
            profile: the plugins that run; None: those of the environment's mode.
            max_answers: answers (one a question and node) to keep.
            enough_nodes: nodes that fit after which `decide` stops.
            check_every: decisions of which one is made again from nothing, and likewise refusals; 0: none.
        """
        self.environment = environment
        self.memo: Memo[bytes, Question] = Memo(max_answers)
        self.searches = 0
        self.looks = 0
        self.looked_up = 0
        self.mismatches = 0
        self.observer: DecisionObserver | None = None
        self._enough = enough_nodes
        self._check_every = check_every
        self._decisions = 0
        self._start = 0
        self._refusals = 0
        self._check: Check | None = None  # of a decision that waits for its end
        self._reader: ClusterReader | None = None
        self._profile = profile or PROFILES[environment.mode]
        self._indexes = self._new_indexes()
        self._views = NodeViews(rules_of(environment.features))

    def _new_indexes(self) -> dict[Fact[Any, Any], Index[Any]]:
        return {fact: fact.index() for fact in self._profile.facts if fact.index is not None}

    def follow(self, cache: ClusterReader) -> None:
        """Look at all pods of a cache before anybody asks; decisions then look at what changed since. May be repeated."""
        for index in self._indexes.values():
            index.of(cache.snapshot())

    def _gather(self, fact: Fact[Any, Any], snapshot: ClusterSnapshot) -> Any:
        index = self._indexes.get(fact)
        return fact.gather(snapshot) if index is None else index.of(snapshot)

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

    def pre_filter(self, pod: Pod, reader: ClusterReader) -> Attempt | Status:
        """Begin an attempt, or say why no node can do; as `cycle.pre_filter`."""
        self._reader = reader
        state = pre_filter(pod, reader, self.environment, self._profile, self._gather)
        if isinstance(state, Status):
            if self.observer is not None:
                self.observer.decided(pod, (), state)
            return state
        return attempt_of(state, self._question(state))

    # --- some nodes ---------------------------------------------------------------------------------------------------

    def filter_node(self, attempt: Attempt, node: NodeInfo) -> NodeVerdict | LongSearch:
        """As `cycle.filter_node`; or what has to be searched first."""
        walk = self._walk(attempt, (node.name,))
        if walk.long_search is not None:
            return walk.long_search
        verdict = attempt.verdict(walk.answers[node.name])
        attempt.question.end_attempt()
        return verdict

    def filter_nodes(
        self, attempt: Attempt, names: Iterable[str] | None = None
    ) -> SharedResult | LongSearch:
        """As `cycle.filter_nodes`: all nodes, or those named, in order; or what has to be searched first.

        What has been found out is remembered either way.
        """
        names = list(attempt.snapshot.nodes if names is None else names)
        answers = NodeAnswers(attempt, self._views)
        question = attempt.question
        if not answers.are_kept or attempt.allocated:
            return self._filter_in_turn(attempt, names)
        long_search = self._walk_with(answers, attempt, answers.old(names)).long_search
        if long_search is not None:
            return long_search
        if question.ending:
            return self._filter_in_turn(attempt, names)
        self.looked_up += len(names)
        return self._of_known(attempt, names)

    def _of_known(self, attempt: Attempt, names: Sequence[str]) -> SharedResult:
        """What nodes say whose answers are all current, and of which none ends the attempt."""
        question = attempt.question
        fits = question.fitting
        fitting = names if fits.issuperset(names) else [name for name in names if name in fits]
        answers = dict(question.answers)
        if not fitting:
            said = {name: answers.get(name, UNKNOWN) for name in names}
            return self._concluded(attempt, said, len(names))
        refusals: Refusals = ()
        if len(fitting) < len(names):
            refused = [name for name in names if name not in fits]
            refusals = count_refusals(answers.get(name, UNKNOWN) for name in refused)
        question.end_attempt()
        return fitting_result(attempt, names, answers, len(names), fitting, refusals)

    def _filter_in_turn(self, attempt: Attempt, names: Sequence[str]) -> SharedResult | LongSearch:
        walk = self._walk(attempt, names)
        return walk.long_search or self._concluded(attempt, walk.answers, len(names))

    def stale(self, attempt: Attempt, names: Sequence[str]) -> list[str]:
        """The given nodes whose answers are stale, which `filter_nodes` would have to update."""
        answers = NodeAnswers(attempt, self._views)
        return answers.old(names) if answers.are_kept else []

    def refresh(self, attempt: Attempt, names: Sequence[str]) -> bool | LongSearch:
        """Look at some nodes, so that `filter_nodes` has less to do, also for attempts that come later.

        Returns:
            Whether there is any use in looking at others: an error may have ended the attempt. Or what has to be searched
            first; what has been done is remembered.
        """
        # What the pod's own allocated claims make of a node is for this pod alone, and asked later.
        asking = replace(attempt, allocated=()) if attempt.allocated else attempt
        answers = NodeAnswers(asking, self._views)
        walk = self._walk_with(answers, asking, names)
        if answers.are_kept and not attempt.allocated:
            # Ahead of being asked to: where all nodes differ, scoring all at once would take too long.
            for answer in walk.answers.values():
                if answer.status is SUCCESS:
                    scores_of(attempt, answer)
        if walk.long_search is not None:
            return walk.long_search
        return not any(answer.ends_attempt for answer in walk.answers.values())

    def score_groups(
        self, attempt: Attempt, names: Sequence[str]
    ) -> list[tuple[int, Sequence[str]]] | LongSearch:
        """The nodes that fit, by score as `cycle.score_nodes` has it; one score may come several times.

        Equal nodes share the object that holds their scores, so a node costs a lookup.
        """
        answers = NodeAnswers(attempt, self._views)
        said: Mapping[str, Answer] = attempt.question.answers
        if attempt.allocated or not answers.are_kept or answers.old(names):
            walk = self._walk_with(answers, attempt, names, ends=False)
            if walk.long_search is not None:
                return walk.long_search
            said = walk.answers
        groups: dict[int, list[str]] = {}
        raw: dict[int, Scores] = {}
        for name in names:
            answer = said.get(name)
            if answer is None or answer.status is not SUCCESS:
                continue
            scores = answer.scores or scores_of(attempt, answer)
            group = groups.get(id(scores))
            if group is None:
                raw[id(scores)] = scores  # kept, so that nothing else gets its address
                groups[id(scores)] = [name]
            else:
                group.append(name)
        attempt.question.end_attempt()
        scaled = self._profile.scaled(raw)
        return [(scaled[key], group) for key, group in groups.items()]

    # --- one node of many ---------------------------------------------------------------------------------------------

    def decide_among(
        self, attempt: Attempt, names: Sequence[str]
    ) -> Plan | SharedResult | LongSearch:
        """Choose the best of some nodes, all of them looked at, or say why none will do; among equals the first named.

        Costs a lookup for each node, `decide` only for as many as are enough.
        """
        answers, question = NodeAnswers(attempt, self._views), attempt.question
        if answers.are_kept and not attempt.allocated:
            walk = self._walk_with(answers, attempt, answers.old(names))
            if walk.long_search is not None:
                return walk.long_search
            known, fits = question.answers, question.fitting
            fitting = {} if question.ending else {n: known[n] for n in names if n in fits}
            if fitting:
                self.looked_up += len(names)
                return self._best(attempt, fitting)
        result = self.filter_nodes(attempt, names)
        if isinstance(result, LongSearch) or result.failure is not None:
            return result
        return self._best(attempt, {name: result.answers[name] for name in result.fitting})

    def decide(
        self, attempt: Attempt, max_searches: int | None = None
    ) -> Decided | LongSearch | None:
        """Choose a node, or say why there is none. Looks at nodes only until enough of them fit.

        The nominated node is taken if it fits. Now and then the answer is compared with one made from nothing.

        Args:
            attempt: of the pod.
            max_searches: after so many searches, or the work of so many, take the best node found, or stop; None: no
                limit.

        Returns:
            A plan, a failure, what has to be searched first, or None when it stopped without any of these: call again, in
            a new attempt. What has been searched is remembered, so that each call comes further.
        """
        check, self._check = self._check, None
        decided: Decided | LongSearch | None = None
        if check is None or check.pod_uid != attempt.pod.metadata.uid:
            decided, answers = self._decided(attempt, max_searches)
            if not isinstance(decided, Plan | FilterResult):
                return decided
            self._tell(attempt, list(answers), decided)
            if not self._is_to_be_checked(decided):
                return decided
            check = self._check_of(attempt, decided, answers, self._in_turn(attempt)[1])
        if not check.go_on(is_limited=max_searches is not None):
            self._check = check
            return None
        if not check.is_confirmed:
            return check.plain_plan(attempt, self._reader_of(attempt))
        return self._decided(attempt, max_searches)[0] if decided is None else decided

    def _decided(
        self, attempt: Attempt, max_searches: int | None
    ) -> tuple[Decided | LongSearch | None, Mapping[str, Answer]]:
        """As `decide`, from memory; also what the nodes say that were looked at."""
        nominated = self._nominated(attempt)
        if nominated is not None:
            return nominated
        failure = attempt.question.failure
        if failure is not None and failure.snapshot is attempt.snapshot and not attempt.allocated:
            return failed_result(attempt, failure), failure.answers
        total = len(attempt.snapshot.nodes)
        start, in_turn = self._in_turn(attempt)
        walk = self._walk(attempt, in_turn, self._enough, max_searches)
        if walk.long_search is not None:
            return walk.long_search, walk.answers
        if walk.is_cut and (not walk.fitting or total <= self._enough):
            return None, walk.answers
        # Slowly on: the next pod finds answers that are current on all but the last of its nodes.
        self._start = start + max(1, walk.leading_refusals)
        if not walk.fitting or walk.is_ended:
            result = self._concluded(attempt, walk.answers, total, is_of_all=True)
            return result, walk.answers
        fitting = {name: each for name, each in walk.answers.items() if each.status is SUCCESS}
        return self._best(attempt, fitting), walk.answers

    def _nominated(self, attempt: Attempt) -> tuple[Plan | LongSearch, Mapping[str, Answer]] | None:
        """The same for the node that was nominated for the pod; None: there is none, or it does not fit."""
        node = attempt.snapshot.nodes.get(attempt.pod.status.nominated_node_name)
        if node is None:
            return None
        verdict = self.filter_node(attempt, node)
        if isinstance(verdict, LongSearch):
            return verdict, {}
        if not verdict.fits:
            return None
        return plan_of(attempt, node.name, verdict), {node.name: Answer(node, verdict=verdict)}

    def _in_turn(self, attempt: Attempt) -> tuple[int, Iterable[str]]:
        """Where to begin, and all nodes from there on."""
        nodes = attempt.snapshot.nodes
        order = nodes.order if isinstance(nodes, LayeredMap) else list(nodes)
        start = self._start % len(order) if len(order) > self._enough else 0
        return start, (order[place - len(order)] for place in range(start, start + len(order)))

    def _best(self, attempt: Attempt, fitting: Mapping[str, Answer]) -> Plan:
        """The plan for the best of some nodes that fit, as `cycle.select_node`; equal scores are weighed once."""
        first: dict[Scores, str] = {}
        for name, answer in fitting.items():
            first.setdefault(answer.scores or scores_of(attempt, answer), name)
        weighed = self._profile.weigh(first)
        best = first[max(first, key=weighed.__getitem__)]
        plan = plan_of(attempt, best, attempt.verdict(fitting[best]))
        attempt.question.end_attempt()
        return plan

    def place(
        self, pod: Pod, reader: ClusterReader, node_name: str, *, from_memory: bool
    ) -> Plan | Status | LongSearch:
        """The plan to put a pod on a node that somebody else has chosen, or why not.

        Args:
            pod: whom.
            reader: the cache.
            node_name: where.
            from_memory: false: nothing that is remembered is believed; the search is made again if it does not take long.
        """
        state = (
            self.pre_filter(pod, reader)
            if from_memory
            else cycle.pre_filter(pod, reader, self.environment, self._profile)
        )
        if isinstance(state, Status):
            return state
        node = state.snapshot.nodes.get(node_name)
        if node is None:
            return NODE_NOT_KNOWN
        if isinstance(state, Attempt):
            verdict = self.filter_node(state, node)
            if isinstance(verdict, LongSearch):
                return verdict
        else:
            verdict = cycle.filter_node(state, node)
            if self.environment.hands_over_searches and verdict.is_of_time:
                return self.place(pod, reader, node_name, from_memory=True)
        decided = plan_of(state, node_name, verdict) if verdict.fits else verdict.status
        if self.observer is not None:
            self.observer.decided(state.pod, (node_name,), decided)
        return decided

    def _tell(self, attempt: Attempt, looked_at: Sequence[str], decided: Decided) -> None:
        if self.observer is None:
            return
        if isinstance(decided, Plan):
            self.observer.decided(attempt.pod, looked_at, decided)
        elif decided.failure is not None:
            nodes = attempt.snapshot.nodes
            is_all = len(looked_at) == len(nodes) and all(name in nodes for name in looked_at)
            self.observer.decided(attempt.pod, None if is_all else looked_at, decided.failure)

    # --- is what is remembered still true? ----------------------------------------------------------------------------

    def confirms(self, attempt: Attempt, result: SharedResult) -> bool:
        """Compare a result of `filter_nodes` with the plain search, now and then, on some nodes.

        Returns:
            Whether it can be used. If not, all memory has been dropped: begin again.
        """
        self._tell(attempt, list(result.verdicts), result)
        if not self._is_to_be_checked(result):
            return True
        said = {name: result.answers.get(name, UNKNOWN) for name in result.verdicts}
        check = self._check_of(attempt, result, said, ())
        check.go_on(is_limited=False)
        return bool(check.is_confirmed)

    def _is_to_be_checked(self, decided: Decided) -> bool:
        """Decisions and refusals are counted apart: many of one must not hide a few of the other."""
        if isinstance(decided, FilterResult) and decided.failure is not None:
            self._refusals += 1
            count = self._refusals
        else:
            self._decisions += 1
            count = self._decisions
        return bool(self._check_every) and count % self._check_every == 0

    def _check_of(
        self,
        attempt: Attempt,
        decided: Decided,
        answers: Mapping[str, Answer],
        order: Iterable[str],
    ) -> Check:
        """Begin to compare an answer with the plain one.

        Args:
            attempt: of the pod.
            decided: the answer.
            answers: of the nodes that were looked at.
            order: all nodes, in the order in which to decide if they differ; none: no decision is wanted.
        """
        chosen = decided.node_name if isinstance(decided, Plan) else ""
        said = said_by(attempt, answers, chosen, self._decisions + self._refusals)
        plain = PlainAttempt(attempt, self._reader_of(attempt), self.environment)
        return Check(plain, attempt, said, self._forget_all, list(order), self._enough)

    def _reader_of(self, attempt: Attempt) -> ClusterReader | None:
        """The cluster, if it is still as an attempt saw it."""
        reader = self._reader
        return reader if reader is not None and reader.snapshot() is attempt.snapshot else None

    def _forget_all(self, snapshot: ClusterSnapshot) -> None:
        self.mismatches += 1
        snapshot.devices.slices.forget()
        self.memo.clear()
        self._views = NodeViews(rules_of(self.environment.features))
        self._indexes = self._new_indexes()

    # --- searches that take long --------------------------------------------------------------------------------------

    def search(self, slow: LongSearch, should_stop: ShouldStop) -> Solution | Outcome:
        """Run one search to its end. May run in a thread: it reads immutable objects and touches no memory.

        Args:
            slow: which search.
            should_stop: says when to give up.
        """
        attempt = slow.attempt
        devices = attempt.snapshot.devices
        node = attempt.snapshot.nodes[slow.node_name].for_allocator
        environment = replace(self.environment, cel=Compiler(), start_deadline=lambda: should_stop)
        claims = anonymous(attempt.unallocated)
        prepared = dynamic_resources.prepare(claims, devices, environment)
        try:
            pools = gather_pools(node, devices.slices, prepared.rules)
        except NodeSelectorError as problem:
            return broken_node_selector(problem)
        asking = replace(attempt, environment=environment, prepared=prepared)
        return dynamic_resources.solve_on(asking, node, pools)

    def learn(self, slow: LongSearch, result: Solution | Outcome) -> None:
        """Remember what `search` found: as long as nothing it depends on changes, nobody searches there again."""
        attempt = slow.attempt
        NodeAnswers(attempt, self._views).learn(attempt.snapshot.nodes[slow.node_name], result)

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
        classes = classes_named(state.unallocated, devices.classes)
        question = Question(key, state.info, prepared, classes)
        self.memo.put(key, question)
        return question

    def _walk(
        self,
        attempt: Attempt,
        names: Iterable[str],
        enough: int | None = None,
        max_searches: int | None = None,
    ) -> Walk:
        """Ask nodes one by one, as `NodeAnswers.walk`."""
        answers = NodeAnswers(attempt, self._views)
        walk = self._walk_with(answers, attempt, names, enough=enough, max_searches=max_searches)
        self.looked_up += len(walk.answers)
        return walk

    def _walk_with(
        self,
        answers: NodeAnswers,
        attempt: Attempt,
        names: Iterable[str],
        *,
        enough: int | None = None,
        max_searches: int | None = None,
        ends: bool = True,
    ) -> Walk:
        """Walk, count, and keep the memory in its bounds: questions nobody asks any more, nodes that are gone."""
        try:
            return answers.walk(names, enough=enough, max_searches=max_searches, ends=ends)
        finally:
            self.searches += answers.searches
            self.looks += answers.looks
            question = attempt.question
            more = len(question.answers) + 1 - question.weight
            if more:
                question.weight += more
                self.memo.grow(question.key, more)
            self._views.forget_nodes_not_in(attempt.snapshot.nodes)

    def _concluded(
        self,
        attempt: Attempt,
        answers: Mapping[str, Answer],
        total: int,
        *,
        is_of_all: bool = False,
    ) -> SharedResult:
        """Sum up, and remember that no node could do."""
        question = attempt.question
        fitting, refusals, status = sum_up(answers)
        if status is None:
            question.end_attempt()
            return fitting_result(attempt, list(answers), answers, total, list(fitting), refusals)
        failure = NoNodeFits(attempt.snapshot, answers, total, refusals, status)
        if is_of_all and not attempt.allocated and len(answers) == total:
            question.failure = failure
        question.end_attempt()
        return failed_result(attempt, failure)
