"""Waits until the cache has seen a write.

Read your writes: docs/design/cache-and-watches.md#r9, and docs/design/write-protocol.md#w3 of a bind.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

from scheduler.cache.cluster import ClusterCache
from scheduler.clock import Clock
from scheduler.model import Kind

_KIND: Final = Kind.RESOURCE_CLAIM


class ClaimBarrier:
    """Lets tasks wait for the watch of claims.

    All claims come in one stream, in the order of their versions: when it has come past a version, every write up to
    it, ours and others', has been seen. When the server goes back (etcd restored), what was waited for will not come.
    """

    def __init__(
        self,
        cache: ClusterCache,
        clock: Clock | None = None,
        observe: Callable[[float], None] | None = None,
    ) -> None:
        """Listen to the cache.

        Args:
            cache: filled by the reflectors.
            clock: times the waiting; None: it is not timed.
            observe: hears how many seconds the watch was behind each write that was waited for.
        """
        self._cache = cache
        self._clock = clock
        self._observe = observe
        self._waiting: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._sequence = 0
        self._reached = cache.resource_version(_KIND)
        cache.subscribe_progress(self._progressed)

    async def reached(self, resource_version: int, timeout_seconds: float) -> bool:
        """Wait until the cache has seen all claim writes up to a version; False when it takes too long."""
        began = 0.0 if self._clock is None else self._clock.monotonic()
        is_reached = await self._wait(resource_version, timeout_seconds)
        if self._clock is not None and self._observe is not None:
            self._observe(self._clock.monotonic() - began)
        return is_reached

    async def _wait(self, resource_version: int, timeout_seconds: float) -> bool:
        if self._cache.resource_version(_KIND) >= resource_version:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        heapq.heappush(self._waiting, (resource_version, self._sequence, future))
        try:
            async with asyncio.timeout(timeout_seconds):
                return await future
        except TimeoutError:
            return False

    async def wait_for_claim_version(
        self, uid: str, resource_version: int, timeout_seconds: float
    ) -> bool:
        """Wait until the cache has seen this version of a claim, or knows that the claim is gone."""
        record = self._cache.claim_by_uid(uid)
        known = 0 if record is None else int(record.claim.metadata.resource_version or 0)
        return known >= resource_version or await self.reached(resource_version, timeout_seconds)

    def _progressed(self, kind: Kind, reached: int) -> None:
        if kind is not _KIND:
            return
        is_reset, self._reached = reached < self._reached, reached
        while self._waiting and (is_reset or self._waiting[0][0] <= reached):
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(not is_reset)
