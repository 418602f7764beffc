"""Reads an object that the fast decoder refuses: whatever can be read of it, and what cannot.

The API server hands out texts that no strict decoder takes: lone surrogates, bytes that are no UTF-8 and thousands of
nested objects in opaque parameters and in what drivers say of devices. Those values nobody here looks at, so they stay
the bytes they are, and the object around them is read like any other. Text elsewhere is read as Go reads it, and fields
that no type knows are not looked at.

What is left then is wrong in a field that is needed. Such an object is read as far as it can be, part by part: list
elements and map entries that do not fit are left out, fields are empty, and each is told with its path.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast, get_args

import msgspec
from msgspec.structs import fields, replace

from scheduler.api.convert import UnknownVersionError, to_v1
from scheduler.api.numbers import ExactNumber, decode_tree, encode_tree
from scheduler.api.rawjson import (
    RawJsonError,
    after,
    key_at,
    scalar_at,
    skip_space,
    text_of,
    value_at,
    without,
)
from scheduler.api.typed import DECODERS, TYPES
from scheduler.api.walk import LEFT_OUT, FieldError, Walk

# Kept byte for byte, whatever is in them: `opaque.parameters`, `status.devices[].data`.
_OPAQUE: Final = frozenset({"parameters", "data"})
_MANAGED: Final = b'"managedFields"'
_DEPTH: Final = 64  # no field that has a type is as deep
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_MOST_DIGITS: Final = 300
_LITERALS: Final = {b"true": True, b"false": False, b"null": None}
# Python has no limit for whole numbers, the API has: such a one is looked at closely.
HUGE_NUMBER: Final = re.compile(rb"[:\[,]-?[0-9]{19}")
_DECODE_ERRORS: Final = (msgspec.DecodeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Reading:
    """What has been read.

    Attributes:
        decoded: the object in the shape of v1, as far as it can be read; None: it is no object, or has no name at all.
        raw: the object's bytes in the shape of v1.
        problems: what cannot be read, in the order of the schema; empty: everything that is needed is there.
        name: `namespace/name`, as far as it can be told.
    """

    decoded: Any
    raw: bytes
    problems: tuple[FieldError, ...]
    name: tuple[str, str]


def read(kind: str, raw: bytes, api_version: str = "") -> Reading:
    """Read one object of a kind in `TYPES`, of any known version. Never raises for what the text holds.

    Args:
        kind: of the object.
        raw: JSON, or what should be.
        api_version: of an item of a list, which does not say.
    """
    tree, problem = _tree_and_problem(raw)
    name = _name(tree)
    if not isinstance(tree, dict):
        problem = problem or FieldError("", "expected an object")
        return Reading(None, raw, (problem,), name)
    if api_version:
        tree = {"apiVersion": api_version, **tree}
    problems = [] if problem is None else [problem]
    try:
        v1 = to_v1(kind, tree)
    except UnknownVersionError as error:
        problems.append(FieldError("apiVersion", str(error)))
        v1 = tree
    raw = _in_v1(raw, tree, v1)
    if not problems and not HUGE_NUMBER.search(raw):
        try:
            return Reading(DECODERS[kind].decode(raw), raw, (), name)
        except _DECODE_ERRORS:
            pass
    walk = _LenientWalk()
    decoded = walk.decode(kind, v1)
    problems += walk.problems
    is_known = bool(decoded.metadata.name or decoded.metadata.uid) or not problems
    return Reading(decoded if is_known else None, raw, tuple(problems), name)


def _name(tree: Any) -> tuple[str, str]:
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    if not isinstance(metadata, dict):
        return "", ""
    texts = {key: value for key, value in metadata.items() if isinstance(value, str)}
    return texts.get("namespace", ""), texts.get("name", "") or texts.get("generateName", "")


def _in_v1(raw: bytes, tree: dict[str, Any], v1: dict[str, Any]) -> bytes:
    """The text of an object in the shape of v1 without `managedFields`: as it came, if it came so."""
    try:
        if v1 is tree:
            return without(raw, "metadata", "managedFields") if _MANAGED in raw else raw
        metadata = v1.get("metadata")
        if isinstance(metadata, dict):
            kept = {key: value for key, value in metadata.items() if key != "managedFields"}
            v1 = {**v1, "metadata": kept}
        return encode_tree(v1)
    except (RawJsonError, RecursionError):
        return raw


# --- plain data -------------------------------------------------------------------------------------------------------


def _tree_and_problem(raw: bytes) -> tuple[Any, FieldError | None]:
    """The text as plain data; if it is no JSON, what can be told apart of it, and what is wrong."""
    try:
        return tree_of(raw), None
    except RawJsonError as error:
        problem = FieldError("", f"it is not JSON: {error}")
    try:
        return _Parser(raw, is_tolerant=True).value(0, _DEPTH)[0], problem
    except RawJsonError:
        return None, problem


def tree_of(raw: bytes) -> Any:
    """Decode JSON as plain dicts and lists, with exact numbers; opaque and very deep values stay `msgspec.Raw`.

    Raises:
        RawJsonError: it is no JSON.
    """
    tree, end = _Parser(raw, is_tolerant=False).value(0, _DEPTH)
    if raw[end:].strip():
        raise RawJsonError(f"something follows the value at byte {end}")
    return tree


def plain(raw: bytes) -> Any:
    """Decode JSON as plain dicts and lists for somebody who only reads: values that nobody can decode are `{}`.

    Raises:
        RawJsonError: it is no JSON.
    """
    try:
        return decode_tree(raw)
    except _DECODE_ERRORS:
        pass
    try:
        return _thawed(tree_of(raw))
    except RecursionError:
        raise RawJsonError("it is nested too deeply") from None


def _thawed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _thawed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_thawed(item) for item in value]
    if isinstance(value, msgspec.Raw):
        try:
            return decode_tree(value)
        except _DECODE_ERRORS:
            return {}
    return value


class _Parser:
    """Makes plain data of a text in one pass; values that stay as they are cost it no more than finding their end."""

    def __init__(self, raw: bytes, *, is_tolerant: bool) -> None:
        """Choose what happens to a part that is no JSON: it stays `msgspec.Raw`, or an error is raised."""
        self._raw = raw
        self._is_tolerant = is_tolerant

    def value(self, place: int, depth: int) -> tuple[Any, int]:
        """The value at a place, and where it ends; nothing is looked at below a depth."""
        place = skip_space(self._raw, place)
        first = self._raw[place : place + 1]
        if first not in (b"{", b"["):
            return self._scalar(place)
        if not depth:
            return self._untouched(place)
        try:
            if first == b"{":
                return self._object(place + 1, depth - 1)
            return self._list(place + 1, depth - 1)
        except RawJsonError:
            if not self._is_tolerant:
                raise
            return self._untouched(place)

    def _object(self, place: int, depth: int) -> tuple[dict[str, Any], int]:
        raw = self._raw
        found: dict[str, Any] = {}
        inside = skip_space(raw, place)
        is_open = raw[inside : inside + 1] != b"}"
        place = place if is_open else inside + 1
        while is_open:
            key = key_at(raw, place)
            name = text_of(key[1])
            start = skip_space(raw, key.end())
            if name in _OPAQUE and raw[start : start + 1] == b"{":
                found[name], end = self._untouched(start)
            else:
                found[name], end = self.value(start, depth)
            place, is_open = after(raw, end, b"}")
        return found, place

    def _list(self, place: int, depth: int) -> tuple[list[Any], int]:
        raw = self._raw
        found: list[Any] = []
        inside = skip_space(raw, place)
        is_open = raw[inside : inside + 1] != b"]"
        place = place if is_open else inside + 1
        while is_open:
            item, end = self.value(place, depth)
            found.append(item)
            place, is_open = after(raw, end, b"]")
        return found, place

    def _untouched(self, place: int) -> tuple[msgspec.Raw, int]:
        span = value_at(self._raw, place)
        return msgspec.Raw(self._raw[span.start : span.end]), span.end

    def _scalar(self, place: int) -> tuple[Any, int]:
        piece = scalar_at(self._raw, place)
        end = place + len(piece)
        try:
            return (text_of(piece) if piece.startswith(b'"') else _scalar(piece)), end
        except RawJsonError:
            if not self._is_tolerant:
                raise
            return msgspec.Raw(piece), end


def _scalar(piece: bytes) -> Any:
    if piece in _LITERALS:
        return _LITERALS[piece]
    text = piece.decode("latin-1")
    number = _NUMBER.fullmatch(text)
    if number is None:
        raise RawJsonError(f"{text[:20]!r} is no value")
    is_whole = number[2] is None and number[3] is None
    return int(text) if is_whole and len(text) <= _MOST_DIGITS else ExactNumber(text)


# --- typed ------------------------------------------------------------------------------------------------------------


class _LenientWalk(Walk):
    """Goes on without what does not fit. Opaque values get a number, and are put in again after decoding.

    Attributes:
        problems: what was left out, and why.
    """

    keeps_unknown = False

    def __init__(self) -> None:
        self.problems: list[FieldError] = []
        self._opaque: list[msgspec.Raw] = []

    def decode(self, kind: str, tree: dict[str, Any]) -> Any:
        """Decode what fits."""
        data = self.conform(TYPES[kind], tree, "")
        try:
            decoded = DECODERS[kind].decode(encode_tree(data))
        except _DECODE_ERRORS as error:
            self.problems.append(FieldError("", str(error)))
            metadata = data.get("metadata", {})
            known = {key: value for key, value in metadata.items() if isinstance(value, str)}
            return DECODERS[kind].decode(encode_tree({"metadata": known}))
        return _with_opaque(decoded, TYPES[kind], self._opaque) if self._opaque else decoded

    def part(self, type_: Any, value: Any, path: str) -> Any:
        """One field, element or entry, if it fits."""
        try:
            return self.conform(type_, value, path)
        except FieldError as error:
            self.problems.append(error)
            return LEFT_OUT

    def anything(self, value: Any, path: str) -> Any:
        """The value of a field whose content nobody knows, if it can be written and read."""
        if isinstance(value, int | str | None):
            return value
        try:
            return msgspec.json.decode(encode_tree(value))
        except _DECODE_ERRORS:
            raise FieldError(path, "it cannot be read") from None

    def opaque(self, value: Any) -> Any:
        """A number in place of the text."""
        raw = value if isinstance(value, msgspec.Raw) else msgspec.Raw(encode_tree(value))
        self._opaque.append(raw)
        return len(self._opaque) - 1


@cache
def _holding(type_: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a struct that are, or hold, opaque text, with the type of what is in them."""
    found = []
    for field in fields(type_):
        inner = _inner(field.type)
        if inner is msgspec.Raw or (_is_struct(inner) and _holding(inner)):
            found.append((field.name, inner))
    return tuple(found)


def _inner(type_: Any) -> Any:
    """The struct in an optional or a tuple."""
    for inner in get_args(type_):
        if inner not in (type(None), Ellipsis):
            return _inner(inner)
    return type_


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _with_opaque(value: Any, type_: Any, opaque: list[msgspec.Raw]) -> Any:
    """Put the opaque texts in again, wherever a number stands for one."""
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(_with_opaque(each, type_, opaque) for each in value)
    if type_ is msgspec.Raw:
        number = bytes(value)
        return opaque[int(number)] if number.isdigit() else value
    changes = {
        name: _with_opaque(getattr(value, name), inner, opaque) for name, inner in _holding(type_)
    }
    return cast("Any", replace(value, **changes))
