"""The process dies at each write of a bind, before or after it commits; the next one finishes, with no manual step (S15)."""

import asyncio
import contextlib
from typing import Any

import pytest

from scheduler import cycle
from scheduler.binder import BindOutcome
from scheduler.cache.cluster import ClusterCache
from scheduler.client import Rejected
from scheduler.config import BindSettings
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plan import plan_of
from scheduler.model import FINALIZER
from scheduler.reflectors.reflectors import Reflectors
from tests.scheduler.embedded import Faulty, World, claims_path, pods_path, world


class KilledError(BaseException):
    """The process is gone: nothing is undone, answered or remembered."""


async def bind(here: World) -> BindOutcome:
    pod = await here.known_pod("p")
    state = cycle.pre_filter(pod, here.cache, here.environment)
    assert isinstance(state, CycleState), state
    for node in ("node-1", "node-2"):
        verdict = cycle.filter_node(state, state.snapshot.nodes[node])
        if verdict.fits:
            chain = here.binder.start(plan_of(state, node, verdict))
            return await here.binder.wait(chain)
    raise AssertionError("no node fits")


def kill_at(here: World, number: int, *, committed: bool) -> None:
    """Die at this write, and send nothing any more."""
    left = [number]

    async def fault(method: str, path: str, body: bytes) -> None:
        left[0] -= 1
        if left[0] > 0:
            return
        if left[0] == 0 and committed:
            await here.client.send(method, path, body)
        raise KilledError

    here.client.faults.append(fault)


def restarted(here: World) -> World:
    """A new process on the same cluster."""
    made = World()
    made.server, made.admin, made.client = here.server, here.admin, Faulty(here.admin)
    made.cache = ClusterCache()
    made.reflectors = Reflectors(made.admin, made.cache, made.clock, made.rng)
    made.binder = made.make_binder(BindSettings())
    return made


@pytest.mark.parametrize("claims", [1, 3])
@pytest.mark.parametrize("committed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 10))
@pytest.mark.parametrize("is_undone", [False, True], ids=["bound", "undone"])
async def test_a_crash_at_any_write_is_made_good_by_the_next_process(
    claims: int, number: int, *, committed: bool, is_undone: bool
) -> None:
    names = [f"c{index}" for index in range(claims)]
    async with world() as here:
        await here.cluster(("node-1", 3), ("node-2", 3))
        for name in names:
            await here.claim(name)
        await here.pod("p", *names)
        if is_undone:

            def refuse(_method: str, path: str, _body: bytes) -> Any:
                return Rejected(403, "Forbidden", "no") if path.endswith("binding") else None

            here.client.faults.append(refuse)
        kill_at(here, number - is_undone, committed=committed)
        with contextlib.suppress(KilledError):
            await bind(here)
        again = restarted(here)
        following = asyncio.create_task(again.reflectors.run())
        try:
            await again.reflectors.synced.wait()
            if not (await again.known_pod("p")).spec.node_name:
                assert (await bind(again)).is_bound
            await judge(again, names)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def judge(here: World, names: list[str]) -> None:
    await here.settled()
    pod = await here.get(pods_path("p"))
    devices = []
    for name in names:
        claim = await here.get(claims_path(name))
        assert claim["metadata"]["finalizers"] == [FINALIZER]
        assert [entry["uid"] for entry in claim["status"]["reservedFor"]] == [
            pod["metadata"]["uid"]
        ]
        [result] = claim["status"]["allocation"]["devices"]["results"]
        assert result["pool"] == pod["spec"]["nodeName"]
        devices.append(result["device"])
    assert len(set(devices)) == len(names)
    assert (here.cache.in_flight_claims, here.cache.assumed_claims) == (0, 0)
