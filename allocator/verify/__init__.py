"""An independent check of finished allocations: what is wrong with them, if anything.

It shares no code with the search and takes no notice of how devices were found: it looks at the claims, the results and
the snapshot, and says which rules are broken. Tests, the binder (before it writes) and explanations use it.

What it does not say: whether these are the devices that Kubernetes would have chosen; another valid choice passes.
"""

from collections.abc import Sequence
from typing import Final

from allocator.cel import Compiler
from allocator.features import Features
from allocator.model.claims import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from allocator.model.devices import DeviceID
from allocator.model.nodes import Node
from allocator.snapshot import Snapshot
from allocator.verify.check import Check, Found, Placed, Violation
from allocator.verify.constraints import check_constraint
from allocator.verify.devices import check_device
from allocator.verify.requests import check_counts, check_not_twice, spec_of
from allocator.verify.slices import current
from allocator.verify.together import check_together
from allocator.verify.written import check_config, check_node_selector

__all__ = ["Violation", "verify"]

_MAX_RESULTS: Final = 32


def verify(
    claims: Sequence[ResourceClaim],
    allocations: Sequence[AllocationResult],
    node: Node,
    snapshot: Snapshot,
    *,
    features: Features,
    cel: Compiler,
) -> list[Violation]:
    """Check the allocations of a pod's claims for a node.

    Args:
        claims: the claims, in any order.
        allocations: one for each claim, in the same order.
        node: where the pod is to run.
        snapshot: the cluster *without* these allocations.
        features: the gates.
        cel: compiles selectors.

    Returns:
        The broken rules, in the order of claims and results; empty when all is well.
    """
    if len(claims) != len(allocations):
        return [
            Violation(
                "one-allocation-a-claim",
                "",
                f"{len(claims)} claims, {len(allocations)} allocations",
            )
        ]
    check = Check(node, snapshot, features, cel)
    for index, (claim, allocation) in enumerate(zip(claims, allocations, strict=True)):
        _check_claim(check, index, claim, allocation)
    check_together(check)
    return check.violations


def _check_claim(
    check: Check, index: int, claim: ResourceClaim, allocation: AllocationResult
) -> None:
    """Check one claim by itself."""
    results = allocation.devices.results or ()
    if len(results) > _MAX_RESULTS:
        check.fail("at-most-32-results", claim, f"{len(results)} results")
    mine = []
    for result in results:
        placed = _resolve(check, index, claim, result)
        if placed is not None:
            mine.append(placed)
            check_device(check, placed)
    check.placed += mine
    chosen = check_counts(check, claim, results)
    for constraint in claim.spec.devices.constraints or ():
        check_constraint(check, claim, constraint, mine)
    check_config(check, claim, allocation, chosen)
    check_node_selector(check, claim, allocation, mine)
    check_not_twice(check, claim, mine)


def _resolve(
    check: Check, index: int, claim: ResourceClaim, result: DeviceRequestAllocationResult
) -> Placed | None:
    spec = spec_of(claim, result.request)
    if spec is None:
        check.fail("request-exists", claim, f"no request {result.request}")
        return None
    device_class = check.snapshot.classes.get(spec.device_class_name)
    if device_class is None:
        check.fail("class-exists", claim, f"no device class {spec.device_class_name}")
        return None
    found = _find(check, result.device_id)
    if found is None:
        check.fail(
            "device-exists", claim, f"{result.device_id} is not there for node {check.node.name}"
        )
        return None
    return Placed(index, claim, result, spec, device_class, found)


def _find(check: Check, device_id: DeviceID) -> Found | None:
    for one in current(device_id.pool_id, check.node, check.snapshot, check.features):
        for device in one.spec.devices or ():
            if device.name == device_id.device:
                return Found(device, one)
    return None
