"""What changes of the cluster mean for a pod that was refused. Which of them may help it its refusing plugins say.

Only one change is looked at; what only the pod's own claims can tell (`own claim`, `claims resolve`) is the queue's to
add.

Source: EventsToRegister and the hints of the in-tree plugins; docs/design/scheduling-cycle.md#wake-up-events,
docs/design/scheduling-cycle.md#queue.
"""

from collections.abc import Mapping
from enum import Flag, auto
from typing import Final

from scheduler.framework.resources import assigned_pod_requests
from scheduler.model import (
    Change,
    ClaimRecord,
    Kind,
    NodeObject,
    Pod,
    UnreadableClaim,
    UnreadableNode,
)


class Event(Flag):
    """What happened, as far as any plugin cares."""

    NOTHING = 0
    NODE_ADDED = auto()
    NODE_LABELS = auto()
    NODE_TAINTS = auto()
    NODE_ALLOCATABLE = auto()
    NODE_FEATURES = auto()
    ROOM_FREED = auto()  # an assigned pod ended, went, or asks for less
    CLAIM_CHANGED = auto()  # added, or its status differs: concerns the claim's own pods
    CLAIM_FREED = auto()  # its devices can be had by anybody
    DEVICES_CHANGED = auto()  # slices or taint rules
    CLASS_CHANGED = auto()
    OWN_SPEC = auto()  # the waiting pod itself, or its labels
    OWN_CLAIM_STATUS = auto()


NODE_ANY: Final = (
    Event.NODE_ADDED | Event.NODE_LABELS | Event.NODE_ALLOCATABLE | Event.NODE_FEATURES
)
READ_OF_NODES: Final[Mapping[str, Event]] = {
    "node.metadata.name": Event.NODE_ADDED,
    "node.spec.taints": Event.NODE_TAINTS,
    "node.spec.unschedulable": Event.NODE_TAINTS,
    "node.status.allocatable": Event.NODE_ALLOCATABLE,
    "is_unlimited": Event.NODE_ALLOCATABLE,
    "for_allocator.labels": Event.NODE_LABELS,
    "for_allocator.declared_features": Event.NODE_FEATURES,
    "pods": Event.ROOM_FREED,
    "requested": Event.ROOM_FREED,
    "ports": Event.ROOM_FREED,
}
"""What plugins read of a `NodeInfo` -> what may help the pods that they refused for that."""
# A change of the pod's own spec is worth a try whoever refused it; a cluster without nodes waits for one.
ALWAYS: Final = Event.OWN_SPEC | Event.NODE_ADDED


def events_of(change: Change) -> Event:
    """Say what a change means; most changes mean nothing to a waiting pod."""
    match change.kind:
        case Kind.NODE:
            return _node_events(change.old, change.new)
        case Kind.POD:
            return _pod_events(change.old, change.new)
        case Kind.RESOURCE_CLAIM:
            return _claim_events(change.old, change.new)
        case Kind.RESOURCE_SLICE:
            return Event.NOTHING if change.new is None else Event.DEVICES_CHANGED
        case Kind.DEVICE_TAINT_RULE:
            return Event.DEVICES_CHANGED
        case Kind.DEVICE_CLASS:
            return Event.NOTHING if change.new is None else Event.CLASS_CHANGED


def _node_events(old: object, new: object) -> Event:
    if not isinstance(new, NodeObject) or isinstance(new, UnreadableNode):
        return Event.NOTHING
    if not isinstance(old, NodeObject) or isinstance(old, UnreadableNode):
        return Event.NODE_ADDED
    events = Event.NOTHING
    if old.metadata.labels != new.metadata.labels:
        events |= Event.NODE_LABELS
    if old.spec != new.spec:
        events |= Event.NODE_TAINTS
    if old.status.allocatable != new.status.allocatable:
        events |= Event.NODE_ALLOCATABLE
    if old.status.declared_features != new.status.declared_features:
        events |= Event.NODE_FEATURES
    return events


def _pod_events(old: object, new: object) -> Event:
    """An assigned pod; a waiting pod's own changes come to the queue by themselves."""
    if not isinstance(old, Pod) or not old.spec.node_name or old.is_terminal:
        return Event.NOTHING
    if not isinstance(new, Pod) or new.is_terminal:
        return Event.ROOM_FREED
    if old.spec is new.spec and old.status is new.status:
        return Event.NOTHING
    before, after = assigned_pod_requests(old), assigned_pod_requests(new)
    if any(after.get(name, 0) < amount for name, amount in before.items()):
        return Event.ROOM_FREED
    return Event.NOTHING


def _claim_events(old: object, new: object) -> Event:
    before = old.claim.status if isinstance(old, ClaimRecord) else None
    after = new.claim.status if isinstance(new, ClaimRecord) else None
    was_allocated = before is not None and before.allocation is not None
    if was_allocated and (after is None or after.allocation is None):
        return Event.CLAIM_FREED | Event.CLAIM_CHANGED
    if after is None:
        return Event.NOTHING
    is_same = before == after and _is_unreadable(old) == _is_unreadable(new)
    return Event.NOTHING if is_same else Event.CLAIM_CHANGED


def _is_unreadable(claim: object) -> bool:
    return isinstance(claim, ClaimRecord) and isinstance(claim.claim, UnreadableClaim)


def own_events(old: Pod, new: Pod) -> Event:
    """What a waiting pod's own update means; conditions and labels mean nothing, so our own writes wake nobody."""
    events = Event.NOTHING
    if old.spec != new.spec:
        events |= Event.OWN_SPEC
    if (
        old.status.resource_claim_statuses != new.status.resource_claim_statuses
        or old.status.extended_resource_claim_status != new.status.extended_resource_claim_status
    ):
        events |= Event.OWN_CLAIM_STATUS
    return events
