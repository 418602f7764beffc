"""Request policies of consumable capacity.

Source: docs/design/api-versions.md#slices, rows requestPolicy, validValues, validRange.
"""

from typing import Final

from allocator.features import Features
from allocator.quantity import Quantity
from scheduler.validation.cursor import Cursor

_MAX_VALID_VALUES: Final = 10
_MAX_INT64: Final = 2**63 - 1
_NANOS_PER_MILLI: Final = 10**6


def check_request_policy(capacity: Cursor, features: Features) -> None:
    """Check the policy of a capacity of a device that can be allocated several times."""
    value = capacity["value"].quantity
    policy = capacity["requestPolicy"]
    values, valid_range = policy["validValues"], policy["validRange"]
    if value is None:
        return
    default = policy["default"].quantity
    if values.size and valid_range.present:
        policy.report("request-policy", "validValues and validRange cannot both be set")
    elif values.size:
        if default is None:
            policy["default"].report("valid-values", "is required with validValues")
        else:
            _check_valid_values(values, default, value, features)
    elif valid_range.present:
        if default is None:
            policy["default"].report("valid-range", "is required with validRange")
        else:
            _RangeCheck(valid_range, default, value, features).run()
    elif default is not None and default > value:
        policy["default"].report(
            "default-above-value", f"is above the capacity of {value}: no share can be made"
        )


def _check_valid_values(
    values: Cursor, default: Quantity, value: Quantity, features: Features
) -> None:
    rule = "valid-values"
    values.limit(rule, _MAX_VALID_VALUES)
    seen: set[int] = set()
    previous: Quantity | None = None
    found = False
    for item in values.items():
        option = item.quantity
        if option is None:
            continue
        if previous is not None and option < previous:
            item.report(rule, "must be in ascending order")
        # Without fractions upstream compares whole numbers, rounded up: 500m and 1 are the same.
        key = option.nanos if features.fractional_capacity_range else option.rounded_up()
        if key in seen:
            item.report(rule, f"{option} occurs twice")
        if option > value:
            item.report(rule, f"must be at most the capacity of {value}")
        seen.add(key)
        found = found or option == default
        previous = option
    if not found:
        values.report(rule, f"must hold the default of {default}")


class _RangeCheck:
    """One valid range with the amounts it is compared with."""

    def __init__(
        self, place: Cursor, default: Quantity, value: Quantity, features: Features
    ) -> None:
        self.place = place
        self.default = default
        self.value = value
        self.low = place["min"].quantity
        self.high = place["max"].quantity
        self.step = place["step"].quantity
        self.fractions_allowed = features.fractional_capacity_range

    def report(self, field: str, message: str) -> None:
        self.place[field].report("valid-range", message)

    def run(self) -> None:
        low, high = self.low, self.high
        if low is None:
            self.report("min", "is required in validRange")
            return
        if low > self.value:
            self.report("min", f"must be at most the capacity of {self.value}")
        if self.default < low:
            self.report("default", f"must be at least the minimum of {low}")
        if high is not None:
            if low > high:
                self.report("max", f"must be at least the minimum of {low}")
            if high > self.value:
                self.report("max", f"must be at most the capacity of {self.value}")
            if self.default > high:
                self.report("default", f"must be at most the maximum of {high}")
        self._check_step(low)

    def _named(self) -> list[tuple[str, Quantity]]:
        named = (
            ("default", self.default),
            ("min", self.low),
            ("max", self.high),
            ("step", self.step),
        )
        return [(field, amount) for field, amount in named if amount is not None]

    def _check_step(self, low: Quantity) -> None:
        in_milli = self.fractions_allowed and any(
            not amount.is_integer for _, amount in self._named()
        )
        if in_milli:
            fine = [
                field for field, amount in self._named() if amount.nanos % _NANOS_PER_MILLI != 0
            ]
            for field in fine:
                self.report(field, "must be a multiple of 1m")
            if fine:
                return
        step = self.step
        if step is None:
            return
        if step.nanos <= 0:
            self.report("step", "must be greater than 0")
            return
        if low + step > self.value:
            self.report("step", f"one step above the minimum exceeds the capacity of {self.value}")
        if not in_milli:
            outside = [
                field
                for field, amount in self._named()
                if amount.nanos < 0 or amount > Quantity.from_int(_MAX_INT64)
            ]
            for field in outside:
                self.report(field, f"must be between 0 and {_MAX_INT64}")
            if outside:
                return
        for field, amount in (("default", self.default), ("max", self.high)):
            if amount is not None and not _is_step(amount, low, step, in_milli=in_milli):
                self.report("step", f"{field} {amount} is not the minimum plus a multiple of it")


def _is_step(amount: Quantity, low: Quantity, step: Quantity, *, in_milli: bool) -> bool:
    if in_milli:
        return (amount.milli_rounded_up() - low.milli_rounded_up()) % step.milli_rounded_up() == 0
    return (amount.rounded_up() - low.rounded_up()) % step.rounded_up() == 0
