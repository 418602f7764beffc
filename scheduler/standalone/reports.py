"""What the owner of a pod is told: the PodScheduled condition and events. Messages, never decisions.

The newest report of a pod takes the place of an older one that is not written yet, and nothing is written that the pod
says already. One writer at a time, and a pause after each change of what was told before: telling must not compete
with binding, and thousands of waiting pods whose counts change are thousands of writes.
"""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Protocol

from allocator.outcome import Reason
from scheduler.clock import Clock
from scheduler.events import WARNING, Reference
from scheduler.model import ClusterReader, Pod, PodCondition

_log: Final = logging.getLogger(__name__)

MAX_PENDING: Final = 10_000
PACE_SECONDS: Final = 0.02


class PodConditions(Protocol):
    """What writes conditions."""

    async def set_unscheduled(self, pod: Pod, reason: Reason, *, is_error: bool) -> bool:
        """Write PodScheduled=False with a reason."""
        ...


class Events(Protocol):
    """What records events."""

    def record(
        self, regarding: Reference, *, type_: str, reason: str, action: str, note: str
    ) -> None:
        """Queue an event."""
        ...


@dataclass(frozen=True, slots=True)
class _Report:
    pod: Pod
    reason: Reason
    is_error: bool


class Reports:
    """Reports to be written, newest a pod."""

    def __init__(
        self, reader: ClusterReader, conditions: PodConditions, events: Events, clock: Clock
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._conditions = conditions
        self._events = events
        self._pending: OrderedDict[str, _Report] = OrderedDict()
        self._has_work = asyncio.Event()

    def failed(self, pod: Pod, reason: Reason, *, is_error: bool) -> None:
        """Report a failed attempt unless the pod's condition says so already. Drops the oldest report when too many are queued."""
        uid = pod.metadata.uid
        self._pending.pop(uid, None)
        newest = self._reader.pod(uid)
        if newest is None or _says(newest, reason.message, is_error=is_error):
            return
        self._pending[uid] = _Report(newest, reason, is_error)
        if len(self._pending) > MAX_PENDING:
            self._pending.popitem(last=False)
        self._has_work.set()
        self.event(newest, WARNING, "FailedScheduling", reason.message)

    def event(self, pod: Pod, type_: str, reason: str, note: str) -> None:
        """Record an event about a pod."""
        regarding = Reference.to_pod(pod)
        action = "Binding" if reason == "Scheduled" else "Scheduling"
        self._events.record(regarding, type_=type_, reason=reason, action=action, note=note)

    def forget(self, uid: str) -> None:
        """The pod is gone or bound: nothing more to tell."""
        self._pending.pop(uid, None)

    async def run(self) -> None:
        """Write reports until cancelled."""
        while True:
            await self._has_work.wait()
            if not self._pending:
                self._has_work.clear()
                continue
            uid, report = self._pending.popitem(last=False)
            pod = self._reader.pod(uid)
            if pod is None or pod.spec.node_name:
                continue
            is_first = all(each.type != "PodScheduled" for each in pod.status.conditions or ())
            try:
                await self._conditions.set_unscheduled(pod, report.reason, is_error=report.is_error)
            except Exception:  # noqa: BLE001  # the report of one pod must not end those of all others
                _log.exception("the condition of pod %s could not be written", pod.key)
                is_first = False
            if not is_first:
                await self._clock.sleep(PACE_SECONDS)


def _says(pod: Pod, message: str, *, is_error: bool) -> bool:
    wanted = ("False", "SchedulerError" if is_error else "Unschedulable", message)
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled":
            return _as_told(condition) == wanted
    return False


def _as_told(condition: PodCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message
