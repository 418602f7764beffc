"""What is under way is on /metrics: claims decided, claims written and not seen, binds, who leads."""

import random

from allocator.features import Features
from scheduler.bootstrap.build import Core, build_core
from scheduler.clock import SystemClock
from scheduler.config import Settings
from scheduler.framework.environment import Mode
from scheduler.framework.plan import Plan
from scheduler.lab.apiserver.client import EmbeddedClient
from scheduler.lab.apiserver.server import ApiServer
from scheduler.leader import AlwaysLeader
from tests.pods import pod
from tests.scheduler.cache.objects import allocation, record


def shown(core: Core) -> dict[str, float]:
    values = {}
    for line in core.metrics.render()[0].decode().splitlines():
        name, _, value = line.removeprefix("dra_scheduler_").partition(" ")
        if name in ("in_flight_claims", "assumed_claims", "open_binds", "leader"):
            values[name] = float(value)
    return values


async def test_what_is_under_way_is_shown_for_as_long_as_it_is() -> None:
    clock = SystemClock()
    client = EmbeddedClient(ApiServer.create(clock, random.Random(1)), clock)
    core = build_core(
        Settings(), client, AlwaysLeader(), Features(), clock, random.Random(2), Mode.STANDALONE
    )
    nothing = {"in_flight_claims": 0, "assumed_claims": 0, "open_binds": 0, "leader": 1}
    assert shown(core) == nothing

    core.cache.hold("pod", {"uid-c": (record("c", 1).claim, allocation("gpu-0"))})
    core.cache.assume_claim(record("c", 2, "gpu-0"))
    core.cache.assume_claim(record("d", 3))
    chain = core.binder.start(Plan(pod=pod("p"), node_name="n1"))
    assert shown(core) == {
        "in_flight_claims": 1,
        "assumed_claims": 2,
        "open_binds": 1,
        "leader": 1,
    }

    await core.binder.wait(chain)  # there is no such pod
    core.cache.release("pod")
    for uid in ("uid-c", "uid-d"):
        core.cache.restore_claim(uid)
    assert shown(core) == nothing
