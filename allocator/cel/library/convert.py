"""Type conversions: int(), uint(), double(), bool(), string(), bytes(), duration(), timestamp(), type(), dyn().

Source: ConvertToType of cel-go's common/types.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from allocator.cel.library import network
from allocator.cel.values import arithmetic, moments
from allocator.cel.values.names import no_such_overload, type_name
from allocator.cel.values.scalars import MAX_UINT, Duration, Timestamp, TypeValue, UInt
from allocator.errors import CelRuntimeError

_MOST_DIGITS: Final = 20  # of an integer of 64 bits
# Possessive, so that a long text that is no number takes no more than its length.
_FLOAT: Final = re.compile(
    r"nan|[+-]?(?:inf(?:inity)?"
    r"|0x(?:[0-9a-f]++\.?[0-9a-f]*+|\.[0-9a-f]++)p[+-]?[0-9]++"
    r"|(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:e[+-]?[0-9]++)?)",
    re.ASCII | re.IGNORECASE,
)
_UNDERSCORE: Final = re.compile(r"(?<![0-9a-fA-FxX])_|_(?![0-9a-fA-F])")
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def _refused(value: object, target: str) -> CelRuntimeError:
    return CelRuntimeError(f"type conversion error from '{type_name(value)}' to '{target}'")


def _whole(digits: str, target: str) -> int:
    """A number below 2^64, of any number of digits."""
    if not (digits.isascii() and digits.isdigit()):
        raise _refused(digits, target)
    significant = digits.lstrip("0")
    if len(significant) > _MOST_DIGITS or int(significant or "0") > MAX_UINT:
        raise _refused(digits, target)
    return int(significant or "0")


def to_int(value: Any) -> int:
    """The function int()."""
    cls = value.__class__
    if cls is int:
        return value  # type: ignore[no-any-return]
    if cls is UInt:
        return arithmetic.as_int(value.value)
    if cls is float:
        if not -(2**63) < value < 2**63:
            raise CelRuntimeError(arithmetic.INT_OVERFLOW)
        return int(value)
    if cls is str:
        sign = value[0] if value[:1] in ("-", "+") and value else ""
        number = _whole(value[len(sign) :], "int")
        if number > (2**63 if sign == "-" else 2**63 - 1):
            raise _refused(value, "int")
        return -number if sign == "-" else number
    if cls is Duration:
        return value.nanos  # type: ignore[no-any-return]
    if cls is Timestamp:
        return (value.nanos // 10**9 + 2**63) % 2**64 - 2**63  # type: ignore[no-any-return]
    raise no_such_overload("int", value)


def to_uint(value: Any) -> UInt:
    """The function uint()."""
    cls = value.__class__
    if cls is UInt:
        return value  # type: ignore[no-any-return]
    if cls is int:
        return arithmetic.as_uint(value)
    if cls is float:
        if not 0 <= value < 2**64:
            raise CelRuntimeError(arithmetic.UINT_OVERFLOW)
        return UInt(int(value))
    if cls is str:
        return UInt(_whole(value, "uint"))
    raise no_such_overload("uint", value)


def to_double(value: Any) -> float:
    """The function double()."""
    cls = value.__class__
    if cls is float:
        return value  # type: ignore[no-any-return]
    if cls is int:
        return float(value)
    if cls is UInt:
        return float(value.value)
    if cls is str:
        return parse_double(value)
    raise no_such_overload("double", value)


def parse_double(text: str) -> float:
    """Read a number as Go's ParseFloat does.

    Raises:
        CelRuntimeError: it is none, or too large.
    """
    if "_" in text:
        # Go takes underscores between digits.
        if _UNDERSCORE.search(text) is not None:
            raise _refused(text, "double")
        text = text.replace("_", "")
    if _FLOAT.fullmatch(text) is None:
        raise _refused(text, "double")
    try:
        number = float.fromhex(text) if "x" in text.lower() else float(text)
    except (OverflowError, ValueError):
        raise _refused(text, "double") from None
    if number in (float("inf"), float("-inf")) and "n" not in text.lower():
        raise _refused(text, "double")
    return number


def to_bool(value: Any) -> bool:
    """The function bool()."""
    cls = value.__class__
    if cls is bool:
        return value  # type: ignore[no-any-return]
    if cls is str:
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        raise _refused(value, "bool")
    raise no_such_overload("bool", value)


def to_string(value: Any) -> str:
    """The function string()."""
    handler = _STRINGS.get(value.__class__)
    if handler is None:
        raise no_such_overload("string", value)
    return handler(value)


def _decode(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise CelRuntimeError("invalid UTF-8 in bytes, cannot convert to string") from None


_STRINGS: Final[dict[type, Callable[[Any], str]]] = {
    str: lambda value: value,
    bool: lambda value: "true" if value else "false",
    int: str,
    UInt: lambda value: str(value.value),
    float: moments.go_float,
    bytes: _decode,
    Duration: moments.write_duration,
    Timestamp: moments.write_timestamp,
    network.IP: str,
    network.CIDR: str,
}


def to_bytes(value: Any) -> bytes:
    """The function bytes()."""
    cls = value.__class__
    if cls is bytes:
        return value  # type: ignore[no-any-return]
    if cls is str:
        return value.encode("utf-8", "surrogatepass")  # type: ignore[no-any-return]
    raise no_such_overload("bytes", value)


def to_duration(value: Any) -> Duration:
    """The function duration()."""
    cls = value.__class__
    if cls is Duration:
        return value  # type: ignore[no-any-return]
    if cls is str:
        return moments.parse_duration(value)
    raise no_such_overload("duration", value)


def to_timestamp(value: Any) -> Timestamp:
    """The function timestamp()."""
    cls = value.__class__
    if cls is Timestamp:
        return value  # type: ignore[no-any-return]
    if cls is str:
        return moments.parse_timestamp(value)
    if cls is int:
        return moments.from_seconds(value)
    raise no_such_overload("timestamp", value)


def to_type(value: Any) -> TypeValue:
    """The function type()."""
    return TypeValue(type_name(value))


def to_dyn(value: Any) -> object:
    """The function dyn()."""
    return value


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {
    "int": to_int,
    "uint": to_uint,
    "double": to_double,
    "bool": to_bool,
    "string": to_string,
    "bytes": to_bytes,
    "duration": to_duration,
    "timestamp": to_timestamp,
    "type": to_type,
    "dyn": to_dyn,
}
