"""Profile fast: wakes the pods that our filter rejected, when something changed that may help them.

kube-scheduler re-queues pods rejected by an extender on claim events but not on ResourceSlice or DeviceTaintRule
events. One patch of a sentinel ResourceClaim in our namespace wakes them all, at most once a second, and not at all
if some claim was written since the change: that write has woken them already.
Source: `architecture.md` decision 7; scheduler-and-claims 6.6; reliability H10.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import orjson

from scheduler.binder.claims import claim_path
from scheduler.client import MERGE_PATCH, ApiClient, Committed, Rejected, WriteOutcome
from scheduler.clock import Clock, rfc3339_micro
from scheduler.model import DOMAIN, Change, Kind

MIN_INTERVAL_SECONDS: Final = 1.0
ANNOTATION: Final = f"{DOMAIN}/wake-up"
_HELPFUL: Final = frozenset({Kind.RESOURCE_SLICE, Kind.DEVICE_TAINT_RULE})


@dataclass(slots=True, eq=False)
class WakeUp:
    """Patches the sentinel claim.

    Attributes:
        client: where to.
        clock: for the interval and the annotation.
        may_write: whether this process may write.
        namespace: of the sentinel.
        name: of the sentinel.
        on_result: hears of each patch; True: it was written.
    """

    client: ApiClient
    clock: Clock
    may_write: Callable[[], bool]
    namespace: str
    name: str
    on_result: Callable[[WriteOutcome], None] = lambda _outcome: None
    _rejected: set[str] = field(default_factory=set)
    _due: asyncio.Event = field(default_factory=asyncio.Event)

    def rejected(self, pod_uid: str) -> None:
        """Our filter left this pod without a node."""
        self._rejected.add(pod_uid)

    def accepted(self, pod_uid: str) -> None:
        """Our filter found it a node, or it is gone."""
        self._rejected.discard(pod_uid)

    def observe(self, change: Change) -> None:
        """Listen to the cache. A claim event has woken the rejected pods already; a slice or rule event has not."""
        if change.kind in _HELPFUL:
            if self._rejected:
                self._due.set()
        elif change.kind is Kind.RESOURCE_CLAIM:
            self._due.clear()
        elif change.kind is Kind.POD and change.new is None and change.old is not None:
            self._rejected.discard(getattr(change.old, "metadata").uid)  # noqa: B009  # a Pod, by its kind

    async def run(self) -> None:
        """Patch when due. Runs until cancelled."""
        while True:
            await self._due.wait()
            # A driver publishes slice by slice: wait a moment, so that one patch serves all of them. What a claim event
            # cleared meanwhile needs none.
            await self.clock.sleep(MIN_INTERVAL_SECONDS / 10)
            if not self._due.is_set():
                continue
            self._due.clear()
            if self.may_write():
                outcome = await self._patch()
                self.on_result(outcome)
                if not isinstance(outcome, Committed) and not (
                    isinstance(outcome, Rejected) and outcome.status in (403, 404)
                ):
                    self._due.set()
            await self.clock.sleep(MIN_INTERVAL_SECONDS)

    async def _patch(self) -> WriteOutcome:
        body = {"metadata": {"annotations": {ANNOTATION: rfc3339_micro(self.clock.now())}}}
        return await self.client.write(
            "PATCH",
            claim_path(self.namespace, self.name),
            orjson.dumps(body),
            content_type=MERGE_PATCH,
        )
