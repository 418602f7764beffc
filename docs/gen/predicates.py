"""What is checked in which mode, from the registry of plugins."""

import inspect
from collections.abc import Mapping
from typing import Final

from allocator.policies import POLICIES
from allocator.scoring import STRATEGIES
from docs.gen.markdown import anchor, table
from scheduler.framework.environment import Environment, Mode
from scheduler.framework.events import Event
from scheduler.framework.plugin import Plugin
from scheduler.plugins import PLUGINS, dynamic_resources, node_allocatable, unsupported

_INTRO: Final = """# Predicates and scores

A predicate says whether a pod may run on a node. With the extender, kube-scheduler runs its own predicates and this scheduler
adds those about devices; stand-alone, all of them run here. Names are those of upstream's plugins.

## Predicates

They run in this order, cheapest first; the devices come last. *Pod* means: checked once for the pod, before any node. A refused pod
is tried again when something happens that may help it; a change of its own spec, and a node that is added, always may.

"""

EVENTS: Final[Mapping[Event, str]] = {
    Event.NODE_ADDED: "a new node",
    Event.NODE_LABELS: "labels of a node",
    Event.NODE_TAINTS: "taints or cordon of a node",
    Event.NODE_ALLOCATABLE: "allocatable of a node",
    Event.NODE_FEATURES: "features of a node",
    Event.ROOM_FREED: "room on a node",
    Event.CLAIM_CHANGED: "a change of its claims",
    Event.CLAIM_FREED: "freed devices",
    Event.DEVICES_CHANGED: "a change of slices or taint rules",
    Event.CLASS_CHANGED: "a device class",
    Event.OWN_SPEC: "a change of its spec",
    Event.OWN_CLAIM_STATUS: "its claims being made",
}


def page() -> str:
    """The whole page."""
    return "\n".join(
        (
            _INTRO + _predicates(),
            _UNSUPPORTED + _texts(),
            _SCORES.format(
                weights=_weights(),
                strategy=inspect.signature(Environment).parameters["device_strategy"].default,
            )
            + table(("Strategy", "Meaning"), _strategies()),
            _POLICIES + table(("Policy", "Meaning"), _policies()),
        )
    )


_UNSUPPORTED: Final = """## Refused constraints

A constraint that no component would check is refused, never skipped. These are the texts; the reason kind is
[`Unsupported`](reasons.md#unsupported). Stand-alone all of them apply; with the extender those about PodGroups and extended
resources do.

"""

_SCORES: Final = """## Scores

Among nodes that fit, the one with the best alternatives of a prioritized list (`firstAvailable`) wins: 8 points for the first
alternative of a request, 7 for the second, and so on, scaled so that the best node has 100. Stand-alone, the scores of several plugins
are added up with their weights, as in kube-scheduler: {weights}. Ties between nodes are broken by a strategy,
`{strategy}` unless an embedding program chooses another:

"""

_POLICIES: Final = """## Policies

Which of several possible sets of devices on one node is taken (`--policy`):

"""


def _predicates() -> str:
    rows = [_row(plugin) for plugin in PLUGINS if plugin is not node_allocatable.PLUGIN]
    return table(("Predicate", "Stand-alone", "Extender", "Rule", "Tried again after"), rows)


def _row(plugin: Plugin) -> tuple[str, ...]:
    is_device_step = plugin is dynamic_resources.PLUGIN
    points = {"pod": plugin.pre_filter or is_device_step, "node": plugin.filter or is_device_step}
    return (
        f"{anchor(plugin.name.lower())}`{plugin.name}`",
        ", ".join(point for point, there in points.items() if there),
        "yes" if Mode.EXTENDER in plugin.modes else "kube-scheduler's own",
        _module_summary(plugin),
        ", ".join(EVENTS[event] for event in plugin.events) or "its own change",
    )


def _module_summary(plugin: Plugin) -> str:
    """The first sentence of a plugin's module, without its name in front."""
    function = plugin.filter or plugin.pre_filter or dynamic_resources.filter_node
    text = inspect.getdoc(inspect.getmodule(function)) or ""
    text = text.split("\n", 1)[0].removeprefix(f"{plugin.name}: ")
    return text[:1].upper() + text[1:]


def _weights() -> str:
    scored = [f"`{plugin.name}` ({plugin.weight})" for plugin in PLUGINS if plugin.weight]
    return ", ".join(scored)


def _texts() -> str:
    texts = [
        value
        for name, value in vars(unsupported).items()
        if name.isupper()
        and not name.startswith("_")
        and name != "NAME"
        and isinstance(value, str)
        and value.endswith("by this scheduler")
    ]
    return "".join(f"- {text}\n" for text in texts)


def _strategies() -> list[tuple[str, str]]:
    return [(f"`{name}`", _first_line(function)) for name, function in STRATEGIES.items()]


def _policies() -> list[tuple[str, str]]:
    return [(f"`{name}`", _first_line(type(policy))) for name, policy in POLICIES.items()]


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]
