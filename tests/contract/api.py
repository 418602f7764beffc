"""Asking an API server in the short form that the contract cases are written in."""

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

import orjson

from scheduler.client import (
    APPLY_PATCH,
    JSON,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    ApiClient,
    ApiError,
    Committed,
    Rejected,
    Unknown,
)
from scheduler.lab.simulated import tolerant_json

Json = dict[str, Any]

FINALIZER = "resource.kubernetes.io/delete-protection"
HOLD = "example.com/hold"

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Answer:
    """What the server said: `code` is 200 for every success, since a write does not tell which one it was."""

    code: int
    body: Json

    @property
    def ok(self) -> bool:
        return self.code < 300

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def meta(self) -> Json:
        found: Json = self.body["metadata"]
        return found

    @property
    def version(self) -> int:
        return int(self.meta["resourceVersion"])


class Api:
    """A client with a namespace of its own."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def path(self, plural: str, name: str = "", group: str = "") -> str:
        """Path of a namespaced object or collection."""
        prefix = f"/apis/{group}" if group else "/api/v1"
        return f"{prefix}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def pods(self, name: str = "") -> str:
        return self.path("pods", name)

    def claims(self, name: str = "", version: str = "v1") -> str:
        return self.path("resourceclaims", name, f"resource.k8s.io/{version}")

    def unique(self, prefix: str) -> str:
        """A name for a cluster-scoped object."""
        return f"{prefix}-{self.namespace}-{next(_numbers)}"

    async def get(self, path: str, **query: str) -> Answer:
        try:
            body = await self.client.get(path, query)
        except ApiError as error:
            return Answer(error.status, {"reason": error.reason, "message": error.message})
        # Other tests leave text on the same server that no decoder takes.
        return Answer(200, tolerant_json.loads(body))

    async def post(self, path: str, obj: Json, **query: str) -> Answer:
        return await self.write("POST", path, obj, **query)

    async def put(self, path: str, obj: Json, **query: str) -> Answer:
        return await self.write("PUT", path, obj, **query)

    async def merge(self, path: str, patch: Json, **query: str) -> Answer:
        return await self.write("PATCH", path, patch, MERGE_PATCH, **query)

    async def strategic(self, path: str, patch: Json, **query: str) -> Answer:
        return await self.write("PATCH", path, patch, STRATEGIC_MERGE_PATCH, **query)

    async def apply(self, path: str, obj: Json, manager: str = "tester", **query: str) -> Answer:
        return await self.write("PATCH", path, obj, APPLY_PATCH, fieldManager=manager, **query)

    async def delete(self, path: str, options: Json | None = None, **query: str) -> Answer:
        # With a body, the server does not look at the query.
        return await self.write("DELETE", path, b"" if options is None else options, **query)

    async def write(
        self, method: str, path: str, obj: Json | bytes, content_type: str = JSON, **query: str
    ) -> Answer:
        body = obj if isinstance(obj, bytes) else orjson.dumps(obj)
        outcome = await self.client.write(
            method, path, body, content_type=content_type, query=query
        )
        match outcome:
            case Committed(body=stored):
                return Answer(200, orjson.loads(stored))
            case Rejected(status=status, reason=reason, message=message):
                return Answer(status, {"reason": reason, "message": message})
            case Unknown(cause=cause):
                return Answer(500, {"message": cause})

    async def made(self, path: str, obj: Json) -> Answer:
        """Create something that must succeed."""
        answer = await self.post(path, obj)
        assert answer.ok, answer
        return answer

    async def pod(self, name: str, spec: Json | None = None, **metadata: Any) -> Answer:
        """A pod that nobody schedules."""
        return await self.made(self.pods(), pod(name, spec, **metadata))

    async def claim(self, name: str, **metadata: Any) -> Answer:
        return await self.made(self.claims(), claim(name, **metadata))

    async def bind(self, name: str, node: str = "nowhere", **metadata: Any) -> Answer:
        binding = {
            "metadata": {"name": name, **metadata},
            "target": {"kind": "Node", "name": node},
        }
        return await self.post(f"{self.pods(name)}/binding", binding)

    async def events(
        self, path: str, count: int, seconds: float = 10, **query: str
    ) -> list[tuple[str, Json]]:
        """The first events of a watch; fewer when it ends before."""
        seen: list[tuple[str, Json]] = []
        async with asyncio.timeout(seconds), self.client.watch(path, query) as lines:
            async for line in lines:
                event = orjson.loads(line)
                seen.append((event["type"], event["object"]))
                if len(seen) == count:
                    break
        return seen


def pod(name: str, spec: Json | None = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
            **(spec or {}),
        },
    }


def claim(name: str, *requests: Json, **metadata: Any) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": {"requests": list(requests) or [request("gpu")]}},
    }


def request(name: str, **fields: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": "gpu.example.com", **fields}}


def result(device: str = "gpu-0", **fields: Any) -> Json:
    return {
        "request": "gpu",
        "driver": "gpu.example.com",
        "pool": "node-1",
        "device": device,
        **fields,
    }


def allocation(*results: Json, **fields: Any) -> Json:
    return {"devices": {"results": list(results) or [result()]}, **fields}


def consumer(uid: str = "u1", **fields: Any) -> Json:
    """A consumer of a kind that no controller knows, so that none takes it away."""
    return {"apiGroup": "example.com", "resource": "things", "name": "x", "uid": uid, **fields}


def with_status(stored: Answer, **status: Any) -> Json:
    return {**stored.body, "status": status}


def with_metadata(stored: Answer, **metadata: Any) -> Json:
    """The object with changed metadata; None removes."""
    merged = {**stored.meta, **metadata}
    kept = {key: value for key, value in merged.items() if value is not None}
    return {**stored.body, "metadata": kept}


def items(answer: Answer) -> list[str]:
    return [item["metadata"]["name"] for item in answer.body["items"]]


def types(events: list[tuple[str, Json]]) -> list[str]:
    return [kind for kind, _ in events]
