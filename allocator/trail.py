"""Going back: containers that are written through one log can be put back as they were."""

from typing import Any, Final

_ABSENT: Final[Any] = object()
_APPENDED: Final[Any] = object()


class Trail:
    """Writes containers and remembers how they were; `undo_to` takes the latest changes back first."""

    __slots__ = ("_log",)

    def __init__(self) -> None:
        self._log: list[tuple[Any, Any, Any]] = []

    def mark(self) -> int:
        """Where to go back to."""
        return len(self._log)

    def put(self, target: dict[Any, Any], key: object, value: object) -> None:
        """Set an entry of a dict."""
        self._log.append((target, key, target.get(key, _ABSENT)))
        target[key] = value

    def replace(self, target: list[Any], index: int, value: object) -> None:
        """Set an item of a list."""
        self._log.append((target, index, target[index]))
        target[index] = value

    def append(self, target: list[Any], item: object) -> None:
        """Add an item to a list."""
        self._log.append((target, _APPENDED, None))
        target.append(item)

    def undo_to(self, mark: int) -> None:
        """Take back everything after a mark."""
        log = self._log
        while len(log) > mark:
            target, key, old = log.pop()
            if key is _APPENDED:
                target.pop()
            elif old is _ABSENT:
                del target[key]
            else:
                target[key] = old
