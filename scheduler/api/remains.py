"""What stands for an object that cannot be read: all of it that can be, marked, and on the safe side where that matters.

The cache adds what it knew of the object before (`scheduler.cache.unreadable`).
"""

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import asdict, replace

from allocator.model.devices import DeviceTaintSelector, ResourceSliceSpec
from scheduler.api.lenient import Reading
from scheduler.api.projection import strip_unread
from scheduler.api.walk import FieldError
from scheduler.model import (
    ClaimRecord,
    Kind,
    Unreadable,
    UnreadableClaim,
    UnreadableClass,
    UnreadableNode,
    UnreadablePod,
    UnreadableRule,
    UnreadableSlice,
    Watched,
)

_TYPES: Final[dict[str, type[Unreadable]]] = {
    Kind.NODE: UnreadableNode,
    Kind.POD: UnreadablePod,
    Kind.RESOURCE_CLAIM: UnreadableClaim,
    Kind.RESOURCE_SLICE: UnreadableSlice,
    Kind.DEVICE_CLASS: UnreadableClass,
    Kind.DEVICE_TAINT_RULE: UnreadableRule,
}
# A slice that cannot be read is as one of a newer generation of its pool, of which the rest has not come yet: upstream's
# own rule then keeps every node from the pool.
_NEWEST: Final = 2**62
_NEVER_COMPLETE: Final = -1


def remains(kind: str, reading: Reading) -> Watched | None:
    """What is left of an object that has problems; None: nothing that could be told from others, or of another kind."""
    type_ = _TYPES.get(kind)
    if type_ is None or reading.decoded is None:
        return None
    first = reading.problems[0]
    problem = f"{first.path}: {first.problem}" if first.path else first.problem
    lost = lost_fields(reading.problems)
    found: Any = type_(**asdict(reading.decoded), problem=problem, lost=lost)
    match found:
        case UnreadableClaim():
            return ClaimRecord(found, reading.raw)
        case UnreadableSlice():
            return replace(found, spec=_never_complete(found.spec))
        case UnreadableRule():
            return replace(found, spec=_as_wide_as_may_be(found))
        case _:
            strip_unread(found)
            item: Watched = found
            return item


def lost_fields(problems: Iterable[FieldError]) -> tuple[str, ...]:
    """The fields that are not, or not wholly, there; of lists and maps the field itself. An empty path: everything."""
    paths = (problem.path.partition("[")[0] for problem in problems)
    # In an unknown version, fields may mean something else.
    return tuple(dict.fromkeys("" if path == "apiVersion" else path for path in paths))


def _never_complete(spec: ResourceSliceSpec) -> ResourceSliceSpec:
    """A slice that keeps every node from its pool; what can be read of its devices is for those who want to know why."""
    pool = replace(spec.pool, generation=_NEWEST, resource_slice_count=_NEVER_COMPLETE)
    return replace(spec, pool=pool, shared_counters=None)


def _as_wide_as_may_be(rule: UnreadableRule) -> Any:
    """A condition that cannot be read is taken for fulfilled, an effect that cannot be read for one that keeps pods away."""
    selector, taint = rule.spec.device_selector, rule.spec.taint
    if selector is None and any("spec.deviceSelector".startswith(path) for path in rule.lost):
        selector = DeviceTaintSelector()
    if any("spec.taint.effect".startswith(path) for path in rule.lost):
        taint = replace(taint, effect=taint.effect or "NoSchedule")
    return replace(rule.spec, device_selector=selector, taint=taint)
