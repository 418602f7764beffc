"""The cost estimate that the API server puts on a new expression: the most it could cost on any device.

Source: cel-go checker/cost.go.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from allocator.cel import types
from allocator.cel.cost.call_estimates import CallEstimate, Operand, call_estimate
from allocator.cel.cost.declared import Path, declared_size
from allocator.cel.cost.factors import LIST, MAP, STRUCT
from allocator.cel.cost.ranges import MOST, ONE, UNKNOWN, ZERO, Range, fixed
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
)
from allocator.cel.syntax.walk import Steps, walk
from allocator.cel.types import Type


class Entry(NamedTuple):
    """Sizes of the members of a list or map literal."""

    kind: str
    key: Range
    value: Range

    def union(self, other: "Entry | None") -> "Entry | None":
        """Large enough for either."""
        if other is None:
            return None
        return Entry(self.kind, self.key.union(other.key), self.value.union(other.value))


def estimate(root: Node) -> Range:
    """The least and the most that evaluating an expression can cost."""
    return walk(root, _Estimator().visit)


class _Local(NamedTuple):
    """A variable of a macro."""

    path: Path | None
    size: Range | None
    entry: Entry | None


class _Estimator:
    """One estimation, in upstream's order: sizes found on the way are used behind it."""

    def __init__(self) -> None:
        self.paths: dict[int, Path] = {}
        self.locals: dict[str, list[_Local]] = {}
        self.sizes: dict[int, Range] = {}
        self.entries: dict[int, Entry] = {}
        self.known: dict[int, Range] = {}

    def visit(self, node: Node) -> "Range | Steps[Range]":
        """The cost of a node; one that a macro uses twice costs twice and is looked at once."""
        found = self.known.get(id(node))
        if found is not None:
            return found
        if isinstance(node, Ident):
            return self.ident(node)
        compute = _COSTS.get(node.__class__)
        return ZERO if compute is None else self.kept(node, compute(self, node))

    def kept(self, node: Node, steps: Steps[Range]) -> Steps[Range]:
        """The same, computed and remembered."""
        cost = self.known[id(node)] = yield from steps
        return cost

    def ident(self, node: Ident) -> Range:
        """A name."""
        local = self.local(node)
        self.add_path(node, local.path if local is not None else (node.name.removeprefix("."),))
        return ONE

    def loop(self, node: Comprehension) -> Steps[Range]:
        """A macro."""
        return self.bind(node) if node.macro == "bind" else self.comprehension(node)

    # --- what is known about nodes

    def local(self, node: Node) -> _Local | None:
        """The variable that a name stands for."""
        stack = self.locals.get(node.name) if isinstance(node, Ident) else None
        return stack[-1] if stack else None

    def add_path(self, node: Node, path: Path | None) -> None:
        """Remember the path of a node."""
        if path is not None:
            self.paths[id(node)] = path

    def path(self, node: Node) -> Path | None:
        """The path of a node."""
        local = self.local(node)
        return local.path if local is not None else self.paths.get(id(node))

    def extended(self, node: Node, step: str) -> Path:
        """The path of a member."""
        return (*(self.path(node) or ()), step)

    def size(self, node: Node) -> Range | None:
        """The size of a node's value, or None if nothing is known."""
        found = self.sizes.get(id(node)) or _literal_size(node)
        if found is not None:
            return found
        found = declared_size(self.path(node))
        if found is not None:
            self.sizes[id(node)] = found
            return found
        if _is_scalar(node.type or types.DYN):
            return ONE
        local = self.local(node)
        return local.size if local is not None else None

    def size_or_unknown(self, node: Node) -> Range:
        """The same, or anything."""
        return self.size(node) or UNKNOWN

    def entry(self, node: Node) -> Entry | None:
        """Sizes of the members of a node's value."""
        found = self.entries.get(id(node))
        if found is not None:
            return found
        local = self.local(node)
        return local.entry if local is not None else None

    def operand(self, node: Node) -> Operand:
        """A node as the rules see it."""
        path = self.path(node)
        if path and path[0] in ("@result", "__result__"):
            path = None
        return Operand(node, node.type or types.DYN, path, self.size(node))

    # --- nodes

    def select(self, node: Select) -> Steps[Range]:
        """A field."""
        if node.binding is not None:
            return ONE
        operand = yield node.operand
        if node.test:
            return operand
        kind = (node.operand.type or types.DYN).kind
        self.add_path(node, self.extended(node.operand, node.field))
        return operand.plus(ONE) if kind in ("map", "struct", "param") else operand

    def aggregate(self, node: ListNode | MapNode) -> Steps[Range]:
        """A list or map literal."""
        total = ZERO
        for child in node.children():
            total = total.plus((yield child))
        if isinstance(node, ListNode):
            self.entries[id(node)] = Entry("list", ONE, self.widest(node.elements))
            return total.plus(fixed(LIST))
        keys = self.widest([key for key, _, _ in node.entries])
        values = self.widest([value for _, value, _ in node.entries])
        self.entries[id(node)] = Entry("map", keys, values)
        return total.plus(fixed(MAP))

    def struct(self, node: Struct) -> Steps[Range]:
        """A message literal."""
        total = fixed(STRUCT)
        for child in node.children():
            total = total.plus((yield child))
        return total

    def widest(self, nodes: Sequence[Node]) -> Range:
        """A size for all of the nodes."""
        found = Range(MOST if nodes else 0, 0)
        for node in nodes:
            found = found.union(self.size_or_unknown(node))
        return found

    def comprehension(self, node: Comprehension) -> Steps[Range]:
        """A loop."""
        total = (yield node.iter_range).plus((yield node.init))
        self.push(
            node.accu, _Local(self.path(node.init), self.size(node.init), self.entry(node.init))
        )
        entry = self.entry(node.iter_range)
        kind = entry.kind if entry is not None else (node.iter_range.type or types.DYN).kind
        is_list = kind == "list"
        key = _Local(
            self.extended(node.iter_range, "@indices" if is_list else "@keys"),
            entry.key if entry else None,
            None,
        )
        value = _Local(
            self.extended(node.iter_range, "@items" if is_list else "@values"),
            entry.value if entry else None,
            None,
        )
        if node.iter_var2:
            self.push(node.iter_var, key)
            self.push(node.iter_var2, value)
        else:
            self.push(node.iter_var, value if is_list else key)
        round_ = yield node.cond
        round_ = (yield node.step).plus(round_)
        self.pop(node.iter_var)
        if node.iter_var2:
            self.pop(node.iter_var2)
        total = total.plus((yield node.result))
        self.pop(node.accu)
        rounds = self.size_or_unknown(node.iter_range)
        total = total.plus(rounds.times(round_))
        if isinstance(node.init, Literal):
            self.set_size(node, self.size(node.init))
        else:
            self.sizes[id(node)] = rounds
            step_entry = self.entry(node.step)
            if step_entry is not None:
                self.entries[id(node)] = step_entry
        return total

    def bind(self, node: Comprehension) -> Steps[Range]:
        """A variable."""
        total = (yield node.iter_range).plus((yield node.init))
        self.push(
            node.accu, _Local(self.path(node.init), self.size(node.init), self.entry(node.init))
        )
        total = total.plus((yield node.result))
        self.pop(node.accu)
        self.copy_sizes(node, node.result)
        return total

    def push(self, name: str, local: _Local) -> None:
        """Open a scope."""
        self.locals.setdefault(name, []).append(local)

    def pop(self, name: str) -> None:
        """Close a scope."""
        self.locals[name].pop()

    def set_size(self, node: Node, size: Range | None) -> None:
        """Remember the size of a node's value."""
        if size is not None:
            self.sizes[id(node)] = size

    def copy_sizes(self, node: Node, source: Node) -> None:
        """A node has the value of another."""
        self.set_size(node, self.size(source))
        entry = self.entry(source)
        if entry is not None:
            self.entries[id(node)] = entry

    # --- calls

    def call(self, node: Call) -> Steps[Range]:
        """A call, over all overloads that it may turn out to be."""
        if node.function == "dyn":
            cost = yield node.args[0]
            self.copy_sizes(node, node.args[0])
            return cost.plus(ONE)
        arg_costs: list[Range] = []
        for arg in node.args:
            arg_costs.append((yield arg))  # noqa: PERF401  # a comprehension cannot yield
        args = [self.operand(arg) for arg in node.args]
        target: Operand | None = None
        total = ZERO
        if node.target is not None:
            total = yield node.target
            target = self.operand(node.target)
        cost = Range(MOST, 0)
        result: Range | None = None
        for overload in node.overloads:
            one = self.overload(node, overload, target, args, arg_costs)
            cost = cost.union(one.cost)
            if one.result is not None:
                result = one.result if result is None else result.union(one.result)
            if overload in ("index_list", "index_map"):
                entry = self.entry(node.args[0])
                result = entry.value if entry is not None else None
                self.add_path(
                    node,
                    self.extended(
                        node.args[0], "@items" if overload == "index_list" else "@values"
                    ),
                )
            if result is None:
                result = self.size(node)
        self.set_size(node, result)
        return total.plus(cost)

    def overload(
        self,
        node: Call,
        overload: str,
        target: Operand | None,
        args: list[Operand],
        arg_costs: list[Range],
    ) -> CallEstimate:
        """One overload, with its arguments."""
        if node.function in ("_&&_", "_||_"):
            return CallEstimate(
                Range(arg_costs[0].low, min(MOST, sum(cost.high for cost in arg_costs)))
            )
        if node.function == "_?_:_":
            entry = self.entry(node.args[1])
            joined = entry.union(self.entry(node.args[2])) if entry is not None else None
            if joined is not None:
                self.entries[id(node)] = joined
            size = self.size_or_unknown(node.args[1]).union(self.size_or_unknown(node.args[2]))
            return CallEstimate(arg_costs[0].plus(arg_costs[1].union(arg_costs[2])), size)
        if overload in ("add_string", "add_bytes", "add_list"):
            entry = self.entry(node.args[0])
            joined = entry.union(self.entry(node.args[1])) if entry is not None else None
            if joined is not None:
                self.entries[id(node)] = joined
        found = call_estimate(node.function, overload, target, args)
        total = found.cost
        for cost in arg_costs:
            total = total.plus(cost)
        return CallEstimate(total, found.result)


_COSTS: Final[dict[type[Node], Callable[[_Estimator, Any], Steps[Range]]]] = {
    Select: _Estimator.select,
    Call: _Estimator.call,
    ListNode: _Estimator.aggregate,
    MapNode: _Estimator.aggregate,
    Struct: _Estimator.struct,
    Comprehension: _Estimator.loop,
}


def _literal_size(node: Node) -> Range | None:
    if isinstance(node, Literal):
        return fixed(len(node.value)) if isinstance(node.value, str | bytes) else ONE
    if isinstance(node, ListNode):
        return fixed(len(node.elements))
    return fixed(len(node.entries)) if isinstance(node, MapNode) else None


def _is_scalar(type_: Type) -> bool:
    if type_.kind in ("bool", "double", "duration", "int", "timestamp", "uint"):
        return True
    return type_.name == types.OPTIONAL_NAME and _is_scalar(type_.params[0])
