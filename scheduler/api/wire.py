"""Protobuf messages taken apart and put together on the wire: a field that is not looked at keeps its very bytes.

An object travels as the three letters `k8s`, a zero byte, and a message Unknown, whose field 2 is the object itself.
Source: protobuf's encoding; apimachinery pkg/runtime/generated.proto.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

MAGIC: Final = b"k8s\x00"
_OBJECT: Final = 2  # field of Unknown

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}


class WireError(ValueError):
    """The bytes are no protobuf message."""


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: of the field.
        value: a whole number, or bytes (of text, bytes, a message inside, or a fixed number).
        raw: the field as it is on the wire, number and length included.
    """

    number: int
    value: int | bytes
    raw: bytes

    @property
    def payload(self) -> bytes:
        """The value of a field of bytes.

        Raises:
            WireError: it is a number.
        """
        if isinstance(self.value, int):
            raise WireError(f"field {self.number} is a number")
        return self.value


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message in their order.

    Raises:
        WireError: it is no message.
    """
    position = 0
    while position < len(message):
        start = position
        tag, position = _varint(message, position)
        number, kind = tag >> 3, tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, position = _varint(message, position)
        else:
            size = _FIXED.get(kind)
            if kind == _BYTES:
                size, position = _varint(message, position)
            if size is None or position + size > len(message):
                raise WireError(f"field {number} cannot be read")
            value = message[position : position + size]
            position += size
        yield Field(number, value, message[start:position])


def first(message: bytes, *path: int) -> bytes:
    """The bytes of the first field along a path of messages; empty if it is not there.

    Raises:
        WireError: it is no message.
    """
    for number in path:
        message = next((field.payload for field in fields(message) if field.number == number), b"")
    return message


def of_bytes(number: int, value: bytes) -> bytes:
    """A field of text, of bytes, or of a message inside."""
    return encode_varint(number << 3 | _BYTES) + encode_varint(len(value)) + value


def of_number(number: int, value: int) -> bytes:
    """A field with a whole number of 64 bits, or a boolean."""
    return encode_varint(number << 3 | _VARINT) + encode_varint(value & (2**64 - 1))


def changed(message: bytes, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """The message with another one inside changed; all other fields as they are.

    Args:
        message: the outer one.
        number: field of the inner one. It is empty if it is not there.
        change: from the bytes of the inner one to new ones.

    Raises:
        WireError: it is no message.
    """
    parts = []
    is_there = False
    for field in fields(message):
        is_it = field.number == number
        is_there = is_there or is_it
        parts.append(of_bytes(number, change(field.payload)) if is_it else field.raw)
    if not is_there:
        parts.append(of_bytes(number, change(b"")))
    return b"".join(parts)


def object_in(body: bytes) -> bytes:
    """The object in the body of a request or an answer.

    Raises:
        WireError: it is no such body.
    """
    return first(_unknown(body), _OBJECT)


def with_object(body: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The body with its object changed.

    Raises:
        WireError: it is no such body.
    """
    return MAGIC + changed(_unknown(body), _OBJECT, change)


def _unknown(body: bytes) -> bytes:
    if not body.startswith(MAGIC):
        raise WireError("it does not start as protobuf of Kubernetes does")
    return body[len(MAGIC) :]


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise WireError("a number does not end")


def encode_varint(value: int) -> bytes:
    """A whole number that is not negative, seven bits a byte."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
