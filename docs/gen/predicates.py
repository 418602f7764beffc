"""What is checked in which mode, from the registries of plugins."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from allocator.policies import POLICIES
from allocator.scoring import STRATEGIES
from docs.gen.markdown import anchor, table
from scheduler import plugins
from scheduler.framework.environment import Environment
from scheduler.plugins import dynamic_resources, unsupported

_INTRO: Final = """# Predicates and scores

A predicate says whether a pod may run on a node. With the extender, kube-scheduler runs its own predicates and this scheduler
adds those about devices; stand-alone, all of them run here. Names are those of upstream's plugins.

## Predicates

They run in this order, cheapest first; the devices come last. *Pod* means: checked once for the pod, before any node.

"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        (
            _INTRO + _predicates(),
            _UNSUPPORTED + _texts(),
            _SCORES.format(
                strategy=inspect.signature(Environment).parameters["device_strategy"].default
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
alternative of a request, 7 for the second, and so on, scaled so that the best node has 100. Stand-alone, taints that only prefer
(weight 3), preferred node affinity (2) and free cpu and memory (1) count in addition to devices (2), as in kube-scheduler. Ties between nodes
are broken by a strategy, `{strategy}` unless an embedding program chooses another:

"""

_POLICIES: Final = """## Policies

Which of several possible sets of devices on one node is taken (`--policy`):

"""


def _predicates() -> str:
    standalone: dict[str, str] = {}
    for registry, where in (
        (plugins.STANDALONE_PRE_FILTERS, "pod"),
        (plugins.STANDALONE_FILTERS, "node"),
    ):
        for name in registry:
            standalone[name] = f"{standalone[name]}, {where}" if name in standalone else where
    extender = {*plugins.EXTENDER_PRE_FILTERS, *plugins.EXTENDER_FILTERS}
    functions: Mapping[str, Callable[..., Any]] = {
        **plugins.STANDALONE_PRE_FILTERS,
        **plugins.STANDALONE_FILTERS,
    }
    rows = [
        (
            f"{anchor(name.lower())}`{name}`",
            where,
            "yes" if name in extender else "kube-scheduler's own",
            _summary(functions[name], name),
        )
        for name, where in standalone.items()
    ]
    summary = _module_summary(inspect.getmodule(dynamic_resources), "DynamicResources")
    rows.append((f"{anchor('dynamicresources')}`DynamicResources`", "pod, node", "yes", summary))
    return table(("Predicate", "Stand-alone", "Extender", "Rule"), rows)


def _summary(function: Callable[..., Any], name: str) -> str:
    return _module_summary(inspect.getmodule(function), name)


def _module_summary(module: Any, name: str) -> str:
    """The first sentence of a plugin's module, without its name in front."""
    text = (inspect.getdoc(module) or "").split("\n", 1)[0].removeprefix(f"{name}: ")
    return text[:1].upper() + text[1:]


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
