"""The command reference, from the command line itself."""

from enum import Enum
from typing import Any, Final

import typer

from docs.gen.markdown import table
from scheduler.cli.app import create_app

_INTRO: Final = """# Commands

`pip install` provides `dra-scheduler` and, for kubectl's plugin mechanism, `kubectl-dra`: `kubectl dra top pools` is
`dra-scheduler top pools`.

## Conventions

- `-f` takes files, folders and `-` for standard input; YAML and JSON, several documents in one file, and the lists that
  `kubectl get -o yaml` prints.
- Tables are for people; `-o json` is for scripts, and its shape is stable.
- Exit codes: `0` done; `1` the command ran and found something wrong (with `--exit-code` also: a pod does not fit);
  `2` bad usage or unreadable input, with one line on standard error that names file, object and field.
- Offline commands (`simulate`, `validate`, `cel`, `bench`, and `explain` and `top` with `-f`) never contact a cluster. Two runs
  on the same input print the same bytes (except `bench`, which measures).

"""


def page() -> str:
    """The whole page."""
    root: Any = typer.main.get_command(create_app())
    sections = []
    for name, command in root.commands.items():
        sections.extend(_sections(name, command))
    return _INTRO + "\n".join(sections)


def _sections(path: str, command: Any) -> list[str]:
    """A section a command, subcommands behind their group."""
    text = " ".join((command.help or "").split())
    if hasattr(command, "commands"):
        sections = [f"## {path}\n\n{text}\n"]
        for name, child in command.commands.items():
            sections.extend(_sections(f"{path} {name}", child))
        return sections
    arguments = [_argument(each) for each in command.params if each.param_type_name == "argument"]
    usage = " ".join(["dra-scheduler", path, "[OPTIONS]", *arguments])
    body = f"## {path}\n\n{text}\n\n```\n{usage}\n```\n"
    options = [_row(each) for each in command.params if each.param_type_name == "option"]
    rows = [row for row in options if row[0] != "`--help`"]
    return [f"{body}\n{table(('Option', 'Default', 'Meaning'), rows)}" if rows else body]


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    name = f"{name}..." if parameter.nargs == -1 else name
    return name if parameter.required else f"[{name}]"


def _row(parameter: Any) -> tuple[str, str, str]:
    names = "/".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
    if parameter.metavar:
        names += f" `{parameter.metavar}`"
    elif choices := _choices(parameter):
        names += f" `{'|'.join(choices)}`"
    default = getattr(parameter.default, "value", parameter.default)
    # A flag is off, and an empty text or list is nothing, unless it is given.
    shown = "" if default in (None, "", False, 0) or default == () else f"`{default}`"
    return names, shown, parameter.help or ""


def _choices(parameter: Any) -> list[str]:
    annotation = parameter.type_descriptor.annotation
    is_enum = isinstance(annotation, type) and issubclass(annotation, Enum)
    return [str(each.value) for each in annotation] if is_enum else []
