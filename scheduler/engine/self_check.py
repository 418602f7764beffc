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
from typing import Final

from msgspec.structs import replace as replace_fields

from allocator.cel import Compiler
from allocator.model.claims import AllocationResult
from allocator.outcome import Reason, ReasonKind
from scheduler import cycle
from scheduler.framework.cycle_state import (
    CycleState,
    Domain,
    FilterResult,
    NodeVerdict,
    RawScores,
    SlowSearchError,
)
from scheduler.framework.environment import Environment, Mode
from scheduler.framework.status import Status, error
from scheduler.model import ClusterReader, ClusterSnapshot, NodeInfo
from scheduler.plugins import dynamic_resources
from scheduler.plugins.inter_pod_affinity import repelled_from, repelling_on

_log: Final = logging.getLogger(__name__)

SAMPLE_NODES: Final = 8  # looked at in one check, besides the one chosen
# Between two turns of the event loop; each takes half a millisecond, or is one search.
_STEPS_AT_ONCE: Final = 10
_PODS_AT_ONCE: Final = 500  # looked at for anti-affinity in one step
# Devices prepared anew; where nodes read more, slices are taken with all that is known of them.
_MOST_DEVICES: Final = 2_000

_TOO_SLOW: Final = NodeVerdict(
    error(
        Reason(kind=ReasonKind.DEADLINE_EXCEEDED, message="the search for devices takes too long")
    )
)

Said = tuple[NodeVerdict, RawScores | None]
"""What is said of a node: the verdict, and its scores as far as they are known."""


class PlainAttempt:
    """One attempt without any memory, on the snapshot of another.

    Attributes:
        snapshot: what it is about.
        refusal: why the pod fits no node, if `pre_filter` says so.
    """

    def __init__(
        self, state: CycleState, reader: ClusterReader | None, environment: Environment
    ) -> None:
        """Gather what the attempt needs, but for the pods that repel others.

        Args:
            state: of the attempt that is repeated.
            reader: the cluster, if it is still as that attempt saw it.
            environment: of all decisions.
        """
        self.snapshot = state.snapshot
        self.refusal: Status | None = None
        environment = replace(environment, cel=Compiler())
        made: CycleState | Status = replace(state, environment=environment, question=None)
        if reader is not None:
            made = cycle.pre_filter(
                state.pod, reader, environment, prepare=lambda *_: None, repelling=lambda _: ()
            )
        if isinstance(made, Status):
            self.refusal, made = made, replace(state, environment=environment, question=None)
        self._state = replace(made, now=state.now, repelled_from=frozenset(), prepared=None)

    def gather(self) -> Iterator[None]:
        """Find, in portions, the domains that running pods keep this one out of; before anything else is asked."""
        state = self._state
        if state.environment.mode is not Mode.STANDALONE:
            return
        domains: set[Domain] = set()
        looked_at = 0
        for node in self.snapshot.nodes.values():
            domains |= repelled_from(state.pod, repelling_on(node))
            looked_at += 1 + len(node.pods)
            if looked_at >= _PODS_AT_ONCE:
                looked_at = 0
                yield
        self._state = replace(state, repelled_from=frozenset(domains))

    @property
    def repelled_from(self) -> frozenset[Domain]:
        """Those domains."""
        return self._state.repelled_from

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
        try:
            verdict = cycle.filter_node(self._state, node)
        except SlowSearchError:
            verdict = _TOO_SLOW
        scores = cycle.raw_scores(self._state, node, verdict) if verdict.fits else None
        return verdict, scores

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
        if plain.repelled_from != self._state.repelled_from:
            return "other pods keep it out of other domains"
        return None

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
        return cycle.conclude(self._verdicts, total)

    def ranked(self, fitting: Mapping[str, NodeVerdict]) -> list[str]:
        """Nodes that fit, the best first; among equals the first looked at."""
        return self._plain.rank(fitting)


def sample(names: Sequence[str], turn: int) -> list[str]:
    """Some nodes, spread over all; other ones in each turn, until all have been looked at."""
    stride = -(-len(names) // SAMPLE_NODES)
    return list(names[turn % stride :: stride]) if names else []


def _is_same(one: Said, other: Said) -> bool:
    """Whether two say the same of a node; ids of shares are made afresh each time, and time is never the same."""
    verdict, scores = one
    known, known_scores = other
    return (
        _is_of_time(verdict)
        or _is_of_time(known)
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


def _is_of_time(verdict: NodeVerdict) -> bool:
    """Whether another try might end differently."""
    reason = verdict.status.reason
    return reason is not None and reason.kind is ReasonKind.DEADLINE_EXCEEDED


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
