"""S7-S11: how claims are written. Each rule looks at one write, and the claim before it."""

from collections.abc import Iterator

from tests.invariants.cluster import Cluster
from tests.invariants.finding import Finding
from tests.invariants.objects import (
    FINALIZER,
    Object,
    allocation,
    claim_names,
    full_name,
    is_admin,
    is_deleting,
    is_live,
    name,
    namespace,
    reserved_for,
    results,
    uid,
)

MAX_CONSUMERS = 256


def in_form(claim: Object) -> Iterator[Finding]:
    """S7, S8: what must be true of a claim by itself."""
    consumers = [entry["uid"] for entry in reserved_for(claim)]
    if len(consumers) > MAX_CONSUMERS or len(consumers) != len(set(consumers)):
        text = f"{len(consumers)} consumers, {len(set(consumers))} different"
        yield Finding("S8", full_name(claim), text)
    if allocation(claim) is not None:
        finalizers = claim["metadata"].get("finalizers") or []
        if finalizers.count(FINALIZER) != 1:
            yield Finding("S7", full_name(claim), f"allocated with finalizers {finalizers}")


def bare(claim: Object) -> Iterator[Finding]:
    """S10: allocated is reserved."""
    if not reserved_for(claim):
        yield Finding("S10", full_name(claim), "allocated without a reservation")


def timed(claim: Object) -> Iterator[Finding]:
    """An allocation says when it was made; without that kube-scheduler never shares the claim."""
    allocated = allocation(claim)
    if allocated is not None and not allocated.get("allocationTimestamp"):
        yield Finding("timestamp", full_name(claim), "allocated without allocationTimestamp")


def written(
    before: Object | None, after: Object, cluster: Cluster, slack: float
) -> Iterator[Finding]:
    """S8-S11: what our write did to a claim."""
    yield from in_form(after)
    was, now = allocation(before or {}), allocation(after)
    if was is None and now is not None:
        yield from bare(after)
        yield from timed(after)
        yield from _admin(after, cluster)
    elif was is not None and now is not None and was != now:
        yield Finding("S9", full_name(after), "its allocation was replaced by another")
    yield from _added(before, after, cluster, slack)
    yield from _removed(before, after, cluster)
    if before is not None:
        yield from _kept(before, after)


def _admin(claim: Object, cluster: Cluster) -> Iterator[Finding]:
    if any(map(is_admin, results(claim))) and namespace(claim) not in cluster.admin_namespaces:
        yield Finding("S11", full_name(claim), "admin access in a namespace that has none")


def _added(
    before: Object | None, after: Object, cluster: Cluster, slack: float
) -> Iterator[Finding]:
    known = {entry["uid"] for entry in reserved_for(before or {})}
    for entry in reserved_for(after):
        if entry["uid"] in known:
            continue
        if is_deleting(after):
            yield Finding("S8", full_name(after), "reserved while it is being deleted")
        if entry.get("resource") != "pods" or entry.get("apiGroup"):
            yield Finding("S8", full_name(after), f"reserved for a {entry.get('resource')}")
            continue
        pod = cluster.seen_pods.get(entry["uid"])
        if pod is None or not cluster.was_there(entry["uid"], slack):
            yield Finding("S8", full_name(after), "reserved for a pod that is not there")
        elif namespace(pod) != namespace(after) or name(pod) != entry["name"]:
            yield Finding("S8", full_name(after), "reserved for a pod of another name")
        elif name(after) not in claim_names(pod).values():
            yield Finding(
                "S8", full_name(after), f"reserved for {name(pod)}, which does not use it"
            )


def _removed(before: Object | None, after: Object, cluster: Cluster) -> Iterator[Finding]:
    left = {entry["uid"] for entry in reserved_for(after)}
    removed = [entry for entry in reserved_for(before or {}) if entry["uid"] not in left]
    for entry in removed:
        pod = cluster.get("Pod", entry["uid"])
        if pod is not None and is_live(pod):
            yield Finding(
                "S9", full_name(after), f"the reservation of bound pod {name(pod)} is gone"
            )
    was = allocation(before or {}) is not None
    if was and allocation(after) is None:
        foreign = [entry for entry in removed if entry.get("resource") != "pods"]
        if left or foreign or len(removed) > 1:
            yield Finding("S9", full_name(after), "deallocated while others hold it")


def _kept(before: Object, after: Object) -> Iterator[Finding]:
    if before["spec"] != after["spec"]:
        yield Finding("S12", full_name(after), "its spec was changed")
    devices = [(each.get("status") or {}).get("devices") for each in (before, after)]
    if devices[0] != devices[1] and allocation(after) is not None:
        yield Finding("S12", full_name(after), "status.devices was changed")
    if uid(before) != uid(after):
        yield Finding("S12", full_name(after), "its UID was changed")
    for field in ("labels", "ownerReferences"):
        if before["metadata"].get(field) != after["metadata"].get(field):
            yield Finding("S12", full_name(after), f"its {field} were changed")
