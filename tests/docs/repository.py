"""What documentation there is: files, their headings and anchors, and what they refer to. Standard library only."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SKIP = {
    ".git",
    ".venv",
    ".venv-docs",
    "site",
    "__pycache__",
    ".hypothesis",
    ".mypy_cache",
    ".ruff_cache",
}
_TEXT = {".py", ".md", ".yaml", ".yml", ".toml", ".go", ".sh", ".in"}
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_REFERENCE = re.compile(r"(?<![\w/])docs/[\w./-]+\.md(?:#[\w-]+)?")


def text_files() -> Iterator[Path]:
    """Files that people write, in the whole repository."""
    for path in sorted(ROOT.rglob("*")):
        relative = path.relative_to(ROOT)
        if _SKIP.isdisjoint(relative.parts) and (
            path.suffix in _TEXT or path.name in ("Makefile", "Dockerfile")
        ):
            yield path


def markdown_files() -> list[Path]:
    return [path for path in text_files() if path.suffix == ".md"]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def links(path: Path) -> list[str]:
    """Targets of the links and images in a Markdown file that point into the repository."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text_of(path)))
    found: list[str] = _LINK.findall(prose)
    return [target for target in found if not re.match(r"[a-z][a-z0-9+.-]*:", target)]


def references(path: Path) -> list[str]:
    """Mentions such as `docs/design/engine.md#question-and-view` in any file."""
    return [found.rstrip(".") for found in _REFERENCE.findall(text_of(path))]


@cache
def anchors(path: Path) -> frozenset[str]:
    """Explicit ids, and the slugs of headings as GitHub and Python-Markdown make them."""
    text = _FENCE.sub("", text_of(path))
    found = set(re.findall(r'<a id="([^"]+)"></a>', text))
    for heading in re.findall(r"^#{1,6} (.+?)\s*$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-"))
    return frozenset(found)


def problem_with(target: str, folder: Path) -> str:
    """What is wrong with a link or reference seen from a folder; empty: nothing."""
    name, _, anchor = target.partition("#")
    file = (folder / name).resolve() if name else None
    if file is not None and not file.exists():
        return f"{target}: no such file"
    if anchor and file is not None and file.suffix == ".md" and anchor not in anchors(file):
        return f"{target}: no such anchor"
    return ""
