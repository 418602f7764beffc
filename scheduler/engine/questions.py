"""A question: all that an attempt asks of a node, without the names of the pod that asks.

Pods of one template ask the same, and the answers of nodes are kept with the question. The claims of a question carry
placeholders for names, which cannot be in any real text, so that a refusal can be handed to each pod in its own words.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from allocator import PreparedClaims
from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.model.devices import DeviceClass
from allocator.model.hooks import enc_hook
from allocator.model.meta import ObjectMeta
from allocator.outcome import Reason
from allocator.result import NewShareID
from scheduler.engine.answers import Answer
from scheduler.framework.cycle_state import CycleState, FilterResult, NodeVerdict
from scheduler.framework.status import SUCCESS, Status
from scheduler.model import ClusterSnapshot

_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook, order="deterministic")


def question_key(state: CycleState) -> bytes:
    """Everything of the pod that predicates, search and scorers read, as bytes; contents of classes apart."""
    spec = state.pod.spec
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    asked: tuple[Any, ...] = (
        tuple(claim.spec for claim in state.unallocated),
        spec.node_name,
        spec.node_selector,
        affinity,
        spec.tolerations,
        state.requests,
        state.scoring_requests,
        sorted((port.port, port.protocol, port.ip) for port in state.ports),
        sorted(state.backed_resources),
        sorted(state.repelled_from),
    )
    return _ENCODER.encode(asked)


def anonymous(claims: Sequence[ResourceClaim]) -> tuple[ResourceClaim, ...]:
    """Claims with placeholders for names."""
    return tuple(
        ResourceClaim(
            metadata=ObjectMeta(namespace="\x01", name=_placeholder(index)), spec=claim.spec
        )
        for index, claim in enumerate(claims)
    )


def _placeholder(index: int) -> str:
    return f"\x02{index}\x02"


Words = dict[tuple[object, ...], Status]


def named(status: Status, claims: Sequence[ResourceClaim], words: Words) -> Status:
    """A status about anonymous claims, in the words of a pod's own claims; `words` keeps what was said before."""
    reason = status.reason
    if reason is None or "\x02" not in reason.message + reason.claim:
        return status
    key = (reason.message, reason.claim, reason.request, reason.kind, status.plugin, status.code)
    known = words.get(key)
    if known is not None and not reason.devices:
        return known
    message, claim = reason.message, reason.claim
    for index, real in enumerate(claims):
        message = message.replace(f"\x01/{_placeholder(index)}", real.key)
        message = message.replace(_placeholder(index), real.metadata.name)
        if claim == _placeholder(index):
            claim = real.metadata.name
    named_reason = Reason(
        kind=reason.kind,
        message=message,
        claim=claim,
        request=reason.request,
        devices=reason.devices,
    )
    words[key] = Status(status.code, named_reason, status.plugin)
    return words[key]


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A question as one pod asks it.

    Attributes:
        question: what is asked.
        claims: the pod's own, in place of the anonymous ones.
        new_share_id: makes ids for shares of the pod's claims.
        words: what has been put in the pod's words already.
    """

    question: "Question"
    claims: tuple[ResourceClaim, ...]
    new_share_id: NewShareID
    words: Words = field(default_factory=dict)

    def named(self, status: Status) -> Status:
        """A status about anonymous claims, in the words of the pod."""
        return named(status, self.claims, self.words)

    def verdict(self, verdict: NodeVerdict) -> NodeVerdict:
        """A verdict likewise: refusals in the words of the pod, allocations for its claims."""
        if verdict.status is SUCCESS:
            return self._allocated(verdict) if self.claims else verdict
        status = self.named(verdict.status)
        return verdict if status is verdict.status else replace(verdict, status=status)

    def _allocated(self, verdict: NodeVerdict) -> NodeVerdict:
        allocations = {
            claim.metadata.uid: self._with_share_ids(claim, allocation)
            for claim, allocation in zip(self.claims, verdict.allocations.values(), strict=True)
        }
        return replace(verdict, allocations=allocations)

    def _with_share_ids(
        self, claim: ResourceClaim, allocation: AllocationResult
    ) -> AllocationResult:
        """Shares of another claim need ids of their own."""
        results = allocation.devices.results or ()
        if all(result.share_id is None for result in results):
            return allocation
        new = tuple(
            result
            if result.share_id is None
            else msgspec.structs.replace(
                result, share_id=self.new_share_id(claim, result.request, result.device_id)
            )
            for result in results
        )
        devices = msgspec.structs.replace(allocation.devices, results=new)
        return msgspec.structs.replace(allocation, devices=devices)

    def result(self, result: FilterResult) -> FilterResult:
        """A result likewise; verdicts only when they are looked at. O(different refusals)."""
        return FilterResult(
            NamedVerdicts(self, result.verdicts),
            result.total,
            NamedVerdicts(self, result.fitting),
            tuple((self.named(status), count) for status, count in result.refusals),
            None if result.failure is None else self.named(result.failure),
        )


class NamedVerdicts(Mapping[str, NodeVerdict]):
    """Verdicts about anonymous claims, made verdicts about one pod's claims when they are looked at."""

    def __init__(self, asked: Asked, verdicts: Mapping[str, NodeVerdict]) -> None:
        self._asked = asked
        self._verdicts = verdicts

    def __getitem__(self, name: str) -> NodeVerdict:
        return self._asked.verdict(self._verdicts[name])

    def __contains__(self, name: object) -> bool:
        return name in self._verdicts

    def __iter__(self) -> Iterator[str]:
        return iter(self._verdicts)

    def __len__(self) -> int:
        return len(self._verdicts)


class Question:
    """A question with the answers of nodes.

    Attributes:
        key: the question itself.
        prepared: the anonymous claims, ready for the search; None without claims.
        classes: (name, content) of each class that a claim names; None: it does not exist.
        answers: node name -> the last answer.
        timed_out: nodes whose answer may be another one the next time; kept for one attempt only.
        failure: the snapshot at which no node could do, and what they said of anonymous claims.
    """

    __slots__ = ("answers", "classes", "failure", "key", "prepared", "timed_out")

    def __init__(
        self,
        key: bytes,
        prepared: PreparedClaims | None,
        classes: tuple[tuple[str, DeviceClass | None], ...],
    ) -> None:
        self.key = key
        self.prepared = prepared
        self.classes = classes
        self.answers: dict[str, Answer] = {}
        self.timed_out: set[str] = set()
        self.failure: tuple[ClusterSnapshot, FilterResult] | None = None

    def end_attempt(self) -> None:
        """Forget what only this attempt may use."""
        for name in self.timed_out:
            self.answers.pop(name, None)
        if self.timed_out:
            self.failure = None
            self.timed_out.clear()

    def is_current(self, classes: Mapping[str, DeviceClass]) -> bool:
        """Whether all classes it names are still the same objects."""
        return all(classes.get(name) is content for name, content in self.classes)


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
