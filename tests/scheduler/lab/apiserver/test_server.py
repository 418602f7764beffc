"""What only the embedded server promises: it never breaks, is the same each time, and serves over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.client import (
    PROTOBUF,
    ApiError,
    Committed,
    GoneError,
    NotFoundError,
    Rejected,
    Unknown,
)
from scheduler.client.kube import KubeClient
from scheduler.clock import SystemClock
from scheduler.lab.apiserver.app import create_app, kubeconfig, serve
from scheduler.lab.apiserver.client import EmbeddedClient
from scheduler.lab.apiserver.requests import Request
from scheduler.lab.apiserver.resources import RESOURCES
from scheduler.lab.apiserver.server import ApiServer, Response
from scheduler.lab.apiserver.watches import Watch
from tests.fakes import FakeClock, settle
from tests.opaque import claim_body

PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def new_server(**options: Any) -> ApiServer:
    return ApiServer.create(FakeClock(), Random(0), **options)


def send(server: ApiServer, method: str, path: str, body: Any = None, **query: str) -> Response:
    raw = b"" if body is None else orjson.dumps(body)
    answer = server.handle(Request(method, path, query, raw))
    assert isinstance(answer, Response)
    return answer


def test_the_same_requests_give_the_same_bytes() -> None:
    def history() -> list[bytes]:
        server = new_server()
        body = {**POD, "metadata": {"generateName": "p-"}}
        return [send(server, "POST", PODS, body).body for _ in range(3)]

    assert history() == history()


def test_it_starts_with_what_every_cluster_has() -> None:
    server = new_server()
    namespaces = orjson.loads(send(server, "GET", "/api/v1/namespaces").body)["items"]
    assert [item["metadata"]["name"] for item in namespaces] == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]


def test_nodes_are_ready_at_once_unless_asked_otherwise() -> None:
    for taint, expected in ((False, None), (True, "node.kubernetes.io/not-ready")):
        server = new_server(taint_new_nodes=taint)
        made = send(server, "POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        taints = orjson.loads(made.body)["spec"].get("taints")
        assert (taints and taints[0]["key"]) == expected


def test_fields_of_gates_that_are_off_are_dropped() -> None:
    claim = {
        "metadata": {"name": "c"},
        "spec": {
            "devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}],
                "constraints": [{"distinctAttribute": "d.example.com/a"}],
            }
        },
    }
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    assert send(new_server(), "POST", path, claim).status == 201
    # Without the field, the constraint says nothing, and that is an error.
    assert send(new_server(version="1.34.4"), "POST", path, claim).status == 422


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["name", "uid"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = [
    "metadata.name",
    "metadata.labels",
    "metadata.finalizers",
    "metadata.ownerReferences",
    "metadata.resourceVersion",
    "spec",
    "spec.containers",
    "spec.resourceClaims",
    "spec.schedulingGates",
    "spec.tolerations",
    "spec.taints",
    "spec.taint",
    "spec.devices",
    "spec.devices.requests",
    "spec.spec",
    "spec.pool",
    "spec.template",
    "spec.selectors",
    "spec.parallelism",
    "status",
    "status.conditions",
    "status.capacity",
    "status.allocation",
    "status.allocation.devices.results",
    "status.reservedFor",
    "status.devices",
    "spec.terminationGracePeriodSeconds",
    "spec.priorityClassName",
    "spec.nodeName",
    "spec.finalizers",
    "gracePeriodSeconds",
    "preconditions",
    "propagationPolicy",
    "involvedObject",
    "series",
    "eventTime",
    "value",
    "data",
    "target",
]


def planted(path: str, value: Any) -> dict[str, Any]:
    obj: dict[str, Any] = {"metadata": {"name": "x"}}
    *parents, last = path.split(".")
    place = obj
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    return obj


@given(
    st.sampled_from(RESOURCES),
    st.sampled_from(["POST", "PUT", "MERGE", "STRATEGIC", "APPLY", "STATUS", "BINDING", "DELETE"]),
    st.sampled_from(FIELDS),
    JSON,
)
def test_whatever_is_sent_the_answer_is_one_of_the_apis(
    resource: Any, way: str, field: str, value: Any
) -> None:
    server = new_server()
    prefix = f"/apis/{resource.group}/v1" if resource.group else "/api/v1"
    namespace = "/namespaces/default" if resource.namespaced else ""
    collection = f"{prefix}{namespace}/{resource.plural}"
    server.handle(Request("POST", collection, {}, orjson.dumps(planted("metadata.name", "x"))))
    server.handle(Request("POST", PODS, {}, orjson.dumps({**POD, "metadata": {"name": "x"}})))
    requests = {
        "POST": ("POST", collection, "application/json"),
        "PUT": ("PUT", f"{collection}/x", "application/json"),
        "MERGE": ("PATCH", f"{collection}/x", "application/merge-patch+json"),
        "STRATEGIC": ("PATCH", f"{collection}/x", "application/strategic-merge-patch+json"),
        "APPLY": ("PATCH", f"{collection}/x", "application/apply-patch+yaml"),
        "STATUS": ("PUT", f"{collection}/x/status", "application/json"),
        "DELETE": ("DELETE", f"{collection}/x", "application/json"),
        "BINDING": ("POST", f"{PODS}/x/binding", "application/json"),
    }
    method, path, content_type = requests[way]
    body = json.dumps(planted(field, value)).encode("utf-8", "surrogatepass")
    query = {"fieldManager": "m"} if way == "APPLY" else {}
    answer = server.handle(Request(method, path, query, body, content_type))
    assert isinstance(answer, Response)
    decoded = orjson.loads(answer.body)
    if answer.status >= 300:
        assert decoded["kind"] == "Status"
        assert decoded["message"]
        assert answer.status in {400, 403, 404, 405, 409, 415, 422, 500}


@given(
    st.text(max_size=40), st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3)
)
def test_whatever_is_asked_the_answer_is_one_of_the_apis(path: str, query: dict[str, str]) -> None:
    for prefix in ("", "/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims"):
        answer = new_server().handle(Request("GET", prefix + path, query))
        assert isinstance(answer, Watch) or answer.status in {200, 400, 404, 410, 422, 504}


async def test_a_refused_read_says_how() -> None:
    client = EmbeddedClient(new_server(), FakeClock())
    with pytest.raises(NotFoundError):
        await client.get(f"{PODS}/none")
    with pytest.raises(ApiError) as refused:
        await client.get("/api/v1/pods", {"resourceVersion": "999999"})
    assert (refused.value.status, refused.value.retry_after_seconds) == (504, 1)


async def test_a_write_ends_as_a_value() -> None:
    client = EmbeddedClient(new_server(), FakeClock())
    body = orjson.dumps(POD)
    assert isinstance(await client.write("POST", PODS, body), Committed)
    again = await client.write("POST", PODS, body)
    assert isinstance(again, Rejected)
    assert (again.status, again.reason) == (409, "AlreadyExists")
    versioned = orjson.dumps({**POD, "metadata": {"name": "q", "resourceVersion": "1"}})
    assert isinstance(await client.write("POST", PODS, versioned), Unknown)


async def test_a_page_of_a_forgotten_state_is_gone_but_says_how_to_go_on() -> None:
    server = new_server()
    for name in "abc":
        send(server, "POST", PODS, {**POD, "metadata": {"name": name}})
    first = orjson.loads(send(server, "GET", PODS, limit="1").body)
    server.store.compact()
    send(server, "DELETE", f"{PODS}/c")
    token = first["metadata"]["continue"]
    client = EmbeddedClient(server, FakeClock())
    server.store.compact()
    with pytest.raises(GoneError):
        await client.get(PODS, {"continue": token})
    refused = orjson.loads(send(server, "GET", PODS, **{"continue": token}).body)
    rest = send(server, "GET", PODS, **{"continue": refused["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in orjson.loads(rest.body)["items"]] == ["b"]


async def read(lines: AsyncIterator[bytes], count: int) -> list[str]:
    found = []
    async for line in lines:
        found.append(orjson.loads(line)["type"])
        if len(found) == count:
            break
    return found


async def test_a_watch_that_fell_behind_ends_with_an_error() -> None:
    server = new_server()
    client = EmbeddedClient(server, FakeClock())
    version = str(server.store.revision)
    async with client.watch(PODS, {"resourceVersion": version}) as lines:
        send(server, "POST", PODS, POD)
        assert await read(lines, 1) == ["ADDED"]
        send(server, "DELETE", f"{PODS}/p")
        server.store.compact()
        assert await read(lines, 5) == ["ERROR"]


async def test_bookmarks_come_once_a_minute_and_before_the_end() -> None:
    server = new_server()
    clock = FakeClock()
    query = {
        "resourceVersion": str(server.store.revision),
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "100",
    }
    types: list[str] = []

    async def follow() -> None:
        async with EmbeddedClient(server, clock).watch(PODS, query) as lines:
            types.extend(await read(lines, 9))

    task = asyncio.create_task(follow())
    await settle()
    await clock.advance(59)
    assert types == []
    await clock.advance(40)
    await clock.advance(2)
    await task
    assert types == ["BOOKMARK", "BOOKMARK"]


async def test_leaving_a_watch_leaves_nothing_behind() -> None:
    server = new_server()
    tasks = len(asyncio.all_tasks())
    query = {"resourceVersion": str(server.store.revision)}
    async with EmbeddedClient(server, FakeClock()).watch(PODS, query):
        await settle()
    assert len(asyncio.all_tasks()) == tasks
    send(server, "POST", PODS, POD)


async def test_the_asgi_application_answers() -> None:
    transport = httpx.ASGITransport(app=create_app(new_server(), FakeClock()))
    async with httpx.AsyncClient(transport=transport, base_url="http://embedded") as http:
        assert (await http.get("/readyz")).text == "ok"
        made = await http.post(PODS, json=POD)
        assert made.status_code == 201
        assert made.headers["content-type"] == "application/json"
        refused = await http.post(PODS, json=POD)
        assert (refused.status_code, refused.json()["kind"]) == (409, "Status")
        found = await http.get(PODS, params={"fieldSelector": "metadata.name=p"})
        assert len(found.json()["items"]) == 1
        assert (await http.post(PODS, content=b"x" * (4 * 1024 * 1024))).status_code == 413


async def test_it_serves_a_real_client_over_http(tmp_path: Any) -> None:
    server = ApiServer.create(SystemClock(), Random(0))
    config = tmp_path / "kubeconfig"
    async with serve(server, SystemClock()) as url:
        config.write_text(kubeconfig(url))
        client = await KubeClient.connect(str(config))
        query = {"resourceVersion": str(server.store.revision)}
        async with client.watch(PODS, query) as lines:
            outcome = await client.write("POST", PODS, orjson.dumps(POD))
            assert isinstance(outcome, Committed)
            assert await read(lines, 1) == ["ADDED"]
        assert orjson.loads(await client.get(f"{PODS}/p"))["metadata"]["name"] == "p"
        await client.aclose()


async def test_a_client_that_hangs_up_ends_its_watch() -> None:
    server = ApiServer.create(SystemClock(), Random(0))
    async with serve(server, SystemClock()) as url:
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {PODS}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await writer.drain()
        async with asyncio.timeout(5):
            while not server.store._listeners:
                await asyncio.sleep(0.01)
            writer.close()
            await writer.wait_closed()
            while server.store._listeners:
                await asyncio.sleep(0.01)


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("path", "accept", "status", "content_type"),
    [
        (f"{CLAIMS}/c", PROTOBUF, 200, PROTOBUF),
        (f"{CLAIMS}/c", f"{PROTOBUF}, application/json", 200, PROTOBUF),
        (f"{CLAIMS}/c", "application/json", 200, "application/json"),
        (f"{CLAIMS}/c", f"{TABLE},application/json", 200, "application/json"),
        (f"{CLAIMS}/c", "*/*", 200, "application/json"),
        (f"{PODS}/p", f"{PROTOBUF},application/json", 200, "application/json"),
        (f"{PODS}/p", PROTOBUF, 406, "application/json"),
    ],
)
async def test_an_object_comes_in_the_format_that_is_wanted(
    path: str, accept: str, status: int, content_type: str
) -> None:
    server = new_server()
    send(server, "POST", PODS, POD)
    assert isinstance(server.handle(Request("POST", CLAIMS, body=claim_body("c", b"{}"))), Response)
    transport = httpx.ASGITransport(app=create_app(server, FakeClock()))
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        answer = await client.get(path, headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (status, content_type)


@pytest.mark.parametrize(
    ("path", "body"), [(f"{CLAIMS}/c", b"k8s\x00\xff"), (f"{CLAIMS}/c", b"{}"), (f"{PODS}/p", b"")]
)
def test_a_body_that_is_no_protobuf_is_refused(path: str, body: bytes) -> None:
    server = new_server()
    answer = server.handle(Request("PUT", path, body=body, content_type=PROTOBUF))
    assert isinstance(answer, Response)
    assert answer.status in (400, 415)
