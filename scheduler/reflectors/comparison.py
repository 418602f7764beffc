"""What a watch has brought, compared with a fresh list: events that never came are found, however late.

A difference alone means little: the watch may be a moment behind the list. One that is still the same after the watch
had time to catch up means that it will never catch up.
"""

from collections.abc import Mapping
from typing import Final

from scheduler.api.metadata import Listed
from scheduler.cache.store import version_number

CATCH_UP_SECONDS: Final = 60.0
"""As long as a watch may be behind."""

Difference = tuple[str, int | None]
"""UID, and the version that is here; None: it is not here."""


def newer(page: Listed, known: Mapping[str, int]) -> set[Difference]:
    """Objects of a page of which there is no, or only an older version here."""
    found: set[Difference] = set()
    for uid, text in page.versions.items():
        here = known.get(uid)
        version = version_number(text)
        if version is not None and (here is None or here < version):
            found.add((uid, here))
    return found


def vanished(
    known: Mapping[str, int], listed: Mapping[str, object], list_version: int
) -> set[Difference]:
    """Objects that are here and not in a list that should have them."""
    return {
        (uid, version)
        for uid, version in known.items()
        if uid not in listed and version <= list_version
    }
