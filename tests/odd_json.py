"""JSON that the API server takes and hands out again, and that a strict decoder refuses with all that is around it.

Found out with kube-apiserver 1.37.2: as opaque parameters and as `status.devices[].data`, each of these is stored and
served as it is.
"""

from typing import Any, Final

import orjson

ODD: Final = {
    "half a surrogate pair": b'{"x":"\\ud800"}',
    "the halves in the wrong order": b'{"x":"\\udc00\\ud800"}',
    "half a pair in a key": b'{"\\ud800":1}',
    "no UTF-8": b'{"x":"\xff"}',
    "a surrogate in UTF-8": b'{"x":"\xed\xa0\x80"}',
    "1,600 objects": b'{"a":' * 1600 + b"1" + b"}" * 1600,
    "4,000 lists": b'{"a":' + b"[" * 4000 + b"]" * 4000 + b"}",
}
UNUSUAL: Final = {
    "300 digits": b'{"n":' + b"1" * 300 + b"}",
    "a number below all": b'{"n":1e-400}',
    "NUL": b'{"x":"\\u0000"}',
    "a key twice": b'{"a":1,"a":2}',
    "numbers with their text": b'{"a":-0,"b":1E5,"c":1.50}',
    "no keys": b'{"":{}}',
}
TEXTS: Final = {**ODD, **UNUSUAL}


def with_text(obj: Any, text: bytes, mark: str = "@@") -> bytes:
    """An object as JSON, with a text in place of a mark."""
    return orjson.dumps(obj).replace(orjson.dumps(mark), text)


def config(mark: str = "@@", driver: str = "d.example.com") -> dict[str, Any]:
    """An entry of `config` with a mark as its parameters."""
    return {"opaque": {"driver": driver, "parameters": mark}}
