"""What must hold in a real cluster: the invariants of `tests.invariants`, for a state of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from e2e.harness.api import Object
from tests.invariants import Finding, sharing
from tests.invariants.objects import Device, claim_names
from tests.invariants.state import newly_allocated
from tests.invariants.state import wrong_in as judge

__all__ = [
    "Device",
    "Finding",
    "claim_names",
    "devices_of",
    "exclusive",
    "judge",
    "newly_allocated",
]


def devices_of(claim: Object) -> list[Device]:
    """Returns the devices of a claim's allocation, admin access left out."""
    return [device for device, _ in sharing.held(claim)]


def exclusive(claims: Iterable[Object]) -> Iterator[Finding]:
    """S1: a device with an exclusive holder has no other holder, of either kind."""
    return sharing.exclusive(claims)
