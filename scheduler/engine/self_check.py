"""Now and then a decision is made again from nothing, to see whether what the engine remembers is still true.

From nothing means: from the snapshot alone, by the plain cycle, with claims, slices and compiler prepared anew. All that
the engine derives and keeps is left out: answers, views, scores, the log of changes, pods that repel others. What is
compared is what keeps the pod out of domains, the verdict and the scores of the node chosen, and those of some other
nodes, in turn: also of those that refused, since a pod that is refused wrongly waits for ever.

The check is done in portions, between which the event loop has its turn, on the snapshot of the decision. If it finds a
difference, the plain answer is used instead.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace as replace_fields

from allocator.cel import Compiler
from allocator.model.claims import AllocationResult
from scheduler import cycle
from scheduler.conclusion import conclude
from scheduler.engine.answers import Answer
from scheduler.engine.attempt import Attempt
from scheduler.framework.cycle_state import (
    CycleState,
    FilterResult,
    NodeVerdict,
)
from scheduler.framework.environment import Environment
from scheduler.framework.plan import Plan, plan_of
from scheduler.framework.pod_info import PodInfo
from scheduler.framework.profile import Scores
from scheduler.framework.status import Status
from scheduler.model import ClusterReader, ClusterSnapshot, NodeInfo
from scheduler.plugins import dynamic_resources
from scheduler.plugins.pre_filter import pre_filter

_log: Final = logging.getLogger(__name__)

SAMPLE_NODES: Final = 8  # looked at in one check, besides the one chosen
# Between two turns of the event loop; each takes half a millisecond, or is one search.
_STEPS_AT_ONCE: Final = 10
# Devices prepared anew; where nodes read more, slices are taken with all that is known of them.
_MOST_DEVICES: Final = 2_000

Said = tuple[NodeVerdict, Scores | None]
"""What is said of a node: the verdict, and its scores as far as they are known."""


class PlainAttempt:
    """One attempt without any memory, on the snapshot of another.

    Attributes:
        snapshot: what it is about.
        refusal: why the pod fits no node, if `pre_filter` says so.
        facts: about the pod, by name, once they have been looked up.
    """

    def __init__(
        self, state: CycleState, reader: ClusterReader | None, environment: Environment
    ) -> None:
        """Gather what the attempt needs, but for facts.

        Args:
            state: of the attempt that is repeated.
            reader: the cluster, if it is still as that attempt saw it.
            environment: of all decisions.
        """
        self.snapshot = state.snapshot
        self.refusal: Status | None = None
        environment = replace(environment, cel=Compiler())
        same = replace(state, environment=environment)
        made: CycleState | Status = same
        if reader is not None:
            made = pre_filter(state.pod, reader, environment, state.profile, None)
        if isinstance(made, Status):
            self.refusal, made = made, same
        self._state = replace(made, now=state.now, prepared=None)
        self.facts: Mapping[str, Any] = {}

    def gather(self) -> Iterator[None]:
        """Look up, in portions, what the cluster means for the pod; before anything else is asked."""
        state = self._state
        facts: dict[str, Any] = {}
        for fact in state.profile.facts:
            if fact.gather_in_steps is None:
                gathered = fact.gather(self.snapshot)
            else:
                gathered = yield from fact.gather_in_steps(self.snapshot)
            facts[fact.name] = fact.look_up(state.pod, gathered)
        self.facts = facts
        info = PodInfo(state.pod, state.environment.features, facts)
        self._state = replace(state, info=info)

    def prepare(self, names: Sequence[str]) -> None:
        """Get ready to be asked about some nodes."""
        state, devices = self._state, self.snapshot.devices
        slices = devices.slices.anew(names, _MOST_DEVICES)
        if slices is not None:
            devices = replace(devices, slices=slices)
        prepared = None
        if state.unallocated:
            prepared = dynamic_resources.prepare(state.unallocated, devices, state.environment)
        snapshot = replace(self.snapshot, devices=devices)
        self._state = replace(state, snapshot=snapshot, prepared=prepared)

    def ask(self, node: NodeInfo) -> Said:
        """What a node is to the pod, as far as that can be found out here in time."""
        verdict = cycle.filter_node(self._state, node)
        scores = cycle.raw_scores(self._state, node, verdict) if verdict.fits else None
        return verdict, scores

    def plan(self, name: str, verdict: NodeVerdict) -> Plan:
        """The plan to put the pod on a node that fits."""
        return plan_of(self._state, name, verdict)

    def rank(self, fitting: Mapping[str, NodeVerdict]) -> list[str]:
        """Nodes that fit, the best first."""
        ranks = cycle.rank_nodes(self._state, fitting)
        return sorted(ranks, key=ranks.__getitem__, reverse=True)


class Check:
    """One decision, compared with the plain one in portions, and replaced by it if they differ.

    Attributes:
        pod_uid: whose decision.
        snapshot: what it is about.
        is_confirmed: whether they agree; None: not known yet.
    """

    def __init__(
        self,
        plain: PlainAttempt,
        state: CycleState,
        said: Mapping[str, Said],
        on_mismatch: Callable[[ClusterSnapshot], None],
        order: Sequence[str],
        enough: int,
    ) -> None:
        """Begin; nothing is compared yet.

        Args:
            plain: the attempt again.
            state: of the decision.
            said: what the engine says of the nodes to be compared.
            on_mismatch: forgets everything that was derived from such a snapshot.
            order: all nodes, in the order in which a plain decision looks at them.
            enough: nodes that fit after which it stops.
        """
        self.pod_uid = state.pod.metadata.uid
        self.snapshot = state.snapshot
        self.is_confirmed: bool | None = None
        self._plain = plain
        self._state = state
        self._said = said
        self._on_mismatch = on_mismatch
        self._order = order
        self._enough = enough
        self._verdicts: dict[str, NodeVerdict] = {}
        self._steps = self._run()

    def go_on(self, *, is_limited: bool) -> bool:
        """Do the next portion of the work, or all the rest; whether it is finished."""
        most = _STEPS_AT_ONCE if is_limited else None
        done = sum(1 for _ in islice(self._steps, most))
        return most is None or done < most

    def _run(self) -> Iterator[None]:
        plain = self._plain
        yield from plain.gather()
        difference = self._difference_of_pod()
        if difference is None:
            nodes = plain.snapshot.nodes
            plain.prepare([name for name in self._said if name in nodes])
            for name, said in self._said.items():
                yield
                asked = plain.ask(nodes[name])
                if not _is_same(asked, said):
                    difference = f"node {name} says {_text(said)} instead of {_text(asked)}"
                    break
        self.is_confirmed = difference is None
        if difference is not None:
            _log.error(
                "what was remembered for pod %s was wrong and is dropped: %s",
                self._state.pod.key,
                difference,
            )
            self._on_mismatch(self.snapshot)
            yield from self._decide_plainly()

    def _difference_of_pod(self) -> str | None:
        plain = self._plain
        if plain.refusal is not None:
            return f"the pod fits nowhere: {plain.refusal.message}"
        told = self._state.info.facts
        differing = sorted(name for name in plain.facts if plain.facts[name] != told.get(name))
        return f"other {', other '.join(differing)}" if differing else None

    def _decide_plainly(self) -> Iterator[None]:
        """Look at all nodes, until enough fit."""
        plain = self._plain
        if plain.refusal is not None:
            return
        fitting = 0
        for start in range(0, len(self._order), SAMPLE_NODES):
            names = self._order[start : start + SAMPLE_NODES]
            plain.prepare(names)
            for name in names:
                yield
                verdict, _ = plain.ask(plain.snapshot.nodes[name])
                self._verdicts[name] = verdict
                fitting += verdict.fits
                if fitting >= self._enough or verdict.ends_attempt:
                    return

    def plain_result(self) -> FilterResult:
        """What the plain attempt says, when it has not confirmed the decision."""
        refusal, total = self._plain.refusal, len(self._order)
        if refusal is not None:
            return FilterResult({}, total, {}, ((refusal, total),), refusal)
        return conclude(self._verdicts, total)

    def plain_plan(
        self, attempt: Attempt, reader: ClusterReader | None
    ) -> Plan | FilterResult | None:
        """The plain answer, if it still holds: the cluster may have changed while it was being found. None: it does not.

        Args:
            attempt: of the same pod, now.
            reader: the cluster, if it is still as that attempt saw it.
        """
        result = self.plain_result()
        if result.failure is not None:
            return result
        names = self._plain.rank(result.fitting)
        if self.snapshot is attempt.snapshot:
            return self._plain.plan(names[0], result.fitting[names[0]])
        nodes = attempt.snapshot.nodes
        plain = PlainAttempt(attempt, reader, attempt.environment)
        for _ in plain.gather():
            pass
        for name in names[:SAMPLE_NODES] if plain.refusal is None else ():
            if name in nodes:
                plain.prepare([name])
                verdict, _ = plain.ask(nodes[name])
                if verdict.fits:
                    return plain.plan(name, verdict)
        return None


def said_by(
    attempt: Attempt, answers: Mapping[str, Answer], first: str, turn: int
) -> dict[str, Said]:
    """What is to be compared.

    Args:
        attempt: that was answered.
        answers: of all nodes that were looked at.
        first: the node chosen, if one was.
        turn: other nodes are chosen in each turn.
    """
    names = sample(list(answers), turn)
    if first:
        names = [first, *(name for name in names if name != first)]
    nodes = attempt.snapshot.nodes
    return {
        name: (attempt.verdict(answers[name]), answers[name].scores)
        for name in names
        if name in nodes
    }


def sample(names: Sequence[str], turn: int) -> list[str]:
    """Some nodes, spread over all; other ones in each turn, until all have been looked at."""
    stride = -(-len(names) // SAMPLE_NODES)
    return list(names[turn % stride :: stride]) if names else []


def _is_same(one: Said, other: Said) -> bool:
    """Whether two say the same of a node; ids of shares are made afresh each time, and time is never the same."""
    verdict, scores = one
    known, known_scores = other
    return (
        verdict.is_of_time
        or known.is_of_time
        or (
            _is_equal(verdict, known)
            and (scores is None or known_scores is None or scores == known_scores)
        )
    )


def _is_equal(verdict: NodeVerdict, known: NodeVerdict) -> bool:
    return (
        verdict.status == known.status
        and verdict.ends_attempt == known.ends_attempt
        and verdict.unavailable == known.unavailable
        and verdict.demand == known.demand
        and _without_ids(verdict) == _without_ids(known)
    )


def _without_ids(verdict: NodeVerdict) -> dict[str, AllocationResult]:
    bare = {}
    for uid, allocation in verdict.allocations.items():
        results = allocation.devices.results or ()
        devices = replace_fields(
            allocation.devices,
            results=tuple(replace_fields(each, share_id=None) for each in results),
        )
        bare[uid] = replace_fields(allocation, devices=devices)
    return bare


def _text(said: Said) -> str:
    verdict, scores = said
    if not verdict.fits:
        return repr(verdict.status.message)
    devices = [
        str(result.device_id)
        for allocation in verdict.allocations.values()
        for result in allocation.devices.results or ()
    ]
    return f"devices {', '.join(devices) or 'none'} with scores {scores}"
