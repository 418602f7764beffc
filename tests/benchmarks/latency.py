"""`filter-latency`: /filter over HTTP at 5,000 nodes x 8 devices, the first question and the same after a change."""

import asyncio
import statistics
import time

import httpx
import msgspec
import orjson

from allocator.model.hooks import enc_hook
from e2e.harness.process import free_port
from scheduler.clock import SystemClock
from scheduler.engine import Engine
from scheduler.extender.app import ExtenderApp
from scheduler.extender.service import ExtenderService
from scheduler.framework.environment import Mode
from scheduler.web.server import make_server
from tests.benchmarks.inmemory import BigCluster, environment
from tests.benchmarks.row import Row

NODES = 5_000
WARM_CALLS = 60


class _NoBinds:
    """Filter asks the binder only how busy it is, and whether the pod is being bound."""

    open_chains = 0

    def chain(self, _uid: str) -> None:
        """No bind is under way."""


async def filter_latency(repetitions: int) -> list[Row]:
    """Milliseconds as the caller sees them."""
    first: list[float] = []
    again: list[float] = []
    for _ in range(repetitions):
        cold, warm = await _measure()
        first.append(cold * 1000)
        again.append(statistics.quantiles(warm, n=100)[98] * 1000)
    shape = f"/filter over HTTP, {NODES} nodes x 8 devices"
    return [
        Row("filter-latency", f"{shape}, first question", first, None, "ms", "lower", 50.0),
        Row(
            "filter-latency",
            f"{shape}, same question after one node changed, p99 of {WARM_CALLS}",
            again,
            None,
            "ms",
            "lower",
            5.0,
        ),
    ]


async def _measure() -> tuple[float, list[float]]:
    cluster = BigCluster(NODES)
    clock = SystemClock()
    engine = Engine(environment(Mode.EXTENDER))
    engine.follow(cluster.cache)
    for _ in engine.warm(cluster.cache.snapshot()):  # as the process does before it is ready
        pass
    service = ExtenderService(
        cache=cluster.cache,
        binder=_NoBinds(),  # type: ignore[arg-type]  # nothing is bound here
        engine=engine,
        clock=clock,
        wakeup=None,
    )
    app = ExtenderApp(service, unavailable=lambda: None, clock=clock).create()
    port = free_port()
    server = make_server(app, f"127.0.0.1:{port}")
    task = asyncio.create_task(server.serve())
    await server.wait_started()
    pods = [cluster.add_pod(f"pod-{index}") for index in range(WARM_CALLS + 1)]
    bodies = [
        orjson.dumps(
            {
                "Pod": msgspec.to_builtins(each, enc_hook=enc_hook),
                "Nodes": None,
                "NodeNames": cluster.names,
            }
        )
        for each in pods
    ]
    warm = []
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            # Connections are kept alive; the first one is not what is measured.
            await client.post(
                "/filter", content=b"{}", headers={"content-type": "application/json"}
            )
            cold = await _call(client, bodies[0])
            for index, body in enumerate(bodies[1:]):
                cluster.set_devices(cluster.names[index], 2)
                warm.append(await _call(client, body))
    finally:
        server.should_exit = True
        await task
    return cold, warm


async def _call(client: httpx.AsyncClient, body: bytes) -> float:
    began = time.perf_counter()
    response = await client.post(
        "/filter", content=body, headers={"content-type": "application/json"}
    )
    seconds = time.perf_counter() - began
    if len(response.json().get("NodeNames") or ()) < NODES - 1:
        raise RuntimeError(response.text[:200])
    return seconds
