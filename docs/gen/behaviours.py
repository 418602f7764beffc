"""The list of behaviours that tests are named after, collected from the names of these tests."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docs.gen.markdown import anchor, table
from tests.conformance.cases import CASES

_E2E: Final = Path(__file__).parents[2] / "e2e"

_INTRO: Final = """# Behaviours

What the allocator answers and what a scheduler does with claims, one line for each behaviour that a test is named after. The numbers order the lists and are
cited by tests; a number without a line has no test of its own at that level.

"""
_ALLOCATOR: Final = """## Allocator

Cases of `tests/conformance/cases/`; upstream's own answers are recorded with them. `python -m tests.conformance.run` runs upstream's code again.

"""
_CLUSTER: Final = """## Cluster

Tests of `e2e/` on a real control plane, in each mode that they apply to.

"""


def page() -> str:
    """The whole page."""
    return "".join(
        (
            _INTRO,
            _ALLOCATOR,
            _rows("allocator", allocator_behaviours()),
            "\n",
            _CLUSTER,
            _rows("case", cluster_behaviours()),
        )
    )


def allocator_behaviours() -> dict[int, list[str]]:
    """Number → what its conformance cases say."""
    found: dict[int, list[str]] = defaultdict(list)
    for case in CASES:
        number, _, words = case.name.partition("-")
        if number.isdecimal():
            found[int(number)].append(words.replace("-", " "))
    return found


def cluster_behaviours() -> dict[int, list[str]]:
    """Number → what its end-to-end tests say."""
    found: dict[int, list[str]] = defaultdict(list)
    for name in _test_names():
        match = re.fullmatch(r"test_case_(\d+)_(\w+)", name)
        if match:
            found[int(match[1])].append(match[2].replace("_", " "))
    return found


def _test_names() -> Iterator[str]:
    for file in sorted(_E2E.glob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name


def _rows(prefix: str, behaviours: dict[int, list[str]]) -> str:
    rows = (
        (f"{anchor(f'{prefix}-{number}')}{number}", "; ".join(behaviours[number]))
        for number in sorted(behaviours)
    )
    return table(("#", "Behaviour"), rows)
