"""What an expression may use: the names of types, the fields of the device, functions that are left out."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from allocator.cel import types
from allocator.cel.types import BOOL, DYN, QUANTITY, STRING, Type, list_of, map_of, optional_of


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

# Type names that are values of the language.
TYPE_NAMES: Final[dict[str, Type]] = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "int": types.INT,
    "string": types.STRING,
    "uint": types.UINT,
    "list": list_of(types.DYN),
    "map": map_of(types.DYN, types.DYN),
    "null_type": types.NULL,
    "type": types.TYPE,
    "optional_type": optional_of(types.DYN),
    "net.IP": types.IP,
    "net.CIDR": types.CIDR,
    "google.protobuf.Duration": types.DURATION,
    "google.protobuf.Timestamp": types.TIMESTAMP,
}
