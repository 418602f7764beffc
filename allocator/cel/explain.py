"""Why a device does not match: the clauses that were not true, and the values found."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from allocator.cel.cost.meter import Meter
from allocator.cel.library.convert import to_string
from allocator.cel.library.formatting import quote
from allocator.cel.run.code import FIRST_SLOT, METER
from allocator.cel.run.compiler import Compiler
from allocator.cel.run.device import DeviceValues
from allocator.cel.run.program import Program
from allocator.cel.run.reads import Read, reads_of
from allocator.cel.syntax.tree import Call, Literal, Node
from allocator.cel.values.limits import Stopped
from allocator.cel.values.maps import DomainMap, unmap_key
from allocator.cel.values.scalars import Optional, QuantityValue, TypeValue, UInt
from allocator.cel.values.semver import Semver
from allocator.errors import CelRuntimeError

_COMPARISONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in"})
_SHOWN: Final = 200
_MOST_MEMBERS: Final = 16
_DEEPEST: Final = 4


class Clause(NamedTuple):
    """A part of an expression that was not true.

    Attributes:
        text: its source.
        found: the value of its left side, or of the text a method was called on, as CEL would write it; of other
            clauses what they read of the device (`NAME = VALUE` or `no NAME`, if it is not one value alone); empty if
            there is none to show.
        error: why it failed; empty if it was false.
    """

    text: str
    found: str
    error: str


def explain(program: Program, device: DeviceValues) -> tuple[Clause, ...]:
    """The clauses joined by `&&` that are false or fail on a device, in the order of the expression."""
    if device.error is not None:
        return (Clause(program.expression, "", device.error),)
    clauses: list[Clause] = []
    for node in _conjuncts(program.ast.root):
        value, error = _evaluate(node, device)
        if value is True and not error:
            continue
        found = _found(node, device) or ("" if error else _read(node, device))
        clauses.append(Clause(_text(program, node), found, error))
    return tuple(clauses)


def _conjuncts(node: Node) -> Sequence[Node]:
    """The terms of nested `&&`, left to right."""
    if isinstance(node, Call) and node.function == "_&&_":
        return [term for arg in node.args for term in _conjuncts(arg)]
    return [node]


def _text(program: Program, node: Node) -> str:
    return program.expression[node.start : node.end].strip()


def _evaluate(node: Node, device: DeviceValues) -> tuple[object, str]:
    compiler = Compiler(counting=True)
    run = compiler.compile_tree(node).run
    env = [*device.env, *[None] * (compiler.size - FIRST_SLOT)]
    env[METER] = Meter()
    try:
        return run(env), ""
    except CelRuntimeError as error:
        return None, error.message
    except (Stopped, RecursionError) as stopped:
        return None, str(stopped)


def _found(node: Node, device: DeviceValues) -> str:
    """The value that decided: the first operand of a comparison, or what a method or `!` was applied to."""
    if not isinstance(node, Call):
        return ""
    if node.function in _COMPARISONS:
        operand = (
            node.args[1]
            if isinstance(node.args[0], Literal) and node.function != "@in"
            else node.args[0]
        )
        inner = operand
        # a.compareTo(b) >= 0: the interesting value is a.
        if isinstance(operand, Call) and operand.target is not None:
            inner = operand.target
    elif node.target is not None:
        inner = node.target
    elif node.function == "!_":
        return _found(node.args[0], device)
    else:
        return ""
    if isinstance(inner, Literal):
        return ""
    value, error = _evaluate(inner, device)
    return "" if error else show(value)[:_SHOWN]


def _read(node: Node, device: DeviceValues) -> str:
    """What a clause of any form reads of the device, where its names are constants."""
    reads = sorted(reads_of(node) or ())
    values = [(read.name or read.kind, _value(read, device)) for read in reads]
    if len(values) == 1 and values[0][1] is not None:
        return values[0][1][:_SHOWN]
    shown = [f"no {name}" if value is None else f"{name} = {value}" for name, value in values]
    return ", ".join(shown)[:_SHOWN]


def _value(read: Read, device: DeviceValues) -> str | None:
    attributes, capacity, driver, multiple = device.env[:4]
    if read.kind == "driver":
        return show(driver)
    if read.kind == "allowMultipleAllocations":
        return show(multiple)
    names = (attributes if read.kind == "attribute" else capacity)[read.domain]
    return show(names[read.name]) if read.name in names else None


def show(value: object, depth: int = 0) -> str:
    """Write a value the way CEL would; deep nesting is cut short."""
    cls = value.__class__
    if cls is list or cls is dict or cls is DomainMap or cls is Optional:
        return "..." if depth >= _DEEPEST else _SHOW_NESTED[cls](value, depth + 1)
    writer = _WRITERS.get(cls)
    if writer is not None:
        return writer(value)
    try:
        return to_string(value)
    except CelRuntimeError:
        return str(value)


def _show_list(value: list[object], depth: int) -> str:
    parts = [show(element, depth) for element in value[:_MOST_MEMBERS]]
    return f"[{', '.join(parts)}{', ...' if len(value) > _MOST_MEMBERS else ''}]"


def _show_map(value: dict[object, object], depth: int) -> str:
    parts = [
        f"{show(unmap_key(key), depth)}: {show(member, depth)}"
        for key, member in list(value.items())[:_MOST_MEMBERS]
    ]
    return "{" + ", ".join(parts) + (", ..." if len(value) > _MOST_MEMBERS else "") + "}"


def _show_optional(value: Optional, depth: int) -> str:
    return f"optional.of({show(value.value, depth)})" if value.present else "optional.none()"


_SHOW_NESTED: Final[dict[type, Callable[[Any, int], str]]] = {
    list: _show_list,
    dict: _show_map,
    DomainMap: _show_map,
    Optional: _show_optional,
}
_WRITERS: Final[dict[type, Callable[[Any], str]]] = {
    str: quote,
    type(None): lambda _value: "null",
    UInt: lambda value: f"{value.value}u",
    QuantityValue: lambda value: str(value.quantity),
    Semver: lambda value: value.text,
    TypeValue: lambda value: value.name,
}
