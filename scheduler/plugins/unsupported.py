"""Unsupported: constraints that nobody would check are refused, never skipped silently.

Two sets. Stand-alone, nobody else looks at a pod's constraints. Behind kube-scheduler, its own plugins have looked at
spread, affinity, volumes and node features, and only what concerns devices is left.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from allocator.model.devices import DeviceClass
from allocator.outcome import Reason, ReasonKind
from scheduler.framework.environment import Mode
from scheduler.framework.events import Event
from scheduler.framework.plugin import IN_EVERY_MODE, Plugin, Reads
from scheduler.framework.pod_info import Fact, PodInfo
from scheduler.framework.resources import (
    IMPLICIT_EXTENDED_PREFIX,
    allocatable,
    is_extended,
    pod_requests,
)
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.model import ClusterSnapshot, Container, NodeInfo, Pod, UnreadablePod
from scheduler.plugins.anti_affinity import REQUIRED, required_terms

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


def pre_filter(pod: Pod, mode: Mode) -> Status:
    """Refuse every constraint that nobody would check.

    In extender mode: what neither kube-scheduler nor this scheduler would honour when called for one pod at a time.
    """
    if isinstance(pod, UnreadablePod):
        return _refusal(f"the pod cannot be read: {pod.problem}")
    if pod.spec.scheduling_group is not None or pod.spec.workload_ref is not None:
        return _refusal(GROUP)
    if mode is Mode.EXTENDER:
        return SUCCESS
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


def _classes(snapshot: ClusterSnapshot) -> Mapping[str, DeviceClass]:
    return snapshot.devices.classes


def backed_resources(pod: Pod, classes: Mapping[str, DeviceClass]) -> frozenset[str]:
    """Requested extended resources that a DeviceClass names, explicitly or implicitly."""
    if not any(map(is_extended, _resource_names(pod))):
        return frozenset()
    requests = pod_requests(pod)
    names = {name for name, amount in requests.items() if amount and is_extended(name)}
    explicit = {each.spec.extended_resource_name for each in classes.values()}
    return frozenset(
        name
        for name in names
        if name in explicit
        or (
            name.startswith(IMPLICIT_EXTENDED_PREFIX)
            and name.removeprefix(IMPLICIT_EXTENDED_PREFIX) in classes
        )
    )


def _resource_names(pod: Pod) -> Iterator[str]:
    for container in _containers(pod):
        yield from container.resources.requests or ()
    yield from pod.spec.overhead or ()


BACKED_RESOURCES: Final = Fact(
    "requested extended resources that a DeviceClass backs",
    gather=_classes,
    look_up=backed_resources,
)


def filter_node(pod: PodInfo, node: NodeInfo) -> Status:
    """Refuse a node where a requested extended resource would have to come from DRA.

    A node that offers the resource through a device plugin is the resource predicate's business. Without this check the
    pod would be bound *without devices*: NodeResourcesFit, ours and kube-scheduler's, leaves such resources to DRA.
    """
    backed = pod.fact(BACKED_RESOURCES)
    if not backed:
        return SUCCESS
    offered = allocatable(node.node)
    if any(offered.get(name, 0) <= 0 for name in backed):
        return _refusal(EXTENDED_RESOURCE)
    return SUCCESS


PLUGIN: Final = Plugin(
    name=NAME,
    modes=IN_EVERY_MODE,
    pre_filter=pre_filter,
    facts=(BACKED_RESOURCES,),
    filter=filter_node,
    events=Event.NODE_ADDED | Event.NODE_ALLOCATABLE | Event.CLASS_CHANGED,
    reads=Reads(node=("node.status.allocatable",)),
)
