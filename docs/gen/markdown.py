"""Small pieces of Markdown that read the same on a site and in a repository browser."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are escaped, so that a pipe in a text stays a pipe."""
    lines = [_line(head), f"|{'---|' * len(head)}"]
    lines.extend(_line(row) for row in rows)
    return "\n".join(lines) + "\n"


def anchor(name: str) -> str:
    """An invisible target for links, stable whatever the heading says."""
    return f'<a id="{name}"></a>'


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"
