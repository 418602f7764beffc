"""Another writer that gives away a device of ours is noticed: a metric, and a warning on both claims (F32)."""

import random

import orjson

from allocator.features import Features
from scheduler.bootstrap.build import Core, build_core
from scheduler.clock import SystemClock
from scheduler.config import Settings
from scheduler.framework.environment import Mode
from scheduler.lab.apiserver.client import EmbeddedClient
from scheduler.lab.apiserver.server import ApiServer
from scheduler.leader import AlwaysLeader
from scheduler.model import Kind
from tests.builders import consumes, counter_set, device, resource_slice
from tests.scheduler.cache.objects import allocation, at, event, record


def make_core() -> Core:
    clock = SystemClock()
    client = EmbeddedClient(ApiServer.create(clock, random.Random(1)), clock)
    return build_core(
        Settings(), client, AlwaysLeader(), Features(), clock, random.Random(2), Mode.EXTENDER
    )


def count(core: Core) -> float:
    lines = core.metrics.render()[0].decode().splitlines()
    [line] = [each for each in lines if each.startswith("dra_scheduler_foreign_allocation_total ")]
    return float(line.split()[1])


async def warnings(core: Core) -> list[tuple[str, str]]:
    """(claim, reason) of the Warning events that have been written."""
    await core.events.drain()
    found = orjson.loads(await core.client.get("/apis/events.k8s.io/v1/namespaces/default/events"))
    return sorted(
        (item["regarding"]["name"], item["reason"])
        for item in found["items"]
        if item["type"] == "Warning"
    )


async def test_a_second_claim_with_a_written_device_is_counted_and_both_are_warned() -> None:
    core = make_core()
    core.cache.apply(event(record("ours", 10, "gpu-0"), Kind.RESOURCE_CLAIM, "ADDED"))
    assert count(core) == 0

    core.cache.apply(event(record("theirs", 11, "gpu-0"), Kind.RESOURCE_CLAIM, "ADDED"))
    assert count(core) == 1
    assert await warnings(core) == [
        ("ours", "ForeignAllocation"),
        ("theirs", "ForeignAllocation"),
    ]
    core.cache.apply(event(record("theirs", 12, "gpu-0"), Kind.RESOURCE_CLAIM))
    assert count(core) == 1


async def test_a_foreign_claim_with_a_device_that_is_only_held_is_counted() -> None:
    core = make_core()
    ours = record("ours", 10)
    core.cache.apply(event(ours, Kind.RESOURCE_CLAIM, "ADDED"))
    core.cache.hold("pod", {ours.claim.metadata.uid: (ours.claim, allocation("gpu-0"))})
    assert count(core) == 0

    core.cache.apply(event(record("theirs", 11, "gpu-0"), Kind.RESOURCE_CLAIM, "ADDED"))
    assert count(core) == 1
    assert ("theirs", "ForeignAllocation") in await warnings(core)


async def test_a_partition_of_a_card_that_is_used_up_is_counted_and_both_are_warned() -> None:
    """fault core 08: what claims share is given away twice too."""
    core = make_core()
    parts = [device(name, consumes=[consumes("card", memory=6)]) for name in ("p0", "p1")]
    card = resource_slice("card", *parts, counters=[counter_set("card", memory=10)])
    core.cache.apply(event(at(card, 5), Kind.RESOURCE_SLICE, "ADDED"))
    core.cache.apply(event(record("ours", 10, "p0"), Kind.RESOURCE_CLAIM, "ADDED"))
    core.cache.apply(event(record("theirs", 11, "p1"), Kind.RESOURCE_CLAIM, "ADDED"))
    core.cache.apply(event(record("theirs", 12, "p1"), Kind.RESOURCE_CLAIM))

    assert count(core) == 1
    assert await warnings(core) == [
        ("ours", "ForeignAllocation"),
        ("theirs", "ForeignAllocation"),
    ]


async def test_a_device_that_was_free_in_between_is_no_conflict() -> None:
    core = make_core()
    core.cache.apply(event(record("ours", 10, "gpu-0"), Kind.RESOURCE_CLAIM, "ADDED"))
    core.cache.apply(event(record("ours", 11), Kind.RESOURCE_CLAIM))
    core.cache.apply(event(record("theirs", 12, "gpu-0"), Kind.RESOURCE_CLAIM, "ADDED"))

    assert count(core) == 0
    assert await warnings(core) == []
