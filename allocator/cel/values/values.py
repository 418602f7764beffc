"""Runtime values.

CEL value    Python value
bool, int, double, string, bytes, null    bool, int, float, str, bytes, None, told apart by exact class
list, map    list, dict (see `map_key`), never changed once made
uint, duration, timestamp, type, optional, quantity, semver    the classes here

Exact classes matter: Python's `True == 1` is not CEL's. Code compares `value.__class__`, never `isinstance`.
"""

from typing import Any, Final, Self

from allocator.cel.types import Type
from allocator.errors import CelRuntimeError
from allocator.quantity import Quantity

MAX_INT: Final = 2**63 - 1
MIN_INT: Final = -(2**63)
MAX_UINT: Final = 2**64 - 1


# Differs from upstream, which has no such bounds and runs out of memory: its costs see what a function reads, not
# what it makes. Nothing that stays within the cost limit and is used afterwards comes near.
MAX_CHARACTERS: Final = 2**24
MAX_ELEMENTS: Final = 2**20


def check_length(length: int, most: int) -> None:
    """Refuse to make a value that is larger than anything useful.

    Raises:
        CelRuntimeError: it is.
    """
    if length > most:
        raise CelRuntimeError(f"operation cancelled: result of size {length} is too large")


_LONG: Final = 64
PLAIN_KINDS: Final = frozenset({int, str})
"""Classes whose values Python compares with each other as CEL does."""


def kind_of(elements: list[Any]) -> type | None:
    """The class of all elements of a long list, or None: there are several, or the list is not worth a look.

    Where they are all alike, Python's own loops do what ours would, in a fraction of the time.
    """
    if len(elements) < _LONG:
        return None
    kinds = set(map(type, elements))
    return kinds.pop() if len(kinds) == 1 else None


class Stopped(Exception):  # noqa: N818  # control flow: passes through `&&` and `||`, which absorb errors
    """The evaluation ran out of cost or time, or into something that upstream cannot go on after."""


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


class Semver:
    """A semantic version.

    Attributes:
        key: orders versions; build metadata takes no part.
        text: canonical text.
    """

    __slots__ = ("key", "major", "minor", "patch", "text")

    def __init__(self, major: int, minor: int, patch: int, pre: tuple[str, ...], text: str) -> None:
        self.major = major
        self.minor = minor
        self.patch = patch
        # A version without pre-release follows those with one; numeric identifiers precede textual ones.
        self.key = (
            major,
            minor,
            patch,
            not pre,
            tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre),
        )
        self.text = text

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a strict semantic version.

        Raises:
            CelRuntimeError: it is none; the message is upstream's.
        """
        if not text:
            raise CelRuntimeError("Version string empty")
        numbers = text.split(".", 2)
        if len(numbers) != 3:
            raise CelRuntimeError("No Major.Minor.Patch elements found")
        major = _number(numbers[0], "Major")
        minor = _number(numbers[1], "Minor")
        rest, plus, build = numbers[2].partition("+")
        patch_text, dash, pre_text = rest.partition("-")
        patch = _number(patch_text, "Patch")
        pre = tuple(pre_text.split(".")) if dash else ()
        for part in pre:
            _check_prerelease(part)
        for part in build.split(".") if plus else ():
            if not part:
                raise CelRuntimeError("Build meta data is empty")
            if not _IDENTIFIER.issuperset(part):
                raise CelRuntimeError(f'Invalid character(s) found in build meta data "{part}"')
        return cls(major, minor, patch, pre, text)


_DIGITS: Final = frozenset("0123456789")
_IDENTIFIER: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789")


def _number(text: str, what: str) -> int:
    if not _DIGITS.issuperset(text):
        raise CelRuntimeError(f'Invalid character(s) found in {what.lower()} number "{text}"')
    if not text:
        raise CelRuntimeError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 1 and text[0] == "0":
        raise CelRuntimeError(f'{what} number must not contain leading zeroes "{text}"')
    if len(text) > 20 or int(text) > MAX_UINT:
        raise CelRuntimeError(f'strconv.ParseUint: parsing "{text[:80]}": value out of range')
    return int(text)


def _check_prerelease(part: str) -> None:
    if not part:
        raise CelRuntimeError("Prerelease is empty")
    if _DIGITS.issuperset(part):
        if len(part) > 1 and part[0] == "0":
            raise CelRuntimeError(
                f'Numeric PreRelease version must not contain leading zeroes "{part}"'
            )
        if len(part) > 20 or int(part) > MAX_UINT:
            raise CelRuntimeError(f'strconv.ParseUint: parsing "{part[:80]}": value out of range')
    elif not _IDENTIFIER.issuperset(part):
        raise CelRuntimeError(f'Invalid character(s) found in prerelease "{part}"')


class DomainMap(dict[str, object]):
    """`device.attributes` or `device.capacity`: looking up an unknown domain gives an empty map.

    Only looking up: `in`, `size()` and iteration see the domains that exist.
    """

    __slots__ = ()

    def __missing__(self, key: object) -> object:
        return EMPTY_MAP


EMPTY_MAP: Final[dict[object, object]] = {}


def map_key(key: object) -> object:
    """The Python key of a CEL map key: bools and doubles would collide with ints."""
    cls = key.__class__
    if cls is str or cls is int or cls is UInt:
        return key
    if cls is list or cls is dict or cls is QuantityValue or cls is Optional or cls is DomainMap:
        return (cls, _Identity(key))
    if cls is Semver or cls is bytes or getattr(cls, "UNHASHABLE", False):
        raise Stopped("internal error: runtime error: hash of unhashable type")
    return (cls, key)


class _Identity:
    """Compares by identity, as upstream's pointers do when they become map keys."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return other.__class__ is _Identity and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def unmap_key(key: object) -> object:
    """The CEL value of a Python map key."""
    if key.__class__ is tuple:
        inner: object = key[1]
        return inner.value if inner.__class__ is _Identity else inner
    return key


def find(mapping: dict[Any, Any], key: object) -> tuple[object, bool]:
    """Look up a key the way CEL does: numbers match across int, uint and double."""
    if mapping.__class__ is DomainMap:
        # Upstream answers any key that is no domain with the empty map.
        return (mapping.get(key, EMPTY_MAP) if key.__class__ is str else EMPTY_MAP), True
    cls = key.__class__
    if cls is not str and cls is not bool:
        return _find_other(mapping, key)
    found = mapping.get(map_key(key), _ABSENT)
    return (None, False) if found is _ABSENT else (found, True)


_ABSENT: Final = object()


def _find_other(mapping: dict[Any, Any], key: object) -> tuple[object, bool]:
    if not mapping:
        return None, False
    cls = key.__class__
    if (cls is bytes or cls is Semver) and next(iter(mapping)).__class__ is str:
        return None, False
    for candidate in _numeric_keys(key):
        found = mapping.get(candidate, _ABSENT)
        if found is not _ABSENT:
            return found, True
    return None, False


def _numeric_keys(key: Any) -> tuple[object, ...]:
    """Python keys that a number may stand under: its own, and those of other integer types with the same value."""
    cls = key.__class__
    if cls is int:
        return (key, UInt(key))
    if cls is UInt:
        return (key, key.value)
    if cls is float and abs(key) < 2**64 and key == int(key):
        return ((float, key), int(key), UInt(int(key)))
    return (map_key(key),)


TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    DomainMap: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    Optional: "optional_type",
    QuantityValue: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
}


def type_name(value: object) -> str:
    """The CEL name of a value's type."""
    name = TYPE_NAMES.get(value.__class__)
    return (
        name
        if name is not None
        else str(getattr(value.__class__, "CEL_NAME", value.__class__.__name__))
    )


_GO_NAMES: Final = {
    "bool": "types.Bool",
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "string": "types.String",
    "bytes": "types.Bytes",
    "null_type": "types.Null",
    "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp",
    "optional_type": "*types.Optional",
    "type": "*types.Type",
    "kubernetes.Quantity": "cel.Quantity",
    "kubernetes.Semver": "cel.Semver",
}


def go_name(value: object) -> str:
    """The name of a value's type in upstream's own code, which shows in some messages."""
    name = type_name(value)
    return _GO_NAMES.get(name, name)


def no_such_overload(function: str, *args: object) -> CelRuntimeError:
    """The error for arguments that a function does not take."""
    return CelRuntimeError(f"no such overload: {function}({', '.join(map(type_name, args))})")


def native(value: Any) -> Any:
    """What upstream's `Value()` gives where it differs: the name of a type, the value of an optional."""
    while value.__class__ is Optional and value.present:
        value = value.value
    return value.name if value.__class__ is TypeValue else value


def static_type_name(type_: Type) -> str:
    """The name that a static type has as a value."""
    return type_.type_name
