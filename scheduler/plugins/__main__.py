"""`python -m scheduler.plugins` lists the plugins in the order in which they run."""

import sys

from scheduler.framework.plugin import Plugin
from scheduler.plugins import PLUGINS


def row(plugin: Plugin) -> tuple[str, ...]:
    """What a plugin says of itself, in words."""
    points = {
        "pre-filter": plugin.pre_filter,
        "filter": plugin.filter,
        "search": plugin.weight and plugin.score is None,
        f"score x {plugin.weight}": plugin.weight,
    }
    return (
        plugin.name,
        ", ".join(point for point, there in points.items() if there) or "after the search",
        ", ".join(sorted(mode.value for mode in plugin.modes)),
        ", ".join(str(event.name).lower() for event in plugin.events) or "none",
    )


def table() -> str:
    """All of them, one a line."""
    rows = [("plugin", "does", "modes", "events that wake"), *map(row, PLUGINS)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(each, widths, strict=True)).rstrip()
        for each in rows
    )


if __name__ == "__main__":
    sys.stdout.write(f"{table()}\n")
