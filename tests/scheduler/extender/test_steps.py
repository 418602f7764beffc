"""Looking at many nodes is done in steps, between which others are served; the answer is as the cluster is at its end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.cache.changes import ChangeLog
from scheduler.clock import SystemClock
from scheduler.engine import Engine
from scheduler.engine.node_answers import NodeAnswers
from scheduler.extender import service as service_module
from scheduler.framework.cycle_state import CycleState, NodeVerdict
from scheduler.model import NodeInfo
from tests.scheduler.embedded import World, claims_path, world
from tests.scheduler.extender.test_extender import Extender

NODES = tuple(f"node-{number}" for number in range(12))


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        await made.cluster(*((name, 1) for name in NODES))
        yield made


class SkippingClock(SystemClock):
    """Moves on when told, too."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped


class Turns:
    """Counts the turns that the event loop gets, and the nodes looked at in between."""

    def __init__(self, patch: pytest.MonkeyPatch, here: World, seconds_a_node: float) -> None:
        self.looks = 0
        self.most = 0
        clock = SkippingClock()
        here.clock = clock
        whole = NodeAnswers.look

        def look(attempt: NodeAnswers, node: NodeInfo) -> Any:
            self.looks += 1
            self.most = max(self.most, self.looks)
            clock.skipped += seconds_a_node
            return whole(attempt, node)

        patch.setattr(NodeAnswers, "look", look)

    async def watch(self) -> None:
        while True:
            self.looks = 0
            await asyncio.sleep(0)


async def test_the_loop_has_its_turn_while_many_nodes_are_looked_at(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "STEP_NODES", 1)
    turns = Turns(monkeypatch, here, seconds_a_node=0.003)
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    watching = asyncio.create_task(turns.watch())

    answer = await extender.filter("p", *NODES)

    watching.cancel()
    assert answer["NodeNames"] == list(NODES)
    assert turns.most == 3  # three of 3 ms are more than 8 ms


async def test_a_cluster_that_changes_in_every_step_is_answered_all_the_same(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "STEP_NODES", 1)
    monkeypatch.setattr(service_module, "MOST_STEPS", 3)
    monkeypatch.setattr(ChangeLog, "since", lambda *_: None)  # every node, after every change
    turns = Turns(monkeypatch, here, seconds_a_node=0.01)
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    arguments = await extender.args("p", *NODES)
    asked = asyncio.create_task(extender.post("filter", arguments))

    async def change() -> None:
        while not asked.done():
            here.cache.rebuild()
            await asyncio.sleep(0)

    changing = asyncio.create_task(change())
    assert (await asked).json()["NodeNames"] == list(NODES)
    await changing
    assert turns.looks >= len(NODES)


async def test_what_changes_between_two_steps_is_in_the_answer(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "STEP_NODES", 1)
    turns = Turns(monkeypatch, here, seconds_a_node=0.01)
    extender = Extender(here)
    for name in ("c", "other"):
        await here.claim(name)
    await here.pod("p", "c")
    await here.pod("q", "other")
    arguments = await extender.args("p", *NODES)
    asked = asyncio.create_task(extender.post("filter", arguments))
    while turns.looks < 2:  # the first nodes have been looked at: one of them is taken now
        await asyncio.sleep(0)
    engine = Engine(here.environment)
    other = next(each for each in here.cache.pods() if each.metadata.name == "q")
    state = engine.pre_filter(other, here.cache)
    assert isinstance(state, CycleState)
    verdict = engine.filter_node(state, state.snapshot.nodes[NODES[0]])
    assert isinstance(verdict, NodeVerdict)
    claims = {claim.metadata.uid: claim for claim in state.unallocated}
    here.cache.hold("q", {uid: (claims[uid], each) for uid, each in verdict.allocations.items()})
    assert not asked.done()

    assert (await asked).json()["NodeNames"] == list(NODES[1:])


async def test_a_pod_with_an_allocated_claim_is_asked_of_all_nodes_slice_by_slice(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    extender = Extender(here)
    await here.claim("c")
    await here.pod("p", "c")
    assert await extender.bind("p", "node-5") == ""
    await here.pod("q", "c")
    whole = await extender.filter("q", *NODES)
    monkeypatch.setattr(service_module, "SLICE_NODES", 4)

    assert await extender.filter("q", *NODES) == whole
    assert whole["NodeNames"] == ["node-5"]
    scores = (await extender.post("prioritize", await extender.args("q", "node-5"))).json()
    assert scores == [{"Host": "node-5", "Score": 0}]
    assert (await here.get(claims_path("c")))["status"]["allocation"]
