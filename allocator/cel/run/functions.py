"""All library functions by name; a leading dot tells a method from a global function of the same name."""

from collections.abc import Callable, Mapping
from typing import Final

from allocator.cel.library import (
    authorization,
    calendar,
    collections,
    convert,
    formats,
    kubernetes,
    network,
    text,
    urls,
)
from allocator.cel.values import arithmetic, comparison, selection

FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "_+_": arithmetic.add,
    "_-_": arithmetic.subtract,
    "_*_": arithmetic.multiply,
    "_/_": arithmetic.divide,
    "_%_": arithmetic.modulo,
    "-_": arithmetic.negate,
    "!_": arithmetic.logical_not,
    "_<_": comparison.less,
    "_<=_": comparison.less_equals,
    "_>_": comparison.greater,
    "_>=_": comparison.greater_equals,
    "_==_": comparison.equals,
    "_!=_": comparison.not_equals,
    "@in": selection.contains,
    **convert.FUNCTIONS,
    **text.FUNCTIONS,
    **collections.FUNCTIONS,
    **kubernetes.FUNCTIONS,
    **network.FUNCTIONS,
    **urls.FUNCTIONS,
    **calendar.FUNCTIONS,
    **formats.FUNCTIONS,
    **authorization.FUNCTIONS,
}


def implementation(function: str, *, member: bool) -> Callable[..., object]:
    """The code behind a function."""
    if member and "." + function in FUNCTIONS:
        return FUNCTIONS["." + function]
    return FUNCTIONS[function]
