"""Unpacks a `google.protobuf.Any`: the well-known messages in protobuf's wire format.

Any other message is one that upstream's environment does not know either.

Source: google.golang.org/protobuf (encoding/protowire, proto.UnmarshalNew).
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from allocator.cel.values.limits import check_length
from allocator.cel.values.messages import EmptyMessage
from allocator.cel.values.moments import duration_of, timestamp_of
from allocator.cel.values.scalars import UInt
from allocator.errors import CelRuntimeError

_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_MAX_NUMBER: Final = 2**29 - 1
_MAX_DEPTH: Final = 400  # of messages in messages; a list in a list is two
_MAX_BYTES: Final = 2**20
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
# Number of a field, its wire type and its value: a whole number for a varint, bytes for anything else.
_Field = tuple[int, int, Any]


def unpack(url: str, data: bytes) -> Any:
    """What a message stands for.

    Args:
        url: its type; what follows the last slash is its name.
        data: its fields.

    Raises:
        CelRuntimeError: there is no such type, or the data are none of it or more than a megabyte.
    """
    check_length(len(data), _MAX_BYTES)
    return _unpack(url, data, 0)


def _problem(what: str) -> CelRuntimeError:
    return CelRuntimeError(f"unsupported conversion to ref.Val: {what}")


def _unpack(url: str, data: bytes, depth: int) -> Any:
    reader = _READERS.get(url.rpartition("/")[2])
    if reader is None:
        raise _problem(f"unknown type '{url[:80]}'")
    if depth > _MAX_DEPTH:
        raise _problem("messages nest too deeply")
    return reader(list(_fields(data)), depth)


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = 0
    for at in range(pos, min(pos + 10, len(data))):
        value |= (data[at] & 0x7F) << 7 * (at - pos)
        if data[at] < 0x80:
            if value >= 2**64:
                break
            return value, at + 1
    raise _problem("a number does not end")


def _fields(data: bytes) -> Iterator[_Field]:
    """The fields in their order; groups are skipped."""
    pos = 0
    open_groups: list[int] = []
    while pos < len(data):
        tag, pos = _varint(data, pos)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_NUMBER or kind > _FIXED32:
            raise _problem("invalid field")
        value: Any = b""
        if kind == _GROUP:
            open_groups.append(number)
        elif kind == _END_GROUP:
            if not open_groups or open_groups.pop() != number:
                raise _problem("mismatching end of a group")
        elif kind == _VARINT:
            value, pos = _varint(data, pos)
        else:
            size, pos = _varint(data, pos) if kind == _BYTES else (_SIZES[kind], pos)
            value, pos = data[pos : pos + size], pos + size
            if pos > len(data):
                raise _problem("unexpected end")
        if kind not in (_GROUP, _END_GROUP) and not open_groups:
            yield number, kind, value
    if open_groups:
        raise _problem("unexpected end")


def _last(fields: list[_Field], number: int, kind: int, default: Any) -> Any:
    """The last value of a field; one of another wire type is unknown, and so ignored."""
    for found, its, value in reversed(fields):
        if found == number and its == kind:
            return value
    return default


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _problem("invalid UTF-8") from None


def _texts_are_valid(fields: list[_Field], number: int) -> None:
    for found, kind, value in fields:
        if found == number and kind == _BYTES:
            _text(value)


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def _number(convert: Callable[[int], Any]) -> "_Reader":
    return lambda fields, _depth: convert(_last(fields, 1, _VARINT, 0))


def _float(kind: int, code: str) -> "_Reader":
    zero = bytes(_SIZES[kind])
    return lambda fields, _depth: struct.unpack(code, _last(fields, 1, kind, zero))[0]


def _string(fields: list[_Field], _depth: int) -> str:
    _texts_are_valid(fields, 1)
    return _text(_last(fields, 1, _BYTES, b""))


def _seconds(fields: list[_Field]) -> tuple[int, int]:
    return _signed(_last(fields, 1, _VARINT, 0), 64), _signed(_last(fields, 2, _VARINT, 0), 32)


def _any(fields: list[_Field], depth: int) -> Any:
    return _unpack(_string(fields, depth), _last(fields, 2, _BYTES, b""), depth + 1)


def _nested(data: bytes, depth: int) -> list[_Field]:
    if depth > _MAX_DEPTH:
        raise _problem("messages nest too deeply")
    return list(_fields(data))


def _struct(fields: list[_Field], depth: int) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for number, kind, value in fields:
        if number == 1 and kind == _BYTES:
            entry = _nested(value, depth)
            merged = b"".join(each for at, its, each in entry if at == 2 and its == _BYTES)
            members[_string(entry, depth)] = _value(_nested(merged, depth + 1), depth + 1)
    return members


def _list(fields: list[_Field], depth: int) -> list[Any]:
    return [
        _value(_nested(value, depth + 1), depth + 1)
        for number, kind, value in fields
        if number == 1 and kind == _BYTES
    ]


_KINDS: Final = {1: _VARINT, 2: _FIXED64, 3: _BYTES, 4: _VARINT, 5: _BYTES, 6: _BYTES}


def _value(fields: list[_Field], depth: int) -> Any:
    """The last of its kinds; the parts of one list or map are joined."""
    _texts_are_valid(fields, 3)
    known = [field for field in fields if _KINDS.get(field[0]) == field[1]]
    if not known:
        return None
    number, _, last = known[-1]
    parts: list[bytes] = []
    for found, _, value in reversed(known):
        if found != number:
            break
        parts.append(value)
    if number == 5 or number == 6:
        inner = _nested(b"".join(reversed(parts)), depth + 1)
        return _struct(inner, depth + 1) if number == 5 else _list(inner, depth + 1)
    if number == 2:
        return struct.unpack("<d", last)[0]
    return _text(last) if number == 3 else last != 0 if number == 4 else None


_Reader = Callable[[list[_Field], int], Any]
_READERS: Final[dict[str, _Reader]] = {
    "google.protobuf.Any": _any,
    "google.protobuf.BoolValue": _number(bool),
    "google.protobuf.BytesValue": lambda fields, _depth: _last(fields, 1, _BYTES, b""),
    "google.protobuf.DoubleValue": _float(_FIXED64, "<d"),
    "google.protobuf.Duration": lambda fields, _depth: duration_of(*_seconds(fields)),
    "google.protobuf.Empty": lambda _fields, _depth: EmptyMessage(),
    "google.protobuf.FloatValue": _float(_FIXED32, "<f"),
    "google.protobuf.Int32Value": _number(lambda value: _signed(value, 32)),
    "google.protobuf.Int64Value": _number(lambda value: _signed(value, 64)),
    "google.protobuf.ListValue": _list,
    "google.protobuf.StringValue": _string,
    "google.protobuf.Struct": _struct,
    "google.protobuf.Timestamp": lambda fields, _depth: timestamp_of(*_seconds(fields)),
    "google.protobuf.UInt32Value": _number(lambda value: UInt(value & 0xFFFFFFFF)),
    "google.protobuf.UInt64Value": _number(UInt),
    "google.protobuf.Value": _value,
}
