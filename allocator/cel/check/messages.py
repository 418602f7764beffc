"""Messages that an expression may make, as the type checker sees them.

Upstream registers protobuf's well-known types in every environment. Most of them stand for a type of the language:
`google.protobuf.Int32Value{value: 1}` is an int. It knows some further names that pass the checker and fail when they are
evaluated, such as `kubernetes.DRADevice{}`.

Source: cel-go common/types (NewProtoRegistry, checkedWellKnowns), checker (checkCreateStruct),
k8s.io/apiserver/pkg/cel/types.go (findScalar).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from allocator.cel.check.environment import Environment
from allocator.cel.types import (
    ANY,
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DURATION,
    DYN,
    EMPTY,
    ENTRY,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    Wrapper,
    list_of,
    map_of,
)


class Message(NamedTuple):
    """A kind of message.

    Attributes:
        type: static type of a literal.
        fields: names and types of its fields.
    """

    type: Type
    fields: Mapping[str, Type]


_JSON_LIST: Final = list_of(DYN)
_JSON_MAP: Final = map_of(STRING, DYN)
_SECONDS: Final = {"seconds": INT, "nanos": INT}


def _wrapper(kind: Type) -> Message:
    return Message(Wrapper(*kind), {"value": kind})


_MESSAGES: Final[dict[str, Message]] = {
    "google.protobuf.Any": Message(ANY, {"type_url": STRING, "value": BYTES}),
    "google.protobuf.BoolValue": _wrapper(BOOL),
    "google.protobuf.BytesValue": _wrapper(BYTES),
    "google.protobuf.DoubleValue": _wrapper(DOUBLE),
    "google.protobuf.Duration": Message(DURATION, _SECONDS),
    "google.protobuf.Empty": Message(EMPTY, {}),
    "google.protobuf.FloatValue": _wrapper(DOUBLE),
    "google.protobuf.Int32Value": _wrapper(INT),
    "google.protobuf.Int64Value": _wrapper(INT),
    "google.protobuf.ListValue": Message(_JSON_LIST, {"values": _JSON_LIST}),
    "google.protobuf.StringValue": _wrapper(STRING),
    "google.protobuf.Struct": Message(_JSON_MAP, {"fields": _JSON_MAP}),
    "google.protobuf.Struct.FieldsEntry": Message(ENTRY, {"key": STRING, "value": DYN}),
    "google.protobuf.Timestamp": Message(TIMESTAMP, _SECONDS),
    "google.protobuf.UInt32Value": _wrapper(UINT),
    "google.protobuf.UInt64Value": _wrapper(UINT),
    "google.protobuf.Value": Message(DYN, {
        "null_value": INT, "number_value": DOUBLE, "string_value": STRING, "bool_value": BOOL,
        "struct_value": _JSON_MAP, "list_value": _JSON_LIST,
    }),
    # Short names, whose fields are those of the message that the type stands for, and which nothing can make.
    "duration": Message(DURATION, _SECONDS),
    "list": Message(_JSON_LIST, {"values": _JSON_LIST}),
    "null_type": Message(NULL, {}),
    "timestamp": Message(TIMESTAMP, _SECONDS),
}  # fmt: skip
_FIELDS: Final = {message.type.name: message.fields for message in (
    _MESSAGES["google.protobuf.Empty"], _MESSAGES["google.protobuf.Struct.FieldsEntry"])}  # fmt: skip


def message(name: str, environment: Environment) -> Message | None:
    """The message that a name, perhaps with a dot in front, stands for."""
    name = name.removeprefix(".")
    return Message(DEVICE, environment.fields) if name == DEVICE.name else _MESSAGES.get(name)


def field_of(type_: Type, field: str, environment: Environment) -> Type | None:
    """The type of a field of an object, or None if it has none of that name."""
    if type_ == DEVICE:
        return environment.fields.get(field)
    return _FIELDS.get(type_.name, {}).get(field)
