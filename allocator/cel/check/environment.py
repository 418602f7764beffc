"""What an expression may use of the device and of the functions."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from allocator.cel.types import BOOL, DYN, QUANTITY, STRING, Type, map_of


class Environment(NamedTuple):
    """What an expression may use.

    Attributes:
        fields: fields of `device` and their types.
        attribute: type of an attribute's value; an expression may have this type or be a bool.
        without: functions that are not known.
    """

    fields: Mapping[str, Type]
    attribute: Type
    without: frozenset[str] = frozenset()


def device_fields(attribute: Type, *, multiple: bool) -> Mapping[str, Type]:
    """The fields of `device` for a type of attribute values, with or without allowMultipleAllocations."""
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    return {**fields, "allowMultipleAllocations": BOOL} if multiple else fields


# The environment of stored expressions, which knows everything whatever the gates say.
STORED: Final = Environment(device_fields(DYN, multiple=True), DYN)
