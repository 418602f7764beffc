"""Webhook calls of several pods in every order a seed makes, with the faults and the judge of the binder's interleavings.

kube-scheduler asks again before an earlier call has ended (its time limit), does not bind what it filtered, and binds
what it filtered long ago; with and without forced choice.
"""

import asyncio
import os
from typing import Any

import pytest

from scheduler.api.extender_v1 import BindArgs, FilterArgs
from scheduler.engine.engine import Engine
from scheduler.extender.holds import HOLD_SECONDS, Holds
from scheduler.extender.service import ExtenderService
from scheduler.model import Pod
from tests.scheduler.binder.test_interleavings import NODES, Play
from tests.scheduler.embedded import World, world

SEEDS = int(os.environ.get("DRA_INTERLEAVINGS", "30"))


class Calls(Play):
    """One seed, through the webhooks."""

    def __init__(self, here: World, seed: int) -> None:
        super().__init__(here, seed)
        self.holds = Holds(here.cache, self.clock) if self.rng.random() < 0.5 else None
        if self.holds is not None:
            here.cache.subscribe(self.holds.observe)
        self.service = ExtenderService(
            cache=here.cache,
            binder=self.binder,
            engine=Engine(here.environment),
            clock=self.clock,
            wakeup=None,
            holds=self.holds,
        )

    def attempt(self, name: str) -> Any:
        """One cycle of kube-scheduler."""
        pod = self.here.cache.pod_by_name("default", name)
        return None if pod is None or pod.spec.node_name else self.cycle(pod)

    async def cycle(self, pod: Pod) -> object:
        """Filter, perhaps prioritize, perhaps bind."""
        count = len(NODES) if self.is_healed else self.rng.randint(1, len(NODES))
        names = self.rng.sample(sorted(NODES), count)
        answer = await self.service.filter(FilterArgs(pod, names))
        if not answer.node_names:
            return answer
        chosen = self.rng.choice(answer.node_names)
        if self.holds is None and len(answer.node_names) > 1:
            await self.service.prioritize(FilterArgs(pod, list(answer.node_names)))
        if not self.is_healed:
            for _ in range(self.rng.choice([0, 1, 20, 100])):
                await asyncio.sleep(0)
            if self.rng.random() < 0.2:
                return "not bound"
        meta = pod.metadata
        return await self.service.bind(
            BindArgs(
                pod_name=meta.name,
                pod_namespace=meta.namespace,
                pod_uid=meta.uid,
                node=chosen,
            )
        )

    async def heal(self) -> None:
        """As for the binder; holds end by themselves."""
        self.clock.offset += HOLD_SECONDS + 1
        if self.holds is not None:
            self.holds.release_expired()
        await super().heal()
        if self.holds is not None and len(self.holds):
            self.clock.offset += HOLD_SECONDS + 1
            self.holds.release_expired()
            assert not len(self.holds)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_order_of_calls_breaks_a_bind(seed: int) -> None:
    async with world() as here:
        await here.cluster(*NODES.items())
        play = Calls(here, seed)
        await play.run()
        assert not play.problems, "\n".join([*play.problems, *play.log])
