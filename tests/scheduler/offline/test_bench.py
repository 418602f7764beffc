"""Measuring the engine: what is counted and timed, with a clock that only the test moves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allocator.features import Features
from scheduler.offline.bench import (
    CALLS,
    Figures,
    Times,
    Work,
    Workload,
    as_tree,
    measure,
    measure_filter,
    peak_rss_bytes,
    times,
    workload_of,
)
from scheduler.offline.listed import ListedCluster
from scheduler.offline.manifests import Manifest
from scheduler.offline.simulate import SimulationOptions, environment_of, in_order, simulate
from scheduler.offline.synthetic import synthetic_lists
from tests.scheduler.offline.cluster import Json, claim, device_class, gpus, node, pod, slice_

OPTIONS = SimulationOptions(features=Features())


class Ticks:
    """A clock on which everything that is timed takes one second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def quiet(_what: str, _done: int, _total: int) -> None:
    """Nobody watches."""


def synthetic(nodes: int, devices: int, pods: int) -> Figures:
    workload = Workload(source="synthetic", lists=synthetic_lists(nodes, devices, pods))
    return measure(workload, OPTIONS, Ticks(), quiet)


def manifests(*objects: Json) -> list[Manifest]:
    return [Manifest("in.yaml", number, obj) for number, obj in enumerate(objects, 1)]


def of_manifests(*objects: Json) -> Figures:
    return measure(workload_of(manifests(*objects), OPTIONS), OPTIONS, Ticks(), quiet)


def test_every_pod_of_a_synthetic_cluster_that_is_big_enough_is_placed():
    figures = synthetic(nodes=3, devices=2, pods=6)
    decisions = figures.decisions
    assert (figures.nodes, figures.devices, figures.pods) == (3, 6, 6)
    assert (decisions.placed, decisions.refused, decisions.failed) == (6, 0, 0)
    assert decisions.work.searches >= 1
    assert decisions.work.lookups >= decisions.work.searches


def test_pods_that_do_not_fit_are_counted_and_measured_too():
    decisions = synthetic(nodes=2, devices=1, pods=5).decisions
    assert (decisions.placed, decisions.refused, decisions.failed) == (2, 3, 0)
    assert decisions.per_second == 1.0  # five decisions of a second each
    assert decisions.one == Times(1000.0, 1000.0, 1000.0)


def test_filter_is_asked_about_all_nodes_and_then_again_after_each_change():
    filtered = synthetic(nodes=4, devices=2, pods=1).filter
    assert filtered is not None
    assert (filtered.nodes, filtered.calls, filtered.first_ms) == (4, CALLS, 1000.0)
    assert filtered.again == Times(1000.0, 1000.0, 1000.0)
    assert filtered.work.lookups == 4 * (CALLS + 1)


def test_what_has_not_changed_is_answered_from_memory():
    """At most the changed node of each call is searched again."""
    filtered = synthetic(nodes=50, devices=2, pods=1).filter
    assert filtered is not None
    assert filtered.work.searches <= 50 + CALLS
    assert filtered.work.from_memory >= 49 * CALLS


def test_the_filter_calls_leave_the_cluster_as_it_was():
    """Each node loses its only device in one call: were it not given back, nothing would fit."""
    decisions = synthetic(nodes=CALLS, devices=1, pods=CALLS).decisions
    assert decisions.placed == CALLS


OBJECTS = [
    node("a"),
    node("b"),
    gpus("a", 1),
    gpus("b", 1),
    device_class(),
    claim("one"),
    claim("two"),
    claim("three"),
    pod("p1", claims=["one"]),
    pod("p2", claims=["two"]),
    pod("p3", claims=["three"]),
]


def test_manifests_are_the_cluster_and_their_pods_the_workload():
    figures = of_manifests(*OBJECTS)
    assert (figures.source, figures.nodes, figures.devices, figures.pods) == ("manifests", 2, 2, 3)
    assert (figures.decisions.placed, figures.decisions.refused) == (2, 1)


def test_pods_that_run_already_hold_their_node_and_are_no_workload():
    running = pod("p1", claims=["one"])
    running["spec"]["nodeName"] = "a"
    held = claim("one")
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    held["status"] = {"allocation": {"devices": {"results": [result]}}}
    rest = [obj for obj in OBJECTS if obj["metadata"]["name"] not in ("one", "p1")]
    figures = of_manifests(held, running, *rest)
    assert figures.pods == 2
    assert (figures.decisions.placed, figures.decisions.refused) == (1, 1)


def test_pods_are_decided_in_the_order_of_simulate():
    urgent = pod("p3", claims=["three"])
    urgent["spec"]["priority"] = 10
    objects = [*OBJECTS[:-1], urgent]
    workload = workload_of(manifests(*objects), OPTIONS)
    cluster = ListedCluster(workload.lists, Ticks())
    ordered = [each.metadata.name for each in in_order(cluster.cache.pods())]
    assert ordered == [each.name for each in simulate(manifests(*objects), OPTIONS).pods]
    assert ordered[0] == "p3"


def test_versions_of_manifests_do_not_matter():
    objects = []
    for number, obj in enumerate(OBJECTS):
        metadata = {**obj["metadata"], "resourceVersion": f"{10**6 - number}"}
        objects.append({**obj, "metadata": metadata})
    assert of_manifests(*objects).decisions.placed == 2


def test_objects_left_out_are_told():
    bad = slice_("a", {"name": "NOT A NAME"}, name="bad")
    workload = workload_of(manifests(*OBJECTS, bad), OPTIONS)
    assert [error.object for error in workload.errors] == ["ResourceSlice/bad"]


def filter_of(*objects: Json) -> Any:
    workload = workload_of(manifests(*objects), OPTIONS)
    cluster = ListedCluster(workload.lists, Ticks())
    pods = in_order(cluster.cache.pods())
    return measure_filter(cluster, environment_of(OPTIONS), pods, Ticks(), quiet, calls=2)


@pytest.mark.parametrize(
    ("objects", "is_asked"),
    [
        pytest.param(
            [*OBJECTS[:5], pod("p1", claims=["missing"])], False, id="its claim is missing"
        ),
        pytest.param([*OBJECTS[:5], pod("p1")], True, id="a pod without claims"),
        pytest.param(
            [device_class(), claim("one"), pod("p1", claims=["one"])], False, id="no nodes"
        ),
        pytest.param(
            [*OBJECTS[:6], pod("p1", claims=["missing"]), pod("p2", claims=["one"])],
            True,
            id="the second one can be",
        ),
    ],
)
def test_filter_needs_a_pod_that_can_be_asked_about(objects, is_asked):
    assert (filter_of(*objects) is not None) is is_asked


def test_progress_is_told_between_the_things_that_are_timed():
    told: list[tuple[str, int, int]] = []
    clock = Ticks()
    is_even = []

    def progress(what: str, done: int, total: int) -> None:
        told.append((what, done, total))
        is_even.append(clock.now % 2 == 0)  # a pair of looks for each thing timed

    workload = Workload(source="synthetic", lists=synthetic_lists(2, 1, 2))
    measure(workload, OPTIONS, clock, progress)
    assert told[0] == ("start-up", 0, 1)
    assert told[1] == ("filter", 0, CALLS + 1)
    assert told[-2:] == [("decisions", 0, 2), ("decisions", 1, 2)]
    assert all(is_even)


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        pytest.param([], Times(0.0, 0.0, 0.0), id="nothing"),
        pytest.param([0.002], Times(2.0, 2.0, 2.0), id="one"),
        pytest.param([0.003, 0.001], Times(1.0, 3.0, 3.0), id="two, in any order"),
        pytest.param([n / 1000 for n in range(1, 101)], Times(50.0, 99.0, 100.0), id="a hundred"),
        pytest.param(
            [n / 1000 for n in range(1, 201)], Times(100.0, 198.0, 200.0), id="two hundred"
        ),
    ],
)
def test_percentiles_are_by_nearest_rank(seconds, wanted):
    assert times(seconds) == wanted


@pytest.mark.parametrize(("lookups", "searches", "from_memory"), [(10, 3, 7), (0, 0, 0), (3, 4, 0)])
def test_what_was_not_searched_for_came_from_memory(lookups, searches, from_memory):
    assert Work(lookups, searches).from_memory == from_memory


def test_peak_memory_is_read_from_where_the_system_says_it(tmp_path: Path):
    status = tmp_path / "status"
    status.write_text("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n")
    assert peak_rss_bytes(status) == 2048 * 1024
    status.write_text("Name:\tx\n")
    assert peak_rss_bytes(status) is None
    asked = peak_rss_bytes(tmp_path / "nowhere")
    assert asked is None or asked > 2**20


def test_figures_as_plain_data():
    figures = synthetic(nodes=2, devices=1, pods=2)
    tree = as_tree(replace(figures, peak_rss_bytes=5))
    assert list(tree) == ["python", "cluster", "startup", "filter", "decisions", "peakRssBytes"]
    assert tree["cluster"] == {"source": "synthetic", "nodes": 2, "devices": 2, "pods": 2}
    # Five kinds of one page each; an index of each, and the snapshot.
    assert tree["startup"] == {
        "seconds": 11.0,
        "decodeSeconds": 5.0,
        "indexSeconds": 6.0,
        "objects": 9,
    }
    assert tree["decisions"]["perSecond"] == 1.0
    assert as_tree(replace(figures, filter=None))["filter"] is None
