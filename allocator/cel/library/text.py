"""Strings and regular expressions.

Source: cel-go ext/strings.go (version 2), k8s.io/apiserver/pkg/cel/library/regex.go.
"""

from collections.abc import Callable
from typing import Any, Final

from allocator.cel.library.formatting import format_text
from allocator.cel.library.regex import compile_regex
from allocator.cel.values.limits import MAX_CHARACTERS, check_length
from allocator.cel.values.names import no_such_overload
from allocator.errors import CelRuntimeError

# Go's unicode.IsSpace.
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _typed(name: str, *classes: type) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Check the classes of the arguments a method is called with."""

    def decorate(method: Callable[..., object]) -> Callable[..., object]:
        def checked(*args: Any) -> object:
            for arg, cls in zip(args, classes, strict=False):
                if arg.__class__ is not cls:
                    raise no_such_overload(name, *args)
            return method(*args)

        return checked

    return decorate


def out_of_range(at: int) -> CelRuntimeError:
    """The error for an index outside the text."""
    return CelRuntimeError(f"index out of range: {at}")


@_typed("charAt", str, int)
def _char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise out_of_range(at)
    return text[at : at + 1]


def index_of(text: str, part: str, offset: int = 0) -> int:
    """Where a part starts, at or behind the offset."""
    if offset < 0:
        raise out_of_range(offset)
    if part == "":
        return min(offset, len(text))
    if offset >= len(text):
        return -1
    return text.find(part, offset)


def last_index_of(text: str, part: str, offset: int | None = None) -> int:
    """Where a part starts last, at or before the offset."""
    if offset is None:
        if part == "":
            return len(text)
        if len(text.encode("utf-8", "surrogatepass")) < len(part.encode("utf-8", "surrogatepass")):
            return -1
        offset = len(text) - 1
    if offset < 0:
        raise out_of_range(offset)
    if part == "":
        return min(offset, len(text))
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


@_typed("lowerAscii", str)
def _lower(text: str) -> str:
    return text.translate(_LOWER)


@_typed("upperAscii", str)
def _upper(text: str) -> str:
    return text.translate(_UPPER)


@_typed("replace", str, str, str, int)
def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    limit = limit if limit >= 0 else -1
    if len(text) * len(new) > MAX_CHARACTERS:
        count = text.count(old) if limit < 0 else min(limit, text.count(old))
        check_length(len(text) + count * (len(new) - len(old)), MAX_CHARACTERS)
    return text.replace(old, new, limit)


@_typed("split", str, str, int)
def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator == "":
        if limit < 0 or limit >= len(text):
            return list(text)
        return [*text[: limit - 1], text[limit - 1 :]]
    return text.split(separator, limit - 1 if limit > 0 else -1)


@_typed("substring", str, int, int)
def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        end = len(text)
        if not 0 <= start <= end:
            raise out_of_range(start)
    if start > end:
        raise CelRuntimeError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise out_of_range(start)
    if not 0 <= end <= len(text):
        raise out_of_range(end)
    return text[start:end]


@_typed("trim", str)
def _trim(text: str) -> str:
    return text.strip(_SPACE)


_QUOTED: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


@_typed("strings.quote", str)
def _quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


@_typed("join", list, str)
def _join(parts: list[object], separator: str = "") -> str:
    if parts and parts[0].__class__ is not str:
        raise no_such_overload("join", parts)
    for part in parts:
        if part.__class__ is not str:
            raise CelRuntimeError(f"join: invalid input: {part}")
    length = len(separator) * len(parts) + sum(map(len, parts))  # type: ignore[arg-type]
    check_length(length, MAX_CHARACTERS)
    return separator.join(parts)  # type: ignore[arg-type]


def _contains(text: Any, part: Any) -> bool:
    if text.__class__ is not str or part.__class__ is not str:
        raise CelRuntimeError("no such overload")
    return part in text


def _starts_with(text: Any, part: Any) -> bool:
    if text.__class__ is not str or part.__class__ is not str:
        raise CelRuntimeError("no such overload")
    return text.startswith(part)


def _ends_with(text: Any, part: Any) -> bool:
    if text.__class__ is not str or part.__class__ is not str:
        raise CelRuntimeError("no such overload")
    return text.endswith(part)


def _matches(text: Any, pattern: Any) -> bool:
    if text.__class__ is not str or pattern.__class__ is not str:
        raise CelRuntimeError("no such overload")
    return compile_regex(pattern).search(text)


@_typed("find", str, str)
def _find(text: str, pattern: str) -> str:
    return compile_regex(pattern).find(text)


@_typed("findAll", str, str, int)
def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return compile_regex(pattern).find_all(text, limit)


@_typed("format", str, list)
def _format(text: str, args: list[object]) -> str:
    return format_text(text, args)


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {
    "charAt": _char_at,
    "lowerAscii": _lower,
    "upperAscii": _upper,
    "replace": _replace,
    "split": _split,
    "substring": _substring,
    "trim": _trim,
    "strings.quote": _quote,
    "join": _join,
    "contains": _contains,
    "startsWith": _starts_with,
    "endsWith": _ends_with,
    "matches": _matches,
    "find": _find,
    "findAll": _find_all,
    "format": _format,
}
