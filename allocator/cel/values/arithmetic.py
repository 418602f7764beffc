"""Arithmetic and negation.

Source: cel-go common/types and its overflow checks.
"""

import math
from typing import Any, Final

from allocator.cel.values import moments
from allocator.cel.values.limits import MAX_ELEMENTS, check_length
from allocator.cel.values.scalars import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    Duration,
    Timestamp,
    UInt,
)
from allocator.errors import CelRuntimeError

INT_OVERFLOW: Final = "integer overflow"
UINT_OVERFLOW: Final = "unsigned integer overflow"


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
        return moments.add(left, right)
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
        return moments.subtract(left, right)
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
        return moments.negate(value)
    raise CelRuntimeError("no such overload")


def logical_not(value: Any) -> bool:
    """The `!` operator."""
    if value is True:
        return False
    if value is False:
        return True
    raise CelRuntimeError("no such overload")
