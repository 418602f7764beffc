"""A bounded memory of answers: what was used longest ago goes first. Pure.

Values may grow after they were put in (an answer a node), so weight is kept a key and can be added to.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Answers by question, up to a total weight. The key used last always stays, whatever it weighs.

    Attributes:
        limit: most weight to keep.
        weight: weight kept now.
        hits: lookups that found something.
        misses: lookups that found nothing.
        evictions: keys evicted to make room.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.weight = 0
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """The value of a key, which is now the last one used. O(1)."""
        found = self._entries.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Remember a value, in place of an older one of this key; may evict others. O(evicted)."""
        self._drop(key)
        self._entries[key] = (value, weight)
        self.weight += weight
        self._shrink()

    def grow(self, key: K, weight: int) -> None:
        """Add to the weight of a key that is here; may evict others. O(evicted)."""
        found = self._entries.get(key)
        if found is None:
            return
        self._entries[key] = (found[0], found[1] + weight)
        self._entries.move_to_end(key)
        self.weight += weight
        self._shrink()

    def clear(self) -> None:
        """Forget everything; the counters go on."""
        self._entries.clear()
        self.weight = 0

    def _drop(self, key: K) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self.weight -= found[1]

    def _shrink(self) -> None:
        while self.weight > self.limit and len(self._entries) > 1:
            _, (_, weight) = self._entries.popitem(last=False)
            self.weight -= weight
            self.evictions += 1
