"""Kubernetes quantities: exact parse, compare, add and canonical text.

A quantity is held as an exact integer number of nano-units, so that comparing and adding are integer operations.
Exponents are bounded: no text, however short, makes a huge integer.

Source: k8s.io/apimachinery/pkg/api/resource/quantity.go.
"""

import re
from typing import Final, Self

from allocator.errors import QuantityError

NANOS_PER_UNIT: Final = 10**9
_MAX_INT64: Final = 2**63 - 1
_MAX_EXPONENT: Final = (
    400  # upstream accepts more and then hangs on comparing; nothing real comes near
)
_MAX_DIGITS: Final = 1024

_PATTERN: Final = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([a-zA-Z]*)([+-]?[0-9]*)")
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
    return (
        -(numerator // -denominator)
        if numerator % denominator == 0
        else -((-numerator + denominator - 1) // denominator)
    )


class Quantity:
    """An exact decimal number with the format it was written in.

    Attributes:
        nanos: the value in units of 10^-9; finer input is rounded away from zero, as upstream does.
        format: `DecimalSI`, `BinarySI` or `DecimalExponent`; decides the canonical text only.
    """

    __slots__ = ("format", "nanos")

    def __init__(self, nanos: int, format_: str = DECIMAL_SI) -> None:
        self.nanos = nanos
        self.format = format_

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a quantity.

        Raises:
            QuantityError: the text is no quantity, or its exponent is beyond ±400.
        """
        sign, digits, fraction, format_, base2, exponent = _split(text)
        number = int((digits + fraction) or "0")
        scale = exponent - len(fraction)
        if base2:
            shifted = (number << base2) * NANOS_PER_UNIT
            nanos = _ceil_away(shifted, 10 ** len(fraction))
            nanos = min(nanos, _MAX_INT64 * NANOS_PER_UNIT)
            if 0 < nanos < NANOS_PER_UNIT:
                format_ = DECIMAL_SI
        elif scale >= -9:
            nanos = number * 10 ** (scale + 9)
        else:
            nanos = _ceil_away(number, 10 ** (-scale - 9))
        return cls(-nanos if sign == "-" else nanos, format_)

    @classmethod
    def from_int(cls, value: int, format_: str = DECIMAL_SI) -> Self:
        """Make a quantity of whole units."""
        return cls(value * NANOS_PER_UNIT, format_)

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
        # Nothing has no format of its own: the sum is written as the other one.
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __reduce__(self) -> tuple[type["Quantity"], tuple[int, str]]:
        return (Quantity, (self.nanos, self.format))

    def __str__(self) -> str:
        """Write the canonical text, e.g. `1536Mi` for 1.5Gi and `1500m` for 1.5."""
        if self.nanos == 0:
            return "0"
        if (
            self.format == BINARY_SI
            and self.is_integer
            and abs(self.nanos) >= 1024 * NANOS_PER_UNIT
        ):
            return self._binary_text()
        number, exponent = self.nanos, -9
        while number % 1000 == 0 and exponent < 18:
            number //= 1000
            exponent += 3
        if self.format == DECIMAL_EXPONENT:
            return f"{number}e{exponent}" if exponent else str(number)
        return f"{number}{_DECIMAL_SUFFIX[exponent]}"

    def _binary_text(self) -> str:
        number = self.nanos // NANOS_PER_UNIT
        power = 0
        while number % 1024 == 0 and power < len(_BINARY_SUFFIX) - 1:
            number //= 1024
            power += 1
        return f"{number}{_BINARY_SUFFIX[power]}"

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


def _split(text: str) -> tuple[str, str, str, str, int, int]:
    """Split into sign, whole digits, fraction digits, format, binary exponent, decimal exponent."""
    if not text:
        raise QuantityError(text, "it is empty")
    if len(text) > _MAX_DIGITS:
        raise QuantityError(text, f"it is longer than {_MAX_DIGITS} characters")
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise QuantityError(text, "it does not match <sign><digits>[.<digits>]<suffix>")
    sign, digits, _, fraction, suffix, tail = match.groups()
    fraction = fraction or ""
    if not digits and not fraction:
        raise QuantityError(text, "it has no digits")
    if suffix in ("e", "E") and tail and tail not in ("+", "-"):
        exponent = int(tail)
        if abs(exponent) > _MAX_EXPONENT:
            raise QuantityError(text, f"its exponent is beyond {_MAX_EXPONENT}")
        return sign, digits, fraction, DECIMAL_EXPONENT, 0, exponent
    if tail:
        raise QuantityError(text, f"unknown suffix {suffix + tail!r}")
    if suffix in _BINARY:
        return sign, digits, fraction, BINARY_SI, _BINARY[suffix], 0
    if suffix in _DECIMAL:
        return sign, digits, fraction, DECIMAL_SI, 0, _DECIMAL[suffix]
    raise QuantityError(text, f"unknown suffix {suffix!r}")
