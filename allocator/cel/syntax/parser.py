"""Parses a CEL expression. `parse` is the only door.

An operator-precedence parser of our own, not cel-python's lark grammar: it knows the whole syntax that upstream
enables (`.?f`, `[?i]`, `{?k: v}`, back-quoted names, trailing commas), counts nesting as upstream does (250 levels)
and is an order of magnitude faster to load and to run.

Source: cel-go's CEL.g4 and the limits of its parser (parser.MaxRecursionDepth).
"""

from collections.abc import Callable
from typing import Final

from allocator.cel.syntax.cursor import Cursor
from allocator.cel.syntax.frames import MAX_DEPTH, PRECEDENCE, RELATION, Frame, combine, reduce
from allocator.cel.syntax.lexer import Token, tokenize
from allocator.cel.syntax.literals import read_bytes, read_number, read_string
from allocator.cel.syntax.macros import expand_global, expand_member
from allocator.cel.syntax.problems import SyntaxProblem, describe
from allocator.cel.syntax.tree import (
    Ast,
    Call,
    Field,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Struct,
)
from allocator.errors import CelCompileError

MAX_CODE_POINTS: Final = 100_000

_RESERVED: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
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


class _Parser(Cursor):
    """One parse, with an explicit stack: depth costs no Python frames.

    Attributes:
        exprs: open expressions, that is brackets, arguments and branches.
        relations: open comparisons.
        sums: open arithmetic operations. Each of the three may reach MAX_DEPTH.
    """

    __slots__ = ("exprs", "frame", "relations", "root", "stack", "sums")

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self.exprs = self.relations = self.sums = 1
        self.frame = Frame("whole", 0, 0)
        self.stack: list[Frame] = []
        self.root: Node | None = None

    def whole(self) -> Node:
        """Parse the text to its end."""
        while self.root is None:
            node = self.operand()
            while node is not None:
                node = self.behind_operand(node)
        return self.root

    # --- frames

    def open(self, frame: Frame) -> None:
        """Start reading an inner expression; its operators nest in the pending ones of the outer."""
        relations, sums = self.pending_depth(self.frame)
        self.stack.append(self.frame)
        self.frame = frame
        self.exprs += 1
        self.relations += 1 + relations
        self.sums += 1 + sums
        self.check_depth(self.exprs, self.relations, self.sums)

    def check_depth(self, *depths: int) -> None:
        """Refuse what nests too deeply.

        Raises:
            SyntaxProblem: it does.
        """
        if max(depths) > MAX_DEPTH:
            raise SyntaxProblem(-1, f"expression recursion limit exceeded: {MAX_DEPTH}")

    def close(self) -> Frame:
        """Leave the inner expression."""
        frame = self.frame
        self.frame = self.stack.pop()
        relations, sums = self.pending_depth(self.frame)
        self.exprs -= 1
        self.relations -= 1 + relations
        self.sums -= 1 + sums
        return frame

    @staticmethod
    def pending_depth(frame: Frame) -> tuple[int, int]:
        """Open comparisons and arithmetic operations of one frame."""
        relations = sums = 0
        for token in frame.pending:
            precedence = PRECEDENCE[token.kind]
            relations += precedence == RELATION
            sums += precedence > RELATION
        return relations, sums

    # --- operands

    def operand(self) -> Node | None:
        """Read one operand's first part, or open the brackets it starts with (None)."""
        token = self.token
        kind = token.kind
        if kind in ("!", "-") and not self.signed_number():
            self.unary(kind)
            token = self.token
            kind = token.kind
        if kind == "(":
            self.next()
            self.open(Frame("group", token.pos, token.pos))
            return None
        if kind == "[" or kind == "{":
            self.next()
            frame = Frame("list" if kind == "[" else "key", token.pos, token.pos)
            close = "]" if kind == "[" else "}"
            lone_comma = self.token.kind == "," and self.tokens[self.at + 1].kind == close
            if lone_comma:
                self.next()
            if self.take(close):
                empty: Node = ListNode(token.pos, ()) if kind == "[" else MapNode(token.pos, ())
                return self.placed(empty, token.pos)
            frame.optional = self.take("?")
            self.open(frame)
            return None
        if kind in ("id", "."):
            return self.name()
        return self.placed(self.literal(), token.pos)

    def signed_number(self) -> bool:
        """Whether the current token is a minus that belongs to a number."""
        return self.token.kind == "-" and self.tokens[self.at + 1].kind in ("int", "float")

    def unary(self, kind: str) -> None:
        """Take a run of equal unary operators; after `!`, a signed number may follow."""
        first = self.token
        count = 0
        while self.token.kind == kind:
            if kind == "!" or count or not self.signed_number():
                self.next()
                count += 1
        self.frame.prefix = (first, count)
        if self.token.kind in ("!", "-") and not self.signed_number():
            raise self.unexpected()

    def placed(self, node: Node, start: int) -> Node:
        """Set where a node starts and, by the last token, ends."""
        node.start, node.end = start, self.behind
        return node

    def literal(self) -> Node:
        """A constant."""
        token = self.token
        kind = token.kind
        if kind == "-" and self.signed_number():
            self.next()
            return Literal(token.pos, read_number(self.next(), negative=True))
        if kind == "string":
            value: object = read_string(token)
        elif kind in ("int", "uint", "float"):
            value = read_number(token, negative=False)
        elif kind in _CONSTANTS:
            value = _CONSTANTS[kind]
        elif kind == "bytes":
            value = read_bytes(token)
        else:
            raise self.unexpected()
        self.next()
        return Literal(token.pos, value)

    def name(self) -> Node | None:
        """A name, or the start of a global call or message literal (None)."""
        start = self.token.pos
        prefix = "." if self.take(".") else ""
        token = self.expect("id")
        if self.is_message():
            return self.message(prefix + token.text, start)
        if token.text in _RESERVED:
            raise SyntaxProblem(token.pos, f"reserved identifier: {token.text}")
        if self.token.kind != "(":
            return self.placed(Ident(token.pos, prefix + token.text), start)
        return self.call(prefix + token.text, None, start)

    def is_message(self) -> bool:
        """Whether names joined by dots and an opening brace follow."""
        at = self.at
        tokens = self.tokens
        while tokens[at].kind == "." and tokens[at + 1].kind == "id":
            at += 2
        return tokens[at].kind == "{"

    def message(self, name: str, start: int) -> Node | None:
        """A message literal behind the first part of its name, or its first field's value to be read (None)."""
        while self.take("."):
            name += "." + self.next().text
        frame = Frame("field", self.next().pos, start)
        frame.name = name
        if self.token.kind == "," and self.tokens[self.at + 1].kind == "}":
            self.next()
        if self.take("}"):
            return self.placed(Struct(frame.pos, name, ()), start)
        self.open(frame)
        self.field()
        return None

    def field(self) -> None:
        """The name of a field and the colon behind it."""
        self.frame.optional = self.take("?")
        name = self.field_name()
        self.frame.fields.append((name, self.expect(":").pos))

    def field_name(self) -> str:
        """A name behind a dot or in a message, perhaps between back quotes."""
        if self.token.kind == "escaped":
            return self.next().text[1:-1]
        return self.expect("id").text

    def call(self, function: str, target: Node | None, start: int) -> Node | None:
        """What follows a function's name: no arguments, or the first of them to be read (None)."""
        frame = Frame("args", self.next().pos, start, target)
        frame.name = function
        if self.take(")"):
            return self.finish_call(frame)
        self.open(frame)
        return None

    def finish_call(self, frame: Frame) -> Node:
        """Make the call or expand the macro."""
        call = Call(frame.pos, frame.name, frame.target, tuple(frame.items))
        self.placed(combine(call, 0 if frame.target is None else 1), frame.start)
        expanded = expand_global(call) if frame.target is None else expand_member(call)
        return call if expanded is None else expanded

    # --- what follows an operand

    def behind_operand(self, node: Node) -> Node | None:
        """Selections, indexes and operators; None when another operand has to be read."""
        kind = self.token.kind
        if kind == ".":
            return self.member(node)
        if kind == "[":
            frame = Frame("index", self.next().pos, node.start, node)
            frame.optional = self.take("?")
            self.open(frame)
            return None
        frame = self.frame
        if frame.prefix is not None:
            node = self.apply_prefix(node, frame.prefix)
            frame.prefix = None
        frame.operands.append(node)
        precedence = PRECEDENCE.get(kind, 0)
        while frame.pending and PRECEDENCE[frame.pending[-1].kind] >= precedence:
            reduce(frame.operands, frame.pending)
        if precedence:
            frame.pending.append(self.next())
            relations, sums = self.pending_depth(frame)
            self.check_depth(self.relations + relations, self.sums + sums)
            return None
        return self.finish(frame.operands.pop())

    def apply_prefix(self, node: Node, prefix: tuple[Token, int]) -> Node:
        """An even number of operators is none."""
        token, count = prefix
        if count % 2:
            end = node.end
            node = combine(Call(token.pos, "!_" if token.kind == "!" else "-_", None, (node,)), 0)
            node.end = end
        node.start = token.pos
        return node

    def member(self, node: Node) -> Node | None:
        """`.name`, `.?name`, or the start of a method call (None)."""
        dot = self.next()
        optional = self.take("?")
        name = self.token
        field = self.field_name()
        if self.token.kind == "(" and not optional and name.kind == "id":
            return self.call(field, node, node.start)
        if not optional:
            return self.placed(combine(Select(dot.pos, node, field), 1), node.start)
        literal = self.placed(Literal(name.pos, field), name.pos)
        return self.placed(combine(Call(dot.pos, "_?._", None, (node, literal)), 1), node.start)

    # --- ends of expressions

    def finish(self, node: Node) -> Node | None:
        """A whole expression has been read: give it to the frame it belongs to.

        Returns:
            The node that the frame became, or None when the frame goes on with another expression.
        """
        if self.token.kind == "?" and self.frame.kind != "then":
            # The condition is complete; branches are read in a frame of their own.
            self.open_branch(node)
            return None
        return _ENDS[self.frame.kind](self, node)

    def finish_whole(self, node: Node) -> None:
        """The text has been read."""
        self.expect("end")
        self.root = node

    def finish_then(self, node: Node) -> None:
        """The first branch of `?:`."""
        self.expect(":")
        self.frame.kind = "else"
        self.exprs += 1
        self.check_depth(self.exprs)
        self.frame.items.append(node)

    def finish_group(self, node: Node) -> Node:
        """What stood in parentheses."""
        self.expect(")")
        return self.placed(node, self.close().start)

    def finish_key(self, node: Node) -> None:
        """One key of a map."""
        self.expect(":")
        self.frame.items.append(node)
        self.frame.kind = "value"

    def open_branch(self, condition: Node) -> None:
        """Read the branches of `condition ? a : b`."""
        pos = self.next().pos
        self.open(Frame("then", pos, condition.start, condition))
        # The grammar is still in the same expression, and has left the condition's comparison and sum.
        self.exprs -= 1
        self.relations -= 1
        self.sums -= 1

    def finish_conditional(self, other: Node) -> Node | None:
        """Both branches have been read, and so has the expression that this is."""
        self.relations += 1
        self.sums += 1
        frame = self.close()
        condition = frame.target
        if condition is None:
            raise AssertionError("a branch without condition")
        node = combine(Call(frame.pos, "_?_:_", None, (condition, frame.items[0], other)), 1)
        node.start, node.end = frame.start, other.end
        return self.finish(node)

    def finish_index(self, index: Node) -> Node:
        """`operand[index]` or `operand[?index]`."""
        self.expect("]")
        frame = self.close()
        if frame.target is None:
            raise AssertionError("an index without operand")
        function = "_[?_]" if frame.optional else "_[_]"
        return self.placed(
            combine(Call(frame.pos, function, None, (frame.target, index)), 1), frame.start
        )

    def finish_element(self, element: Node) -> Node | None:
        """One element of a list."""
        frame = self.frame
        if frame.optional:
            frame.marks.add(len(frame.items))
        frame.items.append(element)
        if not self.ends("]"):
            frame.optional = self.take("?")
            return None
        self.close()
        return self.placed(
            combine(ListNode(frame.pos, tuple(frame.items), frozenset(frame.marks)), 0),
            frame.start,
        )

    def finish_entry(self, value: Node) -> Node | None:
        """One value of a map."""
        frame = self.frame
        if frame.optional:
            frame.marks.add(len(frame.items))
        frame.items.append(value)
        if not self.ends("}"):
            frame.optional = self.take("?")
            frame.kind = "key"
            return None
        self.close()
        items = frame.items
        entries = tuple(
            (items[i], items[i + 1], i + 1 in frame.marks) for i in range(0, len(items), 2)
        )
        return self.placed(combine(MapNode(frame.pos, entries), 0), frame.start)

    def finish_field(self, value: Node) -> Node | None:
        """The value of one field of a message."""
        frame = self.frame
        if frame.optional:
            frame.marks.add(len(frame.items))
        frame.items.append(value)
        if not self.ends("}"):
            self.field()
            return None
        self.close()
        fields = tuple(
            Field(pos, name, item, at in frame.marks)
            for at, ((name, pos), item) in enumerate(zip(frame.fields, frame.items, strict=True))
        )
        return self.placed(combine(Struct(frame.pos, frame.name, fields), 0), frame.start)

    def ends(self, close: str) -> bool:
        """Whether the bracket closes here; a trailing comma is taken."""
        if self.take(close):
            return True
        if not self.take(","):
            raise self.problem("mismatched", f"{{'{close}', ','}}")
        return self.take(close)

    def finish_argument(self, argument: Node) -> Node | None:
        """One argument of a call; no trailing comma."""
        frame = self.frame
        frame.items.append(argument)
        if self.take(","):
            return None
        self.expect(")")
        self.close()
        return self.finish_call(frame)


_ENDS: Final[dict[str, Callable[[_Parser, Node], Node | None]]] = {
    "whole": _Parser.finish_whole,
    "then": _Parser.finish_then,
    "else": _Parser.finish_conditional,
    "group": _Parser.finish_group,
    "index": _Parser.finish_index,
    "list": _Parser.finish_element,
    "key": _Parser.finish_key,
    "value": _Parser.finish_entry,
    "field": _Parser.finish_field,
    "args": _Parser.finish_argument,
}
