"""L1-L8: what must have happened by the end of a time without faults. Facts of processes come with the end mark.

The run says `healed` when the last fault is over and the last object has been written by a tenant, and `end` when the
quiet time is over.
"""

from collections import Counter
from collections.abc import Iterator

from tests.invariants.cluster import Cluster
from tests.invariants.finding import Finding
from tests.invariants.history import Change, Entry, Mark, Sent
from tests.invariants.objects import (
    Object,
    allocation,
    controller,
    full_name,
    is_deleting,
    is_terminal,
    node_of,
    reserved_for,
    status,
    uid,
)
from tests.invariants.solver import can_be_placed

SETTLED_SECONDS = 60.0
"""After `healed`, until then all that can be done must be done; what follows is the quiet time of L7."""

BOUND_SECONDS = 30.0
MOST_REQUESTS_A_SECOND = 0.5
MOST_REQUESTS_A_WAITING_POD = 0.7  # an attempt each ten seconds, with all that it reads and writes
MOST_MESSAGES = 2
_MOVING = ("ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule", "Node")


class Liveness:
    """Collects what the rules need, and judges at the end."""

    def __init__(self, ours: tuple[str, ...], scheduler_name: str) -> None:
        self._ours = ours
        self._scheduler_name = scheduler_name
        self._healed_at: float | None = None
        self._requests: Counter[str] = Counter()
        self._refusals: Counter[tuple[str, str, str]] = Counter()
        self._messages: dict[str, tuple[str, int]] = {}  # pod UID -> text, revision
        self._changes: Counter[str] = Counter()  # pod UID -> changes of the text for no reason
        self._moved_at = 0  # revision of the last change that may be a reason
        self._freed_at = float("-inf")  # seconds, of the last change that may have made room

    def take(self, entry: Entry, cluster: Cluster) -> Iterator[Finding]:
        """See an entry; at the end, judge."""
        if isinstance(entry, Mark):
            if entry.name == "healed":
                self._healed_at = entry.at
            elif entry.name == "end" and self._healed_at is not None:
                yield from self._judge(entry, cluster)
            return
        if self._healed_at is None:
            return
        if isinstance(entry, Sent):
            if not entry.author.startswith(self._ours):
                return
            is_work = "/leases" not in entry.path and "/events" not in entry.path
            if is_work and entry.at >= self._healed_at + SETTLED_SECONDS:
                self._requests[entry.author] += 1
            if entry.status in (403, 422):
                self._refusals[entry.author, entry.method, entry.path] += 1
        elif isinstance(entry, Change):
            self._note_message(entry, cluster)

    def _note_message(self, change: Change, cluster: Cluster) -> None:
        if not change.author.startswith(self._ours):
            is_over = change.kind == "Pod" and is_terminal(change.object)
            if change.kind in _MOVING or change.type == "DELETED" or is_over:
                self._freed_at = change.at
        if change.kind in _MOVING or change.type != "MODIFIED":
            self._moved_at = change.revision
        if change.kind != "Pod":
            return
        pod = change.object
        if node_of(pod) or is_deleting(pod):
            self._moved_at = change.revision
        for condition in status(pod).get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                text = f"{condition.get('reason')}: {condition.get('message')}"
                before, at = self._messages.get(uid(pod), (text, 0))
                if text != before and self._moved_at < at:
                    self._changes[uid(pod)] += 1
                self._messages[uid(pod)] = text, change.revision

    def _judge(self, end: Mark, cluster: Cluster) -> Iterator[Finding]:
        is_steady = end.at - self._freed_at >= BOUND_SECONDS
        yield from placed(cluster, self._scheduler_name, end.facts, is_steady=is_steady)
        yield from leaks(cluster, end.facts)
        yield from self._quiet(end)
        yield from _caches(end)
        yield from _leaders(end)
        for pod_uid, changes in sorted(self._changes.items()):
            pod = cluster.get("Pod", pod_uid)
            # Two that schedule at once contradict each other.
            is_exempt = pod_uid in end.facts.get("exempt_pods", ()) or (
                end.facts.get("leaders", 1) > 1
            )
            if pod is not None and changes > MOST_MESSAGES and not is_exempt:
                text = f"was told another reason {changes} times, and nothing had changed"
                yield Finding("L2", full_name(pod), text)
        for process, facts in sorted(end.facts.get("processes", {}).items()):
            if facts.get("tasks", 0) > facts.get("most_tasks", 1_000):
                yield Finding("L8", process, f"{facts['tasks']} tasks")

    def _quiet(self, end: Mark) -> Iterator[Finding]:
        seconds = end.at - (self._healed_at or 0.0) - SETTLED_SECONDS
        if seconds < 10.0:
            return
        waiting = end.facts.get("waiting", 0)
        most = (MOST_REQUESTS_A_SECOND + waiting * MOST_REQUESTS_A_WAITING_POD) * seconds
        for author, count in sorted(self._requests.items()):
            if count > most:
                text = f"{count} requests in {seconds:.0f} s without work"
                yield Finding("L7", author, text)
        for (author, method, path), count in sorted(self._refusals.items()):
            if count > 3 + seconds / 2 * max(1, waiting):
                text = f"{method} {path} is refused for good, and was sent {count} times"
                yield Finding("L7", author, text)


def placed(
    cluster: Cluster, scheduler_name: str, facts: Object, *, is_steady: bool
) -> Iterator[Finding]:
    """L1, L2, L3: whoever can be placed is, if there has been room for a while; the others are told why."""
    exempt = set(facts.get("exempt_pods", ()))
    for pod in cluster.all("Pod"):
        if not _is_waiting(pod, scheduler_name) or uid(pod) in exempt:
            continue
        if can_be_placed(pod, cluster):
            if is_steady:
                yield Finding("L1", full_name(pod), "could be bound, and is not")
        elif facts.get("writes_conditions", True) and not _is_told(pod):
            yield Finding("L2", full_name(pod), "is not told why it is not bound")


def _is_waiting(pod: Object, scheduler_name: str) -> bool:
    return (
        not node_of(pod)
        and not is_terminal(pod)
        and not is_deleting(pod)
        and not pod["spec"].get("schedulingGates")
        and (not scheduler_name or pod["spec"].get("schedulerName") == scheduler_name)
    )


def _is_told(pod: Object) -> bool:
    return any(
        condition["type"] == "PodScheduled" and condition["status"] == "False"
        for condition in status(pod).get("conditions") or ()
    )


def leaks(cluster: Cluster, facts: Object) -> Iterator[Finding]:
    """L4: nothing is allocated for nobody; what was made for a pod goes with it."""
    exempt = set(facts.get("exempt_claims", ()))
    for claim in cluster.all("ResourceClaim"):
        if uid(claim) in exempt:
            continue
        owner = controller(claim)
        if owner is not None and owner.get("kind") == "Pod":
            pod = cluster.get("Pod", owner["uid"])
            if pod is None or is_terminal(pod):
                yield Finding("L4", full_name(claim), "its pod is gone, and it is not")
                continue
        if allocation(claim) is None or not facts.get("allocated_by_us", {}).get(uid(claim), True):
            continue
        if not any(_holds(cluster, entry) for entry in reserved_for(claim)):
            yield Finding("L4", full_name(claim), "is allocated, and nobody uses it")


def _holds(cluster: Cluster, consumer: Object) -> bool:
    if consumer.get("resource") != "pods" or consumer.get("apiGroup"):
        return True
    pod = cluster.get("Pod", consumer["uid"])
    return pod is not None and not is_terminal(pod)


def _caches(end: Mark) -> Iterator[Finding]:
    """L5: caches are as the server is; nothing is in flight."""
    truth = end.facts.get("digest")
    for process, facts in sorted(end.facts.get("processes", {}).items()):
        if not facts.get("synced", True):
            yield Finding("L5", process, "has not read the cluster")
            continue
        for kind, digest in sorted((facts.get("digest") or {}).items()):
            if truth is not None and kind in truth and digest != truth[kind]:
                yield Finding("L5", process, f"its cache of {kind} is not as the server is")
        for what in ("inFlightClaims", "assumedClaims", "openBinds"):
            if facts.get(what):
                yield Finding("L5", process, f"{what}: {facts[what]}")


def _leaders(end: Mark) -> Iterator[Finding]:
    """L6: one process leads."""
    processes = end.facts.get("processes", {})
    if not processes:
        return
    active = sorted(name for name, facts in processes.items() if facts.get("active"))
    wanted = end.facts.get("leaders", 1)
    if len(active) != wanted:
        yield Finding("L6", ", ".join(active) or "nobody", f"{len(active)} lead, not {wanted}")
