"""The product under test, as a process: started like a user starts it, over its command line."""

from __future__ import annotations

import io
import os
import ssl
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp
import yaml

from e2e.harness.process import Process, free_port

PROGRAM = Path(sys.executable).parent / "dra-scheduler"

Command = Literal["extender", "run"]


@dataclass(frozen=True)
class Certificates:
    """Files for TLS between kube-scheduler and the extender, as `controlplane certs` made them."""

    folder: Path

    def server_flags(self) -> list[str]:
        return [
            f"--tls-cert-file={self.folder / 'extender.crt'}",
            f"--tls-private-key-file={self.folder / 'extender.key'}",
            f"--client-ca-file={self.folder / 'webhook-ca.crt'}",
        ]

    def client_config(self) -> dict[str, str]:
        """Returns the extender's `tlsConfig` of a KubeSchedulerConfiguration."""
        return {
            "caFile": str(self.folder / "webhook-ca.crt"),
            "certFile": str(self.folder / "extender-client.crt"),
            "keyFile": str(self.folder / "extender-client.key"),
        }

    def server_context(self) -> ssl.SSLContext:
        """Returns a context that serves as the extender does, and asks callers for nothing."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.folder / "extender.crt", self.folder / "extender.key")
        return context

    def client_context(self, name: str | None = "extender-client") -> ssl.SSLContext:
        """Returns a context that trusts the extender and shows the named certificate, or none."""
        context = ssl.create_default_context(cafile=str(self.folder / "webhook-ca.crt"))
        if name is not None:
            context.load_cert_chain(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        return context


class Service:
    """`dra-scheduler extender` or `dra-scheduler run`."""

    def __init__(
        self,
        command: Command,
        kubeconfig: Path,
        folder: Path,
        *,
        port: int | None = None,
        certificates: Certificates | None = None,
        flags: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        """Describes the service; `start` runs it and waits until it is ready.

        Args:
          command: Which mode.
          kubeconfig: Whom it talks to, and as who.
          folder: Where its log goes.
          port: Where the webhooks are; any free one by default.
          certificates: TLS with client certificates for the extender; None for plain HTTP.
          flags: Added to the command line.
          env: Added to the environment.
          name: Names its log; the command by default.
        """
        self._health = free_port()
        self._port = port or free_port()
        self.certificates = certificates
        argv: list[str | Path] = [
            PROGRAM,
            command,
            f"--kubeconfig={kubeconfig}",
            f"--bind-address=127.0.0.1:{self._port}",
            f"--health-address=127.0.0.1:{self._health}",
            *(certificates.server_flags() if certificates else []),
            *flags,
        ]
        name = name or f"dra-scheduler-{command}"
        # The code that the tests were started with, also where another copy is installed.
        path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
        self.process = Process(name, argv, folder / f"{name}.log", {**path, **(env or {})})

    @property
    def url(self) -> str:
        """Where the webhooks are."""
        scheme = "https" if self.certificates else "http"
        return f"{scheme}://127.0.0.1:{self._port}"

    @property
    def health_url(self) -> str:
        """Where probes, metrics and the state are; ends with a slash."""
        return f"http://127.0.0.1:{self._health}/"

    async def start(self, *, wait: bool = True, timeout_seconds: float = 60.0) -> None:
        await self.process.start()
        if wait:
            await self.process.wait_ready(self.ready, timeout_seconds)

    async def stop(self) -> int | None:
        """Ends it cleanly and returns its exit code."""
        return await self.process.stop(patience_seconds=45)

    async def kill(self) -> None:
        await self.process.kill()

    async def ready(self) -> bool:
        return await self._status("/readyz") == 200

    async def active(self) -> bool:
        """Says whether it leads, and has done what a takeover needs."""
        state = await self.state()
        return state is not None and bool(state["active"])

    async def state(self) -> dict[str, Any] | None:
        """Returns /debug/state; None when it does not answer within two seconds."""
        try:
            async with (
                aiohttp.ClientSession(
                    trust_env=False, timeout=aiohttp.ClientTimeout(total=2)
                ) as session,
                session.get(f"http://127.0.0.1:{self._health}/debug/state") as response,
            ):
                state: dict[str, Any] = await response.json()
                return state
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def live(self) -> bool:
        return await self._status("/livez") == 200

    async def metrics(self) -> dict[str, float]:
        """Returns the metrics, each sample under its whole name with labels."""
        async with (
            aiohttp.ClientSession(trust_env=False) as session,
            session.get(f"http://127.0.0.1:{self._health}/metrics") as response,
        ):
            text = await response.text()
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
        return {name: float(value) for name, value in samples}

    async def call(
        self, verb: str, body: object, certificate: str | None = "extender-client"
    ) -> Any:
        """Calls a webhook the way kube-scheduler does.

        Raises:
          aiohttp.ClientError: No connection, such as a refused certificate.
          RuntimeError: The status is not 200.
        """
        context = self.certificates.client_context(certificate) if self.certificates else False
        async with (
            aiohttp.ClientSession(trust_env=False) as session,
            session.post(f"{self.url}/{verb}", json=body, ssl=context) as response,
        ):
            if response.status != 200:
                raise RuntimeError(f"{verb}: {response.status} {await response.text()}")
            return await response.json()

    async def post(self, verb: str, body: bytes, content_type: str = "application/json") -> int:
        """Sends any bytes to a webhook and returns the status of the answer."""
        context = self.certificates.client_context() if self.certificates else False
        headers = {"Content-Type": content_type}
        async with (
            aiohttp.ClientSession(trust_env=False) as session,
            session.post(
                f"{self.url}/{verb}", data=io.BytesIO(body), headers=headers, ssl=context
            ) as response,
        ):
            return response.status

    async def _status(self, path: str) -> int:
        try:
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.get(f"http://127.0.0.1:{self._health}{path}") as response,
            ):
                return response.status
        except (aiohttp.ClientError, TimeoutError):
            return 0


def scheduler_config(
    version: str, profile: str, url: str, certificates: Certificates | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Asks `dra-scheduler scheduler-config` for kube-scheduler's configuration and flags."""
    common = [f"--kubernetes-version={version}", f"--profile={profile}"]
    tls: list[str] = []
    if certificates is not None:
        files = certificates.client_config()
        tls = [
            f"--tls-ca-file={files['caFile']}",
            f"--tls-cert-file={files['certFile']}",
            f"--tls-key-file={files['keyFile']}",
        ]
    config: dict[str, Any] = yaml.safe_load(_print_config(*common, f"--url-prefix={url}", *tls))
    return config, tuple(_print_config(*common, "--flags").split())


def _print_config(*options: str) -> str:
    command = [str(PROGRAM), "scheduler-config", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
