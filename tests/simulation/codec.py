"""JSON for the simulated controllers: what no decoder of Python takes is left out. They write claims byte for byte anyway."""

import re
from typing import Any, Final

import orjson

from scheduler.api import rawjson

_OPAQUE: Final = re.compile(rb'"(?:parameters|data)"\s*:')


class TolerantJson:
    """Stands in for the module `orjson`."""

    JSONDecodeError = orjson.JSONDecodeError
    dumps = staticmethod(orjson.dumps)

    @staticmethod
    def loads(raw: bytes) -> Any:
        """Decode; opaque text becomes an empty object when it cannot be decoded."""
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            return orjson.loads(_without_opaque(raw))


def _without_opaque(raw: bytes) -> bytes:
    pieces, position = [], 0
    for found in _OPAQUE.finditer(raw):
        if found.end() < position:
            continue  # inside of a text that is left out
        value = rawjson.value_at(raw, found.end())
        pieces += [raw[position : value.start], b"{}"]
        position = value.end
    return b"".join([*pieces, raw[position:]])
