"""`memory`: RSS and time from start to ready with 5,000 nodes x 8 devices and 40,000 claims and pods.

The lists come from the embedded API server in another process over HTTP, so that the figure is the client's side.
"""

import asyncio
import multiprocessing
import random
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson

from e2e.harness.service import Service
from scheduler.apiserver.app import kubeconfig, serve
from scheduler.apiserver.client import EmbeddedClient
from scheduler.apiserver.server import ApiServer
from scheduler.client import Committed
from scheduler.clock import SystemClock
from tests.benchmarks.backlog import DRIVER, gpu
from tests.benchmarks.row import Row

NODES = 5_000
PODS = 40_000


async def memory(repetitions: int) -> list[Row]:
    """MiB and seconds of one process."""
    parent, child = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(child,), daemon=True)
    server.start()
    url = await asyncio.to_thread(parent.recv)
    rss: list[float] = []
    seconds: list[float] = []
    try:
        for _ in range(repetitions):
            mebibytes, elapsed = await _start(url)
            rss.append(mebibytes)
            seconds.append(elapsed)
    finally:
        parent.send("end")
        server.join(10)
    shape = f"{NODES} nodes x 8 devices, {PODS} claims and pods"
    return [
        Row("memory", f"{shape}, RSS", rss, None, "MiB", "lower", 1024.0),
        Row("memory", f"{shape}, start to ready", seconds, None, "s", "lower", 30.0),
    ]


async def _start(url: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        config.write_text(kubeconfig(url))
        service = Service("run", config, Path(folder), flags=("--leader-elect=false",))
        began = time.perf_counter()
        await service.start(timeout_seconds=300.0)
        elapsed = time.perf_counter() - began
        status = Path(f"/proc/{service.process.pid}/status").read_text()
        kibibytes = next(
            int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")
        )
        await service.stop()
    return kibibytes / 1024, elapsed


def _serve(pipe: Connection) -> None:
    asyncio.run(_fill_and_serve(pipe))


async def _fill_and_serve(pipe: Connection) -> None:
    clock = SystemClock()
    server = ApiServer.create(clock, random.Random(1), window=200_000)
    client = EmbeddedClient(server, clock)
    for number in range(NODES):
        name = f"node-{number:05d}"
        await _create(client, "/api/v1/nodes", _node(name))
        await _create(client, "/apis/resource.k8s.io/v1/resourceslices", _slice(name, number))
    for number in range(PODS):
        await _create(
            client, "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", _claim(number)
        )
        await _create(client, "/api/v1/namespaces/default/pods", _pod(number))
    async with serve(server, clock) as url:
        pipe.send(url)
        while not pipe.poll():
            await asyncio.sleep(0.2)


async def _create(client: EmbeddedClient, path: str, body: dict[str, Any]) -> None:
    answer = await client.write("POST", path, orjson.dumps(body))
    if not isinstance(answer, Committed):
        raise RuntimeError(str(answer))


def _node(name: str) -> dict[str, Any]:
    resources = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _slice(name: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [gpu(index, number) for index in range(8)],
        },
    }


def _claim(number: int) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{number}", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def _pod(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "default"},
        "spec": {
            # Another scheduler's: what is measured is holding the cluster, not scheduling it.
            "schedulerName": "another",
            "containers": [
                {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": f"claim-{number}"}],
        },
    }
