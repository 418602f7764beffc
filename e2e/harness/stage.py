"""A control plane of its own with replicas of the service, each behind a fault proxy, and a history of everything.

P stands between a replica and the API server; Q between kube-scheduler and whichever replica leads, as a Service with
the leader's label would. Used by what takes replicas down: the crash sweep, chaos, takeovers, the soak.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from e2e.harness.api import Api
from e2e.harness.controlplane import SERVICE_NAMESPACE, ControlPlane, KubeScheduler, build
from e2e.harness.history import History, digests
from e2e.harness.mode import FOLLOWED_LEASE
from e2e.harness.process import free_port
from e2e.harness.proxy import FaultProxy
from e2e.harness.service import Command, Service, scheduler_config
from e2e.harness.target import DEPLOY, Target
from tests.invariants import Terms

VERSION = os.environ.get("DRA_E2E_KUBERNETES_VERSION") or "1.37"
Name = Literal["standalone", "safe", "fast"]
NAMES: tuple[Name, ...] = ("standalone", "safe", "fast")
FRONT_POLL_SECONDS = 0.3
RESTART_SECONDS = 0.5


@dataclass(frozen=True)
class Lease:
    """Times of the leader election, as the configuration file has them."""

    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0

    def fields(self) -> dict[str, float]:
        return {
            "leaseDurationSeconds": self.lease_duration_seconds,
            "renewDeadlineSeconds": self.renew_deadline_seconds,
            "retryPeriodSeconds": self.retry_period_seconds,
        }


# For runs with many takeovers: a takeover takes these, and five seconds of quarantine.
SHORT = Lease(8.0, 5.0, 1.0)


@dataclass
class Replica:
    """One replica of the service: a process that may die and come back, and the proxy that it talks through.

    Attributes:
      name: Author of what it writes, in the history.
      proxy: P.
      server: Where it finds the API server.
      service: The process as it is now.
      starts: How often it was started.
      is_kept: Whether a supervisor starts it again.
      logs: Of all its processes.
    """

    name: str
    proxy: FaultProxy
    server: str
    service: Service
    starts: int = 0
    is_kept: bool = False
    logs: list[Path] = field(default_factory=list)


class Stage:
    """Made by `Stage.running`."""

    def __init__(self, plane: ControlPlane, mode: Name, history: History, lease: Lease) -> None:
        self.plane = plane
        self.mode = mode
        self.history = history
        self.lease = lease
        self.target = Target(plane.admin, plane.folder, plane, plane.version)
        self.replicas: list[Replica] = []
        self.scheduler_name = "dra-scheduler"
        self.q: FaultProxy | None = None
        self.http_timeout = ""
        self.extra_flags: tuple[str, ...] = ()
        self.scheduler: KubeScheduler | None = None
        self.ends: Counter[int] = Counter()  # exit codes of what was started again
        self._front: Replica | None = None
        self._stack = contextlib.AsyncExitStack()

    @property
    def api(self) -> Api:
        return self.plane.admin

    @property
    def is_extender(self) -> bool:
        return self.mode != "standalone"

    @property
    def proxies(self) -> list[FaultProxy]:
        """All P."""
        return [replica.proxy for replica in self.replicas]

    def terms(self, **options: Any) -> Terms:
        """What may be expected of us here."""
        return Terms(
            **{
                "scheduler_name": self.scheduler_name,
                "predicates": not self.is_extender,
                "slack": 8.0,  # five seconds, and what a busy machine puts on top
                **options,
            }
        )

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls,
        mode: Name,
        *,
        folder: Path | None = None,
        version: str = VERSION,
        lease: Lease | None = None,
        flags: Sequence[str] = (),
        http_timeout: str = "",
    ) -> AsyncIterator[Stage]:
        """Starts a control plane with the rights of deploy/, and the recorder; no replica yet.

        Args:
          mode: How the product schedules.
          folder: For data and logs.
          version: Of Kubernetes.
          lease: Times of the leader election.
          flags: For every replica.
          http_timeout: Of the extender in kube-scheduler's configuration, instead of ours.
        """
        async with (
            ControlPlane(await build(version), folder, version) as plane,
            History.running(plane.admin) as history,
        ):
            stage = cls(plane, mode, history, lease or Lease())
            stage.http_timeout = http_timeout
            stage.extra_flags = tuple(flags)
            overlay = DEPLOY / ("overlays/extender" if stage.is_extender else "base")
            async with stage.target.granted(overlay), stage._stack:
                try:
                    yield stage
                finally:
                    # Whoever calls others first, so that nobody logs errors about what is gone.
                    if stage.scheduler is not None:
                        await stage.scheduler.stop()
                    await asyncio.gather(*(r.service.stop() for r in stage.replicas))

    async def add_replica(self, *, wait: bool = True, proxied: bool = True) -> Replica:
        """Starts one more replica; the first of an extender brings kube-scheduler with it.

        Args:
          wait: Until it leads (the first) or is ready (the others).
          proxied: Whether it talks to the API server through its proxy; else nobody knows what it writes.
        """
        name = f"dra-scheduler-{'abcdefgh'[len(self.replicas)]}"
        proxy = FaultProxy(self.plane.server, self.api.tls)
        await self._stack.enter_async_context(proxy.running(self.target.serving_context()))
        self.history.listen(proxy, name)
        is_first = not self.replicas
        server = proxy.url if proxied else self.plane.server
        replica = Replica(name, proxy, server, self._service(name, server, 1, free_port()))
        self.replicas.append(replica)
        await self.start(replica, wait=wait)
        if is_first and self.is_extender:
            await self._start_kube_scheduler()
        if is_first and wait:
            await self.leader()
        return replica

    async def _ready(self, replica: Replica, timeout_seconds: float = 120.0) -> None:
        async with asyncio.timeout(timeout_seconds):
            while not await replica.service.ready():
                await asyncio.sleep(0.1)

    async def start(self, replica: Replica, *, wait: bool = True) -> None:
        """Starts a replica that does not run; it keeps its addresses."""
        replica.is_kept = False  # or a supervisor would start it, too
        if replica.starts:
            port = int(replica.service.url.rsplit(":", 1)[1])
            replica.service = self._service(replica.name, replica.server, replica.starts + 1, port)
        replica.starts += 1
        self.plane.processes[replica.service.process.name] = replica.service.process
        replica.logs.append(replica.service.process.log)
        await replica.service.start(wait=False)
        replica.is_kept = True
        if wait:
            await self._ready(replica)

    async def take_down(self, replica: Replica, *, kill: bool = False) -> None:
        """Ends a replica for longer: nobody starts it again before `start`."""
        replica.is_kept = False
        await (replica.service.kill() if kill else replica.service.stop())

    @contextlib.asynccontextmanager
    async def supervised(self) -> AsyncIterator[None]:
        """Starts again, like a kubelet, what has ended and was not taken down, while the context is open."""
        watching = asyncio.create_task(self._supervise())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _supervise(self) -> None:
        while True:
            for replica in self.replicas:
                if replica.is_kept and not replica.service.process.running:
                    self.ends[replica.service.process.returncode or 0] += 1
                    await self.start(replica, wait=False)
            await asyncio.sleep(RESTART_SECONDS)

    async def leader(self, timeout_seconds: float = 120.0) -> Replica:
        """Waits until some replica leads, and returns it."""
        async with asyncio.timeout(timeout_seconds):
            while True:
                for replica in self.replicas:
                    if replica.service.process.running and await replica.service.active():
                        return replica
                await asyncio.sleep(0.1)

    async def facts(self, timeout_seconds: float = 30.0) -> dict[str, Any]:
        """What the processes say of themselves, for the judge: once they are at rest, or the time is over."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        while True:
            truth = await digests(self.api)
            processes = {}
            for replica in self.replicas:
                if replica.service.process.running:
                    state = await replica.service.state()
                    # What does not answer has read nothing, as far as anybody can tell.
                    processes[replica.name] = {"synced": state is not None, **(state or {})}
            is_at_rest = all(
                facts["synced"]
                and all(facts["digest"].get(kind) == digest for kind, digest in truth.items())
                and not any(facts[n] for n in ("openBinds", "inFlightClaims", "assumedClaims"))
                for facts in processes.values()
            )
            has_leader = any(facts.get("active") for facts in processes.values())
            if (is_at_rest and has_leader) or asyncio.get_running_loop().time() > deadline:
                return {
                    "digest": truth,
                    "processes": processes,
                    "writes_conditions": not self.is_extender,
                }
            await asyncio.sleep(0.3)

    async def restart_kube_scheduler(self) -> None:
        """Kills kube-scheduler and starts another: it forgets what it did."""
        if self.scheduler is not None:
            await self.scheduler.process.kill()
        await self._start_kube_scheduler()

    async def _start_kube_scheduler(self) -> None:
        certificates = self.target.certificates
        if self.q is None:
            self.q = FaultProxy(self._front_url, certificates.client_context())
            await self._stack.enter_async_context(self.q.running(certificates.server_context()))
            routing = asyncio.create_task(self._route())
            self._stack.callback(routing.cancel)
        config, flags = scheduler_config(self.plane.version, self.mode, self.q.url, certificates)
        if self.http_timeout:
            config["extenders"][0]["httpTimeout"] = self.http_timeout
        self.scheduler_name = config["profiles"][0]["schedulerName"]
        self.scheduler = await self.plane.start_scheduler(
            f"kube-scheduler-{self.mode}", config, self.plane.service_identity, flags=flags
        )

    def _front_url(self) -> str:
        return (self._front or self.replicas[0]).service.url

    async def _route(self) -> None:
        """Follows the leader, as late as a label does."""
        while True:
            # Of one there is nothing to choose; and its state holds a digest of everything, which is work.
            for replica in self.replicas if len(self.replicas) > 1 else ():
                if replica.service.process.running and await replica.service.active():
                    self._front = replica
                    break
            await asyncio.sleep(FRONT_POLL_SECONDS)

    def _service(self, name: str, server: str, run: int, port: int) -> Service:
        election: dict[str, Any] = {"namespace": SERVICE_NAMESPACE, "name": "dra-scheduler"}
        if self.mode == "safe":
            election |= {
                "enabled": False,
                "followLease": f"{SERVICE_NAMESPACE}/{FOLLOWED_LEASE}",
            }
        else:
            election |= {"enabled": True, **self.lease.fields()}
        file = self.plane.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(_configuration(election, self.mode)))
        command: Command = "extender" if self.is_extender else "run"
        kubeconfig = self.plane.kubeconfig(self.plane.service_identity, server, name)
        return Service(
            command,
            kubeconfig,
            self.plane.folder,
            port=port,
            certificates=self.target.certificates if self.is_extender else None,
            flags=(f"--config={file}", *self.extra_flags),
            name=f"{name}-{run}",
        )


def _configuration(election: Mapping[str, Any], mode: Name) -> dict[str, Any]:
    found: dict[str, Any] = {
        "apiVersion": "dra-scheduler.dev/v1alpha1",
        "kind": "SchedulerConfiguration",
        "leaderElection": dict(election),
    }
    if mode != "standalone":
        found["extender"] = {"profile": mode}
    return found
