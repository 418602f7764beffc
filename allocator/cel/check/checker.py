"""The type checker: annotates the tree with types, bindings and overloads, and reports what does not fit.

Source: cel-go checker/{checker,types,env}.go; type parameters unify as there, with free variables for empty literals.
"""

from collections.abc import Callable
from typing import Any, Final

from allocator.cel import types
from allocator.cel.check.declarations import Overload, functions
from allocator.cel.check.validators import validate
from allocator.cel.syntax.parser import describe
from allocator.cel.syntax.tree import (
    Ast,
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Struct,
    Variable,
)
from allocator.cel.types import (
    STORED,
    Environment,
    Type,
    is_dyn,
    is_dyn_or_error,
    list_of,
    map_of,
    optional_of,
    type_of,
    unwrap_optional,
)
from allocator.cel.values.values import UInt
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
# Type names that are values of the language.
_TYPE_NAMES: Final[dict[str, Type]] = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "int": types.INT,
    "string": types.STRING,
    "uint": types.UINT,
    "list": list_of(types.DYN),
    "map": map_of(types.DYN, types.DYN),
    "null_type": types.NULL,
    "type": types.TYPE,
    "optional_type": optional_of(types.DYN),
    "net.IP": types.IP,
    "net.CIDR": types.CIDR,
    "google.protobuf.Duration": types.DURATION,
    "google.protobuf.Timestamp": types.TIMESTAMP,
}
_NULLABLE: Final = frozenset({"opaque", "struct", "any", "duration", "timestamp"})
_FIXED: Final = frozenset(
    {"bool", "bytes", "double", "int", "string", "uint", "duration", "timestamp", "struct"}
)


def check(ast: Ast, environment: Environment = STORED) -> Type:
    """Check the whole tree and return its type.

    Raises:
        CelCompileError: it does not type-check; the message lists what does not, as upstream's does.
    """
    checker = _Checker(environment)
    checker.check(ast.root)
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


class _Checker:
    """State of one check.

    Attributes:
        scopes: variables by name, innermost last.
        bound: type parameter name -> what it stands for.
        problems: offset and message of everything that does not fit.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.scopes: list[dict[str, Variable]] = []
        self.bound: dict[str, Type] = {}
        self.free = 0
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

    def set(self, node: Node, type_: Type) -> None:
        """Give a node its type."""
        node.type = type_
        self.seen.append(node)

    def undeclared(self, node: Node, name: str) -> None:
        """Report an unknown name."""
        self.report(node.pos, f"undeclared reference to '{name}' (in container '')")
        self.set(node, types.ERROR)

    # --- nodes

    def check(self, node: Node) -> Type:
        """Check one node; a node that a macro uses twice is checked once."""
        if node.type is not None:
            return node.type
        _CHECKS[node.__class__](self, node)
        checked: Type | None = node.type
        return checked or types.ERROR

    def literal(self, node: Literal) -> None:
        """A constant."""
        self.set(node, _LITERAL_TYPES[node.value.__class__])

    def ident(self, node: Ident) -> None:
        """A variable, `device` or a type."""
        name = node.name
        if not name.startswith("."):
            for scope in reversed(self.scopes):
                variable = scope.get(name)
                if variable is not None:
                    node.binding = variable
                    self.set(node, variable.type)
                    return
        name = name.removeprefix(".")
        if name == "device":
            self.set(node, types.DEVICE)
        elif name in _TYPE_NAMES:
            node.binding = _TYPE_NAMES[name]
            self.set(node, type_of(node.binding))
        else:
            self.undeclared(node, node.name)

    def select(self, node: Select) -> None:
        """A field, a presence test or a dotted type name."""
        if not node.test:
            name = _dotted(node)
            if (
                name is not None
                and name.removeprefix(".") in _TYPE_NAMES
                and not self.is_local(name)
            ):
                node.binding = _TYPE_NAMES[name.removeprefix(".")]
                self.set(node, type_of(node.binding))
                return
        result = self.field(node, node.operand, node.field, optional=False)
        self.set(node, types.BOOL if node.test else self.substitute(result))

    def is_local(self, dotted: str) -> bool:
        """Whether the first part of a dotted name is a variable."""
        first = dotted.split(".", maxsplit=1)[0]
        return any(first in scope for scope in self.scopes)

    def field(self, node: Node, operand: Node, field: str, *, optional: bool) -> Type:
        """The type of a field of the operand."""
        self.check(operand)
        target, was_optional = unwrap_optional(self.substitute(operand.type or types.ERROR))
        result = types.ERROR
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            found = self.environment.fields.get(field) if target == types.DEVICE else None
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

    def call(self, node: Call) -> None:
        """A function, method or operator."""
        if node.function == "_?._":
            field = node.args[1]
            self.set(field, types.STRING)
            field_name = field.value if isinstance(field, Literal) else ""
            result = self.field(node, node.args[0], str(field_name), optional=True)
            node.overloads = ("select_optional_field",)
            self.set(node, self.substitute(result))
            return
        for arg in node.args:
            self.check(arg)
        if node.target is not None:
            prefix = _dotted(node.target)
            qualified = None if prefix is None else f"{prefix}.{node.function}".removeprefix(".")
            if qualified in self.functions and qualified not in self.environment.without:
                node.target = None
                node.function = qualified
        if node.target is not None:
            self.check(node.target)
        name = node.function.removeprefix(".")
        overloads = None if name in self.environment.without else self.functions.get(name)
        if overloads is None:
            self.undeclared(node, node.function)
            return
        node.function = name
        self.resolve(node, overloads)

    def resolve(self, node: Call, overloads: tuple[Overload, ...]) -> None:
        """Find the overloads that fit and the result type they agree on."""
        if node.function in ("_&&_", "_||_"):
            self.logic(node)
            return
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
            self.no_overload(node, actual, member=member)
            return
        node.overloads = tuple(matching)
        self.set(node, result)

    def logic(self, node: Call) -> None:
        """`&&` and `||` of any number of terms."""
        node.overloads = ("logical_and" if node.function == "_&&_" else "logical_or",)
        bad = False
        for arg in node.args:
            type_ = arg.type or types.ERROR
            if not self.assignable(type_, types.BOOL):
                shown = self.substitute(type_, to_dyn=True)
                self.report(arg.pos, f"expected type 'bool' but found '{shown}'")
                bad = True
        self.set(node, types.ERROR if bad else types.BOOL)

    def no_overload(self, node: Call, actual: list[Type], *, member: bool) -> None:
        """Report arguments that no overload takes."""
        shown = [str(self.substitute(type_, to_dyn=True)) for type_ in actual]
        receiver = f"{shown[0]}." if member else ""
        args = ", ".join(shown[1:] if member else shown)
        self.report(
            node.pos,
            f"found no matching overload for '{node.function}' applied to '{receiver}({args})'",
        )
        self.set(node, types.ERROR)

    def instantiate(self, overload: Overload) -> tuple[list[Type], Type]:
        """An overload's types with fresh variables for its parameters."""
        if not overload.params:
            return list(overload.args), overload.result
        fresh = {name: self.fresh() for name in sorted(overload.params)}
        return [_replace(arg, fresh) for arg in overload.args], _replace(overload.result, fresh)

    def fresh(self) -> Type:
        """A new free type variable."""
        self.free += 1
        return types.param(f"_var{self.free}")

    def list_literal(self, node: ListNode) -> None:
        """A list."""
        joined: Type | None = None
        for at, element in enumerate(node.elements):
            type_ = self.check(element)
            if at in node.optionals:
                type_ = self.optional_value(element, type_)
            joined = self.join(joined, type_)
        self.set(node, list_of(self.fresh() if joined is None else joined))

    def map_literal(self, node: MapNode) -> None:
        """A map."""
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self.join(keys, self.check(key))
            type_ = self.check(value)
            if optional:
                type_ = self.optional_value(value, type_)
            values = self.join(values, type_)
        if keys is None or values is None:
            keys, values = self.fresh(), self.fresh()
        self.set(node, map_of(keys, values))

    def optional_value(self, node: Node, type_: Type) -> Type:
        """The value type of an element or entry written with `?`."""
        inner, was_optional = unwrap_optional(self.substitute(type_))
        if not was_optional and not is_dyn(inner):
            self.report(node.pos, f"expected type 'optional_type({inner})' but found '{inner}'")
        return inner

    def struct(self, node: Struct) -> None:
        """No message type is known."""
        self.undeclared(node, node.name)

    def comprehension(self, node: Comprehension) -> None:
        """An expanded macro: two scopes, one for the accumulator and one for the loop."""
        self.check(node.iter_range)
        self.check(node.init)
        range_type = self.substitute(node.iter_range.type or types.ERROR)
        accu = Variable(node.accu, node.init.type or types.ERROR)
        first_type, second_type = self.iterated(node, range_type)
        first = Variable(node.iter_var, first_type)
        second = Variable(node.iter_var2, second_type) if node.iter_var2 else None
        node.variables = (accu, first, second)
        self.scopes.append({accu.name: accu})
        inner = {first.name: first}
        if second is not None:
            inner[second.name] = second
        self.scopes.append(inner)
        self.check(node.cond)
        self.expect(node.cond, types.BOOL)
        self.check(node.step)
        self.expect(node.step, accu.type)
        self.scopes.pop()
        self.check(node.result)
        self.scopes.pop()
        self.set(node, self.substitute(node.result.type or types.ERROR))

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

    def join(self, previous: Type | None, current: Type) -> Type:
        """The common type of two elements of a literal; dyn if there is none, which the validator reports."""
        if previous is None:
            return current
        if self.assignable(previous, current):
            return _most_general(previous, current)
        return types.DYN

    # --- unification

    def assignable(self, left: Type, right: Type) -> bool:
        """Whether the types unify; what was learnt is kept only if they do."""
        if left == right and not left.params and left.kind != "param":
            return True
        saved = self.bound.copy()
        if self.unify(left, right):
            return True
        self.bound = saved
        return False

    def all_assignable(self, left: list[Type], right: list[Type]) -> bool:
        """The same for argument lists of equal length."""
        saved: dict[str, Type] | None = None
        for one, other in zip(left, right, strict=True):
            if one == other and not one.params and one.kind != "param":
                continue
            if (
                one.kind in _FIXED and other.kind in _FIXED
            ):  # most mismatches: nothing to save for them
                self.bound = self.bound if saved is None else saved
                return False
            if saved is None:
                saved = self.bound.copy()
            if not self.unify(one, other):
                self.bound = saved
                return False
        return True

    def unify(self, left: Type, right: Type) -> bool:  # noqa: PLR0911  # upstream's order of rules, one return each
        """Make two types equal by binding parameters; bindings are left behind on failure."""
        if right.kind == "param":
            valid, has_substitute = self.substitution(left, right)
            if valid:
                return True
            if has_substitute:
                return False
        if left.kind == "param":
            return self.substitution(right, left)[0]
        if is_dyn_or_error(left) or is_dyn_or_error(right):
            return True
        if left.kind == "null":
            return right.kind == "null" or right.kind in _NULLABLE
        if right.kind == "null":
            return left.kind in _NULLABLE
        if left.kind in _FIXED:
            return left == right
        if left.kind == "type":
            return right.kind == "type"
        if (
            left.kind != right.kind
            or left.name != right.name
            or len(left.params) != len(right.params)
        ):
            return False
        return all(
            self.unify(one, other) for one, other in zip(left.params, right.params, strict=True)
        )

    def substitution(self, left: Type, parameter: Type) -> tuple[bool, bool]:
        """Whether `left` may stand for the parameter, and whether the parameter stood for something before."""
        if left == parameter:
            return True, True
        known = self.bound.get(parameter.name)
        if known is not None:
            if left == known:
                return True, True
            if self.unify(left, known):
                general = _most_general(left, known)
                if self.free_of(parameter, general):
                    self.bound[parameter.name] = general
                return True, True
            return False, True
        if self.free_of(parameter, left):
            self.bound[parameter.name] = left
            return True, False
        return False, False

    def free_of(self, parameter: Type, within: Type) -> bool:
        """The occurs check: the parameter is no part of the type."""
        if parameter == within:
            return False
        if within.kind == "param":
            known = self.bound.get(within.name)
            return known is None or self.free_of(parameter, known)
        return all(self.free_of(parameter, inner) for inner in within.params)

    def substitute(self, type_: Type, *, to_dyn: bool = False) -> Type:
        """Replace parameters by what they stand for; free ones by dyn if asked."""
        if type_.kind == "param":
            known = self.bound.get(type_.name)
            if known is not None:
                return self.substitute(known, to_dyn=to_dyn)
            return types.DYN if to_dyn else type_
        if not type_.params:
            return type_
        return type_._replace(
            params=tuple(self.substitute(inner, to_dyn=to_dyn) for inner in type_.params)
        )


def _replace(type_: Type, fresh: dict[str, Type]) -> Type:
    if type_.kind == "param":
        return fresh[type_.name]
    if not type_.params:
        return type_
    return type_._replace(params=tuple(_replace(inner, fresh) for inner in type_.params))


def _most_general(left: Type, right: Type) -> Type:
    return left if _less_specific(left, right) else right


def _less_specific(left: Type, right: Type) -> bool:
    """Whether `left` equals `right` or differs from it only by being dyn somewhere."""
    if is_dyn(left) or left.kind == "param":
        return True
    if is_dyn(right) or right.kind == "param":
        return False
    if left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    if left.name != right.name or len(left.params) != len(right.params):
        return False
    return all(
        _less_specific(one, other) for one, other in zip(left.params, right.params, strict=True)
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


_CHECKS: Final[dict[type[Node], Callable[[_Checker, Any], None]]] = {
    Literal: _Checker.literal,
    Ident: _Checker.ident,
    Select: _Checker.select,
    Call: _Checker.call,
    ListNode: _Checker.list_literal,
    MapNode: _Checker.map_literal,
    Struct: _Checker.struct,
    Comprehension: _Checker.comprehension,
}
