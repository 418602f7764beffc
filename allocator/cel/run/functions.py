"""All library functions by name; a leading dot tells a method from a global function of the same name."""

from collections.abc import Callable, Mapping
from typing import Final

from allocator.cel.library import (
    calendar,
    collections,
    convert,
    formats,
    kubernetes,
    network,
    text,
    urls,
)
from allocator.cel.values import operators

FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "_+_": operators.add,
    "_-_": operators.subtract,
    "_*_": operators.multiply,
    "_/_": operators.divide,
    "_%_": operators.modulo,
    "-_": operators.negate,
    "!_": operators.logical_not,
    "_<_": operators.less,
    "_<=_": operators.less_equals,
    "_>_": operators.greater,
    "_>=_": operators.greater_equals,
    "_==_": operators.equals,
    "_!=_": operators.not_equals,
    "@in": operators.contains,
    **convert.FUNCTIONS,
    **text.FUNCTIONS,
    **collections.FUNCTIONS,
    **kubernetes.FUNCTIONS,
    **network.FUNCTIONS,
    **urls.FUNCTIONS,
    **calendar.FUNCTIONS,
    **formats.FUNCTIONS,
}


def implementation(function: str, *, member: bool) -> Callable[..., object]:
    """The code behind a function."""
    if member and "." + function in FUNCTIONS:
        return FUNCTIONS["." + function]
    return FUNCTIONS[function]
