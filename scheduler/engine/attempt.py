"""One attempt's way through the answers of nodes: known ones are taken, old ones made anew, equal nodes asked once."""

from dataclasses import replace
from typing import Final

from allocator import Allocated, Outcome
from allocator.allocate import allocated, broken_node_selector
from allocator.model.nodes import NodeSelectorError
from allocator.search import Solution
from allocator.view import NodeView
from scheduler.engine.answers import Answer, Found
from scheduler.engine.node_views import NodeViews
from scheduler.engine.questions import Asked, Question
from scheduler.framework.cycle_state import CycleState, NodeVerdict
from scheduler.framework.status import SUCCESS, Status
from scheduler.model import NodeInfo
from scheduler.plugins import dynamic_resources

_SPARE_FOUND: Final = 1_000  # views that no node has any more, before all are dropped


class Attempt:
    """The nodes as one attempt sees them.

    Attributes:
        question: what it asks.
        are_kept: whether the answers that are not stale are those of this attempt's snapshot; else it is an old one.
        searches: that it has run.
        looks: nodes that it has asked.
    """

    def __init__(self, state: CycleState, views: NodeViews) -> None:
        """Find out which answers are old.

        Args:
            state: of the attempt.
            views: of the nodes.
        """
        asked: Asked = state.question
        self.question: Question = asked.question
        self.searches = 0
        self.looks = 0
        # What is found is about the unallocated claims alone, for all pods that ask.
        self._state = replace(state, allocated=()) if state.allocated else state
        self._views = views
        self._shared = views.catch_up(state.snapshot)
        self.are_kept = self.question.catch_up(state.snapshot, self._shared)

    def answer(self, node: NodeInfo) -> Answer:
        """What a node says to the question; looked up where nothing has changed.

        Raises:
            SlowSearchError: the search takes too long.
        """
        name = node.name
        if self.are_kept and name not in self.question.stale:
            known = self.question.answers.get(name)
            if known is not None:
                return known
        return self.look(node)

    def look(self, node: NodeInfo) -> Answer:
        """Ask a node, as far as it is not known.

        Raises:
            SlowSearchError: the search takes too long.
        """
        self.looks += 1
        old = self.question.answers.get(node.name)
        answer = self._answer(node, old)
        self._keep(node.name, answer)
        if answer.found is not None and answer.found.depends_on_time:
            self.question.timed_out.add(node.name)
        return answer

    def learn(self, node: NodeInfo, result: Solution | Outcome) -> None:
        """Keep what was found on a node elsewhere; the next look takes it if nothing has changed."""
        try:
            view = self._views.of(node.for_allocator, self._state.snapshot.devices, self._shared)
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
        return self._state.profile.filter_node(self._state.info, node)

    def _keep(self, name: str, answer: Answer) -> None:
        self.question.keep(name, answer)
        if self.are_kept:
            self.question.stale.discard(name)
        else:
            self.question.stale.add(name)

    def _answer(self, node: NodeInfo, old: Answer | None) -> Answer:
        is_same_node = old is not None and old.info is node
        if old is None or not is_same_node:
            refusal = self._refusal(node)
            if refusal is not None:
                return Answer(node, refusal)
        elif old.refused_by_predicates:
            return old
        if not self._state.unallocated:
            return Answer(node)
        devices = self._state.snapshot.devices
        try:
            view = self._views.of(node.for_allocator, devices, self._shared)
        except NodeSelectorError as problem:
            outcome = broken_node_selector(problem)
            return Answer(node, found=Found(None, None, outcome, self._verdict(outcome)))
        if old is None or old.view is not view or old.found is None:
            return self._found_on(node, view, self._find(node, view))
        return old if is_same_node else self._found_on(node, view, old.found)

    def _found_on(self, node: NodeInfo, view: NodeView, found: Found) -> Answer:
        """The answer of a node with what was found in its view; there may be no room for what the devices count."""
        answer = Answer(node, view=view, found=found)
        counts = self._state.environment.features.node_allocatable_resources
        if not (counts and answer.status is SUCCESS and found.counts_for_node):
            return answer
        asked: Asked = self._state.question
        outcome = asked.outcome(answer)
        if isinstance(outcome, Allocated):
            verdict = dynamic_resources.with_demand(
                self._state, node, NodeVerdict(), outcome.allocations
            )
            if not verdict.fits:
                answer.status = self.question.refusals.setdefault(verdict.status, verdict.status)
                answer.ends_attempt = verdict.ends_attempt
        return answer

    def _find(self, node: NodeInfo, view: NodeView) -> Found:
        """What there is in a view: known from another node, or searched."""
        key = self.question.view_key(view)
        if key is not None:
            known = self.question.found.get(key)
            if known is not None:
                return known
        self.searches += 1
        result = dynamic_resources.solve_on(self._state, node.for_allocator, view.pools)
        found = self._found(view, result)
        if key is not None and found.can_move:
            self._share(key, found)
        return found

    def _share(self, key: tuple[object, ...], found: Found) -> None:
        if len(self.question.found) > 2 * len(self._state.snapshot.nodes) + _SPARE_FOUND:
            self.question.found.clear()
        self.question.found[key] = found

    def _found(self, view: NodeView, result: Solution | Outcome) -> Found:
        if not isinstance(result, Solution):
            return Found(view, None, result, self._verdict(result))
        prepared = self.question.prepared
        if prepared is None:
            raise AssertionError("found devices for no claims")
        outcome = allocated(prepared, result, view.node.name, self._state.environment.new_share_id)
        return Found(view, result, outcome, self._verdict(outcome))

    def _verdict(self, outcome: Outcome) -> NodeVerdict:
        verdict = dynamic_resources.verdict_on(self._state, outcome)
        status = verdict.status
        reason = status.reason
        if reason is None or reason.devices:
            return verdict
        known = self.question.refusals.setdefault(status, status)
        return verdict if known is status else replace(verdict, status=known)
