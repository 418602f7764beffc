"""Constraints over the devices of a claim: matchAttribute and distinctAttribute.

A constraint is a step function `(state, attribute) -> state`: it never changes anything, so taking a device back is
going back to the earlier state.

Source: matchAttributeConstraint, constraint.go; KEP-4381, KEP-5491 (lists).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from allocator.model.devices import DeviceAttribute

REJECTED: Final[Any] = object()
"""Answer of `extend` when the device does not satisfy the constraint."""

ValueSet = tuple[str, frozenset[Any]]
"""Type name and values; scalars are sets of one."""


class Constraint(Protocol):
    """What the chosen devices must have in common, or must not.

    Attributes:
        attribute: fully qualified name.
        requests: names it applies to (request, or `request/alternative`); empty: to all.
    """

    @property
    def attribute(self) -> str:
        """Fully qualified name of what is compared."""
        ...

    @property
    def requests(self) -> frozenset[str]:
        """Names it applies to."""
        ...

    def extend(self, state: Any, attribute: DeviceAttribute) -> Any:
        """Add one device: the new state, or `REJECTED`. The state of no device is None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchAttribute:
    """All devices have an equal value; with list attributes, at least one value common to all."""

    attribute: str
    requests: frozenset[str] = frozenset()
    lists: bool = False

    def extend(self, state: Any, attribute: DeviceAttribute) -> Any:
        """Add one device."""
        if not self.lists:
            # Differs from what one expects: the first device is taken with any value, even a list or none.
            if state is None:
                return attribute
            return state if _equal_scalars(attribute, state) else REJECTED
        values = as_set(attribute)
        if values is None:
            return REJECTED
        if state is None:
            return values
        common = state[1] & values[1] if state[0] == values[0] else None
        return (state[0], common) if common else REJECTED


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctAttribute:
    """No two devices share a value; different types are distinct."""

    attribute: str
    requests: frozenset[str] = frozenset()
    lists: bool = False

    def extend(self, state: Any, attribute: DeviceAttribute) -> Any:
        """Add one device."""
        earlier = state or ()
        if not self.lists:
            if earlier and _scalar_type(attribute) is None:
                return REJECTED
            if any(_equal_scalars(attribute, other) for other in earlier):
                return REJECTED
            return (*earlier, attribute)
        values = as_set(attribute)
        if values is None:
            return REJECTED
        for other in earlier:
            if other[0] == values[0] and other[1] & values[1]:
                return REJECTED
        return (*earlier, values)


def _scalar_type(attribute: DeviceAttribute) -> str | None:
    if attribute.string is not None:
        return "string"
    if attribute.int_ is not None:
        return "int_"
    if attribute.bool_ is not None:
        return "bool_"
    if attribute.version is not None:
        return "version"
    return None


def _equal_scalars(new: DeviceAttribute, old: DeviceAttribute) -> bool:
    """Say whether two attributes have the same type and value; versions are compared as text."""
    kind = _scalar_type(new)
    return kind is not None and getattr(new, kind) == getattr(old, kind)


def as_set(attribute: DeviceAttribute) -> ValueSet | None:
    """Read an attribute as a set of values of one type; None when it has no value."""
    for kind, values in (
        ("int", attribute.ints),
        ("bool", attribute.bools),
        ("string", attribute.strings),
        ("version", attribute.versions),
    ):
        if values:
            return kind, frozenset(values)
    for kind, value in (
        ("int", attribute.int_),
        ("bool", attribute.bool_),
        ("string", attribute.string),
        ("version", attribute.version),
    ):
        if value is not None:
            return kind, frozenset((value,))
    return None


def lookup_attribute(
    attributes: Mapping[str, DeviceAttribute], driver: str, name: str
) -> DeviceAttribute | None:
    """Find a fully qualified attribute: under its own name, or under its id when its domain is the driver."""
    found = attributes.get(name)
    if found is not None:
        return found
    domain, slash, identifier = name.partition("/")
    if not slash or domain != driver:
        return None
    return attributes.get(identifier)
