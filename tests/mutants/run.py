"""Do the tests notice? Changes `scheduler/` in one place at a time: `python -m tests.mutants.run --count 80 --seed 1`.

First every test runs once, and notes which lines it runs (kept for later runs with --map). Each mutant then gets the
tests that run its line, the fewest lines first, until one fails; one that survives them gets all tests. What survives
all is listed, unless it is in `accepted.py` with the reason why it changes nothing. Exit code 1 when fewer than 95 % are
caught.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Final, NamedTuple

from coverage import CoverageData

from tests.mutants.accepted import ACCEPTED
from tests.mutants.operators import Mutant, compiling, mutants_of

ROOT: Final = Path(__file__).parents[2]
AREAS: Final = (
    "binder",
    "cache",
    "reflectors",
    "scheduling_queue.py",
    "leader",
    "extender",
    "standalone",
    "engine",
    "plugins",
    "framework",
    "api",
)
REACH: Final = 0.95
_COPIED: Final = ("allocator", "scheduler", "tests", "e2e", "deploy", "docs", "examples")
_FILES: Final = ("pyproject.toml", "README.md")
_SECONDS: Final = 600  # of one run of tests; whoever needs longer hangs, and that is noticed
_FIRST: Final = 150  # tests that run the line, before all of them


class Result(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    verdict: str

    @property
    def is_caught(self) -> bool:
        """Whether a test failed, or would never end."""
        return self.verdict.startswith("caught")


class Lines:
    """Which tests run which lines."""

    def __init__(self, path: Path) -> None:
        self._data = CoverageData(str(path))
        self._data.read()
        self._of: dict[str, Mapping[int, Sequence[str]]] = {}
        self._weight: dict[str, int] = {}
        for file in self._data.measured_files():
            contexts = self._data.contexts_by_lineno(file)
            self._of[str(Path(file).relative_to(ROOT))] = contexts
            for tests in contexts.values():
                for test in tests:
                    self._weight[test] = self._weight.get(test, 0) + 1

    def tests(self, mutant: Mutant) -> list[str]:
        """Tests that run the line of a mutant, those that run least first."""
        found = {test for test in self._of.get(mutant.file, {}).get(mutant.line, ()) if test}
        ordered = sorted(found, key=lambda test: (self._weight[test], test))
        return list(dict.fromkeys(test.partition("|")[0] for test in ordered))


def drawn(count: int, rng: random.Random) -> list[Mutant]:
    """As many mutants of each area, each file of it with the same chance for each of its changes."""
    by_area: list[list[Mutant]] = []
    for area in AREAS:
        path = ROOT / "scheduler" / area
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        every: list[Mutant] = []
        for file in files:
            text = file.read_text()
            every.extend(compiling(mutants_of(str(file.relative_to(ROOT)), text), text))
        rng.shuffle(every)
        by_area.append(every)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(by_area):
        for every in by_area:
            if every and len(chosen) < count:
                chosen.append(every.pop())
    return chosen


def copied(to: Path) -> None:
    """The project, in a place where it can be changed."""
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__", "oracle")
            )
    for name in _FILES:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, to / name)


def fails(tree: Path, tests: Iterable[str]) -> str:
    """How a run of tests ends: empty when all pass."""
    arguments = tree / "arguments.txt"
    arguments.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not integration", f"@{arguments}"]
    try:
        run = subprocess.run(
            command,
            cwd=tree,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin", "HOME": str(tree)},
        )
    except subprocess.TimeoutExpired:
        return "caught: the tests hang"
    return "" if run.returncode in (0, 5) else "caught"


def judge(mutant: Mutant, lines: Lines, tree: Path) -> Result:
    """Change the tree, run tests, change it back."""
    if (mutant.file, mutant.what) in ACCEPTED:
        return Result(mutant, f"accepted: {ACCEPTED[mutant.file, mutant.what]}")
    path = tree / mutant.file
    text = path.read_text()
    path.write_text(mutant.applied(text))
    try:
        tests = lines.tests(mutant)
        verdict = fails(tree, tests[:_FIRST]) if tests else ""
        if not verdict and len(tests) > _FIRST:
            verdict = fails(tree, tests[_FIRST:])
        if not verdict:
            verdict = fails(tree, ["tests"])
            verdict = verdict and f"{verdict}, but by no test that runs the line"
    finally:
        path.write_text(text)
    return Result(mutant, verdict or ("SURVIVED" if tests else "SURVIVED, no test runs the line"))


def map_lines(path: Path) -> None:
    """Run every test once and note the lines it runs."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"),
        *("-m", "not integration", "--cov=scheduler", "--cov-context=test", "--cov-report="),
        "tests",
    ]
    subprocess.run(command, cwd=ROOT, check=True, env=_environment(path))


def _environment(path: Path) -> dict[str, str]:
    import os

    return {**os.environ, "COVERAGE_FILE": str(path), "PYTHONPATH": str(ROOT)}


def main() -> int:
    """Draw, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--map", type=Path, help="file of lines and tests; made if it is not there")
    given = parser.parse_args()
    path = given.map or Path(tempfile.mkdtemp()) / "lines.coverage"
    if not path.exists():
        map_lines(path)
    lines = Lines(path)
    chosen = drawn(given.count, random.Random(given.seed))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        trees: Queue[Path] = Queue()
        for number in range(given.jobs):
            tree = Path(folder) / str(number)
            copied(tree)
            trees.put(tree)

        def one(mutant: Mutant) -> Result:
            tree = trees.get()
            try:
                result = judge(mutant, lines, tree)
            finally:
                trees.put(tree)
            print(f"{mutant.file}:{mutant.line}: {mutant.what}: {result.verdict}", flush=True)
            return result

        results = list(pool.map(one, chosen))
    counted = [each for each in results if not each.verdict.startswith("accepted")]
    caught = sum(each.is_caught for each in counted)
    share = caught / len(counted) if counted else 1.0
    print(f"{caught} of {len(counted)} mutants caught ({share:.1%}), seed {given.seed}")
    print(f"{len(results) - len(counted)} more change nothing, for the reasons given")
    return 0 if share >= REACH else 1


if __name__ == "__main__":
    sys.exit(main())
