"""Manifests in few words, for simulations."""

from typing import Any

from allocator.features import Features
from scheduler.offline.manifests import Manifest
from scheduler.offline.simulate import SimulationOptions, simulate
from scheduler.offline.trees import simulation_tree

Json = dict[str, Any]
GPU = "gpu.example.com"
NIC = "nic.example.com"


def node(name: str, **fields: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **fields.pop("metadata", {})},
        **fields,
    }


def attribute(value: Any) -> Json:
    if isinstance(value, dict):
        return value
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def device(name: str, memory: str | None = None, /, **fields: Any) -> Json:
    made: Json = {"name": name}
    attributes = fields.pop("attributes", {})
    if attributes:
        made["attributes"] = {key: attribute(value) for key, value in attributes.items()}
    if memory is not None:
        made["capacity"] = {"memory": {"value": memory}}
    return {**made, **fields}


def slice_(node_name: str, *devices: Json, driver: str = GPU, name: str = "", **spec: Any) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node_name}-{driver}"},
        "spec": {
            "driver": driver,
            "pool": {
                "name": node_name,
                "generation": 1,
                "resourceSliceCount": spec.pop("slices", 1),
            },
            "nodeName": node_name,
            **({"devices": list(devices)} if devices else {}),
            **spec,
        },
    }


def device_class(name: str = "gpu", *expressions: str, **spec: Any) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {
            "selectors": [
                {"cel": {"expression": text}}
                for text in expressions or (f"device.driver == '{GPU}'",)
            ],
            **spec,
        },
    }


def request(
    name: str = "gpu", device_class: str = "gpu", /, *selectors: str, **fields: Any
) -> Json:
    exactly: Json = {"deviceClassName": device_class, **fields}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    return {"name": name, "exactly": exactly}


def claim_spec(*requests: Json, **devices: Any) -> Json:
    return {"devices": {"requests": list(requests) or [request()], **devices}}


def claim(name: str, *requests: Json, status: Json | None = None, **devices: Any) -> Json:
    made = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": claim_spec(*requests, **devices),
    }
    return {**made, "status": status} if status else made


def template(name: str, *requests: Json, **devices: Any) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": claim_spec(*requests, **devices)},
    }


def pod_spec(*, claims: Any = (), templates: Any = (), containers: int = 1, **spec: Any) -> Json:
    entries = [{"name": name, "resourceClaimName": name} for name in claims]
    entries += [{"name": f"from-{name}", "resourceClaimTemplateName": name} for name in templates]
    used = {"claims": [{"name": entry["name"]} for entry in entries]}
    made = {"containers": [{"name": f"c{index}", "resources": used} for index in range(containers)]}
    return {**made, "resourceClaims": entries, **spec}


def pod(name: str, *, metadata: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **(metadata or {})},
        "spec": pod_spec(**spec),
    }


def workload(kind: str, name: str, spec: Json, **pod_fields: Any) -> Json:
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, "template": {"spec": pod_spec(**pod_fields)}},
    }


def gpus(name: str, count: int = 8, **attributes: Any) -> Json:
    """A node's slice of equal GPUs with 80Gi."""
    return slice_(
        name,
        *(device(f"gpu-{i}", "80Gi", attributes={"index": i, **attributes}) for i in range(count)),
    )


class Answer:
    """The JSON answer of a simulation, with short ways in."""

    def __init__(self, tree: Json) -> None:
        self.tree = tree
        self.pods = {pod["name"]: pod for pod in tree["pods"]}

    @property
    def placed(self) -> dict[str, str | None]:
        return {name: each["node"] for name, each in self.pods.items()}

    def devices(self, name: str) -> list[str]:
        return [
            result["device"]
            for each in self.pods[name]["claims"]
            for result in each["allocation"]["devices"].get("results", ())
        ]

    def results(self, name: str) -> list[tuple[str, str]]:
        return [
            (result["request"], result["device"])
            for each in self.pods[name]["claims"]
            for result in each["allocation"]["devices"]["results"]
        ]

    def kind(self, name: str) -> str | None:
        reason = self.pods[name]["reason"]
        return None if reason is None else str(reason["kind"])

    @property
    def errors(self) -> list[tuple[str, str]]:
        return [(error["object"], error["path"]) for error in self.tree["errors"]]


def run(
    *objects: Json, all_nodes: bool = False, features: Features | None = None, **options: Any
) -> Answer:
    manifests = [Manifest("in.yaml", number, obj) for number, obj in enumerate(objects, 1)]
    chosen = SimulationOptions(features=features or Features(), all_nodes=all_nodes, **options)
    return Answer(simulation_tree(simulate(manifests, chosen)))
