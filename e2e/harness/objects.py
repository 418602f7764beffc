"""Manifests for tests, as plain dicts: small defaults, everything that matters in the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from e2e.harness.api import Object

FINALIZER = "resource.kubernetes.io/delete-protection"
IMAGE = "registry.k8s.io/pause:3.10"


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
) -> Object:
    """A node without taints; its status is written separately by `Cluster.add_nodes`."""
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "250", **(allocatable or {})}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
            ],
        },
    }


def device(name: str, **attributes: str | int | bool) -> Object:
    """A device with attributes of the driver's own domain."""
    kinds = {str: "string", bool: "bool", int: "int"}
    return {
        "name": name,
        "attributes": {key: {kinds[type(value)]: value} for key, value in attributes.items()},
    }


def resource_slice(
    name: str,
    driver: str,
    devices: Sequence[Object],
    *,
    node: str | None = None,
    pool: str | None = None,
    generation: int = 1,
    spec: Mapping[str, Any] | None = None,
) -> Object:
    """A slice that is a whole pool: of one node, or of all nodes when `node` is None."""
    where = {"allNodes": True} if node is None else {"nodeName": node}
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "pool": {
                "name": pool or node or name,
                "generation": generation,
                "resourceSliceCount": 1,
            },
            "devices": list(devices),
            **where,
            **(spec or {}),
        },
    }


def device_class(name: str, driver: str) -> Object:
    """A class that every device of one driver is in."""
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
    }


def request(
    class_name: str,
    *,
    name: str = "gpu",
    count: int = 1,
    selector: str | None = None,
) -> Object:
    """An ExactCount request."""
    exactly: Object = {
        "deviceClassName": class_name,
        "allocationMode": "ExactCount",
        "count": count,
    }
    if selector is not None:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": exactly}


def claim_spec(*requests: Object) -> Object:
    return {"devices": {"requests": list(requests)}}


def claim(namespace: str, name: str, *requests: Object, finalizer: bool = False) -> Object:
    metadata: Object = {"name": name, "namespace": namespace}
    if finalizer:
        metadata["finalizers"] = [FINALIZER]
    return {"metadata": metadata, "spec": claim_spec(*requests)}


def template(namespace: str, name: str, *requests: Object) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": claim_spec(*requests)},
    }


def pod(
    namespace: str,
    name: str,
    *,
    scheduler: str,
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    unused: Sequence[str] = (),
    requests: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Object:
    """A pod with one container.

    Args:
      namespace: Where it is.
      name: What it is called.
      scheduler: Its `schedulerName`.
      claims: Entry name to claim name.
      templates: Entry name to template name.
      unused: Entries that the container does not refer to.
      requests: The container's resource requests, such as cpu.
      spec: Laid over the rest of the spec.
    """
    entries = [{"name": e, "resourceClaimName": c} for e, c in (claims or {}).items()]
    entries += [{"name": e, "resourceClaimTemplateName": t} for e, t in (templates or {}).items()]
    used = [{"name": e["name"]} for e in entries if e["name"] not in unused]
    resources: Object = {"requests": dict(requests or {}), **({"claims": used} if used else {})}
    container: Object = {"name": "main", "image": IMAGE, "resources": resources}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            **({"resourceClaims": entries} if entries else {}),
            **(spec or {}),
        },
    }
