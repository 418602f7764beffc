"""Compiles a checked tree to closures, in one of two ways: fast, or counting the cost as upstream does.

Constants are folded exactly where upstream's planner folds them, because folded nodes cost nothing and fail when the
expression is compiled.

Source: cel-go interpreter/{planner,decorators,interpretable,attributes}.go.
"""

from collections.abc import Callable
from typing import Any, Final

from allocator.cel.cost.factors import LIST, MAP, STRUCT
from allocator.cel.cost.rules import rule_for
from allocator.cel.library.regex import compile_regex
from allocator.cel.run import access, calls, folds, logic
from allocator.cel.run.aggregates import folded, list_builder, map_builder, message_builder
from allocator.cel.run.code import (
    CONDITIONAL,
    METER,
    Code,
    Env,
    constant,
)
from allocator.cel.run.functions import implementation
from allocator.cel.run.guards import guarded
from allocator.cel.run.selections import Selections
from allocator.cel.syntax.tree import (
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
from allocator.cel.values import comparison, selection
from allocator.cel.values.scalars import Optional, UInt
from allocator.errors import CelCompileError, CelRuntimeError

_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "dyn", "duration", "int", "string", "timestamp", "type", "uint"}
)
# Functions without side effects whose result for a literal is worth keeping; failing ones stay as they are.
_PURE: Final = frozenset({"quantity", "semver", "ip", "cidr", "url"})
# Functions that upstream binds to one piece of code for all overloads.
_ONE_BINDING: Final = frozenset(
    {
        "_+_",
        "_-_",
        "_*_",
        "_/_",
        "_%_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "@in",
        "matches",
        "@sortByAssociatedKeys",
    }
)
_REGEX_ARGUMENT: Final = frozenset({"matches", "find", "findAll"})
_SET_ELEMENTS: Final = frozenset({bool, int, UInt, float, str})


class Compiler(Selections):
    """One compilation."""

    def compile_tree(self, root: Node) -> Code:
        """Compile a whole tree, children first: its depth costs no Python frames.

        Raises:
            CelCompileError: a constant part fails.
        """
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in self.done:
                continue
            if ready:
                self.compile(node)
                continue
            if (
                isinstance(node, Comprehension)
                and node.macro == "bind"
                and node.variables is not None
            ):
                self.lazy[id(node.variables[0])] = node.init
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(_dependencies(node)))
        return self.done[id(root)]

    def compile(self, node: Node) -> Code:
        """Compile one node; a node that a macro uses twice is compiled once."""
        code = self.done.get(id(node))
        if code is None:
            code = _COMPILERS[node.__class__](self, node)
            self.done[id(node)] = code
        return code

    # --- calls

    def call(self, node: Call) -> Code:
        """An operator, function or method."""
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node)
        args = [self.compile(child) for child in node.children()]
        function = node.function
        if function in _CONVERSIONS and len(args) == 1 and args[0].is_constant:
            return self.fold(function, args[0].value)
        if function in _REGEX_ARGUMENT and len(args) > 1 and args[1].value.__class__ is str:
            return self.regex(node, args)
        method = guarded(node, implementation(function, member=node.target is not None))
        if self.counting:
            runs = [arg.run for arg in args]
            rule = rule_for(function, node.overloads)
            in_order = len(node.overloads) > 1 and function not in _ONE_BINDING
            return Code(
                calls.counted(method, runs, rule, in_order=in_order or function == "format")
            )
        if function in _PURE and all(arg.is_constant for arg in args):
            kept = _try(method, args)
            if kept is not None:
                return Code(lambda _env: kept)
        return Code(calls.plain(method, args))

    @staticmethod
    def fold(function: str, value: Any) -> Code:
        """A conversion of a constant."""
        try:
            return constant(implementation(function, member=False)(value))
        except CelRuntimeError as error:
            raise CelCompileError(f"program instantiation failed: {error.message}") from None

    def regex(self, node: Call, args: list[Code]) -> Code:
        """A regular expression that is known already."""
        pattern = args[1].value
        try:
            regex = compile_regex(pattern)
        except CelRuntimeError as error:
            raise CelCompileError(f"program instantiation failed: {error.message}") from None
        method = calls.regex_method(node.function, regex)
        if self.counting:
            rule = rule_for(node.function, node.overloads)
            return Code(calls.counted(method, [arg.run for arg in args], rule, in_order=True))
        if node.function == "matches":
            return Code(calls.regex_search(args[0].run, regex.search))
        return Code(calls.plain(method, args))

    def logic(self, node: Call) -> Code:
        """`&&` and `||`."""
        terms = [self.compile(arg).run for arg in node.args]
        return Code(
            logic.conjunction(terms) if node.function == "_&&_" else logic.disjunction(terms)
        )

    def conditional(self, node: Call) -> Code:
        """`c ? a : b`."""
        condition, then, other = (self.compile(arg) for arg in node.args)
        return Code(
            logic.conditional(condition.run, then.inner, other.inner), inner=None, kind=CONDITIONAL
        )

    def equality(self, node: Call) -> Code:
        """`==` and `!=`, with shortcuts for a literal on the right."""
        left, right = (self.compile(arg) for arg in node.args)
        equal = node.function == "_==_"
        if self.counting:
            method = comparison.equals if equal else comparison.not_equals
            return Code(
                calls.counted(
                    method, [left.run, right.run], rule_for(node.function, node.overloads)
                )
            )
        if right.is_constant and right.value.__class__ in (str, int, bool):
            return Code(calls.equals_literal(left.run, right.value, wanted=equal))
        return Code(
            calls.plain(comparison.equals if equal else comparison.not_equals, [left, right])
        )

    def index(self, node: Call) -> Code:
        """`operand[key]`, `operand[?key]` and `operand.?field`."""
        operand, key = (self.compile(arg) for arg in node.args)
        return self.extend(operand, key, optional=node.function != "_[_]")

    def membership(self, node: Call) -> Code:
        """`in`; a constant list of scalars becomes a set, as upstream makes it."""
        left, right = (self.compile(arg) for arg in node.args)
        if node.overloads == ("in_list",) and right.is_constant and right.value.__class__ is list:
            if not right.value:
                return constant(False)
            if all(element.__class__ in _SET_ELEMENTS for element in right.value):
                return Code(calls.in_set(left.run, right.value))
        made = isinstance(node.args[1], MapNode)
        method = selection.contains_key if made else selection.contains
        if self.counting:
            rule = rule_for(node.function, node.overloads)
            return Code(calls.counted(method, [left.run, right.run], rule))
        return Code(calls.plain(method, [left, right]))

    def optional_or(self, node: Call) -> Code:
        """`or` and `orValue`, which evaluate their argument only when needed and cost nothing."""
        target = node.target
        if target is None:
            raise AssertionError("or is a method")
        left, right = self.compile(target).run, self.compile(node.args[0]).run
        unwrap = node.function == "orValue"

        def run(env: Env) -> Any:
            value = left(env)
            if value.__class__ is not Optional:
                raise CelRuntimeError("no such overload")
            if value.present:
                return value.value if unwrap else value
            return right(env)

        return Code(run)

    # --- literals with parts

    def list_literal(self, node: ListNode) -> Code:
        """A list."""
        elements = [self.compile(element) for element in node.elements]
        runs = [element.run for element in elements]
        build = list_builder(runs, node.optionals)
        if all(element.is_constant for element in elements):
            return folded(build)
        return Code(access.charged(build, LIST) if self.counting else build)

    def map_literal(self, node: MapNode) -> Code:
        """A map."""
        entries = [
            (self.compile(key), self.compile(value), optional)
            for key, value, optional in node.entries
        ]
        build = map_builder([(key.run, value.run, optional) for key, value, optional in entries])
        if all(key.is_constant and value.is_constant for key, value, _ in entries):
            return folded(build)
        return Code(access.charged(build, MAP) if self.counting else build)

    def struct(self, node: Struct) -> Code:
        """A message."""
        fields = [
            (field.name, self.compile(field.value).run, field.is_optional) for field in node.fields
        ]
        build = message_builder(node.name.removeprefix("."), fields)
        return Code(access.charged(build, STRUCT) if self.counting else build)

    # --- macros

    def comprehension(self, node: Comprehension) -> Code:
        """An expanded macro."""
        if node.variables is None:
            raise AssertionError("the tree was not checked")
        accu, first, second = node.variables
        if node.macro == "bind":
            return self.bind(node, accu)
        iterated = self.compile(node.iter_range).run
        at = self.slot(first)
        second_at = None if second is None else self.slot(second)
        parts = [self.compile(part) for part in node.parts]
        loop = folds.Loop(iterated, at, second_at, counting=self.counting)
        if node.macro in ("all", "exists"):
            return Code(folds.quantifier(loop, parts[0].run, wanted=node.macro == "exists"))
        if node.macro == "exists_one":
            return Code(folds.exists_one(loop, parts[0].run))
        predicate = parts[0].run if len(parts) == 2 or node.macro == "filter" else None
        if node.macro == "filter":
            return Code(folds.filtered(loop, parts[0].run))
        transform = parts[-1]
        if node.macro == "map":
            # A list with one constant is folded, and so costs nothing.
            cost = 2 if transform.is_constant else 2 + LIST
            return Code(folds.mapped(loop, predicate, transform.run, cost))
        return Code(
            folds.transformed_map(
                loop, predicate, transform.run, whole=node.macro == "transform_map_entry"
            )
        )

    def bind(self, node: Comprehension, accu: Variable) -> Code:
        """`cel.bind`: evaluated when first read, once."""
        at = self.slot(accu)
        body = self.compile(node.result).run

        def run(env: Env) -> Any:
            env[at] = access.UNSET
            return body(env)

        def watched(env: Env) -> Any:
            env[METER].tick()
            env[at] = access.UNSET
            return body(env)

        return Code(watched if self.counting else run)


def _dependencies(node: Node) -> list[Node]:
    """The nodes that are compiled into this one: of a macro the user's parts, not the expansion."""
    if isinstance(node, Comprehension):
        return [node.init, node.result] if node.macro == "bind" else [node.iter_range, *node.parts]
    return list(node.children())


def _try(method: Callable[..., object], args: list[Code]) -> object:
    try:
        return method(*(arg.value for arg in args))
    except CelRuntimeError:
        return None


_SPECIAL: Final[dict[str, Callable[[Compiler, Call], Code]]] = {
    "_&&_": Compiler.logic,
    "_||_": Compiler.logic,
    "_?_:_": Compiler.conditional,
    "_==_": Compiler.equality,
    "_!=_": Compiler.equality,
    "_[_]": Compiler.index,
    "_[?_]": Compiler.index,
    "_?._": Compiler.index,
    "@in": Compiler.membership,
    "or": Compiler.optional_or,
    "orValue": Compiler.optional_or,
}

_COMPILERS: Final[dict[type[Node], Callable[[Compiler, Any], Code]]] = {
    Literal: Compiler.literal,
    Ident: Compiler.ident,
    Select: Compiler.select,
    Call: Compiler.call,
    ListNode: Compiler.list_literal,
    MapNode: Compiler.map_literal,
    Struct: Compiler.struct,
    Comprehension: Compiler.comprehension,
}
