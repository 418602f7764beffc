"""One predicate or scorer a file. The registry is written out below: order is the order in which they run."""

from collections.abc import Mapping
from typing import Final

from scheduler.framework.environment import Mode
from scheduler.framework.events import Event
from scheduler.framework.plugin import Plugin
from scheduler.framework.profile import Profile
from scheduler.plugins import (
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_allocatable,
    node_name,
    node_ports,
    node_resources,
    node_unschedulable,
    scheduling_gates,
    taint_toleration,
    unsupported,
)

# Cheapest first; the search for devices comes after all filters.
PLUGINS: Final[tuple[Plugin, ...]] = (
    scheduling_gates.PLUGIN,
    node_unschedulable.PLUGIN,
    node_name.PLUGIN,
    taint_toleration.PLUGIN,
    node_affinity.PLUGIN,
    node_ports.PLUGIN,
    unsupported.PLUGIN,
    node_resources.PLUGIN,
    inter_pod_affinity.PLUGIN,
    dynamic_resources.PLUGIN,
    node_allocatable.PLUGIN,
)

PROFILES: Final[Mapping[Mode, Profile]] = {mode: Profile(PLUGINS, mode) for mode in Mode}
"""What runs in each mode."""

WAKES: Final[Mapping[str, Event]] = {plugin.name: plugin.events for plugin in PLUGINS}
"""Plugin -> what may help a pod that it refused."""

ABOUT_DEVICES: Final = frozenset(plugin.name for plugin in PLUGINS if plugin.is_about_devices)
"""Plugins that refuse nodes that pass all other predicates."""

LISTING_SHORTAGES: Final = frozenset(plugin.name for plugin in PLUGINS if plugin.lists_shortages)
"""Plugins whose text is a list of resources, each of which counts for itself."""
