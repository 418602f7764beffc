"""Operators on runtime values: equality, order, arithmetic, membership and selection.

Source: cel-go common/types and interpreter/attributes.go.
"""

import math
from typing import Any, Final

from allocator.cel.values import timelib
from allocator.cel.values.values import (
    EMPTY_MAP,
    MAX_ELEMENTS,
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NONE,
    PLAIN_KINDS,
    DomainMap,
    Duration,
    Optional,
    QuantityValue,
    Semver,
    Stopped,
    Timestamp,
    TypeValue,
    UInt,
    check_length,
    find,
    go_name,
    kind_of,
    map_key,
    type_name,
    unmap_key,
)
from allocator.errors import CelRuntimeError

INT_OVERFLOW: Final = "integer overflow"
UINT_OVERFLOW: Final = "unsigned integer overflow"
_NUMBERS: Final = frozenset({int, float, UInt})


# --- equality


def equal(left: Any, right: Any) -> bool | None:
    """CEL equality. None: the left value's type refuses the comparison ("no such overload")."""
    cls = left.__class__
    other = right.__class__
    if cls is other and (cls is str or cls is int or cls is bool):
        return left == right  # type: ignore[no-any-return]
    if left is None or right is None:
        return left is right
    handler = _EQUAL.get(cls)
    if handler is not None:
        return handler(left, right)
    return left == right if cls is other else None


def equals(left: Any, right: Any) -> bool:
    """The `==` operator.

    Raises:
        CelRuntimeError: the left value refuses the comparison.
    """
    result = equal(left, right)
    if result is None:
        raise CelRuntimeError("no such overload")
    return result


def not_equals(left: Any, right: Any) -> bool:
    """The `!=` operator: a refused comparison counts as different."""
    return equal(left, right) is not True


def _same_class(left: Any, right: Any) -> bool:
    return left.__class__ is right.__class__ and left == right


def _equal_number(left: Any, right: Any) -> bool:
    if right.__class__ not in _NUMBERS or left != left or right != right:  # NaN
        return False
    return _compare_numbers(left, right) == 0


def _equal_list(left: Any, right: Any) -> bool:
    if right.__class__ is not list or len(left) != len(right):
        return False
    kind = kind_of(left)
    if kind in PLAIN_KINDS and kind_of(right) is kind:
        return left == right  # type: ignore[no-any-return]
    # A refused comparison does not make lists differ; only a definite no does.
    return all(equal(one, other) is not False for one, other in zip(left, right, strict=True))


def _equal_map(left: Any, right: Any) -> bool:
    if (right.__class__ is not dict and right.__class__ is not DomainMap) or len(left) != len(
        right
    ):
        return False
    for key, value in left.items():
        other, found = find(right, unmap_key(key))
        if not found or equal(value, other) is False:
            return False
    return True


def _equal_optional(left: Any, right: Any) -> bool | None:
    if right.__class__ is not Optional:
        return False
    if not left.present or not right.present:
        return left.present is right.present
    if right.value is None and left.value is not None:
        # Not as between plain values: strict types refuse the comparison with null here.
        cls = left.value.__class__
        return None if cls is QuantityValue or cls is Semver or cls not in _EQUAL else False
    return equal(left.value, right.value)


def _equal_quantity(left: Any, right: Any) -> bool | None:
    if right.__class__ is not QuantityValue or right.derived:
        return None
    return left.quantity.nanos == right.quantity.nanos  # type: ignore[no-any-return]


def _equal_semver(left: Any, right: Any) -> bool | None:
    return left.key == right.key if right.__class__ is Semver else None


_EQUAL: Final = {
    bool: _same_class,
    str: _same_class,
    bytes: _same_class,
    Duration: _same_class,
    Timestamp: _same_class,
    TypeValue: _same_class,
    int: _equal_number,
    UInt: _equal_number,
    float: _equal_number,
    list: _equal_list,
    dict: _equal_map,
    DomainMap: _equal_map,
    Optional: _equal_optional,
    QuantityValue: _equal_quantity,
    Semver: _equal_semver,
}


# --- order


def _compare_numbers(left: Any, right: Any) -> int:
    """-1, 0 or 1 across int, uint and double; an int next to a double is rounded to a double, as upstream does."""
    one = left.value if left.__class__ is UInt else left
    other = right.value if right.__class__ is UInt else right
    if one.__class__ is float or other.__class__ is float:
        if one != one or other != other:  # NaN
            raise CelRuntimeError("NaN values cannot be ordered")
        one, other = float(one), float(other)
    return (one > other) - (one < other)


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1.

    Raises:
        CelRuntimeError: the values have no order.
    """
    cls = left.__class__
    other = right.__class__
    if cls in _NUMBERS and other in _NUMBERS:
        return _compare_numbers(left, right)
    if cls is not other:
        raise CelRuntimeError("no such overload")
    if cls is str or cls is bytes or cls is bool:
        return (left > right) - (left < right)  # type: ignore[no-any-return]
    if cls is Duration or cls is Timestamp:
        return (left.nanos > right.nanos) - (left.nanos < right.nanos)  # type: ignore[no-any-return]
    raise CelRuntimeError("no such overload")


def comparable(value: object) -> bool:
    """Whether values of this sort have an order."""
    return value.__class__ in _COMPARABLE


_COMPARABLE: Final = frozenset({bool, int, UInt, float, str, bytes, Duration, Timestamp})


def less(left: Any, right: Any) -> bool:
    """The `<` operator."""
    if not comparable(left):
        raise CelRuntimeError("no such overload: _<_")
    return compare(left, right) < 0


def less_equals(left: Any, right: Any) -> bool:
    """The `<=` operator."""
    if not comparable(left):
        raise CelRuntimeError("no such overload: _<=_")
    return compare(left, right) <= 0


def greater(left: Any, right: Any) -> bool:
    """The `>` operator."""
    if not comparable(left):
        raise CelRuntimeError("no such overload: _>_")
    return compare(left, right) > 0


def greater_equals(left: Any, right: Any) -> bool:
    """The `>=` operator."""
    if not comparable(left):
        raise CelRuntimeError("no such overload: _>=_")
    return compare(left, right) >= 0


# --- arithmetic


def as_int(value: int) -> int:
    """Check the range of an int."""
    if MIN_INT <= value <= MAX_INT:
        return value
    raise CelRuntimeError(INT_OVERFLOW)


def as_uint(value: int) -> UInt:
    """Check the range of a uint."""
    if 0 <= value <= MAX_UINT:
        return UInt(value)
    raise CelRuntimeError(UINT_OVERFLOW)


def add(left: Any, right: Any) -> object:
    """The `+` operator."""
    cls = left.__class__
    if cls is right.__class__:
        if cls is int:
            return as_int(left + right)
        if cls is list:
            check_length(len(left) + len(right), MAX_ELEMENTS)
            return left + right
        if cls is str or cls is float or cls is bytes:
            return left + right
        if cls is UInt:
            return as_uint(left.value + right.value)
    if cls is Duration or cls is Timestamp:
        return timelib.add(left, right)
    raise CelRuntimeError("no such overload")


def subtract(left: Any, right: Any) -> object:
    """The `-` operator."""
    cls = left.__class__
    if cls is right.__class__:
        if cls is int:
            return as_int(left - right)
        if cls is float:
            return left - right
        if cls is UInt:
            return as_uint(left.value - right.value)
    if cls is Duration or cls is Timestamp:
        return timelib.subtract(left, right)
    raise CelRuntimeError("no such overload")


def multiply(left: Any, right: Any) -> object:
    """The `*` operator."""
    cls = left.__class__
    if cls is right.__class__:
        if cls is int:
            return as_int(left * right)
        if cls is float:
            return left * right
        if cls is UInt:
            return as_uint(left.value * right.value)
    raise CelRuntimeError("no such overload")


def divide(left: Any, right: Any) -> object:
    """The `/` operator; integers truncate towards zero."""
    cls = left.__class__
    if cls is right.__class__:
        if cls is float:
            return _divide_double(left, right)
        if cls is int or cls is UInt:
            one, other = (left, right) if cls is int else (left.value, right.value)
            if other == 0:
                raise CelRuntimeError("division by zero")
            quotient = abs(one) // abs(other)
            if cls is UInt:
                return UInt(quotient)
            return as_int(quotient if (one < 0) == (other < 0) else -quotient)
    raise CelRuntimeError("no such overload")


def _divide_double(left: float, right: float) -> float:
    if right:
        return left / right
    if left == 0 or left != left:  # NaN
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def modulo(left: Any, right: Any) -> object:
    """The `%` operator; the result has the sign of the dividend."""
    cls = left.__class__
    if cls is right.__class__ and (cls is int or cls is UInt):
        one, other = (left, right) if cls is int else (left.value, right.value)
        if other == 0:
            raise CelRuntimeError("modulus by zero")
        if cls is UInt:
            return UInt(one % other)
        if one == MIN_INT and other == -1:
            raise CelRuntimeError(INT_OVERFLOW)
        rest = abs(one) % abs(other)
        return -rest if one < 0 else rest
    raise CelRuntimeError("no such overload")


def negate(value: Any) -> object:
    """The unary `-`."""
    cls = value.__class__
    if cls is int:
        return as_int(-value)
    if cls is float:
        return -value
    if cls is Duration:
        return timelib.negate(value)
    raise CelRuntimeError("no such overload")


def logical_not(value: Any) -> bool:
    """The `!` operator."""
    if value is True:
        return False
    if value is False:
        return True
    raise CelRuntimeError("no such overload")


# --- membership and selection


def contains(value: Any, container: Any) -> bool:
    """The `in` operator."""
    cls = container.__class__
    if cls is list:
        return includes(container, value)
    if cls is dict:
        return find(container, value)[1]
    if cls is DomainMap:
        return value.__class__ is str and value in container
    raise CelRuntimeError("no such overload")


def includes(elements: list[Any], value: Any) -> bool:
    """Whether some element equals the value."""
    if value.__class__ in PLAIN_KINDS and kind_of(elements) is value.__class__:
        return value in elements
    return any(equal(value, element) is True for element in elements)


def contains_key(value: Any, container: Any) -> bool:
    """The `in` operator for a map that the expression itself makes: not every value can be looked up there."""
    if container.__class__ is dict and (value.__class__ is Semver or value.__class__ is bytes):
        raise Stopped("internal error: runtime error: hash of unhashable type")
    return contains(value, container)


def shown(value: Any) -> str:
    """A value as upstream prints it in messages."""
    cls = value.__class__
    if cls is UInt:
        return str(value.value)
    if cls is bool:
        return "true" if value else "false"
    if cls is str:
        return value  # type: ignore[no-any-return]
    if cls is float:
        return timelib.go_float(value)
    return str(value) if cls is int else type_name(value)


KEYS: Final = frozenset({str, int, UInt, bool, float})


def list_index(index: Any) -> int:
    """The position that an index value stands for.

    Raises:
        CelRuntimeError: it is no whole number.
    """
    cls = index.__class__
    if cls is int:
        return index  # type: ignore[no-any-return]
    if cls is UInt and index.value <= MAX_INT:
        return index.value  # type: ignore[no-any-return]
    if cls is float and index == index and abs(index) < 2**63 and index == int(index):
        return int(index)
    if cls is float or cls is UInt:
        raise CelRuntimeError(f"unsupported index value {shown(index)} in list")
    raise CelRuntimeError(f"unsupported index type '{type_name(index)}' in list")


def lookup(container: Any, key: Any) -> tuple[object, bool]:
    """The value under a key or at an index, and whether there is one.

    Raises:
        CelRuntimeError: the key cannot be one.
    """
    if key.__class__ not in KEYS:
        raise CelRuntimeError(f"invalid qualifier type: {go_name(key)}")
    cls = container.__class__
    if cls is dict:
        return find(container, key)
    if cls is DomainMap:
        value = container.get(key, EMPTY_MAP) if key.__class__ is str else EMPTY_MAP
        return value, True
    if cls is list:
        at = list_index(key)
        return (container[at], True) if 0 <= at < len(container) else (None, False)
    return None, False


def index(container: Any, key: Any) -> object:
    """`container[key]` or `container.key`.

    Raises:
        CelRuntimeError: there is no such key or index.
    """
    if container.__class__ is Optional:
        return optional_index(container, key)
    value, found = lookup(container, key)
    if found:
        return value
    if container.__class__ is list:
        raise CelRuntimeError(f"index out of bounds: {shown(key)}")
    raise CelRuntimeError(f"no such key: {shown(key)}")


def optional_index(container: Any, key: Any) -> Optional:
    """`container[?key]` or `container.?key`."""
    if container.__class__ is Optional:
        if not container.present:
            return container
        container = container.value
    value, found = lookup(container, key)
    return Optional(value) if found else NONE


def has_field(container: Any, field: str) -> bool:
    """The `has()` macro on an evaluated operand."""
    if container.__class__ is Optional:
        return optional_index(container, field).present
    return lookup(container, field)[1]


def make_map(entries: list[tuple[object, object]]) -> dict[object, object]:
    """A map from CEL keys and values; of equal keys the last wins."""
    return {map_key(key): value for key, value in entries}
