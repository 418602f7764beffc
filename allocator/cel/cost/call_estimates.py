"""What a call may cost without its arguments, and how large its result may be.

Source: cel-go checker/cost.go, ext/{lists,sets}.go, k8s.io/apiserver/pkg/cel/library/cost.go (EstimateCallCost).
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from allocator.cel import types
from allocator.cel.cost.declared import Path, declared_size
from allocator.cel.cost.factors import AUTHORIZATION, LIST, REGEX, REQUIREMENTS, STRUCT, TRAVERSAL
from allocator.cel.cost.ranges import MOST, ONE, UNKNOWN, ZERO, Range, fixed
from allocator.cel.syntax.tree import (
    Literal,
    Node,
)
from allocator.cel.types import Type

_FORMAT_REGEX: Final = 128
_FORMAT_SIZE: Final = 64


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


_Rule = Callable[[str, Operand | None, list[Operand]], CallEstimate | None]


def _size(operand: Operand) -> Range:
    return operand.size or declared_size(operand.path) or UNKNOWN


def _scan(size: Range) -> Range:
    return size.scaled(TRAVERSAL)


def _walk(overload: str, target: Operand | None, _args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size = _size(target)
    if target.type.params:
        element = Operand(
            None, target.type.params[0], (*target.path, "@items") if target.path else None, None
        )
        cost = ONE
        if element.type.kind in ("string", "bytes"):
            cost = cost.plus(_scan(_size(element)))
        return CallEstimate(size.times(cost))
    return CallEstimate(size.times(ONE) if overload == "list_includes_dyn_dyn" else _scan(size))


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
    return CallEstimate(size.scaled(2 * TRAVERSAL), result)


def _split(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size = _size(target)
    most = size.high
    if len(args) > 1 and isinstance(args[1].node, Literal) and args[1].node.value.__class__ is int:
        most = args[1].node.value & MOST
    return CallEstimate(size.scaled(2 * TRAVERSAL), Range(0, most))


def _join(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    count = _size(target)
    size = ZERO
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
    cost = _scan(_size(target).plus(ONE)).times(_size(args[0]).scaled(REGEX))
    return CallEstimate(cost, Range(0, _size(target).high))


def _first_scan(
    _overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    return CallEstimate(_scan(_size(args[0]))) if args else None


def _ip(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(ONE) if overload == "cidr_ip" else _first_scan(overload, target, args)


def _twice_scan(
    _overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    return CallEstimate(_size(args[0]).scaled(2 * TRAVERSAL)) if args else None


_ADDRESS: Final = Range(4, 16)


def _contains_ip(
    overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    cost = _scan(_ADDRESS.plus(_ADDRESS))
    return CallEstimate(cost.plus(_scan(_size(args[0]))) if overload.endswith("_string") else cost)


def _contains_cidr(
    overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    cost = _scan(_ADDRESS.plus(_ADDRESS)).plus(_scan(_ADDRESS)).plus(ONE)
    return CallEstimate(cost.plus(_scan(_size(args[0]))) if overload.endswith("_string") else cost)


def _validate(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(_scan(_size(args[0])).scaled(_FORMAT_REGEX * REGEX))


def _nominal(_overload: str, _target: Operand | None, _args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(ONE)


def _equality(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    left, right = args
    if left.type != right.type:
        return None
    if left.type in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER):
        return CallEstimate(ONE)
    if left.type == types.FORMAT:
        return CallEstimate(_scan(Range(1, _FORMAT_SIZE)))
    if left.type == types.URL:
        high = right.size.high if right.size is not None else 1
        return CallEstimate(_scan(Range(1, high)))
    return None


def _authorization(
    _overload: str, _target: Operand | None, _args: list[Operand]
) -> CallEstimate | None:
    return CallEstimate(fixed(AUTHORIZATION))


def _selector(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    size = _size(args[0])
    requirements = size.scaled(REQUIREMENTS).scaled(float(LIST + STRUCT))
    return CallEstimate(fixed(LIST).plus(_scan(size)).plus(requirements))


_BY_FUNCTION: Final[dict[str, _Rule]] = {
    "check": _authorization,
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
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
    return CallEstimate(size.scaled(factor).plus(ONE).plus(fixed(LIST)), size)


def _slice(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    start, end = _whole(args[0], 0), _whole(args[1], _size(target).high)
    return _allocating(1, fixed((end - start) & MOST))


def _range(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return _allocating(1, fixed(_whole(args[0], MOST)))


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
    factor = 2.0 + (TRAVERSAL if "_string_" in overload or "_bytes_" in overload else 0)
    return _allocating(factor, size.times(size))


def _sets(factor: int) -> _Rule:
    def rule(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
        return CallEstimate(_size(args[0]).times(_size(args[1])).scaled(factor).plus(ONE))

    return rule


_KINDS: Final = (
    "int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string", "bytes",
)  # fmt: skip


def _quoted(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    size = args[0].size or UNKNOWN
    return CallEstimate(_scan(size), Range(min(MOST, size.low + 2), (size.high * 2 + 2) & MOST))


def _format(_overload: str, target: Operand | None, _args: list[Operand]) -> CallEstimate | None:
    return None if target is None else CallEstimate(_scan(target.size or UNKNOWN))


def _to_bytes(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    size = args[0].size or UNKNOWN
    return CallEstimate(_scan(size), Range(size.low, (size.high * 4) & MOST))


def _from_bytes(
    _overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    size = args[0].size or UNKNOWN
    return CallEstimate(_scan(size), Range(size.low // 4, size.high))


def _in_list(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate((args[1].size or UNKNOWN).scaled(1))


def _matches(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    text, pattern = (target, args[0]) if target is not None else (args[0], args[1])
    cost = _scan((text.size or UNKNOWN).plus(ONE)).times((pattern.size or UNKNOWN).scaled(REGEX))
    return CallEstimate(cost)


def _contains(_overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(_scan(target.size or UNKNOWN).times(_scan(args[0].size or UNKNOWN)))


def _concatenate(
    overload: str, _target: Operand | None, args: list[Operand]
) -> CallEstimate | None:
    size = (args[0].size or UNKNOWN).plus(args[1].size or UNKNOWN)
    return CallEstimate(ONE if overload == "add_list" else _scan(size), size)


def _compare(_overload: str, _target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    most = min((args[0].size or UNKNOWN).high, (args[1].size or UNKNOWN).high)
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


def call_estimate(
    function: str, overload: str, target: Operand | None, args: list[Operand]
) -> CallEstimate:
    """The first rule that applies: of the overload, of the function, the language's own, or 1."""
    for rule in (_BY_OVERLOAD.get(overload), _BY_FUNCTION.get(function), _BY_DEFAULT.get(overload)):
        if rule is not None:
            found = rule(overload, target, args)
            if found is not None:
                return found
    return CallEstimate(ONE)
