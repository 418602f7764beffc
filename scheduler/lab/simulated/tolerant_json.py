"""JSON for the simulated controllers: they must not stop at what a tenant has written.

The API server takes opaque text that no decoder here takes (half a surrogate pair, thousands of nested objects), and hands
it out in lists and watches. Such text is left out on reading: the controllers do not look at it, and write claims by
edits of their text. What they make from templates that hold it goes without.
"""

import re
from typing import Any, Final

import msgspec
import orjson

from scheduler.api import rawjson

_OPAQUE: Final = re.compile(rb'"(?:parameters|data)"\s*:')


def loads(raw: bytes) -> Any:
    """Decode; opaque text becomes an empty object when it cannot be decoded.

    Raises:
        orjson.JSONDecodeError: it is no JSON besides.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return orjson.loads(_without_opaque(raw))


def dumps(value: Any) -> bytes:
    """Encode, also what is nested deeper than orjson goes."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return msgspec.json.encode(value)


def _without_opaque(raw: bytes) -> bytes:
    pieces, position = [], 0
    for found in _OPAQUE.finditer(raw):
        if found.end() < position:
            continue  # inside of a text that is left out
        value = rawjson.value_at(raw, found.end())
        pieces += [raw[position : value.start], b"{}"]
        position = value.end
    return b"".join([*pieces, raw[position:]])
