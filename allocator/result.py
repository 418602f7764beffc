"""From chosen devices to `status.allocation`: results, configuration, node selector.

Source: Allocate, createNodeSelector in structured/internal/*/allocator_*.go; docs/design/allocator.md#result.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from allocator.model.claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DeviceToleration,
    ResourceClaim,
)
from allocator.model.devices import DeviceClass, DeviceID
from allocator.model.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from allocator.pools import Candidate
from allocator.quantity import Quantity

NewShareID = Callable[[ResourceClaim, str, DeviceID], str]
"""Makes a fresh share id from claim, request (`name` or `name/alternative`) and device."""


class ResultError(ValueError):
    """The chosen devices cannot be written down as one allocation."""


class ChosenDevice(msgspec.Struct, frozen=True):
    """One placement.

    Attributes:
        request: `name` or `name/alternative`.
        candidate: the device.
        admin_access: whether it is shared with its users.
        tolerations: of the request.
        consumed: of each capacity, for a share; None for a device of one's own.
    """

    request: str
    candidate: Candidate
    admin_access: bool
    tolerations: tuple[DeviceToleration, ...] | None
    consumed: Mapping[str, Quantity] | None


class ChosenRequest(msgspec.Struct, frozen=True):
    """What was chosen for one request: its class, and `name/alternative` when it had alternatives."""

    name: str
    alternative: str | None
    device_class: DeviceClass

    @property
    def result_name(self) -> str:
        """What its results carry."""
        return self.alternative or self.name

    def is_named_in(self, names: Sequence[str]) -> bool:
        """Whether a list of request names means this request, as a whole or by its chosen alternative."""
        return self.name in names or (self.alternative is not None and self.alternative in names)


class ResultRules(msgspec.Struct, frozen=True):
    """What results may hold: `binds` devices may bind a claim to the node, `binding` conditions are copied, `skips` operations are."""

    binds: bool
    binding: bool
    skips: bool


def allocation_result(
    claim: ResourceClaim,
    devices: Sequence[ChosenDevice],
    requests: Sequence[ChosenRequest],
    node_name: str,
    rules: ResultRules,
    new_share_id: NewShareID,
) -> AllocationResult:
    """Write down what was chosen for one claim; the timestamp is left to the writer.

    Raises:
        ResultError: a device's node selector has several terms.
    """
    results = tuple(_device_result(claim, chosen, rules, new_share_id) for chosen in devices)
    config = _configuration(claim, requests)
    return AllocationResult(
        devices=DeviceAllocationResult(results=results or None, config=config or None),
        node_selector=_node_selector(devices, node_name, rules),
    )


def _device_result(
    claim: ResourceClaim, chosen: ChosenDevice, rules: ResultRules, new_share_id: NewShareID
) -> DeviceRequestAllocationResult:
    candidate = chosen.candidate
    device = candidate.device
    share_id = None
    if chosen.consumed is not None:
        share_id = new_share_id(claim, chosen.request, candidate.id)
    return DeviceRequestAllocationResult(
        request=chosen.request,
        driver=candidate.id.driver,
        pool=candidate.id.pool,
        device=candidate.id.device,
        admin_access=True if chosen.admin_access else None,
        tolerations=chosen.tolerations or None,
        binding_conditions=(device.binding_conditions or None) if rules.binding else None,
        binding_failure_conditions=(device.binding_failure_conditions or None)
        if rules.binding
        else None,
        share_id=share_id,
        consumed_capacity=dict(chosen.consumed) if chosen.consumed else None,
        skip_node_operations=(candidate.prepared.slice.spec.skip_node_operations or None)
        if rules.skips
        else None,
    )


def _configuration(
    claim: ResourceClaim, requests: Sequence[ChosenRequest]
) -> tuple[DeviceAllocationConfiguration, ...]:
    """Class configuration first, once a class, then the claim's own, as far as it concerns what was chosen."""
    own = claim.spec.devices.config or ()
    if not own and not any(request.device_class.spec.config for request in requests):
        return ()
    users: dict[str, list[str]] = {}
    classes: dict[str, DeviceClass] = {}
    for request in requests:
        name = request.device_class.metadata.name
        classes.setdefault(name, request.device_class)
        users.setdefault(name, []).append(request.result_name)
    entries = [
        DeviceAllocationConfiguration(
            source="FromClass", requests=tuple(users[name]), opaque=config.opaque
        )
        for name, device_class in classes.items()
        for config in device_class.spec.config or ()
    ]
    entries += [
        DeviceAllocationConfiguration(
            source="FromClaim", requests=config.requests or None, opaque=config.opaque
        )
        for config in own
        if not config.requests or any(r.is_named_in(config.requests) for r in requests)
    ]
    return tuple(
        DeviceAllocationConfiguration(source=entry.source, opaque=entry.opaque)
        if entry.requests and all(r.is_named_in(entry.requests) for r in requests)
        else entry
        for entry in entries
    )


def _node_selector(
    devices: Sequence[ChosenDevice], node_name: str, rules: ResultRules
) -> NodeSelector | None:
    """Say which nodes can use the allocation: this one, those that all devices are for, or (None) every one."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for chosen in devices:
        device = chosen.candidate.device
        where = device if chosen.candidate.selects_node else chosen.candidate.prepared.slice.spec
        if where.node_name is not None or (rules.binds and device.binds_to_node):
            return _only(node_name)
        terms = where.node_selector.node_selector_terms or () if where.node_selector else ()
        if len(terms) > 1:
            raise ResultError(
                f"the node selector of a device has {len(terms)} terms, one is supported"
            )
        for term in terms:
            _merge(fields, term.match_fields)
            _merge(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(
        match_expressions=tuple(expressions) or None, match_fields=tuple(fields) or None
    )
    return NodeSelector(node_selector_terms=(term,))


def _only(node_name: str) -> NodeSelector:
    name = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node_name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),))


def _merge(
    into: list[NodeSelectorRequirement], new: Sequence[NodeSelectorRequirement] | None
) -> None:
    for requirement in new or ():
        values = set(requirement.values or ())
        if not any(
            known.key == requirement.key
            and known.operator == requirement.operator
            and set(known.values or ()) == values
            for known in into
        ):
            into.append(requirement)
