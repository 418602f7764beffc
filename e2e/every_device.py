"""Every device exactly once: 8 nodes of 100 devices, 800 pods, and one more that has to wait.

`python -m e2e.every_device --modes standalone`. The shape of Kubernetes' own `UsesAllResources` (test/integration/dra),
which found a double allocation that had been shipped for years. The whole history is judged, and the counts at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from e2e.harness.api import PODS
from e2e.harness.cluster import Cluster
from e2e.harness.judge import devices_of
from e2e.harness.stage import NAMES, Name, Stage
from tests.invariants import Judge

NODES, DEVICES = 8, 100
PODS_WANTED = NODES * DEVICES
BOUND_SECONDS = 600.0


async def run_mode(mode: Name, repeats: int, folder: Path) -> list[str]:
    """Fills the cluster some times; returns what was wrong."""
    problems: list[str] = []
    async with Stage.running(mode, folder=folder) as stage:
        await stage.add_replica()
        judge = Judge(stage.terms())
        for number in range(1, repeats + 1):
            name = f"every-device-{number}"
            async with Cluster.prepared(stage.api, name, stage.scheduler_name) as cluster:
                problems += await _fill(stage, cluster, judge, mode)
        stage.history.store(folder / "history.jsonl", judge.terms)
    return problems


async def _fill(stage: Stage, cluster: Cluster, judge: Judge, mode: Name) -> list[str]:
    nodes = await cluster.add_nodes(NODES, devices=DEVICES)
    await cluster.template()
    loop = asyncio.get_running_loop()
    began = loop.time()
    bodies = [cluster.pod_body(f"p{i}", templates={"gpu": "gpu"}) for i in range(PODS_WANTED)]
    await cluster.api.create_all(PODS, bodies)
    problems = []
    try:
        await cluster.all_bound(PODS_WANTED, BOUND_SECONDS)
        print(f"{mode}: {PODS_WANTED} pods created and bound in {loop.time() - began:.1f} s")
        await cluster.pod("one-more", templates={"gpu": "gpu"})
        await cluster.refused("one-more")
        # Room for it comes from one that ends.
        await cluster.finish("p0")
        await cluster.bound("one-more", timeout_seconds=60)
    except AssertionError as error:
        problems.append(str(error))
    wanted = {(cluster.driver, node, f"gpu-{i}") for node in nodes for i in range(DEVICES)}
    used = Counter(device for claim in await cluster.claims() for device in devices_of(claim))
    twice = [device for device, times in used.items() if times > 1]
    if twice or set(used) != wanted:
        problems.append(f"held twice: {twice}; held by nobody: {sorted(wanted - set(used))}")
    await stage.history.caught_up()
    return problems + [str(finding) for finding in stage.history.hear(judge)]


async def run(modes: Sequence[Name], repeats: int, folder: Path) -> int:
    failed = 0
    for mode in modes:
        began = asyncio.get_running_loop().time()
        problems = await run_mode(mode, repeats, folder / mode)
        seconds = asyncio.get_running_loop().time() - began
        print(f"{'FAILED' if problems else 'ok':6} {mode}: {seconds:.1f} s", flush=True)
        for problem in problems:
            print(f"       {problem}", flush=True)
        failed += bool(problems)
    return failed


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", default=",".join(NAMES))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="for data and logs")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="dra-every-device-"))
    modes = [name for name in NAMES if name in options.modes.split(",")]
    print(f"every device once: logs in {folder}, load {os.getloadavg()[0]:.1f}", flush=True)
    return 1 if asyncio.run(run(modes, options.repeats, folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
