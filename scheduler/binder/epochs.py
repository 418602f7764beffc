"""Epochs: which leader wrote a claim, so that a later leader can be told from an earlier one without any clock.

The epoch comes from the Lease. A Lease can be deleted, or another one used after a new installation, and its count then
starts again; claims keep their stamps for as long as they live. So a leader first rises above every stamp it finds:
else it would take itself for the one that has been replaced. Source: docs/design/leader-election.md#h5,
docs/design/invariants.md#s13.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from scheduler.model import EPOCH_ANNOTATION

MAX_EPOCH: Final = 2**31 - 1  # the count of a Lease has 32 bits; anything larger is not ours
# Annotations are anybody's to write: a stamp further ahead than this was made up. Believing it would use up the epochs
# there are, and nobody could be told from anybody then.
MOST_AHEAD: Final = 1_000


def stamped_epoch(annotations: Mapping[str, str] | None) -> int:
    """The epoch that is stamped on a claim; 0: none, or text that is no epoch (annotations are anybody's to write)."""
    text = (annotations or {}).get(EPOCH_ANNOTATION) or ""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_EPOCH))):
        return 0
    found = int(text)
    return found if found <= MAX_EPOCH else 0


def is_later(annotations: Mapping[str, str] | None, epoch: int) -> bool:
    """Whether a claim carries the stamp of a leader that came after this epoch."""
    return 0 < epoch < stamped_epoch(annotations) <= epoch + MOST_AHEAD


class Epochs:
    """Callable that returns the epoch this process writes under."""

    def __init__(self, of_lease: Callable[[], int]) -> None:
        """Begin with what the lease says; 0 means that there is no election, and stays 0."""
        self._of_lease = of_lease
        self._floor = 0

    def __call__(self) -> int:
        """The epoch now."""
        of_lease = self._of_lease()
        return max(of_lease, self._floor) if of_lease > 0 else 0

    def rise_above(self, annotations: Iterable[Mapping[str, str] | None]) -> None:
        """Rise above the stamps of all claims there are, before the first write of a leadership."""
        of_lease = self._of_lease()
        stamps = map(stamped_epoch, annotations)
        highest = max((each for each in stamps if each <= of_lease + MOST_AHEAD), default=0)
        if highest > of_lease:
            self._floor = min(highest + 1, MAX_EPOCH)
