"""Forced choice: filter answers one node and holds its devices for the pod, in memory, for a limited time.

For contended clusters: no two pods are sent after the same device. Released when the bind begins (which holds them
itself), when the pod is filtered again or gone, and after a time limit: a crash or another choice of kube-scheduler leaks
nothing. Off by default. Source: docs/design/extender.md#forced-choice; docs/decisions/0006-bind-decides-again.md.
"""

from collections.abc import Callable
from typing import Final

from scheduler.cache.cluster import ClusterCache
from scheduler.clock import Clock
from scheduler.framework.plan import Plan
from scheduler.model import Change, Kind, Pod

HOLD_SECONDS: Final = 30.0  # longer than a bind may take
_LOOK_SECONDS: Final = 1.0


class Holds:
    """Devices held between filter and bind, by pod."""

    def __init__(
        self, cache: ClusterCache, clock: Clock, on_expired: Callable[[], None] = lambda: None
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._on_expired = on_expired
        self._expires: dict[str, float] = {}

    def hold(self, plan: Plan) -> None:
        """Hold what a plan allocates, instead of what its pod held before."""
        uid = plan.pod.metadata.uid
        self.release(uid)
        self._cache.hold(uid, plan.held)
        self._expires[uid] = self._clock.monotonic() + HOLD_SECONDS

    def release(self, pod_uid: str) -> None:
        """Let go, if the pod holds anything since filter. Never touches what a bind holds."""
        if self._expires.pop(pod_uid, None) is not None:
            self._cache.release(pod_uid)

    def release_expired(self) -> None:
        """Let go of what was held for too long; holds are made in the order in which they expire."""
        now = self._clock.monotonic()
        for uid, expires in list(self._expires.items()):
            if expires > now:
                break
            self.release(uid)
            self._on_expired()

    async def run(self) -> None:
        """Let go in time, also when nobody asks for anything. Runs until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.release_expired()

    def observe(self, change: Change) -> None:
        """Listen to the cache: a pod that is gone holds nothing."""
        if change.kind is Kind.POD and change.new is None and isinstance(change.old, Pod):
            self.release(change.old.metadata.uid)

    def __len__(self) -> int:
        return len(self._expires)
