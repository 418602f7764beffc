"""An immutable mapping from which a slightly different one is made without copying it all.

The newest changes lie over a base that many versions share. When they become many, they are merged into a new base, so
a change costs about the square root of the size: copying 5,000 entries for each of several changes a decision would
cost more than the decision.
"""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from math import isqrt
from typing import Any, Final, Generic, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")

_FEWEST: Final = 16  # changes that are not worth merging, however small the base


class _Gone:
    """Lies over an entry that is not there any more."""


_GONE: Final = _Gone()


class LayeredMap(Mapping[K, V], Generic[K, V]):
    """The mapping. Keys of the base come first, in its order; then those added since."""

    __slots__ = ("_base", "_length", "_order", "_over")

    def __init__(self, base: Mapping[K, V] | None = None) -> None:
        """Make one of its own.

        Args:
            base: its entries; a dict is taken over and must not be changed any more.
        """
        self._base: dict[K, V] = base if isinstance(base, dict) else dict(base or {})
        self._over: dict[K, V | _Gone] = {}
        self._length = len(self._base)
        self._order: list[
            list[K]
        ] = []  # of one list, once it is made; shared by mappings with the same keys

    def changed(self, changes: Mapping[K, V | None]) -> "LayeredMap[K, V]":
        """This mapping with other values for some keys; None takes a key away."""
        over = self._over.copy()
        length = self._length
        has_same_keys = True
        for key, value in changes.items():
            is_more = (value is not None) - (key in self)
            has_same_keys = has_same_keys and not is_more
            length += is_more
            if value is not None:
                over[key] = value
            elif key in self._base:
                over[key] = _GONE
            else:
                over.pop(key, None)
        made: LayeredMap[K, V] = LayeredMap()
        made._base, made._over, made._length = self._base, over, length
        if has_same_keys:
            made._order = self._order
        if len(over) > max(_FEWEST, isqrt(len(self._base))):
            made._merge()
        return made

    def __getitem__(self, key: K) -> V:
        found = self._over.get(key)
        if found is None:
            return self._base[key]
        if found is _GONE:
            raise KeyError(key)
        return cast("V", found)

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key, or the default."""
        found = self._over.get(key)
        if found is None:
            return self._base.get(key, default)
        return default if found is _GONE else found

    def __contains__(self, key: object) -> bool:
        found = self._over.get(cast("K", key))
        return key in self._base if found is None else found is not _GONE

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        return iter(self._merged())

    @property
    def order(self) -> Sequence[K]:
        """The keys in order; the same object in all mappings made of this one, until a key comes or goes."""
        if not self._order:
            self._order.append(list(self._merged()))
        return self._order[0]

    def keys(self) -> KeysView[K]:
        """Keys, in order."""
        return self._merged().keys()

    def items(self) -> ItemsView[K, V]:
        """Keys and values."""
        return self._merged().items()

    def values(self) -> ValuesView[V]:
        """Values in the order of the keys."""
        return self._merged().values()

    def _merged(self) -> dict[K, V]:
        """Everything in one dict: whoever walks through all of it walks faster, and so does the next."""
        if self._over:
            self._merge()
        return self._base

    def _merge(self) -> None:
        # What lies over is read before the base and emptied after it: a thread that reads, or merges too, misses nothing.
        over = self._over
        base = self._base.copy()
        for key, value in over.items():
            if value is _GONE:
                base.pop(key, None)
            else:
                base[key] = cast("V", value)
        self._base = base
        self._over = {}
