"""Functions with their overloads, read from the table of declarations once."""

import re
from functools import cache
from typing import Final, NamedTuple

from allocator.cel import types
from allocator.cel.check.declarations import declarations
from allocator.cel.types import Type, list_of, map_of, optional_of, param, type_of


class Overload(NamedTuple):
    """One way to call a function."""

    id: str
    member: bool
    args: tuple[Type, ...]
    result: Type
    params: frozenset[str]


_LINE: Final = re.compile(r"(\S+) (\.?)(\S+?)\((.*)\) -> (.*)")
_NAMED: Final = {
    "IP": types.IP, "CIDR": types.CIDR, "URL": types.URL, "Quantity": types.QUANTITY,
    "Semver": types.SEMVER, "Format": types.FORMAT,
    **{name: Type("struct", f"kubernetes.authorization.{name}")
       for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")},
}  # fmt: skip


def _read_type(text: str) -> Type:
    text = text.strip()
    if text.endswith(")"):
        name, _, rest = text.partition("(")
        inner = [_read_type(part) for part in _split(rest[:-1])]
        if name == "list":
            return list_of(inner[0])
        if name == "map":
            return map_of(inner[0], inner[1])
        return optional_of(inner[0]) if name == "optional" else type_of(inner[0])
    if text in _NAMED:
        return _NAMED[text]
    return param(text) if len(text) == 1 else Type(text)


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts: list[str] = []
    level = start = 0
    for at, character in enumerate(text):
        level += (character == "(") - (character == ")")
        if character == "," and level == 0:
            parts.append(text[start:at])
            start = at + 1
    if text[start:].strip():
        parts.append(text[start:])
    return parts


def _params(type_: Type) -> frozenset[str]:
    if type_.kind == "param":
        return frozenset((type_.name,))
    return frozenset().union(*(_params(inner) for inner in type_.params))


@cache
def functions() -> dict[str, tuple[Overload, ...]]:
    """Every function with its overloads, read from the table once."""
    table: dict[str, list[Overload]] = {}
    for line in declarations():
        match = _LINE.fullmatch(line)
        if match is None:
            raise AssertionError(f"not an overload: {line}")
        id_, dot, function, args_text, result_text = match.groups()
        args = tuple(_read_type(text) for text in _split(args_text))
        result = _read_type(result_text)
        names = frozenset().union(*map(_params, (*args, result)))
        table.setdefault(function, []).append(Overload(id_, bool(dot), args, result, names))
    return {name: tuple(overloads) for name, overloads in table.items()}
