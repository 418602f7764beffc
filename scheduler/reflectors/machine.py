"""What a reflector does next: list, watch or wait. A state machine without I/O, fed with what came of the last step.

Rules (docs/design/cache-and-watches.md#r1 to R6): the first list is a quorum read, never from an old snapshot. A watch
starts at the list's version and is resumed from the last version seen, as long as the server still has it. When it does
not (410): a list not older than that, and if that fails too, a quorum list. A list older than what has been seen is
refused.

A watch may also be wrong without saying so. What is told from what, and how it heals:

- *Ended again and again.* A watch that ended without a word (news, or a bookmark, which a server sends about once a
  minute) proves nothing: the kind may be idle, or the server may not know the version any more and not say 410. After
  `FRUITLESS_WATCHES` of them in a row, refused ones included, a quorum list is asked for. If it shows that nothing was
  missed, it takes twice as many the next time: proxies that cut idle connections after half a minute are common, and
  idle kinds must not be listed all the time because of them. While a server is down, list and watch are tried in turn.
- *Silent.* A watch that stays open for `IDLE_SECONDS` or longer without a word is an idle kind of a server that sends no
  bookmarks, and is simply opened again. But where bookmarks have come before, `SILENCE_SECONDS` without one mean that the
  connection is dead.
- *Short.* Watches that end within `SHORT_SECONDS` without a word are no sign of life. After several in a row the cache
  may be stale, whatever the lists say, until a watch lasts longer or the server says something in one: `is_doubtful`.
- *A server that has gone back* (etcd restored from a backup). Its lists are older than what has been seen, and so are the
  bookmarks of a watch from a version that it has not reached yet. A stale replica looks the same, for a while. So quorum
  lists are repeated, only their first pages, and if for `RESTORED_SECONDS`, `RESTORED_LISTS` times in a row and without
  going back among themselves they are all older, the server is followed: `Complete.is_reset`.

The pause between failures grows, and begins anew only when a watch was open for two minutes and delivered.
"""

import math
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
SHORT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 60.0
SILENCE_SECONDS: Final = 90.0
FRUITLESS_WATCHES: Final = 3
MOST_FRUITLESS_WATCHES: Final = 24
RESTORED_LISTS: Final = 5
RESTORED_SECONDS: Final = 120.0  # twice as long as a replica may lag behind (F9)
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
    """A whole list: what is not in it is gone.

    Attributes:
        items: all there are.
        resource_version: of the list.
        is_reset: whether the server has gone back: versions seen before mean nothing any more.
    """

    items: Sequence[Watched]
    resource_version: int
    is_reset: bool = False


class Failure(Enum):
    """The kind of failure, which decides the next step."""

    GONE = auto()  # 410, Expired: the version is not there any more
    TOO_LARGE = auto()  # the server is behind the version asked for
    UNREACHABLE = auto()  # refused, broken, silent, 429: the same again, later
    UNREADABLE = auto()  # again a line that is no event, at the same place: a list goes past it
    BEHIND = auto()  # the server tells of an older version than it was asked for
    MISSED = auto()  # events that should have come did not
    OTHER = auto()  # anything else: list again, later


class _Mode(Enum):
    LIST_QUORUM = auto()
    LIST_SINCE = auto()
    WATCH = auto()


@dataclass(slots=True)
class _Watching:
    """The open watch.

    Attributes:
        opened_at: when.
        heard_at: when the server said something in it, the last time; None: it has not.
        has_progress: whether it was news.
    """

    opened_at: float
    heard_at: float | None = None
    has_progress: bool = False


@dataclass(slots=True)
class _Older:
    """Quorum lists in a row that were older than what has been seen.

    Attributes:
        lists: how many.
        version: the newest of them.
        seconds: pauses since the first.
        is_followed: whether they have been so for long enough: the list under way is the truth.
    """

    lists: int = 0
    version: int = 0
    seconds: float = 0.0
    is_followed: bool = False


@dataclass(slots=True)
class Machine:
    """The state machine of one kind's reflector, without I/O.

    Attributes:
        rng: for jitter.
        page_limit: objects of one page.
        last_version: highest version seen.
        failures: in a row, since the last two healthy minutes.
        is_refused: whether the last page was older than what has been seen.
    """

    rng: random.Random
    page_limit: int = PAGE_LIMIT
    last_version: int = 0
    failures: int = 0
    is_refused: bool = False
    _mode: _Mode = _Mode.LIST_QUORUM
    _limit: int = field(init=False)
    _token: str = ""
    _items: list[Watched] = field(default_factory=list)
    _pause: float = 0.0
    _watching: _Watching | None = None
    _was_quiet: bool = False  # the last watch, before it ended
    _older: _Older = field(default_factory=_Older)
    _sends_bookmarks: bool = False
    _short: int = 0  # watches in a row that opened and were no sign of life
    _fruitless: int = 0  # watches in a row without a word, since the last list
    _patience: int = FRUITLESS_WATCHES  # so many are put up with

    def __post_init__(self) -> None:
        self._limit = self.page_limit

    @property
    def is_trusted(self) -> bool:
        """Whether it is a sign of life when a watch opens."""
        return self._short == 0

    def is_doubtful(self, now: float) -> bool:
        """Whether watches do not seem to work."""
        watching = self._watching
        is_long = watching is not None and now - watching.opened_at >= SHORT_SECONDS
        return self._short >= FRUITLESS_WATCHES and not is_long

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
        self.is_refused = resource_version < self.last_version and not self._is_restored(
            resource_version
        )
        if self.is_refused:
            self._discard()
            self._mode = _Mode.LIST_QUORUM
            self._back_off()
            self._older.seconds += self._pause
            return None
        self._items.extend(items)
        self._token = continue_token
        if continue_token:
            return None
        is_reset = resource_version < self.last_version
        complete = Complete(self._items, resource_version, is_reset)
        self._discard()
        self._older = _Older()
        self.last_version = resource_version
        self._limit = self.page_limit
        self._mode = _Mode.WATCH
        return complete

    def compared(self, *, is_same: bool) -> None:
        """A complete list has been compared with what was known.

        Args:
            is_same: whether it showed nothing new.
        """
        if self._fruitless < self._patience:
            self._fruitless = 0
            return
        self._fruitless = 0
        doubled = min(2 * self._patience, MOST_FRUITLESS_WATCHES)
        self._patience = doubled if is_same else FRUITLESS_WATCHES

    def opened(self, now: float) -> None:
        """A watch is open."""
        self._mode = _Mode.WATCH
        self._watching = _Watching(now)

    def heard(self, resource_version: int, *, is_event: bool, now: float = math.inf) -> bool:
        """An event or bookmark of the open watch has been taken.

        Args:
            resource_version: of the object, or how far the watch has come.
            is_event: whether it is no bookmark.
            now: when; the silence before the watch ends is counted from here.

        Returns:
            Whether it was a word: an event that repeats what has been seen tells nothing.
        """
        if is_event and resource_version <= self.last_version:
            return False
        if self._watching is not None:
            self._watching.heard_at = now
            self._watching.has_progress |= is_event
        self.last_version = max(self.last_version, resource_version)
        self._sends_bookmarks |= not is_event
        self._short = self._fruitless = 0
        self._patience = FRUITLESS_WATCHES
        return True

    def ended(self, now: float) -> bool:
        """The server has ended the watch in order: resume. At once, unless it ends watches as fast as we open them.

        Returns:
            Whether the watch was a sign of life.
        """
        watching = self._watching
        is_alive = self._close(now)
        if watching is not None:
            is_short = now - watching.opened_at < SHORT_SECONDS
            if is_short and not watching.has_progress:
                self._back_off()
        self._look_after_fruitless()
        return is_alive

    def failed(self, failure: Failure, now: float) -> None:
        """The last step failed."""
        was_first = self.failures == 0
        is_idle = False
        if self._mode is _Mode.WATCH:
            is_idle = self._close(now) and self._was_quiet
            was_first = self.failures == 0
            if failure in (Failure.BEHIND, Failure.MISSED):
                self._mode = _Mode.LIST_QUORUM
            elif failure is not Failure.UNREACHABLE:
                self._mode = _Mode.LIST_SINCE
            else:
                self._look_after_fruitless()
        elif failure in (Failure.GONE, Failure.TOO_LARGE):
            if self._token and self._mode is _Mode.LIST_QUORUM and not was_first:
                self._limit = 0  # pages expire faster than we read them
            self._mode = _Mode.LIST_QUORUM
        elif failure is Failure.UNREACHABLE and self._fruitless >= self._patience:
            self._mode = _Mode.WATCH  # nothing was wrong with the watch, the server is down
        self._discard()
        if failure is Failure.GONE and was_first:
            self.failures += 1  # nobody's fault: list at once, but only once
            return
        is_down = failure is Failure.UNREACHABLE
        self._back_off(UNREACHABLE_CAP_SECONDS if is_down else BACKOFF_CAP_SECONDS)
        if is_down and is_idle:
            # The client gave up the watch of an idle kind: no failure, and not yet the two minutes that end them.
            self.failures = (self.failures - 1) // 2

    def _close(self, now: float) -> bool:
        """The watch is over, or could not be opened; returns whether it was a sign of life."""
        watching, self._watching = self._watching, None
        if watching is None:
            self._fruitless += 1
            self._was_quiet = False
            return False
        lasted = now - watching.opened_at
        has_heard = watching.heard_at is not None
        last_word = watching.opened_at if watching.heard_at is None else watching.heard_at
        quiet = now - last_word
        is_dead = self._sends_bookmarks and quiet >= SILENCE_SECONDS
        self._was_quiet = quiet >= IDLE_SECONDS
        if lasted >= HEALTHY_SECONDS and (not is_dead or lasted - quiet >= HEALTHY_SECONDS):
            self.failures = 0
        if has_heard and not is_dead:
            return True
        if is_dead or lasted < IDLE_SECONDS:
            self._fruitless += 1
        if is_dead or lasted < SHORT_SECONDS:
            self._short += 1
            return False
        self._short = 0
        return True

    def _look_after_fruitless(self) -> None:
        if self._fruitless >= self._patience:
            self._mode = _Mode.LIST_QUORUM

    def _is_restored(self, resource_version: int) -> bool:
        """Whether a list older than what has been seen is to be believed: the server has been saying so for long."""
        older = self._older
        if self._mode is not _Mode.LIST_QUORUM or older.is_followed:
            return older.is_followed
        if resource_version < older.version:  # they disagree: then none of them is proof
            self._older = older = _Older()
        older.lists += 1
        older.version = resource_version
        older.is_followed = older.lists > RESTORED_LISTS and older.seconds >= RESTORED_SECONDS
        return older.is_followed

    def _back_off(self, cap: float = BACKOFF_CAP_SECONDS) -> None:
        ceiling = min(cap, BACKOFF_SECONDS * 2.0 ** min(self.failures, 16))
        self.failures += 1
        self._pause = self.rng.uniform(0.0, ceiling)

    def _discard(self) -> None:
        self._items = []
        self._token = ""
