"""A synthetic cluster of any size: nodes whose GPUs differ in uuid and index as real ones do, and pods that want one each."""

from typing import Any, Final, cast

import msgspec

from scheduler.api.decode import decode
from scheduler.model import ClaimRecord, Kind, Pod
from scheduler.offline.listed import FIRST_VERSION, ListedCluster, Lists, Timer, pages

DRIVER: Final = "gpu.example.com"
DEVICE_CLASS: Final = "gpu"
NAMESPACE: Final = "default"
DEVICES: Final = 8
MAX_DEVICES: Final = 128  # of one slice
_MIN_PODS: Final = 110  # what a kubelet takes unless told otherwise
_GPUS_OF_A_SOCKET: Final = 4
Json = dict[str, Any]


def synthetic_lists(nodes: int, devices: int = DEVICES, pods: int = 0) -> Lists:
    """A cluster as the API server lists it.

    Args:
        nodes: how many.
        devices: of each node, at most `MAX_DEVICES`.
        pods: that wait, each with a claim of its own for one device.
    """
    names = [f"node-{index:05d}" for index in range(nodes)]
    waiting = [f"pod-{index}" for index in range(pods)]
    return {
        Kind.NODE: pages(Kind.NODE, (_node(name, devices) for name in names)),
        Kind.POD: pages(Kind.POD, map(_pod, waiting)),
        Kind.RESOURCE_CLAIM: pages(Kind.RESOURCE_CLAIM, map(_claim, waiting)),
        Kind.RESOURCE_SLICE: pages(Kind.RESOURCE_SLICE, (_slice(n, devices) for n in names)),
        Kind.DEVICE_CLASS: pages(Kind.DEVICE_CLASS, [_device_class()]),
    }


class SyntheticCluster(ListedCluster):
    """A synthetic cluster without pods, to which pods are added one by one."""

    def __init__(self, nodes: int, timer: Timer, devices: int = DEVICES) -> None:
        """Make and read it."""
        super().__init__(synthetic_lists(nodes, devices), timer)

    def add_pod(self, name: str) -> Pod:
        """Add a pod with one unallocated claim for one device; all of them ask the same."""
        self.add(Kind.RESOURCE_CLAIM, cast("ClaimRecord", _read(Kind.RESOURCE_CLAIM, _claim(name))))
        pod = cast("Pod", _read(Kind.POD, _pod(name)))
        self.add(Kind.POD, pod)
        return pod


def _read(kind: Kind, tree: Json) -> Any:
    return decode(kind, msgspec.json.encode(tree))


def _metadata(kind: Kind, name: str, **more: Any) -> Json:
    version = str(FIRST_VERSION)
    return {"name": name, "uid": f"{kind.lower()}-{name}", "resourceVersion": version, **more}


def _node(name: str, devices: int) -> Json:
    pods = str(max(_MIN_PODS, devices))
    return {
        "metadata": _metadata(Kind.NODE, name, labels={"kubernetes.io/hostname": name}),
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": pods}},
    }


def _slice(node: str, devices: int) -> Json:
    return {
        "metadata": _metadata(Kind.RESOURCE_SLICE, f"{node}-gpus"),
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(node, index) for index in range(devices)],
        },
    }


def _device(node: str, index: int) -> Json:
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "model": {"string": "H100"},
            "uuid": {"string": f"GPU-{node}-{index}"},
            "numa": {"int": index // _GPUS_OF_A_SOCKET},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def _device_class() -> Json:
    return {"metadata": _metadata(Kind.DEVICE_CLASS, DEVICE_CLASS), "spec": {}}


def _claim(name: str) -> Json:
    exactly = {"deviceClassName": DEVICE_CLASS, "allocationMode": "ExactCount", "count": 1}
    return {
        "metadata": _metadata(Kind.RESOURCE_CLAIM, name, namespace=NAMESPACE),
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def _pod(name: str) -> Json:
    return {
        "metadata": _metadata(
            Kind.POD, name, namespace=NAMESPACE, creationTimestamp="2026-01-01T00:00:00Z"
        ),
        "spec": {
            "schedulerName": "dra-scheduler",
            "containers": [{"name": "main"}],
            "resourceClaims": [{"name": name, "resourceClaimName": name}],
        },
        "status": {"phase": "Pending"},
    }
