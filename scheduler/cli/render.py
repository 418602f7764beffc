"""Printing: tables for people, JSON and YAML for scripts. Colours only on a terminal.

`rich` is imported where a table is made: scripts do not wait for it.
"""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_WIDTH_WITHOUT_TERMINAL: Final = 200


class Output(StrEnum):
    """Forms of output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class TableOrJson(StrEnum):
    """Forms of output, where YAML is not offered."""

    TABLE = "table"
    JSON = "json"


def console(*, stderr: bool = False) -> "Console":
    """A console; without a terminal it neither colours nor breaks lines at 80 columns."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_WITHOUT_TERMINAL
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def table(*columns: str, title: str | None = None) -> "Table":
    """An empty table in this project's look."""
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=None, pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def cell(lines: Sequence[str], style: str = "") -> "Text":
    """Several lines in one cell, taken as they are."""
    from rich.text import Text

    return Text("\n".join(lines), style=style)


def print_data(value: Any, output: Output) -> None:
    """Print plain data for a script."""
    from scheduler.offline.manifests import dump_json, dump_yaml

    write(dump_json(value) if output is Output.JSON else dump_yaml(value))


def write(text: str) -> None:
    """Write text as it is."""
    sys.stdout.write(text)
    sys.stdout.flush()


def complain(text: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
