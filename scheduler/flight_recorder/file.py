"""A recording as text: one JSON object a line, in the order in which things happened.

    {"flightRecorder": 1, "mode": "standalone", "features": {…}, "policy": …, "deviceStrategy": …, "budget": …,
     "onNodeError": …, "bindingTimeoutSeconds": …}
    {"kind": "Node", "type": "ADDED", "object": {…}}            what there was, then what changed (DELETED, too)
    {"hold": POD UID, "claims": {CLAIM UID: {"claim": {…}, "allocation": {…}}}}
    {"place": POD UID, "pod": {…} | null, "node": …, "demand": […]}
    {"decision": 17, "at": …, "pod": {…}, "versions": {…}, "lookedAt": […] | null,
     "plan": {"node": …, "allocations": {…}} | null, "refusal": {"kind": …, "message": …} | null}

Opaque parameters are left out: no decision depends on them, and they may be secrets.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.model.devices import DeviceClass
from allocator.model.hooks import enc_hook
from scheduler.cache.expectations import PlaceSet
from scheduler.flight_recorder.log import (
    Decision,
    Entry,
    Held,
    HoldChanged,
    PlaceChanged,
    Recording,
)
from scheduler.framework.environment import Environment
from scheduler.framework.plan import Plan
from scheduler.model import Change, ClaimRecord, Kind, Watched

VERSION: Final = 1
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)
_NOTHING: Final = msgspec.Raw(b"{}")


def lines(recording: Recording, environment: Environment) -> Iterator[bytes]:
    """The recording, line by line, each with its newline."""
    yield _line(_header(environment))
    for kind, items in recording.objects.items():
        for item in items:
            yield _line(_object(kind, "ADDED", item))
    for uid, held in recording.held.items():
        yield _line(_hold(uid, held))
    for uid, placed in recording.placed.items():
        yield _line(_place(uid, placed))
    for entry in recording.entries:
        yield _line(_entry(entry))


def _line(tree: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(tree) + b"\n"


def _header(environment: Environment) -> dict[str, Any]:
    return {
        "flightRecorder": VERSION,
        "mode": environment.mode.value,
        "features": asdict(environment.features),
        "policy": environment.policy,
        "deviceStrategy": environment.device_strategy,
        "budget": environment.budget,
        "onNodeError": environment.on_node_error,
        "bindingTimeoutSeconds": environment.binding_timeout_seconds,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    match entry:
        case Change(kind=kind, new=None, old=old) if old is not None:
            return _object(kind, "DELETED", old)
        case Change(kind=kind, new=new) if new is not None:
            return _object(kind, "MODIFIED", new)
        case HoldChanged(pod_uid=uid, after=held):
            return _hold(uid, held or {})
        case PlaceChanged(pod_uid=uid, after=placed):
            return _place(uid, placed)
        case Decision():
            return _decision(entry)
        case _:
            raise AssertionError(f"a change of nothing: {entry}")


def _object(kind: Kind, type_: str, item: Watched) -> dict[str, Any]:
    return {"kind": kind.value, "type": type_, "object": _public(item)}


def _public(item: Watched) -> Any:
    """The object without opaque parameters."""
    match item:
        case ClaimRecord(claim=claim):
            return _claim(claim)
        case DeviceClass():
            return replace(item, spec=replace(item.spec, config=_emptied(item.spec.config)))
        case _:
            return item


def _claim(claim: ResourceClaim) -> ResourceClaim:
    devices, allocation = claim.spec.devices, claim.status.allocation
    return replace(
        claim,
        spec=replace(claim.spec, devices=replace(devices, config=_emptied(devices.config))),
        status=replace(
            claim.status, allocation=None if allocation is None else _allocation(allocation)
        ),
    )


def _allocation(allocation: AllocationResult) -> AllocationResult:
    devices = allocation.devices
    return replace(allocation, devices=replace(devices, config=_emptied(devices.config)))


def _emptied(config: Iterable[Any] | None) -> tuple[Any, ...] | None:
    if config is None:
        return None
    return tuple(
        each
        if each.opaque is None
        else replace(each, opaque=replace(each.opaque, parameters=_NOTHING))
        for each in config
    )


def _hold(uid: str, held: Held) -> dict[str, Any]:
    claims = {
        claim_uid: {"claim": _claim(claim), "allocation": _allocation(allocation)}
        for claim_uid, (claim, allocation) in held.items()
    }
    return {"hold": uid, "claims": claims}


def _place(uid: str, placed: PlaceSet | None) -> dict[str, Any]:
    if placed is None:
        return {"place": uid, "pod": None, "node": "", "demand": []}
    return {
        "place": uid,
        "pod": placed.pod,
        "node": placed.node_name,
        "demand": list(placed.demand),
    }


def _decision(decision: Decision) -> dict[str, Any]:
    plan = refusal = None
    if isinstance(decision.outcome, Plan):
        allocations = decision.outcome.allocations
        plan = {
            "node": decision.outcome.node_name,
            "allocations": {uid: _allocation(each) for uid, each in allocations.items()},
        }
    else:
        reason = decision.outcome.reason
        kind = None if reason is None else reason.kind.value
        refusal = {"kind": kind, "message": decision.outcome.message}
    return {
        "decision": decision.number,
        "at": decision.at,
        "pod": decision.pod,
        "versions": {kind.value: version for kind, version in decision.versions.items()},
        "lookedAt": decision.looked_at,
        "plan": plan,
        "refusal": refusal,
    }
