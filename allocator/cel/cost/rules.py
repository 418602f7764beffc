"""What a call costs when it is evaluated, by upstream's rules.

Source: cel-go interpreter/runtimecost.go, ext/{lists,sets}.go, k8s.io/apiserver/pkg/cel/library/cost.go. Where a rule
rounds a product of a factor and a size up, the same floating point operations are used here.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from allocator.cel.cost.factors import AUTHORIZATION, LIST, REGEX, REQUIREMENTS, STRUCT, TRAVERSAL
from allocator.cel.library.formats import NamedFormat
from allocator.cel.library.network import CIDR, IP
from allocator.cel.library.urls import URL
from allocator.cel.values.limits import Stopped, kind_of
from allocator.cel.values.maps import DomainMap, unmap_key
from allocator.cel.values.scalars import Optional, QuantityValue
from allocator.cel.values.semver import Semver

CostRule = Callable[[Sequence[Any], Any], int]


class Failed:
    """Stands for an argument that failed, where a cost depends on arguments."""


FAILED: Final = Failed()
_SIZED: Final = frozenset({str, bytes, list, dict, DomainMap})


def size_of(value: Any) -> int:
    """Size of a value: characters, bytes, elements, entries; 1 for scalars."""
    cls = value.__class__
    if cls in _SIZED:
        return len(value)
    if cls is IP or cls is CIDR:
        return value.size  # type: ignore[no-any-return]
    if cls is Optional and value.present:
        return size_of(value.value)
    return 1


def _plain_size(value: Any) -> int:
    """The same in the library's own rules, which do not look into optionals."""
    return 1 if value.__class__ is Optional else size_of(value)


def _scan(size: float) -> int:
    return math.ceil(size * TRAVERSAL)


def _traversal(value: Any) -> int:
    """Cost of walking a value; only texts and collections count by size."""
    cls = value.__class__
    if cls is str:
        return int(len(value.encode("utf-8", "surrogatepass")) * TRAVERSAL)
    if cls is bytes:
        return int(len(value) * TRAVERSAL)
    if cls is list:
        kind = kind_of(value)
        if kind is not None and kind not in _SIZED:
            return len(value)
        return sum(map(_traversal, value))
    if cls is dict or cls is DomainMap:
        return sum(_traversal(unmap_key(key)) + _traversal(member) for key, member in value.items())
    return 1


def _one(_args: Sequence[Any], _result: Any) -> int:
    return 1


def _first_scan(args: Sequence[Any], _result: Any) -> int:
    return _scan(_plain_size(args[0]))


def _first_scan_twice(args: Sequence[Any], _result: Any) -> int:
    return math.ceil(_plain_size(args[0]) * 2 * TRAVERSAL)


def _walk_first(args: Sequence[Any], _result: Any) -> int:
    return _traversal(args[0])


def _join(_args: Sequence[Any], result: Any) -> int:
    return math.ceil(_plain_size(result) * 2 * TRAVERSAL)


def _regex(args: Sequence[Any], _result: Any) -> int:
    return _scan(1.0 + size_of(args[0])) * math.ceil(size_of(args[1]) * REGEX)


def _contains_ip(args: Sequence[Any], _result: Any) -> int:
    size = _plain_size(args[0])
    return math.ceil((size + size) * TRAVERSAL)


def _contains_ip_text(args: Sequence[Any], result: Any) -> int:
    return _contains_ip(args, result) + _scan(_plain_size(args[1]))


def _contains_cidr(args: Sequence[Any], result: Any) -> int:
    return _contains_ip(args, result) + _scan(_plain_size(args[0])) + 1


def _contains_cidr_text(args: Sequence[Any], result: Any) -> int:
    return _contains_cidr(args, result) + _scan(_plain_size(args[1]))


def _validate(args: Sequence[Any], _result: Any) -> int:
    if args[0].__class__ is not NamedFormat:
        return 1
    return _scan(1.0 + _plain_size(args[1])) * math.ceil(args[0].regex_size * REGEX)


def _second_scan(args: Sequence[Any], _result: Any) -> int:
    return _scan(size_of(args[1]))


def _quoted_scan(args: Sequence[Any], _result: Any) -> int:
    return _scan(size_of(args[0]))


def _second_size(args: Sequence[Any], _result: Any) -> int:
    return size_of(args[1])


def _shorter(args: Sequence[Any], _result: Any) -> int:
    return _scan(min(size_of(args[0]), size_of(args[1])))


def _equality(args: Sequence[Any], result: Any) -> int:
    if args[0].__class__ in _FLAT:
        return 1
    return _shorter(args, result)


_FLAT: Final = frozenset({QuantityValue, IP, CIDR, NamedFormat, URL, Semver})


def _both_scan(args: Sequence[Any], _result: Any) -> int:
    return _scan(size_of(args[0]) + size_of(args[1]))


def _product_scan(args: Sequence[Any], _result: Any) -> int:
    return _scan(size_of(args[0])) * _scan(size_of(args[1]))


def _allocating(factor: float, size: int) -> int:
    return int(size * (factor if factor >= 0 else 1.0)) + 1 + LIST


def _result_size(_args: Sequence[Any], result: Any) -> int:
    return _allocating(1, size_of(result))


def _flatten(args: Sequence[Any], _result: Any) -> int:
    depth = 1.0
    if len(args) == 2:
        if args[1].__class__ is not int:
            raise Stopped("internal error: interface conversion: the depth is not types.Int")
        depth = float(args[1])
    return _allocating(depth, size_of(args[0]))


def _self_compare(value: Any) -> int:
    """The square of a list. Upstream's rule cannot take anything else, and ends the evaluation over it."""
    if value.__class__ is not list:
        raise Stopped("internal error: interface conversion: the argument is not traits.Lister")
    size = len(value)
    factor = 2.0
    if value and value[0].__class__ in (str, bytes):
        factor += TRAVERSAL
    return _allocating(factor, size * size)


def _sorted(args: Sequence[Any], _result: Any) -> int:
    return _self_compare(args[0])


def _sorted_by(args: Sequence[Any], _result: Any) -> int:
    return _self_compare(args[1])


def _sets(factor: int) -> CostRule:
    return lambda args, _result: 1 + size_of(args[0]) * size_of(args[1]) * factor


_BY_OVERLOAD: Final[dict[str, CostRule]] = {
    # Parsing the text counts only where the static types say that it is one.
    "cidr_contains_ip_string": _contains_ip_text,
    "cidr_contains_cidr_string": _contains_cidr_text,
    "cidr_ip": _one,
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "list_slice": _result_size,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _result_size,
    "list_reverse": _result_size,
    "list_distinct": _sorted,
    **{
        f"list_{kind}_sort": _sorted
        for kind in [
            "int",
            "uint",
            "double",
            "bool",
            "google.protobuf.Duration",
            "google.protobuf.Timestamp",
            "string",
            "bytes",
        ]
    },
    **{
        f"list_{kind}_sortByAssociatedKeys": _sorted_by
        for kind in [
            "int",
            "uint",
            "double",
            "bool",
            "google.protobuf.Duration",
            "google.protobuf.Timestamp",
            "string",
            "bytes",
        ]
    },
}


def _authorization(_args: Sequence[Any], _result: Any) -> int:
    return AUTHORIZATION


def _selector(args: Sequence[Any], _result: Any) -> int:
    size = _plain_size(args[1])
    return LIST + _scan(size) + math.ceil(math.ceil(size * REQUIREMENTS) * float(LIST + STRUCT))


_BY_FUNCTION: Final[dict[str, CostRule]] = {
    "check": _authorization,
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _walk_first
    ),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _first_scan),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _first_scan_twice),
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _regex),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip"), _first_scan),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _first_scan),
    "validate": _validate,
    "_==_": _equality,
}
# What remains is looked up by the one overload that the static types leave; several of them cost 1.
_BY_DEFAULT: Final[dict[str, CostRule]] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _second_scan),
    **dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _quoted_scan
    ),
    "in_list": _second_size,
    **dict.fromkeys(
        [
            f"{order}_{kind}"
            for order in ("less", "greater", "less_equals", "greater_equals")
            for kind in ("string", "bytes")
        ],
        _shorter,
    ),
    "equals": _shorter,
    "not_equals": _shorter,
    **dict.fromkeys(("add_string", "add_bytes"), _both_scan),
    **dict.fromkeys(("matches", "matches_string"), _regex),
    "contains_string": _product_scan,
}
# The rules that look at the result; all others may be applied before there is one.
RULES_ON_RESULTS: Final = frozenset({_join, _result_size})


def rule_for(function: str, overloads: Sequence[str]) -> CostRule:
    """The rule for a call, given the overloads that its static types leave possible."""
    overload = overloads[0] if len(overloads) == 1 else ""
    rule = _BY_OVERLOAD.get(overload)
    if rule is not None:
        return rule
    return _BY_FUNCTION.get(function) or _BY_DEFAULT.get(overload, _one)
