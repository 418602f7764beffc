"""InterPodAffinity: required anti-affinity of running pods is honoured; a pod's own terms are refused (`Unsupported`).

A pod's own required terms are refused (`plugins.unsupported`). Terms of running pods concern pods that know nothing of
them, so they are honoured. A namespace selector that is not empty counts as selecting every namespace: namespaces are
not watched, and keeping a pod away is the safe side.

Source: pkg/scheduler/framework/plugins/interpodaffinity; docs/design/scheduling-cycle.md#predicates.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.events import Event
from scheduler.framework.plugin import Plugin, Reads
from scheduler.framework.pod_info import Fact, PodInfo
from scheduler.framework.status import SUCCESS, Status, unschedulable
from scheduler.model import NodeInfo, Pod
from scheduler.plugins.anti_affinity import (
    RepellingPod,
    repelling_pods,
    repelling_pods_in_steps,
    required_terms,
)
from scheduler.plugins.repelling import RepellingPods

NAME: Final = "InterPodAffinity"
Domain = tuple[str, str]  # label of nodes, value
_REASON: Final = Reason(
    kind=ReasonKind.POD_AFFINITY,
    message="node(s) didn't satisfy existing pods anti-affinity rules",
)


def repelled_from(pod: Pod, repelling: Iterable[RepellingPod]) -> frozenset[Domain]:
    """The domains, each a label with its value, that running pods keep this pod out of."""
    domains: set[Domain] = set()
    for other, labels in repelling:
        for term in required_terms(other):
            key = term.get("topologyKey", "")
            if key in labels and _selects(term, other, pod):
                domains.add((key, labels[key]))
    return frozenset(domains)


REPELLED_FROM: Final = Fact(
    "domains that running pods keep this pod out of",
    gather=repelling_pods,
    look_up=repelled_from,
    index=RepellingPods,
    gather_in_steps=repelling_pods_in_steps,
)


def filter_node(pod: PodInfo, node: NodeInfo) -> Status:
    """Refuse a node in a domain that a running pod keeps this pod out of; evicting that pod may help."""
    labels = node.for_allocator.labels
    for key, value in pod.fact(REPELLED_FROM):
        if labels.get(key) == value:
            return unschedulable(_REASON, NAME)
    return SUCCESS


def _selects(term: Mapping[str, Any], owner: Pod, pod: Pod) -> bool:
    """Whether a term of `owner` is about this pod: by namespace and by labels."""
    namespaces = term.get("namespaces") or ()
    selector = term.get("namespaceSelector")
    if selector is None and not namespaces:
        namespaces = (owner.metadata.namespace,)
    if selector is None and pod.metadata.namespace not in namespaces:
        return False
    return matches_labels(term.get("labelSelector"), pod.metadata.labels or {})


def matches_labels(selector: Any, labels: Mapping[str, str]) -> bool:
    """Whether a label selector, as it came, matches; none matches nothing, an empty one everything."""
    if not isinstance(selector, dict):
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_matches(each, labels) for each in selector.get("matchExpressions") or ())


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    found = labels.get(expression.get("key", ""))
    values = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case _:
            return False


PLUGIN: Final = Plugin(
    name=NAME,
    facts=(REPELLED_FROM,),
    filter=filter_node,
    events=Event.NODE_ADDED | Event.NODE_LABELS | Event.ROOM_FREED,
    reads=Reads(node=("for_allocator.labels",)),
)
