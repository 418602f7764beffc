"""Profiling a process: behind a switch, at the health address alone, and no reason to end slowly."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from allocator.features import Features
from scheduler.bootstrap.build import build_core
from scheduler.bootstrap.process import Process
from scheduler.cli.config_file import load_settings
from scheduler.config import Settings
from scheduler.flight_recorder.replay import replay
from scheduler.framework.environment import Mode
from scheduler.profiler import Profile
from tests.scheduler.bootstrap.test_process import Leader, Running, free_port
from tests.scheduler.embedded import World, world

DEPLOY = Path(__file__).parents[3] / "deploy"


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        await made.cluster(("node-1", 2))
        yield made


@asynccontextmanager
async def extender(here: World, *, enabled: bool, recorded: bool = False) -> AsyncIterator[Running]:
    settings = Settings(
        bind_address=f"127.0.0.1:{free_port()}",
        health_address=f"127.0.0.1:{free_port()}",
        enable_profiling=enabled,
        enable_flight_recorder=recorded,
    )
    core = build_core(
        settings, here.admin, Leader(), Features(), here.clock, random.Random(3), Mode.EXTENDER
    )
    stop = asyncio.Event()
    running = Running(core, Process(core, Mode.EXTENDER, stop), stop)
    try:
        await running.ready()
        yield running
    finally:
        stop.set()
        await asyncio.gather(running.task, return_exceptions=True)


async def test_profiling_is_off_by_default(here: World) -> None:
    assert Settings().enable_profiling is False
    async with extender(here, enabled=False) as made:
        assert (await made.get("/debug/profile?seconds=1")).status_code == 404


async def test_switched_on_it_is_at_the_health_address_alone(here: World) -> None:
    async with extender(here, enabled=True) as made:
        assert (await made.get("/debug/profile?seconds=0")).status_code == 400
        async with httpx.AsyncClient() as client:
            webhooks = f"http://{made.core.settings.bind_address}"
            assert (await client.get(f"{webhooks}/debug/profile?seconds=0")).status_code == 404


async def test_a_process_that_is_told_to_end_does_not_wait_for_a_profile(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def take(seconds: float, stop: threading.Event) -> Profile:
        loop.call_soon_threadsafe(begun.set)
        return Profile({("cut short",): 1}, seconds) if stop.wait(seconds) else Profile({}, seconds)

    async with extender(here, enabled=True) as made:
        monkeypatch.setattr(made.process._profiling, "_take", take)
        profile = asyncio.create_task(made.get("/debug/profile?seconds=60"))
        await begun.wait()
        async with asyncio.timeout(3.0):
            assert await made.end() == 0
            answer = await profile
        assert (answer.status_code, answer.text) == (200, "cut short 1\n")


def configurations() -> list[Path]:
    return sorted(DEPLOY.rglob("config.yaml"))


@pytest.mark.parametrize("file", configurations(), ids=lambda file: file.parent.name)
def test_the_manifests_leave_it_off(file: Path, tmp_path: Path) -> None:
    text = yaml.safe_load(file.read_text())["data"]["config.yaml"]
    written = tmp_path / "config.yaml"
    written.write_text(text)
    assert load_settings(str(written), {}).enable_profiling is False


# --- the flight recorder, behind a switch of its own


async def test_without_the_switch_nothing_is_recorded(here: World) -> None:
    assert Settings().enable_flight_recorder is False
    async with extender(here, enabled=True) as made:
        assert made.core.engine.observer is None
        assert (await made.get("/debug/recording")).status_code == 404


async def test_switched_on_the_recording_can_be_fetched_and_replayed(here: World) -> None:
    async with extender(here, enabled=False, recorded=True) as made:
        await here.claim("c")
        await here.pod("p", "c")
        await here.settled()
        pod = await here.known_pod("p")
        made.core.engine.place(pod, made.core.cache, "node-1", from_memory=False)
        answer = await made.get("/debug/recording")
        assert answer.status_code == 200
        [decision] = replay(answer.content.splitlines())
        assert decision.pod == pod.key
        assert decision.recorded.startswith("node node-1 ")
        assert decision.is_same
