"""Lists, maps, sets and sizes.

Source: cel-go ext/{lists,sets,comprehensions}.go, k8s.io/apiserver/pkg/cel/library/lists.go.
"""

from collections.abc import Callable
from functools import cmp_to_key
from operator import le
from typing import Any, Final

from allocator.cel.library.text import index_of, last_index_of
from allocator.cel.values import arithmetic, comparison, selection
from allocator.cel.values.comparison import compare, equal
from allocator.cel.values.limits import PLAIN_KINDS, kind_of
from allocator.cel.values.maps import DomainMap, find, map_key
from allocator.cel.values.names import no_such_overload
from allocator.cel.values.scalars import MAX_INT, Duration, UInt
from allocator.errors import CelRuntimeError

_SIZED: Final = frozenset({str, bytes, list, dict, DomainMap})


def size(value: Any) -> int:
    """Characters, bytes, elements or entries."""
    cls = value.__class__
    if cls in _SIZED:
        return len(value)
    raise CelRuntimeError("no such overload: size")


def _list(name: str, value: Any) -> list[Any]:
    if value.__class__ is not list:
        raise no_such_overload(name, value)
    return value


def _index_of(container: Any, item: Any, *offset: Any) -> int:
    if container.__class__ is list and not offset:
        if _is_plain(container, item):
            return container.index(item) if item in container else -1
        for at, element in enumerate(container):
            if equal(element, item) is True:
                return at
        return -1
    _check_texts("indexOf", container, item, offset)
    return index_of(container, item, *offset)


def _last_index_of(container: Any, item: Any, *offset: Any) -> int:
    if container.__class__ is list and not offset:
        if _is_plain(container, item):
            return len(container) - 1 - container[::-1].index(item) if item in container else -1
        for at in range(len(container) - 1, -1, -1):
            if equal(container[at], item) is True:
                return at
        return -1
    _check_texts("lastIndexOf", container, item, offset)
    return last_index_of(container, item, *offset)


def _is_plain(elements: list[Any], item: Any) -> bool:
    """Whether a long list holds only texts, or only ints, as the item is one."""
    return item.__class__ in PLAIN_KINDS and kind_of(elements) is item.__class__


def _check_texts(name: str, container: Any, item: Any, offset: tuple[Any, ...]) -> None:
    if (
        container.__class__ is not str
        or item.__class__ is not str
        or (offset and offset[0].__class__ is not int)
    ):
        raise no_such_overload(name, container, item, *offset)


def _slice(value: Any, start: Any, end: Any) -> list[Any]:
    elements = _list("slice", value)
    if start.__class__ is not int or end.__class__ is not int:
        raise no_such_overload("slice", value, start, end)
    if start < 0 or end < 0:
        raise CelRuntimeError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelRuntimeError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if len(elements) < end:
        raise CelRuntimeError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def _flatten(value: Any, depth: Any = 1) -> list[Any]:
    elements = _list("flatten", value)
    if depth.__class__ is not int:
        raise no_such_overload("flatten", value, depth)
    if depth < 0:
        raise CelRuntimeError("level must be non-negative")
    while depth > 0 and any(element.__class__ is list for element in elements):
        flat: list[Any] = []
        for element in elements:
            if element.__class__ is list:
                flat.extend(element)
            else:
                flat.append(element)
        elements = flat
        depth -= 1
    return elements


def _sort(value: Any) -> list[Any]:
    return _sort_by(value, value)


def _sort_by(value: Any, keys: Any) -> list[Any]:
    elements = _list("sort", value)
    if keys.__class__ is not list:
        raise no_such_overload("@sortByAssociatedKeys", value, keys)
    if len(elements) != len(keys):
        raise CelRuntimeError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(elements)} and {len(keys)} elements respectively"
        )
    if not elements:
        return elements
    if not comparison.comparable(keys[0]):
        raise CelRuntimeError("list elements must be comparable")
    if len({key.__class__ for key in keys}) > 1:
        raise CelRuntimeError("list elements must have the same type")
    pairs: list[tuple[Any, Any]] = list(zip(keys, elements, strict=True))
    if keys[0].__class__ in (str, int, bool, bytes):
        pairs.sort(key=lambda pair: pair[0])
    else:
        pairs.sort(key=cmp_to_key(_compare))
    return [element for _, element in pairs]


def _compare(left: tuple[Any, Any], right: tuple[Any, Any]) -> int:
    """Order of pairs by their keys; keys that cannot be ordered (NaN) count as equal."""
    try:
        return compare(left[0], right[0])
    except CelRuntimeError:
        return 0


def _range(length: Any) -> list[int]:
    if length.__class__ is not int:
        raise no_such_overload("lists.range", length)
    if length < 0:
        raise CelRuntimeError(f"lists.range: size must be non-negative, got {length}")
    if length > MAX_RANGE:
        raise CelRuntimeError(f"lists.range: size {length} exceeds maximum allowed ({MAX_RANGE})")
    return list(range(length))


MAX_RANGE: Final = 1_000_000


def _reverse(value: Any) -> list[Any]:
    return _list("reverse", value)[::-1]


def _distinct(value: Any) -> list[Any]:
    unique: list[Any] = []
    seen: set[Any] = set()
    elements = _list("distinct", value)
    all_ints = kind_of(elements) is int
    for element in elements:
        cls = element.__class__
        if cls is str or cls is bool:
            mark = (cls, element)
            if mark in seen:
                continue
            seen.add(mark)
        elif cls is int and all_ints:
            if element in seen:
                continue
            seen.add(element)
        elif any(equal(element, other) is True for other in unique):
            continue
        unique.append(element)
    return unique


def _is_sorted(value: Any) -> bool:
    elements = _list("isSorted", value)
    _check_element("isSorted", elements)
    if kind_of(elements) in PLAIN_KINDS:
        return all(map(le, elements, elements[1:]))
    previous: Any = None
    for at, element in enumerate(elements):
        if not comparison.comparable(element):
            raise CelRuntimeError("no such overload")
        # Upstream looks only for "greater": an element of another type passes.
        if at and _order_or_none(previous, element) == 1:
            return False
        previous = element
    return True


def _order_or_none(left: Any, right: Any) -> int | None:
    try:
        return compare(left, right)
    except CelRuntimeError:
        return None


def _check_element(name: str, elements: list[Any]) -> None:
    """Overloads are chosen by the first element."""
    if elements and not comparison.comparable(elements[0]):
        raise no_such_overload(name, elements)


def _sum(value: Any) -> object:
    elements = _list("sum", value)
    if not elements:
        return 0
    total: object = _ZEROS.get(elements[0].__class__)
    if total is None:
        raise no_such_overload("sum", value)
    if kind_of(elements) is int and max(map(abs, elements)) * len(elements) <= MAX_INT:
        return sum(elements)  # no part of it can overflow
    for element in elements:
        total = arithmetic.add(total, element)
    return total


_ZEROS: Final[dict[type, object]] = {int: 0, UInt: UInt(0), float: 0.0, Duration: Duration(0)}


def _extreme(
    name: str, preferred: int, plain: Callable[[list[Any]], object]
) -> Callable[[Any], object]:
    def method(value: Any) -> object:
        elements = _list(name, value)
        if not elements:
            raise CelRuntimeError(f"{name} called on empty list")
        _check_element(name, elements)
        if kind_of(elements) in PLAIN_KINDS:
            return plain(elements)
        best = elements[0]
        for element in elements[1:]:
            if not comparison.comparable(element):
                raise CelRuntimeError("no such overload")
            if _order_or_none(best, element) == preferred:
                best = element
        return best

    return method


def _includes(value: Any, item: Any) -> bool:
    if value.__class__ is list:
        if _is_plain(value, item):
            return item in value
        return any(equal(element, item) is True for element in value)
    return equal(value, item) is True


def _sets(name: str, value: Any, other: Any) -> None:
    if value.__class__ is not list or other.__class__ is not list:
        raise no_such_overload(name, value, other)


def _contains_all(value: list[Any], part: list[Any]) -> bool:
    if kind_of(value) is int and kind_of(part) is int:
        return set(value).issuperset(part)
    texts = {element for element in value if element.__class__ is str}
    return all(
        element in texts if element.__class__ is str else selection.contains(element, value)
        for element in part
    )


def _sets_contains(value: Any, part: Any) -> bool:
    _sets("sets.contains", value, part)
    return _contains_all(value, part)


def _sets_equivalent(value: Any, other: Any) -> bool:
    _sets("sets.equivalent", value, other)
    return _contains_all(value, other) and _contains_all(other, value)


def _sets_intersects(value: Any, other: Any) -> bool:
    _sets("sets.intersects", value, other)
    if kind_of(value) is int and kind_of(other) is int:
        return not set(value).isdisjoint(other)
    texts = {element for element in other if element.__class__ is str}
    return any(
        element in texts if element.__class__ is str else selection.contains(element, other)
        for element in value
    )


def insert(target: dict[object, object], key: object, value: object) -> None:
    """Add an entry to a map under construction.

    Raises:
        CelRuntimeError: the key is taken.
    """
    if find(target, key)[1]:
        raise CelRuntimeError(f"insert failed: key {selection.shown(key)} already exists")
    target[map_key(key)] = value


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {
    "size": size,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "slice": _slice,
    "flatten": _flatten,
    "sort": _sort,
    "@sortByAssociatedKeys": _sort_by,
    "lists.range": _range,
    "reverse": _reverse,
    "distinct": _distinct,
    "isSorted": _is_sorted,
    "sum": _sum,
    "min": _extreme("min", 1, min),
    "max": _extreme("max", -1, max),
    "includes": _includes,
    "sets.contains": _sets_contains,
    "sets.equivalent": _sets_equivalent,
    "sets.intersects": _sets_intersects,
}
