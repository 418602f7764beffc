"""An election over a Lease of our own."""

import asyncio
import contextlib
import logging
import random
from typing import Any

import msgspec

from scheduler.client import ApiClient, ApiError, Committed, Rejected, UnavailableError
from scheduler.clock import Clock, rfc3339_micro
from scheduler.config import LeaderElectionSettings
from scheduler.leader.leadership import LeadershipLostError, OnStarted, OnStopped
from scheduler.leader.leading import Leading
from scheduler.leader.lease import Lease, LeaseSpec, decode_lease, epoch_of, lease_path, read_lease
from scheduler.leader.pod_label import PodLabel

_log = logging.getLogger(__name__)


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
        self._label = PodLabel(client, pod)
        self._leading = Leading()
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
        found = await read_lease(
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
            stored = decode_lease(outcome.body)
        except msgspec.DecodeError:
            return False
        self._observe(stored)
        if started is not None:
            self._renewed_at = started
            self._epoch = epoch_of(stored)
        return True
