"""Constraints of a claim on the attributes of its devices."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from allocator.errors import CelError
from allocator.model.claims import DeviceConstraint, ResourceClaim
from allocator.model.devices import DeviceAttribute
from allocator.verify.check import Check, Placed
from allocator.verify.selecting import values_of


def check_constraint(
    check: Check, claim: ResourceClaim, constraint: DeviceConstraint, mine: Sequence[Placed]
) -> None:
    """Check one constraint on the results of its claim."""
    names = constraint.requests or ()
    concerned = [
        placed
        for placed in mine
        if not names
        or placed.result.request in names
        or placed.result.request.partition("/")[0] in names
    ]
    attribute = constraint.match_attribute or constraint.distinct_attribute or ""
    values = []
    for placed in concerned:
        try:
            value = _attribute(check, placed, attribute)
        except CelError as error:
            check.fail("derived-attribute", claim, f"{placed.id}: {attribute}: {error}")
            return
        if value is None:
            check.fail("constraint-attribute-exists", claim, f"{placed.id} has no {attribute}")
            return
        values.append(value)
    lists = check.is_experimental and check.features.list_type_attributes
    if constraint.match_attribute is not None:
        if not _all_match(values, lists=lists):
            check.fail("match-attribute", claim, f"{attribute} differs")
    elif not _all_distinct(values, lists=lists):
        check.fail("distinct-attribute", claim, f"{attribute} repeats")


def _attribute(check: Check, placed: Placed, name: str) -> DeviceAttribute | None:
    for derived in placed.spec.derived_attributes or ():
        if derived.name == name:
            values = values_of(check, placed.id.driver, placed.found.device)
            found = check.cel.derived(derived.expression).evaluate_value(values)
            return found if isinstance(found, DeviceAttribute) else None
    attributes = placed.found.device.attributes or {}
    if name in attributes:
        return attributes[name]
    prefix = f"{placed.id.driver}/"
    return attributes.get(name.removeprefix(prefix)) if name.startswith(prefix) else None


def _all_match(values: Sequence[DeviceAttribute], *, lists: bool) -> bool:
    if len(values) < 2 and not lists:
        return True
    sets = [_value_set(value, lists=lists) for value in values]
    return not sets or bool(frozenset.intersection(*sets))


def _all_distinct(values: Sequence[DeviceAttribute], *, lists: bool) -> bool:
    sets = [_value_set(value, lists=lists) for value in values]
    if any(not values for values in sets[0 if lists else 1 :]):
        return False
    return not any(left & right for left, right in combinations(sets, 2))


def _value_set(attribute: DeviceAttribute, *, lists: bool) -> frozenset[tuple[str, Any]]:
    """The values of an attribute, each with its type; lists count only with their gate."""
    if lists:
        for name in ("ints", "bools", "strings", "versions"):
            values = getattr(attribute, name)
            if values:
                return frozenset((name.removesuffix("s"), value) for value in values)
    order = (
        ("int_", "bool_", "string", "version") if lists else ("string", "int_", "bool_", "version")
    )
    for name in order:
        value = getattr(attribute, name)
        if value is not None:
            return frozenset({(name.removesuffix("_"), value)})
    return frozenset()
