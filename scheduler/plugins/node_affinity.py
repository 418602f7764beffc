"""NodeAffinity: `nodeSelector` and required affinity decide, preferred affinity scores.

Differs from device node selectors: a term that cannot be parsed does not match, and the others still may.

Source: pkg/scheduler/framework/plugins/nodeaffinity; k8s.io/component-helpers/scheduling/corev1/nodeaffinity.
"""

from typing import Final

from allocator.model.nodes import NodeSelectorError, NodeSelectorTerm, check_term, matches_term
from allocator.outcome import Reason, ReasonKind
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.model import NodeAffinity, NodeInfo, Pod

NAME: Final = "NodeAffinity"
_REASON: Final = Reason(
    kind=ReasonKind.NODE_AFFINITY_MISMATCH,
    message="node(s) didn't match Pod's node affinity/selector",
)


def _affinity(pod: Pod) -> NodeAffinity | None:
    return None if pod.spec.affinity is None else pod.spec.affinity.node_affinity


def _matches(term: NodeSelectorTerm, node: NodeInfo) -> bool:
    try:
        check_term(term)
    except NodeSelectorError:
        return False
    return matches_term(term, node.for_allocator.labels, node.name)


def filter_node(state: CycleState, node: NodeInfo) -> Status:
    """Refuse a node unless all `nodeSelector` labels and at least one required term match."""
    labels = node.for_allocator.labels
    for key, value in (state.pod.spec.node_selector or {}).items():
        if labels.get(key) != value:
            return unresolvable(_REASON, NAME)
    affinity = _affinity(state.pod)
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if not required:
        return SUCCESS
    if any(_matches(term, node) for term in required.node_selector_terms or ()):
        return SUCCESS
    return unresolvable(_REASON, NAME)


def score_node(state: CycleState, node: NodeInfo) -> int:
    """Sum the weights of the preferred terms that match; more is better."""
    affinity = _affinity(state.pod)
    if affinity is None:
        return 0
    return sum(
        preferred.weight
        for preferred in affinity.preferred_during_scheduling_ignored_during_execution or ()
        if preferred.weight and _matches(preferred.preference, node)
    )
