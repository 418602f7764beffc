"""Server-side apply: merge what a manager declares, remember that it owns it, notice who disagrees.

Ownership is kept only for managers that apply. A field that some client wrote in another way has no recorded owner, but
had one upstream; so applying another value to a field that the manager does not own is a conflict either way.
Source: KEP-555; FieldsV1 in k8s.io/apimachinery.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from scheduler.lab.apiserver.list_types import APPLY_KEYS, PRIMITIVE_SETS
from scheduler.lab.apiserver.objects import Json, metadata, same

# A path of FieldsV1 elements: `f:name`, `k:{"name":"x"}`, `v:"x"`.
Path = tuple[str, ...]

_NOT_OWNED = frozenset(
    {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "generateName",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "managedFields",
        )
    }
)


def owned_paths(obj: Json) -> frozenset[Path]:
    """Paths of everything an applied object says."""
    return frozenset(path for path in _paths(obj, ()) if path[:2] not in _NOT_OWNED)


def _paths(value: Any, prefix: Path) -> Iterator[Path]:
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from _member_paths(key, member, (*prefix, f"f:{key}"))
    else:
        yield prefix


def _member_paths(name: str, value: Any, path: Path) -> Iterator[Path]:
    if name in PRIMITIVE_SETS and isinstance(value, list):
        for item in value:
            yield (*path, f"v:{orjson.dumps(item).decode()}")
    elif name in APPLY_KEYS and _is_keyed(value):
        for item in value:
            item_path = (*path, _item_element(name, item))
            yield item_path
            yield from _paths(item, item_path)
    elif isinstance(value, list):
        yield path
    else:
        yield from _paths(value, path)


def _is_keyed(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _item_element(name: str, item: Json) -> str:
    keys = {key: item[key] for key in APPLY_KEYS[name] if key in item}
    return f"k:{orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode()}"


def merge_applied(live: Json, applied: Json) -> Json:
    """Lay what is applied over the live object; neither is changed."""
    merged = dict(live)
    for key, value in applied.items():
        held = merged.get(key)
        if key in PRIMITIVE_SETS and isinstance(value, list):
            known = held or []
            merged[key] = [*known, *(item for item in value if item not in known)]
        elif key in APPLY_KEYS and _is_keyed(value) and _is_keyed(held or []):
            merged[key] = _merge_items(key, held or [], value)
        elif isinstance(value, dict) and isinstance(held, dict):
            merged[key] = merge_applied(held, value)
        else:
            merged[key] = value
    return merged


def _merge_items(name: str, live: list[Json], applied: list[Json]) -> list[Json]:
    wanted = {_item_element(name, item): item for item in applied}
    merged = []
    for item in live:
        element = _item_element(name, item)
        merged.append(merge_applied(item, wanted.pop(element)) if element in wanted else item)
    return [*merged, *wanted.values()]


_ABSENT = object()


def value_at(obj: Any, path: Path) -> Any:
    """The value at a path, or a marker that equals nothing else when there is none."""
    value = obj
    for position, element in enumerate(path):
        kind, text = element[:2], element[2:]
        if kind == "f:" and isinstance(value, dict):
            value = value.get(text, _ABSENT)
        elif kind in ("k:", "v:") and isinstance(value, list):
            index = _index(value, path[position - 1][2:], element)
            value = _ABSENT if index is None else value[index]
        else:
            return _ABSENT
    return value


def _index(items: list[Any], name: str, element: str) -> int | None:
    for index, item in enumerate(items):
        if element.startswith("v:"):
            found = f"v:{orjson.dumps(item).decode()}"
        else:
            found = _item_element(name, item) if isinstance(item, dict) else ""
        if found == element:
            return index
    return None


def conflicts(
    live: Json, applied: Json, paths: frozenset[Path], mine: frozenset[Path]
) -> list[Path]:
    """Paths that somebody else set to another value, in order."""
    found = []
    for path in sorted(paths - mine):
        if path[-1].startswith(("k:", "v:")):
            continue
        value = value_at(live, path)
        if value is not _ABSENT and not same(value, value_at(applied, path)):
            found.append(path)
    return found


def remove_paths(obj: Json, paths: frozenset[Path]) -> None:
    """Remove values at paths, in place. A list item goes when nothing is left in it."""
    # Found before anything is removed: an item is found by members of its own.
    found = [(path[-1], value_at(obj, path[:-1]), value_at(obj, path)) for path in paths]
    for element, parent, _ in found:
        if isinstance(parent, dict) and element.startswith("f:"):
            parent.pop(element[2:], None)
    for element, parent, value in found:
        if isinstance(parent, list) and (element.startswith("v:") or value == {}):
            parent[:] = [item for item in parent if item is not value]


def to_fields(paths: frozenset[Path]) -> Json:
    """Write paths as FieldsV1."""
    root: Json = {}
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        if path[-1].startswith("k:"):
            node.setdefault(".", {})
    return root


def from_fields(fields: Json) -> frozenset[Path]:
    """Read FieldsV1."""
    return frozenset(_read_fields(fields, ()))


def _read_fields(fields: Json, prefix: Path) -> Iterator[Path]:
    for element, below in fields.items():
        if element == ".":
            yield prefix
        elif not below:
            yield (*prefix, element)
        else:
            yield from _read_fields(below, (*prefix, element))


def still_owned(paths: frozenset[Path], before: Json, after: Json) -> frozenset[Path]:
    """The paths whose value a write by somebody else left alone."""
    return frozenset(
        path for path in paths if _unchanged(value_at(before, path), value_at(after, path), path)
    )


def _unchanged(before: Any, after: Any, path: Path) -> bool:
    if before is _ABSENT or after is _ABSENT:
        return False
    # Owning an item means that it is there; what is in it has paths of its own.
    return path[-1].startswith("k:") or same(before, after)


def managed_entries(obj: Json) -> list[Json]:
    """`metadata.managedFields`."""
    entries: list[Json] = metadata(obj).get("managedFields") or []
    return entries
