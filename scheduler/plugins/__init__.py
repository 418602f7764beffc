"""One predicate or scorer a file. The registries are written out below: order is the order in which they run."""

from collections.abc import Callable, Mapping
from typing import Final

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.status import Status
from scheduler.model import NodeInfo, Pod
from scheduler.plugins import (
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_resources,
    node_unschedulable,
    scheduling_gates,
    taint_toleration,
    unsupported,
)

PreFilter = Callable[[Pod], Status]
Filter = Callable[[CycleState, NodeInfo], Status]

# Looked at once for a pod, before any node.
STANDALONE_PRE_FILTERS: Final[Mapping[str, PreFilter]] = {
    scheduling_gates.NAME: scheduling_gates.pre_filter,
    unsupported.NAME: unsupported.pre_filter_standalone,
}
EXTENDER_PRE_FILTERS: Final[Mapping[str, PreFilter]] = {
    unsupported.NAME: unsupported.pre_filter_extender,
}

# Looked at for every node, cheapest first; the devices come last and are `plugins.dynamic_resources`.
STANDALONE_FILTERS: Final[Mapping[str, Filter]] = {
    node_unschedulable.NAME: node_unschedulable.filter_node,
    node_name.NAME: node_name.filter_node,
    taint_toleration.NAME: taint_toleration.filter_node,
    node_affinity.NAME: node_affinity.filter_node,
    node_ports.NAME: node_ports.filter_node,
    unsupported.NAME: unsupported.filter_node,
    node_resources.NAME: node_resources.filter_node,
    inter_pod_affinity.NAME: inter_pod_affinity.filter_node,
}
EXTENDER_FILTERS: Final[Mapping[str, Filter]] = {
    unsupported.NAME: unsupported.filter_node,
}
