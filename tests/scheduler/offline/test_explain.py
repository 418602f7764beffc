"""Why one pod is where it is, or is not anywhere; from manifests and from a live cluster."""

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from allocator.features import Features
from scheduler.client import JSON, ApiClient, NotFoundError
from scheduler.offline.explain import explain_pod, explanation_tree
from scheduler.offline.live import read_cluster, read_version
from scheduler.offline.manifests import Manifest
from scheduler.offline.simulate import SimulationOptions
from tests.scheduler.offline.cluster import (
    Json,
    claim,
    device_class,
    gpus,
    node,
    pod,
    run,
    template,
    workload,
)

CLUSTER = [node("a"), gpus("a", 1), node("b"), device_class(), template("t")]
JOB = workload("Job", "j", {"parallelism": 2}, templates=["t"])


def explain(name: str, *objects: Json, alone: bool = False) -> Any:
    manifests = [Manifest("in.yaml", number, obj) for number, obj in enumerate(objects, 1)]
    found = explain_pod(
        manifests, SimulationOptions(features=Features()), "default", name, alone=alone
    )
    return None if found is None else explanation_tree(found)


def test_a_pod_that_fits_says_where_and_on_what():
    tree = explain("j-0", *CLUSTER, JOB)
    assert (tree["node"], tree["running"], tree["reason"]) == ("a", False, None)
    assert tree["claims"][0]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    assert tree["nodes"]["a"] is None
    assert tree["nodes"]["b"]["kind"] == "NoMatchingDevice"


def test_a_pod_that_does_not_fit_says_for_every_device_why():
    tree = explain("j-1", *CLUSTER, JOB)
    assert tree["node"] is None
    details = tree["nodes"]["a"]["details"]
    assert (details["claim"], details["request"]) == ("j-1-from-t", "gpu")
    assert [(each["device"], each["kind"]) for each in details["devices"]] == [
        ("gpu-0", "DevicesInUse")
    ]


def test_the_answer_agrees_with_simulate():
    simulated = run(*CLUSTER, JOB)
    for name in ("j-0", "j-1"):
        tree = explain(name, *CLUSTER, JOB)
        assert tree["node"] == simulated.placed[name]
        assert tree["claims"] == simulated.pods[name]["claims"]


def test_alone_no_other_pending_pod_moves():
    assert explain("j-1", *CLUSTER, JOB, alone=True)["node"] == "a"


def test_a_running_pod_shows_its_devices():
    allocation = {
        "devices": {
            "results": [
                {"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
            ]
        }
    }
    objects = [
        *CLUSTER,
        claim("c", status={"allocation": allocation}),
        pod("p", claims=["c"], nodeName="a"),
    ]
    tree = explain("p", *objects)
    assert (tree["node"], tree["running"], tree["nodes"]) == ("a", True, {})
    assert tree["claims"][0]["name"] == "c"


def test_what_concerns_all_nodes_is_said_once():
    tree = explain("p", *CLUSTER, pod("p", claims=["gone"]))
    assert (tree["reason"]["kind"], tree["nodes"]) == ("ClaimNotFound", {})


def test_an_unknown_pod_is_none():
    assert explain("nobody", *CLUSTER) is None


class Server:
    """Answers lists in pages of one object each."""

    def __init__(self, lists: Mapping[str, list[Json]]) -> None:
        self.lists = lists

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> bytes:
        if path == "/version":
            return b'{"gitVersion":"v1.36.3"}'
        if path not in self.lists:
            raise NotFoundError(404, "NotFound", path)
        items = self.lists[path]
        index = int((query or {}).get("continue", "0"))
        more = str(index + 1) if index + 1 < len(items) else ""
        version = "v1" if path.startswith("/api/") else "resource.k8s.io/v1"
        page = {
            "apiVersion": version,
            "metadata": {"continue": more},
            "items": items[index : index + 1],
        }
        return json.dumps(page).encode()


def bare(obj: Json) -> Json:
    """An object as it stands in a list: without kind and version."""
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


async def test_a_live_cluster_is_read_page_by_page_and_explained_alike():
    group = "/apis/resource.k8s.io/v1"
    server = Server(
        {
            "/api/v1/nodes": [bare(node("a")), bare(node("b"))],
            "/api/v1/pods": [bare(pod("p", claims=["c"]))],
            f"{group}/deviceclasses": [bare(device_class())],
            f"{group}/resourceslices": [bare(gpus("b", 1))],
            f"{group}/resourceclaims": [bare(claim("c"))],
        }
    )
    client = cast("ApiClient", server)
    manifests = await read_cluster(client)
    found = explain_pod(
        manifests, SimulationOptions(features=Features()), "default", "p", alone=True
    )
    assert found is not None
    assert (found.node, found.errors) == ("b", ())
    assert await read_version(client) == "1.36"


@pytest.mark.parametrize("answer", [b'{"gitVersion":"v0.0.0-master"}', b"{}"])
async def test_an_unknown_server_version_counts_as_the_newest(answer):
    class Odd:
        async def get(self, _path: str, _query: Mapping[str, str] | None = None) -> bytes:
            return bytes(answer)

    assert await read_version(cast("ApiClient", Odd())) == "1.37"
