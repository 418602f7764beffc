from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from tests.benchmarks import growth
from tests.benchmarks.plan import BenchFailedError, Plan
from tests.benchmarks.row import Row

_FIGURES = {"in-tree": {500: 80.0, 5_000: 30.0}, "dra-scheduler": {500: 400.0, 5_000: 360.0}}


class _Bench:
    """Knows only how many nodes there are."""

    def __init__(self, nodes, broken):
        self.nodes = nodes
        self.plane = SimpleNamespace(admin=self)
        self.ran = []
        self._broken = broken

    async def run(self, _shape, pods, scheduler, _go):
        self.ran.append((scheduler, self.nodes, pods))
        if self._broken == (scheduler, self.nodes):
            raise RuntimeError("broken")
        return _FIGURES[scheduler][self.nodes]


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Run the bench on a cluster that is only a number: rows, runs, and the plot's path."""

    async def run(*, plot, broken=None):
        made = []

        @asynccontextmanager
        async def bench_with(nodes):
            made.append(_Bench(nodes, broken))
            yield made[0]

        async def add_nodes(bench, numbers):
            assert numbers.start == bench.nodes
            bench.nodes = numbers.stop

        monkeypatch.setattr(growth, "bench_with", bench_with)
        monkeypatch.setattr(growth, "add_nodes", add_nodes)
        rows: list[Row] = []
        svg = tmp_path / "docs" / "growth.svg"
        failed = False
        try:
            sizes = (500, 5_000)
            await growth.growth_plot(Plan(rows.append), sizes, 400, svg if plot else None)
        except BenchFailedError:
            failed = True
        return rows, made[0].ran, svg, failed

    return run


async def test_the_short_run_measures_just_what_the_row_needs(measured):
    rows, ran, svg, _ = await measured(plot=False)
    assert ran == [("in-tree", 500, 400), ("dra-scheduler", 5_000, 400)]
    assert [(row.bench, row.ratio, row.reach, row.is_ok) for row in rows] == [
        ("growth", 4.5, 1.0, True)
    ]
    assert not svg.exists()


async def test_the_long_run_has_a_row_for_each_size_and_draws_both_lines(measured):
    rows, ran, svg, _ = await measured(plot=True)
    assert len(ran) == 4
    assert [(row.bench, row.ratio) for row in rows] == [
        ("growth-plot", 5.0),
        ("growth-plot", 12.0),
        ("growth", 4.5),
    ]
    assert svg.read_text().count("<polyline") == 2


async def test_a_size_that_could_not_be_measured_keeps_its_neighbours_and_the_old_plot(measured):
    rows, _, svg, failed = await measured(plot=True, broken=("dra-scheduler", 500))
    assert [row.bench for row in rows] == ["growth-plot", "growth"]
    assert not svg.exists()
    assert failed
