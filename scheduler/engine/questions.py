"""A question: all that an attempt asks of a node, without the names of the pod that asks.

Pods of one template ask the same, and the answers of nodes are kept with the question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from allocator import PreparedClaims
from allocator.columns import exactly
from allocator.model.claims import ResourceClaim
from allocator.model.devices import DeviceClass
from allocator.requests import reads_of
from allocator.view import NodeView, Reads, ViewKey
from scheduler.engine.answers import Answer, SearchResult
from scheduler.framework.cursor import OLDER, SnapshotCursor
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.pod_info import PodInfo
from scheduler.framework.status import SUCCESS, Status
from scheduler.model import ClusterSnapshot
from scheduler.plugins import node_allocatable

_ENCODER: Final = msgspec.json.Encoder(enc_hook=exactly, order="deterministic")


def question_parts(state: CycleState) -> dict[str, Any]:
    """All that plugins and the search see of the pod; contents of classes apart."""
    parts = {
        "spec": state.info.spec,
        "facts": state.info.facts,
        "claims": tuple(claim.spec for claim in state.unallocated),
    }
    if state.environment.features.node_allocatable_resources and state.unallocated:
        # Who uses the claims, whose devices may count in resources of the node for each user.
        users = node_allocatable.containers_of_claims(state.pod)
        parts["users"] = [users.get(claim.metadata.name) for claim in state.unallocated]
    return parts


def question_key(state: CycleState) -> bytes:
    """The question as bytes: equal for pods that ask the same."""
    return _ENCODER.encode(question_parts(state))


class Question:
    """A question with the answers of nodes.

    Attributes:
        key: the question itself.
        info: any pod that asks it, as plugins see it.
        prepared: the anonymous claims, ready for the search; None without claims.
        reads: the attributes that the search may read; None: all of a device.
        classes: (name, content) of each class that a claim names; None: it does not exist.
        answers: node name -> the last answer.
        found: view -> what was found there, for all nodes with such a view.
        refusals: each status without devices, as itself, so that nodes that say the same say the same object.
        fitting: nodes whose last answer is yes.
        ending: nodes whose last answer ends the attempt.
        stale: nodes whose last answer, if any, may not be that of the latest snapshot.
        timed_out: nodes whose answer may be another one the next time; kept for one attempt only.
        slow: nodes that timed out the last time: nobody looks at them who is not asked about them.
        failure: when no node could do, and what they said.
        weight: answers that the memory knows of.
    """

    __slots__ = (
        "_cursor",
        "answers",
        "classes",
        "ending",
        "failure",
        "fitting",
        "found",
        "info",
        "key",
        "prepared",
        "reads",
        "refusals",
        "slow",
        "stale",
        "timed_out",
        "weight",
    )

    def __init__(
        self,
        key: bytes,
        info: PodInfo,
        prepared: PreparedClaims | None,
        classes: tuple[tuple[str, DeviceClass | None], ...],
    ) -> None:
        self.key = key
        self.info = info
        self.prepared = prepared
        reads = None if prepared is None else reads_of(prepared)
        self.reads = None if reads is None else Reads(reads)
        self.classes = classes
        self.answers: dict[str, Answer] = {}
        self.found: dict[ViewKey, SearchResult] = {}
        self.refusals: dict[Status, Status] = {}
        self.fitting: set[str] = set()
        self.ending: set[str] = set()
        self.stale: set[str] = set()
        self.timed_out: set[str] = set()
        self.slow: set[str] = set()
        self.failure: NoNodeFits | None = None
        self.weight = 1
        self._cursor = SnapshotCursor()

    def catch_up(self, snapshot: ClusterSnapshot, shared: object) -> bool:
        """Learn which answers may be old by now.

        Args:
            snapshot: what is asked about.
            shared: what all nodes see of it; another object whenever that changes.

        Returns:
            Whether `answers` but for `stale` are those of the snapshot. False: it is older than the answers.
        """
        changed = self._cursor.catch_up(snapshot, shared)
        if changed is OLDER:
            return False
        if changed is None:
            self._forget_nodes_not_in(snapshot)
            self.stale = set(snapshot.nodes)
        elif changed:
            if self.stale:
                self.stale |= changed
            else:  # not the same one: a set that was large once is slow to walk through for ever
                self.stale = set(changed)
            for name in changed:
                if name not in snapshot.nodes:
                    self.forget(name)
        return True

    def _forget_nodes_not_in(self, snapshot: ClusterSnapshot) -> None:
        nodes = snapshot.nodes
        for name in [name for name in self.answers if name not in nodes]:
            self.forget(name)

    def keep(self, name: str, answer: Answer) -> None:
        """Remember the answer of a node."""
        self.answers[name] = answer
        self.slow.discard(name)
        if answer.status is SUCCESS:
            self.fitting.add(name)
            self.ending.discard(name)
            return
        self.fitting.discard(name)
        if answer.ends_attempt:
            self.ending.add(name)
        else:
            self.ending.discard(name)

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        self.answers.pop(name, None)
        self.fitting.discard(name)
        self.ending.discard(name)
        self.stale.discard(name)

    def view_key(self, view: NodeView) -> ViewKey | None:
        """Under which its answers are kept; None: nodes that look alike may differ in what the question reads."""
        return None if self.reads is None else view.key(self.reads)

    def end_attempt(self) -> None:
        """Forget what only this attempt may use."""
        for name in self.timed_out:
            self.forget(name)
            self.stale.add(name)
            self.slow.add(name)
        if self.timed_out:
            self.failure = None
            self.timed_out.clear()

    def is_current(self, classes: Mapping[str, DeviceClass]) -> bool:
        """Whether all classes it names are still the same objects."""
        return all(classes.get(name) is content for name, content in self.classes)


@dataclass(frozen=True, slots=True)
class NoNodeFits:
    """Cached result: no node fits.

    Attributes:
        snapshot: when.
        answers: what each node said.
        total: number of nodes there are.
        refusals: the different refusals, in anonymous words, with the number of nodes.
        status: all of them in one.
    """

    snapshot: ClusterSnapshot
    answers: Mapping[str, Answer]
    total: int
    refusals: tuple[tuple[Status, int], ...]
    status: Status


def classes_named(
    claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]
) -> tuple[tuple[str, DeviceClass | None], ...]:
    """The classes that claims name, with their contents."""
    names: dict[str, None] = {}
    for claim in claims:
        for request in claim.spec.devices.requests or ():
            if request.exactly is not None:
                names[request.exactly.device_class_name] = None
            for alternative in request.first_available or ():
                names[alternative.device_class_name] = None
    return tuple((name, classes.get(name)) for name in names)
