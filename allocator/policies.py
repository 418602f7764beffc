"""Which of the solutions on a node is taken.

`FirstFit` gives upstream's own answer, device for device. Another policy is a class with `choose`; it sees solutions in
upstream's order and need not look at all of them.
"""

from collections.abc import Iterator
from typing import Final, Protocol

from allocator.search import Solution


class Policy(Protocol):
    """Chooses among the solutions that a search yields."""

    @property
    def name(self) -> str:
        """Name in flags and configuration."""
        ...

    def choose(self, solutions: Iterator[Solution]) -> Solution | None:
        """Take one; None only when there is none. Costs one search step a solution looked at."""
        ...


class FirstFit:
    """Takes the first solution, as Kubernetes does."""

    name: Final = "FirstFit"

    def choose(self, solutions: Iterator[Solution]) -> Solution | None:
        """Take the first."""
        return next(solutions, None)


FIRST_FIT: Final = FirstFit()

POLICIES: Final[dict[str, Policy]] = {FIRST_FIT.name: FIRST_FIT}
"""Policies by name."""
