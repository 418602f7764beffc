"""The front door: claims, a node and a snapshot go in, an outcome comes out. Nothing is changed, nothing is raised."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from allocator.cel import Compiler
from allocator.features import Features
from allocator.model.claims import ResourceClaim
from allocator.model.devices import DeviceID
from allocator.model.nodes import Node, NodeSelectorError
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
from allocator.policies import FIRST_FIT, Policy
from allocator.pools import Pool, PoolState, facts_of, gather_pools
from allocator.report import NULL_REPORTER, Explanation, Reporter
from allocator.requests import FatalError, PreparedClaims, prepare_claims
from allocator.result import NewShareID, ResultError, ResultRules, allocation_result
from allocator.search import Limits, Search, Solution
from allocator.snapshot import AllocatedState, Snapshot
from allocator.stages import DEVICE_TEXTS, IN_USE, NO_MATCH, STAGES

DEFAULT_BUDGET: Final = 1_000_000
"""Candidate devices after which a search gives up."""
MOST_DETAILS: Final = 256
"""Devices that a reason tells about."""

_GIVEN_UP: Final = (ReasonKind.SEARCH_BUDGET_EXCEEDED, ReasonKind.DEADLINE_EXCEEDED)
_TEXTS: Final = {
    ReasonKind.NO_MATCHING_DEVICE: "not enough devices match",
    ReasonKind.FEATURE_DISABLED: "matching devices need a feature gate that is off",
    ReasonKind.NODE_FEATURE_MISSING: "the node lacks a feature that matching devices need",
    ReasonKind.DEVICES_IN_USE: "matching devices are in use",
    ReasonKind.CAPACITY_EXHAUSTED: "matching devices do not have enough capacity left",
    ReasonKind.COUNTERS_EXHAUSTED: "matching devices do not have enough shared counters left",
    ReasonKind.INCOMPATIBLE_GROUP: "matching devices are in compatibility groups that exclude those in use",
    ReasonKind.DEVICE_TAINTED: "matching devices have taints that are not tolerated",
    ReasonKind.CONSTRAINT_UNSATISFIED: "no set of matching devices satisfies the claim's constraints",
    ReasonKind.TOO_MANY_DEVICES: "the claim would hold too many devices",
    ReasonKind.POOL_INCOMPLETE: "a resource pool with matching devices is being updated",
    ReasonKind.POOL_INVALID: "not enough matching devices outside invalid resource pools",
}


def allocate(
    claims: Sequence[ResourceClaim],
    node: Node,
    snapshot: Snapshot,
    *,
    features: Features,
    cel: Compiler,
    new_share_id: NewShareID,
    budget: int | None = DEFAULT_BUDGET,
    policy: Policy = FIRST_FIT,
    should_stop: Callable[[], bool] | None = None,
    reporter: Reporter = NULL_REPORTER,
    explain: bool = False,
) -> Outcome:
    """Choose devices on one node for the unallocated claims of one pod.

    Args:
        claims: in the order of the pod; those that are allocated already are not among them.
        node: where to look.
        snapshot: slices, classes and what is in use.
        features: the gates; they also decide which of upstream's allocators is followed.
        cel: compiles selectors and keeps what it compiled.
        new_share_id: makes the id of a share.
        budget: candidate devices after which the search gives up; None for no limit.
        policy: which solution is taken.
        should_stop: asked now and then; true ends the search.
        reporter: hears every refusal.
        explain: whether a reason also tells about every device (at most `MOST_DETAILS`).

    Returns:
        One allocation a claim or nothing: the claims of a pod succeed together. Objects that make no sense are `Fatal`.
    """
    return allocate_prepared(
        prepare_claims(claims, snapshot.classes, features, cel),
        node,
        snapshot,
        new_share_id=new_share_id,
        budget=budget,
        policy=policy,
        should_stop=should_stop,
        reporter=reporter,
        explain=explain,
    )


def allocate_prepared(
    prepared: PreparedClaims,
    node: Node,
    snapshot: Snapshot,
    *,
    new_share_id: NewShareID,
    budget: int | None = DEFAULT_BUDGET,
    policy: Policy = FIRST_FIT,
    should_stop: Callable[[], bool] | None = None,
    reporter: Reporter = NULL_REPORTER,
    explain: bool = False,
) -> Outcome:
    """Like `allocate`, for claims that were prepared once for many nodes. Classes are those seen at preparation."""
    try:
        pools = gather_pools(node, snapshot.slices, prepared.rules)
    except NodeSelectorError as error:
        return broken_node_selector(error)
    found = solve(
        prepared,
        node,
        pools,
        snapshot.allocated,
        budget=budget,
        policy=policy,
        should_stop=should_stop,
        reporter=reporter,
        explain=explain,
    )
    if isinstance(found, Solution):
        return allocated(prepared, found, node.name, new_share_id)
    return found


def solve(  # noqa: PLR0911 - one return an outcome
    prepared: PreparedClaims,
    node: Node,
    pools: Sequence[Pool],
    in_use: AllocatedState,
    *,
    budget: int | None = DEFAULT_BUDGET,
    policy: Policy = FIRST_FIT,
    should_stop: Callable[[], bool] | None = None,
    reporter: Reporter = NULL_REPORTER,
    explain: bool = False,
) -> Solution | Outcome:
    """The search alone, over pools that were gathered before: a solution, or the outcome without one."""
    if prepared.problem is not None and not prepared.has_all:
        return Fatal(prepared.problem, depends_on_node=False)
    if explain and reporter is NULL_REPORTER:
        reporter = Explanation(limit=MOST_DETAILS)
    search = Search(prepared, node, pools, in_use, Limits(budget, should_stop), reporter)
    try:
        if prepared.has_all:
            search.prepare_all()
            if prepared.problem is not None:
                return Fatal(prepared.problem, depends_on_node=False)
        solution = policy.choose(search.solutions())
        if solution is not None:
            return solution
    except FatalError as error:
        if explain and error.outcome.reason.kind in _GIVEN_UP:
            return _with_details(error.outcome, search, pools, reporter)
        return error.outcome
    reason = _shortage(prepared, search, pools, reporter if explain else NULL_REPORTER)
    if any(pool.state is PoolState.INVALID for pool in pools):
        return NodeError(_with(reason, ReasonKind.POOL_INVALID, prepared, search.reached))
    return DoesNotFit(reason)


def _with_details(
    outcome: Fatal, search: Search, pools: Sequence[Pool], reporter: Reporter
) -> Fatal:
    """Add what a search that was given up had tried."""
    if not isinstance(reporter, Explanation):
        return outcome
    devices = _details(search, search.reached, pools, reporter)
    return Fatal(replace(outcome.reason, devices=devices), outcome.depends_on_node)


def broken_node_selector(error: NodeSelectorError) -> Fatal:
    """The outcome when the pools of a node cannot be gathered."""
    reason = Reason(
        kind=ReasonKind.POOL_INVALID,
        message=f"a resource slice has a node selector that cannot be parsed: {error}",
    )
    return Fatal(reason, depends_on_node=True)


def allocated(
    prepared: PreparedClaims,
    solution: Solution,
    node_name: str,
    new_share_id: NewShareID,
    claims: Sequence[ResourceClaim] | None = None,
) -> Outcome:
    """Write a solution down.

    Args:
        prepared: what was asked.
        solution: what was found.
        node_name: where.
        new_share_id: makes the id of a share.
        claims: whose results they become; None: the prepared ones.
    """
    rules = ResultRules(
        binds=not prepared.rules.stable,
        binding=prepared.features.binding,
        skips=prepared.experimental,
    )
    allocations = []
    if claims is None:
        claims = [each.claim for each in prepared.claims]
    for claim, devices, requests in zip(claims, solution.devices, solution.requests, strict=True):
        try:
            allocations.append(
                allocation_result(claim, devices, requests, node_name, rules, new_share_id)
            )
        except ResultError as error:
            reason = Reason(
                kind=ReasonKind.POOL_INVALID,
                message=f"claim {claim.key}: {error}",
                claim=claim.metadata.name,
            )
            return Fatal(reason, depends_on_node=True)
    return Allocated(tuple(allocations))


def _shortage(
    prepared: PreparedClaims, search: Search, pools: Sequence[Pool], reporter: Reporter
) -> Reason:
    """Explain why nothing was found: the first request that could not be served, and the furthest stage its devices reached."""
    where = search.reached
    kind = STAGES[search.shortage(where)]
    if kind is ReasonKind.NO_MATCHING_DEVICE:
        if where in search.limited:
            kind = ReasonKind.TOO_MANY_DEVICES
        elif any(_might_serve(search, where, pool) for pool in pools):
            kind = ReasonKind.POOL_INCOMPLETE
    reason = _with(None, kind, prepared, where)
    if isinstance(reporter, Explanation):
        devices = _details(search, where, pools, reporter)
        reason = replace(reason, devices=devices)
    return reason


def _might_serve(search: Search, where: tuple[int, int], pool: Pool) -> bool:
    """Say whether a pool that is being updated has a device that the request would select."""
    return pool.state is PoolState.INCOMPLETE and any(
        search.would_select(where, candidate)
        for prepared in pool.slices
        for candidate in facts_of(prepared).candidates
    )


def _with(
    reason: Reason | None, kind: ReasonKind, prepared: PreparedClaims, where: tuple[int, int]
) -> Reason:
    claim = prepared.claims[where[0]]
    request = claim.requests[where[1]].name
    return Reason(
        kind=kind,
        message=f"claim {claim.claim.key}, request {request}: {_TEXTS[kind]}",
        claim=claim.claim.metadata.name,
        request=request,
        devices=reason.devices if reason else (),
    )


def _details(
    search: Search, where: tuple[int, int], pools: Sequence[Pool], explanation: Explanation
) -> tuple[DeviceReason, ...]:
    """List what each device of the node failed on; a broken pool is listed once, without a device name."""
    refused = explanation.refused.get(where, {})
    details = []
    for pool in pools:
        if not pool.is_usable:
            incomplete = pool.state is PoolState.INCOMPLETE
            kind = ReasonKind.POOL_INCOMPLETE if incomplete else ReasonKind.POOL_INVALID
            device = DeviceID(pool.id.driver, pool.id.name, "")
            details.append(DeviceReason(device=device, kind=kind, message=pool.problem))
        for candidate in pool.candidates:
            found = refused.get(candidate.id)
            if found is None:
                continue
            stage, message = found
            if stage == IN_USE and not search.would_select(where, candidate):
                stage, message = NO_MATCH, DEVICE_TEXTS[NO_MATCH]
            details.append(DeviceReason(device=candidate.id, kind=STAGES[stage], message=message))
    return tuple(details[:MOST_DETAILS])
