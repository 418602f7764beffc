"""Checks on a typed tree that go beyond types: literals of durations, times and patterns, mixed literals, `format`.

Source: cel-go cel/validator.go, ext/formatting.go (stringFormatValidator).
"""

from collections.abc import Iterator
from typing import Final

from allocator.cel.library.convert import to_duration, to_timestamp
from allocator.cel.library.formatting import clauses
from allocator.cel.library.regex import compile_regex
from allocator.cel.syntax.tree import Call, ListNode, Literal, MapNode, Node
from allocator.cel.types import ERROR, Type
from allocator.errors import CelRuntimeError

Problem = tuple[int, str]

_EXEMPT: Final = "format"  # whose arguments may be a mixed list, at any depth


def validate(root: Node) -> list[Problem]:
    """Every problem of the tree, as offset and message."""
    problems: list[Problem] = []
    for node, exempt in _walk(root):
        if isinstance(node, Call):
            problems += _literal_arguments(node)
            if node.function == "format" and node.target is not None:
                problems += _format(node)
        elif isinstance(node, ListNode) and not exempt:
            problems += _mixed_list(node)
        elif isinstance(node, MapNode) and not exempt:
            problems += _mixed_map(node)
    return problems


def _walk(root: Node) -> Iterator[tuple[Node, bool]]:
    """All nodes once, each with whether it stands inside a call of format()."""
    stack: list[tuple[Node, bool]] = [(root, False)]
    seen: set[int] = set()
    while stack:
        node, exempt = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node, exempt
        inside = exempt or (isinstance(node, Call) and node.function == _EXEMPT)
        stack.extend((child, inside) for child in node.children())


def _literal_arguments(node: Call) -> list[Problem]:
    check = _CHECKS.get(node.function)
    if check is None or not node.args or not isinstance(node.args[0], Literal):
        return []
    literal = node.args[0]
    try:
        check(literal.value)
    except CelRuntimeError:
        return [(literal.pos, f"invalid {node.function} argument")]
    return []


def _pattern(value: object) -> None:
    # The first argument, which for the global form is the text and not the pattern; so upstream.
    if isinstance(value, str):
        compile_regex(value)


_CHECKS: Final = {"duration": to_duration, "timestamp": to_timestamp, "matches": _pattern}


def _mismatch(node: Node, expected: Type, found: Type) -> Problem:
    return node.pos, f"expected type '{expected}' but found '{found}'"


def _value_type(node: Node, *, optional: bool) -> Type:
    type_ = node.type or ERROR
    return type_.params[0] if optional and type_.params else type_


def _mixed_list(node: ListNode) -> list[Problem]:
    expected: Type | None = None
    for at, element in enumerate(node.elements):
        found = _value_type(element, optional=at in node.optionals)
        if expected is None:
            expected = found
        elif found != expected:
            return [_mismatch(element, expected, found)]
    return []


def _mixed_map(node: MapNode) -> list[Problem]:
    problems: list[Problem] = []
    if not node.entries:
        return problems
    first_key, first_value, first_optional = node.entries[0]
    key_type = first_key.type or ERROR
    value_type = _value_type(first_value, optional=first_optional)
    for key, value, optional in node.entries[1:]:
        if (key.type or ERROR) != key_type:
            problems.append(_mismatch(key, key_type, key.type or ERROR))
        found = _value_type(value, optional=optional)
        if found != value_type:
            problems.append(_mismatch(value, value_type, found))
    return problems


# --- format

_KINDS: Final = {
    "d": frozenset({"int", "uint"}),
    "f": frozenset({"double", "string"}),
    "e": frozenset({"double", "string"}),
    "b": frozenset({"int", "uint", "bool"}),
    "x": frozenset({"int", "uint", "string", "bytes"}),
    "X": frozenset({"int", "uint", "string", "bytes"}),
    "o": frozenset({"int", "uint"}),
}
_TEXT_KINDS: Final = frozenset(
    {
        "list",
        "map",
        "int",
        "uint",
        "double",
        "bool",
        "string",
        "timestamp",
        "bytes",
        "duration",
        "type",
        "null",
    }
)
_REFUSALS: Final = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
    "and timestamps",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "X": "only integers, byte buffers, and strings can be formatted as hex",
    "o": "octal clause can only be used on integers",
}


def _format(node: Call) -> list[Problem]:
    """A literal format string against a literal list of arguments."""
    target, args = node.target, node.args[0]
    if (
        not isinstance(target, Literal)
        or not isinstance(args, ListNode)
        or target.value.__class__ is not str
    ):
        return []
    used = 0
    try:
        for clause in clauses(str(target.value), len(args.elements)):
            if not clause.verb:
                continue
            refused = _refused(clause.verb, args.elements[used])
            if refused is not None:
                message = f"{_REFUSALS[clause.verb]}, was given {(refused.type or ERROR).type_name}"
                return [(refused.pos, f"error during formatting: {message}")]
            used += 1
    except CelRuntimeError as error:
        return [(node.pos, error.message)]
    if len(args.elements) > used:
        count = len(args.elements)
        return [
            (
                node.pos,
                f"too many arguments supplied to string.format (expected {used}, got {count})",
            )
        ]
    return []


def _refused(verb: str, arg: Node) -> Node | None:
    """The argument, or the part of it, that a clause cannot show."""
    type_ = arg.type or ERROR
    allowed = _TEXT_KINDS if verb == "s" else _KINDS[verb]
    if type_.kind != "dyn" and type_.kind not in allowed:
        return arg
    if verb == "s" and isinstance(arg, ListNode | MapNode):
        for part in arg.children():
            refused = _refused(verb, part)
            if refused is not None:
                return refused
    return None
