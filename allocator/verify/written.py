"""What an allocation says beside its devices: configuration and node selector."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from allocator.model.claims import AllocationResult, DeviceAllocationConfiguration, ResourceClaim
from allocator.model.nodes import NodeSelector
from allocator.verify.check import Check, Placed
from allocator.verify.requests import spec_of
from allocator.verify.slices import selects


def check_config(
    check: Check, claim: ResourceClaim, allocation: AllocationResult, chosen: Mapping[str, str]
) -> None:
    """Check the configuration that is copied from classes and claim."""
    want = list(_expected_config(check, claim, chosen))
    got = list(allocation.devices.config or ())
    if want != got:
        check.fail("config", claim, f"{len(got)} entries, expected {len(want)}, or other contents")


def _expected_config(
    check: Check, claim: ResourceClaim, chosen: Mapping[str, str]
) -> Iterator[DeviceAllocationConfiguration]:
    by_class: dict[str, list[str]] = {}
    for name in chosen.values():
        spec = spec_of(claim, name)
        if spec is not None:
            by_class.setdefault(spec.device_class_name, []).append(name)
    for class_name, names in by_class.items():
        device_class = check.snapshot.classes.get(class_name)
        for config in (device_class.spec.config or ()) if device_class else ():
            yield _entry("FromClass", names, config.opaque, chosen)
    live = {*chosen, *chosen.values()}
    for own in claim.spec.devices.config or ():
        if not own.requests or live & set(own.requests):
            yield _entry("FromClaim", own.requests or (), own.opaque, chosen)


def check_node_selector(
    check: Check, claim: ResourceClaim, allocation: AllocationResult, mine: Sequence[Placed]
) -> None:
    """Check that the allocation is for the nodes that can reach all its devices."""
    got = allocation.node_selector
    if got is not None and not selects(got, check.node):
        check.fail("node-selector-matches-node", claim, "the node is not selected")
    local = any(_is_local(check, placed) for placed in mine)
    if local:
        if not _is_only(got, check.node.name):
            check.fail("node-selector-only-this-node", claim, "a device is local")
        return
    want = {requirement for placed in mine for requirement in _requirements(check, placed)}
    terms = got.node_selector_terms or () if got else ()
    have = {
        (kind, r.key, r.operator, frozenset(r.values or ()))
        for term in terms
        for kind, requirements in (("field", term.match_fields), ("label", term.match_expressions))
        for r in requirements or ()
    }
    if want != have or len(terms) > 1:
        check.fail("node-selector-of-devices", claim, "not what the devices' selectors say")


def _where(check: Check, placed: Placed) -> Any:
    spec = placed.found.slice.spec
    return placed.found.device if spec.per_device_node_selection else spec


def _is_local(check: Check, placed: Placed) -> bool:
    binds = bool(placed.found.device.binds_to_node) and not check.is_stable
    return binds or _where(check, placed).node_name is not None


def _requirements(check: Check, placed: Placed) -> Iterator[tuple[str, str, str, frozenset[str]]]:
    selector = _where(check, placed).node_selector
    for term in (selector.node_selector_terms or ()) if selector else ():
        for kind, requirements in (("field", term.match_fields), ("label", term.match_expressions)):
            for r in requirements or ():
                yield kind, r.key, r.operator, frozenset(r.values or ())


def _entry(
    source: str, requests: Iterable[str], opaque: Any, chosen: Mapping[str, str]
) -> DeviceAllocationConfiguration:
    """An entry of the configuration; one that covers every request names none."""
    names = tuple(requests)
    everyone = all(name in names or result in names for name, result in chosen.items())
    return DeviceAllocationConfiguration(
        source=source, requests=None if everyone or not names else names, opaque=opaque
    )


def _is_only(selector: NodeSelector | None, name: str) -> bool:
    """Say whether a selector is for one node, by name and nothing else."""
    terms = selector.node_selector_terms or () if selector else ()
    if len(terms) != 1 or terms[0].match_expressions:
        return False
    fields = terms[0].match_fields or ()
    return [(f.key, f.operator, f.values) for f in fields] == [("metadata.name", "In", (name,))]
