"""Checks of runtime types where the static types chose one of several overloads.

Static types can be wrong about a value: `x / x` with an unknown x is typed as a double, because that overload comes
first, and works on ints all the same. What is done with the result then finds no overload, as upstream.

Source: cel-go common/decls (matchesRuntimeSignature), common/types (IsAssignableRuntimeType).
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from allocator.cel import types
from allocator.cel.check.overloads import Overload, functions
from allocator.cel.library.formats import NamedFormat
from allocator.cel.library.network import CIDR, IP
from allocator.cel.library.urls import URL
from allocator.cel.syntax.tree import Call, ListNode, Literal, MapNode, Node, Select
from allocator.cel.types import Type
from allocator.cel.values.maps import DomainMap
from allocator.cel.values.names import no_such_overload
from allocator.cel.values.scalars import Duration, QuantityValue, Timestamp, UInt
from allocator.cel.values.semver import Semver

Method = Callable[..., object]
_Check = Callable[[Any], bool]

# Functions that upstream binds to one piece of code for all overloads, which does its own checks.
UNGUARDED: Final = frozenset(
    {"_+_", "_-_", "_*_", "_/_", "_%_", "_<_", "_<=_", "_>_", "_>=_", "@in", "-_", "!_", "size", "type", "dyn",
     "matches", "sort", "@sortByAssociatedKeys", "flatten"}
)  # fmt: skip
_ARITHMETIC: Final = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_", "-_"})
_CLASSES: Final[dict[Type, type]] = {
    types.BOOL: bool,
    types.INT: int,
    types.UINT: UInt,
    types.DOUBLE: float,
    types.STRING: str,
    types.BYTES: bytes,
    types.DURATION: Duration,
    types.TIMESTAMP: Timestamp,
    types.QUANTITY: QuantityValue,
    types.SEMVER: Semver,
    types.URL: URL,
    types.FORMAT: NamedFormat,
    types.IP: IP,
    types.CIDR: CIDR,
}


def guarded(node: Call, method: Method) -> Method:
    """The method, behind checks if its arguments may not be of the overload's types."""
    if len(node.overloads) != 1 or node.overloads[0] not in _choices():
        return method
    args = node.children()
    if all(map(_is_certain, args)):
        return method
    overload = _choices()[node.overloads[0]]
    return _guard(node.function, method, [_check(type_) for type_ in overload.args])


@cache
def _choices() -> dict[str, Overload]:
    """Overloads that have another one with as many arguments beside them."""
    found: dict[str, Overload] = {}
    for name, overloads in functions().items():
        if name in UNGUARDED:
            continue
        for overload in overloads:
            like = [
                other
                for other in overloads
                if other.member == overload.member and len(other.args) == len(overload.args)
            ]
            if len(like) > 1:
                found[overload.id] = overload
    return found


def _is_certain(node: Node) -> bool:
    """Whether a value is of its static type for sure."""
    if isinstance(node, Literal):
        return True
    if isinstance(node, ListNode | MapNode):
        return all(map(_is_certain, node.children()))
    if isinstance(node, Select):
        return _is_declared(node.operand.type) or node.type == types.QUANTITY
    if isinstance(node, Call) and len(node.overloads) == 1:
        if node.function in _ARITHMETIC and not all(map(_is_certain, node.children())):
            return False  # what it makes depends on what it gets
        for overload in functions().get(node.function, ()):
            if overload.id == node.overloads[0]:
                return overload.result in _CLASSES
    return False


def _is_declared(type_: Type | None) -> bool:
    return type_ == types.DEVICE


def _check(type_: Type) -> _Check | None:
    """Whether a value may be passed for a parameter of this type; None if any may."""
    cls = _CLASSES.get(type_)
    if cls is not None:
        return lambda value: value.__class__ is cls
    if type_.kind == "list":
        element = _check(type_.params[0])
        if element is None:
            return lambda value: value.__class__ is list
        # As upstream, by the first element only.
        return lambda value: value.__class__ is list and (not value or element(value[0]))
    if type_.kind == "map":
        return lambda value: value.__class__ is dict or value.__class__ is DomainMap
    return None


def _guard(function: str, method: Method, checks: Sequence[_Check | None]) -> Method:
    def run(*args: Any) -> object:
        for check, arg in zip(checks, args, strict=False):
            if check is not None and not check(arg):
                raise no_such_overload(function, *args)
        return method(*args)

    return run
