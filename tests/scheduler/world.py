"""A cluster for tests of decisions: the real cache, filled by hand, and an environment without surprises."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from allocator.cel import Compiler
from allocator.features import Features
from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent
from scheduler.engine import Attempt, Engine
from scheduler.engine.results import SharedResult
from scheduler.framework.environment import Environment, Mode
from scheduler.model import (
    ClaimRecord,
    Kind,
    NodeAllocatableResourceClaimStatus,
    NodeObject,
    Pod,
    Watched,
)
from tests.builders import device_class, gpu_slice, share_id_of
from tests.pods import node_object

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)

KINDS: dict[type, Kind] = {
    NodeObject: Kind.NODE,
    Pod: Kind.POD,
    ResourceClaim: Kind.RESOURCE_CLAIM,
    ResourceSlice: Kind.RESOURCE_SLICE,
    DeviceClass: Kind.DEVICE_CLASS,
    DeviceTaintRule: Kind.DEVICE_TAINT_RULE,
}


def environment(mode: Mode = Mode.STANDALONE, **settings: Any) -> Environment:
    return Environment(
        **{
            "features": Features(),
            "cel": Compiler(),
            "now": lambda: NOW,
            "new_share_id": share_id_of,
            "mode": mode,
            **settings,
        }
    )


def filtered(engine: Engine, attempt: Attempt, names: Iterable[str] | None = None) -> SharedResult:
    """What nodes say, where no search takes long."""
    result = engine.filter_nodes(attempt, names)
    assert isinstance(result, SharedResult)
    return result


class World:
    """A cluster that a test changes object by object; every change has a resourceVersion of its own."""

    def __init__(self, *objects: Any, silent_is_unlimited: bool = False) -> None:
        self.cache = ClusterCache(counts_claims=True, silent_is_unlimited=silent_is_unlimited)
        self._version = 0
        self.put(*objects)

    def put(self, *objects: Any) -> None:
        """Add or replace objects."""
        for each in objects:
            self._apply(each, EventType.MODIFIED)

    def remove(self, *objects: Any) -> None:
        for each in objects:
            self._apply(each, EventType.DELETED)

    def _apply(self, each: Any, type_: EventType) -> None:
        self._version += 1
        meta = msgspec.structs.replace(each.metadata, resource_version=str(self._version))
        if not meta.uid:
            meta = msgspec.structs.replace(meta, uid=f"uid-{meta.name}")
        item: Watched = msgspec.structs.replace(each, metadata=meta)
        kind = KINDS[type(each)]
        if isinstance(item, ResourceClaim):
            item = ClaimRecord(item, b"{}")
        self.cache.apply(WatchEvent(kind, type_, item, self._version))

    def bind(
        self,
        pod: Pod,
        node_name: str,
        allocations: dict[str, AllocationResult],
        demand: tuple[NodeAllocatableResourceClaimStatus, ...] = (),
    ) -> None:
        """Write a decision: claims allocated, pod on its node."""
        for uid, allocation in allocations.items():
            record = self.cache.claim_by_uid(uid)
            assert record is not None
            status = msgspec.structs.replace(record.claim.status, allocation=allocation)
            self.put(msgspec.structs.replace(record.claim, status=status))
        spec = msgspec.structs.replace(pod.spec, node_name=node_name)
        told = msgspec.structs.replace(
            pod.status, node_allocatable_resource_claim_statuses=demand or None
        )
        self.put(msgspec.structs.replace(pod, spec=spec, status=told))


def gpu_nodes(count: int, gpus: int = 2, **attributes: Any) -> Iterable[Any]:
    """Equal nodes `n00`, `n01`, …, each with a slice of GPUs, and the class for them."""
    yield device_class()
    for number in range(count):
        name = f"n{number:02}"
        yield node_object(name)
        yield gpu_slice(name, *(f"gpu-{index}" for index in range(gpus)), **attributes)
