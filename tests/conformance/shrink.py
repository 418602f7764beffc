"""Makes a failing question small: removes parts for as long as it keeps failing."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from tests.conformance.objects import Json

# Keys without which a question is none.
_KEEP = {"id", "features", "node", "metadata", "name", "spec", "driver", "pool", "generation", "resourceSliceCount",
         "devices", "requests", "exactly", "slices", "classes", "claims", "deviceClassName", "allocationMode", "count",
         "value", "key", "operator", "effect", "cel", "expression", "opaque", "parameters", "namespace", "uid",
         "counterSet", "counters", "results", "request", "device", "allocation", "status", "taint"}  # fmt: skip
Path = tuple[Any, ...]


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every list element and every optional key, outermost first."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in _KEEP or path[-1:] in (("attributes",), ("capacity",)):
                yield (*path, key)
            yield from _paths(item, (*path, key))
    elif isinstance(value, list):
        for index in reversed(range(len(value))):
            yield (*path, index)
            yield from _paths(value[index], (*path, index))


def _without(question: Json, path: Path) -> Json | None:
    smaller = copy.deepcopy(question)
    parent: Any = smaller
    try:
        for step in path[:-1]:
            parent = parent[step]
        if path[0] == "features":
            if not parent[path[-1]]:
                return None
            parent[path[-1]] = False
        else:
            del parent[path[-1]]
    except (KeyError, IndexError):
        return None
    return smaller


def shrink(question: Json, still_fails: Callable[[Json], bool], tries: int = 4000) -> Json:
    """The smallest question that greedy removal finds."""
    changed = True
    while changed and tries > 0:
        changed = False
        for path in sorted(_paths(question), key=len):
            smaller = _without(question, path)
            if smaller is None:
                continue
            tries -= 1
            if still_fails(smaller):
                question, changed = smaller, True
            if tries <= 0:
                break
    return question
