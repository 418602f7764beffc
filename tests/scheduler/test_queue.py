"""The queue: places, order, backoff, which event wakes whom; then as a state machine."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from allocator.model.claims import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from allocator.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from allocator.model.meta import ObjectMeta
from scheduler.model import (
    Change,
    ClaimRecord,
    Kind,
    Pod,
    PodCondition,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodStatus,
    Taint,
    Toleration,
)
from scheduler.scheduling_queue import (
    CLAIM_PATIENCE_SECONDS,
    MAX_EVENTS,
    WOKEN_AT_ONCE,
    Place,
    QueuedPod,
    SchedulingQueue,
)
from tests.pods import node_object, pod


def claim_record(name: str = "c", **status: Any) -> ClaimRecord:
    meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    return ClaimRecord(ResourceClaim(metadata=meta, status=ResourceClaimStatus(**status)), b"{}")


FREE = claim_record()
TAKEN = claim_record(allocation=AllocationResult())
RESERVED = claim_record(
    allocation=AllocationResult(),
    reserved_for=(ResourceClaimConsumerReference(resource="pods", name="x", uid="x"),),
)
NODE = node_object("n1")
SLICE = ResourceSlice(metadata=ObjectMeta(name="s"))
CLASS = DeviceClass(metadata=ObjectMeta(name="gpu"))
RULE = DeviceTaintRule(metadata=ObjectMeta(name="r"))
RUNNING = pod("other", node_name="n1", requests={"cpu": "2"})


def parked(queue: SchedulingQueue, waiting: Pod, *rejected_by: str) -> None:
    """Bring a pod to the unschedulable place at time 0."""
    queue.add(waiting, 0.0)
    assert queue.pop(0.0) is not None
    queue.failed(waiting.metadata.uid, rejected_by, 0.0)


def place(queue: SchedulingQueue, waiting: Pod) -> Place | None:
    queued = queue.get(waiting.metadata.uid)
    return None if queued is None else queued.place


def popped(queue: SchedulingQueue, now: float) -> list[str]:
    names = []
    while (queued := queue.pop(now)) is not None:
        names.append(queued.pod.metadata.name)
    return names


def test_higher_priority_goes_first_then_who_waits_longer() -> None:
    queue = SchedulingQueue()
    queue.add(pod("late", priority=1), 2.0)
    queue.add(pod("low"), 0.0)
    queue.add(pod("early", priority=1), 1.0)
    queue.add(pod("high", priority=9), 3.0)

    assert popped(queue, 3.0) == ["high", "early", "late", "low"]


def test_backoff_doubles_to_ten_seconds_for_rejections() -> None:
    queue = SchedulingQueue()
    waiting = pod()
    queue.add(waiting, 0.0)
    now, waits = 0.0, []
    for _ in range(6):
        assert queue.pop(now) is not None
        queue.failed(waiting.metadata.uid, ["NodeAffinity"], now)
        queue.on_change(Change(Kind.NODE, None, NODE), now)
        assert queue.pop(now) is None
        at = queue.next_at()
        assert at is not None
        waits.append(at - now)
        assert queue.pop(at - 0.001) is None
        now = at

    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_errors_count_apart_and_a_rejection_resets_them() -> None:
    queue = SchedulingQueue()
    waiting = pod()
    queue.add(waiting, 0.0)

    def fail(now: float, *, is_error: bool) -> float:
        queued = queue.pop(now)
        assert queued is not None
        queue.failed(waiting.metadata.uid, ["NodeAffinity"], now, is_error=is_error)
        queue.on_change(Change(Kind.NODE, None, NODE), now)
        at = queue.next_at()
        assert at is not None
        return at

    first = fail(0.0, is_error=False)
    error = fail(first, is_error=True)
    again = fail(error, is_error=True)
    rejected = fail(again, is_error=False)
    once_more = fail(rejected, is_error=True)

    assert first == 1.0
    assert error - first == 1.0
    assert again - error == 2.0
    assert rejected - again == 2.0
    assert once_more - rejected == 1.0


def test_an_error_needs_no_event() -> None:
    queue = SchedulingQueue()
    queue.add(pod(), 0.0)
    queue.pop(0.0)
    queue.failed("uid-p", [], 0.0, is_error=True)

    assert popped(queue, 0.9) == []
    assert popped(queue, 1.0) == ["p"]


def test_a_gated_pod_enters_when_its_last_gate_is_gone() -> None:
    queue = SchedulingQueue()
    queue.add(pod(gates=["a", "b"]), 0.0)
    assert popped(queue, 0.0) == []

    queue.update(pod(gates=["b"]), 1.0)
    assert popped(queue, 1.0) == []

    queue.update(pod(), 2.0)
    assert popped(queue, 2.0) == ["p"]


def test_gates_put_back_take_the_pod_out() -> None:
    queue = SchedulingQueue()
    queue.add(pod(), 0.0)
    queue.update(pod(gates=["a"]), 1.0)

    assert popped(queue, 1.0) == []
    assert place(queue, pod()) is Place.GATED


class Claims:
    """Claims that a pod waits for until they are here."""

    def __init__(self) -> None:
        self.here: set[str] = set()

    def awaited_by(self, waiting: Pod) -> bool:
        made = waiting.status.resource_claim_statuses or ()
        return not made or any(each.resource_claim_name not in self.here for each in made)


def waiting_for_claim(*, made: str | None = None) -> Pod:
    statuses = (
        () if made is None else (PodResourceClaimStatus(name="gpu", resource_claim_name=made),)
    )
    entry = PodResourceClaim(name="gpu", resource_claim_template_name="t")
    waiting = pod("p")
    return msgspec.structs.replace(
        waiting,
        spec=msgspec.structs.replace(waiting.spec, resource_claims=(entry,)),
        status=PodStatus(resource_claim_statuses=statuses),
    )


@pytest.mark.parametrize("is_claim_first", [True, False])
def test_a_pod_whose_claim_is_still_to_come_enters_with_it_and_without_backoff(
    is_claim_first: bool,
) -> None:
    claims = Claims()
    queue = SchedulingQueue(awaits_claims=claims.awaited_by)
    queue.add(waiting_for_claim(), 0.0)
    assert popped(queue, 0.0) == []
    assert place(queue, waiting_for_claim()) is Place.GATED

    def claim_comes() -> None:
        claims.here.add("c")
        queue.on_change(Change(Kind.RESOURCE_CLAIM, None, FREE), 0.1)

    if is_claim_first:
        claim_comes()
        queue.update(waiting_for_claim(made="c"), 0.2)
    else:
        queue.update(waiting_for_claim(made="c"), 0.1)
        assert popped(queue, 0.1) == []
        claim_comes()

    assert popped(queue, 0.2) == ["p"]


def test_another_claim_does_not_let_the_pod_in() -> None:
    claims = Claims()
    queue = SchedulingQueue(awaits_claims=claims.awaited_by)
    queue.add(waiting_for_claim(made="other"), 0.0)

    claims.here.add("c")
    queue.on_change(Change(Kind.RESOURCE_CLAIM, None, FREE), 0.1)

    assert popped(queue, 0.1) == []


def test_a_pod_whose_claim_does_not_come_is_tried_so_that_its_owner_hears_why() -> None:
    queue = SchedulingQueue(awaits_claims=Claims().awaited_by)
    queue.add(waiting_for_claim(made="c"), 0.0)
    queue.sweep(CLAIM_PATIENCE_SECONDS - 1.0)
    assert popped(queue, CLAIM_PATIENCE_SECONDS) == []

    queue.sweep(CLAIM_PATIENCE_SECONDS)

    assert popped(queue, CLAIM_PATIENCE_SECONDS) == ["p"]


def test_a_pod_that_waits_for_its_claim_can_be_deleted_and_come_back() -> None:
    claims = Claims()
    queue = SchedulingQueue(awaits_claims=claims.awaited_by)
    queue.add(waiting_for_claim(made="c"), 0.0)
    queue.delete(waiting_for_claim().metadata.uid)
    claims.here.add("c")
    queue.on_change(Change(Kind.RESOURCE_CLAIM, None, FREE), 0.1)
    assert popped(queue, 0.1) == []

    queue.add(waiting_for_claim(made="c"), 0.2)

    assert popped(queue, 0.2) == ["p"]


def test_adding_a_pod_twice_keeps_one() -> None:
    queue = SchedulingQueue()
    queue.add(pod(), 0.0)
    queue.add(pod(), 1.0)

    assert popped(queue, 1.0) == ["p"]
    queue.add(pod(), 2.0)
    assert popped(queue, 2.0) == []  # in flight


def test_a_pod_deleted_in_flight_does_not_come_back() -> None:
    queue = SchedulingQueue()
    queue.add(pod(), 0.0)
    queue.pop(0.0)
    queue.delete("uid-p")
    queue.failed("uid-p", [], 0.0, is_error=True)

    assert len(queue) == 0
    assert popped(queue, 100.0) == []


@dataclass(frozen=True, kw_only=True)
class Wake:
    id: str
    change: Change
    rejected_by: tuple[str, ...] = ("DynamicResources",)
    woken: bool = True
    resolves: bool = True


def relabeled() -> Any:
    return node_object("n1", labels={"a": "b"})


WAKES = [
    Wake(id="node added: anybody", change=Change(Kind.NODE, None, NODE), rejected_by=()),
    Wake(id="node removed: nobody", change=Change(Kind.NODE, NODE, None), woken=False),
    Wake(id="node unchanged: nobody", change=Change(Kind.NODE, NODE, NODE), woken=False),
    Wake(id="node label: devices", change=Change(Kind.NODE, NODE, relabeled())),
    Wake(
        id="node label: affinity",
        change=Change(Kind.NODE, NODE, relabeled()),
        rejected_by=("NodeAffinity",),
    ),
    Wake(
        id="node label: not taints",
        change=Change(Kind.NODE, NODE, relabeled()),
        rejected_by=("TaintToleration",),
        woken=False,
    ),
    Wake(
        id="node taints: taints",
        change=Change(Kind.NODE, node_object(taints=[Taint(key="a")]), NODE),
        rejected_by=("TaintToleration",),
    ),
    Wake(
        id="node uncordoned",
        change=Change(Kind.NODE, node_object(unschedulable=True), NODE),
        rejected_by=("NodeUnschedulable",),
    ),
    Wake(
        id="node allocatable: resources",
        change=Change(Kind.NODE, NODE, node_object(allocatable={"cpu": "99"})),
        rejected_by=("NodeResourcesFit",),
    ),
    Wake(
        id="node allocatable: devices",
        change=Change(Kind.NODE, NODE, node_object(allocatable={"cpu": "99"})),
    ),
    Wake(
        id="assigned pod gone: resources",
        change=Change(Kind.POD, RUNNING, None),
        rejected_by=("NodeResourcesFit",),
    ),
    Wake(
        id="assigned pod gone: ports",
        change=Change(Kind.POD, RUNNING, None),
        rejected_by=("NodePorts",),
    ),
    Wake(id="assigned pod gone: not devices", change=Change(Kind.POD, RUNNING, None), woken=False),
    Wake(
        id="assigned pod ended: resources",
        change=Change(
            Kind.POD, RUNNING, msgspec.structs.replace(RUNNING, status=PodStatus(phase="Failed"))
        ),
        rejected_by=("NodeResourcesFit",),
    ),
    Wake(
        id="assigned pod shrunk: resources",
        change=Change(Kind.POD, RUNNING, pod("other", node_name="n1", requests={"cpu": "1"})),
        rejected_by=("NodeResourcesFit",),
    ),
    Wake(
        id="assigned pod grown: nobody",
        change=Change(Kind.POD, RUNNING, pod("other", node_name="n1", requests={"cpu": "3"})),
        rejected_by=("NodeResourcesFit",),
        woken=False,
    ),
    Wake(
        id="waiting pod of somebody gone: nobody",
        change=Change(Kind.POD, pod("other"), None),
        rejected_by=("NodeResourcesFit",),
        woken=False,
    ),
    Wake(id="own claim added", change=Change(Kind.RESOURCE_CLAIM, None, FREE)),
    Wake(
        id="own claim added, another one missing",
        change=Change(Kind.RESOURCE_CLAIM, None, FREE),
        resolves=False,
        woken=False,
    ),
    Wake(id="own claim's status changed", change=Change(Kind.RESOURCE_CLAIM, TAKEN, RESERVED)),
    Wake(
        id="own claim's metadata changed",
        change=Change(Kind.RESOURCE_CLAIM, FREE, FREE),
        woken=False,
    ),
    Wake(
        id="another claim's status changed",
        change=Change(Kind.RESOURCE_CLAIM, claim_record("d"), claim_record("d", devices=())),
        woken=False,
    ),
    Wake(
        id="another claim deallocated",
        change=Change(
            Kind.RESOURCE_CLAIM,
            claim_record("d", allocation=AllocationResult()),
            claim_record("d"),
        ),
    ),
    Wake(
        id="another claim deallocated, but own ones do not resolve",
        change=Change(Kind.RESOURCE_CLAIM, claim_record("d", allocation=AllocationResult()), None),
        resolves=False,
        woken=False,
    ),
    Wake(
        id="another allocated claim deleted",
        change=Change(Kind.RESOURCE_CLAIM, claim_record("d", allocation=AllocationResult()), None),
    ),
    Wake(
        id="another unallocated claim deleted",
        change=Change(Kind.RESOURCE_CLAIM, claim_record("d"), None),
        woken=False,
    ),
    Wake(
        id="claims do not concern who lacks cpu",
        change=Change(Kind.RESOURCE_CLAIM, TAKEN, FREE),
        rejected_by=("NodeResourcesFit",),
        woken=False,
    ),
    Wake(id="slice added", change=Change(Kind.RESOURCE_SLICE, None, SLICE)),
    Wake(id="slice changed", change=Change(Kind.RESOURCE_SLICE, SLICE, SLICE)),
    Wake(id="slice gone", change=Change(Kind.RESOURCE_SLICE, SLICE, None), woken=False),
    Wake(id="taint rule gone", change=Change(Kind.DEVICE_TAINT_RULE, RULE, None)),
    Wake(id="class added", change=Change(Kind.DEVICE_CLASS, None, CLASS)),
    Wake(id="class gone", change=Change(Kind.DEVICE_CLASS, CLASS, None), woken=False),
    Wake(
        id="one of several plugins is enough",
        change=Change(Kind.RESOURCE_SLICE, None, SLICE),
        rejected_by=("NodeResourcesFit", "DynamicResources"),
    ),
]


@pytest.mark.parametrize("case", WAKES, ids=lambda case: case.id)
def test_events_wake_whom_they_may_help(case: Wake) -> None:
    queue = SchedulingQueue(lambda _: case.resolves)
    waiting = pod(claims=["c"])
    parked(queue, waiting, *case.rejected_by)

    queue.on_change(case.change, 0.5)

    assert place(queue, waiting) is (Place.BACKOFF if case.woken else Place.UNSCHEDULABLE)


@pytest.mark.parametrize("case", WAKES, ids=lambda case: case.id)
def test_the_same_events_during_the_attempt_are_replayed(case: Wake) -> None:
    queue = SchedulingQueue(lambda _: case.resolves)
    waiting = pod(claims=["c"])
    queue.add(waiting, 0.0)
    queue.pop(0.0)

    queue.on_change(case.change, 0.1)
    queue.failed(waiting.metadata.uid, case.rejected_by, 0.2)

    assert place(queue, waiting) is (Place.BACKOFF if case.woken else Place.UNSCHEDULABLE)


def test_an_event_that_may_help_thousands_looks_at_them_in_portions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    helps = SchedulingQueue._helps

    def spied(queue: SchedulingQueue, queued: QueuedPod, logged: Any) -> bool:
        nonlocal looked_at
        looked_at += 1
        return helps(queue, queued, logged)

    monkeypatch.setattr(SchedulingQueue, "_helps", spied)
    queue = SchedulingQueue()
    many = 3 * WOKEN_AT_ONCE + 1
    for number in range(many):
        parked(queue, pod(f"p{number}"), "DynamicResources")

    queue.on_release("somebody", 20.0)
    most, total, found = looked_at, looked_at, []
    while queue.has_active(20.0):
        looked_at = 0
        queued = queue.pop(20.0)
        most, total = max(most, looked_at), total + looked_at
        if queued is not None:
            found.append(queued.pod.metadata.name)

    assert most <= WOKEN_AT_ONCE
    assert sorted(found) == sorted(f"p{number}" for number in range(many))


def test_more_events_than_can_be_looked_at_do_not_pile_up() -> None:
    queue = SchedulingQueue()
    for number in range(2 * WOKEN_AT_ONCE):
        parked(queue, pod(f"p{number}"), "DynamicResources")
    for _ in range(100):
        queue.on_release("somebody", 20.0)
        assert len(queue._waking) <= 2 * len(queue) + WOKEN_AT_ONCE
    assert len(popped(queue, 20.0)) == 2 * WOKEN_AT_ONCE


def test_an_event_that_helps_nobody_looks_at_none_of_the_waiting_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[str] = []
    helps = SchedulingQueue._helps

    def spied(queue: SchedulingQueue, queued: QueuedPod, logged: Any) -> bool:
        looked_at.append(queued.pod.metadata.name)
        return helps(queue, queued, logged)

    monkeypatch.setattr(SchedulingQueue, "_helps", spied)
    queue = SchedulingQueue()
    for number in range(50):
        parked(queue, pod(f"p{number}"), "DynamicResources")
    parked(queue, pod("room"), "NodeResourcesFit")

    queue.on_change(Change(Kind.POD, RUNNING, None), 20.0)

    assert looked_at == ["room"]
    assert popped(queue, 20.0) == ["room"]


def test_events_before_the_attempt_are_not_replayed() -> None:
    queue = SchedulingQueue()
    first, second = pod("first"), pod("second")
    queue.add(first, 0.0)
    queue.add(second, 0.0)
    queue.pop(0.0)
    queue.on_change(Change(Kind.NODE, None, NODE), 0.1)
    queue.pop(0.2)
    queue.failed("uid-second", ["NodeAffinity"], 0.3)
    queue.failed("uid-first", ["NodeAffinity"], 0.3)

    assert place(queue, second) is Place.UNSCHEDULABLE
    assert place(queue, first) is Place.BACKOFF


def test_a_pod_that_missed_more_events_than_are_kept_counts_as_woken() -> None:
    queue = SchedulingQueue()
    queue.add(pod(), 0.0)
    queue.pop(0.0)
    for _ in range(MAX_EVENTS + 1):
        queue.on_change(Change(Kind.RESOURCE_CLAIM, None, claim_record("d")), 0.1)
    queue.failed("uid-p", ["NodeAffinity"], 0.2)

    assert place(queue, pod()) is Place.BACKOFF


def test_after_the_backoff_an_event_makes_the_pod_active_at_once() -> None:
    queue = SchedulingQueue()
    waiting = pod()
    parked(queue, waiting, "NodeAffinity")

    queue.on_change(Change(Kind.NODE, None, NODE), 1.0)

    assert place(queue, waiting) is Place.ACTIVE
    assert queue.has_active(1.0)


def test_a_release_wakes_who_lacks_devices_or_room() -> None:
    queue = SchedulingQueue()
    for name, plugin in (
        ("d", "DynamicResources"),
        ("r", "NodeResourcesFit"),
        ("a", "NodeAffinity"),
    ):
        parked(queue, pod(name), plugin)

    parked(queue, pod("own"), "DynamicResources")

    queue.on_release("uid-own", 5.0)

    assert sorted(popped(queue, 5.0)) == ["d", "r"]


def test_own_changes_wake_by_what_changed() -> None:
    waiting = pod(templates={"gpu": None})
    named = pod(templates={"gpu": "p-gpu"})
    tolerating = pod(templates={"gpu": None}, tolerations=[Toleration(operator="Exists")])
    condition = (PodCondition(type="PodScheduled", status="False", message="m"),)
    told = msgspec.structs.replace(waiting, status=PodStatus(conditions=condition))
    places = []
    for changed in (named, tolerating, told):
        queue = SchedulingQueue()
        parked(queue, waiting, "DynamicResources")
        queue.update(changed, 2.0)
        places.append(place(queue, waiting))

    assert places == [Place.ACTIVE, Place.ACTIVE, Place.UNSCHEDULABLE]


def test_a_claim_made_later_wakes_the_pod_by_its_new_name() -> None:
    resolves = False
    queue = SchedulingQueue(lambda _: resolves)
    parked(queue, pod(templates={"gpu": None}), "DynamicResources")
    queue.update(pod(templates={"gpu": "c"}), 2.0)
    assert place(queue, pod()) is Place.UNSCHEDULABLE  # the claim itself is not known yet

    resolves = True
    queue.on_change(Change(Kind.RESOURCE_CLAIM, None, FREE), 2.0)

    assert place(queue, pod()) is Place.ACTIVE


def test_the_sweep_wakes_after_five_minutes() -> None:
    queue = SchedulingQueue()
    parked(queue, pod(), "NodeAffinity")

    queue.sweep(299.0)
    assert popped(queue, 299.0) == []
    queue.sweep(300.0)
    assert popped(queue, 300.0) == ["p"]


def test_heaps_stay_as_small_as_the_queue() -> None:
    queue = SchedulingQueue()
    for number in range(2000):
        queue.add(pod(f"p{number}"), 0.0)
        queue.delete(f"uid-p{number}")

    assert len(queue._active) <= 65


def test_a_full_queue_takes_no_more_but_updates_what_it_has() -> None:
    queue = SchedulingQueue(max_pods=1)

    assert queue.add(pod("a"), 0.0)
    assert not queue.add(pod("b"), 0.0)
    assert queue.add(pod("a"), 0.0)
    queue.done("uid-a")
    assert queue.add(pod("b"), 0.0)


NAMES = ("a", "b", "c")
PLUGINS = ("DynamicResources", "NodeResourcesFit", "NodeAffinity")
EVENTS = (
    Change(Kind.NODE, None, NODE),
    Change(Kind.NODE, NODE, relabeled()),
    Change(Kind.POD, RUNNING, None),
    Change(Kind.RESOURCE_SLICE, None, SLICE),
    Change(Kind.RESOURCE_CLAIM, TAKEN, FREE),
)
HELPED: dict[int, set[str]] = {
    0: set(PLUGINS),
    1: {"DynamicResources", "NodeAffinity"},
    2: {"NodeResourcesFit"},
    3: {"DynamicResources"},
    4: {"DynamicResources"},
}


@dataclass
class Model:
    place: str = "ready"  # ready, flying, parked, gone, gated
    not_before: float = 0.0
    plugin: str = ""
    failures: int = 0
    woken: set[str] | None = None


class QueueMachine(RuleBasedStateMachine):
    """The queue against a plain model: no pod is lost, none is there twice, none comes too early or sleeps too long."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = SchedulingQueue()
        self.now = 0.0
        self.model: dict[str, Model] = {}

    @rule(name=st.sampled_from(NAMES), gated=st.booleans())
    def add(self, name: str, gated: bool) -> None:
        if name in self.model:
            return
        self.queue.add(pod(name, gates=["g"] if gated else []), self.now)
        self.model[name] = Model(place="gated" if gated else "ready", not_before=self.now)

    @rule(name=st.sampled_from(NAMES))
    def open_gate(self, name: str) -> None:
        known = self.model.get(name)
        if known is None or known.place != "gated":
            return
        self.queue.update(pod(name), self.now)
        known.place, known.not_before = "ready", self.now

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.queue.delete(f"uid-{name}")
        self.model.pop(name, None)

    @rule(seconds=st.sampled_from((0.0, 0.5, 1.0, 3.0, 20.0, 300.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def sweep(self) -> None:
        for name, known in self.model.items():
            queued = self.queue.get(f"uid-{name}")
            if known.place == "parked" and queued and self.now - queued.timestamp >= 300:
                known.place = "ready"
        self.queue.sweep(self.now)

    @rule()
    def pop(self) -> None:
        queued = self.queue.pop(self.now)
        ready = {
            n for n, m in self.model.items() if m.place == "ready" and m.not_before <= self.now
        }
        if queued is None:
            assert not ready
            return
        name = queued.pod.metadata.name
        assert name in ready
        self.model[name].place = "flying"
        self.model[name].woken = set()

    @precondition(lambda self: any(m.place == "flying" for m in self.model.values()))
    @rule(data=st.data(), plugin=st.sampled_from(PLUGINS), is_error=st.booleans())
    def fail(self, data: st.DataObject, plugin: str, is_error: bool) -> None:
        name = data.draw(st.sampled_from([n for n, m in self.model.items() if m.place == "flying"]))
        known = self.model[name]
        self.queue.failed(f"uid-{name}", [plugin], self.now, is_error=is_error)
        queued = self.queue.get(f"uid-{name}")
        assert queued is not None
        known.plugin = plugin
        if is_error or plugin in (known.woken or ()):
            known.place, known.not_before = "ready", queued.backoff_over_at
        else:
            known.place, known.not_before = "parked", queued.backoff_over_at

    @precondition(lambda self: any(m.place == "flying" for m in self.model.values()))
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([n for n, m in self.model.items() if m.place == "flying"]))
        self.queue.done(f"uid-{name}")
        del self.model[name]

    @rule(number=st.integers(0, len(EVENTS) - 1))
    def event(self, number: int) -> None:
        self.queue.on_change(EVENTS[number], self.now)
        for known in self.model.values():
            if known.place == "parked" and known.plugin in HELPED[number]:
                known.place = "ready"
            elif known.place == "flying" and known.woken is not None:
                known.woken |= HELPED[number]

    @invariant()
    def every_pod_is_where_the_model_says(self) -> None:
        places = {
            "ready": (Place.ACTIVE, Place.BACKOFF),
            "flying": (Place.IN_FLIGHT,),
            "parked": (Place.UNSCHEDULABLE,),
            "gated": (Place.GATED,),
        }
        assert len(self.queue) == len(self.model)
        for name, known in self.model.items():
            queued = self.queue.get(f"uid-{name}")
            assert queued is not None
            assert queued.place in places[known.place], name

    @invariant()
    def the_log_is_empty_when_nobody_is_in_flight(self) -> None:
        if not any(known.place == "flying" for known in self.model.values()):
            assert not self.queue._log


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase
