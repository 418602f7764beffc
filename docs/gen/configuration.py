"""The configuration reference, from the settings themselves: fields, types, defaults, and what their docstrings say."""

import dataclasses
import inspect
import re
from typing import Any, get_type_hints

import yaml

from docs.gen.markdown import anchor, table
from scheduler.cli.config_file import API_VERSION, KIND, camel, settings_tree
from scheduler.config import Settings

_INTRO = f"""# Configuration

`dra-scheduler run` and `dra-scheduler extender` need no configuration file. With `--config FILE` they read one of
kind `{KIND}`, `apiVersion: {API_VERSION}`; every field is optional. [Flags](commands.md#run) win over the file.
`--write-config-to -` prints the settings in force, defaults included.

The file is read strictly: an unknown field, a value of the wrong type, or a combination that makes no sense stops the
start with exit code 2 and a line that names the file and the field. Durations are in seconds.

"""

_TYPES = {str: "text", int: "integer", float: "number", bool: "true or false"}


def page() -> str:
    """The whole page."""
    sections = [_section(Settings, Settings(), "", "General")]
    sections.extend(
        _section(type(value), value, f"{camel(field.name)}.", camel(field.name))
        for field in dataclasses.fields(Settings)
        if dataclasses.is_dataclass(value := getattr(Settings(), field.name))
    )
    whole = yaml.safe_dump(settings_tree(Settings()), sort_keys=False)
    example = f"## All defaults\n\n```yaml\n{whole}```\n"
    return _INTRO + "\n".join(sections) + "\n" + example


def _section(type_: type, value: Any, prefix: str, title: str) -> str:
    texts = attribute_texts(type_)
    hints = get_type_hints(type_)
    rows = []
    for field in dataclasses.fields(type_):
        default = getattr(value, field.name)
        if dataclasses.is_dataclass(default):
            continue
        path = prefix + camel(field.name)
        rows.append(
            (
                f"{anchor(path.replace('.', '-').lower())}`{path}`",
                _TYPES.get(hints[field.name], "map of name to true or false"),
                _default(default),
                _sentence(texts[field.name]),
            )
        )
    summary = (inspect.getdoc(type_) or "").split("\n", 1)[0]
    intro = "" if prefix == "" else f"{summary}\n\n"
    return f"## {title}\n\n{intro}{table(('Field', 'Type', 'Default', 'Meaning'), rows)}"


def attribute_texts(type_: type) -> dict[str, str]:
    """What the `Attributes:` part of a Google-style docstring says of each attribute."""
    _, _, part = (inspect.getdoc(type_) or "").partition("Attributes:\n")
    texts: dict[str, str] = {}
    name = ""
    for line in part.splitlines():
        start = re.match(r"    (\w+): (.*)", line)
        if start:
            name = start[1]
            texts[name] = start[2]
        elif name and line.strip():
            texts[name] += " " + line.strip()
    return texts


def _default(value: object) -> str:
    if value in ("", {}):
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float) and value.is_integer():
        return f"`{int(value)}`"
    return f"`{value}`"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
