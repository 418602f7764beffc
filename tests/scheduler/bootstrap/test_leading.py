"""Beginning to lead, ending to lead, and what happens to work on the way."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from scheduler.binder import Epochs
from scheduler.bootstrap import process as process_module
from scheduler.client import Rejected, WriteOutcome
from scheduler.framework.environment import Mode
from scheduler.model import EPOCH_ANNOTATION, Kind
from tests.scheduler.bootstrap.test_process import Leader, Running, running
from tests.scheduler.embedded import World, claims_path, pods_path, world


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        await made.cluster(("node-1", 2))
        yield made


class Shaky(Leader):
    """Follows a crashed leader; the lease comes and goes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.holds = True

    def is_leader(self) -> bool:
        return self.holds

    def can_write(self, now: float) -> bool:
        return self.holds


# --- a takeover -------------------------------------------------------------------------------------------------------


async def test_a_sweep_that_the_lease_did_not_last_for_is_done_again(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.bootstrap.process.QUARANTINE_SECONDS", 0.02)
    await here.claim("c")
    await here.pod("p", "c")
    leader = Shaky(needs_sweep=True, epoch=7)
    leader.holds = False
    async with running(here, Mode.EXTENDER, leader) as made:
        await made.core.reflectors.synced.wait()
        await asyncio.sleep(0.2)
        assert made.process.details()["active"] is False
        leader.holds = True
        await made.ready()
        stored = await here.get(claims_path("c"))
        assert stored["metadata"]["annotations"][EPOCH_ANNOTATION] == "7"


async def test_claims_are_listed_afresh_after_a_clean_change_of_leader_too(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Kind] = []
    async with running(here, Mode.EXTENDER, Leader(epoch=2)) as made:
        relist = made.core.reflectors.relist

        async def count(kind: Kind) -> None:
            asked.append(kind)
            await relist(kind)

        monkeypatch.setattr(made.core.reflectors, "relist", count)
        await made.ready()
        assert asked == [Kind.RESOURCE_CLAIM]


async def test_claims_of_an_earlier_installation_can_still_be_bound(here: World) -> None:
    """Its Lease is gone, and with it the count of its epochs; its stamps are not."""
    await here.claim("c", annotations={EPOCH_ANNOTATION: "41"})
    await here.pod("p", "c")
    async with running(here, Mode.STANDALONE, Leader(epoch=1)) as made:
        await made.ready()
        assert made.process.details()["epoch"] == 42
        for _ in range(300):
            if (await here.get(pods_path("p")))["spec"].get("nodeName"):
                break
            await asyncio.sleep(0.01)
        stored = await here.get(claims_path("c"))
        assert stored["metadata"]["annotations"][EPOCH_ANNOTATION] == "42"
        assert (await here.get(pods_path("p")))["spec"]["nodeName"] == "node-1"


@pytest.mark.parametrize(
    ("lease", "stamps", "epoch"),
    [
        (3, [], 3),
        (3, ["2", "3"], 3),
        (3, ["9", "4"], 10),
        (0, ["9"], 0),
        (3, ["9" * 5000, "-8", "x", "٩", ""], 3),
        (3, [str(2**31)], 3),
        (3, [str(2**31 - 1), "5"], 6),
        (3, ["1003"], 1004),
        (3, ["1004"], 3),
    ],
)
def test_an_epoch_is_above_every_stamp_that_is_one(
    lease: int, stamps: list[str], epoch: int
) -> None:
    epochs = Epochs(lambda: lease)
    epochs.rise_above([None, {}, *({EPOCH_ANNOTATION: stamp} for stamp in stamps)])
    assert epochs() == epoch


# --- the end ----------------------------------------------------------------------------------------------------------


async def begin_bind(here: World, made: Running) -> "asyncio.Task[httpx.Response]":
    pod = await here.get(pods_path("p"))
    body = {
        "PodName": "p",
        "PodNamespace": "default",
        "PodUID": pod["metadata"]["uid"],
        "Node": "node-1",
    }

    async def call() -> httpx.Response:
        async with httpx.AsyncClient() as client:
            url = f"http://{made.core.settings.bind_address}/bind"
            return await client.post(url, json=body, timeout=20.0)

    return asyncio.create_task(call())


def hold_status(here: World, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Writes of claim status wait for the event."""
    gate = asyncio.Event()
    write = here.admin.write

    async def wait(method: str, path: str, body: bytes, **options: Any) -> WriteOutcome:
        if path.endswith("c/status") and method == "PUT":
            await gate.wait()
        return await write(method, path, body, **options)

    monkeypatch.setattr(here.admin, "write", wait)
    return gate


async def test_a_bind_under_way_at_the_end_is_finished_answered_and_only_then_the_lease_released(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader()
    await here.claim("c")
    await here.pod("p", "c")
    async with running(here, Mode.EXTENDER, leader) as made:
        await made.ready()
        gate = hold_status(here, monkeypatch)
        call = await begin_bind(here, made)
        while not made.core.binder.open_chains:
            await asyncio.sleep(0.01)
        made.stop.set()
        await asyncio.sleep(0.1)
        assert not leader.released
        gate.set()

        assert (await call).json() == {"Error": ""}
        assert await made.task == 0
        assert leader.released


async def test_the_lease_is_released_after_whoever_renews_it_has_ended(here: World) -> None:
    ended: list[str] = []

    class Ordered(Leader):
        async def run(self, on_started: Any, on_stopped: Any) -> None:
            try:
                await super().run(on_started, on_stopped)
            finally:
                ended.append("election")

        async def release(self) -> None:
            ended.append("release")

    async with running(here, Mode.EXTENDER, Ordered()) as made:
        await made.ready()
        assert await made.end() == 0
    assert ended == ["election", "release"]


async def test_calls_are_served_until_endpoints_know_that_we_end(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "LAG_SECONDS", 0.5)
    monkeypatch.setattr(process_module, "is_loopback", lambda _address: False)
    await here.pod("p")
    async with running(here, Mode.EXTENDER) as made:
        await made.ready()
        made.stop.set()
        await asyncio.sleep(0.1)
        assert made.process.ready() == ["shutting down"]
        assert made.process.unavailable() is None
        assert await made.task == 0
        assert made.process.unavailable() is not None


async def test_an_address_in_use_ends_the_process_with_an_error(here: World) -> None:
    async with running(here, Mode.EXTENDER) as first:
        await first.ready()
        async with running(here, Mode.EXTENDER) as second:
            second.core.settings = first.core.settings
            async with asyncio.timeout(5.0):
                assert await second.task == 1


async def test_a_stamp_that_is_refused_again_and_again_is_said(
    here: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("scheduler.bootstrap.process.QUARANTINE_SECONDS", 0.0)
    monkeypatch.setattr("scheduler.binder.retry.FIRST_SECONDS", 0.001)
    monkeypatch.setattr("scheduler.binder.retry.CAP_SECONDS", 0.01)
    await here.claim("c")
    await here.pod("p", "c")
    write = here.admin.write

    async def refuse(method: str, path: str, body: bytes, **options: Any) -> WriteOutcome:
        if method == "PATCH" and path.endswith("/c"):
            return Rejected(403, "Forbidden", "no patch of resourceclaims")
        return await write(method, path, body, **options)

    monkeypatch.setattr(here.admin, "write", refuse)
    async with running(here, Mode.EXTENDER, Leader(needs_sweep=True, epoch=7)) as made:
        await made.core.reflectors.synced.wait()
        for _ in range(200):
            if "no patch of resourceclaims" in caplog.text:
                break
            await asyncio.sleep(0.01)
        assert "no patch of resourceclaims" in caplog.text
        assert made.process.details()["active"] is False
