"""Why a device does not match: the clauses that were not true, and the values found."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from allocator.cel.code import FIRST_SLOT, METER
from allocator.cel.compiler import Compiler
from allocator.cel.cost import Meter, Stopped
from allocator.cel.device import DeviceValues
from allocator.cel.library.formatting import quote
from allocator.cel.library.timelib import go_float
from allocator.cel.library.convert import to_string
from allocator.cel.program import Program
from allocator.cel.syntax import Call, Literal, Node
from allocator.cel.values import (
    DomainMap,
    Optional,
    QuantityValue,
    Semver,
    TypeValue,
    UInt,
    unmap_key,
)
from allocator.errors import CelRuntimeError

_COMPARISONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in"})
_SHOWN: Final = 200


class Clause(NamedTuple):
    """A part of an expression that was not true.

    Attributes:
        text: its source.
        found: the value of its left side, or of the text a method was called on, as CEL would write it; empty if
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
        clauses.append(Clause(_text(program, node), _found(node, device), error))
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
    run = compiler.compile(node).run
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


def show(value: object) -> str:
    """Write a value the way CEL would."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, UInt):
        return f"{value.value}u"
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, QuantityValue):
        return str(value.quantity)
    if isinstance(value, Semver):
        return value.text
    if isinstance(value, TypeValue):
        return value.name
    return _show_container(value)


def _show_container(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(show, value[:16]))}{', ...' if len(value) > 16 else ''}]"
    if isinstance(value, dict | DomainMap):
        return (
            "{"
            + ", ".join(f"{show(unmap_key(key))}: {show(member)}" for key, member in value.items())
            + "}"
        )
    if isinstance(value, Optional):
        return f"optional.of({show(value.value)})" if value.present else "optional.none()"
    try:
        return to_string(value)
    except CelRuntimeError:
        return str(value)
