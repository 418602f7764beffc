"""Ask the allocator in one line, and read its answer in one more."""

from collections.abc import Sequence
from typing import Any

from allocator import (
    Allocated,
    DoesNotFit,
    Fatal,
    Features,
    NodeError,
    Outcome,
    ReasonKind,
    Snapshot,
    allocate,
)
from allocator.cel import Compiler
from allocator.model.claims import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from allocator.model.nodes import Node
from allocator.verify import verify
from tests.builders import node, share_id_of

DEFAULTS = Features()
CEL = Compiler()


def features(**flags: bool) -> Features:
    """The defaults of 1.37 with some flags changed."""
    return DEFAULTS.with_gates(**flags)


EXPERIMENTAL = features(
    list_type_attributes=True,
    derived_attributes=True,
    device_compatibility_groups=True,
    optional_node_operations=True,
)
STABLE = features(
    consumable_capacity=False, device_binding_conditions=False, resource_claim_device_status=False
)


def ask(
    snapshot: Snapshot,
    *claims: ResourceClaim,
    on: Node | None = None,
    features: Features = DEFAULTS,
    **options: Any,
) -> Any:
    """Allocate without a budget; every allocation that comes out is verified. Answers an `Outcome`."""
    where = on or node()
    options = {"budget": None, **options}
    outcome = allocate(
        claims, where, snapshot, features=features, cel=CEL, new_share_id=share_id_of, **options
    )
    if isinstance(outcome, Allocated):
        wrong = verify(claims, outcome.allocations, where, snapshot, features=features, cel=CEL)
        assert wrong == []
    return outcome


def allocations(outcome: Outcome) -> tuple[AllocationResult, ...]:
    assert isinstance(outcome, Allocated), outcome
    return outcome.allocations


def results(outcome: Outcome, claim: int = 0) -> Sequence[DeviceRequestAllocationResult]:
    return allocations(outcome)[claim].devices.results or ()


def names(outcome: Outcome) -> list[str] | str | None:
    """Device names of all claims in order; `None` does not fit, `node error`, `fatal` else."""
    match outcome:
        case Allocated():
            return [r.device for a in outcome.allocations for r in a.devices.results or ()]
        case DoesNotFit():
            return None
        case NodeError():
            return "node error"
        case Fatal():
            return "fatal"


def by_request(outcome: Outcome) -> list[tuple[str, str]]:
    """Request and device of all results."""
    return [(r.request, r.device) for a in allocations(outcome) for r in a.devices.results or ()]


def kind(outcome: Outcome) -> ReasonKind:
    assert not isinstance(outcome, Allocated)
    return outcome.reason.kind


def message(outcome: Outcome) -> str:
    assert not isinstance(outcome, Allocated)
    return outcome.reason.message


def depends_on_node(outcome: Outcome) -> bool:
    assert isinstance(outcome, Fatal), outcome
    return outcome.depends_on_node
