"""One attempt as the engine sees it: the state that every step reads, with the question that it shares with other pods."""

from dataclasses import dataclass, field, fields, replace

from allocator import Allocated, Outcome
from scheduler.engine.answers import Answer
from scheduler.engine.questions import Question
from scheduler.engine.words import Words, named
from scheduler.framework.cycle_state import CycleState, NodeVerdict
from scheduler.framework.status import SUCCESS, Status
from scheduler.plugins import dynamic_resources


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attempt(CycleState):
    """One attempt to place one pod. Made by `Engine.pre_filter`, taken by all its other methods.

    Attributes:
        question: what the pod asks; its answers are about claims without names.
        words: what has been put in the pod's words already.
    """

    question: Question
    words: Words = field(default_factory=dict)

    def named(self, status: Status) -> Status:
        """A refusal in the words of the pod."""
        return named(status, self.unallocated, self.words)

    def outcome(self, answer: Answer) -> Outcome:
        """What the search on a node found, for the pod's own claims; refusals in words without names."""
        if answer.found is None:
            raise AssertionError("asked for devices before searching")
        return answer.found.on(
            answer.view, self.question.prepared, self.unallocated, self.environment.new_share_id
        )

    def verdict(self, answer: Answer) -> NodeVerdict:
        """What a node answered, as a verdict about the pod's own claims."""
        if answer.verdict is not None:
            return answer.verdict
        if answer.status is not SUCCESS:
            return NodeVerdict(self.named(answer.status), ends_attempt=answer.ends_attempt)
        if answer.info is None or answer.found is None or not self.unallocated:
            return NodeVerdict()
        outcome = self.outcome(answer)
        if not isinstance(outcome, Allocated):
            raise AssertionError(f"a node that fits has no allocation: {outcome}")  # noqa: TRY004
        verdict = dynamic_resources.verdict_on(self, outcome)
        features = self.environment.features
        if features.node_allocatable_resources and answer.found.counts_for_node:
            return dynamic_resources.with_demand(self, answer.info, verdict, outcome.allocations)
        return verdict

    def with_allocated(self, answer: Answer) -> Answer:
        """The answer of a known node for this pod alone, some of whose claims are allocated: those are looked at each time."""
        node = answer.info
        if node is None or answer.refused_by_predicates:
            return Answer(node, verdict=self.verdict(answer))
        unavailable = dynamic_resources.look_at_allocated(self, node)
        if isinstance(unavailable, NodeVerdict):
            return Answer(node, verdict=unavailable)
        outcome = self.outcome(answer) if self.unallocated else Allocated(())
        verdict = dynamic_resources.with_outcome(self, node, unavailable, outcome)
        status = self.named(verdict.status)
        if status is not verdict.status:
            verdict = replace(verdict, status=status)
        return Answer(node, verdict=verdict)


def attempt_of(state: CycleState, question: Question) -> Attempt:
    """The attempt with its question; what follows from the pod alone is shared by all that ask it."""
    known = {each.name: getattr(state, each.name) for each in fields(CycleState)}
    known |= {"info": question.info, "prepared": question.prepared}
    return Attempt(question=question, **known)


@dataclass(frozen=True, slots=True, eq=False)
class LongSearch:
    """A search that takes longer than an event loop may be held up: run it with `Engine.search`, then ask again.

    Attributes:
        attempt: that needs it.
        node_name: where.
    """

    attempt: Attempt
    node_name: str
