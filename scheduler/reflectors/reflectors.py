"""All reflectors together, and the upkeep of the cache they fill."""

import asyncio
import gc
import logging
import random
from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.cache.cluster import ClusterCache
from scheduler.client import ApiClient
from scheduler.clock import Clock
from scheduler.model import Kind
from scheduler.reflectors.comparison import Difference
from scheduler.reflectors.reflector import NoMetrics, Reflector, ReflectorMetrics

_log = logging.getLogger(__name__)

RECOUNT_SECONDS: Final = 300.0
COMPARE_SECONDS: Final = (600.0, 900.0)  # after so long each kind is compared with a fresh list
# Nearly all that a bind makes goes by itself; after each 700 objects, as is Python's default, is every few binds. And a
# full collection walks through all answers that are kept, for each node: 30 ms at 5,000.
_COLLECT: Final = (10_000, 20, 20)


class Reflectors:
    """Keeps the cache as the API server is.

    Attributes:
        synced: set once every kind has been listed completely.
    """

    def __init__(
        self,
        client: ApiClient,
        cache: ClusterCache,
        clock: Clock,
        rng: random.Random,
        metrics: ReflectorMetrics | None = None,
        kinds: Iterable[Kind] = tuple(Kind),
    ) -> None:
        """Make a reflector for each kind.

        Args:
            client: reads and watches.
            cache: filled and kept.
            clock: for pauses and ages.
            rng: for jitter.
            metrics: counts; None: nobody counts.
            kinds: those to watch; without DeviceTaintRule when that gate is off.
        """
        self.synced = asyncio.Event()
        self._cache = cache
        self._clock = clock
        self._rng = rng
        self._metrics = metrics or NoMetrics()
        self._reflectors: Mapping[Kind, Reflector] = {
            kind: Reflector(kind, client, cache, clock, rng, self._metrics) for kind in kinds
        }

    async def run(self) -> None:
        """Run until cancelled. If one reflector fails, all stop (R14)."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run(), name=f"reflector {reflector.kind}")
            group.create_task(self._tell_when_synced(), name="first sync")
            group.create_task(self._recount_forever(), name="recount")
            group.create_task(self._compare_forever(), name="comparison with lists")

    async def relist(self, kind: Kind) -> None:
        """List a kind afresh, beside its watch: afterwards the cache is no older than the call (H6).

        Raises:
            ApiError, UnavailableError, DecodeError: the list failed; the cache is as it was.
        """
        await self._reflectors[kind].relist()

    async def differences(self, kind: Kind) -> set[Difference] | None:
        """What is different here from a fresh list of a kind, for now or for long; None: there was no list."""
        return await self._reflectors[kind].differences()

    def last_heard(self, kind: Kind) -> float:
        """When the server last said anything of a kind (event, bookmark, list), on the monotonic clock."""
        return self._reflectors[kind].last_heard

    def silence_seconds(self) -> float:
        """How long the quietest kind has been silent; beyond 90 s the cache is not to be trusted."""
        now = self._clock.monotonic()
        return max((now - reflector.last_heard for reflector in self._watching()), default=0.0)

    def problems(self) -> list[str]:
        """Why the cache is not as fresh as it should be, for a person; empty: it is."""
        waiting = [
            f"{reflector.kind}: not listed yet"
            for reflector in self._reflectors.values()
            if not reflector.synced.is_set() and not reflector.problem
        ]
        problems = (reflector.problem for reflector in self._reflectors.values())
        return waiting + [problem for problem in problems if problem]

    def _watching(self) -> Iterable[Reflector]:
        return (reflector for reflector in self._reflectors.values() if not reflector.is_absent)

    async def _tell_when_synced(self) -> None:
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        # What is here now mostly stays: keep the collector from walking through it again and again. (Long lists are
        # frozen already, page by page, or this walk would hold up the loop for a second.)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT)
        self.synced.set()

    async def _compare_forever(self) -> None:
        """Compare one kind after the other with a list, spread over time."""
        while True:
            for reflector in self._reflectors.values():
                seconds = self._rng.uniform(*COMPARE_SECONDS)
                await self._clock.sleep(seconds / len(self._reflectors))
                if reflector.synced.is_set() and not reflector.is_absent:
                    await reflector.compare()

    async def _recount_forever(self) -> None:
        while True:
            await self._clock.sleep(RECOUNT_SECONDS)
            differences: list[str] = []
            for step in self._cache.recount_steps():
                differences.extend(step)
                await self._clock.sleep(0)
            if differences:
                self._metrics.recount_difference(len(differences))
                _log.error(
                    "indexes were inconsistent and are rebuilt (this is a bug): %s",
                    "; ".join(differences[:5]),
                )
                self._cache.rebuild()
