"""The independent check: it finds nothing wrong with what the allocator says, and finds every planted fault."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from allocator import Allocated, Features, allocate
from allocator.model.claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceRequest,
    ResourceClaim,
)
from allocator.model.devices import DeviceAttribute
from allocator.model.nodes import Node, NodeSelector, NodeSelectorTerm
from allocator.snapshot import Snapshot
from allocator.verify import verify
from tests.allocator.support import CEL, DEFAULTS, EXPERIMENTAL, STABLE, features
from tests.builders import (
    GPU_DRIVER,
    NIC_DRIVER,
    capacity,
    claim,
    claim_config,
    consumes,
    counter_set,
    device,
    device_class,
    distinct,
    match,
    node,
    node_selector,
    only_node,
    opaque,
    quantity,
    request,
    requirement,
    resource_slice,
    share_id_of,
    snapshot,
    sub_request,
    taint,
    toleration,
    used,
    valid_range,
    valid_values,
)
from tests.builders import first_available as first

replace = msgspec.structs.replace
IS_GPU = f"device.driver == '{GPU_DRIVER}'"
TOLERATES = toleration("sick", operator="Exists")

LOCAL = resource_slice(
    "gpus",
    device("busy", numa=0, model="A"),
    device("g1", numa=1, model="A"),
    device("g2", numa=1, model="A"),
    device("g3", numa=2, model="B", taints=[taint("sick")]),
    device("waits", numa=3, model="C", conditions=["ready"], failures=["broken"]),
    pool="local",
)
PARTS = [
    resource_slice(
        "parts",
        device("p1", consumes=[consumes("card", memory=6)]),
        device("p2", consumes=[consumes("card", memory=6)]),
        device("p3", consumes=[consumes("card", memory=2)]),
        pool="parts",
        count=2,
    ),
    resource_slice("counters", counters=[counter_set("card", memory=8)], pool="parts", count=2),
]
SHARED = resource_slice(
    "shared",
    device(
        "s1",
        shareable=True,
        capacity={
            "memory": capacity(80, valid_range(10, 80, 10, default=10)),
            "slots": capacity(8, valid_values(1, 2, default=1)),
            "io": 4,
        },
    ),
    pool="shared",
)
NET = resource_slice(
    "net",
    device("n1", numa=1),
    device("n2", numa=1),
    driver=NIC_DRIVER,
    pool="net",
    selector=node_selector(labels={"zone": "a"}),
)
CLASSES = [
    device_class("gpu", IS_GPU, config=["of-class"]),
    device_class("nic", f"device.driver == '{NIC_DRIVER}'"),
    device_class("odd", "device.attributes['gpu.example.com'].missing == 1"),
]
MODEL_A = "device.attributes['gpu.example.com'].?model.orValue('') == 'A'"
HAS_MODEL = "has(device.attributes['gpu.example.com'].model)"
ON = node("node-1", zone="a")


@dataclass(frozen=True)
class Scene:
    """Claims that fit, with what the allocator answers."""

    claims: tuple[ResourceClaim, ...]
    snapshot: Snapshot
    on: Node = ON
    features: Features = DEFAULTS

    def answer(self) -> list[AllocationResult]:
        outcome = allocate(
            self.claims,
            self.on,
            self.snapshot,
            features=self.features,
            cel=CEL,
            new_share_id=share_id_of,
        )
        assert isinstance(outcome, Allocated), outcome
        return list(outcome.allocations)

    def rules(self, allocations: list[AllocationResult]) -> set[str]:
        found = verify(
            self.claims, allocations, self.on, self.snapshot, features=self.features, cel=CEL
        )
        return {violation.rule for violation in found}


def scene(*claims, slices=(LOCAL, *PARTS, SHARED, NET), on=ON, features=DEFAULTS, **more) -> Scene:
    more.setdefault("in_use", [used("busy", pool="local")])
    return Scene(claims, snapshot(*slices, classes=CLASSES, **more), on, features)


PAIR = scene(
    claim(
        "c",
        request("gpus", MODEL_A, count=2, tolerations=[TOLERATES]),
        request("nic", device_class="nic"),
        match(f"{GPU_DRIVER}/numa", "gpus"),
        claim_config("own", "nic"),
    )
)
DISTINCT = scene(
    claim(
        "c",
        request("gpus", HAS_MODEL, count=2, tolerations=[TOLERATES]),
        distinct(f"{GPU_DRIVER}/numa"),
    )
)
SHARE = scene(
    claim("x", request("r", capacity={"memory": 15, "slots": 2, "io": 1})),
    claim("y", request("r", capacity={"memory": 20, "slots": 1, "io": 3})),
)
SHARE = scene(*SHARE.claims, slices=(SHARED,))
PARTITIONS = scene(claim("x"), claim("y"), slices=PARTS)
NIC = scene(claim("n", request("nic", device_class="nic")))
CHOICE = scene(claim("c", first("r", sub_request("a", MODEL_A), sub_request("b", HAS_MODEL))))
EVERY = scene(claim("c", request("all", MODEL_A, all_devices=True)), in_use=())
WAITING = scene(
    claim("c", request("r", "device.attributes['gpu.example.com'].?model.orValue('') == 'C'"))
)
ADMIN = scene(claim("c", request("r", MODEL_A, admin=True)))

SCENES = {
    "pair": PAIR,
    "distinct": DISTINCT,
    "share": SHARE,
    "partitions": PARTITIONS,
    "nic": NIC,
    "choice": CHOICE,
    "every": EVERY,
    "waiting": WAITING,
    "admin": ADMIN,
}


@pytest.mark.parametrize("case", SCENES.values(), ids=SCENES)
def test_nothing_is_wrong_with_what_the_allocator_answers(case: Scene) -> None:
    assert case.rules(case.answer()) == set()


# Faults


def edit(allocation: AllocationResult, at: int = 0, **changes: Any) -> AllocationResult:
    """Change one result."""
    results = list(allocation.devices.results or ())
    results[at] = replace(results[at], **changes)
    return with_results(allocation, *results)


def with_results(allocation: AllocationResult, *results: Any) -> AllocationResult:
    return replace(allocation, devices=replace(allocation.devices, results=tuple(results)))


def drop(allocation: AllocationResult, at: int = 0) -> AllocationResult:
    results = list(allocation.devices.results or ())
    del results[at]
    return with_results(allocation, *results)


def repeat(allocation: AllocationResult, times: int = 2) -> AllocationResult:
    return with_results(allocation, *(allocation.devices.results or ()) * times)


def with_config(allocation: AllocationResult, *config: Any) -> AllocationResult:
    return replace(allocation, devices=replace(allocation.devices, config=config or None))


def consumed(**amounts: str | int) -> dict[str, Any]:
    return {name: quantity(value) for name, value in amounts.items()}


Edit = Callable[[Any], AllocationResult]


@dataclass(frozen=True)
class Fault:
    """A change to the answer of a scene, and the rule it breaks."""

    rule: str
    scene: Scene
    edits: dict[int, Edit] = field(default_factory=dict)
    scenario: Scene | None = None


FAULTS = [
    Fault("request-exists", PAIR, {0: lambda a: edit(a, request="nobody")}),
    Fault("every-request-served", PAIR, {0: lambda a: drop(a, 2)}),
    Fault("count-as-asked", PAIR, {0: drop}),
    Fault("count-as-asked", PAIR, {0: lambda a: with_results(a, *a.devices.results, *a.devices.results[2:])}),
    Fault("no-device-twice-in-a-request", PAIR, {0: lambda a: edit(a, 1, device="g1")}),
    Fault("no-device-twice-in-a-claim", PAIR, {0: lambda a: edit(a, 1, device="g1")}),
    Fault("device-exists", PAIR, {0: lambda a: edit(a, device="gone")}),
    Fault("device-exists", PAIR, {0: lambda a: edit(a, pool="elsewhere")}),
    Fault("device-free", PAIR, {0: lambda a: edit(a, device="busy")}),
    Fault("match-attribute", PAIR, {0: lambda a: edit(a, 1, device="busy")}),
    Fault("selectors-match", PAIR, {0: lambda a: edit(a, device="g3")}),
    Fault("selectors-match", PAIR, {0: lambda a: edit(a, driver=NIC_DRIVER, pool="net", device="n1")}),
    Fault("taints-tolerated", CHOICE, {0: lambda a: edit(a, request="r/b", device="g3")}),
    Fault("tolerations-copied", PAIR, {0: lambda a: edit(a, tolerations=None)}),
    Fault("admin-access-as-asked", PAIR, {0: lambda a: edit(a, admin_access=True)}),
    Fault("admin-access-as-asked", ADMIN, {0: lambda a: edit(a, admin_access=None)}),
    Fault("share-id-of-shareable", PAIR, {0: lambda a: edit(a, share_id="x")}),
    Fault("consumed-only-by-shares", PAIR, {0: lambda a: edit(a, consumed_capacity=consumed(memory=1))}),
    Fault("binding-conditions", WAITING, {0: lambda a: edit(a, binding_conditions=None)}),
    Fault("binding-failure-conditions", WAITING, {0: lambda a: edit(a, binding_failure_conditions=("x",))}),
    Fault("skip-node-operations", NIC, {0: lambda a: edit(a, skip_node_operations=("*",))}),
    Fault("constraint-attribute-exists", DISTINCT, {0: lambda a: edit(a, pool="parts", device="p1")}),
    Fault("distinct-attribute", DISTINCT, {0: lambda a: edit(a, 1, device="g2")}),
    Fault("all-means-all", EVERY, {0: drop}),
    Fault("one-alternative", CHOICE, {0: lambda a: with_results(a, *a.devices.results, replace(a.devices.results[0], request="r/b", device="g2"))}),
    Fault("config", PAIR, {0: with_config}),
    Fault("config", PAIR, {0: lambda a: with_config(a, *reversed(a.devices.config))}),
    Fault("config", NIC, {0: lambda a: with_config(a, DeviceAllocationConfiguration(source="FromClaim", opaque=opaque("x")))}),
    Fault("node-selector-only-this-node", PAIR, {0: lambda a: replace(a, node_selector=None)}),
    Fault("node-selector-only-this-node", PAIR, {0: lambda a: replace(a, node_selector=node_selector(labels={"zone": "a"}))}),
    Fault("node-selector-matches-node", PAIR, {0: lambda a: replace(a, node_selector=only_node("node-2"))}),
    Fault("node-selector-of-devices", NIC, {0: lambda a: replace(a, node_selector=None)}),
    Fault("node-selector-matches-node", NIC, {0: lambda a: replace(a, node_selector=NodeSelector())}),
    Fault("at-most-32-results", NIC, {0: lambda a: repeat(a, 33)}),
    Fault("amount-as-policy-says", SHARE, {0: lambda a: edit(a, consumed_capacity=consumed(memory=15, slots=2, io=1))}),
    Fault("amount-as-policy-says", SHARE, {0: lambda a: edit(a, consumed_capacity=consumed(memory=30, slots=2, io=1))}),
    Fault("amount-as-policy-says", SHARE, {0: lambda a: edit(a, consumed_capacity=consumed(memory=10, slots=2, io=1))}),
    Fault("amount-as-policy-says", SHARE, {0: lambda a: edit(a, consumed_capacity=consumed(memory=90, slots=2, io=1))}),
    Fault("amount-as-policy-says", SHARE, {0: lambda a: edit(a, consumed_capacity=consumed(memory=20, slots=1, io=1))}),
    Fault("amount-as-policy-says", SHARE, {0: lambda a: edit(a, consumed_capacity=consumed(memory=20, slots=2, io=2))}),
    Fault("amount-as-policy-says", SHARE, {0: lambda a: edit(a, consumed_capacity=consumed(memory=20, slots=2, io=-1))}),
    Fault("every-capacity-recorded", SHARE, {0: lambda a: edit(a, consumed_capacity=consumed(memory=20, slots=2))}),
    Fault("every-capacity-recorded", SHARE, {0: lambda a: edit(a, consumed_capacity=consumed(memory=20, slots=2, io=1, x=1))}),
    Fault("share-id-of-shareable", SHARE, {0: lambda a: edit(a, share_id=None)}),
    Fault("share-id-fresh", SHARE, {1: lambda a: edit(a, share_id="share-x-r-s1")}),
    Fault("capacity-left", SHARE, {0: lambda a: edit(a, consumed_capacity=consumed(memory=20, slots=2, io=2))}),
    Fault("device-given-once", PARTITIONS, {1: lambda a: edit(a, device="p1")}),
    Fault("counters-left", PARTITIONS, {1: lambda a: edit(a, device="p2")}),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{i}-{f.rule}" for i, f in enumerate(FAULTS)])
def test_a_planted_fault_is_found(fault: Fault) -> None:
    answer = fault.scene.answer()
    assert fault.scene.rules(answer) == set()
    for index, change in fault.edits.items():
        answer[index] = change(answer[index])

    assert fault.rule in fault.scene.rules(answer)


def test_there_are_more_than_25_faults() -> None:
    assert len({fault.rule for fault in FAULTS}) >= 25


def test_a_missing_allocation_is_found() -> None:
    assert PARTITIONS.rules(PARTITIONS.answer()[:1]) == {"one-allocation-a-claim"}


# The world changed after the allocation was made

SIMPLE = (claim("c", request("r", MODEL_A)),)


def changed(*slices, features: Features = DEFAULTS, on: Node = ON, claims=SIMPLE, **more) -> Scene:
    return scene(*claims, slices=slices, features=features, on=on, **more)


def other_local(*devices, **more):
    return resource_slice("gpus", *devices, pool="local", **more)


G1 = device("g1", numa=1, model="A")
CHANGES = {
    "class-exists": Scene(SIMPLE, snapshot(LOCAL, classes=[])),
    "device-exists": changed(resource_slice("gpus", G1, pool="local", node="node-2")),
    "pool-usable": changed(other_local(G1, count=2)),
    "pool-usable: newer": changed(
        other_local(G1, count=2), resource_slice("new", pool="local", node="node-2", generation=2)
    ),
    "pool-usable: twice": changed(other_local(G1, G1)),
    "device-exists: no pool": changed(resource_slice("other", G1)),
    "pool-usable: sets": changed(
        other_local(G1, count=3),
        *(
            resource_slice(n, counters=[counter_set("s", m=1)], pool="local", count=3)
            for n in ("x", "y")
        ),
    ),
    "pool-usable: set": changed(other_local(G1, device("z", consumes=[consumes("no")]))),
    "pool-usable: counter": changed(
        other_local(G1, device("z", consumes=[consumes("s", k=1)]), count=2),
        resource_slice("x", counters=[counter_set("s", m=1)], pool="local", count=2),
    ),
    "selectors-match": changed(other_local(device("g1", numa=1, model="B"))),
    "selectors-match: error": Scene(
        (claim("c", request("r", MODEL_A, device_class="odd")),), snapshot(LOCAL, classes=CLASSES)
    ),
    "taints-tolerated": changed(other_local(device("g1", model="A", taints=[taint("new")]))),
    "counters-gate": changed(
        other_local(device("g1", model="A", consumes=[consumes("no", m=1)])),
        features=features(partitionable_devices=False),
    ),
    "binding-gate": changed(
        other_local(device("g1", model="A", conditions=["x"])),
        features=features(device_binding_conditions=False),
    ),
    "node-operations-gate": changed(
        other_local(G1, skips=["*"]), features=features(list_type_attributes=True)
    ),
    "node-operations-feature": changed(other_local(G1, skips=["*"]), features=EXPERIMENTAL),
    "device-on-node": changed(
        resource_slice(
            "gpus",
            device("g1", model="A", node="node-2"),
            device("x", node="node-1"),
            pool="local",
            per_device=True,
        )
    ),
    "device-exists: hidden slice": changed(
        other_local(device("g1", model="A", node="node-1"), per_device=True),
        features=features(partitionable_devices=False),
    ),
    "device-exists: hidden groups": changed(
        other_local(device("g1", model="A", consumes=[consumes("s", ["mig"])]))
    ),
    "share-id-of-shareable": changed(other_local(device("g1", model="A", shareable=True))),
    "capacity-exists": changed(
        other_local(G1), claims=(claim("c", request("r", MODEL_A, capacity={"memory": 1})),)
    ),
    "capacity-sufficient": changed(
        other_local(device("g1", model="A", capacity={"memory": 1})),
        claims=(claim("c", request("r", MODEL_A, capacity={"memory": 2})),),
    ),
    "device-free": changed(other_local(G1), in_use=[used("g1", pool="local")]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_the_world_is_found(name: str) -> None:
    later = CHANGES[name]
    answer = scene(*SIMPLE).answer()

    assert name.partition(":")[0] in later.rules(answer)


def test_admin_access_with_the_gate_off_is_found() -> None:
    later = Scene(ADMIN.claims, ADMIN.snapshot, features=features(admin_access=False))

    assert "admin-access-gate" in later.rules(ADMIN.answer())


def test_a_share_with_the_gate_off_is_found() -> None:
    later = Scene(SHARE.claims, SHARE.snapshot, features=features(consumable_capacity=False))

    assert "share-only-with-gate" in later.rules(SHARE.answer())


def test_a_device_that_breaks_a_derived_attribute_is_found() -> None:
    wanted = claim(
        "c",
        request("r", derived={"x/y": "device.attributes['gpu.example.com'].numa"}),
        match("x/y"),
    )
    then = scene(wanted, slices=[other_local(G1)], features=EXPERIMENTAL)
    later = scene(wanted, slices=[other_local(device("g1"))], features=EXPERIMENTAL)

    assert then.rules(then.answer()) == set()
    assert "derived-attribute" in later.rules(then.answer())


GROUPED = [
    resource_slice(
        "parts",
        *(
            device(name, consumes=[consumes("card", groups, memory=1)])
            for name, groups in [("a", ["x"]), ("b", ["x", "y"]), ("c", ["y"]), ("d", [])]
        ),
        pool="parts",
        count=2,
    ),
    PARTS[1],
]


def test_devices_without_a_common_group_are_found() -> None:
    case = scene(claim("x"), claim("y"), slices=GROUPED, features=EXPERIMENTAL)
    answer = case.answer()

    assert case.rules(answer) == set()
    answer[1] = edit(answer[1], device="c")
    assert "compatibility-groups" in case.rules(answer)


def test_groups_that_disagreed_before_are_not_held_against_an_allocation() -> None:
    in_use = [used("a", pool="parts"), used("c", pool="parts")]
    case = scene(claim("x"), slices=GROUPED, features=EXPERIMENTAL, in_use=in_use)
    before = scene(claim("x"), slices=GROUPED, features=EXPERIMENTAL, in_use=())
    answer = [edit(before.answer()[0], device="b")]

    assert "compatibility-groups" not in case.rules(answer)


def test_counters_that_other_claims_hold_count() -> None:
    before = scene(claim("x"), slices=PARTS, in_use=())
    after = scene(
        claim("x"), slices=PARTS, in_use=[used("p3", pool="parts"), used("p2", pool="parts")]
    )

    assert "counters-left" in after.rules(before.answer())


def test_a_device_that_takes_less_than_nothing_makes_no_room() -> None:
    parts = [
        device(name, consumes=[consumes("card", memory=memory)])
        for name, memory in (("p0", 6), ("p1", 6), ("less", -6))
    ]
    slices = [resource_slice("parts", *parts, pool="parts", count=2), PARTS[1]]
    before = scene(claim("x"), slices=slices, in_use=())
    after = scene(
        claim("x"), slices=slices, in_use=[used("p1", pool="parts"), used("less", pool="parts")]
    )

    assert before.rules(before.answer()) == set()
    assert "counters-left" in after.rules(before.answer())


def test_a_further_share_pays_no_counters() -> None:
    slices = [
        resource_slice(
            "parts",
            device("p1", shareable=True, consumes=[consumes("card", memory=6)]),
            pool="parts",
            count=2,
        ),
        PARTS[1],
    ]
    case = scene(claim("x"), claim("y"), slices=slices, in_use=())
    shared = scene(claim("x"), slices=slices, in_use=[used("p1", pool="parts", share="s")])

    assert case.rules(case.answer()) == set()
    assert shared.rules(shared.answer()) == set()


def test_the_stable_allocators_answers_pass() -> None:
    case = Scene(
        (claim("c", request("r", MODEL_A)), claim("n", request("n", device_class="nic"))),
        snapshot(LOCAL, NET, *PARTS, classes=CLASSES, consumable_capacity=False),
        features=STABLE,
    )

    assert case.rules(case.answer()) == set()


@pytest.mark.parametrize(
    ("card", "amount", "fits"),
    [
        (8, 8, True),
        (8, 9, False),
        (capacity(8, valid_range(2, 6, 2, default=2)), 7, False),
        (capacity(8, valid_range(2, 6, 2, default=2)), 5, True),
        (capacity(8, valid_range(2, default=2)), 1, True),
        (capacity(8, valid_range(maximum=6, default=2)), 7, False),
        (capacity(8, valid_values(1, 4, default=1)), 5, False),
        (capacity(8, valid_values(1, 4, default=1)), 3, True),
        (capacity(8, valid_values(default=1)), 3, True),
        (capacity(8, valid_values(1, default=9)), None, False),
        (8, None, True),
        (capacity(8, valid_range(9)), None, True),
        (capacity(8, valid_range(2, 6)), None, False),
        (capacity(8, valid_range(2, 8, 2)), None, True),
        (capacity(8, valid_range(1, 8, 2)), None, False),
        (capacity(8, valid_values(1, 8)), None, True),
        (capacity(8, valid_values(1, 4)), None, False),
        (capacity(8, valid_values()), None, True),
        (capacity(8, valid_range(4, 2, default=4)), 3, True),
        (capacity(8, valid_range(9, 9, 1, default=3)), 3, False),
        (capacity(8, valid_values(1, default=3)), 3, True),
    ],
)
def test_all_leaves_out_devices_that_are_too_small(card, amount, fits: bool) -> None:
    amounts = None if amount is None else {"memory": amount}
    slices = [
        resource_slice(
            "s",
            device("sized", shareable=True, capacity={"memory": card}),
            device("large", shareable=True, capacity={"memory": 10}),
            device("none", shareable=True),
        )
    ]
    case = scene(claim("c", request(all_devices=True, capacity=amounts)), slices=slices, in_use=())
    answer = case.answer()

    assert ("sized" in {r.device for r in answer[0].devices.results or ()}) == fits
    assert case.rules(answer) == set()


def test_a_node_selector_that_cannot_be_parsed_selects_nothing() -> None:
    term = NodeSelectorTerm(match_expressions=(requirement("zone", "Is", "a"),))
    answer = [replace(NIC.answer()[0], node_selector=node_selector(term))]

    assert "node-selector-matches-node" in NIC.rules(answer)


def test_all_of_a_class_that_is_gone_is_found() -> None:
    later = Scene(EVERY.claims, snapshot(LOCAL, classes=[]), ON)

    assert "class-exists" in later.rules(EVERY.answer())
    assert "all-means-all" in later.rules(EVERY.answer())


def test_a_request_without_spec_is_no_reason_to_crash() -> None:
    odd = Scene((claim("c", DeviceRequest(name="r")),), NIC.snapshot)

    assert odd.rules([AllocationResult()]) == {"every-request-served"}


def test_lists_without_values_are_not_distinct() -> None:
    wanted = claim("c", request("r"), distinct(f"{GPU_DRIVER}/x"))
    lists = features(list_type_attributes=True)
    then = scene(wanted, slices=[other_local(device("g1", x=[1]))], features=lists)
    later = scene(
        wanted,
        slices=[other_local(device("g1", x=DeviceAttribute(ints=())))],
        features=lists,
    )

    assert then.rules(then.answer()) == set()
    assert "distinct-attribute" in later.rules(then.answer())
