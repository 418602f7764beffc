"""Parses a CEL expression. `parse` is the only door.

A precedence-climbing parser of our own, not cel-python's lark grammar: it knows the whole syntax that upstream
enables (`.?f`, `[?i]`, `{?k: v}`, back-quoted names, trailing commas), counts nesting as upstream does (250 levels),
and takes 20 to 60 µs where the grammar takes 200 to 400.

Source: cel-go's CEL.g4 and the limits of its parser (parser.MaxRecursionDepth).
"""

from typing import Final

from allocator.cel.lexer import SyntaxProblem, Token, read_bytes, read_number, read_string, tokenize
from allocator.cel.macros import expand_global, expand_member
from allocator.cel.syntax import Ast, Call, Ident, ListNode, Literal, MapNode, Node, Select, Struct
from allocator.errors import CelCompileError

MAX_DEPTH: Final = 250
MAX_CODE_POINTS: Final = 100_000

_AND, _OR, _IN = "&&", "||", "in"
# Operator -> precedence; relations bind looser than sums, sums looser than products.
_PRECEDENCE: Final = {
    "||": 1, "&&": 2,
    "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "in": 3,
    "+": 4, "-": 4,
    "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_RELATION: Final = 3
_RESERVED: Final = frozenset(
    "as break const continue else for function if import let loop package namespace return var void while".split()
)
_CONSTANTS: Final = {"true": True, "false": False, "null": None}


def parse(text: str) -> Ast:
    """Parse an expression and expand its macros.

    Raises:
        CelCompileError: it is no CEL expression, or nests deeper than 250 levels.
    """
    if len(text) > MAX_CODE_POINTS:
        raise CelCompileError(
            "compilation failed: ERROR: <input>:-1:0: expression code point size exceeds limit: "
            f"size: {len(text)}, limit {MAX_CODE_POINTS}"
        )
    try:
        return Ast(text, _Parser(tokenize(text)).whole())
    except SyntaxProblem as problem:
        raise CelCompileError(
            "compilation failed: " + describe(text, problem.pos, problem.message)
        ) from None
    except RecursionError:
        raise CelCompileError(
            f"compilation failed: expression recursion limit exceeded: {MAX_DEPTH}"
        ) from None


def describe(text: str, pos: int, message: str) -> str:
    """Format an error as upstream does: place, message, the source line and a pointer."""
    before = text[:pos]
    line = before.count("\n")
    column = pos - (before.rfind("\n") + 1)
    source = text.split("\n")[line] if line <= text.count("\n") else ""
    return f"ERROR: <input>:{line + 1}:{column + 1}: {message}\n | {source}\n | {'.' * column}^"


class _Parser:
    """State of one parse.

    Attributes:
        exprs: open expressions, that is brackets and arguments.
        relations: open comparisons.
        sums: open arithmetic operations. Each of the three may reach MAX_DEPTH.
    """

    __slots__ = ("at", "exprs", "relations", "sums", "token", "tokens")

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.token = tokens[0]
        self.exprs = 0
        self.relations = 0
        self.sums = 0

    def whole(self) -> Node:
        """Parse the text to its end."""
        node = self.expression()
        if self.token.kind != "end":
            raise self.unexpected()
        return node

    def next(self) -> Token:
        """Take the current token."""
        token = self.token
        self.at += 1
        self.token = self.tokens[self.at] if self.at < len(self.tokens) else token
        return token

    def expect(self, kind: str) -> Token:
        """Take a token of this kind."""
        if self.token.kind != kind:
            raise self.unexpected(f", expecting '{kind}'")
        return self.next()

    def unexpected(self, hint: str = "") -> SyntaxProblem:
        """The error for a token that cannot stand here."""
        return SyntaxProblem(self.token.pos, f"Syntax error: mismatched input '{self.token.text[:40]}'{hint}")

    def deeper(self) -> None:
        """Open an expression."""
        self.exprs += 1
        self.relations += 1
        self.sums += 1
        if max(self.exprs, self.relations, self.sums) > MAX_DEPTH:
            raise SyntaxProblem(0, f"expression recursion limit exceeded: {MAX_DEPTH}")

    def expression(self) -> Node:
        """`or-chain` or `or-chain ? or-chain : expression`."""
        self.deeper()
        node = self.chain()
        if self.token.kind == "?":
            pos = self.next().pos
            then = self.chain()
            self.expect(":")
            # The grammar has left the comparison here, and only opens another expression.
            self.relations -= 1
            self.sums -= 1
            other = self.expression()
            self.relations += 1
            self.sums += 1
            start = node.start
            node = _combine(Call(pos, "_?_:_", None, (node, then, other)), 1)
            node.start = start
            node.end = other.end
        self.exprs -= 1
        self.relations -= 1
        self.sums -= 1
        return node

    def chain(self) -> Node:
        """Binary operators, by an explicit stack: one frame however long or nested the chain is."""
        operands: list[Node] = []
        pending: list[Token] = []
        while True:
            relations = sum(1 for token in pending if _PRECEDENCE[token.kind] == _RELATION)
            sums = sum(1 for token in pending if _PRECEDENCE[token.kind] > _RELATION)
            self.relations += relations
            self.sums += sums
            operands.append(self.operand())
            self.relations -= relations
            self.sums -= sums
            precedence = _PRECEDENCE.get(self.token.kind, 0)
            while pending and _PRECEDENCE[pending[-1].kind] >= precedence:
                self.reduce(operands, pending)
            if not precedence:
                return operands[0]
            pending.append(self.next())

    @staticmethod
    def reduce(operands: list[Node], pending: list[Token]) -> None:
        """Join the two topmost operands."""
        token = pending.pop()
        right = operands.pop()
        left = operands.pop()
        kind = token.kind
        if kind in (_AND, _OR):
            # One flat node a chain: upstream balances it into a tree, which evaluates in the same order.
            name = f"_{kind}_"
            bare = left.__class__ is Call and left.function == name and left.end == left.args[-1].end  # type: ignore[attr-defined]
            if bare and left.start == left.args[0].start:  # type: ignore[attr-defined]
                terms = (*left.args, right)  # type: ignore[attr-defined]
            else:
                terms = (left, right)
            node: Node = _combine(Call(token.pos, name, None, terms), 0)
        else:
            name = "@in" if kind == _IN else f"_{kind}_"
            node = _combine(Call(token.pos, name, None, (left, right)), 1)
        node.start = left.start
        node.end = right.end
        operands.append(node)

    def operand(self) -> Node:
        """Unary operators, a primary expression and what follows it."""
        operator: Token | None = None
        count = 0
        if self.token.kind in ("!", "-"):
            operator = self.token
            kind = operator.kind
            number = self.tokens[self.at + 1].kind in ("int", "float")
            if kind == "!" or not number:
                while self.token.kind == kind:
                    self.next()
                    count += 1
        node = self.postfix(self.primary())
        if operator is not None and count % 2:
            name = "!_" if operator.kind == "!" else "-_"
            end = node.end
            node = _combine(Call(operator.pos, name, None, (node,)), 0)
            node.end = end
        if operator is not None:
            node.start = operator.pos
        return node

    def postfix(self, node: Node) -> Node:
        """Selections, method calls and indexes."""
        start = node.start
        while True:
            kind = self.token.kind
            if kind == ".":
                node = self.member(node)
            elif kind == "[":
                pos = self.next().pos
                optional = self.token.kind == "?"
                if optional:
                    self.next()
                index = self.expression()
                self.expect("]")
                node = _combine(Call(pos, "_[?_]" if optional else "_[_]", None, (node, index)), 1)
            else:
                return node
            node.start = start
            node.end = self.behind()

    def behind(self) -> int:
        """Offset behind the token taken last."""
        token = self.tokens[self.at - 1]
        return token.pos + len(token.text)

    def member(self, node: Node) -> Node:
        """`.name`, `.?name` or `.name(arguments)`."""
        dot = self.next()
        optional = self.token.kind == "?"
        if optional:
            self.next()
        name = self.token
        if name.kind == "escaped":
            self.next()
            field = name.text[1:-1]
        else:
            field = self.expect("id").text
            if self.token.kind == "(" and not optional:
                pos = self.next().pos
                args = self.arguments(")")
                call = _combine(Call(pos, field, node, args), 1)
                return expand_member(call) or call
        if optional:
            literal = Literal(name.pos, field)
            literal.end = self.behind()
            return _combine(Call(dot.pos, "_?._", None, (node, literal)), 1)
        return _combine(Select(dot.pos, node, field), 1)

    def arguments(self, close: str) -> tuple[Node, ...]:
        """Expressions up to the closing token; no trailing comma."""
        args: list[Node] = []
        if self.token.kind != close:
            args.append(self.expression())
            while self.token.kind == ",":
                self.next()
                args.append(self.expression())
        self.expect(close)
        return tuple(args)

    def primary(self) -> Node:
        """A literal, a name, a call, brackets, a list or a map."""
        token = self.token
        kind = token.kind
        if kind == "(":
            self.next()
            node = self.expression()
            self.expect(")")
            node.start, node.end = token.pos, self.behind()
            return node
        if kind in ("id", "."):
            node = self.name()
        elif kind == "[":
            self.next()
            node = self.list_literal(token.pos)
        elif kind == "{":
            self.next()
            node = self.map_literal(token.pos)
        else:
            node = self.literal()
        node.start, node.end = token.pos, self.behind()
        return node

    def literal(self) -> Node:
        """A constant."""
        token = self.next()
        kind = token.kind
        if kind == "string":
            return Literal(token.pos, read_string(token))
        if kind in ("int", "uint", "float"):
            return Literal(token.pos, read_number(token, negative=False))
        if kind in _CONSTANTS:
            return Literal(token.pos, _CONSTANTS[kind])
        if kind == "bytes":
            return Literal(token.pos, read_bytes(token))
        if kind == "-" and self.token.kind in ("int", "float"):
            return Literal(token.pos, read_number(self.next(), negative=True))
        self.at -= 1
        self.token = token
        raise self.unexpected()

    def name(self) -> Node:
        """A name, a global call or a message literal."""
        prefix = ""
        if self.token.kind == ".":
            self.next()
            prefix = "."
        token = self.expect("id")
        if self.is_message():
            return self.message(prefix + token.text, token.pos)
        if token.text in _RESERVED:
            raise SyntaxProblem(token.pos, f"reserved identifier: {token.text}")
        if self.token.kind != "(":
            return Ident(token.pos, prefix + token.text)
        pos = self.next().pos
        args = self.arguments(")")
        call = _combine(Call(pos, prefix + token.text, None, args), 0)
        return expand_global(call) or call

    def is_message(self) -> bool:
        """Whether names joined by dots and an opening brace follow."""
        at = self.at
        tokens = self.tokens
        while tokens[at].kind == "." and tokens[at + 1].kind == "id":
            at += 2
        return tokens[at].kind == "{"

    def message(self, name: str, pos: int) -> Node:
        """`Name{field: value}`."""
        while self.token.kind == ".":
            self.next()
            name += "." + self.next().text
        self.expect("{")
        fields: list[tuple[str, Node, bool]] = []
        while self.token.kind not in ("}", ","):
            optional = self.token.kind == "?"
            if optional:
                self.next()
            field = self.next()
            if field.kind not in ("id", "escaped"):
                raise self.unexpected()
            self.expect(":")
            fields.append((field.text.strip("`"), self.expression(), optional))
            if self.token.kind != ",":
                break
            self.next()
            if self.token.kind == "}":
                break
        else:
            if self.token.kind == ",":
                self.next()
        self.expect("}")
        return _combine(Struct(pos, name, tuple(fields)), 0)

    def list_literal(self, pos: int) -> Node:
        """What follows `[`."""
        elements: list[Node] = []
        optionals: list[int] = []
        if self.token.kind == ",":
            self.next()
        else:
            while self.token.kind != "]":
                if self.token.kind == "?":
                    self.next()
                    optionals.append(len(elements))
                elements.append(self.expression())
                if self.token.kind != ",":
                    break
                self.next()
        self.expect("]")
        return _combine(ListNode(pos, tuple(elements), frozenset(optionals)), 0)

    def map_literal(self, pos: int) -> Node:
        """What follows `{`."""
        entries: list[tuple[Node, Node, bool]] = []
        if self.token.kind == ",":
            self.next()
        else:
            while self.token.kind != "}":
                optional = self.token.kind == "?"
                if optional:
                    self.next()
                key = self.expression()
                self.expect(":")
                entries.append((key, self.expression(), optional))
                if self.token.kind != ",":
                    break
                self.next()
        self.expect("}")
        return _combine(MapNode(pos, tuple(entries)), 0)


def _combine(node: Node, levels: int) -> Node:
    """Set the nesting of a new node from its children."""
    depth = levels + max((child.depth for child in node.children()), default=0)
    if depth > MAX_DEPTH:
        raise SyntaxProblem(node.pos, "max recursion depth exceeded")
    node.depth = depth
    return node
