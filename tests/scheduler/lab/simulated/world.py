"""An embedded server with what the simulated parts work on, a step at a time."""

from random import Random
from typing import Any

import orjson

from scheduler.client import STRATEGIC_MERGE_PATCH, Committed
from scheduler.lab.apiserver.client import EmbeddedClient
from scheduler.lab.apiserver.server import ApiServer
from scheduler.lab.simulated.mirror import Controller, Json
from tests.fakes import FakeClock

FINALIZER = "resource.kubernetes.io/delete-protection"
RESOURCE = "/apis/resource.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = f"{RESOURCE}/namespaces/default/resourceclaims"
TEMPLATES = f"{RESOURCE}/namespaces/default/resourceclaimtemplates"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}


class World:
    """A server, its clock, and short forms of what tests do to it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = ApiServer.create(self.clock, Random(0), taint_new_nodes=True)
        self.client = EmbeddedClient(self.server, self.clock)

    async def steps(self, *controllers: Controller, count: int = 4) -> None:
        """Let each controller look at the cluster a few times."""
        for _ in range(count):
            for controller in controllers:
                await controller.sync_once()

    async def get(self, path: str) -> Json:
        found: Json = orjson.loads(await self.client.get(path))
        return found

    async def items(self, path: str) -> list[Json]:
        return list((await self.get(path))["items"])

    async def write(self, method: str, path: str, obj: Any, **options: Any) -> Json:
        outcome = await self.client.write(method, path, orjson.dumps(obj), **options)
        assert isinstance(outcome, Committed), outcome
        stored: Json = orjson.loads(outcome.body)
        return stored

    async def create(self, path: str, obj: Json) -> Json:
        return await self.write("POST", path, obj)

    async def delete(self, path: str, **options: Any) -> Json:
        return await self.write("DELETE", path, options)

    async def phase(self, name: str, phase: str) -> None:
        await self.write(
            "PATCH",
            f"{PODS}/{name}/status",
            {"status": {"phase": phase}},
            content_type=STRATEGIC_MERGE_PATCH,
        )

    async def pod(self, name: str, node: str = "", **entries: str) -> Json:
        """A pod; entries are `name=claim`, or `name="template/t"`."""
        claims = [
            {"name": entry, "resourceClaimTemplateName": source.removeprefix("template/")}
            if source.startswith("template/")
            else {"name": entry, "resourceClaimName": source}
            for entry, source in entries.items()
        ]
        spec: Json = {
            "containers": [{"name": "main", "image": "i"}],
            "resourceClaims": claims,
        }
        if node:
            spec["nodeName"] = node
        return await self.create(PODS, {"metadata": {"name": name}, "spec": spec})

    async def template(self, name: str = "t") -> Json:
        meta = {"labels": {"made": "from-template"}, "annotations": {"note": "kept"}}
        return await self.create(
            TEMPLATES, {"metadata": {"name": name}, "spec": {"metadata": meta, "spec": SPEC}}
        )

    async def claim(self, name: str, **metadata: Any) -> Json:
        return await self.create(CLAIMS, {"metadata": {"name": name, **metadata}, "spec": SPEC})

    async def allocate(self, name: str, *pods: Json, device: str = "gpu-0") -> Json:
        """What a scheduler does: finalizer, then allocation and reservations."""
        claim = await self.get(f"{CLAIMS}/{name}")
        claim["metadata"]["finalizers"] = [FINALIZER]
        claim = await self.write("PUT", f"{CLAIMS}/{name}", claim)
        result = {"request": "gpu", "driver": "d.example.com", "pool": "n1", "device": device}
        claim["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [
                {"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]}
                for p in pods
            ],
        }
        return await self.write("PUT", f"{CLAIMS}/{name}/status", claim)

    async def bind(self, pod: Json, node: str = "n1") -> None:
        meta = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        await self.create(
            f"{PODS}/{meta['name']}/binding",
            {"metadata": meta, "target": {"kind": "Node", "name": node}},
        )

    async def names(self, path: str) -> list[str]:
        return [item["metadata"]["name"] for item in await self.items(path)]


def status(obj: Json) -> Json:
    found: Json = obj.get("status") or {}
    return found
