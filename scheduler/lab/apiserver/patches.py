"""Merge patch (RFC 7386) and strategic merge patch, as far as built-in kinds use them. Neither changes its arguments."""

from typing import Any

from scheduler.lab.apiserver.errors import bad_request
from scheduler.lab.apiserver.list_types import MERGE_KEYS, PRIMITIVE_SETS
from scheduler.lab.apiserver.objects import Json

_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_FROM_SET = "$deleteFromPrimitiveList/"
# Only the order of items depends on it, and nothing here does.
_ELEMENT_ORDER = "$setElementOrder/"


def merge_patch(current: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge_patch(current: Json, patch: Json) -> Json:
    """Apply a strategic merge patch.

    Raises:
        StatusError: 400, when a directive or list item cannot be understood.
    """
    match patch.get(_DIRECTIVE):
        case None | "merge":
            pass
        case "replace":
            return {key: value for key, value in patch.items() if key != _DIRECTIVE}
        case "delete":
            return {}
        case other:
            raise bad_request(f"unknown patch type {other!r}")
    merged = dict(current)
    if _RETAIN_KEYS in patch:
        merged = {key: value for key, value in merged.items() if key in patch[_RETAIN_KEYS]}
    for key, value in patch.items():
        _merge_member(merged, key, value)
    return merged


def _merge_member(merged: Json, key: str, value: Any) -> None:
    if key in (_DIRECTIVE, _RETAIN_KEYS) or key.startswith(_ELEMENT_ORDER):
        return
    if key.startswith(_DELETE_FROM_SET):
        name = key.removeprefix(_DELETE_FROM_SET)
        merged[name] = [item for item in merged.get(name) or [] if item not in value]
    elif value is None:
        merged.pop(key, None)
    elif isinstance(value, dict):
        held = merged.get(key)
        merged[key] = strategic_merge_patch(held if isinstance(held, dict) else {}, value)
    elif isinstance(value, list):
        merged[key] = _merge_list(key, merged.get(key) or [], value)
    else:
        merged[key] = value


def _merge_list(name: str, current: list[Any], patch: list[Any]) -> list[Any]:
    if name in PRIMITIVE_SETS:
        return [*current, *(item for item in patch if item not in current)]
    merge_key = MERGE_KEYS.get(name)
    if merge_key is None or not all(isinstance(item, dict) for item in (*current, *patch)):
        return patch
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if _DIRECTIVE not in item]
    merged = list(current)
    for item in patch:
        if merge_key not in item:
            raise bad_request(f"an item of {name!r} has no {merge_key!r}, its merge key")
        _merge_item(merged, merge_key, item)
    return merged


def _merge_item(merged: list[Json], merge_key: str, item: Json) -> None:
    index = next(
        (i for i, held in enumerate(merged) if held.get(merge_key) == item[merge_key]), None
    )
    if item.get(_DIRECTIVE) == "delete":
        if index is not None:
            del merged[index]
    elif index is None:
        merged.append(strategic_merge_patch({}, item))
    else:
        merged[index] = strategic_merge_patch(merged[index], item)
