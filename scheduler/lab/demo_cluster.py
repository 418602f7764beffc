"""The demo's cluster and workload: GPUs, NICs, a card cut into partitions, a shared card, and pods that want them.

Plain manifests. One pod asks for more than any node has, one for partitions whose sum does not fit their card: they stay
Pending, and the demo shows why.
"""

from typing import Any, Final

from scheduler.lab.simulated import drivers

Json = dict[str, Any]
NAMESPACE: Final = "demo"
_GPU: Final = f'device.attributes["{drivers.GPU_DRIVER}"].model'


def nodes() -> list[Json]:
    """Two nodes of H100s, one of A100s, one with a partitionable and a shared card."""
    return [_node("h100-a"), _node("h100-b"), _node("a100-a"), _node("edge-a")]


def _node(name: str) -> Json:
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def publish(node: Json) -> list[Json]:
    """What the drivers of a node publish."""
    name = str(node["metadata"]["name"])
    if name.startswith("h100"):
        return [*drivers.gpus(name, 4), *drivers.nics(name, 2)]
    if name.startswith("a100"):
        return drivers.gpus(name, 2, model="A100", memory="40Gi")
    return [*drivers.partitionable_cards(name), *drivers.shared_cards(name)]


def classes() -> list[Json]:
    """One class a kind of device; `big-gpu` asks for memory."""
    memory = f'device.capacity["{drivers.GPU_DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
    return [
        drivers.device_class("gpu", drivers.GPU_DRIVER),
        drivers.device_class("big-gpu", drivers.GPU_DRIVER, memory),
        drivers.device_class("nic", drivers.NIC_DRIVER),
        drivers.device_class("partition", drivers.MIG_DRIVER),
        drivers.device_class("shared-gpu", drivers.SHARED_DRIVER),
    ]


def _request(name: str, class_name: str, count: int = 1, selector: str = "", **more: Any) -> Json:
    exactly: Json = {"deviceClassName": class_name, "count": count, **more}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": exactly}


def _alternative(model: str) -> Json:
    selector = {"cel": {"expression": f'{_GPU} == "{model}"'}}
    return {"name": model.lower(), "deviceClassName": "gpu", "selectors": [selector]}


def _spec(*requests: Json, match: str = "") -> Json:
    devices: Json = {"requests": list(requests)}
    if match:
        devices["constraints"] = [{"matchAttribute": match}]
    return {"devices": devices}


def templates() -> list[Json]:
    """Claim templates, by what a pod does with the devices."""
    specs = {
        "training": _spec(
            _request("gpus", "big-gpu", 2), _request("nic", "nic"), match=drivers.PCIE_ROOT
        ),
        "inference": _spec(
            {"name": "gpu", "firstAvailable": [_alternative("H100"), _alternative("A100")]}
        ),
        "one-gpu": _spec(_request("gpu", "gpu")),
        "partition": _spec(
            _request(
                "part",
                "partition",
                selector=f'device.capacity["{drivers.MIG_DRIVER}"].memory == quantity("6Gi")',
            )
        ),
        "share": _spec(_request("share", "shared-gpu", capacity={"requests": {"memory": "20"}})),
        "eight-gpus": _spec(_request("gpus", "gpu", 8)),
    }
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"spec": spec},
        }
        for name, spec in specs.items()
    ]


def claims() -> list[Json]:
    """A claim that two pods share."""
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "shared-by-two", "namespace": NAMESPACE},
            "spec": _spec(_request("gpu", "gpu")),
        }
    ]


def pods() -> list[Json]:
    """The pods, in the order in which they come."""
    by_template = (
        ("training-0", "training"),
        ("training-1", "training"),
        ("inference-0", "inference"),
        ("partition-0", "partition"),
        ("partition-1", "partition"),
        ("share-0", "share"),
        ("share-1", "share"),
        ("too-big", "eight-gpus"),
    )
    return [
        *(_pod(name, {"resourceClaimTemplateName": template}) for name, template in by_template),
        _pod("sharer-0", {"resourceClaimName": "shared-by-two"}),
        _pod("sharer-1", {"resourceClaimName": "shared-by-two"}),
        _pod("no-claim", None),
    ]


def jobs() -> list[Json]:
    """A Job whose pods each get a claim."""
    pod = _pod("", {"resourceClaimTemplateName": "one-gpu"})
    template = {"spec": {**pod["spec"], "restartPolicy": "Never"}}
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "batch", "namespace": NAMESPACE},
            "spec": {"parallelism": 3, "completions": 3, "template": template},
        }
    ]


def _pod(name: str, claim: Json | None) -> Json:
    container: Json = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "500m"}},
    }
    spec: Json = {"schedulerName": "dra-scheduler", "containers": [container]}
    if claim is not None:
        container["resources"]["claims"] = [{"name": "devices"}]
        spec["resourceClaims"] = [{"name": "devices", **claim}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }
