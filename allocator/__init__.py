"""Chooses devices for ResourceClaims, exactly as Kubernetes 1.37 does. Pure: no I/O, clock, randomness or logging."""

from allocator.allocate import allocate, allocate_prepared
from allocator.features import Features
from allocator.outcome import (
    Allocated,
    DeviceReason,
    DoesNotFit,
    Fatal,
    NodeError,
    Outcome,
    Reason,
    ReasonKind,
)
from allocator.policies import FIRST_FIT, POLICIES, Policy
from allocator.requests import PreparedClaims, prepare_claims
from allocator.snapshot import AllocatedState, SliceIndex, Snapshot

__all__ = [
    "FIRST_FIT",
    "POLICIES",
    "Allocated",
    "AllocatedState",
    "DeviceReason",
    "DoesNotFit",
    "Fatal",
    "Features",
    "NodeError",
    "Outcome",
    "Policy",
    "PreparedClaims",
    "Reason",
    "ReasonKind",
    "SliceIndex",
    "Snapshot",
    "allocate",
    "allocate_prepared",
    "prepare_claims",
]
