"""Makes messages from the values of their fields. What a message stands for is a value of the language, if there is one.

Source: cel-go common/types/provider.go (NewValue), common/types/pb/type.go (unwrapDynamic), the ConvertToNative methods of
common/types, and Duration.AsDuration and Timestamp.AsTime of google.golang.org/protobuf.
"""

import base64
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from allocator.cel.library.convert import to_string
from allocator.cel.library.network import CIDR, IP
from allocator.cel.library.urls import URL
from allocator.cel.run import wire
from allocator.cel.values.maps import DomainMap, unmap_key
from allocator.cel.values.messages import EmptyMessage, FieldsEntry
from allocator.cel.values.moments import duration_of, timestamp_of
from allocator.cel.values.names import type_name
from allocator.cel.values.scalars import Duration, Optional, QuantityValue, Timestamp, UInt
from allocator.cel.values.semver import Semver
from allocator.errors import CelRuntimeError

_JSON_SAFE: Final = 2**53 - 1
_Fields = Mapping[str, Any]


def make(name: str, fields: _Fields) -> Any:
    """The value of a message literal.

    Raises:
        CelRuntimeError: a field cannot hold its value, or nothing makes messages of this name.
    """
    maker = _MAKERS.get(name)
    if maker is None:
        raise CelRuntimeError(f"unknown type '{name}'")
    return maker(fields)


def _inner(value: Any) -> Any:
    """What an optional holds, as a field takes it."""
    while value.__class__ is Optional:
        if not value.present:
            raise CelRuntimeError("field type conversion error: optional.none() dereference")
        value = value.value
    return value


def _refused(value: object, target: str) -> CelRuntimeError:
    return CelRuntimeError(
        f"field type conversion error: type conversion error from '{type_name(value)}' to '{target}'"
    )


def _whole(value: Any, bits: int) -> int:
    value = _inner(value)
    if value.__class__ is not int:
        raise _refused(value, f"int{bits}")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise CelRuntimeError("field type conversion error: integer overflow")
    return value


def _unsigned(value: Any, bits: int) -> UInt:
    value = _inner(value)
    if value.__class__ is not UInt:
        raise _refused(value, f"uint{bits}")
    if value.value >= 1 << bits:
        raise CelRuntimeError("field type conversion error: unsigned integer overflow")
    return value


def _double(value: Any) -> float:
    value = _inner(value)
    if value.__class__ is not float:
        raise _refused(value, "float64")
    return value


def _single(value: Any) -> float:
    """The nearest number of 32 bits."""
    number = _double(value)
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(math.inf, number)


def _bool(value: Any) -> bool:
    value = _inner(value)
    if value.__class__ is not bool:
        raise _refused(value, "bool")
    return value


_TEXTS: Final[dict[type, Callable[[Any], str]]] = {
    str: lambda value: value,
    QuantityValue: lambda value: str(value.quantity),
    Semver: lambda value: value.text,
    IP: str,
    CIDR: str,
    URL: lambda value: value.text,
}


def _text(value: Any) -> str:
    value = _inner(value)
    write = _TEXTS.get(value.__class__)
    if write is None:
        raise _refused(value, "string")
    return write(value)


def _bytes(value: Any) -> bytes:
    value = _inner(value)
    if value.__class__ is bytes:
        return value
    if value.__class__ is not list:
        raise _refused(value, "bytes")
    return bytes([_unsigned(element, 8).value for element in value])


# --- JSON


class _Json:
    """Converts values to what JSON has; a list or map that is there twice is converted once."""

    def __init__(self) -> None:
        self.done: dict[int, Any] = {}

    def value(self, value: Any) -> Any:
        """Any value."""
        value = _inner(value)
        cls = value.__class__
        if cls is list:
            return self.elements(value)
        if cls is dict or cls is DomainMap:
            return self.members(value)
        convert = _SCALARS.get(cls)
        if convert is None:
            raise _refused(value, "google.protobuf.Value")
        return convert(value)

    def elements(self, value: list[Any]) -> list[Any]:
        """A list."""
        found = self.done.get(id(value))
        if found is None:
            found = self.done[id(value)] = [self.value(element) for element in value]
        return found

    def members(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        """A map, whose keys have to be texts."""
        found = self.done.get(id(value))
        if found is None:
            found = {_text(unmap_key(key)): self.value(member) for key, member in value.items()}
            self.done[id(value)] = found
        return found


def _entry_as_json(entry: FieldsEntry) -> dict[str, Any]:
    members = {"key": entry.key} if entry.key else {}
    if not entry.has_value:
        return members
    _check_finite(entry.value)
    return {**members, "value": entry.value}


def _check_finite(value: Any) -> None:
    """Refuse numbers that cannot be written as JSON: a message on its way into another is written and read."""
    pending = [value]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if value.__class__ is float and not math.isfinite(value):
            raise _refused(value, "google.protobuf.Value")
        if value.__class__ in (list, dict) and id(value) not in seen:
            seen.add(id(value))
            pending.extend(value.values() if isinstance(value, dict) else value)


_SCALARS: Final[dict[type, Callable[[Any], Any]]] = {
    type(None): lambda value: value,
    bool: lambda value: value,
    str: lambda value: value,
    float: lambda value: value,
    int: lambda value: float(value) if -_JSON_SAFE <= value <= _JSON_SAFE else str(value),
    UInt: lambda value: float(value.value) if value.value <= _JSON_SAFE else str(value.value),
    bytes: lambda value: base64.b64encode(value).decode(),
    Duration: to_string,
    Timestamp: to_string,
    EmptyMessage: lambda _value: {},
    FieldsEntry: _entry_as_json,
}


def _json_list(value: Any) -> list[Any]:
    elements: Any = _inner(value)
    if elements.__class__ is dict and elements.keys() <= {"values"}:
        # Upstream fills the fields of its own class from a map.
        elements = elements.get("values", [])
    if elements.__class__ is not list:
        raise _refused(value, "google.protobuf.ListValue")
    return _Json().elements(elements)


def _json_map(value: Any) -> dict[str, Any]:
    value = _inner(value)
    if value.__class__ is not dict and value.__class__ is not DomainMap:
        raise _refused(value, "google.protobuf.Struct")
    return _Json().members(value)


# --- the messages


def _any(fields: _Fields) -> Any:
    url = _text(fields["type_url"]) if "type_url" in fields else ""
    data = _bytes(fields["value"]) if "value" in fields else b""
    return wire.unpack(url, data)


def _seconds(fields: _Fields) -> tuple[int, int]:
    return _whole(fields.get("seconds", 0), 64), _whole(fields.get("nanos", 0), 32)


def _entry(fields: _Fields) -> FieldsEntry:
    has_value = "value" in fields
    value = _Json().value(fields["value"]) if has_value else None
    return FieldsEntry(_text(fields.get("key", "")), value, has_value=has_value)


def _struct(fields: _Fields) -> dict[str, Any]:
    value = fields.get("fields", {})
    if value.__class__ is not dict and value.__class__ is not DomainMap:
        raise _refused(value, "map")
    return _Json().members(value)


def _list(fields: _Fields) -> list[Any]:
    value = fields.get("values", [])
    if value.__class__ is not list:
        raise _refused(value, "list")
    return _Json().elements(value)


def _null(value: Any) -> None:
    _whole(value, 32)


_KINDS: Final[dict[str, Callable[[Any], Any]]] = {
    "null_value": _null,
    "number_value": _double,
    "string_value": _text,
    "bool_value": _bool,
    "struct_value": _json_map,
    "list_value": _json_list,
}


def _value(fields: _Fields) -> Any:
    """One of several fields. Of more than one upstream takes any, by the order of a Go map; here the last one wins."""
    value = None
    for name, given in fields.items():
        value = _KINDS[name](given)
    return value


def _wrapper(convert: Callable[[Any], Any], default: Any) -> Callable[[_Fields], Any]:
    return lambda fields: convert(fields["value"]) if "value" in fields else default


_MAKERS: Final[dict[str, Callable[[_Fields], Any]]] = {
    "google.protobuf.Any": _any,
    "google.protobuf.BoolValue": _wrapper(_bool, False),
    "google.protobuf.BytesValue": _wrapper(_bytes, b""),
    "google.protobuf.DoubleValue": _wrapper(_double, 0.0),
    "google.protobuf.Duration": lambda fields: duration_of(*_seconds(fields)),
    "google.protobuf.Empty": lambda _fields: EmptyMessage(),
    "google.protobuf.FloatValue": _wrapper(_single, 0.0),
    "google.protobuf.Int32Value": _wrapper(lambda value: _whole(value, 32), 0),
    "google.protobuf.Int64Value": _wrapper(lambda value: _whole(value, 64), 0),
    "google.protobuf.ListValue": _list,
    "google.protobuf.StringValue": _wrapper(_text, ""),
    "google.protobuf.Struct": _struct,
    "google.protobuf.Struct.FieldsEntry": _entry,
    "google.protobuf.Timestamp": lambda fields: timestamp_of(*_seconds(fields)),
    "google.protobuf.UInt32Value": _wrapper(lambda value: _unsigned(value, 32), UInt(0)),
    "google.protobuf.UInt64Value": _wrapper(lambda value: _unsigned(value, 64), UInt(0)),
    "google.protobuf.Value": _value,
}
