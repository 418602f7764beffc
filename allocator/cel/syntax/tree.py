"""The syntax tree: what the parser makes, the checker annotates and the compiler reads.

Macros are expanded to `Comprehension` nodes as upstream does, because types and costs depend on the expansion; the
node keeps the user's own sub-expressions in `parts`, from which the compiler makes loops.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from allocator.cel.types import Type


class Node:
    """An expression.

    Attributes:
        pos: offset in the source that error messages point at (an operator, a parenthesis).
        start: offset of the first character.
        end: offset behind the last character.
        depth: nesting of operators, selections and calls; the parser limits it.
        type: static type, set by the checker.
    """

    __slots__ = ("depth", "end", "pos", "start", "type")

    def __init__(self, pos: int) -> None:
        self.pos = pos
        self.start = pos
        self.end = pos
        self.depth = 0
        self.type: Type | None = None

    def children(self) -> "Sequence[Node]":
        """Sub-expressions in evaluation order."""
        return ()


class Literal(Node):
    """A constant."""

    __slots__ = ("value",)

    def __init__(self, pos: int, value: object) -> None:
        super().__init__(pos)
        self.value = value


class Name(NamedTuple):
    """What a name of the environment stands for, other than `device`: a type, or a constant.

    Attributes:
        value: its value, or `UNDEFINED` for a type that the checker knows and the planner does not.
    """

    value: object


UNDEFINED: Final = Name(None)


class Variable:
    """A variable that a macro introduces; its identity tells apart equal names in nested macros."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, type_: Type) -> None:
        self.name = name
        self.type = type_


class Ident(Node):
    """A name: `device`, a variable of a macro or a type.

    Attributes:
        binding: set by the checker: the variable, what else the name stands for, or None for `device`.
    """

    __slots__ = ("binding", "name")

    def __init__(self, pos: int, name: str) -> None:
        super().__init__(pos)
        self.name = name
        self.binding: Variable | Name | None = None


class Select(Node):
    """`operand.field`, or `has(operand.field)` when `test` is set."""

    __slots__ = ("binding", "field", "operand", "test")

    def __init__(self, pos: int, operand: Node, field: str, *, test: bool = False) -> None:
        super().__init__(pos)
        self.operand = operand
        self.field = field
        self.test = test
        self.binding: Name | None = None  # of a dotted name such as google.protobuf.Duration

    def children(self) -> Sequence[Node]:
        """The operand."""
        return (self.operand,)


class Call(Node):
    """A function, method or operator.

    Attributes:
        target: receiver of a method, None for a global function.
        overloads: ids that the static types leave possible, set by the checker.
    """

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(
        self, pos: int, function: str, target: Node | None, args: tuple[Node, ...]
    ) -> None:
        super().__init__(pos)
        self.function = function
        self.target = target
        self.args = args
        self.overloads: tuple[str, ...] = ()

    def children(self) -> Sequence[Node]:
        """The receiver, if any, and the arguments."""
        return self.args if self.target is None else (self.target, *self.args)


class ListNode(Node):
    """A list literal; `optionals` are the indexes written with `?`."""

    __slots__ = ("elements", "optionals")

    def __init__(
        self, pos: int, elements: tuple[Node, ...], optionals: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(pos)
        self.elements = elements
        self.optionals = optionals

    def children(self) -> Sequence[Node]:
        """The elements."""
        return self.elements


class MapNode(Node):
    """A map literal: key, value and whether the entry was written with `?`."""

    __slots__ = ("entries",)

    def __init__(self, pos: int, entries: tuple[tuple[Node, Node, bool], ...]) -> None:
        super().__init__(pos)
        self.entries = entries

    def children(self) -> Sequence[Node]:
        """Keys and values, alternating."""
        return [node for key, value, _ in self.entries for node in (key, value)]


class Field(NamedTuple):
    """A field of a message literal: where its colon stands, its name and value, and whether it was written with `?`."""

    pos: int
    name: str
    value: Node
    is_optional: bool


class Struct(Node):
    """A message literal."""

    __slots__ = ("fields", "name")

    def __init__(self, pos: int, name: str, fields: tuple[Field, ...]) -> None:
        super().__init__(pos)
        self.name = name
        self.fields = fields

    def children(self) -> Sequence[Node]:
        """The values of its fields."""
        return [field.value for field in self.fields]


class Comprehension(Node):
    """An expanded macro.

    Attributes:
        macro: which one; the compiler has one loop for each.
        parts: the user's sub-expressions, in the order of the macro's arguments behind the variables.
        variables: the variables of the scope, set by the checker: accumulator, first, second.
    """

    __slots__ = (
        "accu", "cond", "init", "iter_range", "iter_var", "iter_var2", "macro", "parts", "result", "step", "variables",
    )  # fmt: skip

    def __init__(
        self,
        pos: int,
        macro: str,
        *,
        iter_range: Node,
        iter_var: str,
        iter_var2: str,
        accu: str,
        init: Node,
        cond: Node,
        step: Node,
        result: Node,
        parts: tuple[Node, ...],
    ) -> None:
        super().__init__(pos)
        self.macro = macro
        self.iter_range = iter_range
        self.iter_var = iter_var
        self.iter_var2 = iter_var2
        self.accu = accu
        self.init = init
        self.cond = cond
        self.step = step
        self.result = result
        self.parts = parts
        self.variables: tuple[Variable, Variable, Variable | None] | None = None

    def children(self) -> Sequence[Node]:
        """All sub-expressions of the expansion."""
        return (self.iter_range, self.init, self.cond, self.step, self.result)


class Ast:
    """A parsed expression with its source."""

    __slots__ = ("root", "source")

    def __init__(self, source: str, root: Node) -> None:
        self.source = source
        self.root = root
