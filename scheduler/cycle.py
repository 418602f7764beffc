"""The scheduling cycle, plain: what one pod needs, which nodes can serve it, which of them is best.

    state = pre_filter(pod, reader, environment)          # or the Status that keeps the pod from every node
    result = filter_nodes(state)                          # all nodes, or those named
    if result.failure is None:
        node = select_node(state, result.fitting)
        plan = plan_of(state, node, result.fitting[node])

This is the reference, not the way decisions are made: nothing is remembered, and every node is looked at. Tests compare the
engine with it; in a process the engine itself asks it, where an answer must owe nothing to memory (its self-check, the last
look before a bind), and so do `simulate` and `explain`, to hear of every device. Everybody else asks `scheduler.engine`, which
gives the same answers faster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from scheduler.conclusion import UNKNOWN_NODE, conclude
from scheduler.framework.cycle_state import CycleState, FilterResult, NodeVerdict
from scheduler.framework.environment import Environment
from scheduler.framework.profile import Profile, Scores, gather
from scheduler.framework.status import Status
from scheduler.model import ClusterReader, NodeInfo, Pod
from scheduler.plugins import PROFILES, dynamic_resources
from scheduler.plugins.pre_filter import pre_filter as begin


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
    """Judge one node for the pod: predicates first, devices last."""
    status = state.profile.filter_node(state.info, node)
    if status is not None:
        return NodeVerdict(status)
    if not state.claims:
        return NodeVerdict()
    return dynamic_resources.filter_node(state, node)


def filter_nodes(state: CycleState, names: Iterable[str] | None = None) -> FilterResult:
    """Look at all nodes, or at those named, in order.

    An error that no other node can mend ends the attempt at once (docs/decisions/0011-node-errors.md).
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
    """What the scorers say of one node that fits."""
    devices = dynamic_resources.score_node(state, node, verdict.allocations)
    return state.profile.scores(state.info, node, devices)


def select_node(state: CycleState, verdicts: Mapping[str, NodeVerdict]) -> str | None:
    """The best node that fits; among equals the first looked at. None if none fits."""
    ranks = rank_nodes(state, verdicts)
    return max(ranks, key=ranks.__getitem__, default=None)
