"""Splits an expression into tokens.

Source: the lexer rules of cel-go's grammar.
"""

import re
from typing import Final, NamedTuple

from allocator.cel.syntax.problems import SyntaxProblem


class Token(NamedTuple):
    """A token; `kind` is `id`, `escaped`, `int`, `uint`, `float`, `string`, `bytes`, `end`, or the operator itself."""

    kind: str
    text: str
    pos: int


_SINGLE: Final = r'"(?:[^"\\\n\r]|\\[^\n\r])*"|\'(?:[^\'\\\n\r]|\\[^\n\r])*\''
_TRIPLE: Final = r'"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\''
_RAW: Final = r'[rR]"""(?:.*?)"""|[rR]\'\'\'(?:.*?)\'\'\'|[rR]"[^"\n\r]*"|[rR]\'[^\'\n\r]*\''
_TOKEN: Final = re.compile(
    rf"""(?P<blank>[\t \r\n\f]+|//[^\n]*)
    |(?P<bytes>[bB](?:{_RAW}|{_TRIPLE}|{_SINGLE}))
    |(?P<string>{_RAW}|{_TRIPLE}|{_SINGLE})
    |(?P<id>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<escaped>`[A-Za-z0-9_.\-/\ ]+`)
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<op>==|!=|<=|>=|&&|\|\||[\[\]{{}}().,\-!?:+*/%<>])""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS: Final = frozenset({"in", "true", "false", "null"})


def tokenize(text: str) -> list[Token]:
    """Split the text; the last token is of kind `end`.

    Raises:
        SyntaxProblem: a character that starts no token.
    """
    tokens: list[Token] = []
    pos = 0
    match_at = _TOKEN.match
    while pos < len(text):
        match = match_at(text, pos)
        if match is None:
            raise SyntaxProblem(
                pos, f"Syntax error: token recognition error at: '{_unread(text, pos)}'"
            )
        kind = match.lastgroup or ""
        if kind != "blank":
            word = match.group()
            if kind == "op" or (kind == "id" and word in _KEYWORDS):
                kind = word
            tokens.append(Token(kind, word, pos))
        pos = match.end()
    tokens.append(Token("end", "<EOF>", pos))
    return tokens


def _unread(text: str, pos: int) -> str:
    """What a lexer has read when it finds that it is no token."""
    if text[pos] in "\"'`":
        return text[pos : pos + 40]
    return text[pos : pos + 2] if text[pos] in "=&|" else text[pos]
