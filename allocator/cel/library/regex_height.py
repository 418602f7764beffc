"""How deep a regular expression nests: Go refuses one whose tree is higher than a thousand levels, RE2 does not.

Source: Go's regexp/syntax/parse.go (checkHeight).
"""

import re
from typing import Final, NamedTuple

_MAX_HEIGHT: Final = 1000
_MOST_LEVELS: Final = (
    4  # that one pair of parentheses adds: itself, a repetition, a sequence, alternatives
)
# What counts as one piece of a valid pattern: a quotation, an escape, a class, what opens a group, anything else.
_PIECE: Final = re.compile(
    r"\\Q.*?(?:\\E|$)|\\[pPx]\{[^}]*\}|\\x..|\\[pP].|\\."
    r"|\[\^?\]?(?:\[:[^\]]*:\]|\\.|[^\]\\])*\]"
    r"|\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:|[a-zA-Z-]+\)))?|[*+?]\??|\{[0-9]+(?:,[0-9]*)?\}\??|.",
    re.DOTALL,
)


class _Sequence(NamedTuple):
    """Pieces in a row, of which some may be rows themselves that Go has not made a piece of their own."""

    height: int
    pieces: int


class _Group:
    """A group being read.

    Attributes:
        adds: levels that the group itself adds: one if it captures.
        items: the pieces of the current alternative; literals next to each other are one.
        alternatives: the alternatives before it.
    """

    def __init__(self, adds: int) -> None:
        self.adds = adds
        self.items: list[_Sequence] = []
        self.alternatives: list[_Sequence] = []
        self.is_literal = False

    def add(self, sequence: _Sequence, *, is_literal: bool = False) -> None:
        """A further piece."""
        if not (is_literal and self.is_literal):
            self.items.append(sequence)
        self.is_literal = is_literal

    def repeat(self) -> None:
        """The last piece is repeated."""
        if self.items:
            self.items[-1] = _Sequence(_height_of(self.items[-1]) + 1, 1)
        self.is_literal = False

    def end_alternative(self) -> None:
        """An alternative ends."""
        highest = max((item.height for item in self.items), default=1)
        self.alternatives.append(_Sequence(highest, sum(item.pieces for item in self.items)))
        self.items = []
        self.is_literal = False

    def close(self) -> _Sequence:
        """The whole group."""
        self.end_alternative()
        if len(self.alternatives) > 1:
            return _Sequence(max(map(_height_of, self.alternatives)) + 1 + self.adds, 1)
        only = self.alternatives[0]
        return _Sequence(_height_of(only) + 1, 1) if self.adds else only


def _height_of(sequence: _Sequence) -> int:
    return sequence.height + (sequence.pieces > 1)


def is_too_high(pattern: str) -> bool:
    """Whether Go refuses a valid pattern."""
    return pattern.count("(") * _MOST_LEVELS > _MAX_HEIGHT and _height(pattern) > _MAX_HEIGHT


def _height(pattern: str) -> int:
    """How high the tree is."""
    groups = [_Group(0)]
    for match in _PIECE.finditer(pattern):
        piece = match.group()
        group = groups[-1]
        if piece[0] == "(":
            if not piece.endswith(")"):
                groups.append(_Group(0 if piece.endswith(":") else 1))
        elif piece == ")":
            inner = groups.pop().close()
            groups[-1].add(inner)
        elif piece == "|":
            group.end_alternative()
        elif piece[0] in "*+?" or (piece[0] == "{" and len(piece) > 1):
            group.repeat()
        else:
            group.add(_Sequence(1, 1), is_literal=len(piece) == 1)
    return _height_of(groups[0].close())
