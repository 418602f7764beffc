"""`filter-latency`: /filter over HTTP at 5,000 nodes x 8 devices, the first question and the same after a change."""

import asyncio
import gc
import http.client
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection

import msgspec
import orjson
import uvloop

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
WARM_CALLS = 300


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
    """Seconds of the first call and of the others. The server is a process of its own, as in a cluster."""
    parent, child = multiprocessing.Pipe()
    port = free_port()
    server = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(child, port), daemon=True
    )
    server.start()
    try:
        return await asyncio.to_thread(_ask, parent, port)
    finally:
        parent.send(None)
        server.join(10)


def _ask(server: Connection, port: int) -> tuple[float, list[float]]:
    server.recv()  # it is ready
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    _call(connection, b"{}")  # connections are kept alive; the first one is not what is measured
    seconds = []
    for call in range(WARM_CALLS + 1):
        server.send(call)
        body: bytes = server.recv()
        elapsed, answer = _call(connection, body)
        if len(orjson.loads(answer).get("NodeNames") or ()) < NODES - 1:
            raise RuntimeError(answer[:200])
        seconds.append(elapsed)
    return seconds[0], seconds[1:]


def _call(connection: http.client.HTTPConnection, body: bytes) -> tuple[float, bytes]:
    began = time.perf_counter()
    connection.request("POST", "/filter", body, {"Content-Type": "application/json"})
    answer = connection.getresponse().read()
    return time.perf_counter() - began, answer


def _serve(pipe: Connection, port: int) -> None:
    """The extender over a cluster in memory; a number in the pipe changes a node and asks for the next body."""
    uvloop.run(_serve_until_told(pipe, port))


async def _serve_until_told(pipe: Connection, port: int) -> None:
    cluster = BigCluster(NODES)
    clock = SystemClock()
    engine = Engine(environment(Mode.EXTENDER))
    engine.follow(cluster.cache)
    # As the process does before it is ready.
    for _ in engine.warm(cluster.cache.snapshot()):
        pass
    gc.collect()
    gc.freeze()
    service = ExtenderService(
        cache=cluster.cache,
        binder=_NoBinds(),  # type: ignore[arg-type]  # nothing is bound here
        engine=engine,
        clock=clock,
        wakeup=None,
    )
    app = ExtenderApp(service, unavailable=lambda: None, clock=clock).create()
    server = make_server(app, f"127.0.0.1:{port}")
    task = asyncio.create_task(server.serve())
    await server.wait_started()
    pipe.send("ready")
    while True:
        call = await asyncio.to_thread(pipe.recv)
        if call is None:
            break
        if call:
            cluster.set_devices(cluster.names[call - 1], 2)
        pod = cluster.add_pod(f"pod-{call}")
        body = {
            "Pod": msgspec.to_builtins(pod, enc_hook=enc_hook),
            "Nodes": None,
            "NodeNames": cluster.names,
        }
        pipe.send(orjson.dumps(body))
    server.should_exit = True
    await task
