"""Answering filter with the best few nodes only: kube-scheduler's work and the size of the answer no longer grow.

Only for pods whose place kube-scheduler's own soft preferences would not change: with a shortlist it can choose among
ours alone. Not to be used with another extender after us, which might refuse just these nodes.
Source: docs/design/extender.md#shortlist.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from scheduler.model import Pod

# The default topology spread (ScheduleAnyway) applies to what these own.
_SPREAD_BY_DEFAULT: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})


def may_shorten(pod: Pod) -> bool:
    """Whether no soft preference of the pod could choose a node that we leave out."""
    controller = pod.metadata.controller
    if controller is not None and controller.kind in _SPREAD_BY_DEFAULT:
        return False
    spread = pod.spec.topology_spread_constraints or ()
    if any(_is_soft(constraint) for constraint in spread):
        return False
    affinity = pod.spec.affinity
    if affinity is None:
        return True
    soft = "preferredDuringSchedulingIgnoredDuringExecution"
    node = affinity.node_affinity
    return not (
        (node is not None and node.preferred_during_scheduling_ignored_during_execution)
        or (affinity.pod_affinity or {}).get(soft)
        or (affinity.pod_anti_affinity or {}).get(soft)
    )


def _is_soft(constraint: Any) -> bool:
    return isinstance(constraint, dict) and constraint.get("whenUnsatisfiable") == "ScheduleAnyway"


def best_nodes(
    names: Sequence[str], groups: Iterable[tuple[int, Sequence[str]]], most: int
) -> Sequence[str]:
    """The best nodes by our score, at most so many, in the order they were asked about; equals: the first ones.

    Args:
        names: of all nodes that fit.
        groups: their names by score, higher is better; one score may come several times.
        most: how many.
    """
    by_score: dict[int, set[str]] = {}
    for score, group in groups:
        by_score.setdefault(score, set()).update(group)
    best: set[str] = set()
    for score in sorted(by_score, reverse=True):
        room = most - len(best)
        equals = by_score[score]
        if len(equals) > room:
            best.update(islice((name for name in names if name in equals), room))
            break
        best |= equals
    return [name for name in names if name in best]
