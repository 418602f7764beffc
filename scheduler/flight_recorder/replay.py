"""Makes the decisions of a recording again, each on the cluster as it was then, by the plain reference.

A decision that comes out otherwise is a defect of the engine that made it, or of this program if it is another version.
Ids of shares are drawn, and one that ran out of time says nothing; both are left out of the comparison.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, cast

import msgspec

from allocator.cel import Compiler
from allocator.features import Features
from allocator.model.claims import AllocationResult, ResourceClaim
from allocator.model.devices import DeviceID
from allocator.model.hooks import dec_hook
from allocator.outcome import ReasonKind
from scheduler import cycle
from scheduler.api.decode import DecodeError, decode
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent, undated
from scheduler.conclusion import conclude
from scheduler.flight_recorder.file import VERSION
from scheduler.framework.cycle_state import NodeVerdict
from scheduler.framework.environment import Environment, Mode
from scheduler.framework.status import Status
from scheduler.model import Kind, NodeAllocatableResourceClaimStatus, Pod, Watched

_SHARE: Final = "00000000-0000-4000-8000-000000000000"
_LINE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ReplayError(ValueError):
    """The text is no recording, or one of another version."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A decision, then and now.

    Attributes:
        number: of the decision.
        at: when it was made.
        pod: `namespace/name`.
        versions: how far the watch of each kind had come, by kind.
        recorded: what it was, in words.
        again: what it is when made again, in the same words.
        is_comparable: whether it must come out the same.
    """

    number: int
    at: str
    pod: str
    versions: dict[str, int]
    recorded: str
    again: str
    is_comparable: bool = True

    @property
    def is_same(self) -> bool:
        """Whether it came out as it was, as far as it must."""
        return not self.is_comparable or self.recorded == self.again


def replay(lines: Iterable[bytes]) -> Iterator[Replayed]:
    """Go through a recording and make each decision again.

    Args:
        lines: of the file.

    Raises:
        ReplayError: a line cannot be read; the message says which.
    """
    number = 0
    replaying: _Replaying | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = _LINE.decode(line)
            if replaying is None:
                replaying = _Replaying(_environment(fields))
            elif "decision" in fields:
                yield replaying.decide(fields)
            else:
                replaying.take(fields)
        except (msgspec.DecodeError, DecodeError, KeyError, ValueError, TypeError) as problem:
            raise ReplayError(f"line {number}: {problem}") from problem
    if replaying is None:
        raise ReplayError("the file is empty")


def _environment(fields: dict[str, msgspec.Raw]) -> Environment:
    header = {key: msgspec.json.decode(value) for key, value in fields.items()}
    if header.get("flightRecorder") != VERSION:
        raise ValueError(f"not a recording of version {VERSION}")
    return Environment(
        features=Features(**header["features"]),
        cel=Compiler(),
        now=lambda: datetime.min,  # noqa: DTZ901  # every decision brings its own
        new_share_id=_share_id,
        budget=header["budget"],
        policy=header["policy"],
        device_strategy=header["deviceStrategy"],
        on_node_error=header["onNodeError"],
        binding_timeout_seconds=header["bindingTimeoutSeconds"],
        mode=Mode(header["mode"]),
    )


def _share_id(_claim: ResourceClaim, _request: str, _device: DeviceID) -> str:
    return _SHARE


class _Replaying:
    """The cluster as it was, at the line that has been read."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._cache = ClusterCache(
            consumable_capacity=environment.features.consumable_capacity,
            counts_claims=environment.features.node_allocatable_resources,
        )

    def take(self, fields: dict[str, msgspec.Raw]) -> None:
        """Apply what happened."""
        if "hold" in fields:
            self._hold(_text(fields["hold"]), fields)
        elif "place" in fields:
            self._place(_text(fields["place"]), fields)
        else:
            kind, type_ = Kind(_text(fields["kind"])), EventType(_text(fields["type"]))
            item = undated(cast("Watched", decode(kind, bytes(fields["object"]))))
            self._cache.apply(WatchEvent(kind, type_, item, 0))

    def _hold(self, uid: str, fields: dict[str, msgspec.Raw]) -> None:
        held = {}
        for claim_uid, parts in _of(dict[str, dict[str, msgspec.Raw]], fields["claims"]).items():
            claim = _of(ResourceClaim, parts["claim"])
            held[claim_uid] = (claim, _of(AllocationResult, parts["allocation"]))
        if held:
            self._cache.hold(uid, held)
        else:
            self._cache.release(uid)

    def _place(self, uid: str, fields: dict[str, msgspec.Raw]) -> None:
        pod = _of(Pod | None, fields["pod"])
        if pod is None:
            self._cache.forget_pod(uid)
        else:
            demand = _of(tuple[NodeAllocatableResourceClaimStatus, ...], fields["demand"])
            self._cache.assume_pod(cast("Pod", undated(pod)), _text(fields["node"]), demand)

    def decide(self, fields: dict[str, msgspec.Raw]) -> Replayed:
        """Make a decision again."""
        at, pod = _text(fields["at"]), _of(Pod, fields["pod"])
        looked_at = _of(tuple[str, ...] | None, fields["lookedAt"])
        plan = _of(dict[str, msgspec.Raw] | None, fields["plan"])
        if plan is not None:
            allocations = _of(dict[str, AllocationResult], plan["allocations"])
            recorded, is_comparable = _plan_text(_text(plan["node"]), allocations), True
        else:
            refusal = _of(dict[str, str | None], fields["refusal"])
            recorded = str(refusal["message"])
            is_comparable = refusal["kind"] != ReasonKind.DEADLINE_EXCEEDED
        again = self._again(pod, looked_at, at, is_plan=plan is not None)
        return Replayed(
            number=_of(int, fields["decision"]),
            at=at,
            pod=pod.key,
            versions=_of(dict[str, int], fields["versions"]),
            recorded=recorded,
            again=again,
            is_comparable=is_comparable,
        )

    def _again(self, pod: Pod, looked_at: tuple[str, ...] | None, at: str, *, is_plan: bool) -> str:
        moment = datetime.fromisoformat(at)
        environment = replace(self._environment, now=lambda: moment)
        state = cycle.pre_filter(pod, self._cache, environment)
        if isinstance(state, Status):
            return state.message
        nodes = state.snapshot.nodes
        names = list(nodes) if looked_at is None else list(looked_at)
        verdicts: dict[str, NodeVerdict] = {}
        for name in names:
            node = nodes.get(name)
            if node is None:
                return f"node {name} is not there"
            verdicts[name] = cycle.filter_node(state, node)
            if verdicts[name].ends_attempt:
                break
        if not is_plan and len(names) == 1 and not verdicts[names[0]].fits:
            return verdicts[names[0]].status.message
        result = conclude(verdicts, total=len(nodes))
        chosen = None if result.failure else cycle.select_node(state, result.fitting)
        if chosen is None:
            return "" if result.failure is None else result.failure.message
        return _plan_text(chosen, verdicts[chosen].allocations)


def _plan_text(node: str, allocations: Any) -> str:
    devices = sorted(
        f"{result.request}={result.device_id}"
        for allocation in allocations.values()
        for result in allocation.devices.results or ()
    )
    return " ".join([f"node {node}", *devices])


def _text(raw: msgspec.Raw) -> str:
    return str(msgspec.json.decode(raw))


def _of(type_: Any, raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw, type=type_, dec_hook=dec_hook)
