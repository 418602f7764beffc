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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from allocator.outcome import Reason, ReasonKind
from allocator.scoring import STRATEGIES, raw_prioritized_list
from scheduler.framework.cycle_state import (
    CycleState,
    FilterResult,
    NodeVerdict,
    RawScores,
    RepellingPod,
)
from scheduler.framework.environment import Environment, Mode
from scheduler.framework.resources import (
    IMPLICIT_EXTENDED_PREFIX,
    host_ports,
    is_extended,
    pod_requests,
    scoring_requests,
)
from scheduler.framework.status import Code, Status, error, unresolvable
from scheduler.model import ClusterReader, ClusterSnapshot, NodeInfo, Pod
from scheduler.plugins import (
    EXTENDER_FILTERS,
    EXTENDER_PRE_FILTERS,
    STANDALONE_FILTERS,
    STANDALONE_PRE_FILTERS,
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_allocatable,
    node_resources,
    taint_toleration,
)

MAX_SCORE: Final = 100
_LONG_VERSION: Final = 20  # digits; the API server's have 64 bits
NO_NODES: Final = unresolvable(
    Reason(kind=ReasonKind.NO_NODES, message="no nodes available to schedule pods")
)
UNKNOWN_NODE: Final = NodeVerdict(
    error(Reason(kind=ReasonKind.NOT_READY, message="node(s) not known yet"))
)
Repelling = Callable[[ClusterSnapshot], Iterable[RepellingPod]]
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
K = TypeVar("K")
# Who refuses a node although the other predicates pass, and whose texts tell of several resources.
_OF_DEVICES: Final = (dynamic_resources.NAME, node_allocatable.NAME)
_OF_ROOM: Final = (node_resources.NAME, node_allocatable.NAME)
# Upstream's default weights of the scorers there are (7.3).
_WEIGHTS: Final = RawScores(taints=3, affinity=2, devices=2, resources=1)


def pre_filter(
    pod: Pod,
    reader: ClusterReader,
    environment: Environment,
    prepare: dynamic_resources.Prepare = dynamic_resources.prepare,
    repelling: Repelling = inter_pod_affinity.repelling_pods,
) -> CycleState | Status:
    """Gather what one attempt needs.

    Args:
        pod: as the caller has it; the reader's version is taken unless this one is newer.
        reader: the cache.
        environment: settings and collaborators.
        prepare: makes unallocated claims ready for the search.
        repelling: finds the running pods that do not want some others near them.

    Returns:
        The state for all later steps, or why no node can do: a refusal (the pod waits for an event) or an error
        (retried with backoff).
    """
    pod = _newer(pod, reader.pod(pod.metadata.uid))
    is_standalone = environment.mode is Mode.STANDALONE
    filters = STANDALONE_PRE_FILTERS if is_standalone else EXTENDER_PRE_FILTERS
    for check in filters.values():
        status = check(pod)
        if not status.is_success:
            return status
    claims = dynamic_resources.resolve_claims(pod, reader)
    if isinstance(claims, Status):
        return claims
    problem = dynamic_resources.check_claims(pod, claims, reader, environment)
    if problem is not None:
        return problem
    snapshot = reader.snapshot()
    unallocated = tuple(c.claim for c in claims if not c.is_allocated)
    requests = pod_requests(pod)
    return CycleState(
        pod=pod,
        environment=environment,
        snapshot=snapshot,
        now=environment.now(),
        claims=claims,
        allocated=tuple(c for c in claims if c.is_allocated),
        unallocated=unallocated,
        prepared=prepare(unallocated, snapshot.devices, environment) if unallocated else None,
        requests=requests,
        scoring_requests=scoring_requests(pod) if is_standalone else (0, 0),
        ports=host_ports(pod) if is_standalone else frozenset(),
        backed_resources=_backed_resources(requests, snapshot),
        repelled_from=inter_pod_affinity.repelled_from(pod, repelling(snapshot))
        if is_standalone
        else frozenset(),
    )


def _newer(pod: Pod, known: Pod | None) -> Pod:
    """The newer of two versions: the caller's copy may be old, and so may the cache when its watch is behind."""
    if known is None or _version(pod) > _version(known):
        return pod
    return known


def _version(pod: Pod) -> int:
    """The version as a number; 0 if it is none: a caller's pod is anybody's text."""
    text = pod.metadata.resource_version
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _LONG_VERSION else 0


def _backed_resources(requests: Mapping[str, int], snapshot: ClusterSnapshot) -> frozenset[str]:
    """Requested extended resources that a DeviceClass names, explicitly or implicitly."""
    names = {name for name, amount in requests.items() if amount and is_extended(name)}
    if not names:
        return frozenset()
    classes = snapshot.devices.classes
    explicit = {each.spec.extended_resource_name for each in classes.values()}
    return frozenset(
        name
        for name in names
        if name in explicit
        or (
            name.startswith(IMPLICIT_EXTENDED_PREFIX)
            and name.removeprefix(IMPLICIT_EXTENDED_PREFIX) in classes
        )
    )


def check_predicates(state: CycleState, node: NodeInfo) -> Status | None:
    """Run the predicates other than devices on one node; None: all pass."""
    is_standalone = state.environment.mode is Mode.STANDALONE
    for check in (STANDALONE_FILTERS if is_standalone else EXTENDER_FILTERS).values():
        status = check(state, node)
        if not status.is_success:
            return status
    return None


def filter_node(
    state: CycleState,
    node: NodeInfo,
    allocate: dynamic_resources.Allocate = dynamic_resources.allocate_on,
) -> NodeVerdict:
    """Say what one node is to the pod: predicates first, devices last."""
    status = check_predicates(state, node)
    if status is not None:
        return NodeVerdict(status)
    if not state.claims:
        return NodeVerdict()
    return dynamic_resources.filter_node(state, node, allocate)


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
    of_devices = [each for each in refusals if each[0].plugin in _OF_DEVICES]
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
    return status.message.split(", ") if status.plugin in _OF_ROOM else [status.message]


def pod_failure_message(status: Status, total: int) -> str:
    """The same for a status of `pre_filter`, which concerns all nodes at once."""
    if status.code is Code.ERROR:
        return status.message
    return f"0/{total} nodes are available: {status.message}."


def score_nodes(state: CycleState, verdicts: Mapping[str, NodeVerdict]) -> dict[str, int]:
    """Score the nodes that fit, 0-100, higher is better: by devices alone, or with the other scorers when stand-alone."""
    return scaled(_raw(state, verdicts), state.environment.mode)


def scaled(raw: Mapping[K, RawScores], mode: Mode) -> dict[K, int]:
    """Weighted sums of raw scores, 0-100."""
    whole = 1 if mode is Mode.EXTENDER else sum(_WEIGHTS)
    different = set(raw.values())
    weighed = {scores: score // whole for scores, score in weigh(different, mode).items()}
    return {name: weighed[scores] for name, scores in raw.items()}


def rank_nodes(state: CycleState, verdicts: Mapping[str, NodeVerdict]) -> dict[str, int]:
    """Weighted sum of all scorers for the nodes that fit; only the order means something."""
    raw = _raw(state, verdicts)
    weighed = weigh(raw.values(), state.environment.mode)
    return {name: weighed[scores] for name, scores in raw.items()}


def _raw(state: CycleState, verdicts: Mapping[str, NodeVerdict]) -> dict[str, RawScores]:
    nodes = state.snapshot.nodes
    return {n: raw_scores(state, nodes[n], each) for n, each in verdicts.items() if each.fits}


def weigh(raw: Iterable[RawScores], mode: Mode) -> dict[RawScores, int]:
    """Weighted sums of raw scores: each is scaled so that the best node gets 100; fewer taints are better.

    Source: DefaultNormalizeScore of upstream's plugins.
    """
    different = dict.fromkeys(raw)
    most = [max((scores[i] for scores in different), default=0) or 1 for i in range(3)]
    if mode is Mode.EXTENDER:
        return {scores: MAX_SCORE * scores.devices // most[2] for scores in different}
    taints, affinity, devices, resources = _WEIGHTS
    return {
        scores: taints * (MAX_SCORE - MAX_SCORE * scores.taints // most[0])
        + affinity * (MAX_SCORE * scores.affinity // most[1])
        + devices * (MAX_SCORE * scores.devices // most[2])
        + resources * scores.resources
        for scores in different
    }


def raw_scores(state: CycleState, node: NodeInfo, verdict: NodeVerdict) -> RawScores:
    """What the scorers say of one node that fits; looked up where the verdict has them already."""
    memo = verdict.score_memo
    if memo is not None and memo.scores is not None:
        return memo.scores
    scores = scores_with(state, node, device_score(state, node, verdict))
    if memo is not None:
        memo.scores = scores
    return scores


def scores_with(state: CycleState, node: NodeInfo, devices: int) -> RawScores:
    """What the scorers say of a node whose devices are scored already."""
    if state.environment.mode is Mode.EXTENDER:
        return RawScores(0, 0, devices, 0)
    return RawScores(
        taint_toleration.score_node(state, node),
        node_affinity.score_node(state, node),
        devices,
        node_resources.score_node(state, node),
    )


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
