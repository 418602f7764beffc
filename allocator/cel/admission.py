"""What the API server says to a new or changed expression: a smaller environment, a length and a cost estimate.

A server of release R takes only what release R - 1 understands, and only what its feature gates allow.

Source: k8s.io/dynamic-resource-allocation/cel/compile.go, k8s.io/apiserver/pkg/cel/environment/base.go,
pkg/apis/resource/validation.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from allocator.cel import types
from allocator.cel.check.checker import check
from allocator.cel.check.environment import Environment, device_fields
from allocator.cel.cost.estimate import estimate
from allocator.cel.run.program import Program, check_derived_type, check_selector_type
from allocator.cel.syntax.parser import parse
from allocator.cel.values.limits import Stopped
from allocator.errors import CelCompileError
from allocator.features import Features

MAX_BYTES: Final = 10 * 1024
MAX_COST: Final = 1_000_000
_LISTS: Final = frozenset(
    {"slice", "flatten", "sort", "@sortByAssociatedKeys", "lists.range", "reverse", "distinct"}
)
_INCLUDES: Final = frozenset({"includes"})


class Verdict(StrEnum):
    """What becomes of a new expression."""

    OK = "ok"
    COMPILE_ERROR = "compile_error"
    TOO_LONG = "too_long"
    TOO_EXPENSIVE = "too_expensive"


class NewExpression(NamedTuple):
    """The API server's answer.

    Attributes:
        message: why it is refused; empty if it is not.
        cost: the most that an evaluation may cost, or 0 if it does not compile.
    """

    verdict: Verdict
    message: str = ""
    cost: int = 0


def new_environment(features: Features, version: str) -> Environment:
    """The environment for new expressions of a release (`1.34` to `1.37`) with these gates."""
    attribute = types.DYN if features.list_type_attributes else types.ANY
    without = frozenset() if features.list_type_attributes else _INCLUDES
    if version == "1.34":
        without |= _LISTS
    fields = device_fields(attribute, multiple=features.consumable_capacity)
    return Environment(fields, attribute, without)


def check_new_expression(
    expression: str, features: Features, version: str, *, derived: bool = False
) -> NewExpression:
    """Check a selector, or a derived attribute, as the API server of a release does when it is new."""
    if len(expression.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return NewExpression(Verdict.TOO_LONG, f"may not be more than {MAX_BYTES} bytes")
    environment = new_environment(features, version)
    try:
        ast = parse(expression)
        type_ = check(ast, environment)
        if derived:
            check_derived_type(type_, lists=features.list_type_attributes)
        else:
            check_selector_type(type_, environment)
        Program(ast)  # constants that fail are found when the program is made
        cost = estimate(ast.root).high
    except CelCompileError as error:
        return NewExpression(Verdict.COMPILE_ERROR, error.message)
    except Stopped as stopped:
        return NewExpression(Verdict.COMPILE_ERROR, str(stopped))
    except RecursionError:
        return NewExpression(
            Verdict.COMPILE_ERROR, "compilation failed: expression nests too deeply"
        )
    if cost > MAX_COST:
        return NewExpression(Verdict.TOO_EXPENSIVE, "too complex, exceeds cost limit", cost)
    return NewExpression(Verdict.OK, "", cost)
