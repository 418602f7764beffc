"""What claims may not do to one another."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from allocator.model.devices import Device, DeviceID, PoolID
from allocator.verify.capacity import is_shareable
from allocator.verify.check import Check, Placed
from allocator.verify.slices import whole


def check_together(check: Check) -> None:
    """Check what claims may not do to one another."""
    _exclusive_use(check)
    _share_ids(check)
    _capacity_left(check)
    _counters_left(check)
    if check.is_experimental and check.features.device_compatibility_groups:
        _groups_agree(check)


def _exclusive_use(check: Check) -> None:
    plain = [p for p in check.placed if not p.is_admin]
    for left, right in combinations(plain, 2):
        if (
            left.id == right.id
            and left.claim != right.claim
            and not is_shareable(check, left.found.device)
        ):
            check.fail("device-given-once", None, f"{left.id}")


def _share_ids(check: Check) -> None:
    seen: set[tuple[DeviceID, str]] = set()
    for placed in check.placed:
        share = placed.result.share_id
        if share is None:
            continue
        usage = check.snapshot.allocated.usage(placed.id.pool_id)
        if (placed.id, share) in seen or share in usage.shares.get(placed.id.device, ()):
            check.fail("share-id-fresh", placed.owner, f"{placed.id}: {share}")
        seen.add((placed.id, share))


def _capacity_left(check: Check) -> None:
    if not check.features.consumable_capacity:
        return
    for device_id in dict.fromkeys(placed.id for placed in check.placed):
        on_it = [placed for placed in check.placed if placed.id == device_id]
        usage = check.snapshot.allocated.usage(device_id.pool_id)
        others = usage.consumed.get(device_id.device, {})
        for name, capacity in (on_it[0].found.device.capacity or {}).items():
            total = others[name].nanos if name in others else 0
            for placed in on_it:
                recorded = placed.result.consumed_capacity or {}
                total += max(0, recorded[name].nanos) if name in recorded else 0
            if total > capacity.value.nanos:
                check.fail("capacity-left", on_it[0].owner, f"{device_id}: {name}")


def _counters_left(check: Check) -> None:
    consuming = [p for p in check.placed if p.found.device.consumes_counters]
    for pool in dict.fromkeys(placed.id.pool_id for placed in consuming):
        total = {
            (counter_set.name, name): counter.value.nanos
            for one in whole(pool, check.node, check.snapshot, check.features)
            for counter_set in one.spec.shared_counters or ()
            for name, counter in (counter_set.counters or {}).items()
        }
        if not _charges_any(check, pool, consuming):
            continue
        for device in _charged(check, pool, consuming):
            for entry in device.consumes_counters or ():
                for name, counter in (entry.counters or {}).items():
                    key = (entry.counter_set, name)
                    total[key] = total.get(key, 0) - max(0, counter.value.nanos)
        for (set_name, name), left in total.items():
            if left < 0:
                check.fail("counters-left", None, f"pool {pool}: {set_name}/{name}")


def _is_allocated(check: Check, pool: PoolID, name: str) -> bool:
    usage = check.snapshot.allocated.usage(pool)
    shared = name in usage.shares or name in usage.consumed
    return name in usage.devices or (shared and not check.is_stable)


def _charges_any(check: Check, pool: PoolID, consuming: Sequence[Placed]) -> bool:
    return any(p.id.pool_id == pool and _charges(check, p) for p in consuming)


def _charges(check: Check, placed: Placed) -> bool:
    """Say whether a placement pays for counters: not if others share the device, they have paid."""
    if not is_shareable(check, placed.found.device):
        return True
    usage = check.snapshot.allocated.usage(placed.id.pool_id)
    return placed.id.device not in usage.shares and placed.id.device not in usage.consumed


def _charged(check: Check, pool: PoolID, consuming: Sequence[Placed]) -> Iterator[Device]:
    for one in whole(pool, check.node, check.snapshot, check.features):
        for device in one.spec.devices or ():
            if _is_allocated(check, pool, device.name):
                yield device
    paid: set[DeviceID] = set()
    for placed in consuming:
        if placed.id.pool_id != pool or not _charges(check, placed) or placed.id in paid:
            continue
        yield placed.found.device
        if is_shareable(check, placed.found.device):
            paid.add(placed.id)


def _groups_agree(check: Check) -> None:
    for pool in dict.fromkeys(placed.id.pool_id for placed in check.placed):
        before: dict[str, list[frozenset[str]]] = {}
        for one in whole(pool, check.node, check.snapshot, check.features):
            for device in one.spec.devices or ():
                if _is_allocated(check, pool, device.name):
                    _add_groups(before, device)
        after = {name: list(groups) for name, groups in before.items()}
        for placed in check.placed:
            if placed.id.pool_id == pool:
                _add_groups(after, placed.found.device)
        for name, groups in after.items():
            if not _agree(groups) and _agree(before.get(name, [])):
                check.fail("compatibility-groups", None, f"pool {pool}: counter set {name}")


def _add_groups(into: dict[str, list[frozenset[str]]], device: Device) -> None:
    for entry in device.consumes_counters or ():
        into.setdefault(entry.counter_set, []).append(frozenset(entry.compatibility_groups or ()))


def _agree(groups: Sequence[frozenset[str]]) -> bool:
    """Say whether devices may be together: none has groups, or all have one in common."""
    return not any(groups) or bool(frozenset.intersection(*groups))
