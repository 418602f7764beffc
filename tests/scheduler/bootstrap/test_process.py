"""A process from start to end, against the embedded API server."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from allocator.features import Features
from scheduler.bootstrap.build import Core, build_core, detect_version
from scheduler.bootstrap.process import Process, run_extender
from scheduler.config import LeaderElectionSettings, Settings, TLSSettings
from scheduler.framework.environment import Mode
from scheduler.leader import AlwaysLeader, LeadershipLostError
from scheduler.model import EPOCH_ANNOTATION
from tests.scheduler.embedded import World, claims_path, pods_path, world


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Leader(AlwaysLeader):
    """A leadership that a test takes away, or that follows a crashed leader."""

    def __init__(self, *, needs_sweep: bool = False, epoch: int = 0) -> None:
        self.needs_sweep = needs_sweep
        self.epoch = epoch
        self.lost = asyncio.Event()
        self.released = False

    async def run(self, on_started: Any, on_stopped: Any) -> None:
        leading = asyncio.create_task(on_started())
        try:
            await self.lost.wait()
        finally:
            on_stopped()
            leading.cancel()
        raise LeadershipLostError("lost in a test")

    async def release(self) -> None:
        self.released = True


class Running:
    """A process under test."""

    def __init__(self, core: Core, process: Process, stop: asyncio.Event) -> None:
        self.core = core
        self.process = process
        self.stop = stop
        self.task = asyncio.create_task(process.run())

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.get(f"http://{self.core.settings.health_address}{path}")

    async def ready(self) -> None:
        for _ in range(400):
            if self.task.done():
                raise RuntimeError(f"the process has ended: {self.task}")
            if not self.process.ready() and self.process.unavailable() is None:
                return
            await asyncio.sleep(0.01)
        raise RuntimeError("never ready")

    async def end(self) -> int:
        self.stop.set()
        return await self.task


@asynccontextmanager
async def running(here: World, mode: Mode, leader: Leader | None = None) -> AsyncIterator[Running]:
    settings = Settings(
        bind_address=f"127.0.0.1:{free_port()}", health_address=f"127.0.0.1:{free_port()}"
    )
    leadership = leader or Leader()
    core = build_core(
        settings, here.admin, leadership, Features(), here.clock, random.Random(3), mode
    )
    stop = asyncio.Event()
    made = Running(core, Process(core, mode, stop), stop)
    try:
        yield made
    finally:
        made.stop.set()
        await asyncio.gather(made.task, return_exceptions=True)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        await made.cluster(("node-1", 2))
        yield made


async def bound(here: World, name: str) -> str:
    for _ in range(400):
        node: str = (await here.get(pods_path(name)))["spec"].get("nodeName", "")
        if node:
            return node
        await asyncio.sleep(0.01)
    raise RuntimeError("never bound")


async def test_stand_alone_schedules_answers_probes_and_ends_cleanly(here: World) -> None:
    leader = Leader()
    async with running(here, Mode.STANDALONE, leader) as made:
        await made.ready()
        for path in ("/livez", "/readyz", "/startupz", "/healthz"):
            assert (await made.get(path)).status_code == 200
        await here.claim("c")
        await here.pod("p", "c")
        assert await bound(here, "p") == "node-1"
        assert "dra_scheduler_scheduling_attempts_total" in (await made.get("/metrics")).text
        assert (await made.get("/debug/state")).json()["active"] is True

        assert await made.end() == 0
        assert leader.released


async def test_extender_answers_over_http(here: World) -> None:
    async with running(here, Mode.EXTENDER) as made:
        await made.ready()
        await here.claim("c")
        await here.pod("p", "c")
        await asyncio.sleep(0.05)
        args = {"Pod": await here.get(pods_path("p")), "NodeNames": ["node-1"]}
        async with httpx.AsyncClient() as client:
            answer = await client.post(
                f"http://{made.core.settings.bind_address}/filter", json=args
            )
        assert answer.json()["NodeNames"] == ["node-1"]
        assert await made.end() == 0


async def test_a_lost_lease_ends_the_process_with_an_error(here: World) -> None:
    leader = Leader()
    async with running(here, Mode.EXTENDER, leader) as made:
        await made.ready()
        leader.lost.set()
        async with asyncio.timeout(1.0):
            assert await made.task == 1
        assert not leader.released


async def test_a_dead_reflector_ends_the_process_with_an_error(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(here, Mode.EXTENDER) as made:
        await made.ready()

        def broken(*_: Any) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(made.core.cache, "apply", broken)
        await here.claim("c")
        async with asyncio.timeout(2.0):
            assert await made.task == 1


async def test_after_a_crashed_leader_claims_of_pending_pods_are_stamped_first(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.bootstrap.process.QUARANTINE_SECONDS", 0.05)
    await here.claim("wanted", count=9)
    await here.claim("unrelated")
    await here.pod("p", "wanted")
    async with running(here, Mode.STANDALONE, Leader(needs_sweep=True, epoch=7)) as made:
        await made.ready()
        wanted = await here.get(claims_path("wanted"))
        assert wanted["metadata"]["annotations"][EPOCH_ANNOTATION] == "7"
        assert "annotations" not in (await here.get(claims_path("unrelated")))["metadata"]


async def test_the_servers_version_decides_the_gates(here: World) -> None:
    assert await detect_version(here.admin, Settings()) == "1.37"
    settings = Settings()
    pinned = replace(settings, allocation=replace(settings.allocation, kubernetes_version="1.35"))
    assert await detect_version(here.admin, pinned) == "1.35"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(bind_address="0.0.0.0:8888"), "loopback"),
        (
            Settings(leader_election=LeaderElectionSettings(follow_lease="a/b", enabled=True)),
            "leader",
        ),
        (Settings(kubeconfig="/does/not/exist"), "kubeconfig"),
        (Settings(bind_address="nowhere"), "HOST:PORT"),
        (
            Settings(tls=TLSSettings(cert_file="/no/cert", key_file="/no/key")),
            "/",
        ),
    ],
    ids=["plain HTTP", "two leaderships", "kubeconfig", "address", "certificate"],
)
def test_settings_that_cannot_work_are_refused_with_a_line(
    settings: Settings, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if settings.tls.cert_file or settings.kubeconfig == "":
        settings = replace(settings, kubeconfig="/does/not/exist/either")
    assert run_extender(settings) == 2
    printed = capsys.readouterr().err
    assert text in printed
    assert "Traceback" not in printed
