"""Reads tokens one after the other, and says in upstream's words which one should have stood where another stands."""

from typing import Final

from allocator.cel.syntax.lexer import Token
from allocator.cel.syntax.problems import SyntaxProblem

_OPERANDS: Final = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
_STARTS: Final = frozenset(
    [
        "[",
        "{",
        "(",
        ".",
        "-",
        "!",
        "true",
        "false",
        "null",
        "float",
        "int",
        "uint",
        "string",
        "bytes",
        "id",
    ]
)


class Cursor:
    """A place in a list of tokens.

    Attributes:
        at: index of the current token.
        token: the current token; the last one stays.
    """

    __slots__ = ("at", "token", "tokens")

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.token = tokens[0]

    def next(self) -> Token:
        """Take the current token."""
        token = self.token
        self.at += 1
        self.token = self.tokens[self.at] if self.at < len(self.tokens) else token
        return token

    def take(self, kind: str) -> bool:
        """Take the current token if it is of this kind."""
        if self.token.kind != kind:
            return False
        self.next()
        return True

    def expect(self, kind: str) -> Token:
        """Take a token of this kind.

        Raises:
            SyntaxProblem: another one stands here.
        """
        if self.token.kind != kind:
            raise self.missing(kind)
        return self.next()

    def missing(self, kind: str) -> SyntaxProblem:
        """The error for a token that should stand here."""
        token = self.token
        if kind in (")", "]") and token.kind == "end":
            return SyntaxProblem(token.pos, f"Syntax error: missing '{kind}' at '<EOF>'")
        if kind == "end":
            last = self.tokens[min(self.at + 1, len(self.tokens) - 1)].kind == "end"
            return self.problem("extraneous" if last else "mismatched", "<EOF>")
        if kind == "id":
            text = "." if token.kind == "end" else f".{token.text[:40]}"
            return SyntaxProblem(
                token.pos, f"Syntax error: no viable alternative at input '{text}'"
            )
        return self.problem("mismatched", f"'{kind}'")

    def problem(self, what: str, expected: str) -> SyntaxProblem:
        """The error for a token that is another one than expected."""
        text = self.token.text[:40]
        return SyntaxProblem(
            self.token.pos, f"Syntax error: {what} input '{text}' expecting {expected}"
        )

    def unexpected(self) -> SyntaxProblem:
        """The error for a token that starts no operand."""
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)].kind
        what = "extraneous" if self.token.kind != "end" and following in _STARTS else "mismatched"
        return self.problem(what, _OPERANDS)

    @property
    def behind(self) -> int:
        """Offset behind the token taken last."""
        token = self.tokens[self.at - 1]
        return token.pos + len(token.text)
