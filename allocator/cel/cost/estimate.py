"""The cost estimate that the API server puts on a new expression: the most it could cost on any device.

Source: cel-go checker/cost.go, ext/{lists,sets}.go, k8s.io/apiserver/pkg/cel/library/cost.go (EstimateCallCost) and
the sizes of k8s.io/dynamic-resource-allocation/cel. Estimates are pairs of unsigned 64-bit numbers that saturate.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from allocator.cel import types
from allocator.cel.syntax.tree import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)
from allocator.cel.types import Type

MOST: Final = 2**64 - 1
_TRAVERSAL: Final = 0.1
_REGEX: Final = 0.25
_LIST, _MAP = 10, 30
_FORMAT_REGEX: Final = 128
_FORMAT_SIZE: Final = 64


class Range(NamedTuple):
    """A size or cost from `low` to `high`."""

    low: int
    high: int

    def plus(self, other: "Range") -> "Range":
        """The sum."""
        return Range(min(MOST, self.low + other.low), min(MOST, self.high + other.high))

    def times(self, other: "Range") -> "Range":
        """The product."""
        return Range(min(MOST, self.low * other.low), min(MOST, self.high * other.high))

    def scaled(self, factor: float) -> "Range":
        """The product with a factor, rounded up."""
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: "Range") -> "Range":
        """Both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def _scaled(value: int, factor: float) -> int:
    product = float(value) * factor
    return MOST if product >= 2.0**64 else min(MOST, math.ceil(product))


def _fixed(value: int) -> Range:
    return Range(value, value)


_ZERO: Final = Range(0, 0)
_ONE: Final = Range(1, 1)
_UNKNOWN: Final = Range(0, MOST)


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


Path = tuple[str, ...]

# What the device declares: path -> largest size.
_SIZES: Final[dict[Path, int]] = {
    ("device",): 0,
    ("device", "driver"): 63,
    ("device", "allowMultipleAllocations"): 1,
    ("device", "attributes"): 32,
    ("device", "attributes", "@keys"): 63,
    ("device", "attributes", "@values"): 32,
    ("device", "attributes", "@values", "@keys"): 32,
    ("device", "attributes", "@values", "@values"): 64,
    ("device", "capacity"): 32,
    ("device", "capacity", "@keys"): 63,
    ("device", "capacity", "@values"): 32,
    ("device", "capacity", "@values", "@keys"): 32,
    ("device", "capacity", "@values", "@values"): 0,
}
_INNER_ATTRIBUTES: Final = ("device", "attributes", "@values")


def declared_size(path: Path | None) -> Range | None:
    """The size of what a path of the device leads to, or None if it is not declared."""
    if not path or path[0] != "device":
        return None
    known: Path = ("device",)
    for name in path[1:]:
        step = "@values" if name == "@items" else name
        following = (*known, step)
        if following not in _SIZES:
            # The values of one domain's attributes have a declared size whatever their name; nothing else has.
            if known != _INNER_ATTRIBUTES:
                return None
            following = (*known, "@values")
        known = following
    return Range(0, _SIZES[known])


class Operand(NamedTuple):
    """An argument as the rules see it."""

    node: Node | None
    type: Type
    path: Path | None
    size: Range | None


class CallEstimate(NamedTuple):
    """What a call costs without its arguments, and the size of its result if it is known."""

    cost: Range
    result: Range | None = None


def estimate(root: Node) -> Range:
    """The least and the most that evaluating an expression can cost."""
    return _Estimator().cost(root)


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

    def cost(self, node: Node) -> Range:
        """The cost of a node; one that a macro uses twice costs twice and is looked at once."""
        found = self.known.get(id(node))
        if found is None:
            compute = _COSTS.get(node.__class__)
            found = self.known[id(node)] = _ZERO if compute is None else compute(self, node)
        return found

    def ident(self, node: Ident) -> Range:
        """A name."""
        local = self.local(node)
        self.add_path(node, local.path if local is not None else (node.name.removeprefix("."),))
        return _ONE

    def loop(self, node: Comprehension) -> Range:
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
            return _ONE
        local = self.local(node)
        return local.size if local is not None else None

    def size_or_unknown(self, node: Node) -> Range:
        """The same, or anything."""
        return self.size(node) or _UNKNOWN

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

    def select(self, node: Select) -> Range:
        """A field."""
        if node.binding is not None:
            return _ONE
        operand = self.cost(node.operand)
        if node.test:
            return operand
        kind = (node.operand.type or types.DYN).kind
        self.add_path(node, self.extended(node.operand, node.field))
        return operand.plus(_ONE) if kind in ("map", "struct", "param") else operand

    def aggregate(self, node: ListNode | MapNode) -> Range:
        """A list or map literal."""
        total = _ZERO
        for child in node.children():
            total = total.plus(self.cost(child))
        if isinstance(node, ListNode):
            self.entries[id(node)] = Entry("list", _ONE, self.widest(node.elements))
            return total.plus(_fixed(_LIST))
        keys = self.widest([key for key, _, _ in node.entries])
        values = self.widest([value for _, value, _ in node.entries])
        self.entries[id(node)] = Entry("map", keys, values)
        return total.plus(_fixed(_MAP))

    def widest(self, nodes: Sequence[Node]) -> Range:
        """A size for all of the nodes."""
        found = Range(MOST if nodes else 0, 0)
        for node in nodes:
            found = found.union(self.size_or_unknown(node))
        return found

    def comprehension(self, node: Comprehension) -> Range:
        """A loop."""
        total = self.cost(node.iter_range).plus(self.cost(node.init))
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
        round_ = self.cost(node.cond)
        round_ = self.cost(node.step).plus(round_)
        self.pop(node.iter_var)
        if node.iter_var2:
            self.pop(node.iter_var2)
        total = total.plus(self.cost(node.result))
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

    def bind(self, node: Comprehension) -> Range:
        """A variable."""
        total = self.cost(node.iter_range).plus(self.cost(node.init))
        self.push(
            node.accu, _Local(self.path(node.init), self.size(node.init), self.entry(node.init))
        )
        total = total.plus(self.cost(node.result))
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

    def call(self, node: Call) -> Range:
        """A call, over all overloads that it may turn out to be."""
        if node.function == "dyn":
            cost = self.cost(node.args[0])
            self.copy_sizes(node, node.args[0])
            return cost.plus(_ONE)
        arg_costs: list[Range] = []
        for arg in node.args:
            # No comprehension: it would take a frame of its own at every level.
            arg_costs.append(self.cost(arg))  # noqa: PERF401
        args = [self.operand(arg) for arg in node.args]
        target: Operand | None = None
        total = _ZERO
        if node.target is not None:
            total = self.cost(node.target)
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
        found = _rule(node.function, overload, target, args)
        total = found.cost
        for cost in arg_costs:
            total = total.plus(cost)
        return CallEstimate(total, found.result)


_COSTS: Final[dict[type[Node], Callable[[_Estimator, Any], Range]]] = {
    Ident: _Estimator.ident,
    Select: _Estimator.select,
    Call: _Estimator.call,
    ListNode: _Estimator.aggregate,
    MapNode: _Estimator.aggregate,
    Comprehension: _Estimator.loop,
}


def _literal_size(node: Node) -> Range | None:
    if isinstance(node, Literal):
        return _fixed(len(node.value)) if isinstance(node.value, str | bytes) else _ONE
    if isinstance(node, ListNode):
        return _fixed(len(node.elements))
    return _fixed(len(node.entries)) if isinstance(node, MapNode) else None


def _is_scalar(type_: Type) -> bool:
    if type_.kind in ("bool", "double", "duration", "int", "timestamp", "uint"):
        return True
    return type_.name == types.OPTIONAL_NAME and _is_scalar(type_.params[0])


# --- rules of functions

_Rule = Callable[[str, Operand | None, list[Operand]], CallEstimate | None]


def _size(operand: Operand) -> Range:
    return operand.size or declared_size(operand.path) or _UNKNOWN


def _scan(size: Range) -> Range:
    return size.scaled(_TRAVERSAL)


def _walk(overload: str, target: Operand | None, _args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size = _size(target)
    if target.type.params:
        element = Operand(
            None, target.type.params[0], (*target.path, "@items") if target.path else None, None
        )
        cost = _ONE
        if element.type.kind in ("string", "bytes"):
            cost = cost.plus(_scan(_size(element)))
        return CallEstimate(size.times(cost))
    return CallEstimate(size.times(_ONE) if overload == "list_includes_dyn_dyn" else _scan(size))


def _url(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(_scan(_size(args[0])), _size(args[0])) if len(args) == 1 else None


def _same_size(_overload: str, target: Operand | None, _args: list[Operand]) -> CallEstimate | None:
    return None if target is None else CallEstimate(_scan(_size(target)), _size(target))


def _replace(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = _size(target), _size(args[0]), _size(args[1])
    if old.low == 0:
        most, kept_most = min(MOST, size.high + 1), size.high
    elif new.high <= old.low:
        most, kept_most = 0, size.high
    else:
        most, kept_most = min(MOST, math.ceil(float(size.high) / float(old.low))), 0
    if old.high == 0:
        least, kept_least = min(MOST, size.low + 1), size.low
    elif old.high <= new.low:
        least, kept_least = 0, size.low
    else:
        least, kept_least = math.ceil(float(size.low) / float(old.high)), 0
    result = Range(least, most).times(new).plus(Range(kept_least, kept_most))
    return CallEstimate(size.scaled(2 * _TRAVERSAL), result)


def _split(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size = _size(target)
    most = size.high
    if len(args) > 1 and isinstance(args[1].node, Literal) and args[1].node.value.__class__ is int:
        most = args[1].node.value & MOST
    return CallEstimate(size.scaled(2 * _TRAVERSAL), Range(0, most))


def _join(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    count = _size(target)
    size = _ZERO
    if target.type.params:
        element = Operand(
            None, target.type.params[0], (*target.path, "@items") if target.path else None, None
        )
        size = count.times(_size(element))
    if args:
        separators = Range(max(0, count.low - 1), max(0, count.high - 1))
        size = size.plus(_size(args[0]).times(separators))
    return CallEstimate(_scan(size), size)


def _find(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None or not args:
        return None
    cost = _scan(_size(target).plus(_ONE)).times(_size(args[0]).scaled(_REGEX))
    return CallEstimate(cost, Range(0, _size(target).high))


def _first_scan(
    _overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    return CallEstimate(_scan(_size(args[0]))) if args else None


def _ip(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(_ONE) if overload == "cidr_ip" else _first_scan(overload, target, args)


def _twice_scan(
    _overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    return CallEstimate(_size(args[0]).scaled(2 * _TRAVERSAL)) if args else None


_ADDRESS: Final = Range(4, 16)


def _contains_ip(
    overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    cost = _scan(_ADDRESS.plus(_ADDRESS))
    return CallEstimate(cost.plus(_scan(_size(args[0]))) if overload.endswith("_string") else cost)


def _contains_cidr(
    overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    cost = _scan(_ADDRESS.plus(_ADDRESS)).plus(_scan(_ADDRESS)).plus(_ONE)
    return CallEstimate(cost.plus(_scan(_size(args[0]))) if overload.endswith("_string") else cost)


def _validate(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(_scan(_size(args[0])).scaled(_FORMAT_REGEX * _REGEX))


def _nominal(_overload: str, _target: Operand | None, _args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(_ONE)


def _equality(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    left, right = args
    if left.type != right.type:
        return None
    if left.type in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER):
        return CallEstimate(_ONE)
    if left.type == types.FORMAT:
        return CallEstimate(_scan(Range(1, _FORMAT_SIZE)))
    if left.type == types.URL:
        high = right.size.high if right.size is not None else 1
        return CallEstimate(_scan(Range(1, high)))
    return None


_BY_FUNCTION: Final[dict[str, _Rule]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _walk),
    "url": _url,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _same_size),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _first_scan),
    "ip": _ip,
    "ip.isCanonical": _twice_scan,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equality,
    **dict.fromkeys(
        (
            "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast",
            "isLinkLocalUnicast", "isGlobalUnicast", "format.named", "sign", "asInteger", "isInteger",
            "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major", "minor", "patch",
            "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery",
        ),
        _nominal,
    ),
}  # fmt: skip


def _whole(operand: Operand, default: int) -> int:
    value = operand.node.value if isinstance(operand.node, Literal) else None
    return max(0, value) if value.__class__ is int else default


def _allocating(factor: float, size: Range) -> CallEstimate:
    return CallEstimate(size.scaled(factor).plus(_ONE).plus(_fixed(_LIST)), size)


def _slice(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    start, end = _whole(args[0], 0), _whole(args[1], _size(target).high)
    return _allocating(1, _fixed((end - start) & MOST))


def _range(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return _allocating(1, _fixed(_whole(args[0], MOST)))


def _reverse(_overload: str, target: Operand | None, _args: list[Operand]) -> CallEstimate | None:
    return None if target is None else _allocating(1, _size(target))


def _flatten(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return _allocating(float(_whole(args[0], MOST)) if args else 1.0, _size(target))


def _distinct(_overload: str, target: Operand | None, _args: list[Operand]) -> CallEstimate | None:
    return None if target is None else _allocating(2.0, _size(target).times(_size(target)))


def _sort(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size = _size(args[0] if args else target)
    factor = 2.0 + (_TRAVERSAL if "_string_" in overload or "_bytes_" in overload else 0)
    return _allocating(factor, size.times(size))


def _sets(factor: int) -> _Rule:
    def rule(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
        return CallEstimate(_size(args[0]).times(_size(args[1])).scaled(factor).plus(_ONE))

    return rule


_KINDS: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")


def _quoted(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    size = args[0].size or _UNKNOWN
    return CallEstimate(_scan(size), Range(min(MOST, size.low + 2), (size.high * 2 + 2) & MOST))


def _format(_overload: str, target: Operand | None, _args: list[Operand]) -> CallEstimate | None:
    return None if target is None else CallEstimate(_scan(target.size or _UNKNOWN))


def _to_bytes(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    size = args[0].size or _UNKNOWN
    return CallEstimate(_scan(size), Range(size.low, (size.high * 4) & MOST))


def _from_bytes(
    _overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    size = args[0].size or _UNKNOWN
    return CallEstimate(_scan(size), Range(size.low // 4, size.high))


def _in_list(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate((args[1].size or _UNKNOWN).scaled(1))


def _matches(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    text, pattern = (target, args[0]) if target is not None else (args[0], args[1])
    cost = _scan((text.size or _UNKNOWN).plus(_ONE)).times(
        (pattern.size or _UNKNOWN).scaled(_REGEX)
    )
    return CallEstimate(cost)


def _contains(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(_scan(target.size or _UNKNOWN).times(_scan(args[0].size or _UNKNOWN)))


def _concatenate(
    overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    size = (args[0].size or _UNKNOWN).plus(args[1].size or _UNKNOWN)
    return CallEstimate(_ONE if overload == "add_list" else _scan(size), size)


def _compare(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    most = min((args[0].size or _UNKNOWN).high, (args[1].size or _UNKNOWN).high)
    return CallEstimate(_scan(Range(1 if most else 0, most)))


_BY_OVERLOAD: Final[dict[str, _Rule]] = {
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_distinct": _distinct,
    **{f"list_{kind}_sort": _sort for kind in _KINDS},
    **{f"list_{kind}_sortByAssociatedKeys": _sort for kind in _KINDS},
}
_BY_DEFAULT: Final[dict[str, _Rule]] = {
    "string_format": _format,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _from_bytes,
    "strings_quote": _quoted,
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _first_scan),
    "in_list": _in_list,
    **dict.fromkeys(("matches", "matches_string"), _matches),
    "contains_string": _contains,
    **dict.fromkeys(("add_string", "add_bytes", "add_list"), _concatenate),
    **{
        f"{order}_{kind}": _compare
        for order in ("less", "greater", "less_equals", "greater_equals")
        for kind in ("string", "bytes")
    },
    "equals": _compare,
    "not_equals": _compare,
}


def _rule(
    function: str, overload: str, target: Operand | None, args: list[Operand]
) -> CallEstimate:
    """The first rule that applies: of the overload, of the function, the language's own, or 1."""
    for rule in (_BY_OVERLOAD.get(overload), _BY_FUNCTION.get(function), _BY_DEFAULT.get(overload)):
        if rule is not None:
            found = rule(overload, target, args)
            if found is not None:
                return found
    return CallEstimate(_ONE)
