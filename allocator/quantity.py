"""Kubernetes quantities: exact parse, compare, add and canonical text.

A quantity is held as an exact integer number of nano-units, so that comparing and adding are integer operations.
Exponents are bounded: no text, however short, makes a huge integer.

Source: k8s.io/apimachinery/pkg/api/resource/{quantity,amount,suffix}.go.
"""

import re
from typing import Final, Self

from allocator.errors import QuantityError

NANOS_PER_UNIT: Final = 10**9
_MAX_INT64: Final = 2**63 - 1
# Differs from upstream: it accepts more, and then takes for ever to compare. Nothing real comes near.
_MAX_EXPONENT: Final = 400
_MAX_DIGITS: Final = 1024
_NANO: Final = -9
_FAST_DIGITS: Final = 18  # what upstream keeps in an int64 without looking
_FAST_BINARY_DIGITS: Final = 15

# A number, letters that suffixes are made of, and an exponent. Upstream reads a missing number as zero.
_PATTERN: Final = re.compile(
    r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*)([+-]?[0-9]*)", re.ASCII
)
_DIGIT: Final = re.compile("[0-9]", re.ASCII)
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

DECIMAL_SI: Final = "DecimalSI"
BINARY_SI: Final = "BinarySI"
DECIMAL_EXPONENT: Final = "DecimalExponent"


def _ceil_away(numerator: int, denominator: int) -> int:
    """Divide, rounding away from zero."""
    if numerator >= 0:
        return -(-numerator // denominator)
    return numerator // denominator


class Quantity:
    """An exact decimal number with the format it was written in.

    Attributes:
        nanos: the value in units of 10^-9; finer input is rounded away from zero, as upstream does.
        format: `DecimalSI`, `BinarySI` or `DecimalExponent`; decides the canonical text only.
        exponent: power of ten that upstream holds the value in, e.g. -3 for 1500m; only `as_int64` and
            `approximate_float` depend on it.
        small: whether upstream holds the value in an int64.
    """

    __slots__ = ("exponent", "format", "nanos", "small")

    def __init__(
        self, nanos: int, format_: str = DECIMAL_SI, exponent: int = _NANO, *, small: bool = False
    ) -> None:
        self.nanos = nanos
        self.format = format_
        self.exponent = exponent
        self.small = small

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a quantity.

        Raises:
            QuantityError: the text is no quantity, or its exponent is above 400.
        """
        negative, digits, fraction, format_, base2, exponent = _split(text)
        sign = -1 if negative else 1
        length = max(len(digits), 1) + len(fraction)
        number = int((digits + fraction) or "0")
        scale = exponent - len(fraction)
        if base2:
            precision = _FAST_BINARY_DIGITS - max(len(digits), 1) - base2 * 3 // 10 - 1
            if not fraction and precision >= 0 and number << base2 <= _MAX_INT64:
                return cls(sign * (number << base2) * NANOS_PER_UNIT, format_, 0, small=True)
            if not _DIGIT.search(text):
                raise QuantityError(text, "it has no digits")
            nanos = _ceil_away((number << base2) * NANOS_PER_UNIT, 10 ** len(fraction))
            if nanos > _MAX_INT64 * NANOS_PER_UNIT:
                return cls(sign * _MAX_INT64 * NANOS_PER_UNIT, format_, 0)
            if 0 < nanos < NANOS_PER_UNIT:
                format_ = DECIMAL_SI
            return cls(sign * nanos, format_)
        if not number:
            if scale < _NANO and not _DIGIT.search(text.partition("e")[0].partition("E")[0]):
                raise QuantityError(text, "it has no digits")
            return cls(0, format_, scale, small=length <= _FAST_DIGITS and scale >= _NANO)
        if scale >= _NANO:
            if scale > _MAX_EXPONENT:
                raise QuantityError(text, f"its exponent is beyond {_MAX_EXPONENT}")
            nanos = sign * number * 10 ** (scale - _NANO)
            small = length <= _FAST_DIGITS
            return cls(nanos, format_, scale if small else _NANO, small=small)
        # Anything below a nano-unit is one nano-unit; the power is not needed when it dwarfs the number.
        shift = min(_NANO - scale, length + 1)
        return cls(sign * _ceil_away(number, 10**shift), format_)

    @classmethod
    def from_int(cls, value: int, format_: str = DECIMAL_SI) -> Self:
        """Make a quantity of whole units."""
        return cls(value * NANOS_PER_UNIT, format_, 0, small=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: "Quantity") -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: "Quantity") -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: "Quantity") -> bool:
        return self.nanos >= other.nanos

    def __add__(self, other: "Quantity") -> "Quantity":
        return self._with(self.nanos + other.nanos, other)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return self._with(self.nanos - other.nanos, other)

    def _with(self, nanos: int, other: "Quantity") -> "Quantity":
        """The result of adding or subtracting. Nothing has no format of its own: it is written as the other."""
        format_ = self.format if self.nanos else other.format
        exponent = min(self.exponent, other.exponent)
        if self.small and other.small:
            if not other.nanos:
                exponent = self.exponent
            elif not self.nanos:
                exponent = other.exponent
            # Upstream moves to a big decimal for good once a sum does not fit.
            limit = _MAX_INT64 * 10 ** (exponent - _NANO)
            parts = (abs(self.nanos), abs(other.nanos), abs(nanos))
            return Quantity(nanos, format_, exponent, small=max(parts) <= limit)
        return Quantity(nanos, format_, exponent)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore, (self.nanos, self.format, self.exponent, self.small))

    def __str__(self) -> str:
        """Write the canonical text, e.g. `1536Mi` for 1.5Gi and `1500m` for 1.5.

        As upstream, a decimal amount of 10^21 or more, and a binary one of 2^70 or more, loses its suffix.
        """
        if self.nanos == 0:
            return "0"
        if (
            self.format == BINARY_SI
            and self.is_integer
            and abs(self.nanos) >= 1024 * NANOS_PER_UNIT
        ):
            return self._binary_text()
        number, exponent = self.nanos, _NANO
        while number % 1000 == 0:
            number //= 1000
            exponent += 3
        if self.format == DECIMAL_EXPONENT:
            return f"{number}e{exponent}" if exponent else str(number)
        return f"{number}{_DECIMAL_SUFFIX.get(exponent, '')}"

    def _binary_text(self) -> str:
        number = self.nanos // NANOS_PER_UNIT
        power = 0
        while number % 1024 == 0:
            number //= 1024
            power += 1
        return f"{number}{_BINARY_SUFFIX[power] if power < len(_BINARY_SUFFIX) else ''}"

    @property
    def is_integer(self) -> bool:
        """Whether the value is a whole number of units."""
        return self.nanos % NANOS_PER_UNIT == 0

    def rounded_up(self) -> int:
        """The value in whole units, rounded away from zero (upstream's `Value()`)."""
        return _ceil_away(self.nanos, NANOS_PER_UNIT)

    def milli_rounded_up(self) -> int:
        """The value in thousandths, rounded away from zero (upstream's `MilliValue()`)."""
        return _ceil_away(self.nanos, 10**6)

    def as_int64(self) -> int | None:
        """The value as upstream's `AsInt64()`: None unless it was written in whole units and fits.

        `1000m` is no integer to upstream, and neither is `1.5Gi`.
        """
        if not self.small or self.exponent < 0:
            return None
        whole = self.nanos // NANOS_PER_UNIT
        return whole if -_MAX_INT64 - 1 <= whole <= _MAX_INT64 else None

    def approximate_float(self) -> float:
        """The value as upstream's `AsApproximateFloat64()`, with its rounding."""
        base = float(self.nanos // 10 ** (self.exponent - _NANO))
        return base * 10.0**self.exponent if self.exponent else base


def _restore(nanos: int, format_: str, exponent: int, small: bool) -> Quantity:  # for pickle
    return Quantity(nanos, format_, exponent, small=small)


_PARTS: Final = re.compile(
    r"([+-]?)([0-9]*+)(?:(\.)([0-9]*+))?([eE][+-]?)?(0*+)(.*)", re.ASCII | re.DOTALL
)


def _shortened(text: str) -> str:
    """A long text without the zeros in front and the digits behind that do not matter.

    Raises:
        QuantityError: more digits do.
    """
    match = _PARTS.fullmatch(text)
    if match is None:
        raise AssertionError("the pattern takes any text")
    sign, whole, point, fraction, exponent, zeros, rest = match.groups(default="")
    digits = whole.lstrip("0") or whole[:1]
    if len(digits) > _MAX_DIGITS:
        raise QuantityError(text, f"it has more than {_MAX_DIGITS} digits")
    if fraction[_MAX_DIGITS:].strip("0"):
        fraction = fraction[:_MAX_DIGITS] + "1"  # something is left over, and will be rounded up
    return f"{sign}{digits}{point}{fraction[: _MAX_DIGITS + 1]}{exponent}{zeros[:1]}{rest}"


def _split(text: str) -> tuple[bool, str, str, str, int, int]:
    """Split into sign, whole digits, fraction digits, format, binary exponent, decimal exponent."""
    if not text:
        raise QuantityError(text, "it is empty")
    match = _PATTERN.fullmatch(_shortened(text) if len(text) > _MAX_DIGITS else text)
    if match is None:
        raise QuantityError(text, "it does not match <sign><digits>[.<digits>]<suffix>")
    sign, digits, fraction, suffix, tail = match.groups()
    fraction = fraction or ""
    negative = sign == "-"
    suffix += tail
    base2 = _BINARY.get(suffix)
    if base2 is not None:
        return negative, digits, fraction, BINARY_SI, base2, 0
    exponent = _DECIMAL.get(suffix)
    if exponent is not None:
        return negative, digits, fraction, DECIMAL_SI, 0, exponent
    if suffix[0] in "eE" and suffix[1:].lstrip("+-").isdigit():
        if len(suffix) > 20:
            raise QuantityError(text, f"its exponent is beyond {_MAX_EXPONENT}")
        return negative, digits, fraction, DECIMAL_EXPONENT, 0, int(suffix[1:])
    raise QuantityError(text, f"unknown suffix {suffix!r}")
