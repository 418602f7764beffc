"""What a search found in a view, and what a node answered: the first is shared by all nodes with an equal view."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from allocator import Allocated, Outcome, PreparedClaims
from allocator.allocate import allocated
from allocator.model.claims import ResourceClaim
from allocator.model.devices import DeviceID
from allocator.outcome import DoesNotFit, Fatal, NodeError, Reason, ReasonKind
from allocator.pools import Candidate, Pool
from allocator.result import ChosenDevice, NewShareID
from allocator.search import Solution
from allocator.view import NodeView
from scheduler.conclusion import UNKNOWN_NODE
from scheduler.framework.cycle_state import NodeVerdict
from scheduler.framework.profile import Scores
from scheduler.framework.status import SUCCESS, Status
from scheduler.model import NodeInfo


class SearchResult:
    """What a search found, about anonymous claims.

    Attributes:
        view: where it searched; None where the pools cannot be told.
        solution: the devices, if there are enough.
        outcome: the outcome on that node.
        status: what the node is to a pod with this question.
        ends_attempt: whether no other node will do better.
        score: how well the devices serve a pod, if that has been asked and is the same in all equal views.
        scores: all scores of a node, if nothing but the devices is scored.
    """

    __slots__ = ("ends_attempt", "outcome", "score", "scores", "solution", "status", "view")

    def __init__(
        self,
        view: NodeView | None,
        solution: Solution | None,
        outcome: Outcome,
        verdict: NodeVerdict,
    ) -> None:
        self.view = view
        self.solution = solution
        self.outcome = outcome
        self.status = verdict.status
        self.ends_attempt = verdict.ends_attempt
        self.score: int | None = None
        self.scores: Scores | None = None

    @property
    def depends_on_time(self) -> bool:
        """Whether another try might end differently: a deadline does, not a budget, which counts devices."""
        reason = _reason(self.outcome)
        return reason is not None and reason.kind is ReasonKind.DEADLINE_EXCEEDED

    @property
    def counts_for_node(self) -> bool:
        """Whether some of the devices count in resources of their node: then each node tells for itself if that fits."""
        return self.solution is not None and any(
            chosen.candidate.device.counts_for_node
            for devices in self.solution.devices
            for chosen in devices
        )

    def on(
        self,
        view: NodeView | None,
        prepared: PreparedClaims | None,
        claims: Sequence[ResourceClaim],
        new_share_id: NewShareID,
    ) -> Outcome:
        """The outcome on a node with an equal view, for the claims of one pod."""
        if self.solution is not None and prepared is not None and view is not None:
            solution = self.solution if view is self.view else self._moved(self.solution, view)
            return allocated(prepared, solution, view.node.name, new_share_id, claims)
        if view is None or view is self.view or isinstance(self.outcome, Allocated):
            return self.outcome
        return replace(self.outcome, reason=self.reason_on(view, self.outcome.reason))

    def _moved(self, solution: Solution, view: NodeView) -> Solution:
        """The same places on another node."""
        here = () if self.view is None else _candidates(self.view)
        places = {id(candidate): place for place, candidate in enumerate(here)}
        there = _candidates(view)
        return Solution(
            tuple(
                tuple(
                    ChosenDevice(
                        chosen.request,
                        there[places[id(chosen.candidate)]],
                        chosen.admin_access,
                        chosen.tolerations,
                        chosen.consumed,
                    )
                    for chosen in devices
                )
                for devices in solution.devices
            ),
            solution.requests,
        )

    def reason_on(self, view: NodeView, reason: Reason) -> Reason:
        """A refusal with the names of another node's devices; a pool is told of as a device without a name."""
        if not reason.devices or self.view is None or view is self.view:
            return reason
        moved = dict(zip(_names(self.view), _names(view), strict=True))
        problems = {_pool_name(pool): pool.problem for pool in view.pools}
        devices = []
        for each in reason.devices:
            device = moved[each.device]
            # What is wrong with a pool is told with names of devices.
            message = problems.get(device, each.message)
            devices.append(replace(each, device=device, message=message))
        return replace(reason, devices=tuple(devices))

    def status_on(self, view: NodeView | None) -> Status:
        """The answer of a node with an equal view; usually the same object."""
        reason = self.status.reason
        if view is None or reason is None:
            return self.status
        moved = self.reason_on(view, reason)
        return self.status if moved is reason else replace(self.status, reason=moved)

    @property
    def can_move(self) -> bool:
        """Whether equal views may share this: everything it names is in the view, and it depends on no clock."""
        reason = _reason(self.outcome)
        if reason is None:
            return True
        if self.depends_on_time or self.view is None:
            return False
        names = set(_names(self.view)) if reason.devices else set()
        return all(each.device in names for each in reason.devices)


def _reason(outcome: Outcome) -> Reason | None:
    return outcome.reason if isinstance(outcome, DoesNotFit | NodeError | Fatal) else None


def _candidates(view: NodeView) -> Sequence[Candidate]:
    return [candidate for pool in view.pools for candidate in pool.candidates]


def _names(view: NodeView) -> list[DeviceID]:
    names = [candidate.id for candidate in _candidates(view)]
    names += map(_pool_name, view.pools)
    return names


def _pool_name(pool: Pool) -> DeviceID:
    """How a refusal names a pool."""
    return DeviceID(pool.id.driver, pool.id.name, "")


class Answer:
    """What one node answers: to a question, whoever asks it, or to one pod alone. Only its scores are filled in later.

    Attributes:
        info: the node as the predicates saw it; None: it is not known.
        view: the node as the search saw it; None if it was not asked.
        found: by the search; None if it was not asked.
        verdict: what the node is to one pod, if this is for that pod alone.
        status: success, or the refusal: in words without names, or in those of the one pod.
        ends_attempt: whether no other node will do better.
        scores: what the scorers say of a node that fits, once they were asked.
    """

    __slots__ = ("ends_attempt", "found", "info", "scores", "status", "verdict", "view")

    def __init__(
        self,
        info: NodeInfo | None,
        refusal: Status | None = None,
        view: NodeView | None = None,
        found: SearchResult | None = None,
        verdict: NodeVerdict | None = None,
    ) -> None:
        self.info = info
        self.view = view
        self.found = found
        self.verdict = verdict
        self.scores: Scores | None = None
        if verdict is not None:
            self.status, self.ends_attempt = verdict.status, verdict.ends_attempt
        elif refusal is not None:
            self.status, self.ends_attempt = refusal, False
        elif found is not None:
            self.status, self.ends_attempt = found.status_on(view), found.ends_attempt
        else:
            self.status, self.ends_attempt = SUCCESS, False

    @property
    def refused_by_predicates(self) -> bool:
        """Whether the devices were not asked about because something else is in the way."""
        return self.found is None and self.status is not SUCCESS


UNKNOWN: Final = Answer(None, verdict=UNKNOWN_NODE)
"""The answer of a node that is not known."""
