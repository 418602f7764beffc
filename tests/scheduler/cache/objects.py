"""Objects with versions, as a watch delivers them."""

from typing import Any

import msgspec

from allocator.model.claims import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from scheduler.cache.store import EventType, WatchEvent, meta_of
from scheduler.model import ClaimRecord, Kind, NodeObject, Pod
from tests.builders import claim, used


def at(item: Any, version: int, uid: str | None = None) -> Any:
    """The same object at a version (and with a UID)."""
    changes = {"resource_version": str(version)} | ({} if uid is None else {"uid": uid})
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, **changes))


def allocation(*results: DeviceRequestAllocationResult | str) -> AllocationResult:
    """An allocation of these results; a text is a whole device."""
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=tuple(used(item) if isinstance(item, str) else item for item in results)
        )
    )


def record(
    name: str, version: int, *results: DeviceRequestAllocationResult | str, uid: str | None = None
) -> ClaimRecord:
    """A claim as the watch has it; with results it is allocated."""
    made: ResourceClaim = claim(name, allocation=allocation(*results) if results else None)
    made = at(made, version, uid)
    return ClaimRecord(made, b"{}")


def event(
    item: ClaimRecord | Pod | NodeObject | Any, kind: Kind, type_: str = "MODIFIED"
) -> WatchEvent:
    """An event about an object."""
    version = int(meta_of(item).resource_version or 0)
    return WatchEvent(kind, EventType(type_), item, version)


def bookmark(kind: Kind, version: int) -> WatchEvent:
    """A bookmark."""
    return WatchEvent(kind, EventType.BOOKMARK, None, version)
