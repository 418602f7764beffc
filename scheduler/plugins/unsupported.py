"""What this scheduler does not check yet, and therefore refuses: a constraint is never skipped silently.

Two sets. Stand-alone, nobody else looks at a pod's constraints. Behind kube-scheduler, its own plugins have looked at
spread, affinity, volumes and node features, and only what concerns devices is left.

Node-allocatable devices are refused where devices are looked at (`plugins.dynamic_resources`).
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.resources import allocatable
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.model import Container, NodeInfo, Pod, UnreadablePod
from scheduler.plugins.inter_pod_affinity import REQUIRED, required_terms

NAME: Final = "Unsupported"

_CLAIM_VOLUMES: Final = ("persistentVolumeClaim", "ephemeral")
_DISKS: Final = (
    "awsElasticBlockStore",
    "azureDisk",
    "cinder",
    "gcePersistentDisk",
    "iscsi",
    "portworxVolume",
    "rbd",
    "vsphereVolume",
)

GROUP: Final = "pods with spec.schedulingGroup are not supported by this scheduler"
SPREAD: Final = (
    "topologySpreadConstraints with whenUnsatisfiable: DoNotSchedule are not supported by this"
    " scheduler"
)
AFFINITY: Final = "required pod affinity is not supported by this scheduler"
ANTI_AFFINITY: Final = "required pod anti-affinity is not supported by this scheduler"
VOLUMES: Final = (
    "volumes of type persistentVolumeClaim and ephemeral are not supported by this scheduler"
)
INLINE_DISKS: Final = "in-line disk volumes are not supported by this scheduler"
USER_NAMESPACES: Final = (
    "hostUsers: false together with hostNetwork is not supported by this scheduler"
)
RESTART_RULES: Final = "restart rules with RestartAllContainers are not supported by this scheduler"
BIND_MOUNT_OPTIONS: Final = (
    "volume mounts with bindMountOptions are not supported by this scheduler"
)
EXTENDED_RESOURCE: Final = (
    "extended resources backed by a DeviceClass are not supported by this scheduler"
)


def _refusal(message: str) -> Status:
    return unresolvable(Reason(kind=ReasonKind.UNSUPPORTED, message=message), NAME)


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers or ()
    yield from pod.spec.init_containers or ()


def _dicts(values: Any) -> Iterable[dict[str, Any]]:
    return [value for value in values or () if isinstance(value, dict)]


def pre_filter_extender(pod: Pod) -> Status:
    """Refuse what neither kube-scheduler nor this scheduler would honour when called for one pod at a time."""
    if isinstance(pod, UnreadablePod):
        return _refusal(f"the pod cannot be read: {pod.problem}")
    if pod.spec.scheduling_group is not None or pod.spec.workload_ref is not None:
        return _refusal(GROUP)
    return SUCCESS


def pre_filter_standalone(pod: Pod) -> Status:
    """Refuse every constraint that nobody would check."""
    status = pre_filter_extender(pod)
    if not status.is_success:
        return status
    message = _constraint(pod) or _volume(pod) or _node_feature(pod)
    return _refusal(message) if message else SUCCESS


def _constraint(pod: Pod) -> str:
    for constraint in _dicts(pod.spec.topology_spread_constraints):
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") != "ScheduleAnyway":
            return SPREAD
    affinity = pod.spec.affinity
    if affinity is not None and (affinity.pod_affinity or {}).get(REQUIRED):
        return AFFINITY
    if required_terms(pod):
        return ANTI_AFFINITY
    return ""


def _volume(pod: Pod) -> str:
    for volume in pod.spec.volumes or ():
        if any(volume.get(kind) is not None for kind in _CLAIM_VOLUMES):
            return VOLUMES
        if any(volume.get(kind) is not None for kind in _DISKS):
            return INLINE_DISKS
    return ""


def _node_feature(pod: Pod) -> str:
    """Features of the node that only some pods need (NodeDeclaredFeatures).

    Source: k8s.io/component-helpers/nodedeclaredfeatures/features.
    """
    if pod.spec.host_network and pod.spec.host_users is False:
        return USER_NAMESPACES
    for container in _containers(pod):
        for rule in _dicts(container.restart_policy_rules):
            if rule.get("action") == "RestartAllContainers":
                return RESTART_RULES
        for mount in _dicts(container.volume_mounts):
            if mount.get("bindMountOptions"):
                return BIND_MOUNT_OPTIONS
    return ""


def filter_node(state: CycleState, node: NodeInfo) -> Status:
    """Refuse a node where a requested extended resource would have to come from DRA.

    A node that offers the resource through a device plugin is the resource predicate's business. Without this check the
    pod would be bound *without devices*: NodeResourcesFit, ours and kube-scheduler's, leaves such resources to DRA.
    """
    if not state.backed_resources:
        return SUCCESS
    offered = allocatable(node.node)
    if any(offered.get(name, 0) <= 0 for name in state.backed_resources):
        return _refusal(EXTENDED_RESOURCE)
    return SUCCESS
