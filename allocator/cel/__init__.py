"""CEL device selectors: parse, check, compile to closures, evaluate with cost and deadline.

Exactly upstream's environment for stored expressions (Kubernetes 1.37, cel-go 0.29). Knows nothing of claims, nodes or
the search.
"""

from allocator.cel.admission import NewExpression, Verdict, check_new_expression
from allocator.cel.explain import Clause, explain
from allocator.cel.run.cache import Compiler
from allocator.cel.run.device import DeviceValues, attribute_problem, prepare_device
from allocator.cel.run.program import Program, compile_derived, compile_selector
from allocator.cel.run.reads import Read, names_in_objects

__all__ = [
    "Clause",
    "Compiler",
    "DeviceValues",
    "NewExpression",
    "Program",
    "Read",
    "Verdict",
    "attribute_problem",
    "check_new_expression",
    "compile_derived",
    "compile_selector",
    "explain",
    "names_in_objects",
    "prepare_device",
]
