import pytest

from tests.benchmarks.plan import BenchFailedError, Plan, Series, report_all
from tests.benchmarks.row import Row


async def _figure(value):
    return value


async def _fails():
    raise ValueError("broken")


async def test_a_repetition_that_fails_on_one_side_is_left_out_of_the_row_and_the_others_stay(
    capsys,
):
    series = Series("b")
    await series.take("ours", 0, _figure(4.0))
    assert not await series.take("peer", 0, _fails())
    assert await series.take("ours", 1, _figure(6.0))
    await series.take("peer", 1, _figure(2.0))
    row = series.row("s", "ours", "peer", reach=0.7)
    assert row is not None
    assert (row.ours, row.peer) == ([6.0], [2.0])
    assert "peer, repetition 1: ValueError: broken" in capsys.readouterr().err


async def test_figures_of_one_repetition_stand_side_by_side_whatever_came_first():
    series = Series("b")
    for repetition in (1, 0):
        series.keep("peer", repetition, 10.0 + repetition)
    for repetition in (0, 1):
        series.keep("ours", repetition, 20.0 + repetition)
    assert series.pairs("ours", "peer") == ([20.0, 21.0], [10.0, 11.0])


def test_a_row_of_which_nothing_was_measured_is_not_reported():
    series = Series("b")
    series.keep("ours", 0, 1.0)
    reported: list[Row] = []
    report_all(
        Plan(reported.append), [series.row("s", "ours", "peer"), series.row("s", "ours", None)]
    )
    assert [(row.ours, row.peer) for row in reported] == [([1.0], None)]


async def test_a_bench_with_a_failure_says_so_at_its_end(capsys):
    series = Series("b")
    series.end()
    await series.take("ours", 0, _fails())
    with pytest.raises(BenchFailedError, match="ours, repetition 1: ValueError: broken"):
        series.end()


@pytest.mark.parametrize(
    ("pods", "full", "length"), [(None, False, 7), (None, True, 35), (3, False, 3), (3, True, 3)]
)
def test_the_command_line_decides_how_long_a_backlog_is(pods, full, length):
    assert Plan(print, full=full, pods=pods).backlog(7, 35) == length
