"""How long work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how many of it are done, and how many there are."""


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Tell nobody."""
