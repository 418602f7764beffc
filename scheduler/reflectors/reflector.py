"""Keeps one kind in the cache as the API server has it: does what the machine says, forever.

Source: reliability 4.1.
"""

import asyncio
import gc
import logging
import random
from typing import Final, NoReturn, Protocol

import msgspec

from scheduler.api.decode import DecodeError, Page, PageDecoder, decode_event
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent
from scheduler.client import (
    ApiClient,
    ApiError,
    GoneError,
    NotFoundError,
    UnavailableError,
)
from scheduler.clock import Clock
from scheduler.model import Kind, Watched
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

_BURST: Final = 64  # events taken before others may run: about 2 ms
DECODE_BYTES: Final = 128 * 1024  # JSON of a list decoded before others may run: about 1 ms
INDEX_OBJECTS: Final = 128  # objects of the first list indexed before others may run: about 2 ms
_ABSENT_SECONDS: Final = 600.0  # until a kind that the server did not have is looked for again
# An update that cannot be read must not free what the object held before: keep that.
_KEEP_WHEN_UNREADABLE: Final = frozenset({Kind.RESOURCE_CLAIM, Kind.POD})


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


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Line(msgspec.Struct):
    """The least that makes a line an event."""

    type: str
    object: _Object


_LINE: Final = msgspec.json.Decoder(_Line)


class Reflector:
    """Lists and watches one kind.

    Attributes:
        kind: which.
        synced: set once the cache has had a complete list.
        is_absent: whether the server does not have this kind.
        last_heard: when the server last said anything of this kind, on the monotonic clock.
        problem: why the cache is stale right now, for a person; empty: it is not.
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
        self.problem = ""
        self._client = client
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._page_limit = PAGE_LIMITS.get(kind, PAGE_LIMIT)
        self._machine = Machine(rng, self._page_limit)
        self._paths = PATHS[kind]
        self._served = 0  # which of the paths
        self._refused = 0  # how many of them in a row the server did not have
        self._cause = "start"

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
            items.extend(found.items)
            if not found.continue_token:
                break
            page = ListPage("", found.continue_token, self._page_limit)
        version = int(found.resource_version)
        # Else the watch has overtaken the list and knows all that is in it.
        if version > self._cache.resource_version(self.kind):
            self._cache.replace(self.kind, items, version)
            self._metrics.relisted(self.kind, "asked")

    async def _list(self, action: ListPage) -> None:
        try:
            page = await self._get(action)
            version = int(page.resource_version)
        except NotFoundError as error:
            await self._not_served(error)
            return
        except (ApiError, UnavailableError, DecodeError, ValueError) as error:
            self._failed(_classify(error), error)
            return
        self._refused = 0
        for refused in page.refused:
            self._metrics.undecodable(self.kind)
            _log.warning("left out, it cannot be read: %s", refused)
        complete = self._machine.page(page.items, version, page.continue_token)
        self._heard()
        if complete is not None:
            await self._replace(complete)
            self.is_absent = False
            self.synced.set()
            self._metrics.relisted(self.kind, self._cause)
            self._cause = "other"
        elif not page.continue_token:
            self._cause = "stale_list"
            _log.warning(
                "%s: refused a list at %s, older than what has been seen", self.kind, version
            )

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
        self._cache.replace(self.kind, items, version)

    async def _watch(self, action: OpenWatch) -> None:
        try:
            async with self._client.watch(self._paths[self._served], action.query()) as lines:
                self._machine.opened(self._clock.monotonic())
                self._heard()
                burst = 0
                async for line in lines:
                    if not self._take(line):
                        return
                    burst += 1
                    if burst >= _BURST:
                        burst = 0
                        await self._clock.sleep(0)
        except (ApiError, UnavailableError) as error:
            self._failed(_classify(error), error)
        else:
            self._machine.ended(self._clock.monotonic())

    def _take(self, line: bytes) -> bool:
        """Take one event.

        Returns:
            False when this watch is of no more use.
        """
        try:
            event = decode_event(self.kind, line)
        except DecodeError as error:
            return self._skip(line, error)
        if event.status is not None:
            status = event.status
            refusal = ApiError(status.code, status.reason, status.message)
            self._failed(_classify(refusal), refusal)
            return False
        try:
            version = int(event.resource_version)
            type_ = EventType(event.type)
        except ValueError:
            self._failed(Failure.UNREACHABLE, ValueError("an event without type or version"))
            return False
        self._cache.apply(WatchEvent(self.kind, type_, event.object, version))
        self._machine.heard(version, is_event=type_ is not EventType.BOOKMARK)
        self._metrics.watch_event(self.kind)
        self._heard()
        return True

    def _skip(self, line: bytes, error: DecodeError) -> bool:
        """Step over an object that cannot be read, or say that the line is none."""
        try:
            version = int(_LINE.decode(line).object.metadata.resource_version)
        except (msgspec.DecodeError, RecursionError, ValueError):
            self._failed(Failure.UNREACHABLE, error)
            return False
        self._metrics.undecodable(self.kind)
        _log.warning("an event cannot be read: %s", error)
        if self.kind not in _KEEP_WHEN_UNREADABLE:
            self._failed(Failure.UNREADABLE, error)
            return False
        self._cache.apply(WatchEvent(self.kind, EventType.BOOKMARK, None, version))
        self._machine.heard(version, is_event=True)
        self._heard()
        return True

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
        self._heard()
        _log.info("%s: the server does not have this kind", self.kind)
        await self._clock.sleep(_ABSENT_SECONDS)

    def _heard(self) -> None:
        self.last_heard = self._clock.monotonic()
        self.problem = ""

    def _failed(self, failure: Failure, error: Exception) -> None:
        self._machine.failed(failure, self._clock.monotonic())
        self._cause = failure.name.lower()
        if failure is not Failure.GONE:
            self.problem = f"{self.kind}: {error}"
            _log.warning("%s", self.problem)


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
