"""`memory`: RSS and time from start to ready with 5,000 nodes x 8 devices and 40,000 claims and pods.

The cluster is full: every device but one is allocated to a running pod, and a pod of ours waits for the last one, so
that the figures hold a decision, too. The lists come from the embedded API server in another process over HTTP: the
figures are the client's side.
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import aiohttp

from e2e.harness.service import Service
from scheduler.lab.apiserver.app import kubeconfig
from tests.benchmarks.backlog import DEVICES_PER_NODE
from tests.benchmarks.full_cluster import OURS, full_cluster
from tests.benchmarks.row import Row

NODES: Final = 5_000
TIMEOUT_SECONDS: Final = 300.0
_SETTLE_SECONDS: Final = 3.0  # what only the start needed is given back
# figure -> unit, what is to be reached
_FIGURES: Final[Mapping[str, tuple[str, float | None]]] = {
    "RSS": ("MiB", 1024.0),
    "highest RSS": ("MiB", 1024.0),
    "start to ready": ("s", 30.0),
    "start to first bind": ("s", None),
    "p99 of loop stalls": ("s", 0.02),
    "longest loop stall": ("s", None),
}


async def memory(repetitions: int, nodes: int = NODES) -> list[Row]:
    """MiB and seconds of one process."""
    found: dict[str, list[float]] = {name: [] for name in _FIGURES}
    for _ in range(repetitions):
        with full_cluster(nodes) as url:
            for name, value in (await _start(url)).items():
                found[name].append(value)
    shape = (
        f"{nodes} nodes x {DEVICES_PER_NODE} devices, {nodes * DEVICES_PER_NODE} claims and pods"
    )
    return [
        Row("memory", f"{shape}, {name}", found[name], None, unit, "lower", reach)
        for name, (unit, reach) in _FIGURES.items()
    ]


async def _start(url: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        config.write_text(kubeconfig(url))
        flags = ("--leader-elect=false", f"--scheduler-name={OURS}")
        service = Service("run", config, Path(folder), flags=flags)
        began = time.perf_counter()
        try:
            await service.start(timeout_seconds=TIMEOUT_SECONDS)
            ready = time.perf_counter() - began
            await _until_bound(url, began + TIMEOUT_SECONDS)
            bound = time.perf_counter() - began
            await asyncio.sleep(_SETTLE_SECONDS)
            status = Path(f"/proc/{service.process.pid}/status").read_text()
            metrics = await service.metrics()
        finally:
            await service.stop()
    return {
        "RSS": _mebibytes(status, "VmRSS"),
        "highest RSS": _mebibytes(status, "VmHWM"),
        "start to ready": ready,
        "start to first bind": bound,
        "p99 of loop stalls": _quantile(metrics, "dra_scheduler_loop_stall_seconds", 0.99),
        "longest loop stall": _quantile(metrics, "dra_scheduler_loop_stall_seconds", 1.0),
    }


async def _until_bound(url: str, deadline: float) -> None:
    """Wait until the pod of ours has the last device."""
    async with aiohttp.ClientSession(trust_env=False) as session:
        while True:
            async with session.get(f"{url}/api/v1/namespaces/default/pods/{OURS}") as response:
                pod = await response.json()
            if pod["spec"].get("nodeName"):
                return
            if time.perf_counter() > deadline:
                raise RuntimeError(f"the pod was not bound: {pod.get('status')}")
            await asyncio.sleep(0.1)


def _mebibytes(status: str, field: str) -> float:
    line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def _quantile(metrics: Mapping[str, float], name: str, share: float) -> float:
    """The upper bound of the bucket that a quantile of a histogram is in."""
    wanted = share * metrics[f"{name}_count"]
    counts = {
        float(key.split('"')[1]): value
        for key, value in metrics.items()
        if key.startswith(f"{name}_bucket")
    }
    return min(bound for bound, count in counts.items() if count >= wanted)
