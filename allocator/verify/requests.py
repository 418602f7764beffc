"""How many devices each request got."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from allocator.model.claims import DeviceRequest, DeviceRequestAllocationResult, ResourceClaim
from allocator.model.devices import DeviceID
from allocator.verify.capacity import is_shareable, large_enough
from allocator.verify.check import Check, Found, Placed, Spec
from allocator.verify.selecting import check_selectors, is_here
from allocator.verify.slices import current, is_obsolete


def check_counts(
    check: Check, claim: ResourceClaim, results: Sequence[DeviceRequestAllocationResult]
) -> dict[str, str]:
    """Check how many devices each request got; returns request -> result name that was served."""
    chosen: dict[str, str] = {}
    for request in claim.spec.devices.requests or ():
        names = _result_names(request)
        served = [name for name in names if any(result.request == name for result in results)]
        if len(served) > 1:
            check.fail("one-alternative", claim, f"request {request.name}: {served}")
        free = [name for name in names if _wants_none(check, claim, name)]
        if not served and not free:
            check.fail("every-request-served", claim, f"request {request.name} has no device")
            continue
        name = (served or free)[0]
        chosen[request.name] = name
        got = [result.device_id for result in results if result.request == name]
        _count(check, claim, name, got)
    return chosen


def _wants_none(check: Check, claim: ResourceClaim, name: str) -> bool:
    spec = spec_of(claim, name)
    return spec is not None and spec.allocation_mode == "ExactCount" and spec.count <= 0


def _count(check: Check, claim: ResourceClaim, name: str, got: Sequence[DeviceID]) -> None:
    spec = spec_of(claim, name)
    if spec is None:
        return
    if spec.allocation_mode == "All":
        want = set(_all(check, claim, spec))
        if want != set(got):
            missing = sorted(str(device) for device in want - set(got))
            check.fail("all-means-all", claim, f"request {name}: missing {missing}")
    elif len(got) != max(spec.count, 0):
        check.fail("count-as-asked", claim, f"request {name}: {len(got)} devices")
    if len(set(got)) != len(got):
        check.fail("no-device-twice-in-a-request", claim, f"request {name}")


def _all(check: Check, claim: ResourceClaim, spec: Spec) -> Iterator[DeviceID]:
    """All devices here that a request selects and that are large enough."""
    device_class = check.snapshot.classes.get(spec.device_class_name)
    if device_class is None:
        return
    requested = (spec.capacity.requests if spec.capacity else None) or {}
    for pool in sorted(check.snapshot.slices.pools):
        if is_obsolete(pool, check.node, check.snapshot, check.features):
            continue
        for one in current(pool, check.node, check.snapshot, check.features):
            for device in one.spec.devices or ():
                placed = Placed(
                    0,
                    claim,
                    DeviceRequestAllocationResult(
                        driver=pool.driver, pool=pool.name, device=device.name
                    ),
                    spec,
                    device_class,
                    Found(device, one),
                )
                if _would_select(check, placed) and large_enough(check, device, requested):
                    yield placed.id


def _would_select(check: Check, placed: Placed) -> bool:
    probe = Check(check.node, check.snapshot, check.features, check.cel)
    check_selectors(probe, placed)
    hidden = placed.found.device.binding_conditions and not check.features.binding
    return not probe.violations and is_here(check, placed.found) and not hidden


def check_not_twice(check: Check, claim: ResourceClaim, mine: Sequence[Placed]) -> None:
    """Check that a claim has no device twice, unless it can be shared."""
    for left, right in combinations(mine, 2):
        if left.id == right.id and not is_shareable(check, left.found.device):
            check.fail("no-device-twice-in-a-claim", claim, f"{left.id}")


def spec_of(claim: ResourceClaim, name: str) -> Spec | None:
    """Find the (sub)request that a result name means."""
    for request in claim.spec.devices.requests or ():
        if request.first_available:
            for alternative in request.first_available:
                if f"{request.name}/{alternative.name}" == name:
                    return alternative
        elif request.name == name:
            return request.exactly
    return None


def _result_names(request: DeviceRequest) -> list[str]:
    if request.first_available:
        return [f"{request.name}/{alternative.name}" for alternative in request.first_available]
    return [request.name]
