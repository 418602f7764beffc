"""Leadership that follows the Lease of the kube-scheduler in the same pod."""

import logging
from typing import Final

from scheduler.client import ApiClient, ApiError, UnavailableError
from scheduler.clock import Clock
from scheduler.config import LeaderElectionSettings
from scheduler.leader.leadership import OnStarted, OnStopped
from scheduler.leader.leading import Leading
from scheduler.leader.lease import Lease, epoch_of, read_lease
from scheduler.leader.pod_label import PodLabel

_log = logging.getLogger(__name__)

# A follower looks often, to take over soon; a leader needs to see a renewal only every now and then.
FOLLOWER_POLL_SECONDS: Final = 1.0
FOLLOWING_LEADER_POLL_SECONDS: Final = 2.0
FOLLOW_DEADLINE_SECONDS: Final = 10.0


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
        self._label = PodLabel(client, pod)
        self._leading = Leading()
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
            found = await read_lease(
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
        epoch = epoch_of(found)
        if epoch != self._epoch:
            # Only a neighbour of this very process has left nothing under way when it was restarted.
            holder = (before.spec.holder_identity or "") if before is not None else ""
            was_ours = self._epoch > 0 and holder.startswith(self._prefix)
            # More than one transition: somebody else held it between two looks.
            was_missed = before is not None and epoch > epoch_of(before) + 1
            self._needs_sweep = was_missed or (bool(holder) and not was_ours)
            self._epoch = epoch

    def _is_neighbours(self, lease: Lease | None) -> bool:
        return lease is not None and (lease.spec.holder_identity or "").startswith(self._prefix)
