"""What many verdicts come to: is there a node, and if not, why; and the texts that tell a person.

The same sums for the plain cycle, the engine, and whoever puts parts of an answer together.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.cycle_state import FilterResult, NodeVerdict
from scheduler.framework.status import Code, Status, error, unresolvable
from scheduler.plugins import ABOUT_DEVICES, LISTING_SHORTAGES

NO_NODES: Final = unresolvable(
    Reason(kind=ReasonKind.NO_NODES, message="no nodes available to schedule pods")
)
UNKNOWN_NODE: Final = NodeVerdict(
    error(Reason(kind=ReasonKind.NOT_READY, message="node(s) not known yet"))
)
Refusals = tuple[tuple[Status, int], ...]
"""The different refusals, each with the number of nodes that say so."""


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
    """The pod's own reason, by the rule of docs/reference/reasons.md#which-reason; None if some node fits."""
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
