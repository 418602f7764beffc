"""Expands macros into comprehensions, as upstream does: types and costs depend on the expansion.

Source: cel-go parser/macro.go, ext/bindings.go, ext/comprehensions.go, ext/lists.go (sortBy), cel/library.go (optMap).
"""

from collections.abc import Callable
from typing import Final

from allocator.cel.syntax.problems import SyntaxProblem
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

ACCUMULATOR: Final = "@result"
_HIDDEN: Final = "__result__"
_UNUSED: Final = "#unused"
_SORT_INPUT: Final = "@__sortBy_input__"


def expand_global(call: Node) -> Node | None:
    """The expansion of `has(x.f)`, or None if the call is no macro."""
    if not isinstance(call, Call) or call.function != "has" or len(call.args) != 1:
        return None
    arg = call.args[0]
    if not isinstance(arg, Select):
        raise SyntaxProblem(arg.pos, "invalid argument to has() macro")
    node = Select(call.pos, arg.operand, arg.field, test=True)
    return _placed(node, call)


def expand_member(call: Node) -> Node | None:
    """The expansion of a method-style macro, or None if the call is none."""
    if not isinstance(call, Call) or call.target is None:
        return None
    expander = MACROS.get((call.function, len(call.args)))
    node = expander(call, call.target) if expander is not None else None
    return None if node is None else _placed(node, call)


def _placed(node: Node, call: Node) -> Node:
    node.depth = call.depth
    node.start, node.end = call.start, call.end
    return node


def _name(node: Node, message: str) -> str:
    if not isinstance(node, Ident) or node.name.startswith("."):
        raise SyntaxProblem(node.pos, message)
    return node.name


def _variable(node: Node) -> str:
    """A loop's variable. With a dot in front, upstream takes it and nothing can read it."""
    if not isinstance(node, Ident):
        raise SyntaxProblem(node.pos, "argument must be a simple name")
    if node.name in (ACCUMULATOR, _HIDDEN):
        raise SyntaxProblem(node.pos, "iteration variable overwrites accumulator variable")
    return node.name


def _accu(pos: int) -> Ident:
    return Ident(pos, ACCUMULATOR)


def _call(pos: int, function: str, *args: Node) -> Call:
    return Call(pos, function, None, args)


def _names(call: Call) -> tuple[str, str, tuple[Node, ...]]:
    """One or two variables, and the remaining arguments."""
    two = _TWO_VARIABLES.get((call.function, len(call.args)), False)
    first = _variable(call.args[0])
    if not two:
        return first, "", call.args[1:]
    second = _variable(call.args[1])
    if first == second:
        raise SyntaxProblem(call.args[1].pos, f"duplicate variable name: {first}")
    return first, second, call.args[2:]


def _loop(
    call: Call,
    target: Node,
    macro: str,
    init: Node,
    cond: Node,
    step: Node,
    result: Node | None = None,
) -> Comprehension:
    first, second, parts = _names(call)
    return Comprehension(
        call.pos,
        macro,
        iter_range=target,
        iter_var=first,
        iter_var2=second,
        accu=ACCUMULATOR,
        init=init,
        cond=cond,
        step=step,
        result=result or _accu(call.pos),
        parts=parts,
    )


def _all(call: Call, target: Node) -> Node:
    pos = call.pos
    return _loop(
        call,
        target,
        "all",
        Literal(pos, True),
        _call(pos, "@not_strictly_false", _accu(pos)),
        _call(pos, "_&&_", _accu(pos), call.args[-1]),
    )


def _exists(call: Call, target: Node) -> Node:
    pos = call.pos
    return _loop(
        call,
        target,
        "exists",
        Literal(pos, False),
        _call(pos, "@not_strictly_false", _call(pos, "!_", _accu(pos))),
        _call(pos, "_||_", _accu(pos), call.args[-1]),
    )


def _exists_one(call: Call, target: Node) -> Node:
    pos = call.pos
    count = _call(pos, "_+_", _accu(pos), Literal(pos, 1))
    return _loop(
        call,
        target,
        "exists_one",
        Literal(pos, 0),
        Literal(pos, True),
        _call(pos, "_?_:_", call.args[-1], count, _accu(pos)),
        _call(pos, "_==_", _accu(pos), Literal(pos, 1)),
    )


def _collect(
    call: Call, target: Node, macro: str, step: Node, init: Node, predicate: Node | None
) -> Node:
    pos = call.pos
    if predicate is not None:
        step = _call(pos, "_?_:_", predicate, step, _accu(pos))
    return _loop(call, target, macro, init, Literal(pos, True), step)


def _map(call: Call, target: Node) -> Node:
    pos = call.pos
    step = _call(pos, "_+_", _accu(pos), ListNode(pos, (call.args[-1],)))
    predicate = call.args[1] if len(call.args) == 3 else None
    return _collect(call, target, "map", step, ListNode(pos, ()), predicate)


def _filter(call: Call, target: Node) -> Node:
    pos = call.pos
    element = Ident(call.args[0].pos, _variable(call.args[0]))
    step = _call(pos, "_+_", _accu(pos), ListNode(pos, (element,)))
    return _collect(call, target, "filter", step, ListNode(pos, ()), call.args[1])


def _transform_list(call: Call, target: Node) -> Node:
    pos = call.pos
    step = _call(pos, "_+_", _accu(pos), ListNode(pos, (call.args[-1],)))
    predicate = call.args[2] if len(call.args) == 4 else None
    return _collect(call, target, "map", step, ListNode(pos, ()), predicate)


def _transform_map(call: Call, target: Node) -> Node:
    pos = call.pos
    key = Ident(call.args[0].pos, _variable(call.args[0]))
    step = _call(pos, "cel.@mapInsert", _accu(pos), key, call.args[-1])
    predicate = call.args[2] if len(call.args) == 4 else None
    return _collect(call, target, "transform_map", step, MapNode(pos, ()), predicate)


def _transform_map_entry(call: Call, target: Node) -> Node:
    pos = call.pos
    step = _call(pos, "cel.@mapInsert", _accu(pos), call.args[-1])
    predicate = call.args[2] if len(call.args) == 4 else None
    return _collect(call, target, "transform_map_entry", step, MapNode(pos, ()), predicate)


def _let(pos: int, name: str, init: Node, body: Node) -> Comprehension:
    """`name` bound to `init`, evaluated when `body` first reads it."""
    return Comprehension(
        pos,
        "bind",
        iter_range=ListNode(pos, ()),
        iter_var=_UNUSED,
        iter_var2="",
        accu=name,
        init=init,
        cond=Literal(pos, False),
        step=Ident(pos, name),
        result=body,
        parts=(init, body),
    )


def _bind(call: Call, target: Node) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = _name(call.args[0], "cel.bind() variable names must be simple identifiers")
    return _let(call.pos, name, call.args[1], call.args[2])


def _sort_by(call: Call, target: Node) -> Node:
    if isinstance(target, Literal | MapNode | Struct) or (
        isinstance(target, Select) and target.test
    ):
        raise SyntaxProblem(
            target.pos,
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
        )
    pos = call.pos
    keys_call = Call(pos, "map", Ident(pos, _SORT_INPUT), call.args)
    keys = _map(keys_call, Ident(pos, _SORT_INPUT))
    body = Call(pos, "@sortByAssociatedKeys", Ident(pos, _SORT_INPUT), (keys,))
    return _let(pos, _SORT_INPUT, target, body)


def _optional_map(call: Call, target: Node, *, flat: bool) -> Node:
    name = _name(call.args[0], f"{call.function}() variable name must be a simple identifier")
    pos = call.pos
    body: Node = _let(pos, name, Call(pos, "value", target, ()), call.args[1])
    if not flat:
        body = _call(pos, "optional.of", body)
    return _call(pos, "_?_:_", Call(pos, "hasValue", target, ()), body, _call(pos, "optional.none"))


def _opt_map(call: Call, target: Node) -> Node:
    return _optional_map(call, target, flat=False)


def _opt_flat_map(call: Call, target: Node) -> Node:
    return _optional_map(call, target, flat=True)


MACROS: Final[dict[tuple[str, int], Callable[[Call, Node], Node | None]]] = {
    ("all", 2): _all,
    ("all", 3): _all,
    ("exists", 2): _exists,
    ("exists", 3): _exists,
    ("exists_one", 2): _exists_one,
    ("exists_one", 3): _exists_one,
    ("existsOne", 3): _exists_one,
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): _transform_map,
    ("transformMap", 4): _transform_map,
    ("transformMapEntry", 3): _transform_map_entry,
    ("transformMapEntry", 4): _transform_map_entry,
    ("bind", 3): _bind,
    ("sortBy", 2): _sort_by,
    ("optMap", 2): _opt_map,
    ("optFlatMap", 2): _opt_flat_map,
}

_TWO_VARIABLES: Final = {
    ("all", 3): True,
    ("exists", 3): True,
    ("exists_one", 3): True,
    ("existsOne", 3): True,
    ("transformList", 3): True,
    ("transformList", 4): True,
    ("transformMap", 3): True,
    ("transformMap", 4): True,
    ("transformMapEntry", 3): True,
    ("transformMapEntry", 4): True,
}
