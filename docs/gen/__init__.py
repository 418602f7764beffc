"""Reference pages that are made from the code, so that they cannot say anything else.

`python -m docs.gen` writes them; `python -m docs.gen --check` (part of `make docs`, and a test) fails when one is out of
date. Each module makes one kind of page from the objects that the program itself uses.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from docs.gen import (
    behaviours,
    commands,
    configuration,
    examples,
    features,
    metrics,
    predicates,
    reasons,
)

ROOT: Final = Path(__file__).parents[2]
NOTICE: Final = "<!-- Made from the code by `python -m docs.gen`; edit docs/gen/{} instead. -->\n\n"

# Path from the root of the repository -> the module that makes it, and how.
PAGES: Final[Mapping[str, tuple[str, Callable[[], str]]]] = {
    "docs/reference/behaviours.md": ("behaviours.py", behaviours.page),
    "docs/reference/commands.md": ("commands.py", commands.page),
    "docs/reference/configuration.md": ("configuration.py", configuration.page),
    "docs/reference/features.md": ("features.py", features.page),
    "docs/reference/metrics.md": ("metrics.py", metrics.page),
    "docs/reference/predicates.md": ("predicates.py", predicates.page),
    "docs/reference/reasons.md": ("reasons.py", reasons.page),
}


def generated() -> dict[str, str]:
    """Every generated file with the text it should have, by path from the root of the repository."""
    texts = {path: NOTICE.format(module) + make() for path, (module, make) in PAGES.items()}
    return texts | examples.expected(ROOT)


def stale() -> list[str]:
    """Generated files that say something else than the code."""
    return [path for path, text in generated().items() if _read(path) != text]


def write() -> list[str]:
    """Write what is out of date; returns the paths."""
    texts = generated()
    changed = [path for path, text in texts.items() if _read(path) != text]
    for path in changed:
        (ROOT / path).write_text(texts[path], encoding="utf-8")
    return changed


def _read(path: str) -> str | None:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.exists() else None
