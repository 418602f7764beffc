"""The fault proxy does what it is told, counts it, and tells what was really carried out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from e2e.harness.proxy import Call, Fault, FaultProxy, Reply
from e2e.harness.streams import Stream

SOON = 10.0


@dataclass
class Upstream:
    """A server that counts writes and sends numbered events."""

    url: str = ""
    writes: int = 0
    events: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)

    async def write(self, _: web.Request) -> web.Response:
        self.writes += 1
        return web.json_response({"metadata": {"resourceVersion": str(self.writes)}})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(await self.events.get() + b"\n")


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[Upstream, FaultProxy, aiohttp.ClientSession]]:
    upstream = Upstream()
    app = web.Application()
    app.router.add_get("/things", upstream.watch)
    app.router.add_route("*", "/{path:.*}", upstream.write)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    proxy = FaultProxy(f"http://{host}:{port}", None)
    try:
        async with (
            proxy.running(),
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=SOON), trust_env=False
            ) as session,
        ):
            yield upstream, proxy, session
    finally:
        await runner.cleanup()


# Not PUT, which aiohttp sends again by itself on a broken connection.
async def post(session: aiohttp.ClientSession, proxy: FaultProxy) -> tuple[int, bytes]:
    async with session.post(f"{proxy.url}/thing", data=b"{}") as response:
        return response.status, await response.read()


@pytest.mark.parametrize(
    ("what", "status", "writes"),
    [
        ({}, 200, 1),
        ({"answer": (429, "no")}, 429, 0),
        ({"late_answer": (504, "no")}, 504, 1),
        ({"twice": True}, 200, 2),
        ({"cut": True}, 0, 1),
        ({"lost": True}, 0, 0),
        ({"hold_seconds": 0.05}, 200, 1),
        ({"delay_seconds": 0.05}, 200, 1),
        ({"spoil": lambda text: text[:3]}, 200, 1),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, dict) else None,
)
async def test_a_fault_is_made_and_counted(what: dict[str, Any], status: int, writes: int) -> None:
    async with serving() as (upstream, proxy, session):
        told: list[tuple[int, str]] = []

        def listen(_: Call, reply: Reply, fault: str) -> None:
            told.append((reply.status, fault))

        proxy.listeners.append(listen)
        with proxy.fault(Fault("POST", "/thing", name="it", **what)):
            if status:
                found, body = await post(session, proxy)
                assert found == status
                assert len(body) == 3 or "spoil" not in what
            else:
                with pytest.raises(aiohttp.ClientError):
                    await post(session, proxy)
            assert (await post(session, proxy))[0] == 200  # only once

        assert proxy.happened == {"it": 1}
        assert upstream.writes == writes + 1
        # What the server answered, whatever became of the answer.
        assert told[0] == ({"answer": 429, "lost": 0}.get(next(iter(what), ""), 200), "it")


@pytest.mark.parametrize(("outlives", "writes"), [(False, 0), (True, 1)])
async def test_a_request_that_is_held_back_goes_on_without_its_sender_only_if_told_to(
    outlives: bool, writes: int
) -> None:
    async with serving() as (upstream, proxy, session):
        fault = Fault("POST", "/thing", delay_seconds=0.3, outlives=outlives)
        with proxy.fault(fault):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await post(session, proxy)
            await asyncio.sleep(0.6)

        assert upstream.writes == writes


async def test_what_was_sent_on_is_told_of_although_its_sender_is_gone() -> None:
    async with serving() as (upstream, proxy, session):
        told: list[int] = []
        proxy.listeners.append(lambda _call, reply, _fault: told.append(reply.status))
        reached = asyncio.Event()

        async def linger(_: Call) -> None:
            reached.set()
            await asyncio.sleep(0.2)

        with proxy.fault(Fault("POST", "/thing", committed=linger)):
            task = asyncio.create_task(post(session, proxy))
            await reached.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        assert told == [200]
        assert upstream.writes == 1


async def test_the_hook_after_delivery_runs_once_the_answer_is_there() -> None:
    async with serving() as (_, proxy, session):
        delivered = asyncio.Event()

        async def note(_: Call) -> None:
            delivered.set()

        with proxy.fault(Fault("POST", "/thing", delivered=note)):
            assert (await post(session, proxy))[0] == 200
            async with asyncio.timeout(SOON):
                await delivered.wait()


@contextlib.asynccontextmanager
async def watching() -> AsyncIterator[tuple[Upstream, FaultProxy, Stream, aiohttp.ClientResponse]]:
    async with serving() as (upstream, proxy, session):
        upstream.events.put_nowait(b'{"n":0}')
        async with session.get(f"{proxy.url}/things?watch=1") as response:
            assert await response.content.readline() == b'{"n":0}\n'
            yield upstream, proxy, proxy.streams[0], response


async def rest(response: aiohttp.ClientResponse) -> bytes | None:
    """Everything up to the end; None when it ends with a reset."""
    try:
        return await response.content.read()
    except (aiohttp.ClientError, OSError):
        return None


@pytest.mark.parametrize("name", ["cut", "half", "end", "gone", "garbage"])
async def test_a_watch_is_ended_in_each_way(name: str) -> None:
    async with watching() as (_, proxy, stream, response):
        proxy.disturb(name, stream)

        text = await rest(response)
        match name:
            case "cut":
                assert text is None
            case "end":
                assert text == b""
            case "half":
                assert text == b'{"n":0}\n'[:4]
            case "gone":
                assert text is not None
                assert orjson.loads(text)["object"]["code"] == 410
            case _:
                assert text is not None
                assert text.startswith(b"<html>")
        assert proxy.happened == {f"watch {name}": 1}


async def test_events_come_late_again_or_not_at_all() -> None:
    async with watching() as (upstream, proxy, stream, response):
        proxy.disturb("replay", stream)
        upstream.events.put_nowait(b'{"n":1}')
        lines = [await response.content.readline() for _ in range(2)]
        assert lines == [b'{"n":0}\n', b'{"n":1}\n']

        proxy.disturb("hold", stream, seconds=0.3)
        upstream.events.put_nowait(b'{"n":2}')
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await response.content.readline()
        assert await response.content.readline() == b'{"n":2}\n'

        proxy.disturb("skip", stream, events=2)
        for number in (3, 4, 5):
            upstream.events.put_nowait(b'{"n":%d}' % number)
        text = await rest(response)
        assert text is not None
        assert orjson.loads(text)["object"]["code"] == 410


async def test_a_silent_watch_stays_open() -> None:
    async with watching() as (upstream, proxy, stream, response):
        proxy.disturb("silence", stream)
        upstream.events.put_nowait(b'{"n":1}')
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await response.content.readline()
        assert proxy.streams == [stream]
