"""Answers as plain data, in the shape that `-o json` promises."""

from typing import Any

from allocator.outcome import Reason
from scheduler.api.decode import allocation_tree
from scheduler.offline.cluster import PodClaimResult
from scheduler.offline.simulate import PodResult, Simulation


def simulation_tree(simulation: Simulation) -> dict[str, Any]:
    """A simulation as plain data."""
    return {
        "pods": [_pod_tree(pod) for pod in simulation.pods],
        "errors": [
            {
                "file": error.file,
                "document": error.document,
                "object": error.object,
                "path": error.path,
                "message": error.message,
            }
            for error in simulation.errors
        ],
        "notes": list(simulation.notes),
    }


def _pod_tree(pod: PodResult) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "namespace": pod.namespace,
        "name": pod.name,
        "node": pod.node,
        "claims": [claim_tree(each) for each in pod.claims],
        "reason": None if pod.reason is None else reason_tree(pod.reason),
    }
    if pod.nodes or pod.node is None:
        tree["nodes"] = {
            name: None if reason is None else {"kind": reason.kind.value, "message": reason.message}
            for name, reason in pod.nodes.items()
        }
    return tree


def claim_tree(claim: PodClaimResult) -> dict[str, Any]:
    """A claim of a placed pod as plain data."""
    return {
        "entry": claim.entry,
        "name": claim.claim.metadata.name,
        "allocation": allocation_tree(claim.allocation),
    }


def reason_tree(reason: Reason) -> dict[str, Any]:
    """A reason as plain data; always this shape."""
    return {
        "kind": reason.kind.value,
        "message": reason.message,
        "details": {
            "claim": reason.claim or None,
            "request": reason.request or None,
            "devices": [
                {
                    "driver": each.device.driver,
                    "pool": each.device.pool,
                    "device": each.device.device,
                    "kind": each.kind.value,
                    "message": each.message,
                }
                for each in reason.devices
            ],
        },
    }
