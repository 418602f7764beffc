"""NodeAffinity: `nodeSelector` and required affinity must match; preferred affinity scores.

Differs from device node selectors: a term that cannot be parsed does not match, and the others still may.

Source: pkg/scheduler/framework/plugins/nodeaffinity; k8s.io/component-helpers/scheduling/corev1/nodeaffinity.
"""

from typing import Final

from allocator.model.nodes import NodeSelectorError, NodeSelectorTerm, check_term, matches_term
from allocator.outcome import Reason, ReasonKind
from scheduler.framework.events import Event
from scheduler.framework.plugin import Plugin, Reads, Scale
from scheduler.framework.pod_info import PodInfo
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.model import NodeAffinity, NodeInfo

NAME: Final = "NodeAffinity"
_REASON: Final = Reason(
    kind=ReasonKind.NODE_AFFINITY_MISMATCH,
    message="node(s) didn't match Pod's node affinity/selector",
)


def _affinity(pod: PodInfo) -> NodeAffinity | None:
    return None if pod.spec.affinity is None else pod.spec.affinity.node_affinity


def _matches(term: NodeSelectorTerm, node: NodeInfo) -> bool:
    try:
        check_term(term)
    except NodeSelectorError:
        return False
    return matches_term(term, node.for_allocator.labels, node.name)


def filter_node(pod: PodInfo, node: NodeInfo) -> Status:
    """Refuse a node unless all `nodeSelector` labels and at least one required term match."""
    labels = node.for_allocator.labels
    for key, value in (pod.spec.node_selector or {}).items():
        if labels.get(key) != value:
            return unresolvable(_REASON, NAME)
    affinity = _affinity(pod)
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if not required:
        return SUCCESS
    if any(_matches(term, node) for term in required.node_selector_terms or ()):
        return SUCCESS
    return unresolvable(_REASON, NAME)


def score_node(pod: PodInfo, node: NodeInfo) -> int:
    """Sum the weights of the preferred terms that match; more is better."""
    affinity = _affinity(pod)
    if affinity is None:
        return 0
    return sum(
        preferred.weight
        for preferred in affinity.preferred_during_scheduling_ignored_during_execution or ()
        if preferred.weight and _matches(preferred.preference, node)
    )


PLUGIN: Final = Plugin(
    name=NAME,
    filter=filter_node,
    score=score_node,
    weight=2,
    scale=Scale.HIGHER_IS_BETTER,
    events=Event.NODE_ADDED | Event.NODE_LABELS,
    reads=Reads(
        pod=("spec.node_selector", "spec.affinity.node_affinity"),
        node=("for_allocator.labels", "node.metadata.name"),
    ),
)
