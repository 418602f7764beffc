"""A whole cluster in one process for tests: embedded API server, cache kept by reflectors, binder, extender.

Objects are plain dicts, written through the API. `Faulty` is a client that does what a test tells it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import orjson

from allocator.cel import Compiler
from allocator.features import Features
from scheduler.binder import Binder, ClaimWriter, PodWriter
from scheduler.cache.allocated import Conflict
from scheduler.cache.cluster import ClusterCache
from scheduler.client import JSON, MERGE_PATCH, Committed, Rejected, Unknown, WriteOutcome
from scheduler.clock import SystemClock
from scheduler.config import BindSettings
from scheduler.framework.environment import Environment, Mode
from scheduler.lab.apiserver.client import EmbeddedClient
from scheduler.lab.apiserver.server import ApiServer
from scheduler.model import Pod
from scheduler.reflectors.barrier import ClaimBarrier
from scheduler.reflectors.reflectors import Reflectors

NAMESPACE = "default"
DRIVER = "gpu.example.com"
Object = dict[str, Any]


class NoJitter(random.Random):
    """Pauses take no time."""

    def random(self) -> float:
        return 0.0


Fault = Callable[[str, str, bytes], "Awaitable[WriteOutcome | None] | WriteOutcome | None"]


class Faulty:
    """A client over another one. Each fault sees (method, path, body) of every write and may answer in its place.

    Attributes:
        writes: all writes as (method, path), in order.
        faults: asked in order; the first that answers wins.
    """

    def __init__(self, inner: EmbeddedClient) -> None:
        self.inner = inner
        self.writes: list[tuple[str, str]] = []
        self.faults: list[Fault] = []

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> bytes:
        return await self.inner.get(path, query, accept=accept)

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> WriteOutcome:
        self.writes.append((method, path))
        for fault in self.faults:
            answer = fault(method, path, body)
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer is not None:
                return answer
        return await self.send(method, path, body, content_type=content_type)

    async def send(
        self, method: str, path: str, body: bytes, *, content_type: str = JSON
    ) -> WriteOutcome:
        """Really write."""
        return await self.inner.write(method, path, body, content_type=content_type)

    def watch(
        self, path: str, query: Mapping[str, str]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self.inner.watch(path, query)

    async def aclose(self) -> None:
        pass


DEFAULTS = Features()


class World:
    """Everything, running. Make it with `world()`."""

    def __init__(self, features: Features = DEFAULTS) -> None:
        self.clock = SystemClock()
        self.rng = NoJitter(1)
        self.server = ApiServer.create(self.clock, random.Random(7), features=features)
        self.admin = EmbeddedClient(self.server, self.clock)
        self.client = Faulty(self.admin)
        self.cache = ClusterCache(
            consumable_capacity=features.consumable_capacity, counts_claims=True
        )
        self.reflectors = Reflectors(self.admin, self.cache, self.clock, self.rng)
        self.may_write = True
        self.epoch = 0
        self.conflicts: list[Conflict] = []
        ids = iter(range(1, 10_000))
        self.environment = Environment(
            features=features,
            cel=Compiler(),
            now=self.clock.now,
            new_share_id=lambda *_: f"00000000-0000-4000-8000-{next(ids):012d}",
            mode=Mode.EXTENDER,
        )
        self.binder = self.make_binder(BindSettings(budget_seconds=5.0))

    def make_binder(self, settings: BindSettings) -> Binder:
        return Binder(
            claims=ClaimWriter(
                self.client,
                self.cache,
                self.clock,
                self.rng,
                lambda: self.may_write,
                lambda: self.epoch,
            ),
            pods=PodWriter(self.client, self.clock, self.rng, lambda: self.may_write),
            cache=self.cache,
            barrier=ClaimBarrier(self.cache),
            clock=self.clock,
            settings=settings,
            on_conflict=lambda _pod, conflict: self.conflicts.append(conflict),
            counts_claims=True,
        )

    # --- objects ------------------------------------------------------------------------------------------------------

    async def create(self, path: str, body: Object) -> Object:
        answer = await self.admin.write("POST", path, orjson.dumps(body))
        assert isinstance(answer, Committed), answer
        created: Object = orjson.loads(answer.body)
        return created

    async def get(self, path: str) -> Object:
        found: Object = orjson.loads(await self.admin.get(path))
        return found

    async def put(self, path: str, body: Object) -> Object:
        answer = await self.admin.write("PUT", path, orjson.dumps(body))
        assert isinstance(answer, Committed), answer
        stored: Object = orjson.loads(answer.body)
        return stored

    async def delete(self, path: str) -> None:
        answer = await self.admin.write("DELETE", path, b"")
        assert isinstance(answer, Committed), answer

    async def end(self, pod: str) -> None:
        """The pod's containers have ended."""
        body = orjson.dumps({"status": {"phase": "Succeeded"}})
        path = pods_path(pod, "status")
        answer = await self.admin.write("PATCH", path, body, content_type=MERGE_PATCH)
        assert isinstance(answer, Committed), answer

    async def node(self, name: str) -> Object:
        return await self.create(
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
            },
        )

    async def gpus(self, node: str, count: int, **spec: Any) -> Object:
        return await self.create(
            "/apis/resource.k8s.io/v1/resourceslices",
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"{node}-gpus"},
                "spec": {
                    "driver": DRIVER,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": f"gpu-{index}"} for index in range(count)],
                    **spec,
                },
            },
        )

    async def device_class(self, name: str = "gpu") -> Object:
        return await self.create(
            "/apis/resource.k8s.io/v1/deviceclasses",
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": name},
                "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
            },
        )

    async def claim(self, name: str, count: int = 1, **metadata: Any) -> Object:
        return await self.create(
            claims_path(),
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
                "spec": {
                    "devices": {
                        "requests": [
                            {
                                "name": "gpu",
                                "exactly": {
                                    "deviceClassName": "gpu",
                                    "allocationMode": "ExactCount",
                                    "count": count,
                                },
                            }
                        ]
                    }
                },
            },
        )

    async def pod(self, name: str, *claims: str, **spec: Any) -> Object:
        entries = [
            {"name": f"entry-{index}", "resourceClaimName": claim}
            for index, claim in enumerate(claims)
        ]
        return await self.create(
            pods_path(),
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "schedulerName": "dra-scheduler",
                    "containers": [{"name": "main", "image": "pause"}],
                    **({"resourceClaims": entries} if entries else {}),
                    **spec,
                },
            },
        )

    async def cluster(self, *nodes: tuple[str, int]) -> None:
        """Nodes with so many GPUs each, and the class."""
        await self.device_class()
        for name, count in nodes:
            await self.node(name)
            await self.gpus(name, count)
        await self.settled()

    async def settled(self) -> None:
        """Wait until the cache has seen everything written so far."""
        for _ in range(100):
            await asyncio.sleep(0)

    async def known_pod(self, name: str) -> Pod:
        await self.settled()
        found = self.cache.pod_by_name(NAMESPACE, name)
        assert found is not None
        return found

    # --- faults -------------------------------------------------------------------------------------------------------

    def answer_once(self, method: str, ending: str, outcome: WriteOutcome, *, commit: bool) -> None:
        """The first write with this method whose path ends so gets this outcome; committed before, or not."""
        pending = [True]

        async def fault(asked: str, path: str, body: bytes) -> WriteOutcome | None:
            if not pending or asked != method or not path.endswith(ending):
                return None
            pending.clear()
            if commit:
                await self.client.send(asked, path, body)
            return outcome

        self.client.faults.append(fault)

    def before_once(self, method: str, ending: str, do: Callable[[], Awaitable[Any]]) -> None:
        """Do something right before the first write with this method whose path ends so."""
        pending = [True]

        async def fault(asked: str, path: str, _body: bytes) -> WriteOutcome | None:
            if pending and asked == method and path.endswith(ending):
                pending.clear()
                await do()
                await self.settled()
            return None

        self.client.faults.append(fault)


LOST = Unknown("the answer was lost")
CONFLICT = Rejected(409, "Conflict", "the object has been modified")


def claims_path(name: str = "", subresource: str = "") -> str:
    path = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
    return "/".join(part for part in (path, name, subresource) if part)


def pods_path(name: str = "", subresource: str = "") -> str:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    return "/".join(part for part in (path, name, subresource) if part)


@asynccontextmanager
async def world(**gates: bool) -> AsyncIterator[World]:
    """A running world; `gates` are those that are not as in 1.37."""
    made = World(Features.for_version("1.37", gates))
    task = asyncio.create_task(made.reflectors.run())
    try:
        await made.reflectors.synced.wait()
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
