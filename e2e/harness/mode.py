"""The three ways in which the product schedules: stand-alone, and both extender profiles."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Literal

from e2e.harness.api import LEASES
from e2e.harness.controlplane import SERVICE_NAMESPACE, SERVICE_USER, KubeScheduler
from e2e.harness.process import free_port
from e2e.harness.proxy import FaultProxy
from e2e.harness.service import Certificates, Command, Service, scheduler_config
from e2e.harness.target import DEPLOY, Target

Name = Literal["standalone", "safe", "fast", "in-tree"]
NAMES: tuple[Name, ...] = ("standalone", "safe", "fast")
# Kubernetes' own scheduler: run on request, to see whether a test asks for what is usual.
REFERENCE: Name = "in-tree"

IN_TREE_CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    # JSON, because the tests' faults read what is written.
    "clientConnection": {"qps": 5000, "burst": 5000, "contentType": "application/json"},
    "profiles": [{"schedulerName": "in-tree"}],
}

STANDALONE_SCHEDULER = "dra-scheduler"

# Both ways to know who may write: the neighbour's lease, as the extender overlay does (safe), and
# a lease of its own, as behind a Service (fast).
FOLLOWED_LEASE = "dra-kube-scheduler"


class Mode:
    """A running product. Between tests it may move behind the fault proxy and back."""

    def __init__(self, name: Name, target: Target, proxy: FaultProxy) -> None:
        self.name = name
        self.target = target
        self.scheduler_name = STANDALONE_SCHEDULER
        self.proxy = proxy
        self._scheduler: KubeScheduler | None = None
        self._service: Service | None = None
        self._proxied = False
        self._port = free_port()
        self._runs = 0
        gates = target.plane.feature_gates if target.ours else ""
        self._gates = (f"--feature-gates={gates}",) if gates else ()

    @property
    def is_extender(self) -> bool:
        return self.name in {"safe", "fast"}

    @property
    def is_ours(self) -> bool:
        return self.name != REFERENCE

    @property
    def user(self) -> str:
        """Who writes the claims and bindings."""
        return SERVICE_USER if self.is_ours else "system:kube-scheduler"

    @property
    def service(self) -> Service:
        if self._service is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._service

    @property
    def kube_scheduler(self) -> KubeScheduler:
        """The kube-scheduler that calls the extender."""
        if self._scheduler is None:
            raise RuntimeError(f"{self.name} has no kube-scheduler")
        return self._scheduler

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, name: Name, target: Target, proxy: FaultProxy) -> AsyncIterator[Mode]:
        """Applies the mode's RBAC from deploy/, starts it, and stops it at the end."""
        mode = cls(name, target, proxy)
        if not mode.is_ours:
            async with mode._reference():
                yield mode
            return
        folder = DEPLOY / ("overlays/extender" if mode.is_extender else "base")
        if await mode._is_deployed():
            yield mode
            return
        async with target.granted(folder):
            try:
                await mode.restart(proxied=False)
                if mode.is_extender:
                    await mode.start_kube_scheduler()
                yield mode
            finally:
                if mode._scheduler is not None:
                    await mode._scheduler.stop()
                if mode._service is not None:
                    await mode._service.stop()

    async def alive(self) -> bool:
        """Says whether the service answers; one that runs in the cluster is trusted to."""
        return self._service is None or await self._service.live()

    async def direct(self) -> None:
        """Makes sure that the service runs and talks to the API server itself."""
        if self._service is None:
            return
        if self._proxied or not self.service.process.running:
            await self.restart(proxied=False)

    async def proxied(self) -> None:
        """Makes sure that the service runs and talks through the fault proxy."""
        if self._service is None:
            return
        if not self._proxied or not self.service.process.running:
            await self.restart(proxied=True)

    async def restart(self, *, proxied: bool, leading: bool = True) -> None:
        """Ends the service if it runs, starts it again on the same port, and waits for it.

        Args:
          proxied: Whether it talks to the API server through the fault proxy.
          leading: Whether to wait until it leads, beyond being ready.
        """
        if self._service is not None:
            await self._service.stop()
        self._service = await self.new_service(proxied=proxied)
        self._proxied = proxied
        await self._service.start()
        # What follows a neighbour's lease leads when the neighbour runs.
        if leading and not (self.name == "safe" and self._scheduler is None):
            await self.wait_leading()

    async def wait_leading(self) -> None:
        await self.service.process.wait_ready(self.service.active)

    async def new_service(self, *, proxied: bool = False) -> Service:
        """Describes a service of this mode, on this mode's port."""
        self._runs += 1
        command: Command = "extender" if self.is_extender else "run"
        service = Service(
            command,
            await self.target.service_kubeconfig(self.proxy.url if proxied else None),
            self.target.folder,
            port=self._port,
            certificates=self._certificates(),
            flags=(*self._flags(), *self._gates),
            name=f"service-{self.name}-{self._runs}",
        )
        if self.target.ours:
            self.target.plane.processes[service.process.name] = service.process
        return service

    async def start_kube_scheduler(self) -> None:
        """Starts kube-scheduler as the extender overlay does: with our own ServiceAccount."""
        plane = self.target.plane
        config, flags = scheduler_config(
            self.target.version, self.name, self.service.url, self._certificates()
        )
        self.scheduler_name = config["profiles"][0]["schedulerName"]
        self._scheduler = await plane.start_scheduler(
            f"kube-scheduler-{self.name}",
            config,
            plane.service_identity,
            flags=(*flags, *self._gates),
        )
        await self.wait_leading()

    async def _is_deployed(self) -> bool:
        """Says whether a foreign cluster runs our Deployment: then that is what is tested."""
        if self.target.ours:
            return False
        lease = await self.target.admin.find(LEASES, STANDALONE_SCHEDULER, SERVICE_NAMESPACE)
        return bool(lease and lease["spec"].get("holderIdentity"))

    def _flags(self) -> tuple[str, ...]:
        match self.name:
            case "safe":
                return ("--profile=safe", f"--follow-lease={SERVICE_NAMESPACE}/{FOLLOWED_LEASE}")
            case "fast":
                return ("--profile=fast", "--leader-elect=true")
            case _:
                return ()

    @contextlib.asynccontextmanager
    async def _reference(self) -> AsyncIterator[None]:
        plane = self.target.plane
        self._scheduler = await plane.start_scheduler(
            "in-tree", IN_TREE_CONFIG, server=self.proxy.url
        )
        self.scheduler_name = "in-tree"
        try:
            yield
        finally:
            await self._scheduler.stop()

    def _certificates(self) -> Certificates | None:
        return self.target.certificates if self.is_extender else None
