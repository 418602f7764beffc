"""Text that one tenant may store stops nobody: claims of others flow past it, and a restart reads everything (fault core 03)."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson

from scheduler.api.rawjson import find
from scheduler.cache.cluster import ClusterCache
from scheduler.client import ApiClient, Committed
from scheduler.clock import SystemClock
from scheduler.model import Kind
from scheduler.reflectors import ClaimBarrier, Reflectors
from tests.contract.api import Api, Json, allocation, claim
from tests.odd_json import TEXTS, config, with_text

DRIVER = "gpu.example.com"
PATIENCE_SECONDS = 20.0


class Following:
    """A cache that follows claims and classes of a server."""

    def __init__(self, client: ApiClient) -> None:
        self.cache = ClusterCache()
        kinds = (Kind.RESOURCE_CLAIM, Kind.DEVICE_CLASS)
        clock = SystemClock()
        self.reflectors = Reflectors(client, self.cache, clock, random.Random(1), kinds=kinds)
        self.barrier = ClaimBarrier(self.cache)

    def names(self, namespace: str) -> set[str]:
        return {
            each.metadata.name
            for each in self.cache.claims()
            if each.metadata.namespace == namespace
        }


@asynccontextmanager
async def following(client: ApiClient) -> AsyncIterator[Following]:
    made = Following(client)
    task = asyncio.create_task(made.reflectors.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await made.reflectors.synced.wait()
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def send(api: Api, method: str, path: str, body: bytes) -> bytes:
    outcome = await api.client.write(method, path, body)
    assert isinstance(outcome, Committed), (path, outcome)
    return outcome.body


async def with_parameters(api: Api, name: str, text: bytes) -> None:
    obj = claim(name)
    obj["spec"]["devices"]["config"] = [config(driver=DRIVER)]
    await send(api, "POST", api.claims(), with_text(obj, text))


async def with_data(api: Api, name: str, text: bytes) -> None:
    """A claim of which a driver says something odd."""
    stored = orjson.loads(await send(api, "POST", api.claims(), orjson.dumps(claim(name))))
    device = {"driver": DRIVER, "pool": "node-1", "device": "gpu-0", "data": "@@"}
    status: Json = {"allocation": allocation(), "devices": [device]}
    body = with_text({**stored, "status": status}, text)
    await send(api, "PUT", f"{api.claims(name)}/status", body)


async def test_claims_of_others_flow_past_odd_ones_and_a_restart_reads_them_all(api: Api) -> None:
    class_name = api.unique("odd")
    classes = "/apis/resource.k8s.io/v1/deviceclasses"
    expected = {"before", "after"}
    async with following(api.client) as running:
        await api.claim("before")
        for number, text in enumerate(TEXTS.values()):
            await with_parameters(api, f"parameters-{number}", text)
            await with_data(api, f"data-{number}", text)
            expected |= {f"parameters-{number}", f"data-{number}"}
        odd_class = {"metadata": {"name": class_name}, "spec": {"config": [config(driver=DRIVER)]}}
        text = next(iter(TEXTS.values()))
        await send(api, "POST", classes, with_text(odd_class, text))
        after = await api.claim("after")

        assert await running.barrier.reached(after.version, PATIENCE_SECONDS)
        assert running.names(api.namespace) == expected
        assert running.cache.unreadable_count() == 0
        assert running.reflectors.problems() == []

        async with following(api.client) as restarted:
            assert restarted.names(api.namespace) == expected
            assert restarted.cache.unreadable_count() == 0
            assert restarted.cache.device_class(class_name) is not None
            kind = Kind.RESOURCE_CLAIM
            assert restarted.cache.digest()[kind] == running.cache.digest()[kind]

        for number, text in enumerate(TEXTS.values()):
            record = running.cache.claim_record(api.namespace, f"parameters-{number}")
            assert record is not None
            (entry,) = record.claim.spec.devices.config or ()
            assert entry.opaque is not None
            # As the server shows it, and so as it may be sent back.
            assert bytes(entry.opaque.parameters) == text
            shown = await api.client.get(api.claims(f"parameters-{number}"))
            assert text in shown
            assert find(record.raw, "metadata", "managedFields") is None
            for name in (f"parameters-{number}", f"data-{number}"):
                await api.client.write("DELETE", api.claims(name), b"")
        last = await api.claim("last")
        assert await running.barrier.reached(last.version, PATIENCE_SECONDS)
        assert running.names(api.namespace) == {"before", "after", "last"}
    await send(api, "DELETE", f"{classes}/{class_name}", b"")


async def test_a_comparison_with_the_metadata_that_the_server_lists_finds_nothing_missing(
    api: Api,
) -> None:
    async with following(api.client) as running:
        for number in range(3):
            await api.claim(f"a{number}")
        after = await api.claim("after")
        assert await running.barrier.reached(after.version, PATIENCE_SECONDS)
        assert await running.reflectors.differences(Kind.RESOURCE_CLAIM) == set()
