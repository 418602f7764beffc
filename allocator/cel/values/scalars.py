"""Values that Python has no class for: unsigned integers, durations, timestamps, types, optionals, quantities."""

from typing import Final

from allocator.quantity import Quantity

MAX_INT: Final = 2**63 - 1
MIN_INT: Final = -(2**63)
MAX_UINT: Final = 2**64 - 1


class UInt:
    """An unsigned 64-bit integer."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return other.__class__ is UInt and self.value == other.value

    def __hash__(self) -> int:
        return hash(("uint", self.value))


class Duration:
    """A signed time span in nanoseconds."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return other.__class__ is Duration and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("duration", self.nanos))


class Timestamp:
    """A point in time.

    Attributes:
        nanos: nanoseconds since 1970-01-01T00:00:00Z; all that counts but for writing.
        offset: seconds east of UTC that it was written with, and is written with.
    """

    __slots__ = ("nanos", "offset")

    def __init__(self, nanos: int, offset: int = 0) -> None:
        self.nanos = nanos
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return other.__class__ is Timestamp and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))


class TypeValue:
    """A type as a value, known by its name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return other.__class__ is TypeValue and self.name == other.name

    def __hash__(self) -> int:
        return hash(("type", self.name))


class Optional:
    """A value that may be absent."""

    __slots__ = ("present", "value")

    def __init__(self, value: object, *, present: bool = True) -> None:
        self.value = value
        self.present = present


NONE: Final = Optional(None, present=False)


class QuantityValue:
    """A quantity.

    Attributes:
        derived: the result of add or sub; upstream holds it by pointer, so an equality with it on the right
            of a parsed quantity is a type mismatch.
    """

    __slots__ = ("derived", "quantity")

    def __init__(self, quantity: Quantity, *, derived: bool = False) -> None:
        self.quantity = quantity
        self.derived = derived
