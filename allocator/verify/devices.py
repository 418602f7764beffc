"""One result against its request and its device."""

from typing import Any

from allocator.model.claims import ExactDeviceRequest
from allocator.verify.capacity import check_share
from allocator.verify.check import Check, Placed
from allocator.verify.selecting import check_selectors, is_here
from allocator.verify.slices import pool_problem


def check_device(check: Check, placed: Placed) -> None:
    """Check one result against its request and its device."""
    result, device, owner = placed.result, placed.found.device, placed.owner
    pool = placed.id.pool_id
    problem = pool_problem(pool, check.node, check.snapshot, check.features)
    if problem:
        check.fail("pool-usable", owner, f"pool {pool}: {problem}")
    if not is_here(check, placed.found):
        check.fail("device-on-node", owner, f"{placed.id} is for another node")
    check_selectors(check, placed)
    _gates(check, placed)
    if check.features.device_taints:
        for taint in device.taints or ():
            if taint.effect in {"NoSchedule", "NoExecute"} and not any(
                _covers(toleration, taint) for toleration in placed.spec.tolerations or ()
            ):
                check.fail("taints-tolerated", owner, f"{placed.id}: taint {taint.key}")
    if (result.tolerations or ()) != (placed.spec.tolerations or ()):
        check.fail("tolerations-copied", owner, f"{placed.id}: not those of the request")
    check_share(check, placed)
    _copies(check, placed)
    usage = check.snapshot.allocated.usage(pool)
    if not placed.is_admin and device.name in usage.devices:
        check.fail("device-free", owner, f"{placed.id} is in use")


def _gates(check: Check, placed: Placed) -> None:
    device, spec, features = placed.found.device, placed.spec, check.features
    wanted = isinstance(spec, ExactDeviceRequest) and bool(spec.admin_access)
    if wanted != placed.is_admin:
        check.fail("admin-access-as-asked", placed.owner, f"{placed.id}: asked for {wanted}")
    if placed.is_admin and not features.admin_access:
        check.fail("admin-access-gate", placed.owner, f"{placed.id}: the gate is off")
    if device.consumes_counters and not features.partitionable_devices:
        check.fail("counters-gate", placed.owner, f"{placed.id}: the gate is off")
    if device.binding_conditions and not features.binding:
        check.fail("binding-gate", placed.owner, f"{placed.id}: the gates are off")
    if check.is_experimental and placed.found.slice.spec.skip_node_operations:
        if not features.optional_node_operations:
            check.fail("node-operations-gate", placed.owner, f"{placed.id}: the gate is off")
        elif "DRAOptionalNodeOperations" not in check.node.declared_features:
            check.fail("node-operations-feature", placed.owner, f"{placed.id}: the node lacks it")


def _copies(check: Check, placed: Placed) -> None:
    """Check what a result repeats of its device."""
    device, result = placed.found.device, placed.result
    pairs = [
        ("binding_conditions", device.binding_conditions if check.features.binding else None),
        (
            "binding_failure_conditions",
            device.binding_failure_conditions if check.features.binding else None,
        ),
        (
            "skip_node_operations",
            placed.found.slice.spec.skip_node_operations if check.is_experimental else None,
        ),
    ]
    for name, want in pairs:
        if (getattr(result, name) or ()) != (want or ()):
            check.fail(name.replace("_", "-"), placed.owner, f"{placed.id}: not as the device says")


def _covers(toleration: Any, taint: Any) -> bool:
    return (
        toleration.effect in {"", taint.effect}
        and toleration.key in {"", taint.key}
        and (
            toleration.operator == "Exists"
            or (toleration.operator in {"", "Equal"} and toleration.value == taint.value)
        )
    )
