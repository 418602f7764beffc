"""Chaos on the real control plane: rounds of load and drawn faults, each healed, brought to rest, and judged.

`python -m e2e.chaos --rounds 4 --seed 1`. A round is 50 pods in ten seconds, two to four faults in the first fourteen,
and at its end: every pod that stays is bound (L1), the whole history breaks no invariant (S1-S15), the caches are as the
API server is (L5), and when the pods are gone nothing is left allocated (L4). History, logs, and what the
proxies did stay in the folder that is printed; the seed draws the same faults again (`--first 7 --rounds 1 --modes safe` plays that round alone).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import orjson

from e2e.harness.cluster import Cluster
from e2e.harness.disturbances import Disturbance, Scene, possible
from e2e.harness.load import Load
from e2e.harness.stage import NAMES, SHORT, Name, Stage
from tests.invariants import Judge

PODS = 50
LOAD_SECONDS = 10.0
FAULT_SECONDS = 14.0
REST_SECONDS = 120.0
HTTP_TIMEOUT = "3s"  # so that a webhook can be late within a round


@dataclass
class Result:
    """What became of a round."""

    mode: Name
    number: int
    faults: list[str]
    seconds: float
    rest_seconds: float
    happened: Counter[str]
    problems: list[str]


@dataclass
class Planned:
    """A fault with its time."""

    disturbance: Disturbance
    start: float
    end: float

    def __str__(self) -> str:
        return f"{self.disturbance.name} {self.start:.1f}-{self.end:.1f} s"


def plan(mode: Name, rng: random.Random, only: str = "") -> list[Planned]:
    """Draws two to four faults."""
    kinds = possible(mode)
    chosen = [kind for kind in kinds if only and only in kind.name] or rng.sample(
        kinds, rng.randint(2, 4)
    )
    found = []
    for kind in chosen:
        start = rng.uniform(0.0, 5.0)
        found.append(Planned(kind, start, rng.uniform(start + 3.0, FAULT_SECONDS)))
    return found


async def play_round(stage: Stage, judge: Judge, number: int, seed: int, only: str) -> Result:
    """One round; what is wrong is in the result."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    rng = random.Random(f"{seed} {stage.mode} {number}")
    planned = plan(stage.mode, rng, only)
    problems: list[str] = []
    happened: Counter[str] = Counter()
    rest = 0.0
    name = f"chaos-{number}"
    for proxy in _proxies(stage):
        proxy.happened.clear()
    await stage.leader()
    async with Cluster.prepared(stage.api, name, stage.scheduler_name) as cluster:
        load = Load(cluster, random.Random(rng.getrandbits(32)))
        await load.set_up()
        scene = Scene(stage, load, rng)
        stage.history.mark("round", number=number, faults=[str(each) for each in planned])
        try:
            async with asyncio.timeout(FAULT_SECONDS + 4 * REST_SECONDS):
                async with asyncio.TaskGroup() as group:
                    group.create_task(load.run(PODS, LOAD_SECONDS))
                    for each in planned:
                        group.create_task(_play(each, scene))
                stage.history.mark("healed")
                await stage.leader()
                rest = await load.all_bound(REST_SECONDS)
                problems += [f"{f.rule} {f.subject}: {f.text}" for f in await cluster.findings()]
                await load.drained(REST_SECONDS)
                facts = await stage.facts()
        except (AssertionError, TimeoutError, ExceptionGroup, RuntimeError) as error:
            problems.append(f"{type(error).__name__}: {error}")
            facts = {}
        await stage.history.caught_up()
        if facts:
            if stage.mode == "safe" or len(stage.replicas) == 1:
                facts["leaders"] = 1
            stage.history.mark("end", **facts)
        judge.terms = dataclasses.replace(judge.terms, one_allocator=not scene.is_two_allocators)
        problems += [str(finding) for finding in stage.history.hear(judge)]
    happened.update(scene.counts)
    for proxy in _proxies(stage):
        happened.update(proxy.happened)
    names = [str(each) for each in planned]
    return Result(stage.mode, number, names, loop.time() - began, rest, happened, problems)


async def _play(planned: Planned, scene: Scene) -> None:
    await asyncio.sleep(planned.start)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(planned.end - planned.start):
            await planned.disturbance.play(scene)


def _proxies(stage: Stage) -> list:  # type: ignore[type-arg]
    return [*stage.proxies, *([stage.q] if stage.q is not None else [])]


async def run_lane(
    mode: Name, rounds: list[int], seed: int, folder: Path, only: str
) -> list[Result]:
    """Rounds of one mode in a row, on one control plane."""
    results = []
    async with (
        Stage.running(mode, folder=folder, lease=SHORT, http_timeout=HTTP_TIMEOUT) as stage,
        stage.supervised(),
    ):
        await stage.add_replica()
        if mode != "safe":
            await stage.add_replica()
        judge = Judge(stage.terms())
        for number in rounds:
            result = await play_round(stage, judge, number, seed, only)
            tell(result)
            results.append(result)
        stage.history.store(folder / "history.jsonl", judge.terms)
        schedule = [{**dataclasses.asdict(r), "happened": dict(r.happened)} for r in results]
        (folder / "schedule.json").write_bytes(orjson.dumps(schedule, option=orjson.OPT_INDENT_2))
        print(f"{mode}: ended and started again, by exit code: {dict(stage.ends)}", flush=True)
    return results


def tell(result: Result) -> None:
    verdict = "FAILED" if result.problems else "ok"
    print(
        f"{verdict:6} {result.mode} round {result.number}: {result.seconds:.1f} s,"
        f" at rest after {result.rest_seconds:.1f} s; {'; '.join(result.faults)}"
    )
    print(f"       {dict(sorted(result.happened.items()))}", flush=True)
    for problem in result.problems:
        print(f"       {problem}", flush=True)


async def run(
    rounds: range, seed: int, folder: Path, modes: tuple[Name, ...], at_once: int, only: str
) -> list[Result]:
    """Deals rounds over the modes; lanes run a few at a time."""
    gate = asyncio.Semaphore(at_once)
    dealt: dict[Name, list[int]] = {mode: [] for mode in modes}
    for number in rounds:
        dealt[modes[(number - 1) % len(modes)]].append(number)

    async def lane(mode: Name) -> list[Result]:
        async with gate:
            return await run_lane(mode, dealt[mode], seed, folder / mode, only)

    lanes = await asyncio.gather(*(lane(mode) for mode in modes if dealt[mode]))
    return [result for each in lanes for result in each]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--first", type=int, default=1, help="number of the first round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", default=",".join(NAMES))
    parser.add_argument("--at-once", type=int, default=2, help="lanes at the same time")
    parser.add_argument("--only", default="", help="only faults with this in their name")
    parser.add_argument("--folder", type=Path, help="for data and logs")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="dra-chaos-"))
    modes = tuple(name for name in NAMES if name in options.modes.split(","))
    rounds = range(options.first, options.first + options.rounds)
    print(f"chaos: {options.rounds} rounds, seed {options.seed}, artifacts in {folder}")
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    results = asyncio.run(run(rounds, options.seed, folder, modes, options.at_once, options.only))
    happened: Counter[str] = Counter()
    for result in results:
        happened.update(result.happened)
    failed = [result for result in results if result.problems]
    print(f"what happened: {dict(sorted(happened.items()))}")
    print(f"{len(results)} rounds, {len(failed)} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
