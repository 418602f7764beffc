"""What evaluating costs, by upstream's rules, and the meter that stops at the limit.

Source: cel-go interpreter/runtimecost.go, ext/{lists,sets}.go, k8s.io/apiserver/pkg/cel/library/cost.go. Where a rule
rounds a product of a factor and a size up, the same floating point operations are used here.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from allocator.cel.library.formats import NamedFormat
from allocator.cel.library.network import CIDR, IP
from allocator.cel.library.urls import URL
from allocator.cel.values.values import (
    DomainMap,
    Optional,
    QuantityValue,
    Semver,
    Stopped,
    kind_of,
    unmap_key,
)

LIMIT: Final = 1_000_000
LIST, MAP = 10, 30
_TRAVERSAL: Final = 0.1
_REGEX: Final = 0.25
_POLL: Final = 512
_MOST_WORK: Final = 2_000_000
_MEMBERS_A_TICK: Final = 64
_CONTAINERS: Final = frozenset({list, dict, DomainMap, Optional})

CostRule = Callable[[Sequence[Any], Any], int]


class Meter:
    """Counts the cost of one evaluation and watches its deadline.

    Attributes:
        cost: spent so far.
        limit: the most that may be spent.
        deadline: answers whether time is up; asked now and then.
        work: nested members that may still be walked. Upstream's costs do not see the size of what a list holds, and
            a list that holds another one twice, and so on, is soon larger than can be walked.
    """

    __slots__ = ("cost", "deadline", "limit", "ticks", "work")

    def __init__(self, limit: int = LIMIT, deadline: Callable[[], bool] | None = None) -> None:
        self.cost = 0
        self.limit = limit
        self.deadline = deadline
        self.ticks = _POLL
        self.work = _MOST_WORK

    def weigh(self, values: Sequence[Any]) -> None:
        """Note that nested values are about to be walked.

        Raises:
            Stopped: they are too large altogether.
        """
        for value in values:
            if value.__class__ in _CONTAINERS:
                self._walk(value)

    def _walk(self, value: Any) -> None:
        pending = [value]
        while pending:
            value = pending.pop()
            cls = value.__class__
            if cls is Optional:
                members = [value.value]
            else:
                members = value if cls is list else list(value.values())
            self.ticks -= len(members) // _MEMBERS_A_TICK
            self.tick()
            if _CONTAINERS.isdisjoint(map(type, members)):
                continue
            nested = [member for member in members if member.__class__ in _CONTAINERS]
            self.work -= len(nested)
            if self.work < 0:
                raise Stopped("operation interrupted: nested values are too large")
            pending.extend(nested)

    def charge(self, cost: int) -> None:
        """Spend. Whatever costs much, takes time: the deadline is asked before.

        Raises:
            Stopped: the limit is exceeded, or time is up.
        """
        self.cost += cost
        if self.cost > self.limit:
            raise Stopped("operation cancelled: actual cost limit exceeded")
        if cost >= _POLL:
            self.ticks = 0
            self.tick()

    def tick(self) -> None:
        """Note a round of a loop.

        Raises:
            Stopped: time is up.
        """
        self.ticks -= 1
        if self.ticks <= 0:
            self.ticks = _POLL
            if self.deadline is not None and self.deadline():
                raise Stopped("operation interrupted")


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
    return math.ceil(size * _TRAVERSAL)


def _traversal(value: Any) -> int:
    """Cost of walking a value; only texts and collections count by size."""
    cls = value.__class__
    if cls is str:
        return int(len(value.encode("utf-8", "surrogatepass")) * _TRAVERSAL)
    if cls is bytes:
        return int(len(value) * _TRAVERSAL)
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
    return math.ceil(_plain_size(args[0]) * 2 * _TRAVERSAL)


def _walk_first(args: Sequence[Any], _result: Any) -> int:
    return _traversal(args[0])


def _join(_args: Sequence[Any], result: Any) -> int:
    return math.ceil(_plain_size(result) * 2 * _TRAVERSAL)


def _regex(args: Sequence[Any], _result: Any) -> int:
    return _scan(1.0 + size_of(args[0])) * math.ceil(size_of(args[1]) * _REGEX)


def _contains_ip(args: Sequence[Any], _result: Any) -> int:
    size = _plain_size(args[0])
    return math.ceil((size + size) * _TRAVERSAL)


def _contains_ip_text(args: Sequence[Any], result: Any) -> int:
    return _contains_ip(args, result) + _scan(_plain_size(args[1]))


def _contains_cidr(args: Sequence[Any], result: Any) -> int:
    return _contains_ip(args, result) + _scan(_plain_size(args[0])) + 1


def _contains_cidr_text(args: Sequence[Any], result: Any) -> int:
    return _contains_cidr(args, result) + _scan(_plain_size(args[1]))


def _validate(args: Sequence[Any], _result: Any) -> int:
    if args[0].__class__ is not NamedFormat:
        return 1
    return _scan(1.0 + _plain_size(args[1])) * math.ceil(args[0].regex_size * _REGEX)


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
        factor += _TRAVERSAL
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
        for kind in ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"]
    },
    **{
        f"list_{kind}_sortByAssociatedKeys": _sorted_by
        for kind in ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"]
    },
}
_BY_FUNCTION: Final[dict[str, CostRule]] = {
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
