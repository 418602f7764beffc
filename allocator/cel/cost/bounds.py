"""The most that evaluating an expression can cost on a device within the API's limits.

Counting makes an evaluation three times as slow, so it is done only where this bound exceeds the limit, or where a
device is larger than the API server admits. The bound is coarse: it never has to be exact, only never too low.
"""

import math
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

from allocator.cel import types
from allocator.cel.cost.factors import LIST, MAP
from allocator.cel.syntax.tree import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Name,
    Node,
    Select,
    Variable,
)
from allocator.cel.syntax.walk import Steps, walk
from allocator.cel.types import SCALARS

# Source: k8s.io/api/resource/v1 (DeviceAttributeMaxValueLength and the like), rounded up.
MAX_TEXT: Final = 64
MAX_ELEMENTS: Final = 64
MAX_NAMES: Final = 64

_ROUND: Final = 16  # the dearest round of a macro, without the user's own parts
_REGEX_OF_FORMAT: Final = 1103 / 4
_UNKNOWN: Final = math.inf


class Size(NamedTuple):
    """An upper bound of a value's size.

    Attributes:
        length: characters, bytes, elements or entries; 1 for scalars.
        element: the same for elements or for keys and values, whichever are larger.
    """

    length: float
    element: "Size | None" = None

    @property
    def total(self) -> float:
        """Cost of walking all of it."""
        return self.length * (1 + (self.element.total if self.element is not None else 0))

    def joined(self, other: "Size") -> "Size":
        """Large enough for either."""
        element = self.element if other.element is None else other.element
        if self.element is not None and other.element is not None:
            element = self.element.joined(other.element)
        return Size(max(self.length, other.length), element)


_ONE: Final = Size(1)
_TEXT: Final = Size(MAX_TEXT)
_ENDLESS: Final = Size(_UNKNOWN)
_ATTRIBUTE: Final = Size(MAX_ELEMENTS, _TEXT)
_DOMAIN: Final = Size(MAX_NAMES, _ATTRIBUTE)
_FIELDS: Final = {
    "driver": _TEXT,
    "allowMultipleAllocations": _ONE,
    "attributes": Size(MAX_NAMES, _DOMAIN),
    "capacity": Size(MAX_NAMES, Size(MAX_NAMES, _TEXT)),
}

# Functions whose cost or result outgrows the sizes of their arguments.
_GROWING: Final = frozenset(
    {"lists.range", "replace", "split", "join", "sort", "@sortByAssociatedKeys", "distinct", "findAll", "flatten", "format",
     "sets.contains", "sets.equivalent", "sets.intersects", "getQuery", "getEscapedPath", "strings.quote"}
)  # fmt: skip
_PATTERNS: Final = frozenset({"matches", "find"})
_SMALL: Final = frozenset({"quantity", "semver", "ip", "cidr", "url", "type"})
_CONVERTED: Final = 64  # the longest text of a number, duration, time, address or block


def _first(sizes: list[Size]) -> Size:
    return sizes[0]


def _element(sizes: list[Size]) -> Size:
    return sizes[0].element or _ENDLESS


def _picked(sizes: list[Size]) -> Size:
    return sizes[0].element or sizes[0]


def _larger(sizes: list[Size]) -> Size:
    return sizes[-2].joined(sizes[-1])


def _sum(sizes: list[Size]) -> Size:
    return sizes[0].joined(sizes[1])._replace(length=sizes[0].length + sizes[1].length)


def _text(sizes: list[Size]) -> Size:
    return Size(max(sizes[0].length * 4, _CONVERTED))


# Functions whose result is bounded by the sizes of their arguments.
_RESULTS: Final[dict[str, Callable[[list[Size]], Size]]] = {
    **dict.fromkeys(("_?_:_", "or", "orValue"), _larger),
    **dict.fromkeys(("_[_]", "_[?_]", "_?._"), _element),
    "_+_": _sum,
    **dict.fromkeys(
        ("lowerAscii", "upperAscii", "trim", "substring", "charAt", "find", "slice", "reverse", "dyn", "value",
         "optional.of", "optional.ofNonZeroValue", "getHost", "getHostname", "getScheme", "getPort"),
        _first,
    ),
    **dict.fromkeys(("first", "last", "min", "max"), _picked),
    **dict.fromkeys(("string", "bytes"), _text),
}  # fmt: skip


class Bound(NamedTuple):
    """Upper bounds of a node: what it costs, and how large its value is."""

    cost: float
    size: Size


def cost_bound(root: Node) -> float:
    """An upper bound of the cost, infinite if there is none to be seen."""
    return walk(root, _Bounds().visit).cost


class _Bounds:
    """One computation; a node that a macro uses twice is looked at once, and counts twice."""

    def __init__(self) -> None:
        self.known: dict[int, Bound] = {}
        self.variables: dict[int, Size] = {}

    def visit(self, node: Node) -> "Bound | Steps[Bound]":
        """The bounds of a node."""
        if isinstance(node, Literal):
            return Bound(0, Size(len(node.value)) if isinstance(node.value, str | bytes) else _ONE)
        if isinstance(node, Ident):
            return Bound(1, self.variable(node))
        compute = _BOUNDS.get(node.__class__)
        if compute is None:
            return Bound(_UNKNOWN, _ENDLESS)
        return self.known.get(id(node)) or self.kept(node, compute(self, node))

    def kept(self, node: Node, steps: Steps[Bound]) -> Steps[Bound]:
        """The same, computed and remembered."""
        bound = self.known[id(node)] = yield from steps
        return bound

    def variable(self, node: Ident) -> Size:
        """The size of what a name stands for."""
        if isinstance(node.binding, Variable):
            return self.variables.get(id(node.binding), _ENDLESS)
        return _ONE if isinstance(node.binding, Name) else Size(len(_FIELDS), _FIELDS["attributes"])

    def select(self, node: Select) -> Steps[Bound]:
        """A field."""
        if node.binding is not None:
            return Bound(0, _ONE)
        operand = yield node.operand
        if node.test:
            return Bound(operand.cost + 2, _ONE)
        if node.operand.type == types.DEVICE:
            return Bound(operand.cost + 2, _FIELDS[node.field])
        return Bound(operand.cost + 2, operand.size.element or _ENDLESS)

    def aggregate(self, node: ListNode | MapNode) -> Steps[Bound]:
        """A list or map literal."""
        parts = yield from _each(node.children())
        element = _ONE
        for part in parts:
            element = element.joined(part.size)
        cost = (LIST if isinstance(node, ListNode) else MAP) + sum(part.cost for part in parts)
        count = len(parts) if isinstance(node, ListNode) else len(parts) // 2
        return Bound(cost, Size(count, element))

    def call(self, node: Call) -> Steps[Bound]:
        """A call: what its arguments cost, and what it costs itself."""
        args = yield from _each(node.children())
        function = node.function
        if function in _GROWING:
            return Bound(_UNKNOWN, _ENDLESS)
        cost = sum(arg.cost for arg in args) + 2
        sizes = [arg.size for arg in args]
        if function == "contains":
            cost += (sizes[0].length / 10 + 1) * (sizes[1].length / 10 + 1)
        elif function in _PATTERNS:
            cost += (sizes[0].length / 10 + 2) * (sizes[1].length / 4 + 1)
        elif function == "validate":
            cost += (sizes[1].length / 10 + 2) * (_REGEX_OF_FORMAT + 1)
        elif function not in ("_&&_", "_||_", "_?_:_", "_[_]", "_[?_]", "_?._", "or", "orValue"):
            cost += sum(size.total for size in sizes) + 8
        return Bound(cost, self.result(node, sizes))

    @staticmethod
    def result(node: Call, sizes: list[Size]) -> Size:
        """The size of a call's result."""
        function = node.function
        combine = _RESULTS.get(function)
        if combine is not None:
            return combine(sizes)
        scalar = node.type is not None and node.type.kind in SCALARS and node.type != types.STRING
        return _ONE if scalar or function in _SMALL or not sizes else _ENDLESS

    def comprehension(self, node: Comprehension) -> Steps[Bound]:
        """A macro: so many rounds of its parts."""
        if node.variables is None:
            return Bound(_UNKNOWN, _ENDLESS)
        accu, first, second = node.variables
        if node.macro == "bind":
            init = yield node.init
            self.variables[id(accu)] = init.size
            body = yield node.result
            return Bound(init.cost + body.cost, body.size)
        iterated = yield node.iter_range
        element = iterated.size.element or _ENDLESS
        self.variables[id(first)] = element.joined(_TEXT)
        if second is not None:
            self.variables[id(second)] = element
        parts = yield from _each(node.parts)
        rounds = iterated.size.length
        cost = iterated.cost + 2 + rounds * (_ROUND + sum(part.cost for part in parts))
        if node.macro == "map":
            return Bound(cost, Size(rounds, parts[-1].size))
        if node.macro == "filter":
            return Bound(cost, iterated.size)
        if node.macro in ("all", "exists", "exists_one"):
            return Bound(cost, _ONE)
        return Bound(_UNKNOWN, _ENDLESS)


def _each(nodes: Iterable[Node]) -> Generator[Node, Bound, list[Bound]]:
    found: list[Bound] = []
    for node in nodes:
        found.append((yield node))  # noqa: PERF401  # a comprehension cannot yield
    return found


_BOUNDS: Final[dict[type[Node], Callable[[_Bounds, Any], Steps[Bound]]]] = {
    Select: _Bounds.select,
    Call: _Bounds.call,
    ListNode: _Bounds.aggregate,
    MapNode: _Bounds.aggregate,
    Comprehension: _Bounds.comprehension,
}
