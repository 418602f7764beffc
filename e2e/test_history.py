"""The history holds what really happened, and says who did it; and the sweeps draw what they promise."""

from __future__ import annotations

from collections import Counter

import pytest

from e2e.crashes import MODES, PHASES, WRITES, all_points, drawn_points
from e2e.harness.api import CLAIMS, Object
from e2e.harness.cluster import Cluster
from e2e.harness.disturbances import ALL
from e2e.harness.history import History
from e2e.harness.objects import FINALIZER
from e2e.harness.outcome import end_state
from e2e.harness.proxy import FaultProxy
from e2e.harness.target import Target
from e2e.test_judge import allocated_claim, sound_world
from tests.invariants import Judge, Terms


def test_the_first_points_have_every_write_and_a_sweep_has_all() -> None:
    for seed in range(5):
        points = drawn_points(seed)
        assert {point.write for point in points[: len(WRITES)]} == set(WRITES)
        assert Counter(points) == Counter(all_points())
    assert {point.phase for point in all_points()} == set(PHASES)
    assert {point.mode for point in all_points()} == set(MODES)
    assert len({each.name for each in ALL}) == len(ALL)


def test_an_end_differs_in_everything_but_the_names_of_devices() -> None:
    world = sound_world()
    before = end_state(world["pods"], world["claims"])

    [result] = world["claims"][0]["status"]["allocation"]["devices"]["results"]
    result["device"] = "another"
    assert end_state(world["pods"], world["claims"]) == before

    result["pool"] = "of another node"
    assert end_state(world["pods"], world["claims"]) != before
    result["pool"] = "n1"
    world["claims"].append(allocated_claim("left over", "gpu-7", "x"))
    assert end_state(world["pods"], world["claims"]) != before


@pytest.mark.own_plane
@pytest.mark.modes("standalone")
async def test_a_history_knows_who_wrote_and_hears_of_what_is_forbidden(
    faulty: Cluster, target: Target, proxy: FaultProxy
) -> None:
    await faulty.add_nodes(1, devices=2)
    async with History.running(target.admin) as history:
        history.listen(proxy, "dra-scheduler")
        judge = Judge(Terms())
        await faulty.claim("mine")
        await faulty.pod("a", claims={"gpu": "mine"})
        await faulty.bound("a")
        await history.caught_up()
        assert history.hear(judge) == []
        [ours] = judge.cluster.allocator.values()
        assert ours == "dra-scheduler"

        # What nobody may do, in our name.
        body: Object = {"metadata": {"finalizers": None}}
        written = await target.admin.patch(CLAIMS, "mine", body, namespace=faulty.namespace)
        assert FINALIZER not in (written["metadata"].get("finalizers") or [])
        history.blame(int(written["metadata"]["resourceVersion"]), "dra-scheduler")
        await history.caught_up()
        assert [finding.rule for finding in history.hear(judge)] == ["S7"]

        again: Object = {"metadata": {"finalizers": [FINALIZER]}}
        await target.admin.patch(CLAIMS, "mine", again, namespace=faulty.namespace)
    proxy.listeners.clear()
    faulty.tolerated.add("S7")
