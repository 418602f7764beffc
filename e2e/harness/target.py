"""Where the tests run: on the control plane they start, or on a cluster somebody gave them."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from e2e.harness import manifests
from e2e.harness.api import Api, Object
from e2e.harness.audit import AuditLog
from e2e.harness.controlplane import SERVICE_NAMESPACE, ControlPlane
from e2e.harness.service import Certificates

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICE_ACCOUNT = "dra-scheduler"
TOKEN_SECONDS = 3600 * 2


class Target:
    """A cluster, with a client that has all rights."""

    def __init__(self, admin: Api, folder: Path, plane: ControlPlane | None, version: str) -> None:
        """Wraps a cluster.

        Args:
          admin: A client with all rights.
          folder: For kubeconfigs and logs.
          plane: The control plane, when it is ours; None on a foreign cluster.
          version: Minor version, such as `1.37`.
        """
        self.admin = admin
        self.folder = folder
        self.version = version
        self._plane = plane

    @classmethod
    @contextlib.asynccontextmanager
    async def foreign(cls, kubeconfig: Path, folder: Path) -> AsyncIterator[Target]:
        """Uses the cluster of a kubeconfig with all rights."""
        async with Api.from_kubeconfig(kubeconfig) as admin:
            version = await admin.request("GET", "/version")
            minor = version["minor"].rstrip("+")
            yield cls(admin, folder, None, f"{version['major']}.{minor}")

    @property
    def ours(self) -> bool:
        """Whether the control plane is ours: its audit log can be read, schedulers be started."""
        return self._plane is not None

    @property
    def plane(self) -> ControlPlane:
        if self._plane is None:
            raise RuntimeError("this test needs a control plane of its own")
        return self._plane

    @property
    def audit(self) -> AuditLog:
        return self.plane.audit

    @property
    def certificates(self) -> Certificates:
        return Certificates(self.plane.certificates)

    def serving_context(self) -> ssl.SSLContext | None:
        """Returns TLS as the API server serves it, for a proxy in front; None when we cannot."""
        if self._plane is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        folder = self._plane.certificates
        context.load_cert_chain(folder / "apiserver.crt", folder / "apiserver.key")
        return context

    def minor(self) -> int:
        return int(self.version.split(".")[1])

    async def service_kubeconfig(self, server: str | None = None) -> Path:
        """Writes a kubeconfig with our ServiceAccount's token.

        Args:
          server: URL to use in place of the API server's.
        """
        if self._plane is not None:
            return self._plane.kubeconfig(self._plane.service_identity, server)
        path = f"/api/v1/namespaces/{SERVICE_NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        token = (await self.admin.request("POST", path, body))["status"]["token"]
        cluster: dict[str, Any] = {"server": server or self.admin.server}
        if self.admin.ca_data and server is None:
            cluster["certificate-authority-data"] = self.admin.ca_data
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": "e2e", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        }
        suffix = "" if server is None else "-proxied"
        file = self.folder / f"service{suffix}.kubeconfig"
        file.write_text(yaml.safe_dump(config))
        file.chmod(0o600)
        return file

    @contextlib.asynccontextmanager
    async def granted(self, folder: Path) -> AsyncIterator[None]:
        """Applies what a kustomization grants us, and takes the bindings away at the end."""
        items = manifests.prerequisites(folder)
        for item in items:
            await self.admin.apply(item)
        try:
            yield
        finally:
            for item in items:
                if item["kind"].endswith("RoleBinding"):
                    await self.remove(item)

    @contextlib.asynccontextmanager
    async def applied(self, folder: Path) -> AsyncIterator[None]:
        """Applies a whole kustomization, and removes it at the end."""
        items = manifests.kustomization(folder)
        for item in items:
            await self.admin.apply(item)
        try:
            yield
        finally:
            for item in reversed(items):
                await self.remove(item)

    async def remove(self, item: Object) -> None:
        metadata = item["metadata"]
        kind = await self.admin.place(item)
        await self.admin.delete(kind, metadata["name"], metadata.get("namespace"))
