"""What one tenant can do to another: 10,000 odd claims in one namespace, and an innocent one beside it.

`python -m e2e.hostile --claims 10000`. Innocent pods come one after the other, each with a claim from a template; the
figure is their time from create to bound, first alone, then beside a namespace that holds odd claims, a hundred pods
that ask for the worst of them, and that deletes and makes claims again all the time. The odd are, in turn: opaque text
of any bytes, selectors that fail, cost too much, or never end a naive matcher, 32 configurations of several kilobytes,
nesting, requests that nothing can satisfy, and annotations of ours with nonsense in them.

Prints a row as `make bench` does; the limit is a median 20 % slower. What the tenant costs the API server is in the
figure too, since it runs on the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp
import orjson

from e2e.harness import objects
from e2e.harness.api import CLAIMS, CLASSES, PODS, Object
from e2e.harness.cluster import Cluster
from e2e.harness.stage import NAMES, Name, Replica, Stage
from tests.benchmarks.row import Row
from tests.opaque import TEXTS

REACH = 1.2
INNOCENT_NODES, INNOCENT_DEVICES = 8, 100
EVERYTHING = "any-device"  # a class that anybody may ask for, and every device is in
PERIOD_SECONDS = 0.2
HOSTILE_PODS = 100
PROFILE_SECONDS = 10
CHURN_A_SECOND = 10
CREATE_CONCURRENCY = 16
MANY = 32
PARAMETERS = {name: text for name, text in TEXTS.items() if len(text) < 20_000}


def _configured(cluster: Cluster, *parameters: bytes) -> Callable[[str], bytes]:
    """A claim with texts that no encoder of ours would write."""
    entries = b",".join(
        b'{"opaque":{"driver":"%b","parameters":%b}}' % (cluster.driver.encode(), text)
        for text in parameters
    )

    def body(name: str) -> bytes:
        return (
            b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"%b"},"spec":{"devices":{'
            b'"requests":[{"name":"gpu","exactly":{"deviceClassName":"%b","allocationMode":"ExactCount","count":1}}],'
            b'"config":[%b]}}}'
        ) % (name.encode(), EVERYTHING.encode(), entries)

    return body


def _asking(cluster: Cluster, *requests: Object, **metadata: object) -> Callable[[str], bytes]:
    def body(name: str) -> bytes:
        claim = objects.claim(cluster.namespace, name, *requests)
        claim["metadata"] |= metadata
        return orjson.dumps({"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, **claim})

    return body


def _request(**options: Any) -> Object:
    """Of any device in the cluster, those of others included."""
    return objects.request(EVERYTHING, **options)


def odd_claims(cluster: Cluster) -> dict[str, Callable[[str], bytes]]:
    """Kind to what makes a claim of a name."""
    domain = cluster.driver
    selectors = {
        "selector fails": f'device.attributes["{domain}"].missing == 1',
        "selector divides by nothing": f'device.attributes["{domain}"].index / 0 == 1',
        "selector with a pattern": f'device.attributes["{domain}"].model.matches("(a|a|aa)*b(a|b)*$")',
        "selector of length": " && ".join(f'device.driver != "x{i}"' for i in range(250)),
        "selector in loops": (
            "[1,2,3,4,5,6,7,8].all(a, [1,2,3,4,5,6,7,8].all(b, [1,2,3,4,5,6,7,8].all(c,"
            " a + b + c < 25)))"
        ),
        "selector of nobody": 'device.driver == "nobody"',
    }
    found = {name: _asking(cluster, _request(selector=text)) for name, text in selectors.items()}
    found |= {f"text {name}": _configured(cluster, text) for name, text in PARAMETERS.items()}
    big = json.dumps({"k": "x" * 6_000}).encode()
    found["32 configurations"] = _configured(cluster, *[big] * MANY)
    found["32 requests of 8"] = _asking(cluster, *(_request(name=f"r{i}") for i in range(MANY)))
    found["many at once"] = _asking(cluster, _request(count=32))
    found["our annotations"] = _asking(
        cluster,
        _request(),
        annotations={
            "dra-scheduler.dev/epoch": "9" * 30,
            "dra-scheduler.dev/fence": "\u0000" * 3,
            "dra-scheduler.dev/wake-up": "٣",
        },
    )
    found["finalizer before"] = _asking(
        cluster, _request(), finalizers=[objects.FINALIZER, "example.com/mine"]
    )
    return found


class Tenant:
    """The hostile namespace."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.kinds = odd_claims(cluster)
        self.names: list[str] = []
        self.refused: dict[str, str] = {}

    async def fill(self, count: int) -> None:
        """Makes the claims, each kind as often as the others, and pods that use some of them."""
        gate = asyncio.Semaphore(CREATE_CONCURRENCY)
        kinds = itertools.cycle(self.kinds.items())

        async def make(number: int, kind: str, body: Callable[[str], bytes]) -> None:
            async with gate:
                await self._create(kind, body(f"odd-{number}"), f"odd-{number}")

        await asyncio.gather(*(make(number, *next(kinds)) for number in range(count)))
        await self.cluster.add_nodes(4, devices=8, attributes={"model": "a" * 60, "index": 1})
        step = max(1, len(self.names) // HOSTILE_PODS)
        bodies = [
            self.cluster.pod_body(f"h{i}", claims={"gpu": name}, spec={"nodeSelector": {}})
            for i, name in enumerate(self.names[::step][:HOSTILE_PODS])
        ]
        await self.cluster.api.create_all(PODS, bodies)

    async def churn(self) -> None:
        """Deletes and makes again, until cancelled."""
        kinds = list(self.kinds.items())
        for number in itertools.count():
            kind, body = self.rng.choice(kinds)
            name = f"churn-{number % 50}"
            await self.cluster.api.delete(CLAIMS, name, self.cluster.namespace)
            await self._create(kind, body(name), name)
            await asyncio.sleep(1 / CHURN_A_SECOND)

    async def _create(self, kind: str, body: bytes, name: str) -> None:
        status, answer = await self.cluster.api.send_bytes(
            "POST", CLAIMS.path(self.cluster.namespace), body
        )
        if status < 300:
            self.names.append(name)
        else:
            self.refused[kind] = answer[:200].decode(errors="replace")


async def wait_times(
    cluster: Cluster, first: int, count: int, creates: list[float] | None = None
) -> list[float]:
    """Makes pods one after the other; returns the seconds of each from create to bound.

    Args:
      cluster: Where.
      first: Number of the first pod.
      count: How many.
      creates: Gets the seconds that each create took: what the API server and the machine were like.
    """
    created: dict[str, float] = {}
    waits: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    version = (await cluster.api.request("GET", f"{PODS.path(cluster.namespace)}?limit=1"))[
        "metadata"
    ]["resourceVersion"]

    async def watch() -> None:
        async for _, pod in cluster.api.watch(PODS, cluster.namespace, version):
            name = pod["metadata"]["name"]
            if pod["spec"].get("nodeName") and name in created and name not in waits:
                waits[name] = loop.time() - created[name]

    watching = asyncio.create_task(watch())
    try:
        for number in range(first, first + count):
            name = f"p{number}"
            created[name] = loop.time()
            await cluster.pod(name, templates={"gpu": "gpu"})
            if creates is not None:
                creates.append(loop.time() - created[name])
            await asyncio.sleep(PERIOD_SECONDS)
        async with asyncio.timeout(120):
            while len(waits) < count:
                await asyncio.sleep(0.1)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    await cluster.api.delete_all(PODS, created, cluster.namespace)
    return list(waits.values())


@asynccontextmanager
async def churning(tenant: Tenant) -> AsyncIterator[None]:
    task = asyncio.create_task(tenant.churn())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def profiled(replica: Replica, folder: Path) -> AsyncIterator[None]:
    """Keeps a profile of the service in the folder: where its time goes beside such a tenant."""

    async def fetch() -> None:
        async with (
            aiohttp.ClientSession(trust_env=False) as session,
            session.get(
                f"{replica.service.health_url}debug/profile?seconds={PROFILE_SECONDS}"
            ) as response,
        ):
            (folder / "profile.txt").write_text(await response.text())

    fetching = asyncio.create_task(fetch())
    try:
        yield
        await fetching
    finally:
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)


async def run_mode(mode: Name, claims: int, pods: int, seed: int, folder: Path) -> Row:
    """Measures one mode."""
    async with Stage.running(mode, folder=folder, flags=("--enable-profiling",)) as stage:
        # Straight to the API server: the proxy is Python as well, and would share the cores with us.
        replica = await stage.add_replica(proxied=False)
        async with (
            Cluster.prepared(stage.api, "innocent", stage.scheduler_name) as innocent,
            Cluster.prepared(stage.api, "hostile", stage.scheduler_name) as hostile,
        ):
            await innocent.add_nodes(INNOCENT_NODES, devices=INNOCENT_DEVICES)
            await innocent.template()
            await wait_times(innocent, 0, 20)  # warm
            creates: tuple[list[float], list[float]] = ([], [])
            alone = await wait_times(innocent, 1_000, pods, creates[1])
            everything: Object = {
                "metadata": {"name": EVERYTHING},
                "spec": {"selectors": [{"cel": {"expression": 'device.driver != ""'}}]},
            }
            await hostile.create(CLASSES, everything)
            tenant = Tenant(hostile, random.Random(seed))
            await tenant.fill(claims)
            for kind, message in tenant.refused.items():
                print(f"refused by the API server: {kind}: {message}", file=sys.stderr)
            await asyncio.sleep(10)
            async with churning(tenant), profiled(replica, folder):
                beside = await wait_times(innocent, 2_000, pods, creates[0])
            findings = [f"{f.rule} {f.subject}: {f.text}" for f in await innocent.findings()]
            notes: dict[str, object] = {
                "p99": [round(quantiles(each, n=100)[98], 3) for each in (beside, alone)],
                "a bare create": [round(median(each), 4) for each in creates],
                "hostile claims": len(tenant.names),
                "kinds": len(tenant.kinds),
                "load": round(os.getloadavg()[0], 1),
                **({"findings": findings} if findings else {}),
            }
            shape = (
                f"{claims} odd claims and {HOSTILE_PODS} pods of another tenant, churn {CHURN_A_SECOND}/s,"
                f" {mode}: median create to bound beside it over alone"
            )
            row = Row(
                "hostile", shape, [median(beside)], [median(alone)], "s", "lower", REACH, notes
            )
            # Before the clean-up of what the tenant has left, which takes its time.
            print(row.line(), flush=True)
    return row


async def run(modes: Sequence[Name], claims: int, pods: int, seed: int, folder: Path) -> bool:
    rows = [await run_mode(mode, claims, pods, seed, folder / mode) for mode in modes]
    return all(row.is_ok for row in rows)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=100, help="innocent ones, each time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", default="standalone,fast")
    parser.add_argument("--folder", type=Path, help="for data and logs")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="dra-hostile-"))
    modes = [name for name in NAMES if name in options.modes.split(",")]
    sys.setrecursionlimit(20_000)  # of our own decoder: some of it is nested deeply
    is_ok = asyncio.run(run(modes, options.claims, options.pods, options.seed, folder))
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
