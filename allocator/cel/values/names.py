"""Names of values' types, and the errors that show them."""

from typing import Any, Final

from allocator.cel.values.maps import DomainMap
from allocator.cel.values.scalars import (
    Duration,
    Optional,
    QuantityValue,
    Timestamp,
    TypeValue,
    UInt,
)
from allocator.cel.values.semver import Semver
from allocator.errors import CelRuntimeError

TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    DomainMap: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    Optional: "optional_type",
    QuantityValue: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
}


def type_name(value: object) -> str:
    """The CEL name of a value's type."""
    name = TYPE_NAMES.get(value.__class__)
    return (
        name
        if name is not None
        else str(getattr(value.__class__, "CEL_NAME", value.__class__.__name__))
    )


_GO_NAMES: Final = {
    "bool": "types.Bool",
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "string": "types.String",
    "bytes": "types.Bytes",
    "null_type": "types.Null",
    "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp",
    "optional_type": "*types.Optional",
    "type": "*types.Type",
    "kubernetes.Quantity": "cel.Quantity",
    "kubernetes.Semver": "cel.Semver",
}


def go_name(value: object) -> str:
    """The name of a value's type in upstream's own code, which shows in some messages."""
    name = type_name(value)
    return _GO_NAMES.get(name, name)


def no_such_overload(function: str, *args: object) -> CelRuntimeError:
    """The error for arguments that a function does not take."""
    return CelRuntimeError(f"no such overload: {function}({', '.join(map(type_name, args))})")


def native(value: Any) -> Any:
    """What upstream's `Value()` gives where it differs: the name of a type, the value of an optional."""
    while value.__class__ is Optional and value.present:
        value = value.value
    return value.name if value.__class__ is TypeValue else value
