"""Keeps one kind in the cache as the API server has it: does what the machine says, forever.

An object that cannot be read stops nothing: it is kept as far as it can be (`scheduler.cache.unreadable`), counted and
logged, and the version goes on. Source: docs/design/cache-and-watches.md#reflectors.
"""

import asyncio
import gc
import inspect
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NoReturn, Protocol

from scheduler.api.decode import DecodeError, Event, Page, PageDecoder, decode_event
from scheduler.api.metadata import listed
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent, meta_of, version_number, version_of
from scheduler.client import (
    METADATA,
    ApiClient,
    ApiError,
    GoneError,
    NotFoundError,
    UnavailableError,
)
from scheduler.clock import Clock
from scheduler.model import Kind, Watched
from scheduler.reflectors.comparison import CATCH_UP_SECONDS, Difference, newer, vanished
from scheduler.reflectors.machine import (
    PAGE_LIMIT,
    Complete,
    Failure,
    ListPage,
    Machine,
    OpenWatch,
    Pause,
)
from scheduler.reflectors.sources import OPTIONAL, PAGE_LIMITS, PATHS

_log = logging.getLogger(__name__)

_OLDER: Final = frozenset(
    {("", None)}
)  # the difference of a list that is older than what has been seen
_EVENT_TYPES: Final = frozenset(map(str, EventType))
_BURST: Final = 64  # events taken before others may run: about 2 ms
DECODE_BYTES: Final = 128 * 1024  # JSON of a list decoded before others may run: about 1 ms
INDEX_OBJECTS: Final = 128  # objects of the first list indexed before others may run: about 2 ms
_ABSENT_SECONDS: Final = 600.0  # until a kind that the server did not have is looked for again
_COMPARED_OBJECTS: Final = 2_000  # looked at before others may run: about 2 ms


class ReflectorMetrics(Protocol):
    """What reflectors count."""

    def relisted(self, kind: str, cause: str) -> None:
        """A list has replaced the cache's content."""
        ...

    def watch_event(self, kind: str) -> None:
        """An event has been taken."""
        ...

    def undecodable(self, kind: str) -> None:
        """An object could not be read."""
        ...

    def recount_difference(self, count: int) -> None:
        """The indexes were found wrong in so many places."""
        ...


class NoMetrics:
    """Counts nothing."""

    def relisted(self, kind: str, cause: str) -> None:
        """Ignore."""

    def watch_event(self, kind: str) -> None:
        """Ignore."""

    def undecodable(self, kind: str) -> None:
        """Ignore."""

    def recount_difference(self, count: int) -> None:
        """Ignore."""


class Reflector:
    """Lists and watches one kind.

    Attributes:
        kind: which.
        synced: set once the cache has had a complete list.
        is_absent: whether the server does not have this kind.
        last_heard: when the server last gave a sign of life of this kind, on the monotonic clock: an event, a bookmark, a
            list, or a watch that opened where watches have been found to work.
    """

    def __init__(
        self,
        kind: Kind,
        client: ApiClient,
        cache: ClusterCache,
        clock: Clock,
        rng: random.Random,
        metrics: ReflectorMetrics,
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self.is_absent = False
        self.last_heard = clock.monotonic()
        self._trouble = ""
        self._client = client
        self._get_metadata = _metadata_reader(client)
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._page_limit = PAGE_LIMITS.get(kind, PAGE_LIMIT)
        self._machine = Machine(rng, self._page_limit)
        self._paths = PATHS[kind]
        self._served = 0  # which of the paths
        self._refused = 0  # how many of them in a row the server did not have
        self._cause = "start"
        self._asked = 0  # the version that the open watch began at
        self._no_event_at: int | None = (
            None  # the version behind which a line came that is no event
        )
        self._scope: asyncio.Timeout | None = None  # of the open watch
        self._restart = Failure.OTHER  # why the scope was ended

    @property
    def problem(self) -> str:
        """Why the cache is, or may be, stale right now, for a person; empty: it is not."""
        if self._trouble:
            return f"{self.kind}: {self._trouble}"
        if self._machine.is_doubtful(self._clock.monotonic()):
            return (
                f"{self.kind}: watches end as soon as they begin, the server says nothing in them"
            )
        return ""

    async def run(self) -> NoReturn:
        """List and watch until cancelled. Whatever this raises is a bug."""
        while True:
            action = self._machine.next()
            match action:
                case Pause():
                    await self._clock.sleep(action.seconds)
                case ListPage():
                    await self._list(action)
                case OpenWatch():
                    await self._watch(action)

    async def relist(self) -> None:
        """List afresh, beside the watch (H6): afterwards the cache is no older than the call.

        Raises:
            ApiError, UnavailableError, DecodeError: the list failed; the cache is as it was.
        """
        items: list[Watched] = []
        page = ListPage("", "", self._page_limit)
        while True:
            found = await self._get(page)
            items.extend(self._items_of(found))
            if not found.continue_token:
                break
            page = ListPage("", found.continue_token, self._page_limit)
        version = int(found.resource_version)
        # Else the watch has overtaken the list and knows all that is in it.
        if version > self._cache.resource_version(self.kind):
            self._cache.replace(self.kind, items, version)
            self._metrics.relisted(self.kind, "asked")

    async def compare(self) -> None:
        """Look whether the watch has brought all that a fresh list shows; if not, for too long, begin anew."""
        first = await self.differences()
        if not first:
            return
        await self._clock.sleep(CATCH_UP_SECONDS)
        lasting = first & (await self.differences() or set())
        if not lasting:
            return
        if lasting == _OLDER:
            self._begin_anew(Failure.BEHIND)
            return
        _log.error(
            "%s: events have been missed, %d objects are not as in a fresh list: listing again",
            self.kind,
            len(lasting),
        )
        self._begin_anew(Failure.MISSED)

    async def differences(self) -> set[Difference] | None:
        """What is newer or missing here, or has vanished from a fresh list, read page by page; None: there was no list.

        While the watch is behind, there is always something.
        """
        seen = self._cache.resource_version(self.kind)
        page, path = ListPage("", "", self._page_limit), self._paths[self._served]
        versions: dict[str, str] = {}
        found: set[Difference] = set()
        known: dict[str, int] | None = None
        while True:
            try:
                part = listed(await self._get_metadata(path, page.query()))
                version = int(part.resource_version)
            except (ApiError, UnavailableError, ValueError) as error:
                _log.info("%s: could not be compared with a list: %s", self.kind, error)
                return None
            if version < seen:
                return set(_OLDER)
            if known is None:
                known = await self._known()
            found |= newer(part, known)
            versions |= part.versions
            if not part.continue_token:
                return found | vanished(known, versions, version)
            page = ListPage("", part.continue_token, self._page_limit)
            await self._clock.sleep(0)

    async def _known(self) -> dict[str, int]:
        """UID -> version of all that is here."""
        known: dict[str, int] = {}
        for number, item in enumerate(self._cache.watched(self.kind), start=1):
            meta = meta_of(item)
            known[meta.uid] = version_of(meta)
            if number % _COMPARED_OBJECTS == 0:
                await self._clock.sleep(0)
        return known

    def _begin_anew(self, why: Failure) -> None:
        """End the open watch, to list; if there is none, that is under way."""
        if self._scope is not None:
            self._restart = why
            self._scope.reschedule(0.0)

    async def _list(self, action: ListPage) -> None:
        try:
            page = await self._get(action)
            version = version_number(page.resource_version)
            if version is None:
                raise ValueError("a list without version")
        except NotFoundError as error:
            await self._not_served(error)
            return
        except (ApiError, UnavailableError, DecodeError, ValueError) as error:
            self._failed(_classify(error), error)
            return
        self._refused = 0
        seen = self._machine.last_version
        complete = self._machine.page(self._items_of(page), version, page.continue_token)
        if self._machine.is_refused:
            self._cause = "stale_list"
            self._trouble = f"the server lists version {version}, older than {seen}, already seen"
            _log.warning("%s: refused a list: %s", self.kind, self._trouble)
            return
        self._heard()
        if complete is None:
            return
        if complete.is_reset:
            self._cause = "restored"
            _log.error(
                "%s: the server has gone back from version %d to %d, as when etcd is restored: what was seen and"
                " expected since is dropped",
                self.kind,
                seen,
                version,
            )
        await self._replace(complete)
        self.is_absent = False
        self.synced.set()
        self._trouble = ""
        self._metrics.relisted(self.kind, self._cause)
        self._cause = "other"

    def _items_of(self, page: Page) -> list[Watched]:
        """All objects of a page; of those that cannot be read what remains."""
        items = page.items
        for refused in page.refused:
            self._metrics.undecodable(self.kind)
            _log.warning("cannot be read: %s", refused)
            if refused.remains is not None:
                items.append(refused.remains)
        return items

    async def _get(self, page: ListPage) -> Page:
        """Read a page, and decode it with pauses.

        Raises:
            ApiError, UnavailableError, DecodeError: the list failed.
        """
        body = await self._client.get(self._paths[self._served], page.query())
        decoder = PageDecoder(self.kind, body)
        del body
        while decoder.step(DECODE_BYTES):
            await self._clock.sleep(0)
        found = decoder.page()
        if found.continue_token and not self.synced.is_set():
            # There are many, and they stay: the collector need not walk through them again after each page.
            gc.freeze()
        return found

    async def _replace(self, complete: Complete) -> None:
        """Hand a list to the cache.

        The first one in growing pieces, with pauses: every object is new and to be indexed, nobody decides anything
        before all kinds are there, and what is not in the list so far comes in the next piece. Later ones at once:
        what is not in them is gone, and most of what is in them is known.
        """
        items, version = complete.items, complete.resource_version
        if not self.synced.is_set():
            for end in range(INDEX_OBJECTS, len(items), INDEX_OBJECTS):
                self._cache.replace(self.kind, items[:end], version)
                self._cache.snapshot()  # grows along, or the first decision would make all of it at once
                await self._clock.sleep(0)
        differs = self._cache.replace(self.kind, items, version, is_reset=complete.is_reset)
        self._machine.compared(is_same=not differs)

    async def _watch(self, action: OpenWatch) -> None:
        self._asked = action.resource_version
        try:
            async with (
                asyncio.timeout(None) as self._scope,
                self._client.watch(self._paths[self._served], action.query()) as lines,
            ):
                self._opened()
                await self._take_all(lines)
        except TimeoutError:  # only ours: the client has words of its own for what takes too long
            self._failed(self._restart, ValueError("the watch is given up"))
        except (ApiError, UnavailableError) as error:
            self._failed(_classify(error), error)
        finally:
            self._scope = None

    def _opened(self) -> None:
        self._machine.opened(self._clock.monotonic())
        self._trouble = ""
        if self._machine.is_trusted:
            self._heard()

    async def _take_all(self, lines: AsyncIterator[bytes]) -> None:
        """Take events until the watch ends or is of no more use."""
        burst = 0
        async for line in lines:
            if not self._take(line):
                return
            burst += 1
            if burst >= _BURST:
                burst = 0
                await self._clock.sleep(0)
        if self._machine.ended(self._clock.monotonic()):
            self._heard()

    def _take(self, line: bytes) -> bool:
        """Take one event.

        Returns:
            False when this watch is of no more use.
        """
        try:
            event = decode_event(self.kind, line)
        except DecodeError as error:
            return self._no_event(error)
        if event.status is not None:
            status = event.status
            refusal = ApiError(status.code, status.reason, status.message)
            self._failed(_classify(refusal), refusal)
            return False
        version = version_number(event.resource_version)
        if version is None or event.type not in _EVENT_TYPES:
            return self._no_event(ValueError("an event without type or version"))
        if event.type == EventType.BOOKMARK and version < self._asked:
            older = f"a bookmark of version {version} in a watch that began at {self._asked}"
            self._failed(Failure.BEHIND, ValueError(older))
            return False
        return self._take_event(event, EventType(event.type), version)

    def _take_event(self, event: Event, type_: EventType, version: int) -> bool:
        if event.refused is not None:
            self._metrics.undecodable(self.kind)
            _log.warning("an event cannot be read: %s", event.refused)
            if event.object is None:  # not even whom it is about
                type_ = EventType.BOOKMARK
        self._cache.apply(WatchEvent(self.kind, type_, event.object, version))
        is_event = event.type != EventType.BOOKMARK
        self._metrics.watch_event(self.kind)
        if self._machine.heard(version, is_event=is_event, now=self._clock.monotonic()):
            self._heard()
            self._trouble = ""
            self._no_event_at = None
        if event.refused is not None and event.object is None:
            self._failed(Failure.UNREADABLE, event.refused)
            return False
        return True

    def _no_event(self, error: ValueError) -> bool:
        """A line that tells nothing, not even how far the watch has come: perhaps garbled on the way, else listed past."""
        is_again = self._no_event_at == self._machine.last_version
        self._no_event_at = self._machine.last_version
        self._failed(Failure.UNREADABLE if is_again else Failure.UNREACHABLE, error)
        return False

    async def _not_served(self, error: NotFoundError) -> None:
        """This version of the API is not there: try an older one; when there is none, the kind may be absent."""
        self._served = (self._served + 1) % len(self._paths)
        self._refused += 1
        if self._refused < len(self._paths):
            return
        self._refused = 0
        if self.kind not in OPTIONAL:
            self._failed(Failure.OTHER, error)
            return
        self._cache.replace(self.kind, (), self._cache.resource_version(self.kind))
        self.is_absent = True
        self.synced.set()
        self._trouble = ""
        self._heard()
        _log.info("%s: the server does not have this kind", self.kind)
        await self._clock.sleep(_ABSENT_SECONDS)

    def _heard(self) -> None:
        self.last_heard = self._clock.monotonic()

    def _failed(self, failure: Failure, error: Exception) -> None:
        self._machine.failed(failure, self._clock.monotonic())
        self._cause = failure.name.lower()
        if failure is not Failure.GONE:
            self._trouble = str(error)
            _log.warning("%s: %s", self.kind, error)


def _metadata_reader(client: ApiClient) -> Callable[[str, Mapping[str, str]], Awaitable[bytes]]:
    """How a client lists metadata; one that knows no formats lists whole objects, which have it, too."""
    if "accept" in inspect.signature(client.get).parameters:
        return partial(client.get, accept=METADATA)
    return client.get


def _classify(error: Exception) -> Failure:
    if isinstance(error, UnavailableError | DecodeError):
        return Failure.UNREACHABLE
    if not isinstance(error, ApiError):
        return Failure.OTHER
    if isinstance(error, GoneError) or error.status == 410 or error.reason in ("Expired", "Gone"):
        return Failure.GONE
    if "Too large resource version" in error.message:
        return Failure.TOO_LARGE
    return Failure.UNREACHABLE if error.status == 429 else Failure.OTHER
