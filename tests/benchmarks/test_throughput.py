import pytest

from tests.benchmarks import throughput
from tests.benchmarks.backlog import SHAPES
from tests.benchmarks.plan import BenchFailedError, Plan, Series
from tests.benchmarks.row import Row
from tests.benchmarks.run import Rows, run_all


def _series(name, **figures):
    series = Series(name)
    for side, figure in figures.items():
        series.keep(side.replace("_", " "), 0, figure)
    return series


def _standalone(name, *, finalizers=False):
    reported: list[Row] = []
    figures = {
        "ours": 400.0,
        "in-tree": 100.0,
        "bare": 500.0,
        "ours_first": 1.5,
        "in-tree_first": 3.0,
    }
    throughput.report_standalone(
        Plan(reported.append), _series(name, **figures), 9, 8, SHAPES[0], finalizers=finalizers
    )
    return [(row.bench, row.ratio, row.reach, row.is_ok) for row in reported], reported


def test_stand_alone_is_set_against_in_tree_and_against_the_bare_writes():
    figures, rows = _standalone("throughput-standalone", finalizers=True)
    assert figures == [("throughput-standalone", 4.0, None, None), ("api-bound", 0.8, 0.7, True)]
    assert rows[0].notes["wanted"] == 3
    assert "two bare writes" in rows[1].shape
    assert all("finalizer at creation" in row.shape for row in rows)


def test_in_the_larger_cluster_the_time_to_the_first_bind_counts_too():
    figures, rows = _standalone("throughput-standalone-2000")
    assert [bench for bench, *_ in figures] == ["throughput-standalone-2000"] * 3
    assert (rows[2].ours, rows[2].unit, rows[2].reach, rows[2].is_ok) == ([1.5], "s", 2.0, True)
    assert rows[0].notes["wanted"] == 6


def test_each_length_of_answer_is_set_against_a_do_nothing_extender_of_the_same_length():
    series = Series("throughput-extender")
    series.keep("in-tree", 0, 80.0)
    series.keep("safe", 0, 72.0)
    for at, answers in enumerate(throughput.ANSWERS):
        series.keep(f"do-nothing, {answers.name}", 0, 100.0 * (at + 1))
        series.keep(f"fast, {answers.name}", 0, 90.0 * (at + 1))
    reported: list[Row] = []
    throughput.report_extender(Plan(reported.append), series, "9 nodes")
    bound = [row for row in reported if row.reach == 0.85]
    assert [row.ratio for row in bound] == [0.9, 0.9, 0.9]
    assert [(row.reach, row.ratio) for row in reported if "safe" in row.shape] == [(0.75, 0.9)]
    assert sum("peer in-tree" in row.shape for row in reported) == 4


@pytest.mark.parametrize(
    ("nodes", "devices", "wanted", "count"),
    [(500, 1, 9_999, 3_500), (500, 2, 9_999, 1_750), (500, 1, 7, 7)],
)
def test_a_backlog_leaves_an_eighth_of_the_devices_free(nodes, devices, wanted, count):
    shape = next(each for each in SHAPES if each.devices == devices)
    assert throughput.fitting_pods(nodes, shape, wanted) == count


def test_a_bench_that_fails_neither_loses_its_rows_nor_keeps_the_next_from_running(capsys):
    async def breaks(plan: Plan) -> None:
        plan.report(Row("first", "s", [1.0], None, "s"))
        raise RuntimeError("in the middle")

    async def has_gaps(_: Plan) -> None:
        raise BenchFailedError("one repetition")

    async def works(plan: Plan) -> None:
        plan.report(Row("last", "s", [1.0], [2.0], "s", reach=0.7))

    rows = Rows()
    benches = {"breaks": breaks, "gaps": has_gaps, "works": works}
    assert run_all(benches, Plan(rows.report)) == ["breaks", "gaps"]
    printed = capsys.readouterr()
    assert [line[:16] for line in printed.out.splitlines()] == [
        '{"bench":"first"',
        '{"bench":"last",',
    ]
    assert "in the middle" in printed.err
    assert rows.missed == 1
