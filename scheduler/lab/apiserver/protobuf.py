"""ResourceClaims as protobuf, which is what the in-tree scheduler and ours write where JSON would change what others wrote.

Objects in the stored shape go in and come out; `messages` says which field has which number. A field that is not in
the tables is dropped, as by a server of an older version.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from scheduler.api import wire
from scheduler.clock import rfc3339
from scheduler.lab.apiserver.messages import FIELDS, TYPE_META, Field
from scheduler.lab.apiserver.objects import Json
from scheduler.lab.apiserver.opaque import Opaque

_TYPE_META, _OBJECT = 1, 2  # of the message Unknown
_KEY, _VALUE = 1, 2  # of an entry of a map

# What Go writes where JSON has nothing.
_ABSENT: Final = {"text": ("",), "time": ("",), "number": (0,)}


def encode(message: str, obj: Json) -> bytes:
    """Encode an object with `kind` and `apiVersion` as the body of an answer.

    Args:
        message: its type in `messages`.
        obj: in the stored shape.
    """
    return wire.MAGIC + b"".join(
        (
            wire.of_bytes(_TYPE_META, _encoded(TYPE_META, obj)),
            wire.of_bytes(_OBJECT, _encoded(message, obj)),
        )
    )


def decode(message: str, body: bytes) -> Json:
    """Decode the body of a request.

    Raises:
        WireError: it cannot be read.
    """
    if not body.startswith(wire.MAGIC):
        raise wire.WireError("it does not start as protobuf of Kubernetes does")
    unknown = body[len(wire.MAGIC) :]
    try:
        type_meta = _decoded(TYPE_META, wire.first(unknown, _TYPE_META))
        return {**type_meta, **_decoded(message, wire.first(unknown, _OBJECT))}
    except (UnicodeDecodeError, orjson.JSONDecodeError, OverflowError) as error:
        raise wire.WireError(str(error)) from None


def _encoded(message: str, obj: Json) -> bytes:
    return b"".join(
        part
        for field in FIELDS[message]
        if (value := obj if field.is_inline else obj.get(field.name)) is not None
        for part in _parts(field, value)
    )


def _parts(field: Field, value: Any) -> Iterator[bytes]:
    if field.is_map:
        for key, item in value.items():
            entry = wire.of_bytes(_KEY, key.encode()) + _one(_VALUE, field.type, item)
            yield wire.of_bytes(field.number, entry)
    elif field.is_list:
        for item in value:
            yield _one(field.number, field.type, item)
    else:
        yield _one(field.number, field.type, value)


def _one(number: int, type_: str, value: Any) -> bytes:
    if type_ in ("bool", "int", "number"):
        return wire.of_number(number, int(value))
    if type_ in _TO_BYTES:
        return wire.of_bytes(number, _TO_BYTES[type_](value))
    return wire.of_bytes(number, _encoded(type_, value))


def _decoded(message: str, data: bytes) -> Json:
    known = {field.number: field for field in FIELDS[message]}
    obj: Json = {}
    for part in wire.fields(data):
        field = known.get(part.number)
        if field is None:
            continue
        if field.is_map:
            name = wire.first(part.payload, _KEY).decode()
            held = next((each for each in wire.fields(part.payload) if each.number == _VALUE), None)
            value = _read(field.type, held) if held is not None else ""
            obj.setdefault(field.name, {})[name] = value
        elif field.is_list:
            obj.setdefault(field.name, []).append(_read(field.type, part))
        elif field.is_inline:
            obj.update(_read(field.type, part))
        elif (value := _read(field.type, part)) not in _ABSENT.get(field.type, ()):
            obj[field.name] = value
    return obj


def _read(type_: str, part: wire.Field) -> Any:
    if type_ == "bool":
        return part.value != 0
    if type_ in ("int", "number"):
        number = int(part.value) if isinstance(part.value, int) else 0
        return number - 2**64 if number >= 2**63 else number
    if type_ in _FROM_BYTES:
        return _FROM_BYTES[type_](part.payload)
    return _decoded(type_, part.payload)


def _time_to_bytes(text: str) -> bytes:
    return wire.of_number(1, int(datetime.fromisoformat(text).timestamp()))


def _time_from_bytes(data: bytes) -> str:
    seconds = next((each.value for each in wire.fields(data) if each.number == 1), 0)
    return rfc3339(datetime.fromtimestamp(int(seconds), UTC)) if seconds else ""


_TO_BYTES: Final[dict[str, Callable[[Any], bytes]]] = {
    "text": str.encode,
    "time": _time_to_bytes,
    "quantity": lambda text: wire.of_bytes(1, text.encode()),
    "fields": lambda fields: wire.of_bytes(1, orjson.dumps(fields)),
    "opaque": lambda value: wire.of_bytes(1, value.raw),
}
_FROM_BYTES: Final[dict[str, Callable[[bytes], Any]]] = {
    "text": bytes.decode,
    "time": _time_from_bytes,
    "quantity": lambda data: wire.first(data, 1).decode(),
    "fields": lambda data: orjson.loads(wire.first(data, 1)),
    "opaque": lambda data: Opaque(wire.first(data, 1)),
}
