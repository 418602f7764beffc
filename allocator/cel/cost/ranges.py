"""Sizes and costs from a least to a most: pairs of unsigned 64-bit numbers that saturate."""

import math
from typing import Final, NamedTuple

MOST: Final = 2**64 - 1


class Range(NamedTuple):
    """A size or cost from `low` to `high`."""

    low: int
    high: int

    def plus(self, other: "Range") -> "Range":
        """The sum."""
        return Range(min(MOST, self.low + other.low), min(MOST, self.high + other.high))

    def times(self, other: "Range") -> "Range":
        """The product."""
        return Range(min(MOST, self.low * other.low), min(MOST, self.high * other.high))

    def scaled(self, factor: float) -> "Range":
        """The product with a factor, rounded up."""
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: "Range") -> "Range":
        """Both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def _scaled(value: int, factor: float) -> int:
    product = float(value) * factor
    return MOST if product >= 2.0**64 else min(MOST, math.ceil(product))


def fixed(value: int) -> Range:
    """One size or cost."""
    return Range(value, value)


ZERO: Final = Range(0, 0)
ONE: Final = Range(1, 1)
UNKNOWN: Final = Range(0, MOST)
