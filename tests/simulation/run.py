"""Runs seeds: `python -m tests.simulation.run --seeds 1-100 --mode both`; `--seed 7 --trace FILE` runs one again."""

import argparse
import time
from collections import Counter
from pathlib import Path

from tests.invariants import write_trace
from tests.simulation.plan import make_plan
from tests.simulation.world import collect_garbage, plan_facts, quiet_interpreter, run_plan


def main() -> int:
    with quiet_interpreter():
        return run()


def run() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mode", choices=("safety", "liveness", "both"), default="both")
    parser.add_argument("--trace", type=Path)
    options = parser.parse_args()
    if options.seed is not None:
        seeds = [options.seed]
    else:
        first, last = options.seeds.split("-")
        seeds = list(range(int(first), int(last) + 1))
    total: Counter[str] = Counter()
    began = time.monotonic()
    steps = operations = failed = 0
    for number, seed in enumerate(seeds):
        if number % 8 == 7:
            collect_garbage()
        modes = {"safety": [False], "liveness": [True], "both": [seed % 2 == 0]}[options.mode]
        for liveness in modes:
            outcome = run_plan(make_plan(seed, liveness=liveness), keep_trace=bool(options.trace))
            total += outcome.happened
            steps += outcome.steps
            operations += outcome.operations
            if outcome.findings:
                failed += 1
                mode = "liveness" if liveness else "safety"
                print(f"FAILED: python -m tests.simulation.run --seed {seed} --mode {mode}")
                for finding in outcome.findings[:8]:
                    print("   ", finding)
            if options.trace:
                write_trace(options.trace, outcome.trace)
                print(plan_facts(outcome.plan))
    seconds = time.monotonic() - began
    print(
        f"{len(seeds)} seeds, {steps} steps, {operations} operations, {failed} failed, {seconds:.1f} s"
    )
    for name, count in sorted(total.items()):
        print(f"  {count:6} {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
