"""Claims of a pod: resolved, checked, allocated together on a node, given back when they are in the way."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from allocator.features import Features
from allocator.model.claims import (
    AllocatedDeviceStatus,
    AllocationResult,
    Condition,
    DeviceAllocationResult,
    DeviceRequest,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from allocator.model.devices import Device
from allocator.outcome import Reason, ReasonKind
from scheduler import conclusion, cycle
from scheduler.framework.cycle_state import CycleState, FilterResult
from scheduler.framework.environment import Mode
from scheduler.framework.status import Code, Status
from scheduler.model import Pod, PodResourceClaim
from scheduler.plugins.dynamic_resources import claim_to_give_back, is_ready_for_binding
from tests.builders import (
    claim,
    costs,
    counting,
    device,
    device_class,
    first_available,
    gpu_slice,
    mapped,
    only_node,
    request,
    resource_slice,
    sub_request,
)
from tests.pods import container, node_object, pod, pod_owner
from tests.scheduler.world import World, environment, gpu_nodes


def owned(by: Pod, made: ResourceClaim) -> ResourceClaim:
    meta = msgspec.structs.replace(made.metadata, owner_references=(pod_owner(by),))
    return msgspec.structs.replace(made, metadata=meta)


def deleted(made: ResourceClaim) -> ResourceClaim:
    meta = msgspec.structs.replace(made.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(made, metadata=meta)


def allocation(
    node: str | None = "n00",
    *,
    device: str = "gpu-0",
    timestamp: str | None = None,
    conditions: tuple[str, ...] | None = None,
    failures: tuple[str, ...] | None = None,
    skips: tuple[str, ...] | None = None,
) -> AllocationResult:
    result = DeviceRequestAllocationResult(
        request="gpu",
        driver="gpu.example.com",
        pool=node or "pool",
        device=device,
        binding_conditions=conditions,
        binding_failure_conditions=failures,
        skip_node_operations=skips,
    )
    return AllocationResult(
        devices=DeviceAllocationResult(results=(result,)),
        node_selector=None if node is None else only_node(node),
        allocation_timestamp=timestamp,
    )


def allocated(name: str, given: AllocationResult, *users: str, **conditions: str) -> ResourceClaim:
    """A claim with an allocation, reserved for pods by UID; `conditions` are those of its device."""
    made = claim(name)
    result = (given.devices.results or ())[0]
    told = AllocatedDeviceStatus(
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        conditions=tuple(Condition(type=k, status=v) for k, v in conditions.items()),
    )
    status = msgspec.structs.replace(
        made.status,
        allocation=given,
        reserved_for=tuple(ResourceClaimConsumerReference(resource="pods", uid=u) for u in users)
        or None,
        devices=(told,) if conditions else None,
    )
    return msgspec.structs.replace(made, status=status)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    id: str
    pod: Pod
    kind: ReasonKind
    message: str
    objects: tuple[Any, ...] = ()
    code: Code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    features: Features = field(default_factory=Features)


ONE = pod(claims=["c"])
MADE = pod(templates={"gpu": "p-gpu"})
MANY = tuple(f"uid-{number}" for number in range(256))

REFUSALS = [
    Refusal(
        id="claim missing",
        pod=ONE,
        kind=ReasonKind.CLAIM_NOT_FOUND,
        message="resourceclaim 'c' not found",
    ),
    Refusal(
        id="claim of another namespace does not count",
        pod=pod(claims=["c"], namespace="other"),
        objects=(claim("c"),),
        kind=ReasonKind.CLAIM_NOT_FOUND,
        message="resourceclaim 'c' not found",
    ),
    Refusal(
        id="claim not made yet",
        pod=pod(templates={"gpu": None}),
        kind=ReasonKind.CLAIM_NOT_CREATED,
        message="the ResourceClaim for entry 'gpu' is not created yet",
    ),
    Refusal(
        id="an entry that names nothing",
        pod=msgspec.structs.replace(
            ONE,
            spec=msgspec.structs.replace(ONE.spec, resource_claims=(PodResourceClaim(name="odd"),)),
        ),
        kind=ReasonKind.INVALID_CLAIM,
        message="resource claim entry 'odd' names neither a claim nor a template",
    ),
    Refusal(
        id="claim being deleted",
        pod=ONE,
        objects=(deleted(claim("c")),),
        kind=ReasonKind.CLAIM_BEING_DELETED,
        message="resourceclaim 'c' is being deleted",
    ),
    Refusal(
        id="generated claim without owner",
        pod=MADE,
        objects=(claim("p-gpu"),),
        kind=ReasonKind.CLAIM_NOT_OWNED,
        message="resourceclaim 'p-gpu' was not created for this pod",
    ),
    Refusal(
        id="generated claim of another pod",
        pod=MADE,
        objects=(owned(pod("q"), claim("p-gpu")),),
        kind=ReasonKind.CLAIM_NOT_OWNED,
        message="resourceclaim 'p-gpu' was not created for this pod",
    ),
    Refusal(
        id="class missing",
        pod=ONE,
        objects=(claim("c", request("r", device_class="tpu")),),
        kind=ReasonKind.DEVICE_CLASS_NOT_FOUND,
        message="request r: device class tpu does not exist",
    ),
    Refusal(
        id="class of an alternative missing",
        pod=ONE,
        objects=(
            device_class(),
            claim("c", first_available("r", sub_request("a"), sub_request("b", device_class="x"))),
        ),
        kind=ReasonKind.DEVICE_CLASS_NOT_FOUND,
        message="request r/b: device class x does not exist",
    ),
    Refusal(
        id="alternatives switched off",
        pod=ONE,
        objects=(device_class(), claim("c", first_available("r", sub_request("a")))),
        features=Features(prioritized_list=False),
        kind=ReasonKind.FEATURE_DISABLED,
        message="resourceclaim 'c', request r: firstAvailable needs feature gate DRAPrioritizedList",
    ),
    Refusal(
        id="a kind of request that is not known",
        pod=ONE,
        objects=(claim("c", DeviceRequest(name="r")),),
        kind=ReasonKind.INVALID_CLAIM,
        message="resourceclaim 'c', request r: unknown request type",
    ),
    Refusal(
        id="an empty class name is an error",
        pod=ONE,
        objects=(claim("c", request("r", device_class="")),),
        kind=ReasonKind.INVALID_CLAIM,
        message="resourceclaim 'c', request r: the device class is missing",
        code=Code.ERROR,
    ),
    Refusal(
        id="256 consumers",
        pod=ONE,
        objects=(allocated("c", allocation(None), *MANY),),
        kind=ReasonKind.TOO_MANY_CONSUMERS,
        message="resourceclaim 'c' has 256 consumers, the maximum",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_what_keeps_a_pod_from_every_node(case: Refusal) -> None:
    world = World(node_object(), *case.objects)

    status = cycle.pre_filter(case.pod, world.cache, environment(features=case.features))

    assert isinstance(status, Status)
    assert isinstance(status.reason, Reason)
    assert (status.code, status.reason.kind, status.message) == (case.code, case.kind, case.message)


def test_a_claim_in_flight_for_another_pod_is_waited_for() -> None:
    world = World(*gpu_nodes(1), claim("c"))
    record = world.cache.claim_by_uid("uid-c")
    assert record is not None
    world.cache.hold("uid-q", {"uid-c": (record.claim, allocation("n00"))})

    status = cycle.pre_filter(ONE, world.cache, environment())

    assert isinstance(status, Status)
    assert status.reason is not None
    assert status.reason.kind is ReasonKind.ALLOCATION_PENDING


def test_a_consumer_of_a_full_claim_stays_one() -> None:
    world = World(node_object(), allocated("c", allocation(None), *MANY[:-1], "uid-p"))

    assert isinstance(cycle.pre_filter(ONE, world.cache, environment()), CycleState)


def test_an_entry_whose_claim_is_not_needed_is_skipped() -> None:
    waiting = pod(templates={"gpu": None})
    status = msgspec.structs.replace(
        waiting.status,
        resource_claim_statuses=pod(templates={"gpu": ""}).status.resource_claim_statuses,
    )
    nothing = msgspec.structs.replace(
        waiting,
        status=msgspec.structs.replace(
            status,
            resource_claim_statuses=tuple(
                msgspec.structs.replace(each, resource_claim_name=None)
                for each in status.resource_claim_statuses or ()
            ),
        ),
    )

    state = cycle.pre_filter(nothing, World(node_object()).cache, environment())

    assert isinstance(state, CycleState)
    assert state.claims == ()


def test_two_entries_of_one_claim_are_one_claim() -> None:
    entries = tuple(PodResourceClaim(name=name, resource_claim_name="c") for name in ("a", "b"))
    twice = msgspec.structs.replace(
        ONE, spec=msgspec.structs.replace(ONE.spec, resource_claims=entries)
    )
    world = World(*gpu_nodes(1), claim("c"))

    state = cycle.pre_filter(twice, world.cache, environment())

    assert isinstance(state, CycleState)
    assert [(c.entry, c.uid) for c in state.claims] == [("a", "uid-c")]
    assert list(cycle.filter_nodes(state).fitting["n00"].allocations) == ["uid-c"]


def test_the_newest_version_of_the_pod_decides() -> None:
    world = World(*gpu_nodes(1), owned(MADE, claim("p-gpu")), MADE)
    copy_from_before = pod(templates={"gpu": None})
    meta = msgspec.structs.replace(copy_from_before.metadata, resource_version="99")
    ahead_of_the_watch = msgspec.structs.replace(copy_from_before, metadata=meta)

    assert isinstance(cycle.pre_filter(copy_from_before, world.cache, environment()), CycleState)
    assert isinstance(cycle.pre_filter(ahead_of_the_watch, world.cache, environment()), Status)


def test_all_claims_are_allocated_together_or_none() -> None:
    world = World(*gpu_nodes(1, gpus=2), claim("a"), claim("b", request("r", count=2)))
    both = pod(claims=["a", "b"])

    state = cycle.pre_filter(both, world.cache, environment())
    assert isinstance(state, CycleState)
    result = cycle.filter_nodes(state)

    assert result.failure is not None
    assert result.verdicts["n00"].allocations == {}


def test_allocations_are_told_by_claim() -> None:
    world = World(*gpu_nodes(1, gpus=2), claim("a"), claim("b"))

    state = cycle.pre_filter(pod(claims=["b", "a"]), world.cache, environment())
    assert isinstance(state, CycleState)
    given = cycle.filter_nodes(state).fitting["n00"].allocations

    devices = {uid: [r.device for r in a.devices.results or ()] for uid, a in given.items()}
    assert devices == {"uid-b": ["gpu-0"], "uid-a": ["gpu-1"]}


def binding(timestamp: str | None = None) -> AllocationResult:
    return allocation(timestamp=timestamp, conditions=("Ready",), failures=("Broken",))


@dataclass(frozen=True, kw_only=True)
class Held:
    """A pod with a claim that has devices already, on node n00 (`now` is 12:00)."""

    id: str
    claim: ResourceClaim
    node: str = "n00"
    kind: ReasonKind | None = None
    features: Features = field(default_factory=Features)


HELD = [
    Held(id="on its node", claim=allocated("c", allocation("n00"))),
    Held(
        id="elsewhere",
        claim=allocated("c", allocation("n00")),
        node="n01",
        kind=ReasonKind.ALLOCATED_ELSEWHERE,
    ),
    Held(id="without selector everywhere", claim=allocated("c", allocation(None)), node="n01"),
    Held(
        id="binding pending",
        claim=allocated("c", binding("2026-01-01T11:59:00Z")),
    ),
    Held(
        id="binding done long ago",
        claim=allocated(
            "c",
            binding("2026-01-01T10:00:00Z"),
            Ready="True",
        ),
    ),
    Held(
        id="binding timed out",
        claim=allocated("c", binding("2026-01-01T11:49:59Z")),
        kind=ReasonKind.BINDING_FAILED,
    ),
    Held(
        id="no timestamp never times out",
        claim=allocated("c", binding()),
    ),
    Held(
        id="binding failed, ready or not",
        claim=allocated("c", binding(), Ready="True", Broken="True"),
        kind=ReasonKind.BINDING_FAILED,
    ),
    Held(
        id="a failure condition that is not True is none",
        claim=allocated("c", binding(), Broken="False"),
    ),
    Held(
        id="binding conditions switched off",
        claim=allocated("c", binding(), Broken="True"),
        features=Features(device_binding_conditions=False),
    ),
    Held(
        id="needs a feature of the node",
        claim=allocated("c", allocation(skips=("NodePrepareResources",))),
        features=Features(optional_node_operations=True),
        kind=ReasonKind.NODE_FEATURE_MISSING,
    ),
    Held(
        id="needs a feature nobody switched on",
        claim=allocated("c", allocation(skips=("NodePrepareResources",))),
    ),
]


@pytest.mark.parametrize("case", HELD, ids=lambda case: case.id)
def test_allocated_claims_on_a_node(case: Held) -> None:
    world = World(*gpu_nodes(2), case.claim)

    state = cycle.pre_filter(ONE, world.cache, environment(features=case.features))
    assert isinstance(state, CycleState)
    verdict = cycle.filter_node(state, state.snapshot.nodes[case.node])

    reason = verdict.status.reason
    assert (None if reason is None else reason.kind) is case.kind
    assert verdict.unavailable == (("uid-c",) if case.kind else ())
    assert verdict.allocations == {}


def test_readiness_needs_every_condition_of_every_device() -> None:
    pending = allocated("c", allocation(conditions=("A", "B")), A="True")
    ready = allocated("c", allocation(conditions=("A", "B")), A="True", B="True")

    assert is_ready_for_binding(pending) is False
    assert is_ready_for_binding(ready) is True
    assert is_ready_for_binding(allocated("c", allocation(conditions=("A",)))) is False
    assert is_ready_for_binding(claim("c")) is True


def give_back(world: World, waiting: Pod) -> str | None:
    state = cycle.pre_filter(waiting, world.cache, environment())
    assert isinstance(state, CycleState)
    found = claim_to_give_back(state, cycle.filter_nodes(state).verdicts)
    return None if found is None else found.metadata.name


CORDONED = node_object("n00", unschedulable=True)


@pytest.mark.parametrize(
    ("users", "want"),
    [((), "c"), (("uid-p",), "c"), (("uid-q",), None), (("uid-p", "uid-q"), None)],
)
def test_an_idle_claim_on_the_wrong_node_is_given_back(
    users: tuple[str, ...], want: str | None
) -> None:
    world = World(*gpu_nodes(2), CORDONED, allocated("c", allocation("n00"), *users))

    assert give_back(world, ONE) == want


def test_nothing_is_given_back_when_some_node_fits() -> None:
    world = World(*gpu_nodes(2), allocated("c", allocation("n00")))

    assert give_back(world, ONE) is None


def test_nothing_is_given_back_when_the_other_claims_do_not_fit_there_either() -> None:
    world = World(
        *gpu_nodes(2), CORDONED, allocated("c", allocation("n00")), claim("d", request(count=9))
    )

    assert give_back(world, pod(claims=["c", "d"])) is None


def test_the_first_idle_claim_of_the_pod_is_given_back() -> None:
    world = World(
        *gpu_nodes(3),
        allocated("a", allocation("n00"), "uid-q"),
        allocated("b", allocation("n01")),
        allocated("c", allocation("n02")),
    )

    assert give_back(world, pod(claims=["a", "c", "b"])) == "c"


def test_a_selector_that_cannot_be_read_ends_the_attempt() -> None:
    broken = msgspec.structs.replace(
        allocation("n00"),
        node_selector=msgspec.json.decode(
            b'{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Odd"}]}]}',
            type=type(only_node()),
        ),
    )
    world = World(*gpu_nodes(2), allocated("c", broken))

    state = cycle.pre_filter(ONE, world.cache, environment())
    assert isinstance(state, CycleState)
    result = cycle.filter_nodes(state)

    assert result.failure is not None
    assert (result.failure.code, len(result.verdicts)) == (Code.ERROR, 1)


COUNTS = Features.for_version("1.37", {"DRANodeAllocatableResources": True})
CPUS = counting(device("gpu-0"), cpu=mapped(each="4"))
USER = pod(claims=["c"], containers=[container("main", {"cpu": "1"}, claims=["c"])])


def small_nodes(*cpu: str, card: Device = CPUS) -> Iterable[Any]:
    """Nodes `n00`, … with so much cpu and one device each."""
    yield device_class()
    for number, amount in enumerate(cpu):
        name = f"n{number:02}"
        yield node_object(name, allocatable={"cpu": amount, "memory": "8Gi", "pods": "9"})
        yield resource_slice(f"{name}-cpus", card, pool=name, node=name)


def result_of(
    world: World, asked: Pod = USER, features: Features = COUNTS, mode: Mode = Mode.STANDALONE
) -> FilterResult:
    state = cycle.pre_filter(asked, world.cache, environment(mode, features=features))
    assert isinstance(state, CycleState), state
    return cycle.filter_nodes(state)


def test_without_the_gate_nobody_reads_what_devices_count() -> None:
    world = World(*small_nodes("2"), claim("c"))

    result = result_of(world, features=Features())

    assert result.feasible == ("n00",)
    assert result.verdicts["n00"].demand == ()


@pytest.mark.parametrize("mode", Mode)
def test_there_must_be_room_for_what_devices_count(mode: Mode) -> None:
    world = World(*small_nodes("5", "4999m"), claim("c"))

    result = result_of(world, mode=mode)

    assert result.feasible == ("n00",)
    (entry,) = result.verdicts["n00"].demand
    assert (entry.resource_claim_name, entry.containers) == ("c", ("main",))
    assert [(each.name, str(each.quantity)) for each in entry.mapping or ()] == [("cpu", "4")]
    status = result.verdicts["n01"].status
    assert (status.code, status.message) == (
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        "Insufficient cpu",
    )
    assert result.verdicts["n01"].allocations == {}


def test_what_devices_of_running_pods_count_is_in_use() -> None:
    world = World(*small_nodes("9"), claim("c"))
    world.put(resource_slice("more", counting(device("z"), cpu=mapped(each="4")), node="n00"))
    verdict = result_of(world).verdicts["n00"]
    world.put(USER)
    world.bind(USER, "n00", dict(verdict.allocations), verdict.demand)
    world.put(claim("d"))

    result = result_of(world, pod("q", claims=["d"], requests={"cpu": "1"}))
    assert conclusion.failure_message(result) == "0/1 nodes are available: 1 Insufficient cpu."
    assert result.failure is not None
    assert result.failure.code is Code.UNSCHEDULABLE
    assert result_of(world, pod("q", claims=["d"])).feasible == ("n00",)


def test_claims_that_were_allocated_before_count_too() -> None:
    world = World(*small_nodes("5", "5"), allocated("c", allocation("n00"), "uid-p"))

    assert result_of(world).feasible == ("n00",)
    world.put(pod("r", node_name="n00", requests={"cpu": "1"}))
    result = result_of(world)
    assert result.feasible == ()
    assert result.verdicts["n00"].status.message == "Insufficient cpu"
    assert result.verdicts["n01"].unavailable == ("uid-c",)


def test_no_room_says_nothing_of_a_claim_that_is_elsewhere() -> None:
    """Giving it back would not help here."""
    world = World(*small_nodes("1", "5"), allocated("c", allocation("n01")), claim("d"))

    verdict = result_of(world, pod(claims=["c", "d"], requests={"cpu": "2"})).verdicts["n00"]

    assert verdict.unavailable == ()


@pytest.mark.parametrize(
    ("card", "users", "fits"),
    [
        (CPUS, ("uid-other",), False),
        (CPUS, ("uid-other", "uid-p"), True),
        (CPUS, (), True),
        (counting(device("gpu-0"), cpu=costs("1")), ("uid-other",), True),
    ],
    ids=["another pod's", "this pod's already", "nobody's", "overhead alone"],
)
def test_a_claim_that_stands_for_resources_is_for_one_pod(
    card: Device, users: tuple[str, ...], *, fits: bool
) -> None:
    world = World(*small_nodes("9", card=card), allocated("c", allocation("n00"), *users))

    result = result_of(world)

    assert bool(result.feasible) is fits
    if result.failure is not None:
        assert result.failure.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        assert "cannot be shared" in result.failure.message


def test_a_claim_of_another_pod_is_refused_as_such_even_if_its_devices_failed() -> None:
    """Giving it back would take it from the other pod."""
    failed = allocation("n00", conditions=("ready",), failures=("broken",))
    world = World(*small_nodes("9"), allocated("c", failed, "uid-other", broken="True"))

    verdict = result_of(world).verdicts["n00"]

    assert "cannot be shared" in verdict.status.message
    assert verdict.unavailable == ()


def test_too_little_room_on_one_node_ends_no_attempt() -> None:
    world = World(*small_nodes("1", "9"), claim("c"))
    settings = environment(features=COUNTS, on_node_error="abort")
    state = cycle.pre_filter(USER, world.cache, settings)
    assert isinstance(state, CycleState)

    assert cycle.filter_nodes(state).feasible == ("n01",)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_words_of_1_36_are_refused_with_the_gate(*, is_on: bool) -> None:
    of_1_36 = {"cpu": {"allocationMultiplier": "1"}}
    card = msgspec.structs.replace(device("gpu-0"), node_allocatable_resource_mappings=of_1_36)
    world = World(*small_nodes("9", card=card), claim("c"))

    result = result_of(world, features=COUNTS if is_on else Features())

    assert bool(result.feasible) is not is_on
    if result.failure is not None:
        assert result.failure.reason is not None
        assert result.failure.reason.kind is ReasonKind.UNSUPPORTED


@pytest.mark.parametrize("on_node_error", ["reject", "abort"])
def test_a_device_that_cannot_tell_what_it_counts_is_an_error_of_its_node(
    on_node_error: str,
) -> None:
    broken = counting(device("gpu-0"), cpu=mapped(key="gpu.example.com/cores", times="1"))
    world = World(*small_nodes("9", card=broken), *gpu_nodes(2, gpus=1), claim("c"))
    world.put(resource_slice("n00-cpus", broken, pool="n00", node="n00"))
    world.remove(resource_slice("n00-gpus", node="n00"))

    settings = environment(features=COUNTS, on_node_error=on_node_error)
    state = cycle.pre_filter(USER, world.cache, settings)
    assert isinstance(state, CycleState)
    result = cycle.filter_nodes(state)

    assert result.verdicts["n00"].status.code is Code.ERROR
    assert bool(result.feasible) is (on_node_error == "reject")


def test_a_device_in_flight_is_in_use() -> None:
    world = World(*gpu_nodes(1, gpus=1), claim("c"), claim("other"))
    record = world.cache.claim_by_uid("uid-other")
    assert record is not None
    world.cache.hold("uid-q", {"uid-other": (record.claim, allocation("n00"))})

    state = cycle.pre_filter(ONE, world.cache, environment())
    assert isinstance(state, CycleState)
    failure = cycle.filter_nodes(state).failure

    assert failure is not None
    assert failure.reason is not None
    assert failure.reason.kind is ReasonKind.DEVICES_IN_USE


def test_slices_of_other_nodes_do_not_count() -> None:
    world = World(
        device_class(), node_object("a"), node_object("b"), gpu_slice("b", "gpu-0"), claim("c")
    )

    state = cycle.pre_filter(ONE, world.cache, environment())
    assert isinstance(state, CycleState)

    assert cycle.filter_nodes(state).feasible == ("b",)
