"""The meter of one evaluation: it stops at the limit and at the deadline."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from allocator.cel.values.limits import Stopped
from allocator.cel.values.maps import DomainMap
from allocator.cel.values.scalars import Optional

LIMIT: Final = 1_000_000
_POLL: Final = 512
_MOST_WORK: Final = 2_000_000
_MEMBERS_A_TICK: Final = 64
_CONTAINERS: Final = frozenset({list, dict, DomainMap, Optional})


class Meter:
    """Counts the cost of one evaluation and watches its deadline.

    Attributes:
        cost: spent so far.
        limit: the most that may be spent.
        deadline: answers whether time is up; asked now and then.
        work: nested members that may still be walked. Upstream's costs do not see the size of what a list holds, and
            a list that holds another one twice, and so on, is soon larger than can be walked.
    """

    __slots__ = ("cost", "deadline", "limit", "ticks", "work")

    def __init__(self, limit: int = LIMIT, deadline: Callable[[], bool] | None = None) -> None:
        self.cost = 0
        self.limit = limit
        self.deadline = deadline
        self.ticks = _POLL
        self.work = _MOST_WORK

    def weigh(self, values: Sequence[Any]) -> None:
        """Note that nested values are about to be walked.

        Raises:
            Stopped: they are too large altogether.
        """
        for value in values:
            if value.__class__ in _CONTAINERS:
                self._walk(value)

    def _walk(self, value: Any) -> None:
        pending = [value]
        while pending:
            value = pending.pop()
            cls = value.__class__
            if cls is Optional:
                members = [value.value]
            else:
                members = value if cls is list else list(value.values())
            self.ticks -= len(members) // _MEMBERS_A_TICK
            self.tick()
            if _CONTAINERS.isdisjoint(map(type, members)):
                continue
            nested = [member for member in members if member.__class__ in _CONTAINERS]
            self.work -= len(nested)
            if self.work < 0:
                raise Stopped("operation interrupted: nested values are too large")
            pending.extend(nested)

    def charge(self, cost: int) -> None:
        """Spend. Whatever costs much, takes time: the deadline is asked before.

        Raises:
            Stopped: the limit is exceeded, or time is up.
        """
        self.cost += cost
        if self.cost > self.limit:
            raise Stopped("operation cancelled: actual cost limit exceeded")
        if cost >= _POLL:
            self.ticks = 0
            self.tick()

    def tick(self) -> None:
        """Note a round of a loop.

        Raises:
            Stopped: time is up.
        """
        self.ticks -= 1
        if self.ticks <= 0:
            self.ticks = _POLL
            if self.deadline is not None and self.deadline():
                raise Stopped("operation interrupted")
