"""HTTP servers in our own event loop, with the limits that uvicorn lacks.

h11, because it bounds the request head; a connection that does not bring a whole head in time is closed; one worker;
no signal handlers (shutting down is the process's business); certificates reloaded when their files change.
Source: docs/design/security.md#deployment, docs/design/security.md#input-limits, docs/design/failure-model.md#d14 to
D17, docs/design/leader-election.md#h11.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from scheduler.clock import Clock
from scheduler.config import TLSSettings

_log: Final = logging.getLogger(__name__)

HEAD_LIMIT_BYTES: Final = 16 * 1024
HEAD_SECONDS: Final = 5.0
BODY_SECONDS: Final = 10.0
"""From the head of a request to the end of its body."""

ANSWER_SECONDS: Final = 75.0
"""From the head of a request to the end of its answer. The longest is a profile (60 s); a call takes far less."""

KEEP_ALIVE_SECONDS: Final = (
    120  # longer than Go's 90 s: the caller closes first, so no request meets a closed socket
)
GRACE_SECONDS: Final = 5
HOLD_BYTES: Final = 1024 * 1024  # of an answer that is not complete
MAX_CONNECTIONS: Final = 2048
RELOAD_SECONDS: Final = 10.0


class WholeAnswers:
    """A transport that sends head and body of an answer at once: one system call here, one wake-up of the caller.

    uvicorn writes them one after the other, and each write is sent.
    """

    def __init__(self, transport: Any, conn: h11.Connection) -> None:
        """Wrap a transport; what is held goes out as soon as `conn` has ended the answer."""
        self._transport = transport
        self._conn = conn
        self._held: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Hold a part of an answer, or send it with what is held."""
        if self._conn.our_state is h11.SEND_BODY and self._size < HOLD_BYTES:
            self._held.append(data)
            self._size += len(data)
        elif self._held:
            self._held.append(data)
            self._flush()
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Send what is held, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            parts, self._held, self._size = self._held, [], 0
            self._transport.write(b"".join(parts))


class BoundedH11Protocol(H11Protocol):
    """Closes a connection that takes too long for what it is doing.

    Four phases: a request head is due (at first, and from its first byte on; also while the rest of a body comes in
    that was answered before it was read), the body of a request is due, a request is being answered, or the connection is
    idle, for which uvicorn has a limit of its own.
    """

    _phase: object = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Expect the first head."""
        super().connection_made(WholeAnswers(transport, self.conn))  # type: ignore[arg-type]  # all that is asked of it
        if len(self.connections) > MAX_CONNECTIONS:
            transport.close()
            return
        self._enter(h11.IDLE, HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """End an answer, and perhaps begin the next."""
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        cycle: Any = self.cycle  # uvicorn types it as always there
        if cycle is not None and not cycle.response_complete:
            if cycle.more_body:
                self._enter(cycle.scope, BODY_SECONDS)
            else:
                self._enter(cycle, ANSWER_SECONDS)
        elif self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
            self._enter(h11.IDLE, HEAD_SECONDS)
        else:
            self._enter(None, None)

    def _enter(self, phase: object, seconds: float | None) -> None:
        if phase is self._phase:
            return
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._is_late)

    def _is_late(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._enter(None, None)
        super().connection_lost(exc)


class Server(uvicorn.Server):
    """A server that leaves signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: SIGTERM is handled by the process, which drains first."""
        yield

    async def startup(self, sockets: Any = None) -> None:
        """Open the listener. A TLS handshake has no more time than a head; an address in use ends no process."""
        config = self.config
        limits: dict[str, Any] = (
            {} if config.ssl is None else {"ssl_handshake_timeout": HEAD_SECONDS}
        )

        def protocol() -> asyncio.Protocol:
            return BoundedH11Protocol(
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        try:
            listener = await asyncio.get_running_loop().create_server(
                protocol,
                config.host,
                config.port,
                ssl=config.ssl,
                backlog=config.backlog,
                **limits,
            )
        except OSError as problem:
            _log.error("%s", problem)
            self.should_exit = True
            return
        self.servers = [listener]
        self.started = True

    async def wait_started(self) -> None:
        """Wait until the listener is open.

        Raises:
            OSError: it could not be opened.
        """
        while not self.started:
            if self.should_exit:
                raise OSError(f"cannot listen on {self.config.host}:{self.config.port}")
            await asyncio.sleep(0.005)


def make_server(app: Any, address: str, tls: TLSSettings | None = None) -> Server:
    """Make a server for `HOST:PORT`.

    Raises:
        ValueError: the address, or a certificate file, cannot be used; or plain HTTP beyond loopback.
    """
    host, port = split_address(address)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="none",
        http=BoundedH11Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        workers=1,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=HEAD_LIMIT_BYTES,
        backlog=2048,
    )
    config.load()
    if tls is not None and tls.cert_file:
        config.ssl = server_context(tls)
    return Server(config)


def split_address(address: str) -> tuple[str, int]:
    """Split `HOST:PORT` (`[::1]:80` for IPv6).

    Raises:
        ValueError: it has another form.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104  # ":8888" means all interfaces, as in Go


def is_loopback(address: str) -> bool:
    """Whether `HOST:PORT` is reachable from this machine only."""
    host, _ = split_address(address)
    return host in ("127.0.0.1", "::1", "localhost") or host.startswith("127.")


def server_context(tls: TLSSettings) -> ssl.SSLContext:
    """TLS 1.2 or newer; with a client CA, callers must present a certificate that it signed.

    Raises:
        ValueError: a file is missing or no certificate or key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
        if tls.client_ca_file:
            context.load_verify_locations(tls.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as problem:
        raise ValueError(f"TLS files {tls.cert_file}, {tls.key_file}: {problem}") from problem
    return context


async def reload_certificates(context: ssl.SSLContext, tls: TLSSettings, clock: Clock) -> None:
    """Load certificates again whenever a file has changed; new connections use them. Runs until cancelled.

    A client CA that is replaced is trusted beside the old one until the process ends.
    """
    seen = await asyncio.to_thread(_modified, tls)
    while True:
        await clock.sleep(RELOAD_SECONDS)
        now = await asyncio.to_thread(_modified, tls)
        if now != seen:
            try:
                # In another context first: a certificate that does not fit its key would cost the live one its key.
                server_context(tls)
                context.load_cert_chain(tls.cert_file, tls.key_file)
                if tls.client_ca_file:
                    context.load_verify_locations(tls.client_ca_file)
            except (OSError, ValueError):
                continue  # half written: the old one stays until both files fit
            seen = now


def _modified(tls: TLSSettings) -> tuple[float, ...]:
    times = []
    for name in filter(None, (tls.cert_file, tls.key_file, tls.client_ca_file)):
        try:
            times.append(Path(name).stat().st_mtime)
        except OSError:
            times.append(0.0)
    return tuple(times)
