"""`make bench`: runs benchmarks and prints one JSON object a line."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from tests.benchmarks import throughput
from tests.benchmarks.growth import growth
from tests.benchmarks.herd import herd
from tests.benchmarks.latency import filter_latency
from tests.benchmarks.memory import memory
from tests.benchmarks.row import Row

Bench = Callable[[int, int | None], Awaitable[list[Row]]]

BENCHES: dict[str, Bench] = {
    "throughput-standalone": lambda n, pods: throughput.standalone(500, pods or 3_500, n, shapes=3),
    "throughput-standalone-2000": lambda n, pods: throughput.standalone(
        2_000, pods or 2_000, n, shapes=1
    ),
    "throughput-extender": lambda n, pods: throughput.with_extender(500, pods or 3_500, n),
    "growth": lambda n, _: growth(n),
    "filter-latency": lambda n, _: filter_latency(n),
    "memory": lambda n, _: memory(n),
    "herd": lambda n, _: herd(n),
}


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--bench", choices=sorted(BENCHES))
    parser.add_argument("--full", action="store_true", help="three repetitions")
    parser.add_argument("--data-dir", help="folder of the openb trace")
    parser.add_argument("--pods", type=int, help="a shorter backlog for the throughput benches")
    options = parser.parse_args()
    names = [options.bench] if options.bench else list(BENCHES)
    missed = 0
    for name in names:
        for row in asyncio.run(_run(BENCHES[name], 3 if options.full else 1, options.pods)):
            print(row.line(), flush=True)
            missed += row.is_ok is False
    print(f"{missed} rows below what is to be reached", file=sys.stderr)
    return 0


async def _run(bench: Bench, repetitions: int, pods: int | None) -> list[Row]:
    return await bench(repetitions, pods)


if __name__ == "__main__":
    sys.exit(main())
