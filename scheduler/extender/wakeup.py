"""Wakes the pods that our filter rejected, when something changed that may help them.

kube-scheduler re-queues pods rejected by an extender on claim events but not on ResourceSlice or DeviceTaintRule
events, nor when we let go of devices that were only held in memory. One patch of a sentinel ResourceClaim in our
namespace wakes them all, at most once a second.

If some claim is written after the change, that write wakes them already, and no patch may be needed. But kube-scheduler
and we see events at different times: it may have seen that write before we saw the change, and have asked us too early.
So the patch then only waits, to see whether every pod that was rejected before the change is tried again.
Profile safe needs this rarely: what its own filter rejected kube-scheduler wakes itself, and we reject only what is in
flight, or what we have not yet seen freed.
Source: docs/decisions/0007-two-profiles.md; docs/design/extender.md#wake-up; docs/design/leader-election.md#h10.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import orjson

from scheduler.binder.requests import claim_path
from scheduler.client import MERGE_PATCH, ApiClient, Committed, Rejected, WriteOutcome
from scheduler.clock import Clock, rfc3339_micro
from scheduler.framework.events import Event, events_of
from scheduler.model import DOMAIN, Change, ClaimRecord, Kind, Pod

_log: Final = logging.getLogger(__name__)

MIN_INTERVAL_SECONDS: Final = 1.0
TRIED_AGAIN_SECONDS: Final = 5.0  # within this, pods that a claim event woke are tried again
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
        helpful: further events that may help the pods our filter rejected: room on nodes, where devices count in it.
        changes: how many changes that may help were seen; read before a decision, given to `rejected` after it.
    """

    client: ApiClient
    clock: Clock
    may_write: Callable[[], bool]
    namespace: str
    name: str
    on_result: Callable[[WriteOutcome], None] = lambda _outcome: None
    helpful: Event = Event.NOTHING
    changes: int = 0
    _rejected: set[str] = field(default_factory=set)
    _waiting: set[str] = field(
        default_factory=set
    )  # rejected before the last change, not tried since
    _is_blind: bool = False  # pods may wait that we know nothing of
    _changed_at: float = 0.0
    _patch_at: float = 0.0
    _due: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """Called when this process becomes leader: wake all pods once, since those rejected by the previous leader are unknown."""
        self._is_blind = True
        self._make_due()

    def rejected(self, pod_uid: str, changes: int | None = None) -> None:
        """Note that filter found no node for this pod, after `changes` changes (None: all)."""
        self._rejected.add(pod_uid)
        if changes is None or changes == self.changes:
            self._waiting.discard(pod_uid)
        else:
            self._waiting.add(pod_uid)
            self._make_due()

    def accepted(self, pod_uid: str) -> None:
        """Our filter found it a node, or it is gone."""
        self._rejected.discard(pod_uid)
        self._waiting.discard(pod_uid)

    def forgotten(self, pod_uid: str) -> None:
        """The event that should bring a rejected pod back will not come."""
        if pod_uid in self._rejected:
            self._waiting.add(pod_uid)
            self._make_due()

    def freed(self) -> None:
        """Devices are free, or may be, that no event tells of."""
        self.changes += 1
        if self._rejected:
            self._waiting |= self._rejected
            self._make_due()

    def observe(self, change: Change) -> None:
        """Listen to the cache. A claim event may have woken the rejected pods already; a slice or rule event has not."""
        if change.kind in _HELPFUL:
            self.freed()
        elif change.kind is Kind.RESOURCE_CLAIM:
            if not self._is_sentinel(change):
                self._patch_at = self._changed_at + TRIED_AGAIN_SECONDS
        elif change.kind is Kind.POD and change.new is None and isinstance(change.old, Pod):
            self.accepted(change.old.metadata.uid)
        if self.helpful and self.helpful & events_of(change):
            self.freed()

    async def run(self) -> None:
        """Patch when due. Runs until cancelled."""
        while True:
            await self._due.wait()
            # A driver publishes slice by slice: wait a moment, so that one patch serves all of them.
            await self.clock.sleep(MIN_INTERVAL_SECONDS / 10)
            while (left := self._patch_at - self.clock.monotonic()) > 0 and self._is_needed():
                await self.clock.sleep(min(left, MIN_INTERVAL_SECONDS))
            if not self._is_needed():
                self._due.clear()
                continue
            if self.may_write():
                self._due.clear()
                self._waiting.clear()
                self._is_blind = False
                if not await self._is_told():
                    self._is_blind = True
                    self._due.set()
            await self.clock.sleep(MIN_INTERVAL_SECONDS)

    def _make_due(self) -> None:
        if not self._due.is_set():
            self._changed_at = self._patch_at = self.clock.monotonic()
            self._due.set()

    def _is_needed(self) -> bool:
        return self._is_blind or bool(self._waiting)

    def _is_sentinel(self, change: Change) -> bool:
        record = change.new or change.old
        return isinstance(record, ClaimRecord) and (
            (record.claim.metadata.namespace, record.claim.metadata.name)
            == (self.namespace, self.name)
        )

    async def _is_told(self) -> bool:
        """Patch; False if that is to be tried again."""
        try:
            outcome = await self._patch()
            self.on_result(outcome)
        except Exception:  # noqa: BLE001  # pods would wait for ever
            _log.exception("the sentinel claim could not be patched")
            return False
        is_hopeless = isinstance(outcome, Rejected) and outcome.status in (403, 404)
        return is_hopeless or isinstance(outcome, Committed)

    async def _patch(self) -> WriteOutcome:
        body = {"metadata": {"annotations": {ANNOTATION: rfc3339_micro(self.clock.now())}}}
        return await self.client.write(
            "PATCH",
            claim_path(self.namespace, self.name),
            orjson.dumps(body),
            content_type=MERGE_PATCH,
        )
