"""A small typed-enough client of the Kubernetes API for tests: plain dicts in and out."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson
import yaml

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

BULK_CONCURRENCY = 64


@dataclass(frozen=True)
class Resource:
    """Where one kind of object lives."""

    prefix: str
    plural: str
    api_version: str
    kind: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        parts = [self.prefix]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        return "/".join(parts)


def _core(plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource("/api/v1", plural, "v1", kind, namespaced)


def _group(group: str, plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource(f"/apis/{group}", plural, group, kind, namespaced)


PODS = _core("pods", "Pod")
NODES = _core("nodes", "Node", namespaced=False)
NAMESPACES = _core("namespaces", "Namespace", namespaced=False)
EVENTS = _core("events", "Event")
JOBS = _group("batch/v1", "jobs", "Job")
LEASES = _group("coordination.k8s.io/v1", "leases", "Lease")
PRIORITY_CLASSES = _group(
    "scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", namespaced=False
)
CLAIMS = _group("resource.k8s.io/v1", "resourceclaims", "ResourceClaim")
TEMPLATES = _group("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate")
CLASSES = _group("resource.k8s.io/v1", "deviceclasses", "DeviceClass", namespaced=False)
SLICES = _group("resource.k8s.io/v1", "resourceslices", "ResourceSlice", namespaced=False)
TAINT_RULES = _group("resource.k8s.io/v1", "devicetaintrules", "DeviceTaintRule", namespaced=False)
CLUSTER_ROLES = _group(
    "rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", namespaced=False
)


def loads(text: bytes) -> Any:
    """Decodes what the API server sends, also where somebody's opaque text in it is no JSON for strict decoders."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text.decode(errors="surrogateescape"))


class ApiError(Exception):
    """The API server answered with an error status."""

    def __init__(self, status: int, method: str, path: str, message: str) -> None:
        super().__init__(f"{method} {path}: {status} {message}")
        self.status = status
        self.message = message


class Api:
    """A client with one identity. Use as an async context manager."""

    def __init__(
        self, server: str, context: ssl.SSLContext, headers: Mapping[str, str] | None = None
    ) -> None:
        """Remembers where the API server is.

        Args:
          server: URL such as `https://127.0.0.1:6443`.
          context: Verifies the server, and may hold a client certificate.
          headers: Sent with each request, such as `Authorization`.

        `ca_data` is the server's authority in base64, for kubeconfigs made from this client.
        """
        self.server = server.rstrip("/")
        self._context = context
        self._headers = dict(headers or {})
        self._session: aiohttp.ClientSession | None = None
        self.ca_data: str | None = None

    @classmethod
    def with_token(cls, server: str, ca_file: Path, token: str) -> Self:
        context = ssl.create_default_context(cafile=str(ca_file))
        api = cls(server, context, {"Authorization": f"Bearer {token}"})
        api.ca_data = base64.b64encode(ca_file.read_bytes()).decode()
        return api

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Self:
        """Reads the current context of a kubeconfig with a token or a client certificate."""
        config = yaml.safe_load(path.read_text())
        names = {key: {e["name"]: e for e in config[key]} for key in ("clusters", "users")}
        contexts = {e["name"]: e["context"] for e in config["contexts"]}
        current = contexts[config["current-context"]]
        cluster = names["clusters"][current["cluster"]]["cluster"]
        user = names["users"][current["user"]]["user"]
        context = ssl.create_default_context()
        if "certificate-authority-data" in cluster:
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
            context.load_verify_locations(cadata=authority)
        elif "certificate-authority" in cluster:
            context.load_verify_locations(cafile=cluster["certificate-authority"])
        if "client-certificate-data" in user:
            # ssl can only read a certificate chain from a file.
            with tempfile.NamedTemporaryFile() as pem:
                pem.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
                pem.write(base64.b64decode(user["client-key-data"]))
                pem.flush()
                context.load_cert_chain(pem.name)
        elif "client-certificate" in user:
            context.load_cert_chain(user["client-certificate"], user["client-key"])
        headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        api = cls(cluster["server"], context, headers)
        api.ca_data = cluster.get("certificate-authority-data")
        if api.ca_data is None and "certificate-authority" in cluster:
            content = Path(cluster["certificate-authority"]).read_bytes()
            api.ca_data = base64.b64encode(content).decode()
        return api

    @property
    def tls(self) -> ssl.SSLContext:
        """The context that its connections are made with."""
        return self._context

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=60),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            # TLS connections need one more turn of the loop to be gone.
            await asyncio.sleep(0.05)

    async def request(
        self,
        method: str,
        path: str,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """Sends one request and returns the decoded JSON (or the text when it is none).

        Raises:
          ApiError: The answer's status is not 2xx.
        """
        if self._session is None:
            raise RuntimeError("Api used outside its context")
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": content_type} if data is not None else None
        async with self._session.request(
            method, self.server + path, data=data, headers=headers
        ) as response:
            content = await response.read()
            is_json = response.content_type == "application/json"
            decoded = loads(content) if is_json and content else content.decode()
            if response.status >= 300:
                message = decoded.get("message", "") if isinstance(decoded, dict) else decoded
                raise ApiError(response.status, method, path, message)
            return decoded

    async def send_bytes(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Sends JSON that no encoder would write; returns status and body of the answer as they are."""
        if self._session is None:
            raise RuntimeError("Api used outside its context")
        async with self._session.request(
            method,
            self.server + path,
            data=body,
            headers={"Content-Type": "application/json"},
        ) as response:
            return response.status, await response.read()

    async def healthy(self, path: str = "/readyz") -> bool:
        """Says whether `path` answers 200; a refused connection is a no."""
        try:
            await self.request("GET", path)
        except (ApiError, aiohttp.ClientError, TimeoutError):
            return False
        return True

    async def get(self, kind: Resource, name: str, namespace: str | None = None) -> Object:
        answer: Object = await self.request("GET", kind.path(namespace, name))
        return answer

    async def find(self, kind: Resource, name: str, namespace: str | None = None) -> Object | None:
        """Returns the object, or None when there is none."""
        try:
            return await self.get(kind, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def objects(
        self, kind: Resource, namespace: str | None = None, query: str = ""
    ) -> list[Object]:
        answer = await self.request("GET", kind.path(namespace) + query)
        items: list[Object] = answer["items"] or []
        return items

    async def create(self, kind: Resource, body: Object) -> Object:
        namespace = body["metadata"].get("namespace")
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        answer: Object = await self.request("POST", kind.path(namespace), body)
        return answer

    async def create_all(self, kind: Resource, bodies: Iterable[Object]) -> list[Object]:
        """Creates many objects at once, in no particular order of arrival."""
        gate = asyncio.Semaphore(BULK_CONCURRENCY)

        async def one(body: Object) -> Object:
            async with gate:
                return await self.create(kind, body)

        return list(await asyncio.gather(*(one(body) for body in bodies)))

    async def put(self, kind: Resource, body: Object, subresource: str = "") -> Object:
        metadata = body["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"])
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        answer: Object = await self.request("PUT", _under(path, subresource), body)
        return answer

    async def patch(
        self,
        kind: Resource,
        name: str,
        body: Object,
        *,
        namespace: str | None = None,
        subresource: str = "",
        content_type: str = MERGE,
    ) -> Object:
        path = _under(kind.path(namespace, name), subresource)
        answer: Object = await self.request("PATCH", path, body, content_type)
        return answer

    async def place(self, body: Object) -> Resource:
        """Finds by discovery where a manifest's kind lives."""
        group = body["apiVersion"]
        prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
        known = (await self.request("GET", prefix))["resources"]
        [entry] = [r for r in known if r["kind"] == body["kind"] and "/" not in r["name"]]
        return Resource(prefix, entry["name"], group, body["kind"], entry["namespaced"])

    async def apply(self, body: Object, *, dry_run: bool = False) -> Object:
        """Server-side apply of any manifest."""
        metadata = body["metadata"]
        path = (await self.place(body)).path(metadata.get("namespace"), metadata["name"])
        query = "?fieldManager=e2e&force=true" + ("&dryRun=All" if dry_run else "")
        answer: Object = await self.request("PATCH", path + query, body, APPLY)
        return answer

    async def delete(
        self, kind: Resource, name: str, namespace: str | None = None, *, now: bool = False
    ) -> None:
        """Deletes; `now` skips a pod's grace period. An object that is gone already is fine."""
        query = "?gracePeriodSeconds=0" if now else ""
        try:
            await self.request("DELETE", kind.path(namespace, name) + query)
        except ApiError as error:
            if error.status != 404:
                raise

    async def delete_all(
        self, kind: Resource, names: Iterable[str], namespace: str | None = None
    ) -> None:
        gate = asyncio.Semaphore(BULK_CONCURRENCY)

        async def one(name: str) -> None:
            async with gate:
                await self.delete(kind, name, namespace, now=kind is PODS)

        await asyncio.gather(*(one(name) for name in names))

    async def watch(
        self, kind: Resource, namespace: str | None, resource_version: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yields (type, object) from after `resource_version` until the server ends the watch."""
        if self._session is None:
            raise RuntimeError("Api used outside its context")
        path = kind.path(namespace)
        query = f"?watch=1&resourceVersion={resource_version}&allowWatchBookmarks=false"
        timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
        async with self._session.get(self.server + path + query, timeout=timeout) as response:
            buffer = b""
            async for chunk in response.content.iter_any():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    event = loads(line)
                    yield event["type"], event["object"]


def _under(path: str, subresource: str) -> str:
    return f"{path}/{subresource}" if subresource else path
