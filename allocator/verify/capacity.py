"""Amounts of capacity: what a request makes of a policy, and whether a device is large enough."""

from collections.abc import Mapping
from fractions import Fraction

from allocator.model.devices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
)
from allocator.quantity import NANOS_PER_UNIT, Quantity
from allocator.verify.check import Check, Placed


def is_shareable(check: Check, device: Device) -> bool:
    """Whether several claims may use a device at once."""
    return check.features.consumable_capacity and bool(device.allow_multiple_allocations)


def check_share(check: Check, placed: Placed) -> None:
    """Check share id and consumed capacity of a result."""
    device, result = placed.found.device, placed.result
    if not check.features.consumable_capacity:
        if result.share_id is not None or result.consumed_capacity is not None:
            check.fail("share-only-with-gate", placed.owner, f"{placed.id}")
        return
    shareable = is_shareable(check, device)
    if shareable != (result.share_id is not None):
        check.fail("share-id-of-shareable", placed.owner, f"{placed.id}: shareable is {shareable}")
    requested = (placed.spec.capacity.requests if placed.spec.capacity else None) or {}
    for name in requested:
        if name not in (device.capacity or {}):
            check.fail("capacity-exists", placed.owner, f"{placed.id} has no capacity {name}")
    recorded = result.consumed_capacity or {}
    if not shareable:
        if recorded:
            check.fail("consumed-only-by-shares", placed.owner, f"{placed.id}")
        _filter(check, placed, requested)
        return
    if set(recorded) != set(device.capacity or {}):
        check.fail("every-capacity-recorded", placed.owner, f"{placed.id}: {sorted(recorded)}")
    for name, amount in recorded.items():
        capacity = (device.capacity or {}).get(name)
        if capacity is None:
            continue
        problem = _amount_problem(check, amount, capacity, requested.get(name))
        if problem:
            check.fail("amount-as-policy-says", placed.owner, f"{placed.id}: {name}: {problem}")


def _filter(check: Check, placed: Placed, requested: Mapping[str, Quantity]) -> None:
    """A device that is not shared must be large enough, that is all."""
    for name, amount in requested.items():
        capacity = (placed.found.device.capacity or {}).get(name)
        if capacity is not None and amount > capacity.value:
            check.fail("capacity-sufficient", placed.owner, f"{placed.id}: {name}")


def _amount_problem(  # noqa: PLR0911 - one return a rule of the policy
    check: Check, amount: Quantity, capacity: DeviceCapacity, requested: Quantity | None
) -> str:
    """Say what is wrong with a consumed amount, given what was asked for."""
    policy = capacity.request_policy
    if amount.nanos < 0:
        return "negative"
    if requested is None:
        default = policy.default if policy else None
        want = capacity.value if default is None else default
        return "" if amount == want else f"{amount} is not the default {want}"
    if policy is None or (amount == requested == policy.default):
        return "" if amount == requested else f"{amount} is not the {requested} asked for"
    if policy.valid_range is not None:
        highest = policy.valid_range.max
        if highest is not None and amount > highest and amount != policy.default:
            return f"{amount} is above the maximum"
        return _range_problem(check, amount, policy.valid_range, requested)
    if policy.valid_values:
        fitting = [value for value in policy.valid_values if value >= requested]
        return "" if fitting and amount == min(fitting) else f"{amount} is not the next valid value"
    return "" if amount == requested else f"{amount} is not the {requested} asked for"


def _range_problem(
    check: Check, amount: Quantity, valid: CapacityRequestPolicyRange, requested: Quantity
) -> str:
    minimum = valid.min
    if minimum is None:
        return "" if amount == requested else f"{amount} is not the {requested} asked for"
    if requested < minimum or valid.step is None:
        want = max(requested, minimum)
        return "" if amount == want else f"{amount} is not {want}"
    unit = _unit(check, valid)
    low, step, goal, got = (
        _units(quantity, unit) for quantity in (minimum, valid.step, requested, amount)
    )
    if (got - low) % step:
        return f"{amount} is no multiple of the step"
    if got < goal or got - step >= goal:
        return f"{amount} is not the next step after {requested}"
    return ""


def _unit(check: Check, valid: CapacityRequestPolicyRange) -> int:
    """Nano-units of the arithmetic of a range: thousandths when the gate is on and they are exact, else whole units."""
    milli = NANOS_PER_UNIT // 1000
    bounds = [bound for bound in (valid.min, valid.max, valid.step) if bound is not None]
    exact = all(bound.nanos % milli == 0 for bound in bounds)
    return milli if check.features.fractional_capacity_range and exact else NANOS_PER_UNIT


def large_enough(check: Check, device: Device, requested: Mapping[str, Quantity]) -> bool:
    """Say whether a device could ever serve the amounts, with nobody else on it."""
    if not check.features.consumable_capacity:
        return True
    capacities = device.capacity or {}
    if any(name not in capacities for name in requested):
        return False
    return all(
        _could_serve(check, capacity, requested.get(name)) for name, capacity in capacities.items()
    )


def _could_serve(  # noqa: PLR0911 - one return a rule of the policy
    check: Check, capacity: DeviceCapacity, requested: Quantity | None
) -> bool:
    policy = capacity.request_policy
    if requested is None and policy is not None and policy.default is None:
        # API validation wants a default, then this does not happen.
        return _allows_everything(check, capacity.value, policy)
    if requested is None:
        default = policy.default if policy else None
        return default is None or default <= capacity.value
    if policy is None:
        return requested <= capacity.value
    if policy.valid_range is not None:
        valid = policy.valid_range
        least = _least_in_range(check, requested, valid)
        highest = valid.max
        # What stepping computed is never taken for the default, even where it is equal.
        stepped = valid.step is not None and valid.min is not None and requested >= valid.min
        is_default = not stepped and policy.default is not None and least == policy.default.nanos
        if highest is not None and least > Fraction(highest.nanos) and not is_default:
            return False
        return least <= capacity.value.nanos
    if policy.valid_values:
        if any(value >= requested for value in policy.valid_values):
            return any(requested <= value <= capacity.value for value in policy.valid_values)
        return policy.default == requested <= capacity.value
    return requested <= capacity.value


def _allows_everything(check: Check, value: Quantity, policy: CapacityRequestPolicy) -> bool:
    """Say whether a policy lets somebody have the whole of a capacity."""
    valid = policy.valid_range
    if valid is None:
        return not policy.valid_values or value in policy.valid_values
    if valid.max is not None and value > valid.max:
        return False
    if valid.step is None or valid.min is None:
        return True
    unit = _unit(check, valid)
    return (_units(value, unit) - _units(valid.min, unit)) % _units(valid.step, unit) == 0


def _least_in_range(
    check: Check, requested: Quantity, valid: CapacityRequestPolicyRange
) -> Fraction:
    """The amount, in nano-units, that a range makes of a request."""
    if valid.min is None:
        return Fraction(requested.nanos)
    if requested < valid.min or valid.step is None:
        return Fraction(max(requested, valid.min).nanos)
    unit = _unit(check, valid)
    low, step, goal = (_units(q, unit) for q in (valid.min, valid.step, requested))
    steps = -(-(goal - low) // step)
    return Fraction((low + steps * step) * unit)


def _units(quantity: Quantity, unit: int) -> int:
    """How many units a quantity needs."""
    return -(-quantity.nanos // unit)
