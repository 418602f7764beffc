"""Who may write: an election over a Lease, the Lease of the kube-scheduler beside us, or nobody else by decree.

A lease is a hint, not a lock: nothing in the API server keeps a paused leader from writing. So the leader asks
`can_write` before every request, the deadline of which counts from the *start* of its last successful renewal, and the
data itself rejects stale writers (epochs, resourceVersions). Whether another holder is alive is judged by when *we*
saw its record change, never by the times in the record.

Source: reliability 4.3; `architecture.md` decision 8.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import msgspec

from scheduler.client import (
    MERGE_PATCH,
    ApiClient,
    ApiError,
    Committed,
    NotFoundError,
    Rejected,
    UnavailableError,
)
from scheduler.clock import Clock, rfc3339_micro
from scheduler.config import LeaderElectionSettings
from scheduler.model import DOMAIN

_log = logging.getLogger(__name__)

LEADER_LABEL: Final = f"{DOMAIN}/leader"
# A follower looks often, to take over soon; a leader needs to see a renewal only every now and then.
FOLLOWER_POLL_SECONDS: Final = 1.0
FOLLOWING_LEADER_POLL_SECONDS: Final = 2.0
FOLLOW_DEADLINE_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 0.8  # a leader that lost is gone within a second (H4), whatever it was doing

OnStarted = Callable[[], Awaitable[None]]
OnStopped = Callable[[], None]


class LeadershipLostError(Exception):
    """The lease is lost. The process ends: no return to following within it (H4)."""


class Leadership(Protocol):
    """Whether this process may write, and under which epoch."""

    @property
    def epoch(self) -> int:
        """Grows with every change of leader; stamped onto what is written. 0: there is no election."""
        ...

    @property
    def needs_sweep(self) -> bool:
        """Whether the leader before us may still have writes under way (it did not release the lease)."""
        ...

    def is_leader(self) -> bool:
        """Whether this process leads now."""
        ...

    def can_write(self, now: float) -> bool:
        """Whether a request may be sent at this moment (monotonic)."""
        ...

    async def run(self, on_started: OnStarted, on_stopped: OnStopped) -> None:
        """Take part until cancelled. `on_started` runs as a task while leading; then `on_stopped` is called.

        Raises:
            LeadershipLostError: the lease is lost, and this kind of leadership does not come back.
        """
        ...

    async def release(self) -> None:
        """Give the lease back, after the last write has ended (H9)."""
        ...


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a Lease's spec that is read."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class Lease(msgspec.Struct, frozen=True):
    """A Lease as far as elections read it."""

    metadata: _LeaseMeta = _LeaseMeta()
    spec: LeaseSpec = LeaseSpec()


_LEASE: Final = msgspec.json.Decoder(Lease)


def lease_path(namespace: str, name: str = "") -> str:
    """The path of a Lease, or of all in a namespace."""
    base = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{base}/{name}" if name else base


def _epoch_of(lease: Lease) -> int:
    """From 1, so that a first leader is told from no election."""
    return (lease.spec.lease_transitions or 0) + 1


async def _read(
    client: ApiClient, namespace: str, name: str, timeout_seconds: float
) -> Lease | None:
    """Read a Lease; None if there is none.

    Raises:
        ApiError, UnavailableError: no answer that says so.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            return _LEASE.decode(await client.get(lease_path(namespace, name)))
    except NotFoundError:
        return None
    except TimeoutError:
        raise UnavailableError("reading the lease took too long") from None
    except msgspec.DecodeError as error:
        raise UnavailableError(f"the lease cannot be read: {error}") from None


class AlwaysLeader:
    """The only writer by decree (`--leader-elect=false`)."""

    epoch = 0
    needs_sweep = False

    def is_leader(self) -> bool:
        """Yes."""
        return True

    def can_write(self, now: float) -> bool:
        """Yes."""
        return True

    async def run(self, on_started: OnStarted, on_stopped: OnStopped) -> None:
        """Lead until cancelled."""
        try:
            await on_started()
            await asyncio.get_running_loop().create_future()
        finally:
            on_stopped()

    async def release(self) -> None:
        """There is no lease."""


class _Leading:
    """Runs what a leader does while it leads, and stops it for certain."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._on_stopped: OnStopped | None = None

    def start(self, on_started: OnStarted, on_stopped: OnStopped) -> None:
        """Begin to lead."""
        self._on_stopped = on_stopped
        self._task = asyncio.create_task(_call(on_started), name="leading")

    def check(self) -> None:
        """Let an error of what a leader does end the election too."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            if error is not None:
                raise error

    async def stop(self) -> None:
        """Stop leading; nothing if we do not lead."""
        task, self._task = self._task, None
        if task is None:
            return
        if self._on_stopped is not None:
            self._on_stopped()
        task.cancel()
        await asyncio.wait({task}, timeout=_STOP_SECONDS)
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            _log.error("what a leader does has failed: %s", error)


async def _call(on_started: OnStarted) -> None:
    await on_started()


class LeaderElector:
    """Takes part in the election over a Lease of our own."""

    def __init__(
        self,
        client: ApiClient,
        settings: LeaderElectionSettings,
        clock: Clock,
        rng: random.Random,
        identity: str,
        pod: tuple[str, str] | None = None,
    ) -> None:
        """Prepare; `run` takes part.

        Args:
            client: of its own, so that renewals do not queue behind other requests.
            settings: the Lease and its times.
            clock: monotonic through sleep of the machine.
            rng: for jitter between tries.
            identity: of this process, different after every start.
            pod: namespace and name of our pod, which gets the leader label; None: no pod.

        Raises:
            ValueError: the times do not leave room for a request between our deadline and the others' patience.
        """
        self._request_seconds = settings.lease_duration_seconds - settings.renew_deadline_seconds
        if self._request_seconds <= 0 or settings.retry_period_seconds <= 0:
            raise ValueError(
                "leader election: leaseDuration must be greater than renewDeadline, retryPeriod greater than 0"
            )
        self._client = client
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._identity = identity
        self._label = _PodLabel(client, pod)
        self._leading = _Leading()
        self._is_leader = False
        self._renewed_at = float("-inf")
        self._epoch = 0
        self._needs_sweep = False
        self._observed: Lease | None = None
        self._observed_at = float("-inf")

    @property
    def epoch(self) -> int:
        """`leaseTransitions` + 1 since we hold it."""
        return self._epoch

    @property
    def needs_sweep(self) -> bool:
        """Whether the lease was taken over from a holder that had not released it."""
        return self._needs_sweep

    def is_leader(self) -> bool:
        """Whether we hold the lease and have renewed it in time."""
        return self.can_write(self._clock.monotonic())

    def can_write(self, now: float) -> bool:
        """Whether the last renewal that succeeded *began* less than the renew deadline ago."""
        return self._is_leader and now < self._renewed_at + self._settings.renew_deadline_seconds

    async def run(self, on_started: OnStarted, on_stopped: OnStopped) -> None:
        """Follow until the lease is ours, lead until it is lost.

        Raises:
            LeadershipLostError: the lease is lost.
        """
        while not await self._try():
            await self._clock.sleep(
                self._settings.retry_period_seconds * self._rng.uniform(1.0, 1.2)
            )
        self._is_leader = True
        _log.info("leading: %s, epoch %d", self._identity, self._epoch)
        try:
            self._leading.start(on_started, on_stopped)
            self._label.put()
            await self._renew_until_lost()
        finally:
            if not self._in_time():
                self._is_leader = False
            await self._leading.stop()
        self._is_leader = False
        raise LeadershipLostError(f"{self._identity} could not renew the lease in time")

    async def release(self) -> None:
        """Give the lease back. Failing to only makes the next leader wait."""
        if not self._is_leader or self._observed is None:
            return
        held = self._observed
        self._is_leader = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._request_seconds):
                self._label.remove()
                await self._label.settled()
                await self._write(
                    "PUT", held, self._spec(held.spec.lease_transitions or 0, held.spec, holder="")
                )

    def _in_time(self) -> bool:
        return self._clock.monotonic() < self._renewed_at + self._settings.renew_deadline_seconds

    async def _renew_until_lost(self) -> None:
        while True:
            left = (
                self._renewed_at + self._settings.renew_deadline_seconds - self._clock.monotonic()
            )
            if left <= 0:
                return
            await self._clock.sleep(min(self._settings.retry_period_seconds, left))
            if not self._in_time():
                return  # we were paused: the lease may be somebody else's by now
            self._leading.check()
            if not await self._try() and self._is_taken():
                return

    def _is_taken(self) -> bool:
        """Whether the record names somebody else: there is nothing to renew."""
        return self._observed is None or self._observed.spec.holder_identity != self._identity

    async def _try(self) -> bool:
        """Acquire or renew, once. Any error counts as not renewed (H3)."""
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._request_seconds):
                return await self._acquire_or_renew(started)
        except TimeoutError:
            _log.warning("the lease could not be renewed: it took too long")
        except (ApiError, UnavailableError) as error:
            _log.warning("the lease could not be renewed: %s", error)
        return False

    async def _acquire_or_renew(self, started: float) -> bool:
        if self._is_leader and self._observed is not None and not self._is_taken():
            # The usual renewal needs no read; if the record has moved, the write is rejected and we look.
            transitions = self._observed.spec.lease_transitions or 0
            if await self._write(
                "PUT", self._observed, self._spec(transitions, self._observed.spec), started
            ):
                return True
        found = await _read(
            self._client, self._settings.namespace, self._settings.name, self._request_seconds
        )
        if found is None:
            # Whoever deletes the lease must not make our epoch go back.
            transitions = max(self._epoch - 1, 0)
            return await self._write("POST", None, self._spec(transitions, None), started)
        self._observe(found)
        holder = found.spec.holder_identity or ""
        transitions = found.spec.lease_transitions or 0
        if holder == self._identity:
            return await self._write("PUT", found, self._spec(transitions, found.spec), started)
        if self._is_leader or (holder and not self._has_expired(found)):
            return False
        self._needs_sweep = bool(holder)
        return await self._write("PUT", found, self._spec(transitions + 1, None), started)

    def _observe(self, found: Lease) -> None:
        if self._observed is None or self._observed.spec != found.spec:
            self._observed_at = self._clock.monotonic()
        self._observed = found

    def _has_expired(self, found: Lease) -> bool:
        """Whether we have watched the record stand still for as long as its holder promised to live."""
        duration = found.spec.lease_duration_seconds or self._settings.lease_duration_seconds
        return self._clock.monotonic() - self._observed_at >= duration

    def _spec(
        self, transitions: int, previous: LeaseSpec | None, holder: str | None = None
    ) -> dict[str, Any]:
        now = rfc3339_micro(self._clock.now())
        is_release = holder == ""
        return {
            "holderIdentity": self._identity if holder is None else holder,
            "leaseDurationSeconds": 1
            if is_release
            else round(self._settings.lease_duration_seconds),
            "acquireTime": (previous.acquire_time if previous is not None else None) or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    async def _write(
        self, method: str, base: Lease | None, spec: dict[str, Any], started: float | None = None
    ) -> bool:
        """Write the record where it still is what we saw; True only when it certainly is ours."""
        metadata: dict[str, Any] = {
            "name": self._settings.name,
            "namespace": self._settings.namespace,
        }
        if base is not None:
            metadata |= {
                "resourceVersion": base.metadata.resource_version,
                "uid": base.metadata.uid,
            }
        body = msgspec.json.encode(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": spec,
            }
        )
        name = self._settings.name if base is not None else ""
        outcome = await self._client.write(method, lease_path(self._settings.namespace, name), body)
        if not isinstance(outcome, Committed):
            if isinstance(outcome, Rejected) and outcome.status not in (0, 409, 429):
                _log.warning("the lease was refused: %s %s", outcome.reason, outcome.message)
            return False
        try:
            stored = _LEASE.decode(outcome.body)
        except msgspec.DecodeError:
            return False
        self._observe(stored)
        if started is not None:
            self._renewed_at = started
            self._epoch = _epoch_of(stored)
        return True


class FollowLease:
    """Leads while the kube-scheduler in the same pod holds *its* lease; reads only.

    kube-scheduler gives up 10 s after its last renewal and others take over after 15 s; we stop 10 s after the start
    of the read that last showed a renewal.
    """

    def __init__(
        self,
        client: ApiClient,
        settings: LeaderElectionSettings,
        clock: Clock,
        hostname: str,
        pod: tuple[str, str] | None = None,
    ) -> None:
        """Prepare; `run` follows.

        Args:
            client: reads the Lease.
            settings: `follow_lease` names it.
            clock: monotonic through sleep of the machine.
            hostname: ours, and the neighbour's: its identity starts with `<hostname>_`.
            pod: namespace and name of our pod, which gets the leader label; None: no pod.

        Raises:
            ValueError: `follow_lease` is no `namespace/name`.
        """
        namespace, slash, name = settings.follow_lease.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ValueError(f"follow-lease must be NAMESPACE/NAME, not {settings.follow_lease!r}")
        self._client = client
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._prefix = f"{hostname}_"
        self._label = _PodLabel(client, pod)
        self._leading = _Leading()
        self._observed: Lease | None = None
        self._renewed_at = float("-inf")
        self._has_looked = False
        self._has_seen_change = False
        self._epoch = 0
        self._needs_sweep = False

    @property
    def epoch(self) -> int:
        """`leaseTransitions` + 1 of the neighbour's lease."""
        return self._epoch

    @property
    def needs_sweep(self) -> bool:
        """Whether another holder may still have writes under way."""
        return self._needs_sweep

    def is_leader(self) -> bool:
        """Whether the neighbour holds its lease and has renewed it in time."""
        return self.can_write(self._clock.monotonic())

    def can_write(self, now: float) -> bool:
        """Whether the neighbour's last renewal was seen less than 10 s ago."""
        return (
            self._has_seen_change
            and self._is_neighbours(self._observed)
            and now < self._renewed_at + FOLLOW_DEADLINE_SECONDS
        )

    async def run(self, on_started: OnStarted, on_stopped: OnStopped) -> None:
        """Follow until cancelled; leading may start and stop many times, each time in a new epoch."""
        leading_epoch: int | None = None
        try:
            while True:
                await self._look()
                self._leading.check()
                epoch = self._epoch if self.is_leader() else None
                if epoch != leading_epoch:
                    await self._leading.stop()
                    if epoch is None:
                        _log.warning("our kube-scheduler does not lead: nothing is written")
                        self._label.remove()
                    else:
                        _log.info("our kube-scheduler leads, epoch %d", epoch)
                        self._leading.start(on_started, on_stopped)
                        self._label.put()
                    leading_epoch = epoch
                await self._clock.sleep(
                    FOLLOWER_POLL_SECONDS if epoch is None else FOLLOWING_LEADER_POLL_SECONDS
                )
        finally:
            await self._leading.stop()

    async def release(self) -> None:
        """The lease is not ours to give back."""
        self._label.remove()
        await self._label.settled()

    async def _look(self) -> None:
        started = self._clock.monotonic()
        try:
            found = await _read(
                self._client, self._namespace, self._name, FOLLOW_DEADLINE_SECONDS / 2
            )
        except (ApiError, UnavailableError) as error:
            _log.warning("the lease of kube-scheduler cannot be read: %s", error)
            return
        is_first_look, self._has_looked = not self._has_looked, True
        before, self._observed = self._observed, found
        if found is None or not self._is_neighbours(found):
            self._has_seen_change = False
            return
        # A first look cannot tell a living holder from one that died: only a renewal can.
        if is_first_look or (before is not None and before.spec == found.spec):
            return
        self._renewed_at = started
        self._has_seen_change = True
        epoch = _epoch_of(found)
        if epoch != self._epoch:
            # Only a neighbour of this very process has left nothing under way when it was restarted.
            holder = (before.spec.holder_identity or "") if before is not None else ""
            was_ours = self._epoch > 0 and holder.startswith(self._prefix)
            # More than one transition: somebody else held it between two looks.
            was_missed = before is not None and epoch > _epoch_of(before) + 1
            self._needs_sweep = was_missed or (bool(holder) and not was_ours)
            self._epoch = epoch

    def _is_neighbours(self, lease: Lease | None) -> bool:
        return lease is not None and (lease.spec.holder_identity or "").startswith(self._prefix)


class _PodLabel:
    """The label by which a Service finds the leader. Best effort: a wrong label costs an answer 503, nothing else."""

    def __init__(self, client: ApiClient, pod: tuple[str, str] | None) -> None:
        self._client = client
        self._pod = pod
        self._task: asyncio.Task[None] | None = None

    def put(self) -> None:
        """Mark our pod, in the background: an election does not wait for a label."""
        self._begin("true")

    def remove(self) -> None:
        """Unmark our pod, in the background."""
        self._begin(None)

    async def settled(self) -> None:
        """Wait until the last change has been tried."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def _begin(self, value: str | None) -> None:
        if self._pod is None:
            return
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._patch(*self._pod, value), name="leader label")

    async def _patch(self, namespace: str, name: str, value: str | None) -> None:
        body = msgspec.json.encode({"metadata": {"labels": {LEADER_LABEL: value}}})
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        outcome = await self._client.write("PATCH", path, body, content_type=MERGE_PATCH)
        if not isinstance(outcome, Committed):
            _log.warning(
                "the leader label of pod %s/%s could not be set: %s", namespace, name, outcome
            )
