"""An object that cannot be read, together with what was known of it: what it held stays held, and what it was it stays.

What can be read is the newest truth. For the rest the version before stands in, and where two versions may both be true
(which devices a claim holds, who may use it) both count: too much held costs one device for a while, too little gives a
device twice.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from allocator.model.claims import (
    AllocationResult,
    DeviceAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from allocator.model.meta import ObjectMeta
from scheduler.model import (
    ClaimRecord,
    Pod,
    Unreadable,
    UnreadableClaim,
    UnreadableClass,
    UnreadablePod,
    UnreadableRule,
    UnreadableSlice,
    Watched,
    unreadable,
)

T = TypeVar("T")


def identified(meta: ObjectMeta, known: ObjectMeta | None) -> ObjectMeta:
    """Who an object is whose name or UID may be missing.

    Args:
        meta: as far as it could be read.
        known: of the object that is known under this UID, or under this name if there is no UID.

    Returns:
        The metadata with name and UID. Without a name: nobody can tell.
    """
    if known is not None:
        is_whole = (meta.name, meta.namespace, meta.uid) == (known.name, known.namespace, known.uid)
        names = {"name": known.name, "namespace": known.namespace, "uid": known.uid}
        return meta if is_whole else replace(meta, **names)
    return meta if meta.uid else replace(meta, uid=f"unknown {meta.namespace}/{meta.name}")


def with_meta(item: Watched, meta: ObjectMeta) -> Watched:
    """The same object under these metadata."""
    if isinstance(item, ClaimRecord):
        return ClaimRecord(replace(item.claim, metadata=meta), item.raw)
    return cast("Watched", replace(item, metadata=meta))


def carried_over(known: Watched | None, item: Watched) -> Watched:
    """An object that cannot be read, with what the version before (of the same UID) says of what is lost.

    Args:
        known: the version before, itself readable or not; None: there is none.
        item: the newest version.
    """
    partial = unreadable(item)
    if partial is None or known is None or known is item:
        return item
    whole: Watched = item
    match partial, known:
        case UnreadableClaim(), ClaimRecord() if isinstance(item, ClaimRecord):
            status = _claim_status(partial, known.claim.status)
            claim = _with_spec(replace(partial, status=status), known.claim)
            whole = ClaimRecord(claim, item.raw)
        case UnreadablePod(), Pod():
            whole = _pod(partial, known)
        case UnreadableSlice(), _:
            whole = _slice(partial, known)
        case UnreadableClass(), _:
            name = "spec.extendedResourceName"
            whole = _from(partial, known, name, "extended_resource_name")
        case UnreadableRule(), _:
            whole = _rule(partial, known)
        case _:  # a node: nothing of it is used
            pass
    return whole


def is_lost(item: Unreadable, field: str) -> bool:
    """Whether something in a field, or what the field is in, cannot be read."""
    return any(
        not path or path == field or path.startswith(f"{field}.") or field.startswith(f"{path}.")
        for path in item.lost
    )


def _from(item: Any, known: Any, path: str, *names: str) -> Any:
    """Take some fields of the spec from the version before, if one is lost."""
    if not is_lost(item, path):
        return item
    taken = {name: getattr(known.spec, name) for name in names}
    return replace(item, spec=replace(item.spec, **taken))


def _with_spec(item: UnreadableClaim, known: ResourceClaim) -> UnreadableClaim:
    """What a claim asks for never changes: if it was known, it is."""
    if not is_lost(item, "spec") or (isinstance(known, UnreadableClaim) and is_lost(known, "spec")):
        return item
    lost = tuple(path for path in item.lost if path and not path.startswith("spec"))
    return replace(item, spec=known.spec, lost=lost)


def _claim_status(item: UnreadableClaim, known: ResourceClaimStatus) -> ResourceClaimStatus:
    status = item.status
    if is_lost(item, "status.allocation"):
        status = replace(status, allocation=_both(status.allocation, known.allocation))
    if is_lost(item, "status.reservedFor"):
        reserved = _united(status.reserved_for, known.reserved_for, lambda each: each.uid)
        status = replace(status, reserved_for=reserved)
    if is_lost(item, "status.devices"):
        status = replace(status, devices=known.devices)
    return status


def _both(new: AllocationResult | None, known: AllocationResult | None) -> AllocationResult | None:
    """Everything that the claim may hold."""
    if new is None or known is None:
        return new or known
    results = _united(
        new.devices.results, known.devices.results, lambda each: (each.device_id, each.share_id)
    )
    return AllocationResult(
        devices=DeviceAllocationResult(results=results),
        node_selector=new.node_selector or known.node_selector,
        allocation_timestamp=new.allocation_timestamp or known.allocation_timestamp,
    )


def _united(
    new: tuple[T, ...] | None, known: tuple[T, ...] | None, key: Callable[[T], Hashable]
) -> tuple[T, ...] | None:
    here = {key(each) for each in new or ()}
    return (*(new or ()), *(each for each in known or () if key(each) not in here)) or None


def _pod(item: UnreadablePod, known: Pod) -> UnreadablePod:
    """Where it runs and how it ended is taken from the newest version, if that says so; else it counts as before."""
    spec, status = item.spec, item.status
    if is_lost(item, "spec"):
        spec = replace(
            known.spec,
            node_name=spec.node_name or known.spec.node_name,
            scheduler_name=spec.scheduler_name or known.spec.scheduler_name,
        )
    if is_lost(item, "status"):
        status = replace(known.status, phase=status.phase or known.status.phase)
    return replace(item, spec=spec, status=status)


def _slice(item: Any, known: Any) -> UnreadableSlice:
    """Which pool it is part of, which nodes see it, and which devices it had, if none can be read."""
    item = _from(item, known, "spec.driver", "driver")
    scope = "node_name", "node_selector", "all_nodes", "per_device_node_selection"
    for path in ("spec.nodeName", "spec.nodeSelector", "spec.allNodes"):
        if is_lost(item, path):
            item = _from(item, known, path, *scope)
            break
    if not item.spec.devices:
        item = _from(item, known, "spec.devices", "devices")
    if is_lost(item, "spec.pool.name"):
        pool = replace(item.spec.pool, name=known.spec.pool.name)
        item = replace(item, spec=replace(item.spec, pool=pool))
    return cast("UnreadableSlice", item)


def _rule(item: UnreadableRule, known: Any) -> UnreadableRule:
    """A selector or taint of which nothing is left is the one before: it goes on keeping pods away from the same devices."""
    spec = item.spec
    if any("spec.deviceSelector".startswith(path) for path in item.lost):
        spec = replace(spec, device_selector=known.spec.device_selector)
    if any("spec.taint".startswith(path) for path in item.lost):
        spec = replace(spec, taint=known.spec.taint)
    return replace(item, spec=spec)
