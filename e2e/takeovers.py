"""The leader is killed in the middle of a burst of 500 pods, again and again, with the lease times that we ship.

`python -m e2e.takeovers --times 10 --seed 1`. Each time the other replica leads within leaseDuration + retryPeriod +
10 s (L6), every pod is bound, no device is given twice, and nothing is left when the pods are gone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
from pathlib import Path

from e2e.harness.api import PODS
from e2e.harness.cluster import Cluster
from e2e.harness.load import Load
from e2e.harness.stage import Name, Stage
from tests.invariants import Judge

PODS_IN_BURST = 500
NODES, DEVICES = 10, 60
MODES: tuple[Name, ...] = ("standalone", "fast")
BOUND_SECONDS = 300.0
SLACK_SECONDS = 5.0  # for a busy machine, on top of the bound


async def run_mode(mode: Name, times: int, seed: int, folder: Path) -> list[str]:
    """Bursts in a row; returns what was wrong."""
    problems: list[str] = []
    async with Stage.running(mode, folder=folder) as stage:
        for _ in range(2):
            await stage.add_replica()
        judge = Judge(stage.terms())
        for number in range(1, times + 1):
            rng = random.Random(f"{seed} {mode} {number}")
            found = await _burst(stage, judge, number, rng)
            print(f"{'FAILED' if found else 'ok':6} {mode} burst {number}", flush=True)
            for problem in found:
                print(f"       {problem}", flush=True)
            problems += found
        stage.history.store(folder / "history.jsonl", judge.terms)
    return problems


async def _burst(stage: Stage, judge: Judge, number: int, rng: random.Random) -> list[str]:
    loop = asyncio.get_running_loop()
    problems: list[str] = []
    name = f"burst-{number}"
    async with Cluster.prepared(stage.api, name, stage.scheduler_name) as cluster:
        await cluster.add_nodes(NODES, devices=DEVICES)
        await cluster.template()
        load = Load(cluster, rng, wanted={f"p{i}" for i in range(PODS_IN_BURST)})
        leader = await stage.leader()
        bodies = [cluster.pod_body(pod, templates={"gpu": "gpu"}) for pod in sorted(load.wanted)]
        creating = asyncio.create_task(cluster.api.create_all(PODS, bodies))
        try:
            bound = rng.randint(20, 400)
            await cluster.all_bound(bound, BOUND_SECONDS)
            began = loop.time()
            await leader.service.kill()
            stage.history.mark("killed", replica=leader.name, bound=bound)
            other = await stage.leader()
            took = loop.time() - began
            await creating
            rest = await load.all_bound(BOUND_SECONDS)
            print(
                f"       killed after {bound} were bound; {other.name} led after {took:.1f} s,"
                f" and {rest:.1f} s later all were bound"
            )
            lease = stage.lease
            most = lease.lease_duration_seconds + lease.retry_period_seconds + 10 + SLACK_SECONDS
            if took > most:
                problems.append(f"L6: {took:.1f} s until somebody led, at most {most:.1f}")
            await stage.start(leader)
            problems += [f"{f.rule} {f.subject}: {f.text}" for f in await cluster.findings()]
            stage.history.mark("healed")
            await load.drained(120)
        except (AssertionError, TimeoutError) as error:
            problems.append(f"{type(error).__name__}: {error}")
            if not leader.service.process.running:
                await stage.start(leader)
        facts = await stage.facts()
        await stage.history.caught_up()
        stage.history.mark("end", **facts)
        return problems + [str(finding) for finding in stage.history.hear(judge)]


async def run(modes: list[Name], times: int, seed: int, folder: Path) -> int:
    problems = []
    for mode in modes:
        problems += await run_mode(mode, times, seed, folder / mode)
    return len(problems)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--folder", type=Path, help="for data and logs")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="dra-takeovers-"))
    modes = [name for name in MODES if name in options.modes.split(",")]
    print(f"takeovers: seed {options.seed}, logs in {folder}, load {os.getloadavg()[0]:.1f}")
    return 1 if asyncio.run(run(modes, options.times, options.seed, folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
