"""How full the cluster is: pools, devices and claims, what is free, used and fragmented. Plain data."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.model.claims import ResourceClaim
from allocator.model.devices import Device, DeviceID, PoolID, ResourceSlice
from allocator.quantity import Quantity
from allocator.snapshot import not_negative


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device.

    Attributes:
        device: the device.
        node: its node; empty: several or all.
        state: `free`, `used` (as a whole), or `shared` (parts of it are).
        claims: who holds it, as `namespace/name`; admin access holds nothing.
        left: capacity name → what is not consumed; only for devices that can be shared.
        taints: `key=value:effect`.
    """

    device: DeviceID
    node: str
    state: str
    claims: tuple[str, ...]
    left: Mapping[str, Quantity]
    taints: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """One pool in its newest generation."""

    pool: PoolID
    node: str
    devices: int
    used: int
    shared: int
    is_complete: bool

    @property
    def free(self) -> int:
        """Devices that nobody uses any of."""
        return self.devices - self.used - self.shared


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRow:
    """All pools of a driver.

    Attributes:
        driver: its name.
        devices: of all its pools.
        free: devices that nobody uses any of.
        largest: most free devices in one pool.
    """

    driver: str
    devices: int
    free: int
    largest: int

    @property
    def fragmentation(self) -> float:
        """Share of the free devices that lie outside the pool with most of them: 0 is all together."""
        return 1 - self.largest / self.free if self.free else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """One claim.

    Attributes:
        claim: `namespace/name`.
        state: `pending`, `allocated` (nobody uses it), or `reserved`.
        devices: those it holds.
        consumers: who may use it.
    """

    claim: str
    state: str
    devices: tuple[DeviceID, ...]
    consumers: tuple[str, ...]


def device_rows(
    slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]
) -> list[DeviceRow]:
    """All devices of the newest generation of each pool, in order of pool, slice and device."""
    holders, shares, consumed = _uses(claims)
    rows = []
    for each in _newest(slices):
        for device in each.spec.devices or ():
            device_id = DeviceID(*each.pool_id, device.name)
            held_by = tuple(dict.fromkeys(holders.get(device_id, ())))
            state = "free"
            if held_by:
                state = "shared" if device_id in shares else "used"
            rows.append(
                DeviceRow(
                    device=device_id,
                    node=each.spec.node_name or device.node_name or "",
                    state=state,
                    claims=held_by,
                    left=_left(device, consumed.get(device_id, {})),
                    taints=tuple(
                        f"{taint.key}={taint.value}:{taint.effect}" for taint in device.taints or ()
                    ),
                )
            )
    return rows


_Uses = tuple[dict[DeviceID, list[str]], set[DeviceID], dict[DeviceID, dict[str, Quantity]]]


def _uses(claims: Iterable[ResourceClaim]) -> _Uses:
    holders: dict[DeviceID, list[str]] = {}
    shares: set[DeviceID] = set()
    consumed: dict[DeviceID, dict[str, Quantity]] = {}
    for claim in claims:
        allocation = claim.status.allocation
        for result in () if allocation is None else allocation.devices.results or ():
            if result.admin_access:
                continue
            holders.setdefault(result.device_id, []).append(claim.key)
            if result.share_id is None:
                continue
            shares.add(result.device_id)
            total = consumed.setdefault(result.device_id, {})
            for name, amount in not_negative(result.consumed_capacity or {}).items():
                total[name] = total[name] + amount if name in total else amount
    return holders, shares, consumed


def _left(device: Device, consumed: Mapping[str, Quantity]) -> dict[str, Quantity]:
    if not device.allow_multiple_allocations:
        return {}
    return {
        name: capacity.value - consumed[name] if name in consumed else capacity.value
        for name, capacity in (device.capacity or {}).items()
    }


def _newest(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    known = sorted(slices, key=lambda each: (each.pool_id, each.metadata.name))
    generations: dict[PoolID, int] = {}
    for each in known:
        newest = generations.get(each.pool_id, each.spec.pool.generation)
        generations[each.pool_id] = max(newest, each.spec.pool.generation)
    return [each for each in known if each.spec.pool.generation == generations[each.pool_id]]


def pool_rows(slices: Sequence[ResourceSlice], devices: Iterable[DeviceRow]) -> list[PoolRow]:
    """All pools, by driver and name."""
    states: dict[PoolID, list[str]] = {}
    for row in devices:
        states.setdefault(row.device.pool_id, []).append(row.state)
    members: dict[PoolID, list[ResourceSlice]] = {}
    for each in _newest(slices):
        members.setdefault(each.pool_id, []).append(each)
    rows = []
    for pool, group in members.items():
        nodes = {each.spec.node_name or "" for each in group}
        of_pool = states.get(pool, [])
        rows.append(
            PoolRow(
                pool=pool,
                node=nodes.pop() if len(nodes) == 1 else "",
                devices=len(of_pool),
                used=of_pool.count("used"),
                shared=of_pool.count("shared"),
                is_complete=len(group) == group[0].spec.pool.resource_slice_count,
            )
        )
    return rows


def driver_rows(pools: Iterable[PoolRow]) -> list[DriverRow]:
    """Sums by driver, in name order."""
    by_driver: dict[str, list[PoolRow]] = {}
    for row in pools:
        by_driver.setdefault(row.pool.driver, []).append(row)
    return [
        DriverRow(
            driver=driver,
            devices=sum(row.devices for row in rows),
            free=sum(row.free for row in rows),
            largest=max(row.free for row in rows),
        )
        for driver, rows in sorted(by_driver.items())
    ]


def claim_rows(claims: Iterable[ResourceClaim]) -> list[ClaimRow]:
    """All claims, by namespace and name."""
    rows = []
    for claim in sorted(claims, key=lambda each: each.key):
        allocation = claim.status.allocation
        results = () if allocation is None else allocation.devices.results or ()
        consumers = tuple(
            f"{consumer.resource}/{consumer.name}" for consumer in claim.status.reserved_for or ()
        )
        state = "pending" if allocation is None else "reserved" if consumers else "allocated"
        rows.append(
            ClaimRow(
                claim=claim.key,
                state=state,
                devices=tuple(result.device_id for result in results),
                consumers=consumers,
            )
        )
    return rows


def devices_tree(rows: Iterable[DeviceRow]) -> dict[str, Any]:
    """Devices as plain data."""
    return {
        "devices": [
            {
                **_device_tree(row.device),
                "node": row.node or None,
                "state": row.state,
                "claims": list(row.claims),
                "left": {name: str(amount) for name, amount in row.left.items()},
                "taints": list(row.taints),
            }
            for row in rows
        ]
    }


def _device_tree(device: DeviceID) -> dict[str, str]:
    return {"driver": device.driver, "pool": device.pool, "device": device.device}


def pools_tree(pools: Sequence[PoolRow]) -> dict[str, Any]:
    """Pools and drivers as plain data."""
    return {
        "pools": [
            {
                "driver": row.pool.driver,
                "pool": row.pool.name,
                "node": row.node or None,
                "devices": row.devices,
                "free": row.free,
                "used": row.used,
                "shared": row.shared,
                "complete": row.is_complete,
            }
            for row in pools
        ],
        "drivers": [
            {
                "driver": row.driver,
                "devices": row.devices,
                "free": row.free,
                "largestFreePool": row.largest,
                "fragmentation": round(row.fragmentation, 3),
            }
            for row in driver_rows(pools)
        ],
    }


def claims_tree(rows: Iterable[ClaimRow]) -> dict[str, Any]:
    """Claims as plain data."""
    return {
        "claims": [
            {
                "claim": row.claim,
                "state": row.state,
                "devices": [_device_tree(device) for device in row.devices],
                "consumers": list(row.consumers),
            }
            for row in rows
        ]
    }
