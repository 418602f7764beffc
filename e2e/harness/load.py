"""A load for rounds of faults: pods of all shapes, all of which fit at the same time, and a stub of a kubelet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp

from e2e.harness import objects
from e2e.harness.api import CLAIMS, CLASSES, NODES, PODS, SLICES, TEMPLATES, ApiError, Object
from e2e.harness.cluster import Cluster

NODE_COUNT = 8
SLICES_PER_POOL = 2
DEVICES_PER_SLICE = 8
ALIKE = 3  # pods that share a claim
AGAIN_SECONDS = 0.3

T = TypeVar("T")


async def persist(what: Callable[[], Awaitable[T]], timeout_seconds: float = 60.0) -> T | None:
    """Repeats a request until the API server has an answer; None when it is there, or gone, already."""
    async with asyncio.timeout(timeout_seconds):
        while True:
            try:
                return await what()
            except ApiError as error:
                if error.status in (404, 409) and not error.message.startswith("Operation cannot"):
                    return None
                if error.status not in (409, 429) and error.status < 500:
                    raise
            except (aiohttp.ClientError, OSError):
                pass  # the server is being restarted
            await asyncio.sleep(AGAIN_SECONDS)


@dataclass
class Load:
    """Pods in one namespace, on nodes of its own with two slices a pool.

    Attributes:
      cluster: Where.
      rng: Draws everything.
      wanted: Pods that have to be bound in the end.
      made: How many pods were made.
      generation: Of the pools, as published last.
      prefix: Of all names, for several loads in one namespace.
    """

    cluster: Cluster
    rng: random.Random
    wanted: set[str] = field(default_factory=set)
    made: int = 0
    generation: int = 1
    prefix: str = ""

    async def set_up(self) -> None:
        """Nodes, slices, a second class, and a template for each shape."""
        cluster = self.cluster
        nodes = await cluster.add_nodes(NODE_COUNT)
        for node in nodes:
            for part in range(SLICES_PER_POOL):
                await cluster.create(SLICES, self.slice(node, part, 1))
        big = objects.device_class(f"{cluster.name}-big", cluster.driver)
        expression = f'device.attributes["{cluster.driver}"].model == "big"'
        big["spec"]["selectors"].append({"cel": {"expression": expression}})
        await cluster.create(CLASSES, big)
        either: Object = {
            "name": "gpu",
            "firstAvailable": [
                {"name": "big", "deviceClassName": f"{cluster.name}-big"},
                {"name": "any", "deviceClassName": cluster.device_class},
            ],
        }
        await cluster.template("one")
        await cluster.template("two", cluster.request(count=2))
        await cluster.template("either", either)
        numa = objects.template(cluster.namespace, "numa", cluster.request(count=2))
        attribute = f"{cluster.driver}/numa"
        numa["spec"]["spec"]["devices"]["constraints"] = [{"matchAttribute": attribute}]
        await cluster.api.create(TEMPLATES, numa)

    def slice(self, node: str, part: int, generation: int) -> Object:
        """One of the slices of a node's pool."""
        first = part * DEVICES_PER_SLICE
        devices = [
            objects.device(f"gpu-{i}", model="big" if i % 4 == 0 else "small", numa=i % 2)
            for i in range(first, first + DEVICES_PER_SLICE)
        ]
        pool = {"name": node, "generation": generation, "resourceSliceCount": SLICES_PER_POOL}
        return self.cluster.slice(node, devices, name=f"{node}-{part}", spec={"pool": pool})

    async def run(self, pods: int, seconds: float) -> None:
        """Makes pods, evenly over the time; some end, some are replaced by another of the same name."""
        # Drawn at once: what is made does not depend on how fast the machine is.
        plans = [self._plan(number) for number in range(pods)]
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, plan in enumerate(plans):
            await asyncio.sleep(max(0.0, began + number * seconds / pods - loop.time()))
            await plan()

    def _plan(self, number: int) -> Callable[[], Awaitable[None]]:
        rng = self.rng
        shape = rng.choice(("one", "one", "two", "either", "numa", "shared", "named"))
        fate = rng.choices(("stays", "ends", "replaced"), (7, 2, 1))[0]
        name = f"{self.prefix}p{number}"

        async def make() -> None:
            await self._make(name, shape, number)
            if fate == "replaced":
                await persist(lambda: self.cluster.delete_pod(name))
                await self._make(name, shape, number)
            elif fate == "ends":
                await self._end_one()

        return make

    async def _make(self, name: str, shape: str, number: int) -> None:
        cluster = self.cluster
        if shape in ("shared", "named"):
            claim = f"{self.prefix}{shape}-{number // (ALIKE * 7) if shape == 'shared' else number}"
            body = objects.claim(cluster.namespace, claim, cluster.request())
            await persist(lambda: cluster.api.create(CLAIMS, body))
            pod = cluster.pod_body(name, claims={"gpu": claim})
        else:
            pod = cluster.pod_body(name, templates={"gpu": shape})
        await persist(lambda: cluster.api.create(PODS, pod))
        self.made += 1
        self.wanted.add(name)

    async def _end_one(self) -> None:
        """Ends a pod that runs, as its containers would."""
        pods = await persist(self.cluster.pods) or []
        running = sorted(
            pod["metadata"]["name"]
            for pod in pods
            if pod["spec"].get("nodeName") and pod["metadata"]["name"] in self.wanted
        )
        if running:
            name = self.rng.choice(running)
            await persist(lambda: self.cluster.finish(name))
            self.wanted.discard(name)

    async def all_bound(self, timeout_seconds: float) -> float:
        """Waits until every pod that stays is bound; returns how long that took.

        Raises:
          AssertionError: Some are not; the message says why.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting: list[str] = []
        while loop.time() < began + timeout_seconds:
            pods = {p["metadata"]["name"]: p for p in await self.cluster.pods()}
            # One that is not there is nobody's to bind: the API server may lose a pod of a name that was deleted an
            # instant before, when a write of the old one's status is still under way.
            waiting = sorted(
                name
                for name in self.wanted
                if name in pods and not pods[name]["spec"].get("nodeName")
            )
            if not waiting:
                return loop.time() - began
            await asyncio.sleep(0.3)
        text = f"L1: {len(waiting)} pods not bound {timeout_seconds:g} s after the last fault"
        raise AssertionError(f"{text}: {waiting}\n{await self.cluster.describe(limit=5)}")

    async def drained(self, timeout_seconds: float) -> None:
        """Ends and removes every pod; waits until nothing is allocated any more (L4).

        Raises:
          AssertionError: Something is.
        """
        cluster = self.cluster
        names = [pod["metadata"]["name"] for pod in await cluster.pods()]
        await cluster.api.delete_all(PODS, names, cluster.namespace)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        left: list[str] = []
        while loop.time() < deadline:
            left = [
                claim["metadata"]["name"]
                for claim in await cluster.claims()
                if (claim.get("status") or {}).get("allocation")
                or claim["metadata"].get("ownerReferences")
            ]
            if not left:
                return
            await asyncio.sleep(0.3)
        raise AssertionError(f"L4: left after {timeout_seconds:g} s: {sorted(left)}")

    async def uncordon(self) -> None:
        for node in self.cluster.node_names:
            body: Object = {"spec": {"unschedulable": None}}
            await persist(lambda node=node, body=body: self.cluster.api.patch(NODES, node, body))  # type: ignore[misc]
