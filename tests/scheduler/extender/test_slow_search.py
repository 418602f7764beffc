"""A claim that no search can settle quickly: the webhooks answer in time, and others are served meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from scheduler.bootstrap.build import build_environment
from scheduler.config import Settings
from scheduler.framework.environment import Mode
from tests.scheduler.embedded import World, world
from tests.scheduler.extender.test_extender import Extender
from tests.scheduler.standalone.test_slow_search import hostile_cluster


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        await hostile_cluster(made)
        await made.settled()
        environment = build_environment(
            Settings(), made.environment.features, made.clock, made.rng, Mode.EXTENDER
        )
        made.environment = environment
        yield made


async def test_filter_gives_up_in_time_and_serves_others_meanwhile(here: World) -> None:
    extender = Extender(here, search_seconds=1.0)
    await here.pod("hostile", "hostile")
    await here.claim("c")
    await here.pod("p", "c")

    hostile = asyncio.create_task(extender.filter("hostile", "node-1", "node-2"))
    await asyncio.sleep(0.2)
    assert (await extender.filter("p", "node-1"))["NodeNames"] == ["node-1"]
    assert await extender.bind("p", "node-1") == ""
    assert not hostile.done()
    async with asyncio.timeout(5.0):
        assert "timed out" in (await hostile)["Error"]


def at_once() -> bool:
    """No search may take any time in the loop: what fits is found by the worker."""
    return True


async def test_bind_of_a_slow_claim_is_decided_beside_the_loop(here: World) -> None:
    here.environment = replace(here.environment, start_deadline=lambda: at_once)
    extender = Extender(here, search_seconds=5.0)
    await here.claim("c")
    await here.pod("p", "c")

    assert (await extender.filter("p", "node-1"))["NodeNames"] == ["node-1"]
    assert await extender.bind("p", "node-1") == ""
