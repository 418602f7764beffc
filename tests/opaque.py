"""Texts that somebody may put into opaque parameters: the API server takes and keeps each of them, byte for byte."""

import re
from typing import Final

DRIVER: Final = "gpu.example.com"

# As Go's encoder writes them: what a client reads is what is stored, also after decoding and encoding again.
PLAIN: Final = {
    "plain": b'{"a":1}',
    "escaped &": b'{"url":"http://x/?a=1\\u0026b=2"}',
    "e acute": '{"s":"é"}'.encode(),
    "nulls": b'{"a":null,"l":[null,1]}',
    "empty": b"{}",
    "delete": b'{"x":"\x7f"}',
    "typed": b'{"apiVersion":"v1","kind":"X"}',
    "300 deep": b'{"a":' * 300 + b"1" + b"}" * 300,
}
# What a client reads is what is stored, but decoding it and encoding it again makes another text.
UNUSUAL: Final = {
    "1.50": b'{"f":1.50}',
    "1e3": b'{"f":1e3}',
    "-0": b'{"f":-0}',
    "30 digits": b'{"n":123456789012345678901234567890}',
    "precise": b'{"f":0.1234567890123456789}',
    "escaped e acute": b'{"s":"\\u00e9"}',
    "escaped slash": b'{"s":"a\\/b"}',
    "twice": b'{"a":1,"a":2}',
    "out of order": b'{"b":1,"a":2}',
    "no UTF-8": b'{"x":"\xff"}',
}
# As UNUSUAL, and no decoder of ours takes them.
UNDECODABLE: Final = {
    "half a pair": b'{"x":"\\ud800"}',
    "1600 deep": b'{"a":' * 1600 + b"1" + b"}" * 1600,
}
# What a client reads are other bytes than those that are stored.
HIDDEN: Final = {
    "spaces": b'{"a": 1, "b": [2, 3]}',
    "lines": b'{\n\t"a":1\r\n}',
    "bare &": b'{"url":"http://x/?a=1&b=2"}',
    "bare <>": b'{"e":"a<b>c"}',
    "U+2028": '{"s":"\u2028\u2029"}'.encode(),
    "spaces inside a text": b'{"a": "b  c \\" d"}',
}
TEXTS: Final = {**PLAIN, **UNUSUAL, **UNDECODABLE, **HIDDEN}


def claim_body(name: str, parameters: bytes) -> bytes:
    """A claim for one device, with a configuration."""
    return (
        b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"%b"},"spec":{"devices":{'
        b'"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":1}}],'
        b'"config":[{"opaque":{"driver":"%b","parameters":%b}}]}}}'
    ) % (name.encode(), DRIVER.encode(), parameters)


def allocation(parameters: bytes, device: str = "gpu-0", source: str = "FromClass") -> bytes:
    """An allocation with a configuration."""
    return (
        b'{"devices":{"results":[{"request":"gpu","driver":"%b","pool":"node-1","device":"%b"}],'
        b'"config":[{"source":"%b","opaque":{"driver":"%b","parameters":%b}}]}}'
    ) % (DRIVER.encode(), device.encode(), source.encode(), DRIVER.encode(), parameters)


def shown(text: bytes) -> bytes:
    """A text as a client reads it."""
    if text not in HIDDEN.values():
        return text
    compact = re.sub(
        rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', lambda found: found[1] or b"", text, flags=re.DOTALL
    )
    for bare in ("&", "<", ">", "\u2028", "\u2029"):
        compact = compact.replace(bare.encode(), b"\\u%04x" % ord(bare))
    return compact
