"""A whole Kubernetes control plane as ordinary processes on loopback."""

from __future__ import annotations

import asyncio
import base64
import secrets
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

from e2e.harness.api import CLASSES, NAMESPACES, Api
from e2e.harness.audit import AuditLog
from e2e.harness.process import Process, free_port

VERSIONS = {"1.34": "1.34.4", "1.35": "1.35.4", "1.36": "1.36.3", "1.37": "1.37.2"}

SERVICE_NAMESPACE = "dra-scheduler"
SERVICE_USER = f"system:serviceaccount:{SERVICE_NAMESPACE}:dra-scheduler"

# What the tests need; no node lifecycle, or it would taint nodes that send no heartbeats.
CONTROLLERS = (
    "resourceclaim-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "job-controller",
    "deployment-controller",
    "replicaset-controller",
    "disruption-controller",
    "device-taint-eviction-controller",
)

BACKGROUND = ("etcd", "kube-apiserver", "kube-controller-manager")

# One request that is refused is a finding, so every request is logged, once, without bodies.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}

API_PRIORITY_SEATS = ("--max-requests-inflight=1200", "--max-mutating-requests-inflight=800")


@dataclass(frozen=True)
class Identity:
    """A user of the API server with a static token."""

    user: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


async def build(version: str = "1.37") -> Path:
    """Builds the control plane binary unless it is there already, and returns its path."""
    script = Path(__file__).parents[1] / "controlplane" / "build.sh"
    process = await asyncio.create_subprocess_exec(
        str(script), version, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{script} {version} ended with {process.returncode}")
    return Path(output.decode().strip())


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager, and kube-schedulers on demand.

    Use as an async context manager: inside, `admin` is a client with all rights.
    """

    def __init__(
        self,
        binary: Path,
        folder: Path | None = None,
        version: str = "1.37",
        feature_gates: str = "",
    ) -> None:
        """Prepares a control plane.

        Args:
          binary: As made by `e2e/controlplane/build.sh`.
          folder: For data, certificates and logs; made, and kept for reading, when None.
          version: Minor version of Kubernetes that the binary was built from.
          feature_gates: Gates of the API server that are not as usual, such as `A=true,B=false`.
        """
        self.feature_gates = feature_gates
        self.binary = binary
        self.folder = folder or Path(tempfile.mkdtemp(prefix="dra-e2e-"))
        self.version = version
        self.admin_identity = Identity("admin", ("system:masters",))
        self.controller_identity = Identity("system:kube-controller-manager", ("system:masters",))
        self.scheduler_identity = Identity("system:kube-scheduler")
        self.service_identity = Identity(
            SERVICE_USER,
            (
                "system:serviceaccounts",
                f"system:serviceaccounts:{SERVICE_NAMESPACE}",
                "system:authenticated",
            ),
        )
        self.processes: dict[str, Process] = {}
        self.audit = AuditLog(self.folder / "audit.log")
        self._server = ""
        self._etcd = ""
        self._admin: Api | None = None
        self._stack = AsyncExitStack()

    @property
    def admin(self) -> Api:
        if self._admin is None:
            raise RuntimeError("the control plane is not up")
        return self._admin

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._server

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()

    def process(self, name: str, *argv: str) -> Process:
        """Describes a component of the binary; its first argument is its name's first word."""
        process = Process(name, [self.binary, *argv], self.folder / f"{name}.log")
        self.processes[name] = process
        return process

    def client(self, identity: Identity) -> Api:
        """Returns a client (to be entered) for one of the identities."""
        return Api.with_token(self._server, self.certificates / "ca.crt", identity.token)

    def kubeconfig(
        self, identity: Identity, server: str | None = None, label: str = "proxied"
    ) -> Path:
        """Writes a kubeconfig.

        Args:
          identity: Whose token it holds.
          server: Another URL than the API server's own, such as a fault proxy's.
          label: Tells the files for several such servers apart.
        """
        cluster: dict[str, Any] = {"server": server or self._server}
        if cluster["server"].startswith("https:"):
            cluster["certificate-authority"] = str(self.certificates / "ca.crt")
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": "e2e", "user": {"token": identity.token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        }
        name = identity.user.replace(":", "-")
        suffix = "" if server is None else f"-{label}"
        path = self.folder / f"{name}{suffix}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path

    async def start_scheduler(
        self,
        name: str,
        config: dict[str, Any],
        identity: Identity | None = None,
        server: str | None = None,
        flags: tuple[str, ...] = (),
    ) -> KubeScheduler:
        """Starts a kube-scheduler and waits until it is healthy.

        Args:
          name: Names its log and config file.
          config: KubeSchedulerConfiguration; its kubeconfig is filled in here.
          identity: Who it is; `system:kube-scheduler` by default.
          server: Another URL than the API server's own, such as a fault proxy's.
          flags: Added to the command line.
        """
        connection = {
            **config.get("clientConnection", {}),
            "kubeconfig": str(self.kubeconfig(identity or self.scheduler_identity, server)),
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**config, "clientConnection": connection}))
        port = free_port()
        process = self.process(
            name,
            "kube-scheduler",
            f"--config={path}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--authentication-skip-lookup=true",
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
            "-v=2",
            *flags,
        )
        scheduler = KubeScheduler(process, port)
        await process.start()
        await process.wait_ready(scheduler.ready)
        return scheduler

    def failure_report(self) -> str:
        """Returns the ends of the logs, for a failed test: most of what schedules."""
        parts = []
        for name, process in self.processes.items():
            lines = 3 if name in BACKGROUND else 15
            if process.running or name == list(self.processes)[-1]:
                parts.append(f"--- {name} ({process.log})\n{process.tail(lines)}")
        return "\n".join(parts)

    async def _start(self) -> None:
        await self._certificates()
        etcd = await self._start_etcd()
        await self._start_apiserver(etcd)
        self._admin = await self._stack.enter_async_context(self.client(self.admin_identity))
        await self.processes["kube-apiserver"].wait_ready(self._serving)
        await self._start_controllers()

    async def _serving(self) -> bool:
        """Says whether the API server is ready and the default namespaces are there."""
        if not await self.admin.healthy():
            return False
        await self.admin.objects(CLASSES)
        return await self.admin.find(NAMESPACES, "default") is not None

    async def _certificates(self) -> None:
        process = self.process("certs", "certs", str(self.certificates))
        await process.start()
        while process.running:
            await asyncio.sleep(0.01)
        if await process.stop() != 0:
            raise RuntimeError(process.tail())
        del self.processes["certs"]

    async def _start_etcd(self) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        process = self.process(
            "etcd",
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        await process.start()
        self._etcd = client
        return client

    async def compact(self) -> None:
        """Lets etcd forget everything but the present."""
        async with aiohttp.ClientSession(trust_env=False) as session:
            read = {"key": base64.b64encode(b"/").decode()}
            async with session.post(f"{self._etcd}/v3/kv/range", json=read) as response:
                revision = (await response.json())["header"]["revision"]
            async with session.post(
                f"{self._etcd}/v3/kv/compaction", json={"revision": revision}
            ) as response:
                response.raise_for_status()

    async def restart_apiserver(self) -> None:
        """Kills the API server and starts it again at the same address."""
        process = self.processes["kube-apiserver"]
        await process.kill()
        await process.start()
        await process.wait_ready(self._serving)

    async def _start_apiserver(self, etcd: str) -> None:
        tokens = self.folder / "tokens.csv"
        identities = (
            self.admin_identity,
            self.controller_identity,
            self.scheduler_identity,
            self.service_identity,
        )
        lines = (f'{i.token},{i.user},{i.user},"{",".join(i.groups)}"\n' for i in identities)
        tokens.write_text("".join(lines))
        tokens.chmod(0o600)
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(AUDIT_POLICY))
        port = free_port()
        self._server = f"https://127.0.0.1:{port}"
        certificates = self.certificates
        process = self.process(
            "kube-apiserver",
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={port}",
            f"--tls-cert-file={certificates / 'apiserver.crt'}",
            f"--tls-private-key-file={certificates / 'apiserver.key'}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={certificates / 'sa.key'}",
            f"--service-account-signing-key-file={certificates / 'sa.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
            f"--audit-log-path={self.audit.path}",
            f"--audit-policy-file={policy}",
            "--runtime-config=api/beta=true",
            *API_PRIORITY_SEATS,
            *((f"--feature-gates={self.feature_gates}",) if self.feature_gates else ()),
            "-v=2",
        )
        await process.start()

    async def _start_controllers(self) -> None:
        port = free_port()
        process = self.process(
            "kube-controller-manager",
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig(self.controller_identity)}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--authentication-skip-lookup=true",
            "--authorization-always-allow-paths=/healthz",
            "--leader-elect=false",
            "--kube-api-qps=5000",
            "--kube-api-burst=5000",
            "-v=2",
        )
        await process.start()
        await process.wait_ready(lambda: healthz(port))

    async def _stop(self) -> None:
        await self._stack.aclose()
        # Clients first, so that nobody logs errors about a server that is gone.
        for name in reversed(self.processes):
            await self.processes[name].stop(patience_seconds=10)


class KubeScheduler:
    """A running kube-scheduler and its metrics."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self._port = port

    async def ready(self) -> bool:
        return await healthz(self._port)

    async def stop(self) -> None:
        await self.process.stop()

    async def attempts(self) -> float:
        """Returns how many scheduling attempts it has made so far, of any result."""
        text = await fetch_text(self._port, "/metrics")
        lines = (line for line in text.splitlines() if line.startswith(_ATTEMPTS))
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


_ATTEMPTS = "scheduler_schedule_attempts_total{"


async def healthz(port: int) -> bool:
    """Says whether a component's secure port answers /healthz with 200."""
    try:
        return bool(await fetch_text(port, "/healthz"))
    except aiohttp.ClientError:
        return False


async def fetch_text(port: int, path: str) -> str:
    """Gets a page of a component that shows a self-signed certificate on loopback."""
    async with (
        aiohttp.ClientSession(trust_env=False) as session,
        session.get(f"https://127.0.0.1:{port}{path}", ssl=False) as response,
    ):
        response.raise_for_status()
        return await response.text()
