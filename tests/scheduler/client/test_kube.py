"""The client against a small HTTP server whose every answer the test decides."""

import asyncio
import json
import logging
import os

import pytest
from aiohttp import web

from scheduler.client import (
    MERGE_PATCH,
    METADATA,
    PROTOBUF,
    ApiError,
    Committed,
    ForbiddenError,
    GoneError,
    NotFoundError,
    Rejected,
    UnavailableError,
    Unknown,
)
from scheduler.client.kube import ClientConfigError, ClientSettings, KubeClient
from tests.fakes import FakeClock
from tests.odd_json import ODD, config, with_text
from tests.opaque import TEXTS, claim_body

TOKEN = "canary-token"
# Two self-signed certificates of nobody; their keys are gone.
OLD_CA = """\
-----BEGIN CERTIFICATE-----
MIIBfzCCASWgAwIBAgIUMbLGRd+fvJJaWNcD67/YQf7csXswCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJdGVzdCBjYSAxMCAXDTI2MTEyOTE1MzExMloYDzIxMjYxMTA1
MTUzMTEyWjAUMRIwEAYDVQQDDAl0ZXN0IGNhIDEwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARdKzj0Jf+lR6l2a8DhadVKz6/yqCcX8s9RJPuRXKSzqxYO9Q3MyRQd
gSE30J1zxLxoqqfg9ABhERg5EhZssGTuo1MwUTAdBgNVHQ4EFgQUQY/c1sq7Gn/M
kbloQj24Ha/D+wAwHwYDVR0jBBgwFoAUQY/c1sq7Gn/MkbloQj24Ha/D+wAwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEA7ByTS7qiBIpl7L06YCcR
bWyy3yoBWpUKBA3wkyNQwxsCIAyOV14y37lYGnTGVSzRQMdYjvorEMCUEeUO0Chm
4FCt
-----END CERTIFICATE-----
"""
NEW_CA = """\
-----BEGIN CERTIFICATE-----
MIIBfzCCASWgAwIBAgIUXqfKVBCW67iEcGziHu4RWqvQI4gwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJdGVzdCBjYSAyMCAXDTI2MTEyOTE1MzExMloYDzIxMjYxMTA1
MTUzMTEyWjAUMRIwEAYDVQQDDAl0ZXN0IGNhIDIwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQTNGBJpz14viuF/rXijOILb5SKLjEpEeNMuxd6rjiiVODCLFYm3Ae4
aeVikCbdOBJ10jV2zhgAqs4hbmg/Hkyzo1MwUTAdBgNVHQ4EFgQUJcylSAmhOhZf
65X6f7g2GvTwqmIwHwYDVR0jBBgwFoAUJcylSAmhOhZf65X6f7g2GvTwqmIwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiA2GHizzgvYmmh7/74Dseft
SsQt5kIfgnVKl/K0ZopL/gIhAI1zCj5RCa8hx7eShUdeFLYEbxJX6Thx0aiSpIJz
Utf7
-----END CERTIFICATE-----
"""


def status_body(code, reason, message="no"):
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message})


def write_kubeconfig(path, server, token=TOKEN):
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": token}}],
            }
        )
    )


class Server:
    """Answers with whatever `answer` is set to, and remembers what it was asked."""

    def __init__(self):
        self.requests = []
        self.url = ""
        self.answer = lambda _request: web.json_response({"kind": "Pod"})

    async def handle(self, request):
        self.requests.append((request, await request.read()))
        result = self.answer(request)
        return await result if asyncio.iscoroutine(result) else result


@pytest.fixture
async def server():
    served = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield served
    await runner.cleanup()


@pytest.fixture
def kubeconfig(server, tmp_path):
    path = tmp_path / "config"
    write_kubeconfig(path, server.url)
    return path


@pytest.fixture
async def client(kubeconfig):
    settings = ClientSettings(request_timeout_seconds=2.0, watch_silence_seconds=2.0)
    connected = await KubeClient.connect(str(kubeconfig), settings, FakeClock())
    yield connected
    await connected.aclose()


async def test_a_read_carries_token_and_server_timeout_and_returns_the_body(client, server):
    assert await client.get("/api/v1/pods", {"fieldSelector": "a=b"}) == b'{"kind": "Pod"}'
    request, _ = server.requests[0]
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"
    assert request.query == {"fieldSelector": "a=b", "timeout": "5s"}


async def test_protobuf_is_asked_for_and_returned_as_it_came(client, server):
    server.answer = lambda _request: web.Response(body=b"k8s\x00\xff")
    assert await client.get("/api/v1/x", accept=PROTOBUF) == b"k8s\x00\xff"
    request, _ = server.requests[0]
    assert request.headers["Accept"] == PROTOBUF


@pytest.mark.parametrize("body", [b'{"kind":"Pod"}', b"<html>", b""])
async def test_what_is_no_protobuf_is_no_answer(client, server, body):
    server.answer = lambda _request: web.Response(body=body)
    with pytest.raises(UnavailableError):
        await client.get("/api/v1/x", accept=PROTOBUF)


# fault core 07: such an answer was taken for none, and the write repeated for ever
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_an_object_with_text_that_no_decoder_takes_is_an_answer(client, server, text):
    body = claim_body("c", text)
    server.answer = lambda _request: web.Response(body=body)
    assert await client.get("/x") == body
    assert await client.write("PUT", "/x", b"{}") == Committed(body)
    server.answer = lambda _request: web.Response(body=body[:-1])
    assert isinstance(await client.write("PUT", "/x", b"{}"), Unknown)


async def test_a_write_sends_exactly_the_content_type_it_was_told(client, server):
    outcome = await client.write("PATCH", "/api/v1/x", b'{"a":1}', content_type=MERGE_PATCH)
    assert outcome == Committed(b'{"kind": "Pod"}')
    request, body = server.requests[0]
    assert (request.method, request.headers["Content-Type"], body) == (
        "PATCH",
        MERGE_PATCH,
        b'{"a":1}',
    )


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 415, 422, 429])
async def test_a_refusal_is_a_definite_no(client, server, status):
    server.answer = lambda _request: web.Response(
        status=status,
        text=status_body(status, "Why", "because"),
        content_type="application/json",
        headers={"Retry-After": "7"},
    )
    outcome = await client.write("PUT", "/x", b"{}")
    assert outcome == Rejected(status, "Why", "because", 7.0)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 302])
async def test_a_server_error_leaves_the_outcome_unknown(client, server, status):
    server.answer = lambda _request: web.Response(status=status, text="<html>")
    assert isinstance(await client.write("PUT", "/x", b"{}"), Unknown)


@pytest.mark.parametrize("body", ["<html></html>", '{"kind": "Po', "[]", ""])
async def test_success_with_an_unreadable_body_leaves_the_outcome_unknown(client, server, body):
    server.answer = lambda _request: web.Response(text=body)
    assert isinstance(await client.write("POST", "/x", b"{}"), Unknown)


async def test_no_answer_in_time_leaves_the_outcome_unknown(kubeconfig, server):
    server.answer = lambda _request: asyncio.sleep(5)
    client = await KubeClient.connect(
        str(kubeconfig), ClientSettings(request_timeout_seconds=0.1), FakeClock()
    )
    assert isinstance(await client.write("POST", "/x", b"{}"), Unknown)
    with pytest.raises(UnavailableError):
        await client.get("/x")
    await client.aclose()


async def test_a_connection_that_cannot_be_made_is_a_definite_no(tmp_path):
    path = tmp_path / "config"
    write_kubeconfig(path, "http://127.0.0.1:1")
    client = await KubeClient.connect(str(path), ClientSettings(), FakeClock())
    outcome = await client.write("POST", "/x", b"{}")
    assert isinstance(outcome, Rejected)
    assert outcome.status == 0
    with pytest.raises(UnavailableError):
        await client.get("/x")
    await client.aclose()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH"])
async def test_a_write_on_a_broken_kept_alive_connection_is_sent_once_and_is_unknown(
    client, server, method
):
    await client.get("/first")  # leaves a connection behind, which aiohttp would retry on

    async def cut(request):
        request.transport.abort()
        await asyncio.sleep(0)
        return web.Response()

    server.answer = cut
    assert isinstance(await client.write(method, "/x", b"{}"), Unknown)
    assert [request.method for request, _ in server.requests] == ["GET", method]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, ForbiddenError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (410, GoneError),
        (429, ApiError),
        (503, ApiError),
    ],
)
async def test_a_refused_read_raises_by_status(client, server, status, error):
    server.answer = lambda _request: web.Response(status=status, text=status_body(status, "Why"))
    with pytest.raises(error) as caught:
        await client.get("/x")
    assert (caught.value.status, caught.value.reason) == (status, "Why")


async def test_an_html_error_page_is_no_answer(client, server):
    server.answer = lambda _request: web.Response(status=502, text="<html>Bad gateway</html>")
    with pytest.raises(UnavailableError):
        await client.get("/x")


async def test_a_401_reads_the_token_again_and_tries_once(client, server, kubeconfig):
    server.answer = lambda request: (
        web.json_response({"kind": "Pod"})
        if request.headers["Authorization"] == "Bearer new"
        else web.Response(status=401, text=status_body(401, "Unauthorized"))
    )
    client._clock.skip(5)
    write_kubeconfig(kubeconfig, server.url, "new")
    assert await client.get("/x") == b'{"kind": "Pod"}'
    assert len(server.requests) == 2


async def test_a_401_with_the_same_token_is_not_repeated(client, server):
    server.answer = lambda _request: web.Response(status=401, text=status_body(401, "Unauthorized"))
    client._clock.skip(5)
    outcome = await client.write("PUT", "/x", b"{}")
    assert isinstance(outcome, Rejected)
    assert len(server.requests) == 1


async def test_a_changed_credential_file_is_noticed_within_a_minute(client, server, kubeconfig):
    write_kubeconfig(kubeconfig, server.url, "rotated")
    os.utime(kubeconfig, (1, 1))
    await client.get("/x")
    client._clock.skip(61)
    await client.get("/x")
    sent = [request.headers["Authorization"] for request, _ in server.requests]
    assert sent == [f"Bearer {TOKEN}", "Bearer rotated"]


async def test_an_unreadable_new_kubeconfig_keeps_the_old_credentials(client, server, kubeconfig):
    kubeconfig.unlink()
    client._clock.skip(61)
    assert await client.get("/x")


def stream(*chunks, wait=0.0):
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)
        await asyncio.sleep(wait)
        return response

    return answer


async def collect(client):
    async with client.watch("/api/v1/pods", {"resourceVersion": "5"}) as lines:
        return [line async for line in lines]


async def test_a_watch_is_split_into_lines_wherever_the_chunks_end(client, server):
    server.answer = stream(b'{"a":', b'1}\n{"b":2}\n\n', b'{"c"', b":3", b"}\n")
    assert await collect(client) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
    assert server.requests[0][0].query == {"watch": "1", "resourceVersion": "5"}


async def test_a_watch_that_ends_inside_an_event_is_broken(client, server):
    server.answer = stream(b'{"a":1}\n{"b"')
    with pytest.raises(UnavailableError):
        await collect(client)


async def test_a_watch_event_beyond_the_limit_is_refused(kubeconfig, server):
    server.answer = stream(b"x" * 3000)
    client = await KubeClient.connect(
        str(kubeconfig), ClientSettings(max_line_bytes=1000), FakeClock()
    )
    with pytest.raises(UnavailableError, match="longer"):
        await collect(client)
    await client.aclose()


async def test_a_silent_watch_is_given_up(kubeconfig, server):
    server.answer = stream(b'{"a":1}\n', wait=3)
    client = await KubeClient.connect(
        str(kubeconfig), ClientSettings(watch_silence_seconds=0.2), FakeClock()
    )
    with pytest.raises(UnavailableError):
        await collect(client)
    await client.aclose()


async def test_a_refused_watch_raises_before_any_line(client, server):
    server.answer = lambda _request: web.Response(status=410, text=status_body(410, "Expired"))
    with pytest.raises(GoneError):
        await collect(client)


async def test_token_and_bodies_are_never_logged(client, server, caplog):
    caplog.set_level(logging.DEBUG)
    server.answer = lambda _request: web.Response(status=500, text="canary-answer")
    await client.write("PUT", "/x", b"canary-body")
    client._clock.skip(61)
    with pytest.raises(UnavailableError):
        await client.get("/x")
    assert "canary" not in caplog.text


@pytest.mark.parametrize("content", [None, "", "{]", "apiVersion: v1\nkind: Config\n"])
async def test_an_unusable_kubeconfig_is_one_clear_error(tmp_path, content):
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ClientConfigError):
        await KubeClient.connect(str(path))


async def test_outside_a_cluster_without_kubeconfig_says_what_was_tried(monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClientConfigError, match="KUBECONFIG is not set"):
        await KubeClient.connect("")


async def test_a_replaced_ca_makes_new_connections_and_a_new_token_alone_does_not(tmp_path):
    ca, config = tmp_path / "ca.crt", tmp_path / "config"
    ca.write_text(OLD_CA)
    write_kubeconfig(config, "https://127.0.0.1:1")
    text = json.loads(config.read_text())
    text["clusters"][0]["cluster"]["certificate-authority"] = str(ca)
    config.write_text(json.dumps(text))
    clock = FakeClock()
    client = await KubeClient.connect(str(config), ClientSettings(), clock)
    first = client._session

    text["users"][0]["user"]["token"] = "rotated"
    config.write_text(json.dumps(text))
    clock.skip(61)
    await client.write("PUT", "/x", b"{}")
    assert client._session is first

    ca.write_text(NEW_CA)
    clock.skip(61)
    await client.write("PUT", "/x", b"{}")
    assert client._session is not first
    assert first is not None
    assert not first.closed  # watches that are open go on
    await client.aclose()
    assert first.closed


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
async def test_an_answer_with_text_that_no_decoder_takes_is_an_answer(client, server, text):
    """As the API server hands out opaque parameters (fault core 03)."""
    body = with_text({"kind": "ResourceClaimList", "metadata": {}, "items": [config()]}, text)
    server.answer = lambda _request: web.Response(body=body, content_type="application/json")
    assert await client.get("/x", {"limit": "5"}) == body
    assert await client.write("PUT", "/x", b"{}") == Committed(body)
    large = with_text({"kind": "List", "items": [config()] * 3, "pad": "x" * 300_000}, text)
    server.answer = lambda _request: web.Response(body=large, content_type="application/json")
    assert await client.get("/x") == large


@pytest.mark.parametrize("cut", [1, 9])
async def test_an_answer_with_such_text_that_is_cut_off_is_none(client, server, cut):
    text = ODD["half a surrogate pair"]
    body = with_text({"items": [config()], "n": [1, 2]}, text)[:-cut]
    server.answer = lambda _request: web.Response(body=body, content_type="application/json")
    with pytest.raises(UnavailableError):
        await client.get("/x")
    assert isinstance(await client.write("PUT", "/x", b"{}"), Unknown)


async def test_the_words_of_a_refusal_are_found_beside_such_text(client, server):
    status = {"kind": "Status", "reason": "Invalid", "message": "no", "details": config()}
    body = with_text(status, ODD["half a surrogate pair"])
    server.answer = lambda _request: web.Response(
        status=422, body=body, content_type="application/json"
    )
    assert await client.write("PUT", "/x", b"{}") == Rejected(422, "Invalid", "no")


async def test_metadata_alone_is_asked_for_in_the_accept_header(client, server):
    assert await client.get("/api/v1/pods", {"limit": "5"}, accept=METADATA) == b'{"kind": "Pod"}'
    request, _ = server.requests[0]
    assert "as=PartialObjectMetadataList" in request.headers["Accept"]
    assert request.headers["Accept"].endswith("application/json")
    await client.get("/api/v1/pods", {"limit": "5"})
    assert server.requests[1][0].headers["Accept"] == "application/json"
