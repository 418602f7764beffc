"""Where the values of a JSON text begin and end: found on bytes, without recursion, without judging what is in them.

The API server stores some text as it comes (opaque parameters, what drivers say of devices) and hands it out in the
middle of lists and watches: lone surrogates, bytes that are no UTF-8, thousands of nested objects. A decoder refuses
such a text as a whole; here it is told apart into its parts, so that one part that cannot be read spoils no other.

Only quotes, escapes and brackets are looked at inside a value: who takes a value out decides what it is worth. About
60 MB/s, so this is for what a decoder has refused already.
"""

import json
import re
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN: Final = re.compile(_STRING + rb'|["\[\]{}]', re.DOTALL)
_KEY: Final = re.compile(rb"[ \t\n\r]*+(" + _STRING + rb")[ \t\n\r]*+:", re.DOTALL)
_SPACE: Final = re.compile(rb"[ \t\n\r]*+")
_SCALAR: Final = re.compile(_STRING + rb'|[^ \t\n\r,:"\[\]{}]++', re.DOTALL)
_CLOSING: Final = {b"[": b"]", b"{": b"}"}


class RawJsonError(ValueError):
    """The text is not even well-formed as far as brackets, quotes, commas and colons go."""


class Span(NamedTuple):
    """A value in a text: `text[start:end]`."""

    start: int
    end: int


class Member(NamedTuple):
    """A member of an object.

    Attributes:
        key: as text.
        start: where the member begins: at its key.
        value: where its value is.
    """

    key: str
    start: int
    value: Span


def skip_space(raw: bytes, place: int) -> int:
    """The first place that is no white space."""
    found = _SPACE.match(raw, place)
    return place if found is None else found.end()


def scalar_at(raw: bytes, place: int) -> bytes:
    """The string, number or literal that begins at a place.

    Raises:
        RawJsonError: there is none.
    """
    scalar = _SCALAR.match(raw, place)
    if scalar is None:
        raise RawJsonError(f"there is no value at byte {place}")
    return scalar[0]


def key_at(raw: bytes, place: int) -> re.Match[bytes]:
    """The key and colon that begin at a place, or behind white space there; the key is group 1.

    Raises:
        RawJsonError: there are none.
    """
    key = _KEY.match(raw, place)
    if key is None:
        raise RawJsonError(f"there is no key at byte {place}")
    return key


def after(raw: bytes, end: int, closing: bytes) -> tuple[int, bool]:
    """What follows a member or element: the place behind a comma, or behind the end; and whether it was a comma.

    Raises:
        RawJsonError: it is neither.
    """
    place = skip_space(raw, end)
    found = raw[place : place + 1]
    if found not in (b",", closing):
        raise RawJsonError(f"there is neither a comma nor the end at byte {place}")
    return place + 1, found == b","


def value_at(raw: bytes, start: int = 0) -> Span:
    """Find the value that begins at a place, or behind white space there.

    Raises:
        RawJsonError: there is none, or it does not end.
    """
    start = skip_space(raw, start)
    if raw[start : start + 1] not in (b"[", b"{"):
        return Span(start, start + len(scalar_at(raw, start)))
    closing: list[bytes] = []  # of the brackets that are open
    for token in _TOKEN.finditer(raw, start):
        text = token[0]
        if text in _CLOSING:
            closing.append(_CLOSING[text])
        elif text in (b"]", b"}"):
            if closing.pop() != text:
                raise RawJsonError(f"the wrong bracket is closed at byte {token.start()}")
            if not closing:
                return Span(start, token.end())
        elif text == b'"':
            raise RawJsonError(f"the text that begins at byte {token.start()} does not end")
    raise RawJsonError(f"the value that begins at byte {start} does not end")


def members(raw: bytes, start: int = 0) -> Iterator[Member]:
    """The members of the object that begins at a place, in order, repeated keys included.

    Raises:
        RawJsonError: while iterating: there is no object, or it is malformed from there on.
    """
    place = _open(raw, start, b"{")
    is_open = _next(raw, place) != b"}"
    while is_open:
        key = key_at(raw, place)
        value = value_at(raw, key.end())
        yield Member(text_of(key[1]), key.start(1), value)
        place, is_open = after(raw, value.end, b"}")


def elements(raw: bytes, start: int = 0) -> Generator[Span, None, int]:
    """The elements of the list that begins at a place, in order; at last, where the list ends.

    Raises:
        RawJsonError: while iterating: there is no list, or it is malformed from there on.
    """
    place = _open(raw, start, b"[")
    is_open = _next(raw, place) != b"]"
    if not is_open:
        place = skip_space(raw, place) + 1
    while is_open:
        value = value_at(raw, place)
        yield value
        place, is_open = after(raw, value.end, b"]")
    return place


def members_and_elements(raw: bytes, list_key: str) -> Iterator[tuple[str, Span]]:
    """The members of an object, but of the list under one key each element for itself, so that no step takes long.

    Raises:
        RawJsonError: while iterating: there is no object, no list under that key (nor null), or it is malformed.
    """
    place = _open(raw, 0, b"{")
    is_open = _next(raw, place) != b"}"
    while is_open:
        key = key_at(raw, place)
        name = text_of(key[1])
        if name == list_key and _next(raw, key.end()) != b"n":
            end = yield from _named(name, elements(raw, key.end()))
        else:
            value = value_at(raw, key.end())
            yield name, value
            end = value.end
        place, is_open = after(raw, end, b"}")


def _named(name: str, spans: Generator[Span, None, int]) -> Generator[tuple[str, Span], None, int]:
    while True:
        try:
            yield name, next(spans)
        except StopIteration as end:
            return int(end.value)


def find(raw: bytes, *path: str, start: int = 0) -> Span | None:
    """Find the value at a path of keys, the last one where a key is repeated; None: there is none.

    Raises:
        RawJsonError: the text is malformed before the value, or somewhere in the object that should hold it.
    """
    if not path:
        return value_at(raw, start)
    found: Span | None = Span(skip_space(raw, start), len(raw))
    for key in path:
        if found is None or raw[found.start : found.start + 1] != b"{":
            return None
        values = [member.value for member in members(raw, found.start) if member.key == key]
        found = values[-1] if values else None
    return found


def without(raw: bytes, *path: str) -> bytes:
    """Copy a text without the member at a path of keys; all other bytes stay as they are.

    Raises:
        RawJsonError: as `find`.
    """
    *parents, key = path
    parent = find(raw, *parents) if parents else value_at(raw)
    if parent is None or raw[parent.start : parent.start + 1] != b"{":
        return bytes(raw)
    every = list(members(raw, parent.start))
    kept = [raw[each.start : each.value.end] for each in every if each.key != key]
    if len(kept) == len(every):
        return bytes(raw)
    return b"".join((raw[: parent.start + 1], b",".join(kept), raw[parent.end - 1 :]))


def text_of(raw: bytes) -> str:
    """Read a JSON string as Go does: what is no character (half a surrogate pair, no UTF-8) is U+FFFD.

    Raises:
        RawJsonError: it is no string, or has an escape that JSON does not know.
    """
    try:
        text = json.loads(raw.decode("utf-8", "replace"), strict=False)
    except ValueError as error:
        raise RawJsonError(f"a text cannot be read: {error}") from None
    if not isinstance(text, str):
        raise RawJsonError("a text is expected")
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def string_at(raw: bytes, *path: str) -> str:
    """The text at a path of keys; empty if there is none, or anything else."""
    try:
        found = find(raw, *path)
        return "" if found is None else text_of(raw[found.start : found.end])
    except RawJsonError:
        return ""


def _open(raw: bytes, start: int, bracket: bytes) -> int:
    place = skip_space(raw, start)
    if raw[place : place + 1] != bracket:
        raise RawJsonError(f"there is no {bracket.decode()} at byte {place}")
    return place + 1


def _next(raw: bytes, place: int) -> bytes:
    place = skip_space(raw, place)
    return raw[place : place + 1]
