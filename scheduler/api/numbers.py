"""Numbers with a fraction as they were written: `1.5` must reach a quantity as `1.5`, not as the nearest double."""

import re
from typing import Any, Final, Self

import msgspec

from allocator.model.hooks import enc_hook


class ExactNumber(float):
    """A float that remembers its text.

    Attributes:
        text: the number as it stood in the document.
    """

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Self:
        """Make one from JSON or YAML text."""
        number = super().__new__(cls, text)
        number.text = text
        return number


_JSON_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_TREE: Final = msgspec.json.Decoder(float_hook=ExactNumber)


def decode_tree(raw: bytes) -> Any:
    """Decode JSON to plain dicts and lists, with exact numbers.

    Raises:
        msgspec.DecodeError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    return _TREE.decode(raw)


def _encode_special(value: Any) -> Any:
    if isinstance(value, ExactNumber):
        # YAML also knows numbers such as `.5`, `+1.5` and `08.0`, which are no JSON.
        is_json = _JSON_NUMBER.fullmatch(value.text) is not None
        return msgspec.Raw(value.text.encode() if is_json else repr(float(value)).encode())
    return enc_hook(value)


def encode_tree(value: Any) -> bytes:
    """Encode plain data; exact numbers are written with the text they came in."""
    return msgspec.json.encode(value, enc_hook=_encode_special)
