"""A full cluster in the embedded API server: every device but one is allocated to a running pod.

One object of each kind is written and validated as always; the others are copies of what the server made of it.
Objects are as large as a real server's: `managedFields`, the volumes that admission adds, statuses.
"""

import asyncio
import multiprocessing
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

import orjson

from e2e.harness import objects
from scheduler.client import Committed
from scheduler.clock import SystemClock
from scheduler.lab.apiserver.app import serve
from scheduler.lab.apiserver.client import EmbeddedClient
from scheduler.lab.apiserver.objects import Json
from scheduler.lab.apiserver.requests import Request, encode_continue
from scheduler.lab.apiserver.resources import CLAIMS, NODES, PODS, SLICES, Resource, parse_path
from scheduler.lab.apiserver.server import ApiServer, Response
from scheduler.lab.apiserver.watches import Watch
from scheduler.reflectors.machine import PAGE_LIMIT
from scheduler.reflectors.sources import PAGE_LIMITS, PATHS
from tests.benchmarks.backlog import DEVICES_PER_NODE, DRIVER, gpu

OURS: Final = "ours"  # scheduler name, pod and claim
_NAMESPACE: Final = "default"
_NODE: Final = "node-00000"
_CLAIM: Final = "claim-00000-0"
_POD: Final = "pod-00000-0"
_SERIAL: Final = "GPU-000000"
_CORE: Final = "/api/v1"
_DRA: Final = "/apis/resource.k8s.io/v1"
_CLAIM_PATH: Final = f"{_DRA}/namespaces/{_NAMESPACE}/resourceclaims"
_POD_PATH: Final = f"{_CORE}/namespaces/{_NAMESPACE}/pods"
_FINALIZER: Final = objects.FINALIZER


@contextmanager
def full_cluster(nodes: int) -> Iterator[str]:
    """Serve one from another process; gives its URL once it is filled."""
    parent, child = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(child, nodes), daemon=True
    )
    process.start()
    try:
        yield parent.recv()
    finally:
        parent.send("end")
        process.join(10)


def _serve(pipe: Connection, nodes: int) -> None:
    asyncio.run(_fill_and_serve(pipe, nodes))


async def _fill_and_serve(pipe: Connection, nodes: int) -> None:
    clock = SystemClock()
    server = _PreparedServer.create(clock, random.Random(1))
    await fill(server, EmbeddedClient(server, clock), nodes)
    server.prepare()
    async with serve(server, clock) as url:
        pipe.send(url)
        while not pipe.poll():
            await asyncio.sleep(0.2)


class _PreparedServer(ApiServer):
    """Has made the pages of all lists before anybody asks: the embedded server takes much longer than a real one."""

    _pages: Mapping[tuple[str, str], Response] = {}

    def prepare(self) -> None:
        """Make the pages that reflectors will ask for."""
        pages: dict[tuple[str, str], Response] = {}
        for kind, (path, *_) in PATHS.items():
            target, limit = parse_path(path), PAGE_LIMITS.get(kind, PAGE_LIMIT)
            left, token = self.store.objects(target.resource.collection), ""
            while True:
                items, left = left[:limit], left[limit:]
                meta = {"resourceVersion": str(self.store.revision)}
                if left:
                    meta["continue"] = encode_continue(self.store.revision, items[-1].key)
                pages[path, token] = Response(200, self._list_body(target, items, meta))
                if not left:
                    break
                token = meta["continue"]
        self._pages = pages

    def handle(self, request: Request) -> Response | Watch:
        """Answer a request; the prepared pages are as of the start."""
        if request.method == "GET" and "limit" in request.query:
            prepared = self._pages.get((request.path, request.query.get("continue", "")))
            if prepared is not None:
                return prepared
        return super().handle(request)


async def fill(server: ApiServer, client: EmbeddedClient, nodes: int) -> None:
    """Make the cluster: all devices but the last allocated, and a pod of ours that waits for one."""
    await _write(client, "POST", f"{_DRA}/deviceclasses", objects.device_class("gpu", DRIVER))
    await _write(client, "POST", f"{_CORE}/nodes", objects.node(_NODE))
    devices = [gpu(index, 0) for index in range(DEVICES_PER_NODE)]
    await _write(
        client,
        "POST",
        f"{_DRA}/resourceslices",
        objects.resource_slice(f"{_NODE}-gpus", DRIVER, devices, node=_NODE),
    )
    await _make_running_pod(client)
    samples = {
        resource.collection: _sample(server, resource) for resource in (NODES, SLICES, CLAIMS, PODS)
    }
    for node in range(1, nodes):
        changes = {_NODE: f"node-{node:05d}", _SERIAL: f"GPU-{node:06d}"}
        for resource in (NODES, SLICES):
            _copy(server, resource, samples[resource.collection], node, changes)
    for number in range(1, nodes * DEVICES_PER_NODE - 1):
        node, device = divmod(number, DEVICES_PER_NODE)
        changes = {
            _NODE: f"node-{node:05d}",
            _CLAIM: f"claim-{node:05d}-{device}",
            _POD: f"pod-{node:05d}-{device}",
            '"gpu-0"': f'"gpu-{device}"',
        }
        for resource in (CLAIMS, PODS):
            _copy(server, resource, samples[resource.collection], number, changes)
    server.store.compact()
    request = objects.request("gpu")
    await _write(client, "POST", _CLAIM_PATH, objects.claim(_NAMESPACE, OURS, request))
    pod = objects.pod(_NAMESPACE, OURS, scheduler=OURS, claims={"gpu": OURS})
    await _write(client, "POST", _POD_PATH, pod)


async def _make_running_pod(client: EmbeddedClient) -> None:
    """One pod with its claim, from creation to Running."""
    request = objects.request("gpu")
    body = objects.claim(_NAMESPACE, _CLAIM, request, finalizer=True)
    claim = await _write(client, "POST", _CLAIM_PATH, body)
    pod = await _write(
        client,
        "POST",
        _POD_PATH,
        objects.pod(
            _NAMESPACE,
            _POD,
            scheduler="another",
            claims={"gpu": _CLAIM},
            requests={"cpu": "1", "memory": "4Gi"},
            spec={"volumes": [_TOKEN_VOLUME], "tolerations": list(_TOLERATIONS)},
        ),
    )
    field = {"key": "metadata.name", "operator": "In", "values": [_NODE]}
    device = {"request": "gpu", "driver": DRIVER, "pool": _NODE, "device": "gpu-0"}
    consumer = {"resource": "pods", "name": _POD, "uid": pod["metadata"]["uid"]}
    claim["status"] = {
        "allocation": {
            "devices": {"results": [device]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            "allocationTimestamp": "2026-11-29T12:00:00Z",
        },
        "reservedFor": [consumer],
    }
    await _write(client, "PUT", f"{_CLAIM_PATH}/{_CLAIM}/status", claim)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": _POD, "namespace": _NAMESPACE},
        "target": {"apiVersion": "v1", "kind": "Node", "name": _NODE},
    }
    await _write(client, "POST", f"{_POD_PATH}/{_POD}/binding", binding)
    pod = orjson.loads(await client.get(f"{_POD_PATH}/{_POD}"))
    pod["status"] = {**pod["status"], **_RUNNING}
    await _write(client, "PUT", f"{_POD_PATH}/{_POD}/status", pod)


async def _write(client: EmbeddedClient, method: str, path: str, body: Json) -> Json:
    outcome = await client.write(method, path, orjson.dumps(body))
    if not isinstance(outcome, Committed):
        raise RuntimeError(f"{method} {path}: {outcome}")
    written: Json = orjson.loads(outcome.body)
    return written


def _sample(server: ApiServer, resource: Resource) -> str:
    """The only object of a kind as JSON, with the `managedFields` that three managers would leave."""
    (stored,) = server.store.objects(resource.collection)
    managed = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-11-29T12:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": _owned(stored.obj),
        }
        for manager in ("kube-controller-manager", "kube-scheduler", "kubelet")
    ]
    meta = {**stored.obj["metadata"], "managedFields": managed}
    return orjson.dumps({**stored.obj, "metadata": meta}).decode()


def _owned(obj: Mapping[str, Any]) -> Json:
    return {
        f"f:{key}": _owned(value) if isinstance(value, Mapping) else {}
        for key, value in obj.items()
        if key != "metadata"
    }


def _copy(
    server: ApiServer, resource: Resource, sample: str, number: int, changes: Mapping[str, str]
) -> None:
    text = sample
    for old, new in changes.items():
        text = text.replace(old, new)
    obj: Json = orjson.loads(text)
    meta = obj["metadata"]
    meta["uid"] = f"{number:08x}{meta['uid'][8:]}"
    for consumer in obj.get("status", {}).get("reservedFor", ()):
        consumer["uid"] = f"{number:08x}{consumer['uid'][8:]}"
    name: str = meta["name"]
    key = f"{_NAMESPACE}/{name}" if resource.namespaced else name
    server.store.put(resource.collection, key, obj)


_TOKEN_VOLUME: Final = {
    "name": "kube-api-access-x2v9k",
    "projected": {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {
                "downwardAPI": {
                    "items": [
                        {
                            "path": "namespace",
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                        }
                    ]
                }
            },
        ],
    },
}
_TOLERATIONS: Final = tuple(
    {
        "key": f"node.kubernetes.io/{what}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for what in ("not-ready", "unreachable")
)
_RUNNING: Final = {
    "phase": "Running",
    "hostIP": "10.0.0.1",
    "podIP": "10.1.0.1",
    "startTime": "2026-11-29T12:00:00Z",
    "conditions": [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-11-29T12:00:00Z"}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    ]
    + [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-29T12:00:00Z"}],
    "containerStatuses": [
        {
            "name": "main",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "image": "registry.k8s.io/pause:3.10",
            "imageID": "registry.k8s.io/pause@sha256:" + "0" * 64,
            "containerID": "containerd://" + "0" * 64,
            "state": {"running": {"startedAt": "2026-11-29T12:00:00Z"}},
        }
    ],
}
