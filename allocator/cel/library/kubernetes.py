"""Quantities, semantic versions and optional values.

Source: k8s.io/apiserver/pkg/cel/library/{quantity,semverlib}.go, cel-go cel/library.go (optional types).
"""

from collections.abc import Callable
from typing import Any, Final

from allocator.cel.values.maps import DomainMap
from allocator.cel.values.messages import MESSAGES
from allocator.cel.values.moments import ZERO_TIME
from allocator.cel.values.names import no_such_overload, type_name
from allocator.cel.values.scalars import (
    MAX_INT,
    MIN_INT,
    NONE,
    Duration,
    Optional,
    QuantityValue,
    Timestamp,
    UInt,
)
from allocator.cel.values.semver import Semver
from allocator.errors import CelRuntimeError, QuantityError
from allocator.quantity import DECIMAL_EXPONENT, Quantity

_DIGITS: Final = frozenset("0123456789")


def _quantity(value: Any) -> QuantityValue:
    if value.__class__ is not str:
        raise no_such_overload("quantity", value)
    try:
        return QuantityValue(Quantity.parse(value))
    except QuantityError as error:
        raise CelRuntimeError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            if "match" in error.problem
            else f"unable to parse quantity: {error.problem}"
        ) from None


def _is_quantity(value: Any) -> bool:
    if value.__class__ is not str:
        raise no_such_overload("isQuantity", value)
    try:
        Quantity.parse(value)
    except QuantityError:
        return False
    return True


def _amount(name: str, *args: Any) -> Quantity:
    if args[0].__class__ is not QuantityValue:
        raise no_such_overload(name, *args)
    return args[0].quantity


def _sign(value: Any) -> int:
    nanos = _amount("sign", value).nanos
    return (nanos > 0) - (nanos < 0)


def _as_float(value: Any) -> float:
    return _amount("asApproximateFloat", value).approximate_float()


def _is_integer(value: Any) -> bool:
    return _amount("isInteger", value).as_int64() is not None


def _as_integer(value: Any) -> int:
    whole = _amount("asInteger", value).as_int64()
    if whole is None:
        raise CelRuntimeError("cannot convert value to integer")
    return whole


def _other(name: str, value: Any, other: Any) -> tuple[Quantity, Quantity]:
    amount = _amount(name, value, other)
    if other.__class__ is int:
        return amount, Quantity.from_int(other, DECIMAL_EXPONENT)
    if other.__class__ is not QuantityValue:
        raise no_such_overload(name, value, other)
    return amount, other.quantity


def _add(value: Any, other: Any) -> QuantityValue:
    left, right = _other("add", value, other)
    return QuantityValue(left + right, derived=True)


def _sub(value: Any, other: Any) -> QuantityValue:
    left, right = _other("sub", value, other)
    return QuantityValue(left - right, derived=True)


def _key(name: str, value: Any, other: Any) -> tuple[Any, Any]:
    """What two quantities or two versions are compared by."""
    cls = value.__class__
    if cls is other.__class__:
        if cls is QuantityValue:
            return value.quantity.nanos, other.quantity.nanos
        if cls is Semver:
            return value.key, other.key
    raise no_such_overload(name, value, other)


def _is_greater_than(value: Any, other: Any) -> bool:
    left, right = _key("isGreaterThan", value, other)
    return left > right  # type: ignore[no-any-return]


def _is_less_than(value: Any, other: Any) -> bool:
    left, right = _key("isLessThan", value, other)
    return left < right  # type: ignore[no-any-return]


def _compare_to(value: Any, other: Any) -> int:
    left, right = _key("compareTo", value, other)
    return (left > right) - (left < right)  # type: ignore[no-any-return]


def _parse_semver(name: str, value: Any, normalize: Any) -> Semver:
    if value.__class__ is not str or normalize.__class__ is not bool:
        raise no_such_overload(name, value, normalize)
    return Semver.parse(normalized(value) if normalize else value)


def normalized(text: str) -> str:
    """Strip a leading `v` and leading zeros, and fill up missing parts.

    Raises:
        CelRuntimeError: a shortened version has a pre-release or build.
    """
    parts = text.removeprefix("v").split(".", 2)
    for at, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[at] = stripped if stripped[:1] in _DIGITS and stripped else "0" + stripped
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise CelRuntimeError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _semver(value: Any, normalize: Any = False) -> Semver:  # CEL's positional flag
    return _parse_semver("semver", value, normalize)


def _is_semver(value: Any, normalize: Any = False) -> bool:
    if value.__class__ is not str or normalize.__class__ is not bool:
        raise no_such_overload("isSemver", value, normalize)
    try:
        _parse_semver("isSemver", value, normalize)
    except CelRuntimeError:
        return False
    return True


def _version_part(name: str) -> Callable[[Any], int]:
    def method(value: Any) -> int:
        if value.__class__ is not Semver:
            raise no_such_overload(name, value)
        number: int = getattr(value, name)
        # Upstream holds the number unsigned and converts it without check.
        return number if number <= MAX_INT else number + 2 * MIN_INT

    return method


# --- optional values


def _optional(name: str, value: Any) -> Optional:
    if value.__class__ is not Optional:
        raise no_such_overload(name, value)
    return value


def _value(value: Any) -> object:
    if not _optional("value", value).present:
        raise CelRuntimeError("optional.none() dereference")
    return value.value


def _has_value(value: Any) -> bool:
    return _optional("hasValue", value).present


def _is_zero(value: Any) -> bool:
    cls = value.__class__
    if value is None:
        return True
    if cls is Duration:
        return value.nanos == 0  # type: ignore[no-any-return]
    if cls is UInt:
        return value.value == 0  # type: ignore[no-any-return]
    if cls is Timestamp:
        return value.nanos == ZERO_TIME.nanos  # type: ignore[no-any-return]
    if cls in MESSAGES:
        return value.is_zero  # type: ignore[no-any-return]
    return cls in _ZEROABLE and not value


_ZEROABLE: Final = frozenset({bool, int, float, str, bytes, list, dict, DomainMap})


def _of_non_zero(value: Any) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _first(value: Any) -> Optional:
    if value.__class__ is not list:
        raise no_such_overload("first", value)
    return Optional(value[0]) if value else NONE


def _last(value: Any) -> Optional:
    if value.__class__ is not list:
        raise no_such_overload("last", value)
    return Optional(value[-1]) if value else NONE


def _unwrap(value: Any) -> list[object]:
    if value.__class__ is not list:
        raise no_such_overload("unwrapOpt", value)
    found: list[object] = []
    for element in value:
        if element.__class__ is not Optional:
            raise CelRuntimeError(f"value of type {type_name(element)} is not optional")
        if element.present:
            found.append(element.value)
    return found


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "sign": _sign,
    "asApproximateFloat": _as_float,
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "add": _add,
    "sub": _sub,
    "isGreaterThan": _is_greater_than,
    "isLessThan": _is_less_than,
    "compareTo": _compare_to,
    "semver": _semver,
    "isSemver": _is_semver,
    "major": _version_part("major"),
    "minor": _version_part("minor"),
    "patch": _version_part("patch"),
    "optional.of": Optional,
    "optional.none": lambda: NONE,
    "optional.ofNonZeroValue": _of_non_zero,
    "value": _value,
    "hasValue": _has_value,
    "first": _first,
    "last": _last,
    "optional.unwrap": _unwrap,
    "unwrapOpt": _unwrap,
}
