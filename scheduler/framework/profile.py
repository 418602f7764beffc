"""The plugins that run together in one mode, in their order: what an attempt asks them.

Which devices a node has for the pod is no plugin's filter: that needs a search, which comes after all filters. Its
score takes part in the sum under the name and with the weight of the plugin for devices.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

from scheduler.framework.environment import Mode
from scheduler.framework.plugin import Plugin, Scale
from scheduler.framework.pod_info import Fact, PodInfo
from scheduler.framework.status import Code, Status
from scheduler.model import ClusterSnapshot, NodeInfo, Pod

MAX_SCORE: Final = 100

Scores = tuple[int, ...]
"""Raw scores of one node: how well its devices serve the pod, then one for each scorer."""

Gather = Callable[[Fact[Any, Any], ClusterSnapshot], Any]


def gather(fact: Fact[Any, Any], snapshot: ClusterSnapshot) -> Any:
    """What a fact needs of a snapshot, without any memory."""
    return fact.gather(snapshot)


class Profile:
    """What runs in one mode.

    Attributes:
        mode: which.
        facts: of all its plugins.
        scores_devices_alone: whether there is no other scorer.
    """

    def __init__(self, plugins: Iterable[Plugin], mode: Mode) -> None:
        """Pick the plugins of a mode.

        Args:
            plugins: all there are, in the order in which they run; one of them has the weight of devices.
            mode: which.
        """
        chosen = [plugin for plugin in plugins if mode in plugin.modes]
        self.mode = mode
        self.facts = tuple(fact for plugin in chosen for fact in plugin.facts)
        self._pre_filters = tuple(p.pre_filter for p in chosen if p.pre_filter is not None)
        self._filters = tuple(p.filter for p in chosen if p.filter is not None)
        self._scorers = tuple(p.score for p in chosen if p.score is not None)
        devices = (p for p in chosen if p.weight and p.score is None)
        weighty = (*devices, *(p for p in chosen if p.score is not None))
        self._weights = tuple((p.weight, p.scale) for p in weighty)
        self.scores_devices_alone = not self._scorers

    def pre_filter(self, pod: Pod) -> Status | None:
        """The first refusal that the pod alone is reason enough for; None: there is none."""
        for check in self._pre_filters:
            status = check(pod, self.mode)
            if status.code is not Code.SUCCESS:
                return status
        return None

    def look_up(
        self, pod: Pod, snapshot: ClusterSnapshot, gather: Gather = gather
    ) -> dict[str, Any]:
        """All facts about a pod, by name.

        Args:
            pod: as it is.
            snapshot: the cluster.
            gather: what a fact needs of it.
        """
        return {fact.name: fact.look_up(pod, gather(fact, snapshot)) for fact in self.facts}

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Status | None:
        """The first refusal of a node, its devices apart; None: all predicates pass."""
        for check in self._filters:
            status = check(pod, node)
            if status.code is not Code.SUCCESS:
                return status
        return None

    def scores(self, pod: PodInfo, node: NodeInfo, devices: int) -> Scores:
        """The raw scores of a node that fits, and whose devices are scored already."""
        return (devices, *[score(pod, node) for score in self._scorers])

    def weigh(self, raw: Iterable[Scores]) -> dict[Scores, int]:
        """Weighted sums of raw scores, each brought to 0-100 over all of them.

        Source: DefaultNormalizeScore of upstream's plugins.
        """
        different = list(dict.fromkeys(raw))
        columns = [
            _weighed(set(map(itemgetter(place), different)), weight, scale)
            for place, (weight, scale) in enumerate(self._weights)
        ]
        return {
            scores: sum([column[score] for column, score in zip(columns, scores, strict=True)])
            for scores in different
        }

    def scaled(self, raw: Mapping[Any, Scores]) -> dict[Any, int]:
        """The same as 0-100 in all, for each of several nodes."""
        whole = sum(weight for weight, _ in self._weights)
        weighed = {scores: score // whole for scores, score in self.weigh(raw.values()).items()}
        return {name: weighed[scores] for name, scores in raw.items()}


def _weighed(values: Iterable[int], weight: int, scale: Scale) -> dict[int, int]:
    most = max(values, default=0) or 1
    match scale:
        case Scale.AS_IT_IS:
            return {value: weight * value for value in values}
        case Scale.HIGHER_IS_BETTER:
            return {value: weight * (MAX_SCORE * value // most) for value in values}
        case Scale.LOWER_IS_BETTER:
            return {value: weight * (MAX_SCORE - MAX_SCORE * value // most) for value in values}
