"""Kubernetes Events: what happened to a pod, for a person with `kubectl describe`.

`record` only queues, so callers never wait, equal ones become one with a count, the queue is bounded, and what
does not fit or cannot be written is dropped and counted. Texts are bounded; they never hold what a tenant may not
read (that is the caller's part).

Source: events.k8s.io/v1; docs/design/scheduling-cycle.md#queue, docs/performance.md (events at low priority).
"""

import asyncio
import logging
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

import msgspec

from allocator.model.claims import ResourceClaim
from scheduler.client import MERGE_PATCH, ApiClient, Committed, Rejected
from scheduler.clock import Clock, rfc3339_micro
from scheduler.model import DOMAIN, Pod

_log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
CONTROLLER: Final = DOMAIN + "/dra-scheduler"

_QUEUE_LIMIT: Final = 1_000
_REMEMBERED: Final = 4_096
_PACE_SECONDS: Final = 0.02  # 50 a second: events must not compete with binds
_QUIET_SECONDS: Final = 60.0  # repetitions within this are only counted
_NOTE_LIMIT: Final = 1_000  # the server's limit is 1,024 bytes
_NAME_LIMIT: Final = 253


class EventMetrics(Protocol):
    """What is counted of events."""

    def event_dropped(self, reason: str) -> None:
        """An event was not written."""
        ...


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def to_pod(cls, pod: Pod) -> "Reference":
        """Refer to a pod."""
        meta = pod.metadata
        return cls("v1", "Pod", meta.namespace, meta.name, meta.uid)

    @classmethod
    def to_claim(cls, claim: ResourceClaim) -> "Reference":
        """Refer to a ResourceClaim."""
        meta = claim.metadata
        return cls("resource.k8s.io/v1", "ResourceClaim", meta.namespace, meta.name, meta.uid)


@dataclass(frozen=True, slots=True)
class Event:
    """What happened. Equal events are one event.

    Attributes:
        regarding: to what.
        type: NORMAL or WARNING.
        reason: in CamelCase, for machines.
        action: what we were doing, in CamelCase.
        note: for a person.
    """

    regarding: Reference
    type: str
    reason: str
    action: str
    note: str


@dataclass(slots=True)
class _Written:
    """An event that the server has.

    Attributes:
        name: of the API object.
        count: how often it happened.
        at: when it was last written, monotonic.
    """

    name: str
    count: int
    at: float


class EventRecorder:
    """Queues events and writes them one after the other."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        rng: random.Random,
        instance: str,
        metrics: EventMetrics | None = None,
    ) -> None:
        """Start with nothing queued; `run` writes.

        Args:
            client: writes.
            clock: for timestamps and pace.
            rng: for names.
            instance: this process, as shown in the event.
            metrics: counts what was dropped; None: nobody counts.
        """
        self._client = client
        self._clock = clock
        self._rng = rng
        self._instance = instance[:128]
        self._metrics = metrics
        self._pending: OrderedDict[Event, int] = OrderedDict()
        self._written: OrderedDict[Event, _Written] = OrderedDict()
        self._has_work = asyncio.Event()

    def record(
        self, regarding: Reference, *, type_: str, reason: str, action: str, note: str
    ) -> None:
        """Queue an event. Never waits, never fails."""
        event = Event(regarding, type_, reason, action, _cut(note))
        if event in self._pending:
            self._pending[event] += 1
            return
        known = self._written.get(event)
        if known is not None and self._clock.monotonic() - known.at < _QUIET_SECONDS:
            known.count += 1
            return
        if len(self._pending) >= _QUEUE_LIMIT:
            self._dropped("queue_full")
            return
        self._pending[event] = 1
        self._has_work.set()

    async def run(self) -> NoReturn:
        """Write until cancelled."""
        while True:
            await self._has_work.wait()
            event, count = self._pending.popitem(last=False)
            if not self._pending:
                self._has_work.clear()
            await self._write(event, count)
            await self._clock.sleep(_PACE_SECONDS)

    async def drain(self) -> None:
        """Write what is queued (before the process ends)."""
        self._has_work.clear()
        while self._pending:
            event, count = self._pending.popitem(last=False)
            await self._write(event, count)

    async def _write(self, event: Event, count: int) -> None:
        known = self._written.get(event)
        if known is not None:
            known.count += count
            if await self._repeat(event, known):
                return
        name = self._name(event.regarding.name)
        namespace = event.regarding.namespace or "default"
        outcome = await self._client.write(
            "POST", _path(namespace), self._body(event, namespace, name, count)
        )
        if isinstance(outcome, Committed):
            self._written[event] = _Written(name, count, self._clock.monotonic())
            if len(self._written) > _REMEMBERED:
                self._written.popitem(last=False)
        else:
            self._dropped("write_failed")
            _log.debug("event %s was not written: %s", event.reason, outcome)

    async def _repeat(self, event: Event, known: _Written) -> bool:
        """Raise the count of an event that the server has; False if it has forgotten it."""
        series = {"count": known.count, "lastObservedTime": rfc3339_micro(self._clock.now())}
        outcome = await self._client.write(
            "PATCH",
            f"{_path(event.regarding.namespace or 'default')}/{known.name}",
            msgspec.json.encode({"series": series}),
            content_type=MERGE_PATCH,
        )
        known.at = self._clock.monotonic()
        if isinstance(outcome, Rejected) and outcome.status == 404:
            del self._written[event]
            return False
        if not isinstance(outcome, Committed):
            self._dropped("write_failed")
        return True

    def _body(self, event: Event, namespace: str, name: str, count: int) -> bytes:
        now = rfc3339_micro(self._clock.now())
        regarding = event.regarding
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": now,
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "namespace": regarding.namespace,
                "name": regarding.name,
                "uid": regarding.uid,
            },
        }
        if count > 1:
            body["series"] = {"count": count, "lastObservedTime": now}
        return msgspec.json.encode(body)

    def _name(self, about: str) -> str:
        suffix = f".{self._rng.getrandbits(64):016x}"
        return about[: _NAME_LIMIT - len(suffix)] + suffix

    def _dropped(self, reason: str) -> None:
        if self._metrics is not None:
            self._metrics.event_dropped(reason)


def _path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def _cut(note: str) -> str:
    encoded = note.encode()
    if len(encoded) <= _NOTE_LIMIT:
        return note
    return encoded[:_NOTE_LIMIT].decode(errors="ignore") + "…"
