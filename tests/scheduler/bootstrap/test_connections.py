"""Slow, silent and rude clients of the webhook listener, and certificates that change under it.

F29, docs/design/security.md#input-limits.
"""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import SystemClock
from scheduler.config import TLSSettings
from scheduler.web import server as server_module
from scheduler.web.server import Server, make_server, reload_certificates, server_context
from tests.scheduler.bootstrap.test_process import free_port

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SOON = 0.3


async def app(scope: Any, receive: Any, send: Send) -> None:
    """Answers at once, without looking at the body; /patient reads it first, /slow never ends."""
    assert scope["type"] == "http"
    if scope["path"] == "/patient":
        while (await receive()).get("more_body"):
            pass
    if scope["path"] == "/slow":
        await asyncio.Event().wait()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving(tls: TLSSettings | None = None) -> AsyncIterator[Server]:
    server = make_server(app, f"127.0.0.1:{free_port()}", tls)
    task = asyncio.create_task(server.serve())
    await server.wait_started()
    try:
        yield server
    finally:
        server.should_exit = True
        await task


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEAD_SECONDS", SOON)
    monkeypatch.setattr(server_module, "BODY_SECONDS", SOON)
    monkeypatch.setattr(server_module, "ANSWER_SECONDS", 2 * SOON)
    monkeypatch.setattr(server_module, "GRACE_SECONDS", 1)


async def connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.config.port)


async def is_closed(reader: asyncio.StreamReader, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            while await reader.read(4096):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


async def test_a_silent_connection_is_closed() -> None:
    async with serving() as server:
        reader, writer = await connect(server)
        assert await is_closed(reader, 5 * SOON)
        writer.close()


async def test_a_half_head_is_closed_also_after_a_request_that_was_answered() -> None:
    async with serving() as server:
        reader, writer = await connect(server)
        writer.write(REQUEST)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(2 * SOON)
        writer.write(REQUEST)
        assert await reader.readuntil(b"ok"), "an idle connection is kept"
        writer.write(REQUEST[:9])
        assert await is_closed(reader, 5 * SOON)
        writer.close()


async def test_a_half_head_behind_a_whole_request_is_closed() -> None:
    async with serving() as server:
        reader, writer = await connect(server)
        writer.write(REQUEST + REQUEST[:9])
        assert await is_closed(reader, 5 * SOON)
        writer.close()


@pytest.mark.parametrize("trickle", [True, False])
async def test_a_body_that_nobody_waits_for_does_not_keep_a_connection(*, trickle: bool) -> None:
    async with serving() as server:
        reader, writer = await connect(server)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        closed = asyncio.create_task(is_closed(reader, 5 * SOON))
        for _ in range(10 if trickle else 0):
            writer.write(b"1\r\nx\r\n")
            await asyncio.sleep(SOON / 5)
        assert await closed
        writer.close()


@pytest.mark.parametrize("trickle", [True, False])
async def test_a_body_that_does_not_end_does_not_keep_a_connection(
    monkeypatch: pytest.MonkeyPatch, *, trickle: bool
) -> None:
    monkeypatch.setattr(server_module, "ANSWER_SECONDS", 60.0)
    async with serving() as server:
        reader, writer = await connect(server)
        writer.write(b"POST /patient HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        closed = asyncio.create_task(is_closed(reader, 5 * SOON))
        for _ in range(10 if trickle else 0):
            writer.write(b"x")
            await asyncio.sleep(SOON / 5)
        assert await closed
        writer.close()


async def test_an_answer_has_its_own_time_once_the_body_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "ANSWER_SECONDS", 60.0)
    async with serving() as server:
        reader, writer = await connect(server)
        writer.write(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
        assert not await is_closed(reader, 2 * SOON)
        writer.close()


async def test_a_request_that_is_never_answered_does_not_keep_a_connection() -> None:
    async with serving() as server:
        reader, writer = await connect(server)
        writer.write(REQUEST.replace(b"/ ", b"/slow "))
        assert not await is_closed(reader, SOON)
        assert await is_closed(reader, 5 * SOON)
        writer.close()


async def test_pipelined_requests_are_all_answered() -> None:
    async with serving() as server:
        reader, writer = await connect(server)
        writer.write(REQUEST * 3)
        for _ in range(3):
            assert await reader.readuntil(b"ok")
        writer.close()


async def test_many_silent_clients_do_not_keep_another_from_being_served() -> None:
    async with serving() as server:
        silent = [await connect(server) for _ in range(100)]
        reader, writer = await connect(server)
        writer.write(REQUEST)
        assert await reader.readuntil(b"ok")
        for _, other in [*silent, (reader, writer)]:
            other.close()


# --- TLS --------------------------------------------------------------------------------------------------------------


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate and its key."""
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    files = ["-subj", f"/CN={name}", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, bytes]]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    folder = tmp_path_factory.mktemp("tls")
    made = {name: make_certificate(folder, name) for name in ("old", "new")}
    return {name: (cert.read_bytes(), key.read_bytes()) for name, (cert, key) in made.items()}


async def served_name(server: Server) -> str:
    """The name in the certificate that a client gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", server.config.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return "new" if b"new" in shown else "old"


async def test_a_handshake_that_never_begins_is_closed(
    certificates: dict[str, tuple[bytes, bytes]], tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert", tmp_path / "key"
    cert.write_bytes(certificates["old"][0])
    key.write_bytes(certificates["old"][1])
    async with serving(TLSSettings(cert_file=str(cert), key_file=str(key))) as server:
        reader, writer = await connect(server)
        assert await is_closed(reader, 10 * SOON)
        writer.close()


async def test_a_half_replaced_certificate_leaves_the_old_one_in_use(
    certificates: dict[str, tuple[bytes, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "RELOAD_SECONDS", 0.02)
    cert, key = tmp_path / "cert", tmp_path / "key"
    cert.write_bytes(certificates["old"][0])
    key.write_bytes(certificates["old"][1])
    tls = TLSSettings(cert_file=str(cert), key_file=str(key))
    async with serving(tls) as server:
        context = server.config.ssl
        assert isinstance(context, ssl.SSLContext)
        reloading = asyncio.create_task(reload_certificates(context, tls, SystemClock()))
        try:
            assert await served_name(server) == "old"
            await asyncio.sleep(0.1)
            cert.write_bytes(certificates["new"][0])
            await asyncio.sleep(0.2)
            assert await served_name(server) == "old"
            key.write_bytes(certificates["new"][1])
            await asyncio.sleep(0.2)
            assert await served_name(server) == "new"
        finally:
            reloading.cancel()
            await asyncio.gather(reloading, return_exceptions=True)


def test_a_certificate_without_its_key_is_refused_at_the_start(
    certificates: dict[str, tuple[bytes, bytes]], tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert", tmp_path / "key"
    cert.write_bytes(certificates["new"][0])
    key.write_bytes(certificates["old"][1])
    with pytest.raises(ValueError, match="TLS files"):
        server_context(TLSSettings(cert_file=str(cert), key_file=str(key)))
