"""How fast cel-python's interpreter is at the same selectors: `python -m tests.benchmarks.cel_python_speed`.

Prints one JSON object with CPU microseconds: `{"evaluate", "compile", "prepare"}`, and how many devices match. A process of its own,
because making an environment sets the recursion limit of the whole process. Its transpiler is left out: it fails where a guard such
as `has(x.a) && x.a == 1` is false.
"""

import json
import time
from collections.abc import Callable

import celpy

from tests.benchmarks.cel_speed import body, common_selectors
from tests.conformance.cel_python_worker import device

_DEVICES = 200
_COMPILATIONS = 5


def _microseconds(run: Callable[[], object], count: int) -> float:
    """CPU time of each of so many, in the best of three rounds."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def main() -> None:
    """Measure and print."""
    environment = celpy.Environment()
    selectors = common_selectors()
    bodies = [body(at) for at in range(_DEVICES)]
    devices = [device(each) for each in bodies]
    programs = [environment.program(environment.compile(text)) for text in selectors]
    matches = [program.evaluate({"device": each}) for program in programs for each in devices]
    figures = {
        "matches": sum(map(bool, matches)),
        "evaluate": _microseconds(
            lambda: [program.evaluate({"device": each}) for program in programs for each in devices], len(matches)
        ),
        "compile": _microseconds(
            lambda: [environment.program(environment.compile(text)) for text in selectors * _COMPILATIONS],
            len(selectors) * _COMPILATIONS,
        ),
        "prepare": _microseconds(lambda: list(map(device, bodies)), len(bodies)),
    }  # fmt: skip
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
