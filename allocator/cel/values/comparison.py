"""Equality and order.

Source: cel-go common/types (Equal, Compare).
"""

from typing import Any, Final

from allocator.cel.values.limits import PLAIN_KINDS, kind_of
from allocator.cel.values.maps import DomainMap, find, unmap_key
from allocator.cel.values.messages import EmptyMessage, FieldsEntry
from allocator.cel.values.scalars import (
    Duration,
    Optional,
    QuantityValue,
    Timestamp,
    TypeValue,
    UInt,
)
from allocator.cel.values.semver import Semver
from allocator.errors import CelRuntimeError

_NUMBERS: Final = frozenset({int, float, UInt})


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


def _equal_entry(left: Any, right: Any) -> bool:
    return (
        right.__class__ is FieldsEntry
        and left.key == right.key
        and left.has_value is right.has_value
        and equal(left.value, right.value) is True
    )


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
    EmptyMessage: _same_class,
    FieldsEntry: _equal_entry,
}


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
