from xml.etree import ElementTree

import pytest

from tests.benchmarks.plot import HEIGHT, WIDTH, Line, Plot, number, ticks

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (5_000, [0, 1_000, 2_000, 3_000, 4_000, 5_000]),
        (97, [0, 20, 40, 60, 80, 100]),
        (6, [0, 1, 2, 3, 4, 5, 6]),
        (0.3, [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (0, [0, 1]),
    ],
)
def test_ticks_are_round_and_reach_the_highest_value(highest, expected):
    assert ticks(highest) == expected


@pytest.mark.parametrize("highest", [0.007, 1, 13, 99.9, 100.1, 12_345, 7e6])
def test_there_are_a_handful_of_ticks_whatever_the_scale(highest):
    found = ticks(highest)
    assert found[-1] >= highest * 0.999
    assert 3 <= len(found) <= 8


def test_numbers_are_written_for_readers():
    assert [number(5_000), number(0.25), number(100.0)] == ["5,000", "0.25", "100"]


def _plot(*lines):
    return Plot("A <title>", "nodes", "pods a second", list(lines))


def _drawn():
    ours = Line("ours", [])
    for nodes, figures in ((100, [400.0]), (5_000, [390.0, 410.0, 400.0])):
        ours.add(nodes, figures)
    peer = Line("peer", [])
    peer.add(100, [90.0])
    peer.add(2_000, [])  # nothing was measured there
    peer.add(5_000, [30.0])
    return ElementTree.fromstring(_plot(ours, peer).svg())


def test_a_plot_has_axes_with_numbers_labels_and_a_legend():
    texts = {text.text for text in _drawn().iter(f"{_SVG}text")}
    assert {"A <title>", "nodes", "pods a second", "ours", "peer"} <= texts
    assert {"0", "5,000", "400", "100"} <= texts


def test_each_line_joins_its_medians_and_left_out_points_are_not_drawn():
    lines = [line.get("points", "").split() for line in _drawn().iter(f"{_SVG}polyline")]
    assert [len(points) for points in lines] == [2, 2]
    (_, first), (_, last) = (map(float, point.split(",")) for point in lines[0])
    assert first == last  # 400 at both ends


def test_higher_figures_are_further_up_and_larger_clusters_further_right():
    ours, peer = (line.get("points", "").split() for line in _drawn().iter(f"{_SVG}polyline"))
    places = [[tuple(map(float, point.split(","))) for point in line] for line in (ours, peer)]
    assert places[0][0][1] < places[1][0][1]
    assert places[0][0][0] < places[0][1][0]
    for x, y in (*places[0], *places[1]):
        assert 0 < x <= WIDTH
        assert 0 < y < HEIGHT


def test_nothing_measured_is_nothing_to_draw():
    with pytest.raises(ValueError, match="nothing"):
        _plot(Line("ours", [])).svg()
