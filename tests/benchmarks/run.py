"""`make bench`: runs benchmarks and prints one JSON object a line, each as soon as it is measured."""

import argparse
import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping

from tests.benchmarks import throughput
from tests.benchmarks.allocator import allocator
from tests.benchmarks.backlog import SHAPES
from tests.benchmarks.cel_speed import cel
from tests.benchmarks.crossings import crossings
from tests.benchmarks.growth import LARGE, SIZES, SMALL, SVG, growth, growth_plot
from tests.benchmarks.herd import herd
from tests.benchmarks.indexed_job import indexed_job
from tests.benchmarks.latency import filter_latency
from tests.benchmarks.memory import memory
from tests.benchmarks.plan import BenchFailedError, Plan
from tests.benchmarks.row import Row

Bench = Callable[[Plan], Awaitable[None]]


def _listed(bench: Callable[[int], Awaitable[list[Row]]]) -> Bench:
    """A bench that has all its rows at the end."""

    async def run(plan: Plan) -> None:
        for row in await bench(plan.repetitions):
            plan.report(row)

    return run


async def _standalone(plan: Plan) -> None:
    """All shapes; with the finalizer at creation the first, or with BENCH_FULL all of them again."""
    again = SHAPES if plan.full else SHAPES[:1]
    variants = [(shape, False) for shape in SHAPES] + [(shape, True) for shape in again]
    pods = plan.backlog(500, 3_500)
    await throughput.standalone(plan, "throughput-standalone", 500, pods, tuple(variants))


async def _standalone_2000(plan: Plan) -> None:
    pods = plan.backlog(400, 2_000)
    variants = [(SHAPES[0], False), *([(SHAPES[0], True)] if plan.full else [])]
    await throughput.standalone(plan, "throughput-standalone-2000", 2_000, pods, tuple(variants))


async def _api_bound(plan: Plan) -> None:
    """The part of `throughput-standalone` that has these rows, for one shape."""
    pods = plan.backlog(500, 3_500)
    await throughput.standalone(plan, "throughput-standalone", 500, pods, ((SHAPES[0], False),))


async def _extender(plan: Plan) -> None:
    await throughput.with_extender(plan, "throughput-extender", 500, plan.backlog(500, 3_500))


async def _extender_5000(plan: Plan) -> None:
    pods = plan.backlog(200, 1_000)
    await throughput.with_extender(plan, "throughput-extender-5000", 5_000, pods)


async def _growth_plot(plan: Plan) -> None:
    """With BENCH_FULL all sizes and the plot; else only the row that is to be reached."""
    sizes, svg = (SIZES, SVG) if plan.full else ((SMALL, LARGE), None)
    await growth_plot(plan, sizes, plan.backlog(300, 1_000), svg)


# In the order in which they run.
BENCHES: dict[str, Bench] = {
    "allocator": allocator,
    "cel": cel,
    "growth": _listed(growth),
    "indexed-job": _listed(indexed_job),
    "filter-latency": _listed(filter_latency),
    "memory": _listed(memory),
    "throughput-standalone": _standalone,
    "throughput-standalone-2000": _standalone_2000,
    "throughput-extender": _extender,
    "throughput-extender-5000": _extender_5000,
    "growth-plot": _growth_plot,
    "herd": herd,
}
# Asked for by name only: their rows are in others, or say nothing of speed.
PARTS: dict[str, Bench] = {"api-bound": _api_bound, "crossings": _listed(crossings)}


class Rows:
    """Prints rows and counts those that fall short."""

    def __init__(self) -> None:
        self.missed = 0

    def report(self, row: Row) -> None:
        print(row.line(), flush=True)
        self.missed += row.is_ok is False


def run_all(benches: Mapping[str, Bench], plan: Plan) -> list[str]:
    """Run benches one after the other; one that fails does not keep the others from running. Returns those that failed."""
    failed = []
    for name, bench in benches.items():
        began = time.monotonic()
        try:
            asyncio.run(_run(bench, plan))
        except BenchFailedError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed.append(name)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return failed


async def _run(bench: Bench, plan: Plan) -> None:
    await bench(plan)


def main() -> int:
    """Run what the command line names."""
    every = {**BENCHES, **PARTS}
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--bench", choices=sorted(every))
    parser.add_argument("--full", action="store_true", help="three repetitions, long backlogs")
    parser.add_argument("--data-dir", help="folder of the openb trace")
    parser.add_argument("--pods", type=int, help="length of the backlogs of the throughput benches")
    options = parser.parse_args()
    rows = Rows()
    plan = Plan(rows.report, 3 if options.full else 1, options.full, options.pods)
    chosen = {options.bench: every[options.bench]} if options.bench else BENCHES
    failed = run_all(chosen, plan)
    print(f"{rows.missed} rows below what is to be reached", file=sys.stderr)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
