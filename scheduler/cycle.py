"""The scheduling cycle, synchronous and pure: what one pod needs, which nodes can serve it, which of them is best.

    state = pre_filter(pod, reader, environment)          # or the Status that keeps the pod from every node
    result = filter_nodes(state)                          # all nodes, or those named
    if result.failure is None:
        node = select_node(state, result.fitting)
        allocations = result.verdicts[node].allocations   # claim UID -> allocation, for the binder

The extender, the stand-alone loop and `simulate` share these steps. Nothing is reserved and nothing remembered: the same
arguments give the same answers. `scheduler.engine` gives the same answers faster.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from allocator.outcome import Reason, ReasonKind
from allocator.scoring import STRATEGIES, raw_prioritized_list
from scheduler.framework.cycle_state import CycleState, FilterResult, NodeVerdict
from scheduler.framework.environment import Environment
from scheduler.framework.profile import MAX_SCORE, Profile, Scores, gather
from scheduler.framework.status import Code, Status, error, unresolvable
from scheduler.model import ClusterReader, NodeInfo, Pod
from scheduler.plugins import ABOUT_DEVICES, LISTING_SHORTAGES, PROFILES, dynamic_resources
from scheduler.plugins.pre_filter import pre_filter as begin

NO_NODES: Final = unresolvable(
    Reason(kind=ReasonKind.NO_NODES, message="no nodes available to schedule pods")
)
UNKNOWN_NODE: Final = NodeVerdict(
    error(Reason(kind=ReasonKind.NOT_READY, message="node(s) not known yet"))
)
Refusals = tuple[tuple[Status, int], ...]


class Judged(Protocol):
    """What a node is to a pod, as far as summing up needs it."""

    @property
    def status(self) -> Status:
        """Success, or why not."""
        ...

    @property
    def ends_attempt(self) -> bool:
        """Whether no other node will do better."""
        ...


V = TypeVar("V", bound=Judged)


def pre_filter(
    pod: Pod, reader: ClusterReader, environment: Environment, profile: Profile | None = None
) -> CycleState | Status:
    """Gather what one attempt needs.

    Args:
        pod: as the caller has it; the reader's version is taken unless this one is newer.
        reader: the cache.
        environment: settings and collaborators.
        profile: the plugins that run; None: those of the environment's mode.

    Returns:
        The state for all later steps, or why no node can do: a refusal (the pod waits for an event) or an error
        (retried with backoff).
    """
    profile = profile or PROFILES[environment.mode]
    state = begin(pod, reader, environment, profile, gather)
    return state if isinstance(state, Status) else prepared(state)


def prepared(state: CycleState) -> CycleState:
    """The state with its unallocated claims ready for the search."""
    if not state.unallocated:
        return state
    devices, environment = state.snapshot.devices, state.environment
    return replace(
        state, prepared=dynamic_resources.prepare(state.unallocated, devices, environment)
    )


def filter_node(state: CycleState, node: NodeInfo) -> NodeVerdict:
    """Say what one node is to the pod: predicates first, devices last."""
    status = state.profile.filter_node(state.info, node)
    if status is not None:
        return NodeVerdict(status)
    if not state.claims:
        return NodeVerdict()
    return dynamic_resources.filter_node(state, node)


def filter_nodes(state: CycleState, names: Iterable[str] | None = None) -> FilterResult:
    """Look at all nodes, or at those named, in order.

    An error that no other node can mend ends the attempt at once (`architecture.md` decision 11).
    """
    nodes = state.snapshot.nodes
    names = list(nodes) if names is None else list(names)
    verdicts: dict[str, NodeVerdict] = {}
    for name in names:
        node = nodes.get(name)
        verdict = UNKNOWN_NODE if node is None else filter_node(state, node)
        verdicts[name] = verdict
        if verdict.ends_attempt:
            break
    return conclude(verdicts, total=len(names))


def conclude(verdicts: Mapping[str, NodeVerdict], total: int) -> FilterResult:
    """Sum up the verdicts: is there a node, and if not, is that a refusal or an error?"""
    fitting, refusals, failure = sum_up(verdicts)
    return FilterResult(verdicts, total, fitting, refusals, failure)


def sum_up(verdicts: Mapping[str, V]) -> tuple[Mapping[str, V], Refusals, Status | None]:
    """What `conclude` concludes, of whatever tells what nodes are: those that fit, the refusals, and the failure."""
    fitting: dict[str, V] = {}
    refused: list[V] = []
    for name, verdict in verdicts.items():
        if verdict.status.is_success:
            fitting[name] = verdict
        else:
            refused.append(verdict)
    refusals = count_refusals(refused)
    ending = next((verdict.status for verdict in reversed(refused) if verdict.ends_attempt), None)
    if fitting and ending is None:
        return fitting, refusals, None
    return {}, refusals, ending or _failure(refusals)


def count_refusals(refused: Iterable[Judged]) -> Refusals:
    """The different refusals, in the order they come first, each with the number of nodes."""
    same: dict[int, tuple[Status, int]] = {}  # most nodes say the very same object
    for verdict in refused:
        status = verdict.status
        known = same.get(id(status))
        same[id(status)] = (status, 1 if known is None else known[1] + 1)
    counts: dict[tuple[str, str, Code], tuple[Status, int]] = {}
    for status, count in same.values():
        key = (status.message, status.plugin, status.code)
        first, before = counts.get(key, (status, 0))
        counts[key] = (first, before + count)
    return tuple(counts.values())


def _failure(refusals: Sequence[tuple[Status, int]]) -> Status:
    """One status for all nodes: an error if there was one, else the kind of most nodes that pass the other predicates.

    Ties go to the kind that comes first in the enum, and to the text that comes first in the alphabet.
    """
    if not refusals:
        return NO_NODES
    for status, _ in refusals:
        if status.code is Code.ERROR:
            return status
    of_devices = [each for each in refusals if each[0].plugin in ABOUT_DEVICES]
    candidates = of_devices or refusals
    kinds: Counter[ReasonKind] = Counter()
    for status, count in candidates:
        kinds[_kind(status)] += count
    order = list(ReasonKind)
    kind = min(kinds, key=lambda each: (-kinds[each], order.index(each)))
    best = min(
        (each for each in candidates if _kind(each[0]) is kind),
        key=lambda each: (-each[1], each[0].message),
    )[0]
    is_resolvable = any(status.code is Code.UNSCHEDULABLE for status, _ in refusals)
    return replace(best, code=Code.UNSCHEDULABLE) if is_resolvable else best


def _kind(status: Status) -> ReasonKind:
    return ReasonKind.UNSUPPORTED if status.reason is None else status.reason.kind


def summary(result: FilterResult) -> Reason | None:
    """The pod's own reason, by the rule of `architecture.md` 3; None if some node fits."""
    return None if result.failure is None else result.failure.reason


def failure_message(result: FilterResult) -> str:
    """The text of events and conditions that we write ourselves: how many nodes said what, as in-tree writes it."""
    failure = result.failure
    if failure is not None and failure.code is Code.ERROR:
        return failure.message
    texts: Counter[str] = Counter()
    for status, count in result.refusals:
        for part in _parts(status):
            texts[part] += count
    head = f"0/{result.total} nodes are available"
    if not texts:
        return f"{head}: {failure.message}." if failure is not None else f"{head}."
    return f"{head}: {', '.join(sorted(f'{count} {text}' for text, count in texts.items()))}."


def _parts(status: Status) -> list[str]:
    """Every resource that is short counts for itself, as upstream's list of reasons."""
    return status.message.split(", ") if status.plugin in LISTING_SHORTAGES else [status.message]


def pod_failure_message(status: Status, total: int) -> str:
    """The same for a status of `pre_filter`, which concerns all nodes at once."""
    if status.code is Code.ERROR:
        return status.message
    return f"0/{total} nodes are available: {status.message}."


def score_nodes(state: CycleState, verdicts: Mapping[str, NodeVerdict]) -> dict[str, int]:
    """Score the nodes that fit, 0-100, higher is better: by devices alone, or with the other scorers when stand-alone."""
    return state.profile.scaled(_raw(state, verdicts))


def rank_nodes(state: CycleState, verdicts: Mapping[str, NodeVerdict]) -> dict[str, int]:
    """Weighted sum of all scorers for the nodes that fit; only the order means something."""
    raw = _raw(state, verdicts)
    weighed = state.profile.weigh(raw.values())
    return {name: weighed[scores] for name, scores in raw.items()}


def _raw(state: CycleState, verdicts: Mapping[str, NodeVerdict]) -> dict[str, Scores]:
    nodes = state.snapshot.nodes
    return {n: raw_scores(state, nodes[n], each) for n, each in verdicts.items() if each.fits}


def raw_scores(state: CycleState, node: NodeInfo, verdict: NodeVerdict) -> Scores:
    """What the scorers say of one node that fits; looked up where the verdict has them already."""
    memo = verdict.score_memo
    if memo is not None and memo.scores is not None:
        return memo.scores
    scores = state.profile.scores(state.info, node, device_score(state, node, verdict))
    if memo is not None:
        memo.scores = scores
    return scores


def device_score(state: CycleState, node: NodeInfo, verdict: NodeVerdict) -> int:
    """How well the devices of one node serve the pod, before normalising; 0 for a pod that needs no new ones."""
    if not verdict.allocations:
        return 0
    allocations = list(verdict.allocations.values())  # in the order of the claims
    strategy = STRATEGIES[state.environment.device_strategy]
    preferred = raw_prioritized_list(state.unallocated, allocations)
    return preferred * (MAX_SCORE + 1) + strategy(
        allocations, node.for_allocator, state.snapshot.devices
    )


def select_node(state: CycleState, verdicts: Mapping[str, NodeVerdict]) -> str | None:
    """The best node that fits; among equals the first looked at. None if none fits."""
    ranks = rank_nodes(state, verdicts)
    return max(ranks, key=ranks.__getitem__, default=None)
