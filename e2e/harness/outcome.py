"""What a run ends in, up to the names of devices: two runs that differ in nothing else are as good as each other."""

from __future__ import annotations

from typing import Any

from e2e.harness.api import Object
from e2e.harness.judge import claim_names


def end_state(pods: list[Object], claims: list[Object]) -> dict[str, Any]:
    """Everything that matters of pods and claims; which node and which device does not, only that they go together."""
    by_name = {claim["metadata"]["name"]: claim for claim in claims}
    found: dict[str, Any] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        name = pod["metadata"]["name"]
        found[f"pod {name}"] = {"bound": bool(node), "phase": pod.get("status", {}).get("phase")}
        for entry, called in sorted(claim_names(pod).items()):
            claim = by_name.pop(called or "", None)
            found[f"pod {name} {entry}"] = None if claim is None else _claim(claim, node)
    # What no pod uses is left over.
    found |= {f"claim {name}": _claim(claim, None) for name, claim in sorted(by_name.items())}
    return found


def _claim(claim: Object, node: str | None) -> dict[str, Any]:
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    return {
        "results": sorted(result["request"] for result in results),
        "different": len({(r["driver"], r["pool"], r["device"]) for r in results}),
        "here": all(result["pool"] == node for result in results),
        "reserved": sorted(entry["name"] for entry in status.get("reservedFor") or []),
        "finalizers": sorted(claim["metadata"].get("finalizers") or []),
    }
