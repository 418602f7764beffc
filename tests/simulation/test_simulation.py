"""Fixed seeds of the simulation, and what it promises: the same seed, the same run; planted bugs are found."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.invariants import judge, read_trace, write_trace
from tests.simulation.crashes import Case, cases, run_case
from tests.simulation.judge import terms_of
from tests.simulation.plan import FAULTS, make_plan
from tests.simulation.planted import PLANTED, find, planted_in
from tests.simulation.run import Report, never_happened, run_jobs, show
from tests.simulation.world import Outcome, collect_garbage, quiet_interpreter, run_plan

SEEDS = range(1, 25)
# Each has found a bug of ours; and those that came with one.
REGRESSIONS = [(50, True), (33, True), (37, True)]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with quiet_interpreter():
        yield


def outcome_of(seed: int, *, liveness: bool, trace: bool = False) -> Outcome:
    return run_plan(make_plan(seed, liveness=liveness), keep_trace=trace)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_breaks_no_rule(seed: int) -> None:
    found = outcome_of(seed, liveness=seed % 2 == 0).findings
    assert found == [], "\n".join(map(str, found))


@pytest.mark.parametrize(("seed", "liveness"), REGRESSIONS)
def test_a_seed_that_once_found_something_finds_it_no_more(seed: int, *, liveness: bool) -> None:
    found = outcome_of(seed, liveness=liveness).findings
    assert found == [], "\n".join(map(str, found))


def test_the_same_seed_is_the_same_run() -> None:
    first, second = (outcome_of(7, liveness=False) for _ in range(2))
    assert first.digest == second.digest
    assert first.steps == second.steps


def test_a_stored_trace_is_judged_as_the_run_was(tmp_path: Path) -> None:
    bug = PLANTED["no-finalizer"]
    with planted_in(bug):
        outcome = outcome_of(1, liveness=False, trace=True)
    path = tmp_path / "trace.jsonl"
    write_trace(path, outcome.trace)
    assert outcome.findings
    assert judge(read_trace(path), terms_of(path)) == outcome.findings


@pytest.mark.parametrize(
    "name", ["no-finalizer", "no-reservation", "bound-before-written", "no-holds"]
)
def test_a_planted_bug_is_found(name: str) -> None:
    assert find(PLANTED[name], range(1, 10)) is not None


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_can_be_planted(name: str) -> None:
    with planted_in(PLANTED[name]):
        pass


def test_there_are_as_many_crashes_as_promised() -> None:
    every = list(cases())
    assert len(every) == len(set(map(str, every))) >= 120


@pytest.mark.parametrize("case", list(cases())[::24], ids=str)
def test_a_crash_at_a_write_leaves_nothing_behind(case: Case) -> None:
    assert run_case(case) == []


def test_every_fault_is_in_some_plan() -> None:
    plans = [make_plan(seed, liveness=False) for seed in range(300)]
    drawn = Counter(name for plan in plans for name in plan.faults)
    assert drawn.keys() == FAULTS.keys()
    assert any(not plan.faults for plan in plans)


def test_a_report_tells_how_to_run_a_seed_again(capsys: pytest.CaptureFixture[str]) -> None:
    with planted_in(PLANTED["no-finalizer"]):
        report = run_jobs([(1, False)])
    assert show(report, 1.0, gates=False) == 1
    printed = capsys.readouterr().out
    assert "FAILED: python -m tests.simulation.run --seed 1 --mode safety" in printed
    assert any("S7" in text for _, found in report.failures for text in found)


def test_a_long_run_fails_when_something_never_happened(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert show(Report(runs=1), 1.0, gates=False) == 0
    assert show(Report(runs=1), 1.0, gates=True) == 1
    assert "F9 lag: never happened" in capsys.readouterr().out
    assert "F9 lag" in never_happened(Counter())
    collect_garbage()
