"""Expressions that are being read: operands and operators that wait for what follows, and how deep they nest."""

from typing import Final

from allocator.cel.syntax.lexer import Token
from allocator.cel.syntax.problems import SyntaxProblem
from allocator.cel.syntax.tree import Call, Node

MAX_DEPTH: Final = 250

_AND, _OR, _IN = "&&", "||", "in"
# Operator -> precedence; relations bind looser than sums, sums looser than products.
PRECEDENCE: Final = {
    "||": 1, "&&": 2,
    "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "in": 3,
    "+": 4, "-": 4,
    "*": 5, "/": 5, "%": 5,
}  # fmt: skip
RELATION: Final = 3


class Frame:
    """An expression being read: the whole text, or what stands in brackets, arguments or a branch of `?:`.

    Attributes:
        kind: what it is part of; decides which token may end it and what becomes of its value.
        pos: offset of the token that opened it.
        start: offset where the node it belongs to starts.
        target: receiver of a method call, operand of an index, condition or first branch of `?:`.
        name: function being called, or message being made.
        optional: whether the index or entry was written with `?`.
        operands: operands that no operator has taken yet.
        pending: binary operators that wait for their right operand.
        prefix: unary operators before the current operand, with how many.
        items: finished list elements, map keys and values, values of fields or arguments.
        fields: names of a message's fields, each with the offset of its colon.
        marks: indexes of items written with `?`.
    """

    __slots__ = (
        "fields", "items", "kind", "marks", "name", "operands", "optional", "pending", "pos", "prefix", "start", "target",
    )  # fmt: skip

    def __init__(self, kind: str, pos: int, start: int, target: Node | None = None) -> None:
        self.kind = kind
        self.pos = pos
        self.start = start
        self.target = target
        self.name = ""
        self.optional = False
        self.operands: list[Node] = []
        self.pending: list[Token] = []
        self.prefix: tuple[Token, int] | None = None
        self.items: list[Node] = []
        self.marks: set[int] = set()
        self.fields: list[tuple[str, int]] = []


def reduce(operands: list[Node], pending: list[Token]) -> None:
    """Join the two topmost operands."""
    token = pending.pop()
    right = operands.pop()
    left = operands.pop()
    kind = token.kind
    if kind in (_AND, _OR):
        name = f"_{kind}_"
        terms: tuple[Node, ...] = (left, right)
        # One flat node a chain: upstream balances it into a tree, which evaluates in the same order.
        if isinstance(left, Call) and left.function == name and left.start == left.args[0].start:
            terms = (*left.args, right)
        node: Node = Call(token.pos, name, None, terms)
        node.depth = max(
            left.depth, right.depth
        )  # not by its children: that would take the square of a long chain
    else:
        name = "@in" if kind == _IN else f"_{kind}_"
        node = combine(Call(token.pos, name, None, (left, right)), 1)
    node.start, node.end = left.start, right.end
    operands.append(node)


def combine(node: Node, levels: int) -> Node:
    """Set the nesting of a new node from its children."""
    depth = levels + max((child.depth for child in node.children()), default=0)
    if depth > MAX_DEPTH:
        raise SyntaxProblem(-1, "max recursion depth exceeded")
    node.depth = depth
    return node
