"""Values of number, string and bytes tokens.

Source: the literals of cel-go's grammar, and its rules for escapes.
"""

import math
import re
from typing import Final

from allocator.cel.syntax.lexer import Token
from allocator.cel.syntax.problems import SyntaxProblem
from allocator.cel.values.scalars import MAX_INT, MAX_UINT, UInt

_MOST_DIGITS: Final = 20  # of an integer of 64 bits


def read_number(token: Token, *, negative: bool) -> object:
    """The value of a number token.

    Raises:
        SyntaxProblem: it is out of range.
    """
    text = token.text
    if token.kind == "float":
        number = float(text)
        if math.isinf(number):
            raise SyntaxProblem(token.pos, "invalid double literal")
        return -number if negative else number
    digits = text[:-1] if token.kind == "uint" else text
    base = 16 if digits.startswith("0x") else 10
    significant = digits.removeprefix("0x").lstrip("0")
    if len(significant) > _MOST_DIGITS:
        raise SyntaxProblem(token.pos, f"invalid {token.kind} literal")
    whole = int(significant or "0", base)
    if token.kind == "uint":
        if whole > MAX_UINT:
            raise SyntaxProblem(token.pos, "invalid uint literal")
        return UInt(whole)
    if negative:
        whole = -whole
    if not -MAX_INT - 1 <= whole <= MAX_INT:
        raise SyntaxProblem(token.pos, "invalid int literal")
    return whole


def read_string(token: Token) -> str:
    """The value of a string token."""
    body, raw = _body(token.text)
    if raw or "\\" not in body:
        return body
    return _ESCAPE.sub(lambda match: _character(match.group(1), token.pos), body)


def read_bytes(token: Token) -> bytes:
    """The value of a bytes token."""
    body, raw = _body(token.text[1:])
    if raw or "\\" not in body:
        return body.encode("utf-8", "surrogatepass")
    parts: list[bytes] = []
    last = 0
    for match in _ESCAPE.finditer(body):
        parts.append(body[last : match.start()].encode("utf-8", "surrogatepass"))
        escape = match.group(1)
        if escape[0] in "uU":
            raise SyntaxProblem(token.pos, "unable to unescape string")
        character = ord(_character(escape, token.pos))
        parts.append(bytes((character & 0xFF,)))
        last = match.end()
    parts.append(body[last:].encode("utf-8", "surrogatepass"))
    return b"".join(parts)


def _body(text: str) -> tuple[str, bool]:
    """Strip prefix and quotes; newlines become line feeds."""
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[width:-width], raw


_ESCAPE: Final = re.compile(
    r"\\(x[0-9a-fA-F]{2}|X[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)",
    re.DOTALL,
)
_SIMPLE: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip


def _character(escape: str, pos: int) -> str:
    simple = _SIMPLE.get(escape)
    if simple is not None:
        return simple
    if len(escape) == 1:
        raise SyntaxProblem(pos, "unable to unescape string")
    code = int(escape, 8) if escape[0] in "0123" else int(escape[1:], 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise SyntaxProblem(pos, "invalid unicode code point")
    return chr(code)
