"""A place in a plain object: its value, its path, and where to report what is wrong with it.

The value has been checked against its schema before (`scheduler.api.walk.conform`), so the readers here need no
type checks: an absent field reads as the zero value of what is asked for.
"""

from collections.abc import Iterator
from typing import Any, Self

from allocator.quantity import Quantity
from scheduler.validation.rules import Violation, severity_of


class Cursor:
    """A value in an object.

    Attributes:
        value: plain data; None if the field is absent.
        path: JSON path.
    """

    __slots__ = ("_found", "path", "value")

    def __init__(self, value: Any, path: str, found: list[Violation]) -> None:
        self.value = value
        self.path = path
        self._found = found

    def __getitem__(self, field: str) -> Self:
        """A field; of an absent object every field is absent."""
        value = self.value.get(field) if isinstance(self.value, dict) else None
        path = f"{self.path}.{field}" if self.path else field
        return type(self)(value, path, self._found)

    @property
    def present(self) -> bool:
        """Whether the field is there."""
        return self.value is not None

    @property
    def text(self) -> str:
        """The text, or none."""
        return self.value if isinstance(self.value, str) else ""

    @property
    def number(self) -> int:
        """The whole number, or zero."""
        return self.value if isinstance(self.value, int) else 0

    @property
    def quantity(self) -> Quantity | None:
        """The quantity, if there is one."""
        if isinstance(self.value, bool) or not isinstance(self.value, str | int):
            return None
        return Quantity.parse(str(self.value))

    @property
    def size(self) -> int:
        """How many items or entries there are."""
        return len(self.value) if isinstance(self.value, list | dict) else 0

    def items(self) -> Iterator[Self]:
        """The items of a list."""
        for index, item in enumerate(self.value or ()):
            yield type(self)(item, f"{self.path}[{index}]", self._found)

    def entries(self) -> Iterator[tuple[str, Self]]:
        """Keys and values of a map."""
        for key, item in (self.value or {}).items():
            yield key, type(self)(item, f'{self.path}["{key}"]', self._found)

    def report(self, rule: str, message: str) -> None:
        """Report that this value breaks a rule."""
        self._found.append(
            Violation(path=self.path, message=message, rule=rule, severity=severity_of(rule))
        )

    def limit(self, rule: str, most: int) -> None:
        """Report if there are more than so many items or entries."""
        if self.size > most:
            self.report(rule, f"must have at most {most} entries, has {self.size}")

    def unique(self, rule: str, *key: str) -> None:
        """Report every item whose key (a path inside the item; none: the item itself) came before."""
        seen: set[Any] = set()
        for item in self.items():
            place = item
            for field in key:
                place = place[field]
            if place.value in seen:
                item.report(rule, f"{place.value!r} occurs twice")
            seen.add(place.value)
