"""TaintToleration: untolerated NoSchedule and NoExecute taints exclude a node, PreferNoSchedule taints lower its score.

Source: pkg/scheduler/framework/plugins/tainttoleration; k8s.io/api/core/v1 Toleration.ToleratesTaint.
"""

from collections.abc import Iterable
from typing import Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.events import Event
from scheduler.framework.plugin import Plugin, Reads, Scale
from scheduler.framework.pod_info import PodInfo
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.model import NodeInfo, Taint, Toleration

NAME: Final = "TaintToleration"
_REASON: Final = Reason(
    kind=ReasonKind.NODE_TAINTED, message="node(s) had taints that the pod didn't tolerate"
)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint.

    An empty effect covers all effects; an empty key all keys, which only makes sense with Exists. Operators Lt and Gt
    exist behind an alpha gate and cover nothing here.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return (
        toleration.operator in ("", "Equal")
        and toleration.key == taint.key
        and toleration.value == taint.value
    )


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration] | None) -> bool:
    """Whether any toleration covers the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations or ())


def filter_node(pod: PodInfo, node: NodeInfo) -> Status:
    """Refuse a node with a NoSchedule or NoExecute taint that the pod does not tolerate."""
    for taint in node.node.spec.taints or ():
        if taint.effect in ("NoSchedule", "NoExecute") and not is_tolerated(
            taint, pod.spec.tolerations
        ):
            return unresolvable(_REASON, NAME)
    return SUCCESS


def score_node(pod: PodInfo, node: NodeInfo) -> int:
    """Count the PreferNoSchedule taints that the pod does not tolerate; fewer is better."""
    taints = [taint for taint in node.node.spec.taints or () if taint.effect == "PreferNoSchedule"]
    if not taints:
        return 0
    soft = [t for t in pod.spec.tolerations or () if t.effect in ("", "PreferNoSchedule")]
    return sum(not is_tolerated(taint, soft) for taint in taints)


PLUGIN: Final = Plugin(
    name=NAME,
    filter=filter_node,
    score=score_node,
    weight=3,
    scale=Scale.LOWER_IS_BETTER,
    events=Event.NODE_ADDED | Event.NODE_TAINTS,
    reads=Reads(pod=("spec.tolerations",), node=("node.spec.taints",)),
)
