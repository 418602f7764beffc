"""How large values may become, the end of an evaluation that cannot go on, and a look at long lists."""

from typing import Any, Final

from allocator.errors import CelRuntimeError

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
