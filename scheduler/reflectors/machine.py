"""What a reflector does next: list, watch or wait. A state machine without I/O, fed with what came of the last step.

Rules (reliability R1-R6): the first list is a quorum read, never from an old snapshot. A watch starts at the list's
version and is resumed from the last version seen, as long as the server still has it. When it does not (410): a list
not older than that, and if that fails too, a quorum list. A list older than what has been seen is refused.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from scheduler.model import Watched

PAGE_LIMIT: Final = 500
BACKOFF_SECONDS: Final = 0.8
BACKOFF_CAP_SECONDS: Final = 30.0
UNREACHABLE_CAP_SECONDS: Final = (
    15.0  # asking a server that is down costs it nothing, and it may be back (F19)
)
HEALTHY_SECONDS: Final = 120.0
SHORTEST_WATCH_SECONDS: Final = 1.0
WATCH_SECONDS: Final = (300, 600)


@dataclass(frozen=True, slots=True)
class ListPage:
    """Ask for a page of a list.

    Attributes:
        not_older_than: a version; empty: a quorum read.
        continue_token: of the page before; empty: the first page.
        limit: objects; 0: all at once.
    """

    not_older_than: str
    continue_token: str
    limit: int

    def query(self) -> dict[str, str]:
        """URL parameters."""
        query = {"limit": str(self.limit)} if self.limit else {}
        if self.continue_token:
            return {**query, "continue": self.continue_token}
        if self.not_older_than:
            return {
                **query,
                "resourceVersion": self.not_older_than,
                "resourceVersionMatch": "NotOlderThan",
            }
        return {**query, "resourceVersion": ""}


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Open a watch.

    Attributes:
        resource_version: events after it are wanted.
        timeout_seconds: the server ends it after this.
    """

    resource_version: int
    timeout_seconds: int

    def query(self) -> dict[str, str]:
        """URL parameters."""
        return {
            "resourceVersion": str(self.resource_version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self.timeout_seconds),
        }


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next step."""

    seconds: float


Action = ListPage | OpenWatch | Pause


@dataclass(frozen=True, slots=True)
class Complete:
    """A whole list: what is not in it is gone."""

    items: Sequence[Watched]
    resource_version: int


class Failure(Enum):
    """What went wrong, as far as it decides what comes next."""

    GONE = auto()  # 410, Expired: the version is not there any more
    TOO_LARGE = auto()  # the server is behind the version asked for
    UNREACHABLE = auto()  # refused, broken, silent, 429: the same again, later
    UNREADABLE = auto()  # an object that cannot be decoded: a list leaves it out
    OTHER = auto()  # anything else: list again, later


class _Mode(Enum):
    LIST_QUORUM = auto()
    LIST_SINCE = auto()
    WATCH = auto()


@dataclass(slots=True)
class Machine:
    """One kind's reflector, without its hands.

    Attributes:
        rng: for jitter.
        page_limit: objects of one page.
        last_version: highest version seen.
        failures: in a row, since the last two healthy minutes.
    """

    rng: random.Random
    page_limit: int = PAGE_LIMIT
    last_version: int = 0
    failures: int = 0
    _mode: _Mode = _Mode.LIST_QUORUM
    _limit: int = field(init=False)
    _token: str = ""
    _items: list[Watched] = field(default_factory=list)
    _list_version: int = 0
    _pause: float = 0.0
    _opened_at: float = 0.0
    _has_heard: bool = False

    def __post_init__(self) -> None:
        self._limit = self.page_limit

    def next(self) -> Action:
        """What to do now."""
        if self._pause:
            seconds, self._pause = self._pause, 0.0
            return Pause(seconds)
        if self._mode is _Mode.WATCH:
            return OpenWatch(self.last_version, self.rng.randint(*WATCH_SECONDS))
        since = str(self.last_version) if self._mode is _Mode.LIST_SINCE else ""
        return ListPage(since, self._token, self._limit)

    def page(
        self, items: Sequence[Watched], resource_version: int, continue_token: str
    ) -> Complete | None:
        """A page of a list has come.

        Returns:
            the list, when this was its last page and it is not older than what has been seen.
        """
        self._items.extend(items)
        self._list_version = resource_version
        self._token = continue_token
        if continue_token:
            return None
        complete = Complete(self._items, resource_version)
        self._discard()
        if resource_version < self.last_version:
            self._mode = _Mode.LIST_QUORUM
            self._back_off()
            return None
        self.last_version = resource_version
        self._limit = self.page_limit
        self._mode = _Mode.WATCH
        return complete

    def opened(self, now: float) -> None:
        """A watch is open."""
        self._opened_at = now
        self._has_heard = False

    def heard(self, resource_version: int, *, is_event: bool) -> None:
        """An event or bookmark of the open watch has been taken."""
        self.last_version = max(self.last_version, resource_version)
        self._has_heard = self._has_heard or is_event

    def ended(self, now: float) -> None:
        """The server has ended the watch in order: resume. At once, unless it ends watches as fast as we open them."""
        self._note_health(now)
        if not self._has_heard and now - self._opened_at < SHORTEST_WATCH_SECONDS:
            self._back_off()

    def failed(self, failure: Failure, now: float) -> None:
        """The last step failed."""
        was_first = self.failures == 0
        if self._mode is _Mode.WATCH:
            self._note_health(now)
            was_first = self.failures == 0
            if failure is not Failure.UNREACHABLE:
                self._mode = _Mode.LIST_SINCE
        elif failure in (Failure.GONE, Failure.TOO_LARGE):
            if self._token and self._mode is _Mode.LIST_QUORUM and not was_first:
                self._limit = 0  # pages expire faster than we read them
            self._mode = _Mode.LIST_QUORUM
        self._discard()
        if failure is Failure.GONE and was_first:
            self.failures += 1  # nobody's fault: list at once, but only once
            return
        is_down = failure is Failure.UNREACHABLE
        self._back_off(UNREACHABLE_CAP_SECONDS if is_down else BACKOFF_CAP_SECONDS)

    def _note_health(self, now: float) -> None:
        if now - self._opened_at >= HEALTHY_SECONDS:
            self.failures = 0

    def _back_off(self, cap: float = BACKOFF_CAP_SECONDS) -> None:
        ceiling = min(cap, BACKOFF_SECONDS * 2.0 ** min(self.failures, 16))
        self.failures += 1
        self._pause = self.rng.uniform(0.0, ceiling)

    def _discard(self) -> None:
        self._items = []
        self._token = ""
