r"""Text of drivers inside objects: kept as the bytes it was sent in, compared byte for byte, shown as Go's encoder does.

That is how runtime.RawExtension behaves. Go's decoder takes more than those of Python do (halves of surrogate pairs,
bytes that are no UTF-8, objects nested thousands deep); its encoder drops white space outside of texts and writes `<`,
`>`, `&`, U+2028 and U+2029 as `\u003c` and so on. Patches work on what is shown; strategic merge patch and server-side
apply even on the decoded value, and encode that again.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import orjson

from scheduler.api import rawjson

Path = Sequence[str | None]

MAX_BYTES: Final = 10 * 1024

_CONFIG: Path = ("devices", "config", None, "opaque", "parameters")
# Kind -> where such text is; None stands for every item of a list.
_PATHS: Final[dict[str, tuple[Path, ...]]] = {
    "ResourceClaim": (
        ("spec", *_CONFIG),
        ("status", "allocation", *_CONFIG),
        ("status", "devices", None, "data"),
    ),
    "ResourceClaimTemplate": (("spec", "spec", *_CONFIG),),
    "DeviceClass": (("spec", "config", None, "opaque", "parameters"),),
}
_MARKS: Final = (b'"parameters"', b'"data"')
_STAND_IN: Final = b'"\\u0000opaque:%d"'

_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING: Final = re.compile(_TEXT, re.DOTALL)
_SPACE_OR_STRING: Final = re.compile(rb"[ \t\r\n]++|" + _TEXT, re.DOTALL)
_SHOWN_ESCAPED: Final = re.compile(rb"[<>&]|\xe2\x80[\xa8\xa9]")
_ESCAPE: Final = re.compile(rb"\\(?:(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_INNERMOST: Final = re.compile(rb"\[[^\[\]{}]*+\]|\{[^\[\]{}]*+\}")
_FLOAT_OR_STRING: Final = re.compile(
    _TEXT + rb"|-?[0-9]++(?:\.[0-9]++(?:e[-+][0-9]++)?|e[-+][0-9]++)"
)
_LEAST_PLAIN, _LEAST_LARGE = 1e-6, 1e21


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is kept as text.

    Attributes:
        raw: JSON.
    """

    raw: bytes

    @property
    def shown(self) -> bytes:
        """The text as a client gets it as JSON."""
        compact = _SPACE_OR_STRING.sub(
            lambda found: found[0] if found[0][:1] == b'"' else b"", self.raw
        )
        return _SHOWN_ESCAPED.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), compact)


def decode(kind: str, text: bytes) -> Any:
    """Decode JSON of a kind, with opaque text left as it is.

    Raises:
        ValueError: it is no JSON.
    """
    if kind not in _PATHS or not any(mark in text for mark in _MARKS):
        return orjson.loads(text)
    found = sorted({span for path in _PATHS[kind] for span in _spans(text, path)})
    values = [text[start:end] for start, end in found]
    for value in values:
        if not is_json(value):
            raise ValueError("an opaque value is no JSON")
    pieces = []
    position = 0
    for index, (start, end) in enumerate(found):
        pieces += [text[position:start], _STAND_IN % index]
        position = end
    decoded = orjson.loads(b"".join([*pieces, text[position:]]))
    stand_ins = {orjson.loads(_STAND_IN % index): Opaque(v) for index, v in enumerate(values)}
    return changed(kind, decoded, lambda value: stand_ins.get(value, value))


def encode(obj: Any) -> bytes:
    """Encode as JSON, as a client gets it."""
    return orjson.dumps(obj, default=_fragment, option=orjson.OPT_PASSTHROUGH_DATACLASS)


def _fragment(value: Any) -> orjson.Fragment:
    if not isinstance(value, Opaque):
        raise TypeError(type(value))
    return orjson.Fragment(value.shown)


def changed(kind: str, obj: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of an object with every value at an opaque place changed; values of another shape stay as they are."""
    for path in _PATHS.get(kind, ()):
        obj = _changed(obj, path, 0, change)
    return obj


def as_shown(value: Any) -> Any:
    """What becomes of opaque text that goes through JSON: a change for `changed`."""
    return Opaque(value.shown) if isinstance(value, Opaque) else value


def as_decoded(value: Any) -> Any:
    """What becomes of opaque text that is decoded and encoded again: a change for `changed`."""
    return Opaque(_recoded(value.raw)) if isinstance(value, Opaque) else value


def as_patch(value: Any) -> Any:
    """What becomes of opaque text in a patch, which says by null what is to go: a change for `changed`."""
    if not isinstance(value, Opaque):
        return value
    return Opaque(_recoded(value.raw, _without_nulls))


def for_rules(value: Any) -> Any:
    """Something that the rules for opaque text judge in the same way: a change for `changed`."""
    if not isinstance(value, Opaque):
        return value
    if value.raw[:1] != b"{":
        return ""
    return {} if len(value.raw) <= MAX_BYTES else {"": " " * MAX_BYTES}


def is_json(text: bytes) -> bool:
    """Whether Go's decoder takes a text. What it takes and ours does not is replaced before ours looks at it."""
    try:
        text = _STRING.sub(_checked_string, text)
        while not _is_taken(text):
            flatter = _INNERMOST.sub(_checked, text)
            if flatter == text:
                return False
            text = flatter
    except orjson.JSONDecodeError:
        return False
    return True


def _is_taken(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _checked_string(found: re.Match[bytes]) -> bytes:
    """An empty string for one that is right: half of a pair, and what is no UTF-8, become U+FFFD in Go."""
    text = _ESCAPE.sub(
        lambda escape: b"\\ufffd" if escape[1] else escape[0],
        found[0].decode("utf-8", "replace").encode(),
    )
    orjson.loads(text)
    return b'""'


def _checked(found: re.Match[bytes]) -> bytes:
    """A number for an object or list that is right: so the levels become fewer."""
    orjson.loads(found[0])
    return b"0"


def _spans(text: bytes, path: Path, start: int = 0, depth: int = 0) -> Iterator[tuple[int, int]]:
    """Where the values at a path are, nulls aside.

    Raises:
        RawJsonError: the text is no JSON.
    """
    span = rawjson.value_at(text, start)
    if depth == len(path):
        if text[span.start : span.end] != b"null":
            yield span.start, span.end
        return
    step, opening = path[depth], text[span.start : span.start + 1]
    if step is None and opening == b"[":
        for item in rawjson.elements(text, span.start):
            yield from _spans(text, path, item.start, depth + 1)
    elif step is not None and opening == b"{":
        for member in rawjson.members(text, span.start):
            if member.key == step:
                yield from _spans(text, path, member.value.start, depth + 1)


def _changed(value: Any, path: Path, depth: int, change: Callable[[Any], Any]) -> Any:
    if depth == len(path):
        return value if value is None else change(value)
    step = path[depth]
    if step is None:
        if not isinstance(value, list):
            return value
        return [_changed(item, path, depth + 1, change) for item in value]
    if not isinstance(value, dict) or value.get(step) is None:
        return value
    return {**value, step: _changed(value[step], path, depth + 1, change)}


def _recoded(text: bytes, change: Callable[[Any], Any] = lambda value: value) -> bytes:
    """A text that Go has decoded and encoded: keys in order, numbers as int64 or double, texts without halves of pairs."""
    source = text.decode("utf-8", "replace")
    try:
        value = change(json.loads(source, parse_int=_go_int, strict=False))
        encoded = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        return Opaque(text).shown  # deeper than we can follow, and so not seen to be different
    whole = encoded.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    return Opaque(_FLOAT_OR_STRING.sub(_go_float, whole)).shown


def _go_int(text: str) -> int | float:
    number = int(text)
    return number if -(2**63) <= number < 2**63 else float(text)


def _go_float(found: re.Match[bytes]) -> bytes:
    """A double as Go writes it: an exponent only below 1e-6 and from 1e21 on."""
    if found[0][:1] == b'"':
        return found[0]
    number = float(found[0])
    if number and not _LEAST_PLAIN <= abs(number) < _LEAST_LARGE:
        mantissa, _, exponent = repr(number).partition("e")
        return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}".encode()
    return f"{Decimal(repr(number)):f}".removesuffix(".0").encode()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
