"""S1b, S5, S6: what must be true at the moment at which a pod is bound."""

from collections.abc import Iterator, Mapping

from tests.invariants import sharing
from tests.invariants.cluster import Cluster
from tests.invariants.finding import Finding
from tests.invariants.objects import (
    Device,
    Object,
    allocation,
    controller,
    device_of,
    full_name,
    hard_taints,
    is_live,
    name,
    nanos,
    node_of,
    reserved_for,
    results,
    selector_matches,
    status,
    tolerates,
    uid,
)

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def usable(pod: Object, cluster: Cluster) -> Iterator[Finding]:
    """S5: every claim of a bound pod is there, allocated for its node, reserved for it, and ready."""
    node = cluster.find("Node", "", node_of(pod))
    for entry, claim in cluster.claims_of(pod):
        if claim is None:
            yield Finding("S5", full_name(pod), f"bound, but the claim of {entry} does not exist")
            continue
        called = name(claim)
        allocated = allocation(claim)
        if allocated is None:
            yield Finding("S5", full_name(pod), f"bound, but claim {called} is not allocated")
            continue
        if uid(pod) not in {consumer["uid"] for consumer in reserved_for(claim)}:
            yield Finding("S5", full_name(pod), f"bound, but claim {called} is not reserved for it")
        if node is not None and not selector_matches(allocated.get("nodeSelector"), node):
            yield Finding("S5", full_name(pod), f"bound to a node that claim {called} is not for")
        owner = controller(claim)
        if owner is not None and owner.get("kind") == "Pod" and owner["uid"] != uid(pod):
            yield Finding("S5", full_name(pod), f"uses claim {called} of another pod")
        yield from _conditions(pod, claim)


def _conditions(pod: Object, claim: Object) -> Iterator[Finding]:
    told: Mapping[Device, list[Object]] = {
        device_of(each): each.get("conditions") or [] for each in status(claim).get("devices") or ()
    }
    for result in results(claim):
        conditions = {each["type"]: each["status"] for each in told.get(device_of(result), ())}
        for wanted in result.get("bindingConditions") or ():
            if conditions.get(wanted) != "True":
                text = f"bound before {'/'.join(device_of(result))} was {wanted}"
                yield Finding("S5", full_name(pod), text)
        for failure in result.get("bindingFailureConditions") or ():
            if conditions.get(failure) == "True":
                text = f"bound although {'/'.join(device_of(result))} is {failure}"
                yield Finding("S5", full_name(pod), text)


def alone(pod: Object, cluster: Cluster, is_ours: Mapping[str, bool]) -> Iterator[Finding]:
    """S1b: what the pod uses is used by no other bound pod, whatever went wrong with leases and clocks.

    Not by one whose claim was allocated earlier: whoever came later has to notice. Likewise for counters and capacity.

    Args:
        pod: that was bound just now.
        cluster: as it is.
        is_ours: claim UID -> whether we allocated it.
    """
    used = {
        uid(claim)
        for other in cluster.all("Pod")
        if is_live(other)
        for _, claim in cluster.claims_of(other)
        if claim is not None
    }
    for _, claim in cluster.claims_of(pod):
        if claim is None or allocation(claim) is None:
            continue
        mine = cluster.allocated_at.get(uid(claim), 0)
        rivals = [
            other
            for other in cluster.all("ResourceClaim")
            if uid(other) in used
            and uid(other) != uid(claim)
            and (cluster.allocated_at.get(uid(other), 0) < mine or is_ours.get(uid(other), True))
        ]
        subjects = {"/".join(device) for device, _ in sharing.held(claim)}
        for found in sharing.exclusive([*rivals, claim], "S1b"):
            if found.subject in subjects:
                yield found


def counted(pod: Object, cluster: Cluster, slack: float) -> Iterator[Finding]:
    """S2, S3 over claims of bound pods: the same for what many draw on together."""
    used = {
        uid(claim)
        for other in cluster.all("Pod")
        if is_live(other)
        for _, claim in cluster.claims_of(other)
        if claim is not None
    }
    for _, claim in cluster.claims_of(pod):
        if claim is None or allocation(claim) is None:
            continue
        mine = cluster.allocated_at.get(uid(claim), 0)
        together = [
            other
            for other in cluster.all("ResourceClaim")
            if uid(other) == uid(claim)
            or (uid(other) in used and cluster.allocated_at.get(uid(other), 0) < mine)
        ]
        yield from within(together, claim, cluster, slack)


def within(
    claims: list[Object], about: Object, cluster: Cluster, slack: float
) -> Iterator[Finding]:
    """S2, S3: what is wrong in *every* state of the slices that may have been looked at."""
    newest: list[Finding] | None = None
    for state in cluster.past("ResourceSlice", slack):
        slices = list(state.values())
        found = [
            *sharing.over_capacity(claims, slices, about),
            *sharing.over_counters(claims, slices, about),
        ]
        if not found:
            return
        newest = found if newest is None else newest
    yield from newest or ()


def legal_node(
    pod: Object, before: Object | None, cluster: Cluster, slack: float, *, predicates: bool
) -> Iterator[Finding]:
    """S6: the node is there, and takes the pod."""
    if before is not None and node_of(before):
        yield Finding("S6", full_name(pod), f"bound again, to {node_of(pod)}")
    found = [
        state_node
        for state in cluster.past("Node", slack)
        for state_node in state.values()
        if name(state_node) == node_of(pod)
    ]
    if not found:
        yield Finding("S6", full_name(pod), f"bound to {node_of(pod)}, which does not exist")
        return
    if not predicates:
        return
    answers = [list(refusals(pod, node, cluster)) for node in found]
    if all(answers):
        yield Finding(
            "S6", full_name(pod), f"node {node_of(pod)} does not take it: {answers[0][0]}"
        )


def refusals(pod: Object, node: Object, cluster: Cluster) -> Iterator[str]:
    """Why a node does not take a pod that names it in its spec (whether or not it is counted there yet)."""
    spec = pod["spec"]
    tolerations = spec.get("tolerations") or ()
    taints = list(node.get("spec", {}).get("taints") or ())
    if node.get("spec", {}).get("unschedulable"):
        taints.append(UNSCHEDULABLE)
    for taint in hard_taints(taints):
        if not any(tolerates(each, taint) for each in tolerations):
            yield f"taint {taint['key']}"
    labels = node["metadata"].get("labels") or {}
    for key, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            yield f"label {key}"
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity is not None and not selector_matches(affinity, node):
        yield "node affinity"
    yield from _overcommitted(pod, node, cluster)


def _overcommitted(about: Object, node: Object, cluster: Cluster) -> Iterator[str]:
    there = [
        pod
        for pod in cluster.all("Pod")
        if node_of(pod) == name(node) and is_live(pod) and uid(pod) != uid(about)
    ] + [about]
    allocatable = status(node).get("allocatable") or {}
    for resource in ("cpu", "memory"):
        if resource in allocatable:
            asked = sum(_requests(pod, resource) for pod in there)
            if asked > nanos(allocatable[resource]):
                yield f"too little {resource}"
    if "pods" in allocatable and len(there) > int(allocatable["pods"]):
        yield "too many pods"
    ports = [
        (port.get("protocol", "TCP"), port["hostPort"])
        for pod in there
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]
    if len(ports) > len(set(ports)):
        yield "a host port is used twice"


def _requests(pod: Object, resource: str) -> int:
    return sum(
        nanos(str(((container.get("resources") or {}).get("requests") or {}).get(resource, "0")))
        for container in pod["spec"].get("containers") or ()
    )
