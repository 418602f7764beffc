"""The API server over HTTP: kubernetes_asyncio reads kubeconfig and credentials, aiohttp carries the requests.

The library's own session is not used for requests: it obeys proxy variables and .netrc, keeps 100 connections and has
no timeouts (docs/design/failure-model.md#d6, docs/design/failure-model.md#d10). Ours is built from the same
configuration.

Nothing is repeated behind the caller's back. aiohttp would send a PUT or DELETE a second time when a kept-alive
connection breaks; a middleware of ours keeps it from that, so a broken connection is always `Unknown` for a write. A
409 still has to be read before it is judged: a proxy between us and the server may repeat as well.

Source: docs/design/write-protocol.md#outcomes, docs/design/cache-and-watches.md#r8, docs/design/failure-model.md#d1 to
D12.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, cast
from urllib.parse import urlencode

import aiohttp
import msgspec
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config
from yarl import URL

from scheduler.api.rawjson import RawJsonError, string_at, value_at
from scheduler.api.wire import MAGIC
from scheduler.client import (
    JSON,
    PROTOBUF,
    ApiError,
    Committed,
    ForbiddenError,
    GoneError,
    NotFoundError,
    Rejected,
    UnavailableError,
    Unknown,
    WriteOutcome,
)
from scheduler.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_FRESH_SECONDS: Final = 60.0  # how long credentials are used before their files are looked at again
_RELOAD_GAP_SECONDS: Final = (
    1.0  # a server that says 401 to everything must not make us read files all day
)
_LARGE_BYTES: Final = 256 * 1024  # about 4 ms to go through
_UNDECIDED: Final = frozenset({408, 500, 502, 503, 504})
_NOT_SENT: Final = (
    aiohttp.ClientConnectorError,  # refused, DNS, TLS handshake, certificate
    aiohttp.ConnectionTimeoutError,
)
_TRUST_BROKEN: Final = (aiohttp.ClientConnectorSSLError, aiohttp.ClientConnectorCertificateError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to talk to the API server.

    Attributes:
        request_timeout_seconds: one request, client side.
        server_timeout_seconds: one request, server side (`?timeout=`); less than the client's, so that the server
            gives up first and says so.
        list_timeout_seconds: one page of a list, client side.
        watch_silence_seconds: a watch in which nothing comes for this long is dead (bookmarks come each minute).
        connections: at most this many at a time.
        max_line_bytes: longest watch event.
        user_agent: what the server's audit log shows.
    """

    request_timeout_seconds: float = 8.0
    server_timeout_seconds: float = 5.0
    list_timeout_seconds: float = 60.0
    watch_silence_seconds: float = 90.0
    connections: int = 256
    max_line_bytes: int = 8 * 1024 * 1024
    user_agent: str = "dra-scheduler"


class ClientConfigError(Exception):
    """There is no usable kubeconfig, nor a service account. The text says what was tried."""


class _Status(msgspec.Struct, frozen=True):
    """The Status object of an answer that is no success, and the first look at any answer."""

    kind: Any = None
    reason: Any = None
    message: Any = None


_STATUS: Final = msgspec.json.Decoder(_Status)


class _BrokenError(aiohttp.ClientError):
    """A connection broke after a request may have been sent. Of a type that aiohttp does not retry."""


async def _never_resend(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except _NOT_SENT:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _BrokenError(_words(error)) from None


def _words(error: BaseException) -> str:
    """Say what happened. Never `repr`: aiohttp's errors hold the request, headers and token included."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@dataclass(frozen=True, slots=True)
class _Access:
    """Where the server is and how it knows us.

    Attributes:
        server: base URL without slash.
        authorization: value of the header; empty: none (client certificate, or no authentication).
        tls_key: what the TLS context was made from; another value needs other connections.
        tls_server_name: the name its certificate must have, if not that of the URL.
        files: credential files and the modification times they were read at.
    """

    server: str
    authorization: str
    tls_key: tuple[object, ...]
    tls_server_name: str | None
    files: Mapping[str, int]


class KubeClient:
    """An API server (implements `ApiClient`). Make it with `connect`, inside the running loop."""

    def __init__(self, kubeconfig: str, settings: ClientSettings, clock: Clock) -> None:
        self._kubeconfig = kubeconfig
        self._settings = settings
        self._clock = clock
        self._access = _Access("", "", (), None, {})
        self._session: aiohttp.ClientSession | None = None
        self._retired: list[aiohttp.ClientSession] = []
        self._checked_at = 0.0
        self._loaded_at = float("-inf")
        self._loading = asyncio.Lock()
        self._server_timeout = f"timeout={settings.server_timeout_seconds:g}s"
        self._list_timeout = f"timeout={settings.list_timeout_seconds:g}s"
        self._request_deadline = aiohttp.ClientTimeout(
            total=settings.request_timeout_seconds,
            sock_connect=min(3.0, settings.request_timeout_seconds),
        )
        self._list_deadline = aiohttp.ClientTimeout(
            total=settings.list_timeout_seconds, sock_connect=5.0
        )
        self._watch_deadline = aiohttp.ClientTimeout(
            total=None, sock_connect=5.0, sock_read=settings.watch_silence_seconds
        )

    @classmethod
    async def connect(
        cls,
        kubeconfig: str = "",
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Read credentials; the first request opens the first connection.

        Args:
            kubeconfig: path; empty: $KUBECONFIG, else the service account of the pod we run in.
            settings: timeouts and sizes. A second client for leases keeps renewals out of the queue of other requests.
            clock: for the age of credentials.

        Raises:
            ClientConfigError: there are no usable credentials.
        """
        client = cls(kubeconfig, settings or ClientSettings(), clock or SystemClock())
        await client._reload()
        return client

    @property
    def server(self) -> str:
        """Base URL of the server."""
        return self._access.server

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> bytes:
        """Read an object or list, as JSON or as PROTOBUF.

        Raises:
            ApiError: the server refused (subclass by status).
            UnavailableError: no usable answer.
        """
        is_list = query is not None and "limit" in query
        timeout = self._list_deadline if is_list else self._request_deadline
        server_timeout = self._list_timeout if is_list else self._server_timeout
        url = _with_query(path, query, server_timeout)
        try:
            status, headers, body = await self._exchange("GET", url, None, None, timeout, accept)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"GET {path}: {_words(error)}") from None
        if status != 200:
            raise _refusal(status, headers, body, f"GET {path}")
        if not _is_object(body, accept):
            raise UnavailableError(f"GET {path}: the response is not a Kubernetes object")
        return body

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> WriteOutcome:
        """POST, PUT, PATCH or DELETE. Never raises for what the server or network does."""
        url = _with_query(path, query, self._server_timeout)
        try:
            status, headers, answer = await self._exchange(
                method, url, body, content_type, self._request_deadline
            )
        except _NOT_SENT as error:
            return Rejected(0, "", f"cannot reach the server: {_words(error)}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Unknown(_words(error))
        if 200 <= status < 300:
            if _parsed(answer) is None:
                return Unknown(f"HTTP {status}, but the response is not a Kubernetes object")
            return Committed(answer)
        if status in _UNDECIDED or not 400 <= status < 500:
            return Unknown(f"HTTP {status}")
        found = _parsed(answer) or _Status()
        return Rejected(status, _text(found.reason), _text(found.message), _retry_after(headers))

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch: an iterator of lines (one JSON event each, without newline) that ends when the server ends it.

        Raises:
            ApiError: on entering, when the status is not 200.
            UnavailableError: on entering or while reading: broken or silent for longer than the read deadline.
        """
        url = _with_query(path, {"watch": "1", **query}, "")
        try:
            response = await self._open_watch(url)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"watch {path}: {_words(error)}") from None
        try:
            if response.status != 200:
                body = await _read_quietly(response)
                raise _refusal(response.status, response.headers, body, f"watch {path}")
            yield self._lines(response, path)
        finally:
            response.close()

    async def aclose(self) -> None:
        """Close all connections."""
        sessions = [*self._retired, *([self._session] if self._session is not None else [])]
        self._retired, self._session = [], None
        for session in sessions:
            await session.close()

    async def _lines(self, response: aiohttp.ClientResponse, path: str) -> AsyncIterator[bytes]:
        """Split a watch into lines; a line of many chunks is joined once, at its end."""
        pieces: list[bytes] = []
        size = 0
        try:
            async for chunk in response.content.iter_any():
                head, *rest = chunk.split(b"\n")
                pieces.append(head)
                size += len(head)
                if size > self._settings.max_line_bytes:
                    raise UnavailableError(
                        f"watch {path}: an event is longer than {self._settings.max_line_bytes} bytes"
                    )
                for next_head in rest:
                    line = b"".join(pieces)
                    pieces, size = [next_head], len(next_head)
                    if line:
                        yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"watch {path}: {_words(error)}") from None
        if size:
            raise UnavailableError(f"watch {path}: it ended in the middle of an event")

    async def _open_watch(self, url: str) -> aiohttp.ClientResponse:
        response = await self._send("GET", url, None, None, self._watch_deadline)
        if response.status == 401 and await self._reload():
            response.close()
            response = await self._send("GET", url, None, None, self._watch_deadline)
        return response

    async def _exchange(
        self,
        method: str,
        url: str,
        body: bytes | None,
        content_type: str | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - it is aiohttp's, and ends the connection too
        accept: str = JSON,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send and read it all. A 401 did not execute, so with other credentials it may be sent once more."""
        response = await self._send(method, url, body, content_type, timeout, accept)
        answer = await response.read()
        if response.status == 401 and await self._reload():
            response = await self._send(method, url, body, content_type, timeout, accept)
            answer = await response.read()
        return response.status, response.headers, answer

    async def _send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        content_type: str | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
        accept: str = JSON,
    ) -> aiohttp.ClientResponse:
        if self._clock.monotonic() - self._checked_at > _FRESH_SECONDS:
            await self._refresh()
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        if self._access.authorization:
            headers["Authorization"] = self._access.authorization
        if content_type is not None:
            headers["Content-Type"] = content_type
        if self._session is None:
            raise aiohttp.ClientConnectionError("the client is closed")
        try:
            return await self._session.request(
                method,
                URL(self._access.server + url, encoded=True),
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self._access.tls_server_name,
            )
        except _TRUST_BROKEN:
            self._checked_at = float(
                "-inf"
            )  # perhaps the CA was replaced: look before the next request
            raise

    async def _refresh(self) -> None:
        """Look whether a credential file has changed (projected tokens do, every hour)."""
        self._checked_at = self._clock.monotonic()
        if any(_modified(path) != when for path, when in self._access.files.items()):
            await self._reload()

    async def _reload(self) -> bool:
        """Read credentials again.

        Returns:
            whether they differ from what was in use when the call was made.

        Raises:
            ClientConfigError: only the first time; later the old ones stay in use.
        """
        before = self._access
        async with self._loading:
            if self._access is not before:
                return True  # somebody else has just done it
            now = self._clock.monotonic()
            if now - self._loaded_at < _RELOAD_GAP_SECONDS:
                return False
            self._loaded_at = self._checked_at = now
            try:
                configuration, files = await _load(self._kubeconfig)
                access = _access(configuration, files)
                if self._session is None or access.tls_key != before.tls_key:
                    session = self._new_session(configuration)
                    if self._session is not None:
                        self._retired = [
                            *[old for old in self._retired if not old.closed],
                            self._session,
                        ]
                    self._session = session
            except (ConfigException, OSError, ValueError, ssl.SSLError) as error:
                if before.server:
                    _log.warning(
                        "cannot read credentials again, keeping the old ones: %s", _words(error)
                    )
                    return False
                raise ClientConfigError(str(error)) from None
            self._access = access
        return access != before

    def _new_session(self, configuration: Configuration) -> aiohttp.ClientSession:
        settings = self._settings
        connector = aiohttp.TCPConnector(
            limit=settings.connections,
            ssl=_tls_context(configuration),
            keepalive_timeout=60.0,  # the server's own limit is 90 s
        )
        return aiohttp.ClientSession(
            connector=connector,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": settings.user_agent},
            middlewares=(_never_resend,),
            # Large, so that a busy loop fills our memory and not the server's buffer: it ends the watch of a slow reader.
            read_bufsize=2**20,
            auto_decompress=True,
        )


def _with_query(path: str, query: Mapping[str, str] | None, server_timeout: str) -> str:
    parts = [part for part in (urlencode(query) if query else "", server_timeout) if part]
    return f"{path}?{'&'.join(parts)}" if parts else path


def _is_object(body: bytes, accept: str) -> bool:
    """Whether an answer is an object in the format that was asked for, and no page of a proxy, or cut off."""
    return body.startswith(MAGIC) if accept == PROTOBUF else _parsed(body) is not None


def _parsed(body: bytes) -> _Status | None:
    """Look at an answer: None if it is no JSON object (a page of a proxy, or cut off)."""
    try:
        return _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parsed_slowly(body.strip())


def _parsed_slowly(body: bytes) -> _Status | None:
    """Look at an answer that no decoder takes as a whole: opaque values in it may hold anything."""
    if not (body.startswith(b"{") and body.endswith(b"}")):
        return None
    if len(body) > _LARGE_BYTES:
        return _Status()  # who asked for it goes through it, piece by piece
    try:
        if value_at(body).end != len(body):
            return None
    except RawJsonError:
        return None
    return _Status(*(string_at(body, key) for key in ("kind", "reason", "message")))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() and len(value) < 6 else None


def _refusal(status: int, headers: Mapping[str, str], body: bytes, what: str) -> Exception:
    """The error for an answer that is no success."""
    found = _parsed(body)
    if found is None and status >= 500:
        return UnavailableError(
            f"{what}: HTTP {status}, and the response is not a Kubernetes object"
        )
    kinds: dict[int, type[ApiError]] = {
        401: ForbiddenError,
        403: ForbiddenError,
        404: NotFoundError,
        410: GoneError,
    }
    found = found or _Status()
    return kinds.get(status, ApiError)(
        status, _text(found.reason), _text(found.message), _retry_after(headers)
    )


async def _read_quietly(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.content.read(64 * 1024)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return b""


async def _load(kubeconfig: str) -> tuple[Configuration, list[str]]:
    """Read the configuration and name the files it came from.

    Raises:
        ConfigException, OSError, ValueError: it cannot be read.
    """
    configuration = Configuration()
    path = kubeconfig or os.environ.get("KUBECONFIG", "")
    if path:
        files = _files_of(path)
        try:
            await load_kube_config(
                config_file=os.pathsep.join(files),
                client_configuration=configuration,
                persist_config=False,
            )
        except ConfigException:
            raise
        except Exception as error:  # noqa: BLE001 - the library lets errors of YAML, of base64 and of its own through
            # Not its text: a YAML error quotes the line it stumbled over, which may hold a token.
            raise ConfigException(f"{path} is not a kubeconfig ({type(error).__name__})") from None
    elif "KUBERNETES_SERVICE_HOST" in os.environ:
        load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=configuration, try_refresh_token=False
        )
        files = [f"{_SERVICE_ACCOUNT}/token"]
    else:
        raise ConfigException(
            "no kubeconfig given, KUBECONFIG is not set, and not running in a pod"
        )
    files += [
        name
        for name in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        if name
    ]
    return configuration, files


def _files_of(path: str) -> list[str]:
    """Split a KUBECONFIG list; every file must be there, since the library is silent about those that are not."""
    files = [str(Path(part).expanduser()) for part in path.split(os.pathsep) if part]
    for name in files:
        if not Path(name).is_file():
            raise ConfigException(f"kubeconfig not found: {name}")
    return files


def _access(configuration: Configuration, files: list[str]) -> _Access:
    token = cast("str", configuration.api_key.get("BearerToken", "") or "")
    if configuration.proxy:
        raise ConfigException("proxy-url in a kubeconfig is not supported")
    tls_key = (
        _content(configuration.ssl_ca_cert),
        _content(configuration.cert_file),
        _content(configuration.key_file),
        configuration.verify_ssl,
        configuration.tls_server_name,
    )
    return _Access(
        server=(configuration.host or "").rstrip("/"),
        authorization=token.strip(),
        tls_key=tls_key,
        tls_server_name=configuration.tls_server_name or None,
        files={name: _modified(name) for name in files},
    )


def _tls_context(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _content(name: str | None) -> bytes:
    return Path(name).read_bytes() if name else b""


def _modified(name: str) -> int:
    """Modification time in ns; 0 for a file that is not there (Kubernetes swaps projected files by symlink)."""
    try:
        return os.stat(name).st_mtime_ns
    except OSError:
        return 0
