"""One attempt's way through the answers of nodes: known ones are taken, old ones made anew, equal nodes asked once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from allocator import Allocated, Outcome
from allocator.allocate import allocated, broken_node_selector
from allocator.model.nodes import NodeSelectorError
from allocator.search import Solution
from allocator.view import NodeView
from scheduler.engine.answers import UNKNOWN, Answer, SearchResult
from scheduler.engine.attempt import Attempt, LongSearch
from scheduler.engine.node_views import NodeViews
from scheduler.framework.cycle_state import NodeVerdict
from scheduler.framework.status import SUCCESS, Status
from scheduler.model import NodeInfo
from scheduler.plugins import dynamic_resources

LOOKS_PER_SEARCH: Final = 16  # that take about as long
_SPARE_RESULTS: Final = 1_000  # of views that no node has any more, before all are dropped
_FEW: Final = 16


@dataclass(slots=True, eq=False)
class Walk:
    """How far a walk over nodes has come.

    Attributes:
        answers: node name -> answer, in the order of the walk.
        fitting: nodes that fit.
        is_cut: whether nodes are left because there were too many searches.
        long_search: what has to be searched before the walk can go on.
    """

    answers: dict[str, Answer] = field(default_factory=dict)
    fitting: int = 0
    is_cut: bool = False
    long_search: LongSearch | None = None

    @property
    def is_ended(self) -> bool:
        """Whether the last answer ends the attempt."""
        return bool(self.answers) and next(reversed(self.answers.values())).ends_attempt

    @property
    def leading_refusals(self) -> int:
        """Nodes that do not fit before the first that does; 0 if there is none."""
        places = enumerate(self.answers.values())
        return next((place for place, each in places if each.status is SUCCESS), 0)


class NodeAnswers:
    """The nodes as one attempt sees them.

    Attributes:
        question: what it asks.
        are_kept: whether the answers that are not stale are those of this attempt's snapshot; else it is an old one.
        searches: that it has run.
        looks: nodes that it has asked.
    """

    def __init__(self, attempt: Attempt, views: NodeViews) -> None:
        """Find out which answers are old.

        Args:
            attempt: that asks.
            views: of the nodes.
        """
        self.question = attempt.question
        self.searches = 0
        self.looks = 0
        self._attempt = attempt
        # What is found is about the unallocated claims alone, for all pods that ask.
        self._asking = replace(attempt, allocated=()) if attempt.allocated else attempt
        self._views = views
        self._shared = views.catch_up(attempt.snapshot)
        self.are_kept = self.question.catch_up(attempt.snapshot, self._shared)

    def old(self, names: Sequence[str]) -> list[str]:
        """The nodes to look at again before those named can be told of. Looking at a few others is cheaper than choosing."""
        stale = self.question.stale
        if len(stale) <= _FEW and self.question.slow.isdisjoint(stale):
            return list(stale)
        return [name for name in names if name in stale]

    def walk(
        self,
        names: Iterable[str],
        *,
        enough: int | None = None,
        max_searches: int | None = None,
        ends: bool = True,
    ) -> Walk:
        """Ask nodes one by one, until enough fit, an error ends the attempt, or a search takes too long.

        Args:
            names: of the nodes, in order.
            enough: nodes that fit; None: all are asked.
            max_searches: after so many searches, or the work of so many, the walk is cut; None: no limit.
            ends: whether an error that no other node can mend ends the walk.
        """
        # This is the inner loop of scheduling: a known answer costs two lookups.
        question, is_kept = self.question, self.are_kept
        answers, stale = question.answers, question.stale
        nodes = self._attempt.snapshot.nodes
        is_for_all = not self._attempt.allocated
        walk = Walk()
        made = walk.answers
        most_looks = 0 if max_searches is None else max_searches * LOOKS_PER_SEARCH
        for name in names:
            if max_searches is not None and (
                self.searches >= max_searches or self.looks >= most_looks
            ):
                walk.is_cut = True
                break
            answer = answers.get(name) if is_kept and name not in stale else None
            if answer is None or not is_for_all:
                found = self._asked(name, nodes.get(name), answer)
                if isinstance(found, LongSearch):
                    walk.long_search = found
                    break
                answer = found
            made[name] = answer
            if answer.status is SUCCESS:
                walk.fitting += 1
                if walk.fitting == enough:
                    break
            elif answer.ends_attempt and ends:
                break
        return walk

    def _asked(
        self, name: str, node: NodeInfo | None, answer: Answer | None
    ) -> Answer | LongSearch:
        """What a node says to this pod, given what it says to its question if that is known."""
        if node is None:
            if self.are_kept:
                self.question.forget(name)
            return UNKNOWN
        found = self.look(node) if answer is None else answer
        if isinstance(found, LongSearch) or not self._attempt.allocated:
            return found
        return self._attempt.with_allocated(found)

    def look(self, node: NodeInfo) -> Answer | LongSearch:
        """Ask a node, as far as it is not known."""
        self.looks += 1
        old = self.question.answers.get(node.name)
        answer = self._answer(node, old)
        if isinstance(answer, LongSearch):
            return answer
        self._keep(node.name, answer)
        if answer.found is not None and answer.found.depends_on_time:
            self.question.timed_out.add(node.name)
        return answer

    def learn(self, node: NodeInfo, result: Solution | Outcome) -> None:
        """Keep what was found on a node elsewhere; the next look takes it if nothing has changed."""
        try:
            view = self._views.of(node.for_allocator, self._asking.snapshot.devices, self._shared)
        except NodeSelectorError:
            return  # found out again without any search
        found = self._found(view, result)
        key = self.question.view_key(view)
        if key is not None and found.can_move:
            self._share(key, found)
        refusal = self._refusal(node)
        answer = Answer(node, refusal) if refusal else self._found_on(node, view, found)
        self._keep(node.name, answer)
        self.question.stale.add(node.name)

    def _refusal(self, node: NodeInfo) -> Status | None:
        """What the predicates say of a node, its devices apart."""
        return self._asking.profile.filter_node(self._asking.info, node)

    def _keep(self, name: str, answer: Answer) -> None:
        self.question.keep(name, answer)
        if self.are_kept:
            self.question.stale.discard(name)
        else:
            self.question.stale.add(name)

    def _answer(self, node: NodeInfo, old: Answer | None) -> Answer | LongSearch:
        is_same_node = old is not None and old.info is node
        if old is None or not is_same_node:
            refusal = self._refusal(node)
            if refusal is not None:
                return Answer(node, refusal)
        elif old.refused_by_predicates:
            return old
        if not self._asking.unallocated:
            return Answer(node)
        return self._devices(node, old)

    def _devices(self, node: NodeInfo, old: Answer | None) -> Answer | LongSearch:
        """What a node that passes the predicates says of its devices."""
        devices = self._asking.snapshot.devices
        try:
            view = self._views.of(node.for_allocator, devices, self._shared)
        except NodeSelectorError as problem:
            outcome = broken_node_selector(problem)
            return Answer(node, found=SearchResult(None, None, outcome, self._verdict(outcome)))
        if old is None or old.view is not view or old.found is None:
            found = self._find(node, view)
            if found is None:
                return LongSearch(self._attempt, node.name)
            return self._found_on(node, view, found)
        return old if old.info is node else self._found_on(node, view, old.found)

    def _found_on(self, node: NodeInfo, view: NodeView, found: SearchResult) -> Answer:
        """The answer of a node with what was found in its view; there may be no room for what the devices count."""
        answer = Answer(node, view=view, found=found)
        counts = self._asking.environment.features.node_allocatable_resources
        if not (counts and answer.status is SUCCESS and found.counts_for_node):
            return answer
        outcome = self._attempt.outcome(answer)
        if isinstance(outcome, Allocated):
            verdict = dynamic_resources.with_demand(
                self._asking, node, NodeVerdict(), outcome.allocations
            )
            if not verdict.fits:
                answer.status = self.question.refusals.setdefault(verdict.status, verdict.status)
                answer.ends_attempt = verdict.ends_attempt
        return answer

    def _find(self, node: NodeInfo, view: NodeView) -> SearchResult | None:
        """What there is in a view: known from another node, or searched; None: that takes too long here."""
        key = self.question.view_key(view)
        if key is not None:
            known = self.question.found.get(key)
            if known is not None:
                return known
        self.searches += 1
        result = dynamic_resources.solve_on(self._asking, node.for_allocator, view.pools)
        is_handed_over = self._asking.environment.hands_over_searches
        if is_handed_over and dynamic_resources.ran_out_of_time(result):
            return None
        found = self._found(view, result)
        if key is not None and found.can_move:
            self._share(key, found)
        return found

    def _share(self, key: tuple[object, ...], found: SearchResult) -> None:
        if len(self.question.found) > 2 * len(self._asking.snapshot.nodes) + _SPARE_RESULTS:
            self.question.found.clear()
        self.question.found[key] = found

    def _found(self, view: NodeView, result: Solution | Outcome) -> SearchResult:
        if not isinstance(result, Solution):
            return SearchResult(view, None, result, self._verdict(result))
        prepared = self.question.prepared
        if prepared is None:
            raise AssertionError("found devices for no claims")
        outcome = allocated(prepared, result, view.node.name, self._asking.environment.new_share_id)
        return SearchResult(view, result, outcome, self._verdict(outcome))

    def _verdict(self, outcome: Outcome) -> NodeVerdict:
        verdict = dynamic_resources.verdict_on(self._asking, outcome)
        status = verdict.status
        reason = status.reason
        if reason is None or reason.devices:
            return verdict
        known = self.question.refusals.setdefault(status, status)
        return verdict if known is status else replace(verdict, status=known)
