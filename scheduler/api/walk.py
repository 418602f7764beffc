"""Walks plain data beside a msgspec type: finds the first wrong field, with its whole path and map keys.

msgspec's own errors leave map keys out, and a person needs them. The walk also does what Go's decoder does and msgspec
does not: a `null` counts as absent, and a quantity may be a bare number with a fraction.
"""

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from allocator.errors import QuantityError
from allocator.quantity import Quantity
from scheduler.api.numbers import ExactNumber

_INT64_LIMIT: Final = 2**63
LEFT_OUT: Final = object()
"""A part that a walk goes on without."""


class FieldError(ValueError):
    """A field does not have the type its schema says.

    Attributes:
        path: e.g. `spec.devices[0].capacity["memory"].value`; empty for the whole object.
        problem: what is wrong, in words.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


_JSON_TYPES: Final[tuple[tuple[type, str], ...]] = (
    (type(None), "null"),
    (bool, "a boolean"),  # before int: it is one
    (int, "a whole number"),
    (float, "a number with a fraction"),
    (str, "text"),
    (list, "a list"),
    (dict, "an object"),
    (msgspec.Raw, "what cannot be read"),
)


def json_type(value: Any) -> str:
    """Name the JSON type of a value for a person."""
    for type_, name in _JSON_TYPES:
        if isinstance(value, type_):
            return name
    return type(value).__name__


def child(path: str, field: str) -> str:
    """The path of a field."""
    return f"{path}.{field}" if path else field


@cache
def _fields(type_: type) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(type_)}


def conform(type_: Any, value: Any, path: str = "") -> Any:
    """Bring plain data into the form that msgspec decodes as `type_`.

    Nulls in known fields are left out, numbers become text where a quantity is due. Unknown fields stay as they are.

    Raises:
        FieldError: the first field, in schema order, whose value has the wrong type.
    """
    return Walk().conform(type_, value, path)


@cache
def _shape(type_: Any) -> tuple[str, Any]:
    """What kind of type it is, and the type inside it. Asked once a type: asking `typing` is slow."""
    origin = get_origin(type_)
    if type_ is Any or type_ is msgspec.Raw:
        return ("any" if type_ is Any else "raw"), None
    if origin in (Union, UnionType):
        (inner,) = (member for member in get_args(type_) if member is not type(None))
        return "optional", inner
    if origin in (tuple, list):
        return "list", get_args(type_)[0]
    if origin is dict:
        return "map", get_args(type_)[1]
    if type_ is Quantity:
        return "quantity", None
    is_struct = isinstance(type_, type) and issubclass(type_, msgspec.Struct)
    return ("struct" if is_struct else "scalar"), None


def _wrong(path: str, wanted: str, value: Any) -> FieldError:
    return FieldError(path, f"expected {wanted}, got {json_type(value)}")


class Walk:
    """Goes through plain data beside a type, as `conform` says; the first thing that is wrong ends it."""

    keeps_unknown = True

    def conform(self, type_: Any, value: Any, path: str) -> Any:
        """The value in the form that msgspec decodes.

        Raises:
            FieldError: it does not fit.
        """
        shape, inner = _shape(type_)
        match shape:
            case "any":
                conformed = self.anything(value, path)
            case "raw":
                conformed = self.opaque(value)
            case "optional":
                conformed = None if value is None else self.conform(inner, value, path)
            case "list":
                conformed = self._list(inner, value, path)
            case "map":
                conformed = self._map(inner, value, path)
            case "quantity":
                conformed = _conform_quantity(value, path)
            case "struct":
                conformed = self._struct(type_, value, path)
            case _:
                conformed = _conform_scalar(type_, value, path)
        return conformed

    def anything(self, value: Any, path: str) -> Any:
        """The value of a field whose content nobody knows."""
        return value

    def opaque(self, value: Any) -> Any:
        """The value of a field that is kept as text."""
        return value

    def part(self, type_: Any, value: Any, path: str) -> Any:
        """One field, element or entry: its value, or `LEFT_OUT`."""
        return self.conform(type_, value, path)

    def _list(self, item_type: Any, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(path, "a list", value)
        parts = [self.part(item_type, item, f"{path}[{index}]") for index, item in enumerate(value)]
        return [part for part in parts if part is not LEFT_OUT]

    def _map(self, value_type: Any, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        conformed = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise FieldError(path, f"the key {key!r} is not text")
            part = self.part(value_type, item, f'{path}["{key}"]')
            if part is not LEFT_OUT:
                conformed[key] = part
        return conformed

    def _struct(self, type_: type, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        conformed = dict(value) if self.keeps_unknown else {}
        for name, field in _fields(type_).items():
            item = value.get(name)
            if item is None:
                conformed.pop(name, None)
                if field.required:
                    raise FieldError(child(path, name), "is required")
                continue
            part = self.part(field.type, item, child(path, name))
            if part is LEFT_OUT:
                conformed.pop(name, None)
            else:
                conformed[name] = part
        return conformed


def _conform_quantity(value: Any, path: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _wrong(path, "a quantity", value)
    text = value.text if isinstance(value, ExactNumber) else str(value)
    try:
        Quantity.parse(text)
    except QuantityError as error:
        raise FieldError(path, str(error)) from None
    return text


_SCALARS: Final[dict[type, str]] = {str: "text", int: "a whole number", bool: "a boolean"}


def _conform_scalar(type_: Any, value: Any, path: str) -> Any:
    wanted = _SCALARS.get(type_)
    if wanted is None:
        raise AssertionError(f"{path}: no rule for type {type_!r}")
    if type(value) is not type_:
        raise _wrong(path, wanted, value)
    if type_ is int and not -_INT64_LIMIT <= value < _INT64_LIMIT:
        raise FieldError(path, "the number does not fit into 64 bits")
    return value


def unknown_fields(type_: Any, value: Any, path: str = "") -> Iterator[str]:
    """Paths of fields that the schema does not have, in data of the right types."""
    shape, inner = _shape(type_)
    match shape:
        case "optional":
            yield from unknown_fields(inner, value, path)
        case "list":
            for index, item in enumerate(value or ()):
                yield from unknown_fields(inner, item, f"{path}[{index}]")
        case "map" if _shape(inner)[0] == "struct":
            for key, item in (value or {}).items():
                yield from unknown_fields(inner, item, f'{path}["{key}"]')
        case "struct" if value is not None:
            fields = _fields(type_)
            for key, item in value.items():
                if key not in fields:
                    yield child(path, key)
                elif isinstance(item, dict | list):
                    yield from unknown_fields(fields[key].type, item, child(path, key))
        case _:
            pass
