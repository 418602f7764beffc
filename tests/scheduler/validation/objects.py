"""Good objects of every kind, and a way to change one thing about them."""

import copy
import re
from typing import Any, Final

Json = dict[str, Any]
GONE: Final = object()
_STEP: Final = re.compile(r'\["([^"]+)"\]|\[(\d+)\]|\.?([^.\[\]]+)')


def steps(path: str) -> list[str | int]:
    """`spec.devices[0].capacity["a/b"]` as keys and indexes."""
    return [key or (int(index) if index else name) for key, index, name in _STEP.findall(path)]


def edited(obj: Json, edits: Json) -> Json:
    """A copy with values put at paths; `GONE` takes a field away."""
    changed: Any = copy.deepcopy(obj)
    for path, value in edits.items():
        *way, last = steps(path)
        place = changed
        for step in way:
            if isinstance(place, dict) and step not in place:
                place[step] = {}
            place = place[step]
        if value is GONE:
            place.pop(last, None)
        elif isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return dict(changed)


SLICE: Final[Json] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "node-1-gpu"},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-1",
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"model": {"string": "A100"}},
                "capacity": {"memory": {"value": "80Gi"}},
            }
        ],
    },
}
COUNTERS: Final[Json] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "node-1-counters"},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-1",
        "sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "8Gi"}}}],
    },
}
SHARED: Final[Json] = edited(
    SLICE,
    {
        "spec.devices[0].allowMultipleAllocations": True,
        "spec.devices[0].capacity.memory.requestPolicy": {
            "default": "10Gi",
            "validRange": {"min": "10Gi", "max": "40Gi", "step": "10Gi"},
        },
    },
)
VALUES: Final[Json] = edited(
    SHARED,
    {
        "spec.devices[0].capacity.memory.requestPolicy": {
            "default": "10Gi",
            "validValues": ["10Gi", "20Gi"],
        }
    },
)
CLAIM: Final[Json] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "gpu",
                    "exactly": {
                        "deviceClassName": "gpu.example.com",
                        "selectors": [{"cel": {"expression": "true"}}],
                        "tolerations": [{"key": "k", "operator": "Exists"}],
                    },
                },
                {
                    "name": "nic",
                    "firstAvailable": [
                        {"name": "fast", "deviceClassName": "nic.example.com"},
                        {"name": "slow", "deviceClassName": "nic.example.com"},
                    ],
                },
            ],
            "constraints": [
                {"matchAttribute": "example.com/root", "requests": ["gpu", "nic/fast"]}
            ],
            "config": [
                {
                    "requests": ["gpu"],
                    "opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}},
                }
            ],
        }
    },
}
ALLOCATED: Final[Json] = {
    **CLAIM,
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "gpu",
                        "driver": "gpu.example.com",
                        "pool": "node-1",
                        "device": "gpu-0",
                    }
                ],
                "config": [
                    {
                        "source": "FromClaim",
                        "opaque": {"driver": "gpu.example.com", "parameters": {}},
                    }
                ],
            },
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        "devices": [{"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}],
    },
}
TEMPLATE: Final[Json] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "t", "namespace": "default"},
    "spec": {"spec": CLAIM["spec"]},
}
CLASS: Final[Json] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com"},
    "spec": {
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
        "extendedResourceName": "example.com/gpu",
    },
}
RULE: Final[Json] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "r"},
    "spec": {
        "deviceSelector": {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"},
        "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
    },
}
POD: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
    },
}
