"""What a predicate or scorer says of itself. Everything else that has to know of it derives from this one value.

Source: the extension points of k8s.io/kube-scheduler/framework, under their names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from scheduler.framework.environment import Mode
from scheduler.framework.events import Event
from scheduler.framework.pod_info import Fact, PodInfo
from scheduler.framework.status import Status
from scheduler.model import NodeInfo, Pod

PreFilter = Callable[[Pod, Mode], Status]
Filter = Callable[[PodInfo, NodeInfo], Status]
Score = Callable[[PodInfo, NodeInfo], int]

STANDALONE_ONLY: Final = frozenset({Mode.STANDALONE})
IN_EVERY_MODE: Final = frozenset(Mode)


class Scale(Enum):
    """How raw scores of nodes become 0-100."""

    AS_IT_IS = "as it is"  # it is 0-100 already
    HIGHER_IS_BETTER = "higher is better"  # the highest becomes 100
    LOWER_IS_BETTER = "lower is better"  # the highest becomes 0


@dataclass(frozen=True, slots=True)
class Reads:
    """What a plugin reads, as attribute paths; a path stands for all below it. Tests compare it with what happens.

    Attributes:
        pod: of a `Pod`, such as `spec.tolerations`, by the filter, the scorer, and what they derive.
        node: of a `NodeInfo`, such as `node.spec.taints`.
    """

    pod: tuple[str, ...] = ()
    node: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plugin:
    """A predicate, a scorer, or both.

    Attributes:
        name: upstream's, unique; refusals carry it.
        modes: in which it runs; in extender mode kube-scheduler runs its own.
        pre_filter: looks at the pod alone, as it is, once an attempt; a refusal keeps it from every node.
        facts: what the filter or the scorer needs to know of the cluster beyond one node.
        filter: says whether the pod may run on one node; evicting pods may help, or not.
        score: how good one node is that fits.
        weight: of the score, upstream's default.
        scale: of the score.
        events: what may help a pod that it refused.
        reads: what filter and scorer read.
        is_about_devices: whether it refuses nodes that pass all other predicates.
        lists_shortages: whether its text is a list of resources, each of which counts for itself in messages.
    """

    name: str
    modes: frozenset[Mode] = STANDALONE_ONLY
    pre_filter: PreFilter | None = None
    facts: tuple[Fact[Any, Any], ...] = ()
    filter: Filter | None = None
    score: Score | None = None
    weight: int = 0
    scale: Scale = Scale.AS_IT_IS
    events: Event
    reads: Reads = Reads()
    is_about_devices: bool = False
    lists_shortages: bool = False
