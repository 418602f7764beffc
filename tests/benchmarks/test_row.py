import orjson
import pytest

from tests.benchmarks.row import Row


def _row(ours, peer, *, better="higher", reach=None):
    return Row("b", "s", ours, peer, "pods/s", better, reach)


def test_the_ratio_is_that_of_the_medians():
    assert _row([1.0, 30.0, 6.0], [3.0, 1.0, 2.0]).ratio == 3.0


def test_without_a_peer_or_with_a_peer_of_zero_there_is_no_ratio():
    assert _row([1.0], None).ratio is None
    assert _row([1.0], [0.0]).ratio is None


@pytest.mark.parametrize(
    ("ours", "peer", "better", "reach", "is_ok"),
    [
        ([7.0], [10.0], "higher", 0.7, True),
        ([6.9], [10.0], "higher", 0.7, False),
        ([5.0], [1.0], "lower", 5.0, True),
        ([5.1], [1.0], "lower", 5.0, False),
        ([1.9], None, "lower", 2.0, True),
        ([2.1], None, "lower", 2.0, False),
        ([1.0], [1.0], "higher", None, None),
        ([1.0], [0.0], "higher", 0.7, None),
    ],
)
def test_a_row_is_ok_when_its_ratio_or_without_a_peer_its_figure_reaches(
    ours, peer, better, reach, is_ok
):
    assert _row(ours, peer, better=better, reach=reach).is_ok is is_ok


def test_the_line_holds_all_runs_and_the_spread_of_ours():
    line = orjson.loads(_row([10.0, 12.5], [5.0, 6.0], reach=0.7).line())
    assert line["runs"] == [{"ours": 10.0, "peer": 5.0}, {"ours": 12.5, "peer": 6.0}]
    assert (line["ours"], line["peer"], line["spread"], line["ok"]) == (11.25, 5.5, 2.5, True)
    assert {"bench", "shape", "ratio", "better", "reach"} <= line.keys()


def test_a_line_without_a_peer_says_null():
    line = orjson.loads(_row([1.0], None).line())
    assert line["peer"] is None
    assert line["runs"] == [{"ours": 1.0, "peer": None}]
