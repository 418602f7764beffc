"""Maps: which Python key stands for a CEL key, how one is looked up, and the maps of a device."""

from typing import Any, Final

from allocator.cel.values.limits import Stopped
from allocator.cel.values.messages import MESSAGES
from allocator.cel.values.scalars import Optional, QuantityValue, UInt
from allocator.cel.values.semver import Semver


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
    if cls in _BY_IDENTITY:
        return (cls, _Identity(key))
    if cls is Semver or cls is bytes or getattr(cls, "UNHASHABLE", False):
        raise Stopped("internal error: runtime error: hash of unhashable type")
    return (cls, key)


_BY_IDENTITY: Final = frozenset({list, dict, QuantityValue, Optional, DomainMap, *MESSAGES})


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
