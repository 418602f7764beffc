"""The soak: load for some minutes, and before and after it quiet, with pods that can never fit waiting all the time.

`python -m e2e.soak --minutes 6`. At rest the service asks for at most one thing a second, and of any waiting pod at most
one attempt a second is made (L7); memory does not grow by more than 2 % in ten minutes once it is warm, and open files
are what they were (L8).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from e2e.harness.api import PODS
from e2e.harness.cluster import Cluster
from e2e.harness.load import Load
from e2e.harness.proxy import Call, Reply
from e2e.harness.stage import NAMES, Name, Replica, Stage
from tests.invariants import Judge

WAVE_PODS, WAVE_SECONDS = 60, 10.0
HOPELESS = 20
QUIET_SECONDS = 40.0
SETTLE_SECONDS = 70.0  # longer than idle connections are kept
WARM_SHARE = 0.5  # of the time under load; what grows before is caches that fill
MOST_REQUESTS_A_SECOND = 1.0
# Kubernetes' longest backoff is ten seconds: an attempt reads nothing and writes at most a condition.
MOST_WRITES_A_WAITING_POD = 0.2
MOST_GROWTH_IN_TEN_MINUTES = 0.02
MOST_FILES = 2
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass(frozen=True)
class Sample:
    """What a process uses at a moment: seconds, resident KiB, open files, threads."""

    at: float
    resident: int
    files: int
    threads: int


def sample(replica: Replica, at: float) -> Sample:
    process = Path("/proc") / str(replica.service.process.pid)
    resident = int((process / "statm").read_text().split()[1]) * PAGE_KIB
    files = len(list((process / "fd").iterdir()))
    threads = len(list((process / "task").iterdir()))
    return Sample(at, resident, files, threads)


def growth(samples: Sequence[Sample]) -> float:
    """Growth of resident memory in ten minutes, as a share: Theil-Sen, so that one peak says nothing."""
    slopes = [
        (b.resident - a.resident) / (b.at - a.at)
        for i, a in enumerate(samples)
        for b in samples[i + 1 :]
    ]
    return median(slopes) * 600.0 / samples[0].resident if slopes else 0.0


class Requests:
    """Counts what a replica asks for, watches and leases left out."""

    def __init__(self, replica: Replica) -> None:
        self.count: Counter[str] = Counter()
        replica.proxy.listeners.append(self._told)

    def _told(self, call: Call, _reply: Reply, _fault: str) -> None:
        if not call.is_watch and "/leases" not in call.path:
            self.count[call.method] += 1

    def rate(self, before: Counter[str], seconds: float) -> float:
        return (self.count - before).total() / seconds


async def run_mode(mode: Name, minutes: float, seed: int, folder: Path) -> list[str]:
    """Soaks one mode; returns what was wrong."""
    problems: list[str] = []
    loop = asyncio.get_running_loop()
    async with Stage.running(mode, folder=folder) as stage:
        replica = await stage.add_replica()
        judge = Judge(stage.terms())
        requests = Requests(replica)
        samples: list[Sample] = []
        async with (
            Cluster.prepared(stage.api, "waves", stage.scheduler_name) as cluster,
            Cluster.prepared(stage.api, "waiting", stage.scheduler_name) as waiting,
        ):
            await Load(cluster, random.Random(seed)).set_up()
            # Once, for what is opened when it is first needed.
            problems += await _wave(stage, cluster, judge, 0, seed)
            problems += await _quiet(mode, requests, 0, "with nothing to do")
            rest = sample(replica, loop.time())
            await waiting.template("gpu", waiting.request(selector="device.driver == 'nobody'"))
            bodies = [waiting.pod_body(f"h{i}", templates={"gpu": "gpu"}) for i in range(HOPELESS)]
            await waiting.add_nodes(2, devices=2)
            await waiting.api.create_all(PODS, bodies)
            end = loop.time() + minutes * 60
            number = 0
            while loop.time() < end:
                number += 1
                problems += await _wave(stage, cluster, judge, number, seed)
                samples.append(sample(replica, loop.time()))
            problems += await _quiet(mode, requests, HOPELESS, "with pods that wait")
        after = sample(replica, loop.time())
        grown = growth([s for s in samples if s.at > end - minutes * 60 * (1 - WARM_SHARE)])
        print(
            f"{mode}: {number} waves; resident {rest.resident / 1024:.0f} → {after.resident / 1024:.0f} MiB,"
            f" {grown:+.1%} in ten minutes; files {rest.files} → {after.files}, threads"
            f" {rest.threads} → {after.threads}",
            flush=True,
        )
        series = [f"{each.resident / 1024:.1f}" for each in samples]
        print(f"{mode}: resident MiB after each wave: {' '.join(series)}", flush=True)
        if grown > MOST_GROWTH_IN_TEN_MINUTES:
            problems.append(f"L8: memory grows by {grown:.1%} in ten minutes")
        if after.files > rest.files + MOST_FILES:
            problems.append(f"L8: {after.files} open files, {rest.files} before")
        if not replica.service.process.running:
            problems.append("L8: the process has ended")
    return problems


async def _wave(stage: Stage, cluster: Cluster, judge: Judge, number: int, seed: int) -> list[str]:
    """Pods that come and go, always on the same nodes: what a cache holds of those is no growth."""
    load = Load(cluster, random.Random(f"{seed} {number}"), prefix=f"w{number}-")
    try:
        await load.run(WAVE_PODS, WAVE_SECONDS)
        await load.all_bound(60)
        await load.drained(60)
    except AssertionError as error:
        return [str(error)]
    await stage.history.caught_up()
    return [str(finding) for finding in stage.history.hear(judge)]


async def _quiet(mode: Name, requests: Requests, waiting: int, what: str) -> list[str]:
    """Nothing to do: how much is asked for?"""
    await asyncio.sleep(SETTLE_SECONDS)
    before = requests.count.copy()
    await asyncio.sleep(QUIET_SECONDS)
    rate = requests.rate(before, QUIET_SECONDS)
    most = MOST_REQUESTS_A_SECOND + waiting * MOST_WRITES_A_WAITING_POD
    print(f"{mode}: {rate:.2f} requests/s at rest, {what} (at most {most:g})", flush=True)
    return [f"L7: {rate:.2f} requests/s at rest, {what}"] if rate > most else []


async def run(modes: Sequence[Name], minutes: float, seed: int, folder: Path) -> int:
    failed = 0
    for mode in modes:
        problems = await run_mode(mode, minutes, seed, folder / mode)
        print(f"{'FAILED' if problems else 'ok':6} {mode}", flush=True)
        for problem in problems:
            print(f"       {problem}", flush=True)
        failed += bool(problems)
    return failed


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", default="standalone,fast")
    parser.add_argument("--folder", type=Path, help="for data and logs")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="dra-soak-"))
    modes = [name for name in NAMES if name in options.modes.split(",")]
    print(f"soak: seed {options.seed}, logs in {folder}, load {os.getloadavg()[0]:.1f}", flush=True)
    return 1 if asyncio.run(run(modes, options.minutes, options.seed, folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
