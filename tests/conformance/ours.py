"""Our allocator, asked with the same questions as upstream's."""

import itertools

import msgspec

from allocator import outcome as outcomes
from allocator.allocate import allocate
from allocator.cel import Compiler
from allocator.features import Features
from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from allocator.model.hooks import dec_hook, enc_hook
from allocator.model.nodes import Node
from allocator.result import NewShareID
from allocator.snapshot import AllocatedState, SliceIndex, Snapshot
from allocator.verify import verify
from tests.conformance.gates import features_of
from tests.conformance.objects import Json


class Question(msgspec.Struct, kw_only=True, rename="camel"):
    """A question, decoded with the types that the scheduler itself uses."""

    id: str
    features: dict[str, bool]
    implementation: str = ""
    node: msgspec.Raw
    slices: list[ResourceSlice] = []
    classes: list[DeviceClass] = []
    claims: list[ResourceClaim] = []
    allocated: list[ResourceClaim] = []
    taint_rules: list[DeviceTaintRule] = []


def node_of(raw: msgspec.Raw) -> Node:
    body = msgspec.json.decode(raw)
    metadata = body["metadata"]
    return Node(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        declared_features=frozenset((body.get("status") or {}).get("declaredFeatures") or ()),
    )


_ALLOCATIONS = msgspec.json.Decoder(list[AllocationResult], dec_hook=dec_hook)
_DECODER = msgspec.json.Decoder(Question, dec_hook=dec_hook)


def decode(question: Json) -> Question:
    """A question of plain dicts, typed."""
    return _DECODER.decode(msgspec.json.encode(question))


def snapshot_of(typed: Question, features: Features) -> Snapshot:
    rules = typed.taint_rules if features.device_taints and features.device_taint_rules else ()
    return Snapshot(
        slices=SliceIndex.build(typed.slices, rules),
        classes={entry.metadata.name: entry for entry in typed.classes},
        allocated=AllocatedState.from_claims(
            typed.allocated, consumable_capacity=features.consumable_capacity
        ),
    )


def ask_ours(question: Json, cel: Compiler) -> outcomes.Outcome:
    """Ask our allocator, without a search budget."""
    typed = decode(question)
    features = features_of(typed.features)
    return allocate(
        typed.claims,
        node_of(typed.node),
        snapshot_of(typed, features),
        features=features,
        cel=cel,
        budget=None,
        new_share_id=share_ids(),
    )


def share_ids() -> NewShareID:
    """Ids that count from one."""
    numbers = itertools.count(1)
    return lambda _claim, _request, _device: f"00000000-0000-4000-9000-{next(numbers):012d}"


def faults(question: Json, answer: Json, cel: Compiler) -> list[str]:
    """What `verify` finds wrong with upstream's allocations; nothing, if it is right."""
    typed = decode(question)
    features = features_of(typed.features)
    allocations = _ALLOCATIONS.decode(msgspec.json.encode(answer.get("results") or []))
    found = verify(
        typed.claims,
        allocations,
        node_of(typed.node),
        snapshot_of(typed, features),
        features=features,
        cel=cel,
    )
    return [f"{violation}" for violation in found]


def ours(question: Json, cel: Compiler) -> Json:
    """Our answer in the oracle's form, with `dependsOnNode` for fatal ones."""
    return answer_of(ask_ours(question, cel))


def answer_of(outcome: outcomes.Outcome) -> Json:
    """An outcome in the oracle's form, with `dependsOnNode` for fatal ones."""
    match outcome:
        case outcomes.Allocated(allocations):
            results = msgspec.json.decode(msgspec.json.encode(allocations, enc_hook=enc_hook))
            return {"outcome": "allocated", "results": results}
        case outcomes.DoesNotFit(reason):
            return {"outcome": "does_not_fit", "message": reason.message}
        case outcomes.NodeError(reason):
            return {"outcome": "node_error", "message": reason.message}
        case outcomes.Fatal(reason, depends_on_node):
            return {"outcome": "fatal", "message": reason.message, "dependsOnNode": depends_on_node}
