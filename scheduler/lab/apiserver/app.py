"""The embedded API server over HTTP: a plain ASGI application, and a way to run it on loopback."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl

import orjson
import uvicorn

from scheduler.clock import Clock
from scheduler.lab.apiserver.errors import too_large
from scheduler.lab.apiserver.requests import BODY_LIMIT_BYTES, Request
from scheduler.lab.apiserver.server import ApiServer, Response
from scheduler.lab.apiserver.streams import WatchStream, open_stream
from scheduler.lab.apiserver.watches import Watch

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

STARTUP_SECONDS = 10.0


def create_app(server: ApiServer, clock: Clock) -> App:
    """An ASGI application that serves an embedded server.

    Args:
        server: answers.
        clock: for the duration of watches.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        body = await _read_body(receive)
        if body is None:
            refused = too_large(BODY_LIMIT_BYTES)
            await _respond(Response(refused.code, refused.body()), send)
            return
        answer = server.handle(_request(scope, body))
        if isinstance(answer, Watch):
            await _stream(answer, clock, receive, send)
        else:
            await _respond(answer, send)

    return app


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body, or None when it is too large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > BODY_LIMIT_BYTES:
            return None
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


def _request(scope: Scope, body: bytes) -> Request:
    headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
    return Request(
        method=scope["method"],
        path=scope["path"],
        query=dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)),
        body=body,
        content_type=headers.get("content-type", "application/json").partition(";")[0].strip(),
        agent=headers.get("user-agent", "unknown").partition("/")[0],
        accept=headers.get("accept", "application/json"),
    )


async def _respond(response: Response, send: Send) -> None:
    headers = [
        (b"content-type", response.content_type.encode()),
        (b"content-length", str(len(response.body)).encode()),
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


async def _stream(watch: Watch, clock: Clock, receive: Receive, send: Send) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async with open_stream(watch, clock) as stream:
        hangup = asyncio.create_task(_close_on_disconnect(receive, stream))
        try:
            async for lines in stream.chunks():
                body = b"".join(line + b"\n" for line in lines)
                await send({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            hangup.cancel()
            with suppress(asyncio.CancelledError):
                await hangup
    await send({"type": "http.response.body", "body": b""})


async def _close_on_disconnect(receive: Receive, stream: WatchStream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.close()


@asynccontextmanager
async def serve(
    server: ApiServer, clock: Clock, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serve over HTTP while the block runs.

    Args:
        server: answers.
        clock: for the duration of watches.
        host: a loopback address: there is no authentication.
        port: 0 for any free one.

    Yields:
        The URL.

    Raises:
        RuntimeError: the address cannot be listened on.
    """
    config = uvicorn.Config(
        create_app(server, clock),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    http = _Server(config)
    task = asyncio.create_task(http.serve())
    try:
        async with asyncio.timeout(STARTUP_SECONDS):
            while not http.started:
                if task.done():
                    raise RuntimeError(f"cannot listen on {host}:{port}")
                await asyncio.sleep(0.01)
        address = http.servers[0].sockets[0].getsockname()
        yield f"http://{host}:{address[1]}"
    finally:
        http.should_exit = True
        with suppress(SystemExit):
            await task


class _Server(uvicorn.Server):
    """Leaves signals to whoever owns the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def kubeconfig(url: str) -> str:
    """A kubeconfig for a server at a URL, as JSON (which is YAML)."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "embedded", "cluster": {"server": url}}],
        "users": [{"name": "anyone", "user": {}}],
        "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "anyone"}}],
        "current-context": "embedded",
    }
    return orjson.dumps(config, option=orjson.OPT_INDENT_2).decode()
