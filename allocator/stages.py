"""How far a device comes before it is refused, and what is said of it.

A number in place of an enum: the search compares and notes one for every device that it refuses.
Source: which of several refusals is told: docs/reference/commands.md.
"""

from dataclasses import replace
from typing import Final

from allocator.model.devices import DeviceID
from allocator.outcome import DeviceReason, Reason, ReasonKind
from allocator.pools import Candidate, Pool, PoolState
from allocator.requests import Alternative
from allocator.taints import first_untolerated

STAGES: Final = (
    ReasonKind.NO_MATCHING_DEVICE,
    ReasonKind.FEATURE_DISABLED,
    ReasonKind.NODE_FEATURE_MISSING,
    ReasonKind.DEVICES_IN_USE,
    ReasonKind.CAPACITY_EXHAUSTED,
    ReasonKind.COUNTERS_EXHAUSTED,
    ReasonKind.INCOMPATIBLE_GROUP,
    ReasonKind.DEVICE_TAINTED,
    ReasonKind.CONSTRAINT_UNSATISFIED,
)
"""How far a device came, by stage number."""
PLACED: Final = -1
(
    NO_MATCH,
    GATED,
    NODE_LACKS,
    IN_USE,
    CAPACITY,
    COUNTERS,
    GROUPS,
    TAINTED,
    CONSTRAINED,
) = range(len(STAGES))

FOR_GOOD: Final = frozenset((GATED, NODE_LACKS, TAINTED))
"""Stages that depend on device, request and node alone, so that trying again ends there again."""

DEVICE_TEXTS: Final = (
    "class, selectors or node do not match",
    "needs a feature gate that is off",
    "the node lacks a feature that the device needs",
    "in use",
    "not enough capacity left",
    "not enough shared counters left",
    "its compatibility groups do not go with the devices beside it",
    "a taint is not tolerated",
    "a constraint of the claim is not satisfied",
)
"""What a device failed on, by stage number."""


def describe(alternative: Alternative, candidate: Candidate, stage: int) -> str:
    """Say in a sentence what a device failed on."""
    if stage == TAINTED:
        taint = first_untolerated(candidate.blocking_taints, alternative.tolerations or ())
        if taint is not None:
            value = f"={taint.value}" if taint.value else ""
            return f"taint {taint.key}{value}:{taint.effect} is not tolerated"
    if stage == CAPACITY and alternative.capacity:
        wanted = ", ".join(f"{name} {q}" for name, q in sorted(alternative.capacity.items()))
        return f"{DEVICE_TEXTS[stage]} ({wanted})"
    if stage == COUNTERS:
        sets = ", ".join(sorted({entry.counter_set for entry in candidate.consumes}))
        return f"{DEVICE_TEXTS[stage]} (counter sets {sets})"
    return DEVICE_TEXTS[stage]


def reason_of(alternative: Alternative, kind: ReasonKind, text: str) -> Reason:
    """A reason about one request, in words that are the same on all nodes."""
    return Reason(
        kind=kind,
        message=f"{alternative.where}: {text}",
        claim=alternative.claim_name.partition("/")[2],
        request=alternative.result_name,
    )


def pool_reason(alternative: Alternative, pool: Pool) -> Reason:
    """Why a request for all devices cannot be served while a pool is as it is."""
    if pool.state is PoolState.INCOMPLETE:
        kind, problem = ReasonKind.POOL_INCOMPLETE, "is currently being updated"
    else:
        kind, problem = ReasonKind.POOL_INVALID, "is currently invalid"
    # Which pool is a detail: its name is often the node's, and the message must be the same on all nodes.
    detail = DeviceReason(
        device=DeviceID(pool.id.driver, pool.id.name, ""), kind=kind, message=pool.problem
    )
    reason = reason_of(alternative, kind, f"asks for all devices, but a resource pool {problem}")
    return replace(reason, devices=(detail,))
