"""DynamicResources: all claims of the pod must be usable on the node, and unallocated ones get devices there together.

Pure decisions; who writes them down is the binder's business. Every refusal is "unresolvable": evicting pods frees no
device by itself.

Source: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go; docs/design/claims.md#resolving,
docs/design/scheduling-cycle.md#dynamic-resources, docs/design/write-protocol.md#binding-conditions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypedDict

from allocator import POLICIES, Policy, PreparedClaims, allocate_prepared, prepare_claims
from allocator.allocate import solve
from allocator.model.claims import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceRequest,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from allocator.model.nodes import Node, NodeSelectorError, matches_node_selector
from allocator.outcome import Allocated, DoesNotFit, Fatal, NodeError, Outcome, Reason, ReasonKind
from allocator.pools import Pool
from allocator.scoring import STRATEGIES, raw_prioritized_list
from allocator.search import Solution
from allocator.snapshot import Snapshot
from scheduler.framework.cycle_state import CycleState, NodeVerdict, PodClaim
from scheduler.framework.environment import Environment, ShouldStop
from scheduler.framework.events import NODE_ANY, Event
from scheduler.framework.plan import Demand
from scheduler.framework.plugin import IN_EVERY_MODE, Plugin, Scale
from scheduler.framework.profile import MAX_SCORE
from scheduler.framework.status import Code, Status, error, unresolvable
from scheduler.model import (
    MAX_CONSUMERS,
    ClusterReader,
    NodeInfo,
    Pod,
    UnreadableClaim,
    UnreadableClass,
)
from scheduler.plugins import node_allocatable

NAME: Final = "DynamicResources"
OPTIONAL_NODE_OPERATIONS: Final = "DRAOptionalNodeOperations"

PLUGIN: Final = Plugin(
    name=NAME,
    modes=IN_EVERY_MODE,
    weight=2,
    scale=Scale.HIGHER_IS_BETTER,
    events=NODE_ANY
    | Event.CLAIM_CHANGED
    | Event.CLAIM_FREED
    | Event.DEVICES_CHANGED
    | Event.CLASS_CHANGED
    | Event.OWN_CLAIM_STATUS,
    is_about_devices=True,
)


def _refusal(kind: ReasonKind, message: str, claim: str = "", request: str = "") -> Status:
    return unresolvable(Reason(kind=kind, message=message, claim=claim, request=request), NAME)


# --- which claims -----------------------------------------------------------------------------------------------------


def resolve_claims(pod: Pod, reader: ClusterReader) -> tuple[PodClaim, ...] | Status:
    """Find the claims of a pod, each once, in the pod's order.

    Two entries may name one claim: it is allocated and reserved once. A template entry whose status names no claim needs
    none. A pod's text never names what is not its own: claims are of its namespace.

    Returns:
        The claims, or the first thing that is wrong with one of them.
    """
    claims: dict[str, PodClaim] = {}
    made = {status.name: status for status in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        name = entry.resource_claim_name
        is_generated = name is None
        if name is None:
            if entry.resource_claim_template_name is None:
                return _refusal(
                    ReasonKind.INVALID_CLAIM,
                    f"resource claim entry {entry.name!r} names neither a claim nor a template",
                )
            status = made.get(entry.name)
            if status is None:
                return _refusal(
                    ReasonKind.CLAIM_NOT_CREATED,
                    f"the ResourceClaim for entry {entry.name!r} is not created yet",
                )
            if status.resource_claim_name is None:
                continue
            name = status.resource_claim_name
        claim = reader.claim(pod.metadata.namespace, name)
        if claim is None:
            return _refusal(
                ReasonKind.CLAIM_NOT_FOUND, f"resourceclaim {name!r} not found", claim=name
            )
        problem = _problem(pod, claim, is_generated=is_generated)
        if problem is not None:
            return problem
        claims.setdefault(claim.metadata.uid, PodClaim(entry.name, claim))
    return tuple(claims.values())


def _problem(pod: Pod, claim: ResourceClaim, *, is_generated: bool) -> Status | None:
    name = claim.metadata.name
    if isinstance(claim, UnreadableClaim):
        return _refusal(
            ReasonKind.INVALID_CLAIM,
            f"resourceclaim {name!r} cannot be read: {claim.problem}",
            claim=name,
        )
    if claim.metadata.deletion_timestamp is not None:
        return _refusal(
            ReasonKind.CLAIM_BEING_DELETED, f"resourceclaim {name!r} is being deleted", claim=name
        )
    controller = claim.metadata.controller
    if is_generated and (controller is None or controller.uid != pod.metadata.uid):
        return _refusal(
            ReasonKind.CLAIM_NOT_OWNED,
            f"resourceclaim {name!r} was not created for this pod",
            claim=name,
        )
    return None


def is_reserved_for(claim: ResourceClaim, pod_uid: str) -> bool:
    """Whether the pod may use the claim already."""
    return any(consumer.uid == pod_uid for consumer in claim.status.reserved_for or ())


def check_claims(
    pod: Pod, claims: Iterable[PodClaim], reader: ClusterReader, environment: Environment
) -> Status | None:
    """Look for what keeps the pod from every node: in-flight claims, full ones, missing classes. None: nothing."""
    classes = reader.snapshot().devices.classes
    for pod_claim in claims:
        claim = pod_claim.claim
        name = claim.metadata.name
        if claim.status.allocation is not None:
            problem = _check_allocated(pod, claim)
        elif reader.in_flight(claim.metadata.uid) is not None:
            problem = _refusal(
                ReasonKind.ALLOCATION_PENDING,
                f"resourceclaim {name!r} is in the process of being allocated",
                claim=name,
            )
        else:
            problem = _check_unallocated(claim, classes, environment)
        if problem is not None:
            return problem
    return None


def _check_allocated(pod: Pod, claim: ResourceClaim) -> Status | None:
    name = claim.metadata.name
    consumers = claim.status.reserved_for or ()
    if len(consumers) >= MAX_CONSUMERS and not is_reserved_for(claim, pod.metadata.uid):
        return _refusal(
            ReasonKind.TOO_MANY_CONSUMERS,
            f"resourceclaim {name!r} has {MAX_CONSUMERS} consumers, the maximum",
            claim=name,
        )
    return None


def _check_unallocated(
    claim: ResourceClaim, classes: Mapping[str, object], environment: Environment
) -> Status | None:
    """Check the shape of requests and that their classes exist; a missing class comes with its own wake-up event."""
    for request in claim.spec.devices.requests or ():
        wanted = _wanted_classes(claim.metadata.name, request, environment)
        if isinstance(wanted, Status):
            return wanted
        for where, class_name in wanted:
            problem = _check_class(claim.metadata.name, where, class_name, classes)
            if problem is not None:
                return problem
    return None


def _wanted_classes(
    claim: str, request: DeviceRequest, environment: Environment
) -> Sequence[tuple[str, str]] | Status:
    """Name and class of a request, or of each of its alternatives."""
    if request.exactly is not None:
        return [(request.name, request.exactly.device_class_name)]
    if not request.first_available:
        kind, problem = ReasonKind.INVALID_CLAIM, "unknown request type"
    elif not environment.features.prioritized_list:
        kind = ReasonKind.FEATURE_DISABLED
        problem = "firstAvailable needs feature gate DRAPrioritizedList"
    else:
        return [
            (f"{request.name}/{alternative.name}", alternative.device_class_name)
            for alternative in request.first_available
        ]
    text = f"resourceclaim {claim!r}, request {request.name}: {problem}"
    return _refusal(kind, text, claim=claim, request=request.name)


def _check_class(
    claim: str, where: str, class_name: str, classes: Mapping[str, object]
) -> Status | None:
    """Why the class of a request cannot be used, or None."""
    if not class_name:
        reason = Reason(
            kind=ReasonKind.INVALID_CLAIM,
            message=f"resourceclaim {claim!r}, request {where}: the device class is missing",
            claim=claim,
            request=where,
        )
        return error(reason, NAME)
    found = classes.get(class_name)
    if isinstance(found, UnreadableClass):
        problem = f"cannot be read: {found.problem}"
    elif found is None:
        problem = "does not exist"
    else:
        return None
    text = f"request {where}: device class {class_name} {problem}"
    return _refusal(ReasonKind.DEVICE_CLASS_NOT_FOUND, text, claim=claim, request=where)


def prepare(
    claims: Sequence[ResourceClaim], devices: Snapshot, environment: Environment
) -> PreparedClaims:
    """Make claims ready for the search, once for all nodes."""
    return prepare_claims(claims, devices.classes, environment.features, environment.cel)


# --- allocated claims on one node -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Allocated claims that cannot be used on a node, and why the first of them cannot."""

    uids: tuple[str, ...]
    status: Status


def _look_at_allocated(state: CycleState, node: NodeInfo) -> Unavailable | Status | None:
    uids: list[str] = []
    first: Status | None = None
    counts_for_node = state.environment.features.node_allocatable_resources
    for pod_claim in state.allocated:
        claim = pod_claim.claim
        allocation = claim.status.allocation
        if allocation is None:
            continue
        try:
            problem = _unavailable(state, claim, allocation, node)
        except NodeSelectorError as problem_of_selector:
            reason = Reason(
                kind=ReasonKind.INVALID_CLAIM,
                message=f"resourceclaim {claim.metadata.name!r}: the allocation's node selector"
                f" cannot be used: {problem_of_selector}",
                claim=claim.metadata.name,
            )
            return error(reason, NAME)
        if problem is not None:
            uids.append(pod_claim.uid)
            first = first or problem
        # Upstream looks no further at a claim whose devices are elsewhere.
        if counts_for_node and (problem is None or _is_binding_problem(problem)):
            taken = _shared_mapping(state, claim)
            if taken is not None:
                return taken
    return None if first is None else Unavailable(tuple(uids), first)


def _is_binding_problem(problem: Status) -> bool:
    return problem.reason is not None and problem.reason.kind is ReasonKind.BINDING_FAILED


def _unavailable(
    state: CycleState, claim: ResourceClaim, allocation: AllocationResult, node: NodeInfo
) -> Status | None:
    """Why an allocated claim cannot be used on a node, or None.

    Raises:
        NodeSelectorError: the allocation's node selector cannot be parsed.
    """
    name = claim.metadata.name
    selector = allocation.node_selector
    if selector is not None and not matches_node_selector(
        selector, node.for_allocator.labels, node.name
    ):
        return _refusal(
            ReasonKind.ALLOCATED_ELSEWHERE,
            f"resourceclaim {name!r} is allocated and cannot be used on the node",
            claim=name,
        )
    features = state.environment.features
    results = allocation.devices.results or ()
    if (
        features.optional_node_operations
        and any(result.skip_node_operations for result in results)
        and OPTIONAL_NODE_OPERATIONS not in node.for_allocator.declared_features
    ):
        return _refusal(
            ReasonKind.NODE_FEATURE_MISSING,
            f"resourceclaim {name!r} needs node feature {OPTIONAL_NODE_OPERATIONS}",
            claim=name,
        )
    if not features.binding:
        return None
    timeout = timedelta(seconds=state.environment.binding_timeout_seconds)
    problem = binding_problem(claim, state.now, timeout)
    return None if problem is None else _refusal(ReasonKind.BINDING_FAILED, problem, claim=name)


def _device_status(
    claim: ResourceClaim, result: DeviceRequestAllocationResult
) -> AllocatedDeviceStatus | None:
    for status in claim.status.devices or ():
        if (status.driver, status.pool, status.device) == tuple(result.device_id):
            return status
    return None


def is_ready_for_binding(claim: ResourceClaim) -> bool | None:
    """Whether all devices of an allocated claim met their binding conditions; None: one of them failed.

    A device without an entry in `status.devices` is not ready.
    """
    allocation = claim.status.allocation
    is_ready = True
    for result in () if allocation is None else allocation.devices.results or ():
        if not result.binding_conditions:
            continue
        status = _device_status(claim, result)
        conditions = () if status is None else status.conditions or ()
        true = {condition.type for condition in conditions if condition.status == "True"}
        if true.intersection(result.binding_failure_conditions or ()):
            return None
        if not true.issuperset(result.binding_conditions):
            is_ready = False
    return is_ready


def binding_problem(claim: ResourceClaim, now: datetime, timeout: timedelta) -> str | None:
    """Why an allocated claim will not become ready for binding, or None if it is or may.

    Without an allocation timestamp it can only fail, never time out.
    """
    name = claim.metadata.name
    is_ready = is_ready_for_binding(claim)
    if is_ready is None:
        return f"resourceclaim {name!r}: device binding failed"
    allocation = claim.status.allocation
    if is_ready or allocation is None or allocation.allocation_timestamp is None:
        return None
    allocated_at = datetime.fromisoformat(allocation.allocation_timestamp)
    if allocated_at + timeout < now:
        return f"resourceclaim {name!r}: device binding timeout"
    return None


# --- one node ---------------------------------------------------------------------------------------------------------


def allocate_on(state: CycleState, node: NodeInfo) -> Outcome:
    """Search devices of one node for all unallocated claims together."""
    return allocate_prepared(
        _prepared(state),
        node.for_allocator,
        state.snapshot.devices,
        new_share_id=state.environment.new_share_id,
        **_settings(state.environment),
    )


def solve_on(state: CycleState, node: Node, pools: Sequence[Pool]) -> Solution | Outcome:
    """The search alone, over pools that were gathered before."""
    in_use = state.snapshot.devices.allocated
    return solve(_prepared(state), node, pools, in_use, **_settings(state.environment))


def ran_out_of_time(found: Solution | Outcome) -> bool:
    """Whether a search was ended by its deadline: another try may find something else."""
    return isinstance(found, Fatal) and found.reason.kind is ReasonKind.DEADLINE_EXCEEDED


class _Settings(TypedDict):
    budget: int | None
    policy: Policy
    should_stop: ShouldStop
    explain: bool


def _settings(environment: Environment) -> _Settings:
    """How one search is run; its time begins now."""
    return _Settings(
        budget=environment.budget or None,
        policy=POLICIES[environment.policy],
        should_stop=environment.start_deadline(),
        explain=environment.explain,
    )


def _prepared(state: CycleState) -> PreparedClaims:
    if state.prepared is None:
        raise AssertionError(f"pod {state.pod.key} has no claims to allocate")
    return state.prepared


def filter_node(state: CycleState, node: NodeInfo) -> NodeVerdict:
    """Say whether the pod's claims can all be used on one node, and with which devices."""
    unavailable = look_at_allocated(state, node)
    if isinstance(unavailable, NodeVerdict):
        return unavailable
    outcome = allocate_on(state, node) if state.unallocated else Allocated(())
    return with_outcome(state, node, unavailable, outcome)


def look_at_allocated(state: CycleState, node: NodeInfo) -> Unavailable | NodeVerdict | None:
    """Which allocated claims cannot be used on a node; a verdict if that settles it, None if all can be used."""
    found = _look_at_allocated(state, node)
    if isinstance(found, Status):
        return NodeVerdict(found, ends_attempt=found.code is Code.ERROR)
    return found


def with_outcome(
    state: CycleState, node: NodeInfo, unavailable: Unavailable | None, outcome: Outcome
) -> NodeVerdict:
    """What a node is to the pod, once devices for the other claims have been searched there.

    Source: `Filter` of the plugin: the search runs also when an allocated claim is unavailable here, and only if it
    succeeds does giving that claim back promise anything.
    """
    verdict = verdict_on(state, outcome)
    counts_for_node = state.environment.features.node_allocatable_resources
    if counts_for_node and verdict.fits and isinstance(outcome, Allocated):
        verdict = with_demand(state, node, verdict, outcome.allocations)
    if unavailable is not None and verdict.fits:
        return NodeVerdict(unavailable.status, unavailable=unavailable.uids)
    return verdict


def with_demand(
    state: CycleState,
    node: NodeInfo,
    verdict: NodeVerdict,
    allocations: Iterable[AllocationResult],
) -> NodeVerdict:
    """A verdict on a node whose devices suffice, as what they count in its resources leaves it."""
    demand = claims_demand(state, node, allocations)
    if not isinstance(demand, Status):
        return replace(verdict, demand=demand) if demand else verdict
    is_error = demand.code is Code.ERROR
    return NodeVerdict(demand, ends_attempt=is_error and state.environment.on_node_error == "abort")


def verdict_on(state: CycleState, outcome: Outcome) -> NodeVerdict:
    """What an outcome of the search makes of a node, its resources apart."""
    match outcome:
        case Allocated(allocations=results):
            uids = (claim.metadata.uid for claim in state.unallocated)
            return NodeVerdict(allocations=dict(zip(uids, results, strict=True)))
        case DoesNotFit(reason=reason) | NodeError(reason=reason):
            return NodeVerdict(unresolvable(reason, NAME))
        case Fatal(reason=reason, depends_on_node=depends_on_node):
            # Differs from upstream: an error of one node's devices rejects that node alone (kubernetes#141829),
            # unless told to abort as in-tree does.
            ends = not depends_on_node or state.environment.on_node_error == "abort"
            return NodeVerdict(error(reason, NAME), ends_attempt=ends)


def claims_demand(
    state: CycleState, node: NodeInfo, allocations: Iterable[AllocationResult]
) -> Demand | Status:
    """What the pod's claims count in resources of one node, if it has room for that (`node_allocatable`); or why not.

    Args:
        state: of the attempt.
        node: where.
        allocations: new ones, one for each unallocated claim.
    """
    claims = [*zip(state.unallocated, allocations, strict=True)]
    for pod_claim in state.allocated:
        allocation = pod_claim.claim.status.allocation
        if allocation is not None:
            claims.append((pod_claim.claim, allocation))
    device_of = node_allocatable.devices_on(state.snapshot.devices.slices, node.for_allocator)
    demand = node_allocatable.demand_of(state.pod, claims, device_of)
    if isinstance(demand, Status):
        return demand
    return node_allocatable.check(state.info.pod, demand, node) or demand


def _shared_mapping(state: CycleState, claim: ResourceClaim) -> Status | None:
    """Refuse an allocated claim that stands for a resource of its node and that another pod may use already."""
    allocation = claim.status.allocation
    is_taken = bool(claim.status.reserved_for) and not is_reserved_for(
        claim, state.pod.metadata.uid
    )
    if allocation is None or not is_taken:
        return None
    device_of = node_allocatable.devices_anywhere(state.snapshot.devices.slices)
    if not node_allocatable.is_mapped(allocation, device_of):
        return None
    return _refusal(
        ReasonKind.TOO_MANY_CONSUMERS,
        f"resourceclaim {claim.metadata.name!r} has a device that maps to a resource of its"
        " node and cannot be shared by pods",
        claim=claim.metadata.name,
    )


def score_node(
    state: CycleState, node: NodeInfo, allocations: Mapping[str, AllocationResult]
) -> int:
    """How well devices of one node serve the pod, before normalising; 0 for a pod that needs no new ones.

    Args:
        state: of the attempt.
        node: where.
        allocations: claim UID -> new allocation, in the order of the claims.
    """
    if not allocations:
        return 0
    results = list(allocations.values())
    strategy = STRATEGIES[state.environment.device_strategy]
    preferred = raw_prioritized_list(state.unallocated, results)
    return preferred * (MAX_SCORE + 1) + strategy(
        results, node.for_allocator, state.snapshot.devices
    )


# --- after all nodes have refused -------------------------------------------------------------------------------------


def claim_to_give_back(
    state: CycleState, verdicts: Mapping[str, NodeVerdict]
) -> ResourceClaim | None:
    """Choose one of the pod's own idle allocated claims that keeps it from some node, if no node fits.

    Only a claim that nobody has reserved, or this pod alone, may be given back; one an attempt.

    Differs from upstream: the first such claim in the pod's order, not a random one.

    Source: `PostFilter` of the plugin.
    """
    if not state.allocated or any(verdict.fits for verdict in verdicts.values()):
        return None
    unavailable = {uid for verdict in verdicts.values() for uid in verdict.unavailable}
    for pod_claim in state.allocated:
        consumers = pod_claim.claim.status.reserved_for or ()
        is_idle = not consumers or (
            len(consumers) == 1 and consumers[0].uid == state.pod.metadata.uid
        )
        if pod_claim.uid in unavailable and is_idle:
            return pod_claim.claim
    return None
