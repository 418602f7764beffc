"""Names that stand for something by themselves: types and constants.

Source: cel-go common/types (NewProtoRegistry), checker/env.go (lookupGlobalIdent), interpreter/planner.go
(planCheckedIdent), the types that libraries register.
"""

from typing import Final

from allocator.cel import types
from allocator.cel.check.environment import Environment
from allocator.cel.check.messages import message
from allocator.cel.syntax.tree import UNDEFINED, Name
from allocator.cel.types import INT, Type, list_of, map_of, optional_of, type_of
from allocator.cel.values.scalars import TypeValue

# Type names that are values.
_TYPES: Final[dict[str, Type]] = {
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
    "google.protobuf.Empty": types.EMPTY,
    "google.protobuf.Struct.FieldsEntry": types.ENTRY,
}
_CONSTANTS: Final = {"google.protobuf.NullValue.NULL_VALUE": 0}


def named(name: str, environment: Environment) -> tuple[Type, Name] | None:
    """The static type of a name, perhaps with a dot in front, and what it stands for; None for an unknown name."""
    name = name.removeprefix(".")
    found = _TYPES.get(name)
    if found is not None:
        return type_of(found), Name(TypeValue(found.type_name))
    if name in _CONSTANTS:
        return INT, Name(_CONSTANTS[name])
    known = message(name, environment)
    return None if known is None else (type_of(known.type), UNDEFINED)


def type_named(name: str) -> Name:
    """What the planner takes a variable for that holds a type: it looks for a type of the variable's name."""
    found = _TYPES.get(name)
    return UNDEFINED if found is None else Name(TypeValue(found.type_name))
