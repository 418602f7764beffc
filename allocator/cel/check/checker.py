"""The type checker: annotates the tree with types, bindings and overloads, and reports what does not fit.

Source: cel-go checker/{checker,env}.go.
"""

from collections.abc import Callable
from typing import Any, Final

from allocator.cel import types
from allocator.cel.check.environment import STORED, Environment
from allocator.cel.check.messages import Message, field_of, message
from allocator.cel.check.names import named
from allocator.cel.check.overloads import Overload, functions
from allocator.cel.check.unification import Unification
from allocator.cel.check.validators import validate
from allocator.cel.syntax.problems import describe
from allocator.cel.syntax.tree import (
    Ast,
    Call,
    Comprehension,
    Field,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Struct,
    Variable,
)
from allocator.cel.syntax.walk import Steps, walk
from allocator.cel.types import (
    Type,
    is_dyn,
    is_dyn_or_error,
    list_of,
    map_of,
    optional_of,
    unwrap_optional,
)
from allocator.cel.values.scalars import UInt
from allocator.errors import CelCompileError

_MAX_ERRORS: Final = 10
_LITERAL_TYPES: Final[dict[type, Type]] = {
    bool: types.BOOL,
    int: types.INT,
    UInt: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}


def check(ast: Ast, environment: Environment = STORED) -> Type:
    """Check the whole tree and return its type.

    Raises:
        CelCompileError: it does not type-check; the message lists what does not, as upstream's does.
    """
    checker = _Checker(environment)
    walk(ast.root, checker.visit)
    report(ast, checker.problems)
    checker.settle()
    report(ast, validate(ast.root))
    return ast.root.type or types.DYN


def report(ast: Ast, problems: list[tuple[int, str]]) -> None:
    """Raise an error that lists the problems, if there are any."""
    if not problems:
        return
    ordered = sorted(problems, key=lambda problem: problem[0])
    lines = [describe(ast.source, pos, message) for pos, message in ordered[:_MAX_ERRORS]]
    raise CelCompileError("compilation failed: " + "\n".join(lines))


class _Checker(Unification):
    """State of one check.

    Attributes:
        scopes: variables by name, innermost last.
        problems: offset and message of everything that does not fit.
    """

    def __init__(self, environment: Environment) -> None:
        super().__init__()
        self.environment = environment
        self.scopes: list[dict[str, Variable]] = []
        self.problems: list[tuple[int, str]] = []
        self.seen: list[Node] = []
        self.functions = functions()

    # --- results

    def settle(self) -> None:
        """Replace type parameters in all types by what they stand for, or dyn."""
        for node in self.seen:
            if node.type is not None and (node.type.params or node.type.kind == "param"):
                node.type = self.substitute(node.type, to_dyn=True)

    def report(self, pos: int, message: str) -> None:
        """Note a problem once."""
        if (pos, message) not in self.problems:
            self.problems.append((pos, message))

    def set(self, node: Node, type_: Type) -> Type:
        """Give a node its type."""
        node.type = type_
        self.seen.append(node)
        return type_

    def undeclared(self, node: Node, name: str) -> Type:
        """Report an unknown name."""
        self.report(node.pos, f"undeclared reference to '{name}' (in container '')")
        return self.set(node, types.ERROR)

    # --- nodes

    def visit(self, node: Node) -> "Type | Steps[Type]":
        """Check one node; a node that a macro uses twice is checked once."""
        return node.type or _CHECKS[node.__class__](self, node)

    def literal(self, node: Literal) -> Type:
        """A constant."""
        return self.set(node, _LITERAL_TYPES[node.value.__class__])

    def ident(self, node: Ident) -> Type:
        """A variable, `device` or a type."""
        name = node.name
        if not name.startswith("."):
            for scope in reversed(self.scopes):
                variable = scope.get(name)
                if variable is not None:
                    node.binding = variable
                    return self.set(node, variable.type)
        name = name.removeprefix(".")
        if name == "device":
            return self.set(node, types.DEVICE)
        found = named(name, self.environment)
        if found is None:
            return self.undeclared(node, node.name)
        type_, node.binding = found
        return self.set(node, type_)

    def select(self, node: Select) -> Steps[Type]:
        """A field, a presence test or a dotted name."""
        name = None if node.test else _dotted(node)
        if name is not None and not self.is_local(name):
            found = named(name, self.environment)
            if found is not None:
                type_, node.binding = found
                return self.set(node, type_)
        operand = yield node.operand
        result = self.field(node, operand, node.field, optional=False)
        return self.set(node, types.BOOL if node.test else self.substitute(result))

    def is_local(self, dotted: str) -> bool:
        """Whether the first part of a dotted name is a variable."""
        first = dotted.split(".", maxsplit=1)[0]
        return any(first in scope for scope in self.scopes)

    def field(self, node: Node, operand: Type, field: str, *, optional: bool) -> Type:
        """The type of a field of an operand of this type."""
        target, was_optional = unwrap_optional(self.substitute(operand))
        result = types.ERROR
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            found = field_of(target, field, self.environment)
            if found is None:
                self.report(node.pos, f"undefined field '{field}'")
            else:
                result = found
        elif target.kind == "param":
            self.assignable(types.DYN, target)
            result = types.DYN
        else:
            if not is_dyn_or_error(target):
                self.report(node.pos, f"type '{target}' does not support field selection")
            result = types.DYN
        return optional_of(result) if was_optional or optional else result

    def call(self, node: Call) -> Steps[Type]:
        """A function, method or operator."""
        if node.function == "_?._":
            operand, field = node.args
            self.set(field, types.STRING)
            field_name = field.value if isinstance(field, Literal) else ""
            result = self.field(node, (yield operand), str(field_name), optional=True)
            node.overloads = ("select_optional_field",)
            return self.set(node, self.substitute(result))
        for arg in node.args:  # noqa: UP028  # a tuple takes no answers
            yield arg
        if node.target is not None:
            prefix = _dotted(node.target)
            qualified = None if prefix is None else f"{prefix}.{node.function}".removeprefix(".")
            if qualified in self.functions and qualified not in self.environment.without:
                node.target = None
                node.function = qualified
        if node.target is not None:
            yield node.target
        name = node.function.removeprefix(".")
        overloads = None if name in self.environment.without else self.functions.get(name)
        if overloads is None:
            return self.undeclared(node, node.function)
        node.function = name
        return self.resolve(node, overloads)

    def resolve(self, node: Call, overloads: tuple[Overload, ...]) -> Type:
        """Find the overloads that fit and the result type they agree on."""
        if node.function in ("_&&_", "_||_"):
            return self.logic(node)
        actual = [child.type or types.ERROR for child in node.children()]
        member = node.target is not None
        result: Type | None = None
        matching: list[str] = []
        for overload in overloads:
            if overload.member != member or len(overload.args) != len(actual):
                continue
            args, candidate = self.instantiate(overload)
            if not self.all_assignable(actual, args):
                continue
            matching.append(overload.id)
            found = self.substitute(candidate)
            if result is None:
                result = found
            elif not is_dyn(result) and found != result:
                result = types.DYN
        if result is None:
            return self.no_overload(node, actual, member=member)
        node.overloads = tuple(matching)
        return self.set(node, result)

    def logic(self, node: Call) -> Type:
        """`&&` and `||` of any number of terms."""
        node.overloads = ("logical_and" if node.function == "_&&_" else "logical_or",)
        bad = False
        for arg in node.args:
            type_ = arg.type or types.ERROR
            if not self.assignable(type_, types.BOOL):
                shown = self.substitute(type_, to_dyn=True)
                self.report(arg.pos, f"expected type 'bool' but found '{shown}'")
                bad = True
        return self.set(node, types.ERROR if bad else types.BOOL)

    def no_overload(self, node: Call, actual: list[Type], *, member: bool) -> Type:
        """Report arguments that no overload takes."""
        shown = [str(self.substitute(type_, to_dyn=True)) for type_ in actual]
        receiver = f"{shown[0]}." if member else ""
        args = ", ".join(shown[1:] if member else shown)
        self.report(
            node.pos,
            f"found no matching overload for '{node.function}' applied to '{receiver}({args})'",
        )
        return self.set(node, types.ERROR)

    def list_literal(self, node: ListNode) -> Steps[Type]:
        """A list."""
        joined: Type | None = None
        for at, element in enumerate(node.elements):
            type_ = yield element
            if at in node.optionals:
                type_ = self.optional_value(element, type_)
            joined = self.join(joined, type_)
        return self.set(node, list_of(self.fresh() if joined is None else joined))

    def map_literal(self, node: MapNode) -> Steps[Type]:
        """A map."""
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self.join(keys, (yield key))
            type_ = yield value
            if optional:
                type_ = self.optional_value(value, type_)
            values = self.join(values, type_)
        if keys is None or values is None:
            keys, values = self.fresh(), self.fresh()
        return self.set(node, map_of(keys, values))

    def optional_value(self, node: Node, type_: Type) -> Type:
        """The value type of an element or entry written with `?`."""
        inner, was_optional = unwrap_optional(self.substitute(type_))
        if not was_optional and not is_dyn(inner):
            self.report(node.pos, f"expected type 'optional_type({inner})' but found '{inner}'")
        return inner

    def struct(self, node: Struct) -> Steps[Type]:
        """A message literal."""
        kind = message(node.name, self.environment)
        if kind is None:
            named_otherwise = named(node.name, self.environment)
            if named_otherwise is None or named_otherwise[0].kind != "type":
                return self.undeclared(node, node.name)
            self.report(node.pos, f"'{node.name.removeprefix('.')}' is not a message type")
            kind = Message(types.ERROR, {})
        for field in node.fields:
            self.initializer(field, (yield field.value), kind)
        return self.set(node, kind.type)

    def initializer(self, field: Field, found: Type, kind: Message) -> None:
        """One field of a message literal, and the type that was found for its value."""
        if field.is_optional:
            found = self.optional_value(field.value, found)
        wanted = kind.fields.get(field.name)
        if wanted is None:
            self.report(field.pos, f"undefined field '{field.name}'")
        elif not self.assignable(wanted, found):
            shown = self.substitute(found, to_dyn=True)
            self.report(
                field.pos,
                f"expected type of field '{field.name}' is '{wanted}' but provided type is '{shown}'",
            )

    def comprehension(self, node: Comprehension) -> Steps[Type]:
        """An expanded macro: two scopes, one for the accumulator and one for the loop."""
        iterated = yield node.iter_range
        accu = Variable(node.accu, (yield node.init))
        range_type = self.substitute(iterated)
        first_type, second_type = self.iterated(node, range_type)
        first = Variable(node.iter_var, first_type)
        second = Variable(node.iter_var2, second_type) if node.iter_var2 else None
        node.variables = (accu, first, second)
        self.scopes.append({accu.name: accu})
        inner = {first.name: first}
        if second is not None:
            inner[second.name] = second
        self.scopes.append(inner)
        yield node.cond
        self.expect(node.cond, types.BOOL)
        yield node.step
        self.expect(node.step, accu.type)
        self.scopes.pop()
        result = yield node.result
        self.scopes.pop()
        return self.set(node, self.substitute(result))

    def iterated(self, node: Comprehension, range_type: Type) -> tuple[Type, Type]:
        """The types of the loop variables."""
        two = bool(node.iter_var2)
        if range_type.kind == "list":
            element = range_type.params[0]
            return (types.INT, element) if two else (element, element)
        if range_type.kind == "map":
            return range_type.params[0], range_type.params[1]
        if range_type.kind in ("dyn", "error", "param"):
            self.assignable(types.DYN, range_type)
            return types.DYN, types.DYN
        self.report(
            node.iter_range.pos,
            f"expression of type '{range_type}' cannot be range of a comprehension (must be list, map, or dynamic)",
        )
        return types.ERROR, types.ERROR

    def expect(self, node: Node, wanted: Type) -> None:
        """Require a type."""
        found = node.type or types.ERROR
        if not self.assignable(wanted, found):
            self.report(
                node.pos,
                f"expected type '{self.substitute(wanted, to_dyn=True)}' "
                f"but found '{self.substitute(found, to_dyn=True)}'",
            )


def _dotted(node: Node) -> str | None:
    """The text of a chain of names, or None for anything else."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    parts.append(node.name)
    return ".".join(reversed(parts))


_CHECKS: Final[dict[type[Node], Callable[[_Checker, Any], Type | Steps[Type]]]] = {
    Literal: _Checker.literal,
    Ident: _Checker.ident,
    Select: _Checker.select,
    Call: _Checker.call,
    ListNode: _Checker.list_literal,
    MapNode: _Checker.map_literal,
    Struct: _Checker.struct,
    Comprehension: _Checker.comprehension,
}
