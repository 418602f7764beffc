"""Membership, selection by key or index, and maps from entries.

Source: cel-go interpreter/attributes.go.
"""

from typing import Any, Final

from allocator.cel.values import moments
from allocator.cel.values.comparison import equal
from allocator.cel.values.limits import PLAIN_KINDS, Stopped, kind_of
from allocator.cel.values.maps import EMPTY_MAP, DomainMap, find, map_key
from allocator.cel.values.messages import MESSAGES
from allocator.cel.values.names import go_name, type_name
from allocator.cel.values.scalars import (
    MAX_INT,
    NONE,
    Optional,
    UInt,
)
from allocator.cel.values.semver import Semver
from allocator.errors import CelRuntimeError


def contains(value: Any, container: Any) -> bool:
    """The `in` operator."""
    cls = container.__class__
    if cls is list:
        return includes(container, value)
    if cls is dict:
        return find(container, value)[1]
    if cls is DomainMap:
        return value.__class__ is str and value in container
    raise CelRuntimeError("no such overload")


def includes(elements: list[Any], value: Any) -> bool:
    """Whether some element equals the value."""
    if value.__class__ in PLAIN_KINDS and kind_of(elements) is value.__class__:
        return value in elements
    return any(equal(value, element) is True for element in elements)


def contains_key(value: Any, container: Any) -> bool:
    """The `in` operator for a map that the expression itself makes: not every value can be looked up there."""
    if container.__class__ is dict and (value.__class__ is Semver or value.__class__ is bytes):
        raise Stopped("internal error: runtime error: hash of unhashable type")
    return contains(value, container)


def shown(value: Any) -> str:
    """A value as upstream prints it in messages."""
    cls = value.__class__
    if cls is UInt:
        return str(value.value)
    if cls is bool:
        return "true" if value else "false"
    if cls is str:
        return value  # type: ignore[no-any-return]
    if cls is float:
        return moments.go_float(value)
    return str(value) if cls is int else type_name(value)


KEYS: Final = frozenset({str, int, UInt, bool, float})


def list_index(index: Any) -> int:
    """The position that an index value stands for.

    Raises:
        CelRuntimeError: it is no whole number.
    """
    cls = index.__class__
    if cls is int:
        return index  # type: ignore[no-any-return]
    if cls is UInt and index.value <= MAX_INT:
        return index.value  # type: ignore[no-any-return]
    if cls is float and index == index and abs(index) < 2**63 and index == int(index):
        return int(index)
    if cls is float or cls is UInt:
        raise CelRuntimeError(f"unsupported index value {shown(index)} in list")
    raise CelRuntimeError(f"unsupported index type '{type_name(index)}' in list")


def lookup(container: Any, key: Any) -> tuple[object, bool]:
    """The value under a key or at an index, and whether there is one.

    Raises:
        CelRuntimeError: the key cannot be one.
    """
    if key.__class__ not in KEYS:
        raise CelRuntimeError(f"invalid qualifier type: {go_name(key)}")
    cls = container.__class__
    if cls is dict:
        return find(container, key)
    if cls is DomainMap:
        value = container.get(key, EMPTY_MAP) if key.__class__ is str else EMPTY_MAP
        return value, True
    if cls is list:
        at = list_index(key)
        return (container[at], True) if 0 <= at < len(container) else (None, False)
    return container.member(key) if cls in MESSAGES else (None, False)


def index(container: Any, key: Any) -> object:
    """`container[key]` or `container.key`.

    Raises:
        CelRuntimeError: there is no such key or index.
    """
    if container.__class__ is Optional:
        return optional_index(container, key)
    value, found = lookup(container, key)
    if found or container.__class__ in MESSAGES:
        return value
    if container.__class__ is list:
        raise CelRuntimeError(f"index out of bounds: {shown(key)}")
    raise CelRuntimeError(f"no such key: {shown(key)}")


def optional_index(container: Any, key: Any) -> Optional:
    """`container[?key]` or `container.?key`."""
    if container.__class__ is Optional:
        if not container.present:
            return container
        container = container.value
    value, found = lookup(container, key)
    return Optional(value) if found else NONE


def has_field(container: Any, field: str) -> bool:
    """The `has()` macro on an evaluated operand."""
    if container.__class__ is Optional:
        return optional_index(container, field).present
    return lookup(container, field)[1]


def make_map(entries: list[tuple[object, object]]) -> dict[object, object]:
    """A map from CEL keys and values; of equal keys the last wins."""
    return {map_key(key): value for key, value in entries}
