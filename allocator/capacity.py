"""Consumable capacity: how much of each capacity a request consumes, and whether that fits.

Quantities are exact; only the arithmetic of `step` uses integers, as upstream does.

Source: consumable_capacity.go; KEP-5075.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from allocator.model.devices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceCapacity,
)
from allocator.quantity import NANOS_PER_UNIT, Quantity

_MAX_INT64: Final = 2**63 - 1
_NANOS_PER_MILLI: Final = 10**6

Amounts = Mapping[str, Quantity]


class CapacityError(ValueError):
    """An amount is negative, or beyond the arithmetic of a range: ends the attempt, no other device is tried."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a request takes from one device.

    Attributes:
        amounts: every capacity of the device -> what is consumed of it.
        fits_empty: it fits when nothing else is consumed.
    """

    amounts: Amounts
    fits_empty: bool


def consumption(
    capacities: Mapping[str, DeviceCapacity], requested: Amounts | None, *, fractional: bool
) -> Consumption | None:
    """Compute what a request consumes of a device.

    Capacity names are compared as raw keys. Differs from what one expects: `memory` and `<driver>/memory` are two names.

    Returns:
        None when the device lacks a requested capacity, or its policy does not allow the amount.

    Raises:
        CapacityError: an amount is not representable or negative.
    """
    for name in requested or ():
        if name not in capacities:
            return None
    amounts = {}
    stepped = set()
    for name, capacity in capacities.items():
        amount, by_step = _consumed((requested or {}).get(name), capacity, fractional=fractional)
        if amount.nanos < 0:
            raise CapacityError(f"capacity {name}: the amount is negative")
        amounts[name] = amount
        if by_step:
            stepped.add(name)
    for name, capacity in capacities.items():
        policy, amount = capacity.request_policy, amounts[name]
        if policy is None or (name not in stepped and _is_default(amount, policy)):
            continue
        if _violates(amount, policy, fractional=fractional):
            return None
    return Consumption(amounts, fits(amounts, capacities))


def fits(amounts: Amounts, capacities: Mapping[str, DeviceCapacity], *used: Amounts) -> bool:
    """Whether the amounts fit into what is left; using all of it is allowed."""
    for name, amount in amounts.items():
        total = amount.nanos
        for other in used:
            more = other.get(name)
            if more is not None:
                total += more.nanos
        if total > capacities[name].value.nanos:
            return False
    return True


def add_amounts(left: Amounts, right: Amounts) -> dict[str, Quantity]:
    """Add amounts by capacity name."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total[name] + amount if name in total else amount
    return total


def _consumed(  # noqa: PLR0911 - one return a rule of the policy
    requested: Quantity | None, capacity: DeviceCapacity, *, fractional: bool
) -> tuple[Quantity, bool]:
    """What is consumed of one capacity, and whether stepping computed it."""
    policy = capacity.request_policy
    if requested is None:
        if policy is not None and policy.default is not None:
            return policy.default, False
        return capacity.value, False
    if policy is None:
        return requested, False
    valid = policy.valid_range
    if valid is not None and valid.min is not None:
        if requested < valid.min:
            return valid.min, False
        if valid.step is None:
            return requested, False
        return _round_up(requested, valid.min, valid.step, valid.max, fractional=fractional), True
    for value in policy.valid_values or ():
        if requested <= value:
            return value, False
    return requested, False


def _is_default(amount: Quantity, policy: CapacityRequestPolicy) -> bool:
    """Say whether an amount is written as the default is, which the policy then need not allow.

    Differs from what one expects: upstream compares representations, so an amount that stepping computed is never it.
    """
    default = policy.default
    return default is not None and amount == default and amount.format == default.format


def _round_up(
    requested: Quantity,
    minimum: Quantity,
    step: Quantity,
    maximum: Quantity | None,
    *,
    fractional: bool,
) -> Quantity:
    """Raise to the smallest `min + n * step`.

    Raises:
        CapacityError: the request, or what it is raised to, is beyond 64 bits or finer than the range can say.
    """
    if _uses_milli(minimum, maximum, step, fractional=fractional):
        if not _is_milli(requested):
            raise CapacityError(f"request {requested} is finer than the range can represent")
        amount = _next_step(
            requested.milli_rounded_up(),
            minimum.milli_rounded_up(),
            step.milli_rounded_up(),
            requested,
        )
        return Quantity(amount * _NANOS_PER_MILLI, step.format)
    if requested.nanos > _MAX_INT64 * NANOS_PER_UNIT:
        raise CapacityError(f"request {requested} does not fit into 64 bits")
    # Differs from what one expects: with the fractional gate off all three are rounded up to whole units first.
    amount = _next_step(requested.rounded_up(), minimum.rounded_up(), step.rounded_up(), requested)
    return Quantity.from_int(amount, step.format)


def _next_step(requested: int, minimum: int, step: int, original: Quantity) -> int:
    if step <= 0:
        raise CapacityError("the step of the range is not positive")
    steps = -((minimum - requested) // step)
    if minimum >= 0 and steps > (_MAX_INT64 - minimum) // step:
        raise CapacityError(
            f"raising request {original} to the next step does not fit into 64 bits"
        )
    return minimum + steps * step


def _violates(amount: Quantity, policy: CapacityRequestPolicy, *, fractional: bool) -> bool:
    if policy.valid_range is not None:
        return _violates_range(amount, policy.valid_range, fractional=fractional)
    return bool(policy.valid_values) and amount not in (policy.valid_values or ())


def _violates_range(
    amount: Quantity, valid: CapacityRequestPolicyRange, *, fractional: bool
) -> bool:
    if valid.max is not None and amount > valid.max:
        return True
    if valid.step is None:
        return False
    if valid.min is None:
        raise CapacityError("the range has a step but no minimum")
    if _uses_milli(valid.min, valid.max, valid.step, fractional=fractional):
        if not _is_milli(amount):
            return True
        offset = amount.milli_rounded_up() - valid.min.milli_rounded_up()
        step = valid.step.milli_rounded_up()
    else:
        offset = amount.rounded_up() - valid.min.rounded_up()
        step = valid.step.rounded_up()
    if step == 0:
        raise CapacityError("the step of the range is zero")
    return offset % step != 0


def _uses_milli(
    minimum: Quantity, maximum: Quantity | None, step: Quantity, *, fractional: bool
) -> bool:
    """Say whether thousandths are used: the gate is on and every bound is exact in them."""
    return (
        fractional
        and _is_milli(minimum)
        and (maximum is None or _is_milli(maximum))
        and _is_milli(step)
        and step.nanos >= _NANOS_PER_MILLI
    )


def _is_milli(quantity: Quantity) -> bool:
    return (
        quantity.nanos % _NANOS_PER_MILLI == 0
        and abs(quantity.nanos) // _NANOS_PER_MILLI <= _MAX_INT64
    )
