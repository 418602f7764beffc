"""What went where, as plain data for people: a pod, its node and devices, or why it has none."""

from collections.abc import Mapping
from dataclasses import dataclass

from allocator.model.claims import AllocationResult
from allocator.outcome import Reason


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """One pod.

    Attributes:
        name: of the pod.
        node: where it runs; empty: nowhere.
        devices: one line each, as `device_lines` writes them.
        message: why it is Pending.
        reasons: node -> why not there; an empty name for what concerns all nodes.
    """

    name: str
    node: str
    devices: tuple[str, ...]
    message: str
    reasons: Mapping[str, Reason]


def device_lines(allocation: AllocationResult) -> list[str]:
    """`request: driver/pool/device`, with what is consumed of it."""
    lines = []
    for result in allocation.devices.results or ():
        consumed = ", ".join(
            f"{name} {amount}" for name, amount in sorted((result.consumed_capacity or {}).items())
        )
        lines.append(
            f"{result.request}: {result.device_id}" + (f" ({consumed})" if consumed else "")
        )
    return lines
