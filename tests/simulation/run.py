"""Runs seeds of the simulation.

    python -m tests.simulation.run --seeds 1-200 --mode both --jobs 2
    python -m tests.simulation.run --seconds 480 --mode both --jobs 2 --gates
    python -m tests.simulation.run --seed 17 --mode liveness --trace /tmp/17.jsonl

A failing seed is printed as the command that runs it again. One seed in a hundred is run twice: both traces must be the
same. With `--gates` the run fails if some kind of fault, crash or outcome never happened in it.
"""

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.invariants import write_trace
from tests.simulation.chaos import PHASES
from tests.simulation.known import KNOWN
from tests.simulation.plan import FAULTS, make_plan
from tests.simulation.world import (
    OUTCOMES,
    WRITES,
    collect_garbage,
    plan_facts,
    quiet_interpreter,
    run_plan,
)

CHUNK = 10
RUN_TWICE_EVERY = 100
MOST_SHOWN = 6


@dataclass(slots=True)
class Report:
    """What came of some seeds.

    Attributes:
        runs: how many.
        steps: of their event loops.
        operations: of their API servers and webhooks.
        happened: what happened -> how often.
        failures: commands, each with what was found.
    """

    runs: int = 0
    steps: int = 0
    operations: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, list[str]]] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        """Sum up."""
        self.runs += other.runs
        self.steps += other.steps
        self.operations += other.operations
        self.happened += other.happened
        self.failures += other.failures


Job = tuple[int, bool]


def command(seed: int, *, liveness: bool) -> str:
    """What a person types to run a seed again."""
    mode = "liveness" if liveness else "safety"
    return f"python -m tests.simulation.run --seed {seed} --mode {mode}"


def run_jobs(jobs: Iterable[Job]) -> Report:
    """Run some seeds, one after the other."""
    report = Report()
    with quiet_interpreter():
        for number, (seed, liveness) in enumerate(jobs):
            plan = make_plan(seed, liveness=liveness)
            outcome = run_plan(plan)
            found = [str(finding) for finding in outcome.findings]
            if seed % RUN_TWICE_EVERY == 0:
                again = run_plan(make_plan(seed, liveness=liveness))
                report.happened["(run twice)"] += 1
                if again.digest != outcome.digest:
                    found.append("two runs of the same seed differ")
            report.runs += 1
            report.steps += outcome.steps
            report.operations += outcome.operations
            report.happened += outcome.happened
            known = KNOWN.get((seed, liveness))
            if known is not None:
                if found:
                    report.happened[f"known and open: seed {seed}: {known}"] += 1
                found = [] if found else [f"shows nothing any more, but is known for: {known}"]
            if found:
                report.failures.append((command(seed, liveness=liveness), found))
            if number % CHUNK == CHUNK - 1:
                collect_garbage()
    return report


def never_happened(happened: Counter[str]) -> list[str]:
    """What a long run must have seen and has not."""
    wanted = [
        *FAULTS,
        *(f"crash: {write}, {phase}" for write in WRITES for phase in PHASES),
        *(f"outcome: {write} {outcome}" for write in WRITES for outcome in OUTCOMES),
    ]
    return [each for each in wanted if not happened[each]]


def _jobs(seeds: Iterable[int], mode: str) -> Iterator[Job]:
    for seed in seeds:
        match mode:
            case "both":
                yield seed, seed % 2 == 0
            case _:
                yield seed, mode == "liveness"


def _chunks(jobs: Iterator[Job], until: float | None) -> Iterator[list[Job]]:
    while (until is None or time.monotonic() < until) and (
        chunk := list(itertools.islice(jobs, CHUNK))
    ):
        yield chunk


def _take(total: Report, report: Report) -> None:
    """Add what came of a chunk; failures are told at once."""
    total.add(report)
    for text, found in report.failures:
        print(f"FAILED: {text}")
        for each in found[:MOST_SHOWN]:
            print(f"    {each}")
    sys.stdout.flush()


def run_many(seeds: Iterable[int], mode: str, processes: int, seconds: float | None) -> Report:
    """Run seeds, in several processes, until they are through or the time is over."""
    until = None if seconds is None else time.monotonic() + seconds
    total = Report()
    chunks = _chunks(_jobs(seeds, mode), until)
    if processes == 1:
        for chunk in chunks:
            _take(total, run_jobs(chunk))
        return total
    context = multiprocessing.get_context("fork")
    # New processes now and then: what one run leaves behind must not fill the memory of all.
    with context.Pool(processes, maxtasksperchild=4) as pool:
        waiting: list[multiprocessing.pool.AsyncResult[Report]] = []
        for chunk in chunks:
            waiting.append(pool.apply_async(run_jobs, (chunk,)))
            while len(waiting) > processes:
                _take(total, waiting.pop(0).get())
        for each in waiting:
            _take(total, each.get())
    return total


def run_one(seed: int, *, liveness: bool, trace: Path | None) -> int:
    """Run one seed, and show it."""
    with quiet_interpreter():
        outcome = run_plan(make_plan(seed, liveness=liveness), keep_trace=trace is not None)
    print(plan_facts(outcome.plan))
    for finding in outcome.findings:
        print(finding)
    print(f"{outcome.steps} steps, {outcome.operations} operations, trace {outcome.digest[:16]}")
    if trace is not None:
        write_trace(trace, outcome.trace)
    sys.stdout.flush()
    return 1 if outcome.findings else 0


def show(report: Report, seconds: float, *, gates: bool) -> int:
    """Print a report; returns the exit code."""
    missing = never_happened(report.happened) if gates else []
    for name, count in sorted(report.happened.items()):
        print(f"{count:8} {name}")
    for each in missing:
        print(f"       0 {each}: never happened")
    print(
        f"{report.runs} seeds, {report.steps} steps of the loop, {report.operations} operations, "
        f"{len(report.failures)} failed, {seconds:.0f} s"
    )
    for text, _ in report.failures:
        print(f"FAILED: {text}")
    return 1 if report.failures or missing else 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", default="", metavar="A-B", help="which seeds")
    parser.add_argument("--seconds", type=float, help="as many seeds as fit in this time")
    parser.add_argument("--first", type=int, default=1, help="the first seed, with --seconds")
    parser.add_argument("--seed", type=int, help="one seed, shown in detail")
    parser.add_argument("--mode", choices=("safety", "liveness", "both"), default="both")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--trace", type=Path, help="where the history of --seed is stored")
    parser.add_argument("--least", type=int, default=0, help="fail if fewer seeds were run")
    parser.add_argument("--gates", action="store_true", help="fail if something never happened")
    options = parser.parse_args()
    if options.seed is not None:
        liveness = options.mode == "liveness" or (options.mode == "both" and options.seed % 2 == 0)
        return run_one(options.seed, liveness=liveness, trace=options.trace)
    seeds: Iterable[int] = itertools.count(options.first)
    if options.seeds:
        first, _, last = options.seeds.partition("-")
        seeds = range(int(first), int(last or first) + 1)
    elif options.seconds is None:
        parser.error("give --seed, --seeds or --seconds")
    began = time.monotonic()
    report = run_many(seeds, options.mode, options.jobs, options.seconds)
    code = show(report, time.monotonic() - began, gates=options.gates)
    if report.runs < options.least:
        print(f"only {report.runs} of at least {options.least} seeds were run")
        return 1
    return code


def with_fixed_hashes() -> None:
    """Start this process again with hashes of text that are the same in every process: sets of text are walked in order."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        spec = sys.modules["__main__"].__spec__
        module = "tests.simulation.run" if spec is None else spec.name
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])


if __name__ == "__main__":
    with_fixed_hashes()
    code = main()
    sys.stdout.flush()
    os._exit(code)  # nothing is left to do, and what the last run dropped need not be taken apart
