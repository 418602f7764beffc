"""`format`: clauses %s %d %f %e %b %x %X %o, with upstream's en-US grouping of %f and %e.

Source: cel-go ext/formatting.go (the version before 4), golang.org/x/text/message for en-US numbers.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from allocator.cel.library import convert
from allocator.cel.values.limits import MAX_CHARACTERS, check_length
from allocator.cel.values.maps import DomainMap, unmap_key
from allocator.cel.values.names import type_name
from allocator.cel.values.scalars import Duration, Timestamp, TypeValue, UInt
from allocator.errors import CelRuntimeError

DEFAULT_PRECISION: Final = 6
_MAX_PRECISION: Final = 1100  # no double has more digits; upstream pads, at any length it can hold
_DIGITS: Final = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_TIMES: Final = "\u00d710"
_CLAUSE: Final = re.compile(r"%(%|(?:\.([0-9]*))?(.?))", re.DOTALL)
_NUMBER_TEXTS: Final = frozenset({"NaN", "Infinity", "-Infinity"})


class Clause(NamedTuple):
    """One clause of a format string, or literal text when `verb` is empty."""

    verb: str
    precision: int
    text: str


def clauses(text: str, arguments: int) -> Iterator[Clause]:
    """Split a format string.

    Raises:
        CelRuntimeError: a clause is malformed or has no argument; raised where upstream reaches it.
    """
    pos = 0
    used = 0
    for match in _CLAUSE.finditer(text):
        if match.start() > pos:
            yield Clause("", 0, text[pos : match.start()])
        pos = match.end()
        if match.group(1) == "%":
            yield Clause("", 0, "%")
            continue
        if used >= arguments:
            raise CelRuntimeError(f"index {used} out of range")
        used += 1
        verb = match.group(3)
        if match.group(1) == "":
            raise CelRuntimeError("unexpected end of string")
        precision = DEFAULT_PRECISION
        if match.group(2) is not None:
            precision = _precision(match.group(2), verb)
        if verb not in _VERBS:
            raise CelRuntimeError(
                f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
            )
        yield Clause(verb, precision, "")
    if pos < len(text):
        yield Clause("", 0, text[pos:])


def _precision(digits: str, verb: str) -> int:
    if not verb:
        raise CelRuntimeError(
            "could not parse formatting clause: error while parsing precision: "
            "could not find end of precision specifier"
        )
    if not digits or len(digits) > 18:
        raise CelRuntimeError(
            "could not parse formatting clause: error while parsing precision: "
            "error while converting precision to integer"
        )
    return int(digits)


def format_text(text: str, args: Sequence[object]) -> str:
    """Fill a format string.

    Raises:
        CelRuntimeError: a clause is malformed, has no argument or cannot show it.
    """
    _check_size(args)
    parts: list[str] = []
    used = 0
    for clause in clauses(text, len(args)):
        if not clause.verb:
            parts.append(clause.text)
            continue
        parts.append(_VERBS[clause.verb](args[used], clause.precision))
        used += 1
    return "".join(parts)


def _check_size(args: Sequence[object]) -> None:
    """Refuse arguments that would make a text larger than anything useful."""
    length = 0
    pending: list[Any] = list(args)
    while pending:
        value = pending.pop()
        cls = value.__class__
        if cls is str or cls is bytes:
            length += len(value)
        elif cls is list:
            length += 2 * len(value)
            pending.extend(value)
        elif cls is dict or cls is DomainMap:
            length += 2 * len(value)
            pending.extend(value.values())
        check_length(length, MAX_CHARACTERS)


def _failed(message: str) -> CelRuntimeError:
    return CelRuntimeError(f"error during formatting: {message}")


def _string(value: Any, _precision: int) -> str:
    cls = value.__class__
    if cls is list:
        return _list(value)
    if cls is dict or cls is DomainMap:
        return _map(value)
    if value is None:
        return "null"
    if cls is TypeValue:
        return value.name  # type: ignore[no-any-return]
    if cls in _PLAIN:
        return convert.to_string(value)
    raise _failed(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
        f"durations, and timestamps, was given {type_name(value)}"
    )


_PLAIN: Final = frozenset({int, UInt, float, bool, str, bytes, Timestamp, Duration})


def _element(value: Any) -> str:
    """A member of a list or map: strings quoted, doubles with six digits."""
    writer = _MEMBERS.get(value.__class__)
    if writer is None:
        raise _failed(f"no formatting function for {type_name(value)}")
    return writer(value)


def _double_member(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return quote("NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf")
    return f"{value:.{DEFAULT_PRECISION}f}"


def _plain_member(value: Any) -> str:
    return _string(value, 0)


def _list(value: Sequence[object]) -> str:
    return f"[{', '.join(map(_element, value))}]"


def _map(value: dict[object, object]) -> str:
    pairs: list[tuple[str, str]] = []
    for key, member in value.items():
        plain = unmap_key(key)
        if plain.__class__ not in (str, bool, int, UInt):
            raise _failed(f"no formatting function for map key of type {type_name(plain)}")
        pairs.append((_element(plain), _element(member)))
    pairs.sort(key=lambda pair: pair[0])
    return "{" + ", ".join(f"{key}:{member}" for key, member in pairs) + "}"


_ESCAPES: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
}  # fmt: skip


def quote(text: str) -> str:
    """Go's %q."""
    parts: list[str] = []
    for character in text:
        escape = _ESCAPES.get(character)
        if escape is not None:
            parts.append(escape)
        elif character == " " or character.isprintable():
            parts.append(character)
        else:
            code = ord(character)
            parts.append(
                f"\\x{code:02x}"
                if code < 0x80
                else f"\\u{code:04x}"
                if code < 0x10000
                else f"\\U{code:08x}"
            )
    return '"' + "".join(parts) + '"'


_MEMBERS: Final[dict[type, Callable[[Any], str]]] = {
    str: quote,
    bytes: lambda value: "b" + quote(convert.to_string(value)),
    float: _double_member,
    Timestamp: lambda value: f"timestamp({quote(convert.to_string(value))})",
    Duration: lambda value: f"duration({quote(convert.to_string(value))})",
    **dict.fromkeys((int, UInt, bool, type(None), list, dict, DomainMap, TypeValue), _plain_member),
}


def _decimal(value: Any, _precision: int) -> str:
    cls = value.__class__
    if cls is int:
        return str(value)
    if cls is UInt:
        return str(value.value)
    raise _failed(f"decimal clause can only be used on integers, was given {type_name(value)}")


def _double(value: Any, clause: str) -> float:
    if value.__class__ is float:
        return value
    if value.__class__ is str and value in _NUMBER_TEXTS:
        return float(value)
    raise _failed(f"{clause} clause can only be used on doubles, was given {type_name(value)}")


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return None


def _padded(digits: str, precision: int) -> str:
    return digits + "0" * max(0, min(precision, 10**6) - _MAX_PRECISION)


def _check_precision(precision: int) -> None:
    if precision > 10**6:
        raise _failed(f"precision {precision} is beyond 1000000")


def _fixed(value: Any, precision: int) -> str:
    number = _double(value, "fixed-point")
    _check_precision(precision)
    return _special(number) or _padded(
        f"{number or 0.0:,.{min(precision, _MAX_PRECISION)}f}", precision
    )


def _scientific(value: Any, precision: int) -> str:
    number = _double(value, "scientific")
    _check_precision(precision)
    # What is written as the precision is upstream's width; six digits follow the point in any case.
    special = _special(number)
    if special is not None:
        return special.rjust(precision)
    mantissa, _, exponent = f"{number or 0.0:.{DEFAULT_PRECISION}e}".partition("e")
    sign = "⁻" if exponent[0] == "-" else ""
    raised = "".join(_DIGITS[int(digit)] for digit in exponent[1:])
    return f"{mantissa}{_TIMES}{sign}{raised}".rjust(precision)


def _integer(value: Any) -> int | None:
    cls = value.__class__
    if cls is int:
        return value  # type: ignore[no-any-return]
    return value.value if cls is UInt else None


def _binary(value: Any, _precision: int) -> str:
    if value.__class__ is bool:
        return "1" if value else "0"
    number = _integer(value)
    if number is None:
        raise _failed(
            f"only integers and bools can be formatted as binary, was given {type_name(value)}"
        )
    return f"{number:b}"


def _octal(value: Any, _precision: int) -> str:
    number = _integer(value)
    if number is None:
        raise _failed(f"octal clause can only be used on integers, was given {type_name(value)}")
    return f"{number:o}"


def _hex(value: Any, _precision: int) -> str:
    cls = value.__class__
    if cls is str:
        return value.encode("utf-8", "surrogatepass").hex()  # type: ignore[no-any-return]
    if cls is bytes:
        return value.hex()  # type: ignore[no-any-return]
    number = _integer(value)
    if number is None:
        raise _failed(
            f"only integers, byte buffers, and strings can be formatted as hex, was given {type_name(value)}"
        )
    return f"{number:x}"


def _upper_hex(value: Any, precision: int) -> str:
    return _hex(value, precision).upper()


_VERBS: Final[dict[str, Callable[[Any, int], str]]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "x": _hex,
    "X": _upper_hex,
    "o": _octal,
}
