"""Judges a history, entry by entry.

| rule | looked at |
|---|---|
| S1, S2, S3, S4, S11 | when we allocate a claim |
| S1b, S5, S6 (and S2, S3 over bound pods) | when we bind a pod |
| S7, S8, S9, S10, S12 | whenever we write a claim |
| S12, S14 | requests and webhook calls |
| S13 | when a claim is allocated under an epoch |
| S15 | all of these, in a run in which we are killed |
| L1-L8 | at the end of a quiet time, see `liveness` |
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tests.invariants import claims as claim_rules
from tests.invariants import pods as pod_rules
from tests.invariants import requests as request_rules
from tests.invariants import sharing
from tests.invariants.answers import View, nodes_for, problems
from tests.invariants.cluster import Cluster
from tests.invariants.finding import Finding
from tests.invariants.history import Call, Change, Entry, Mark, Restored, Sent
from tests.invariants.liveness import Liveness
from tests.invariants.objects import (
    EPOCH_ANNOTATION,
    Object,
    allocation,
    annotations,
    full_name,
    is_live,
    name,
    node_of,
    reserved_for,
    uid,
)

MOST_INVALID = 4
__all__ = ["Finding", "Judge", "Terms", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What may be expected of a run.

    Attributes:
        ours: the beginnings of our user names.
        unknown_is_ours: whether a change without an author counts as ours.
        slack: seconds by which what we decide from may be old, up to the write.
        one_allocator: whether only one process allocates at a time (S1; else only S1b is demanded).
        predicates: whether we are the one who looks at taints, labels and resources of nodes.
        scheduler_name: whose pods are ours; empty: everybody's.
    """

    ours: tuple[str, ...] = ("dra-scheduler",)
    unknown_is_ours: bool = False
    slack: float = 5.0
    one_allocator: bool = True
    predicates: bool = True
    scheduler_name: str = "dra-scheduler"

    def is_ours(self, author: str) -> bool:
        """Whether a user is one of us."""
        return author.startswith(self.ours) if author else self.unknown_is_ours


class Judge:
    """Takes a history and collects what is wrong."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.cluster = Cluster()
        self.findings: list[Finding] = []
        self.liveness = Liveness(terms.ours, terms.scheduler_name)
        self._is_ours: dict[str, bool] = {}  # claim UID -> whether its allocation is ours
        self._epochs: list[tuple[int, int]] = []  # (revision, epoch) of allocations, rising
        self._created_at: dict[str, int] = {}  # claim UID -> revision
        self._asked_to_bind: set[str] = set()
        self._lenient_until = float("-inf")
        self._refused: Counter[tuple[str, str]] = Counter()
        self._calls = False
        self._reported: set[tuple[str, str, str]] = set()

    def take(self, entry: Entry) -> None:
        """Judge what comes next."""
        self.cluster.at = entry.at
        match entry:
            case Change():
                self._change(entry)
            case Sent():
                if self.terms.is_ours(entry.author):
                    self._report(request_rules.sent(entry))
                    self._report(self._invalid(entry))
            case Call():
                self._calls = True
                if entry.verb == "bind" and isinstance(entry.request, dict):
                    self._asked_to_bind.add(str(entry.request.get("PodUID")))
                if self.terms.is_ours(entry.author):
                    self._report(request_rules.answered(entry))
            case Restored():
                self._restored(entry)
            case Mark():
                pass
        self._report(self.liveness.take(entry, self.cluster))

    def _invalid(self, request: Sent) -> Iterator[Finding]:
        if not request_rules.is_invalid(request):
            return
        self._refused[request.author, request.path] += 1
        if self._refused[request.author, request.path] == MOST_INVALID:
            what = f"{request.method} {request.path}"
            yield Finding("S12", what, f"is refused as invalid every time: {request.message}")

    def _report(self, found: Iterable[Finding]) -> None:
        for finding in found:
            key = (finding.rule, finding.subject, finding.text)
            if key not in self._reported:
                self._reported.add(key)
                self.findings.append(
                    replace(finding, at=self.cluster.at, revision=self.cluster.revision)
                )

    def _restored(self, entry: Restored) -> None:
        """Caches are of another history, and nobody can tell: not before they have been read again."""
        self._lenient_until = entry.at + self.terms.slack
        self.cluster.revision = entry.revision
        for kind in {*self.cluster.objects, *entry.objects}:
            there = {uid(obj) for obj in entry.objects.get(kind, ())}
            for obj in tuple(self.cluster.objects[kind].values()):
                if uid(obj) not in there:
                    self.cluster.remove(kind, obj)
            for obj in entry.objects.get(kind, ()):
                self.cluster.put(kind, obj)
        self._epochs.clear()

    # --- changes ------------------------------------------------------------------------------------------------------

    def _change(self, change: Change) -> None:
        cluster = self.cluster
        cluster.revision = change.revision
        before = cluster.get(change.kind, uid(change.object))
        if change.type == "DELETED":
            cluster.remove(change.kind, change.object)
            return
        cluster.put(change.kind, change.object)
        if change.kind == "ResourceClaim":
            self._claim(before, change)
        elif change.kind == "Pod":
            self._pod(before, change)

    def _claim(self, before: Object | None, change: Change) -> None:
        cluster, claim, terms = self.cluster, change.object, self.terms
        if before is None:
            self._created_at[uid(claim)] = change.revision
        was, now = allocation(before or {}), allocation(claim)
        ours = terms.is_ours(change.author)
        is_new = now is not None and was is None
        if is_new:
            cluster.allocated_at[uid(claim)] = change.revision
            cluster.allocator[uid(claim)] = change.author
            self._is_ours[uid(claim)] = ours
        elif now is None:
            cluster.allocated_at.pop(uid(claim), None)
        if not ours or change.at < self._lenient_until:
            return
        self._report(claim_rules.written(before, claim, cluster, terms.slack))
        if is_new:
            self._report(self._allocated(claim))

    def _allocated(self, claim: Object) -> Iterator[Finding]:
        cluster, terms = self.cluster, self.terms
        everything = list(cluster.all("ResourceClaim"))
        if terms.one_allocator:
            subjects = {"/".join(device) for device, _ in sharing.held(claim)}
            for found in sharing.exclusive(everything):
                if found.subject in subjects:
                    yield found
            yield from pod_rules.within(everything, claim, cluster, terms.slack)
        else:  # one claim by itself must be right even so
            yield from sharing.exclusive([claim])
        yield from self._answer(claim)
        yield from self._epoch(claim)
        if self._calls:
            asked = {entry["uid"] for entry in reserved_for(claim)}
            if not asked & self._asked_to_bind:
                yield Finding("S14", full_name(claim), "allocated, and nobody asked for a bind")

    def _answer(self, claim: Object) -> Iterator[Finding]:
        """S4: it is an answer in some state of the cluster that may have been looked at."""
        allocated = allocation(claim)
        if allocated is None:
            return
        first: list[str] | None = None
        for view in self._views():
            for nodes in self.cluster.past("Node", self.terms.slack):
                for node in nodes_for(allocated, nodes.values()):
                    found = list(problems(claim, allocated, node, view))
                    if not found:
                        return
                    first = found if first is None else first
        for text in first or ["it is for no node that there is"]:
            yield Finding("S4", full_name(claim), text)

    def _views(self) -> Iterator[View]:
        slack = self.terms.slack
        for slices in self.cluster.past("ResourceSlice", slack):
            for classes in self.cluster.past("DeviceClass", slack):
                for rules in self.cluster.past("DeviceTaintRule", slack):
                    yield View(
                        list(slices.values()),
                        {name(each): each for each in classes.values()},
                        list(rules.values()),
                    )

    def _epoch(self, claim: Object) -> Iterator[Finding]:
        """S13: what was there when a later epoch began to allocate is not allocated under an earlier one."""
        text = annotations(claim).get(EPOCH_ANNOTATION, "")
        if not (text.isascii() and text.isdecimal()):
            return
        epoch, revision = int(text), self.cluster.revision
        for since, later in self._epochs:
            if later > epoch and self._created_at.get(uid(claim), 0) < since:
                yield Finding("S13", full_name(claim), f"allocated in epoch {epoch} after {later}")
                return
        if not self._epochs or self._epochs[-1][1] < epoch:
            self._epochs.append((revision, epoch))

    def _pod(self, before: Object | None, change: Change) -> None:
        pod = change.object
        is_bound = bool(node_of(pod)) and not (before is not None and node_of(before))
        if not is_bound or not self.terms.is_ours(change.author):
            return
        if change.at < self._lenient_until:
            return
        slack = self.terms.slack
        self._report(pod_rules.usable(pod, self.cluster))
        self._report(
            pod_rules.legal_node(pod, before, self.cluster, slack, predicates=self.terms.predicates)
        )
        if is_live(pod):
            self._report(pod_rules.alone(pod, self.cluster, self._is_ours))
            self._report(pod_rules.counted(pod, self.cluster, slack))


def judge(history: Iterable[Entry], terms: Terms) -> list[Finding]:
    """Everything that is wrong with a history."""
    made = Judge(terms)
    for entry in history:
        made.take(entry)
    return made.findings
