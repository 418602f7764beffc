"""Pods that wait to be scheduled: active, backing off, unschedulable, gated. Pure: time is an argument, in seconds.

    active --pop--> in flight --done--> gone
      ^                 |
      |                 +--failed--> backing off (an error, or something happened during the attempt)
      |                 +--failed--> unschedulable --event, sweep--> backing off or active
      +-- backoff over

A pod with scheduling gates, or whose generated claims are still to come, is gated: that is no attempt and costs no
backoff. Every pod is in exactly one place. Events that arrive while a pod is in flight are kept and replayed when it fails: what
happened during the attempt may be what the attempt missed. The log of events is bounded; a pod whose events are no
longer all there counts as woken.

Source: pkg/scheduler/backend/queue; docs/design/scheduling-cycle.md#queue.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scheduler.framework.events import ALWAYS, Event, events_of, own_events
from scheduler.model import Change, ClaimRecord, Pod
from scheduler.plugins import WAKES

INITIAL_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 10.0
FLUSH_AFTER_SECONDS: Final = 300.0
CLAIM_PATIENCE_SECONDS: Final = (
    30.0  # then a pod whose claims do not come is tried, so that its owner hears why
)
MAX_EVENTS: Final = 4096
MAX_PODS: Final = 100_000
WOKEN_AT_ONCE: Final = 256  # pods looked at for one event before others may run: about 4 ms


class Place(StrEnum):
    """Where a pod is; the values are metric labels."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A waiting pod.

    Attributes:
        pod: the newest version known.
        place: where it is.
        timestamp: when it was added or last failed; among equals the earlier goes first.
        rejections: failed attempts that ended in a refusal.
        errors: failed attempts in a row that ended in an error.
        rejected_by: plugins that refused it in the last attempt.
        wanted: events that may help it, as far as those plugins know.
        ticket: grows with every move; heap entries with an older one are void.
        seen: number of the first event that came after the attempt began.
        claims: `namespace/name` of its claims, as far as known.
    """

    pod: Pod
    place: Place
    timestamp: float
    rejections: int = 0
    errors: int = 0
    rejected_by: frozenset[str] = frozenset()
    wanted: Event = ALWAYS
    ticket: int = 0
    seen: int = 0
    claims: frozenset[str] = frozenset()

    @property
    def attempts(self) -> int:
        """Failed attempts that decide the backoff."""
        return self.errors or self.rejections

    @property
    def backoff_over_at(self) -> float:
        """When it may be tried again."""
        if not self.attempts:
            return self.timestamp
        # The exponent is bounded: 2.0 ** 2000 is an error.
        exponent = min(self.attempts - 1, 30)
        return self.timestamp + min(INITIAL_BACKOFF_SECONDS * 2.0**exponent, MAX_BACKOFF_SECONDS)


@dataclass(frozen=True, slots=True)
class _Logged:
    """An event: what it is, and the claim or pod it is about, if it is about one, or the pod that it does not help."""

    events: Event
    claim: str = ""
    pod_uid: str = ""
    caused_by: str = ""


class SchedulingQueue:
    """The queue. Methods never await and cost O(log n).

    An event costs O(pods that it may help), but not at once: `pop` goes on with them portion by portion.
    """

    def __init__(
        self,
        claims_resolve: Callable[[Pod], bool] = lambda pod: True,
        *,
        awaits_claims: Callable[[Pod], bool] = lambda pod: False,
        max_pods: int = MAX_PODS,
    ) -> None:
        """Make an empty queue.

        Args:
            claims_resolve: whether all claims of a pod exist now; asked before a claim event wakes it.
            awaits_claims: whether generated claims of a pod are still to come; it is gated until they are there.
            max_pods: pods to take in; more are refused, and must be offered again later.
        """
        self._claims_resolve = claims_resolve
        self._awaits_claims = awaits_claims
        self._max_pods = max_pods
        self._pods: dict[str, QueuedPod] = {}
        self._active: list[tuple[float, float, int, str]] = []
        self._backoff: list[tuple[float, int, str]] = []
        self._unschedulable: dict[str, QueuedPod] = {}
        # The same by the events they want, so that an event that helps nobody costs nothing, however many wait.
        self._by_wanted: dict[Event, dict[str, QueuedPod]] = {}
        self._by_claim: dict[
            str, dict[str, QueuedPod]
        ] = {}  # claim key -> uid -> unschedulable pod
        # Pods that are gated only by claims to come, and of those whose claims have names: claim key -> uid -> pod.
        self._awaiting: dict[str, QueuedPod] = {}
        self._awaited: dict[str, dict[str, QueuedPod]] = {}
        # Pods that an event may help and that it has not been looked at for yet: pod, its ticket then, event.
        self._waking: deque[tuple[QueuedPod, int, _Logged]] = deque()
        self._in_flight: dict[str, QueuedPod] = {}
        self._log: deque[_Logged] = deque()
        self._log_start = 0
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def counts(self) -> dict[Place, int]:
        """Pods by place."""
        counts = dict.fromkeys(Place, 0)
        for queued in self._pods.values():
            counts[queued.place] += 1
        return counts

    def get(self, uid: str) -> QueuedPod | None:
        """A pod that is in the queue or in flight."""
        return self._pods.get(uid)

    def in_flight(self) -> Sequence[QueuedPod]:
        """The pods in flight."""
        return tuple(self._in_flight.values())

    # --- pods come, change and go -------------------------------------------------------------------------------------

    def add(self, pod: Pod, now: float) -> bool:
        """Add a pending pod, or update it if it is queued already.

        Returns:
            Whether it is in the queue; not when the queue is full.
        """
        uid = pod.metadata.uid
        known = self._pods.get(uid)
        if known is not None:
            self.update(pod, now)
            return True
        if len(self._pods) >= self._max_pods:
            return False
        queued = QueuedPod(pod, Place.GATED, now, claims=_claims(pod))
        self._pods[uid] = queued
        self._enter(queued)
        return True

    def update(self, pod: Pod, now: float) -> None:
        """Take in a new version of a pod that is in the queue; it may wake the pod."""
        uid = pod.metadata.uid
        queued = self._pods.get(uid)
        if queued is None:
            return
        if queued.place is Place.GATED:
            self._unawait(queued)
            if queued.pod.spec.scheduling_gates and not pod.spec.scheduling_gates:
                queued.timestamp = now
            queued.pod = pod
            queued.claims = _claims(pod)
            self._enter(queued)
            return
        events = own_events(queued.pod, pod)
        queued.pod = pod
        if events:
            is_parked = queued.place is Place.UNSCHEDULABLE
            if is_parked:
                self._unpark(queued)
            queued.claims = _claims(pod)
            if is_parked:
                self._park(queued)
        if pod.spec.scheduling_gates and queued.place is not Place.IN_FLIGHT:
            self._move(queued, Place.GATED)
            return
        if events:
            self._record(_Logged(events, pod_uid=uid), now)

    def delete(self, uid: str) -> None:
        """Forget a pod: deleted, bound elsewhere, or no longer ours. Harmless for an unknown one."""
        queued = self._pods.pop(uid, None)
        if queued is None:
            return
        queued.ticket = -1
        self._unpark(queued)
        self._unawait(queued)
        self._in_flight.pop(uid, None)
        self._trim()
        self._compact()

    # --- attempts -----------------------------------------------------------------------------------------------------

    def pop(self, now: float) -> QueuedPod | None:
        """The next pod to try: highest priority first, then the one that waits longest. It is in flight from here on."""
        self._wake_some(now)
        self._end_backoffs(now)
        while self._active:
            _, _, ticket, uid = heapq.heappop(self._active)
            queued = self._pods.get(uid)
            if queued is None or queued.ticket != ticket:
                continue
            self._move(queued, Place.IN_FLIGHT)
            queued.seen = self._log_start + len(self._log)
            self._in_flight[uid] = queued
            return queued
        return None

    def done(self, uid: str) -> None:
        """The attempt succeeded, pod bound."""
        self.delete(uid)

    def failed(
        self, uid: str, rejected_by: Iterable[str], now: float, *, is_error: bool = False
    ) -> None:
        """The attempt failed. A pod deleted meanwhile stays gone.

        Args:
            uid: of a pod in flight.
            rejected_by: plugins that refused it on some node or as a whole.
            now: time.
            is_error: whether this is an error, which time may mend, and not a refusal, which needs an event.
        """
        queued = self._in_flight.pop(uid, None)
        if queued is None:
            return
        queued.timestamp = now
        queued.rejected_by = frozenset(rejected_by)
        queued.wanted = _wanted(queued.rejected_by)
        if is_error:
            queued.errors += 1
        else:
            queued.errors = 0
            queued.rejections += 1
        if queued.pod.spec.scheduling_gates:
            self._move(queued, Place.GATED)
        elif is_error or self._missed_something(queued):
            self._back_off(queued)
        else:
            self._move(queued, Place.UNSCHEDULABLE)
            self._park(queued)
        self._trim()

    def _missed_something(self, queued: QueuedPod) -> bool:
        first = queued.seen - self._log_start
        if first < 0:
            return True  # the log was cut: nobody knows
        return any(self._helps(queued, self._log[index]) for index in range(first, len(self._log)))

    # --- events -------------------------------------------------------------------------------------------------------

    def on_change(self, change: Change, now: float) -> None:
        """Wake the pods that a change of the cluster may help. Own changes of waiting pods come through `update`."""
        events = events_of(change)
        if not events:
            return
        claim = ""
        for item in (change.new, change.old):
            if isinstance(item, ClaimRecord):
                claim = item.claim.key
                break
        self._record(_Logged(events, claim=claim), now)

    def on_release(self, uid: str, now: float) -> None:
        """Wake other pods after a decision for one was taken back: what it held can be had again without any change."""
        self._record(_Logged(Event.ROOM_FREED | Event.CLAIM_FREED, caused_by=uid), now)

    def sweep(self, now: float) -> None:
        """Wake the pods that have waited for an event too long; the safety net for a missing rule."""
        for queued in list(self._unschedulable.values()):
            if now - queued.timestamp >= FLUSH_AFTER_SECONDS:
                self._wake(queued, now)
        for queued in list(self._awaiting.values()):
            if now - queued.timestamp >= CLAIM_PATIENCE_SECONDS:
                self._activate(queued)

    def retry(self, uid: str, now: float) -> None:
        """Wake a pod that waits for an event which will not come. Harmless for any other."""
        queued = self._unschedulable.get(uid)
        if queued is not None:
            self._wake(queued, now)

    def next_at(self) -> float | None:
        """When the next backoff is over; None if no pod is backing off. Active pods are ready now."""
        while self._backoff:
            at, ticket, uid = self._backoff[0]
            queued = self._pods.get(uid)
            if queued is not None and queued.ticket == ticket:
                return at
            heapq.heappop(self._backoff)
        return None

    def has_active(self, now: float) -> bool:
        """Whether `pop` would find a pod, now or when more pods have been woken."""
        self._wake_some(now)
        self._end_backoffs(now)
        while self._active:
            queued = self._pods.get(self._active[0][3])
            if queued is not None and queued.ticket == self._active[0][2]:
                return True
            heapq.heappop(self._active)
        return bool(self._waking)

    def _record(self, logged: _Logged, now: float) -> None:
        if self._in_flight:
            self._log.append(logged)
            if len(self._log) > MAX_EVENTS:
                self._log.popleft()
                self._log_start += 1
        for queued in list(self._awaited.get(logged.claim, {}).values()):
            if not self._awaits_claims(queued.pod):
                self._activate(queued)
        if logged.pod_uid or logged.events is Event.CLAIM_CHANGED:
            for queued in self._concerned(logged):
                if self._helps(queued, logged):
                    self._wake(queued, now)
            return
        for wanted, pods in self._by_wanted.items():
            if logged.events & wanted:
                self._waking.extend((queued, queued.ticket, logged) for queued in pods.values())
        self._wake_some(now)
        while (
            len(self._waking) > 2 * len(self._pods) + WOKEN_AT_ONCE
        ):  # events come faster than that
            self._wake_some(now)

    def _concerned(self, logged: _Logged) -> list[QueuedPod]:
        """The waiting pods that an event is about."""
        if not logged.pod_uid:
            return list(self._by_claim.get(logged.claim, {}).values())
        own = self._unschedulable.get(logged.pod_uid)
        return [] if own is None else [own]

    def _wake_some(self, now: float) -> None:
        """Go on waking; the rest is left to the next call, since thousands may wait for one event."""
        for _ in range(min(len(self._waking), WOKEN_AT_ONCE)):
            queued, ticket, logged = self._waking.popleft()
            if queued.ticket == ticket and self._helps(queued, logged):
                self._wake(queued, now)

    def _helps(self, queued: QueuedPod, logged: _Logged) -> bool:
        uid = queued.pod.metadata.uid
        if logged.caused_by == uid or logged.pod_uid not in ("", uid):
            return False
        found = logged.events & queued.wanted
        if not found:
            return False
        about_claims = Event.CLAIM_CHANGED | Event.CLAIM_FREED | Event.OWN_CLAIM_STATUS
        if found & ~about_claims:
            return True
        if not found & ~Event.CLAIM_CHANGED and logged.claim not in queued.claims:
            return False
        return self._claims_resolve(queued.pod)

    # --- places -------------------------------------------------------------------------------------------------------

    def _enter(self, queued: QueuedPod) -> None:
        """Activate a new pod, or gate it."""
        uid = queued.pod.metadata.uid
        if queued.pod.spec.scheduling_gates:
            return
        if not self._awaits_claims(queued.pod):
            self._activate(queued)
            return
        self._awaiting[uid] = queued
        for claim in queued.claims:
            self._awaited.setdefault(claim, {})[uid] = queued

    def _unawait(self, queued: QueuedPod) -> None:
        uid = queued.pod.metadata.uid
        if self._awaiting.pop(uid, None) is None:
            return
        for claim in queued.claims:
            pods = self._awaited[claim]
            del pods[uid]
            if not pods:
                del self._awaited[claim]

    def _park(self, queued: QueuedPod) -> None:
        uid = queued.pod.metadata.uid
        self._unschedulable[uid] = queued
        self._by_wanted.setdefault(queued.wanted, {})[uid] = queued
        for claim in queued.claims:
            self._by_claim.setdefault(claim, {})[uid] = queued

    def _unpark(self, queued: QueuedPod) -> None:
        uid = queued.pod.metadata.uid
        if self._unschedulable.pop(uid, None) is None:
            return
        alike = self._by_wanted[queued.wanted]
        del alike[uid]
        if not alike:
            del self._by_wanted[queued.wanted]
        for claim in queued.claims:
            pods = self._by_claim[claim]
            del pods[uid]
            if not pods:
                del self._by_claim[claim]

    def _wake(self, queued: QueuedPod, now: float) -> None:
        if queued.backoff_over_at > now:
            self._back_off(queued)
        else:
            self._activate(queued)

    def _move(self, queued: QueuedPod, place: Place) -> None:
        self._tickets += 1
        queued.ticket = self._tickets
        queued.place = place
        self._unpark(queued)
        self._unawait(queued)

    def _activate(self, queued: QueuedPod) -> None:
        self._move(queued, Place.ACTIVE)
        entry = (-(queued.pod.spec.priority or 0), queued.timestamp, queued.ticket)
        heapq.heappush(self._active, (*entry, queued.pod.metadata.uid))
        self._compact()

    def _back_off(self, queued: QueuedPod) -> None:
        self._move(queued, Place.BACKOFF)
        entry = (queued.backoff_over_at, queued.ticket, queued.pod.metadata.uid)
        heapq.heappush(self._backoff, entry)
        self._compact()

    def _end_backoffs(self, now: float) -> None:
        while self._backoff and self._backoff[0][0] <= now:
            _, ticket, uid = heapq.heappop(self._backoff)
            queued = self._pods.get(uid)
            if queued is not None and queued.ticket == ticket:
                self._activate(queued)

    def _compact(self) -> None:
        """Drop void heap entries when they are the most, so that the heaps stay as small as the queue."""
        most = 2 * len(self._pods) + 64
        if len(self._active) > most:
            self._active = [entry for entry in self._active if self._is_valid(entry[3], entry[2])]
            heapq.heapify(self._active)
        if len(self._backoff) > most:
            self._backoff = [entry for entry in self._backoff if self._is_valid(entry[2], entry[1])]
            heapq.heapify(self._backoff)

    def _is_valid(self, uid: str, ticket: int) -> bool:
        queued = self._pods.get(uid)
        return queued is not None and queued.ticket == ticket

    def _trim(self) -> None:
        """Drop the events that no pod in flight may have missed. O(pods in flight)."""
        oldest = min(
            (queued.seen for queued in self._in_flight.values()),
            default=self._log_start + len(self._log),
        )
        while self._log_start < oldest and self._log:
            self._log.popleft()
            self._log_start += 1


def _wanted(rejected_by: Iterable[str]) -> Event:
    wanted = ALWAYS
    for plugin in rejected_by:
        wanted |= WAKES.get(plugin, Event.NOTHING)
    return wanted


def _claims(pod: Pod) -> frozenset[str]:
    """`namespace/name` of the pod's claims, as far as they have names yet."""
    made = {
        each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()
    }
    names = (
        entry.resource_claim_name or made.get(entry.name)
        for entry in pod.spec.resource_claims or ()
    )
    return frozenset(f"{pod.metadata.namespace}/{name}" for name in names if name)
