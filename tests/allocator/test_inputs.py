"""What real clusters look like: the inputs that must give the right answer, end to end through the allocator."""

from typing import Any

import pytest

from allocator import Allocated, DoesNotFit, ReasonKind, allocate_prepared, prepare_claims
from tests.allocator.support import CEL, DEFAULTS, ask, by_request, kind, names, results
from tests.builders import (
    GPU_DRIVER,
    NIC_DRIVER,
    allocated_claim,
    capacity,
    claim,
    consumes,
    counter_set,
    device,
    device_class,
    match,
    node,
    quantity,
    request,
    resource_slice,
    share_id_of,
    snapshot,
    sub_request,
    taint,
    toleration,
    used,
    valid_range,
    version,
)
from tests.builders import first_available as first

OWN = f"device.attributes['{GPU_DRIVER}']"
MEMORY = f"device.capacity['{GPU_DRIVER}'].memory"
CLASSES = [
    device_class("gpu", f"device.driver == '{GPU_DRIVER}'"),
    device_class("h100", f"device.driver == '{GPU_DRIVER}'", f"{OWN}.model == 'H100'"),
    device_class("a100", f"device.driver == '{GPU_DRIVER}' && {OWN}.model == 'A100'"),
    device_class(
        "40Gi-and-more",
        f"device.driver == '{GPU_DRIVER}' && {MEMORY}.compareTo(quantity('40Gi')) >= 0",
    ),
    device_class(
        "exactly-80Gi", f"device.driver == '{GPU_DRIVER}' && {MEMORY} == quantity('80Gi')"
    ),
    device_class("nic", f"device.driver == '{NIC_DRIVER}'"),
]
ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = f"{GPU_DRIVER}/numa"


def gpu_node(name: str, model: str, memory: str):
    """The slice of a node with 8 GPUs, four on each NUMA node."""
    return resource_slice(
        f"{name}-gpus",
        *(
            device(
                f"gpu-{index}",
                model=model,
                numa=index // 4,
                driver=version("550.54.15"),
                uuid=f"{name}-{index}",
                capacity={"memory": memory},
            )
            for index in range(8)
        ),
        pool=name,
        node=name,
    )


MODELS = [("H100", "80Gi"), ("A100", "40Gi"), ("A100", "80Gi"), ("L4", "24Gi")]
CLUSTER = [gpu_node(f"node-{index}", *MODELS[index % 4]) for index in range(100)]


def fitting(*claims, in_use=()) -> list[str]:
    """Names of the nodes where claims fit, asked as the scheduler asks: prepared once, then every node."""
    world = snapshot(*CLUSTER, classes=CLASSES, in_use=in_use)
    prepared = prepare_claims(claims, world.classes, DEFAULTS, CEL)
    found = []
    for index in range(100):
        outcome = allocate_prepared(
            prepared, node(f"node-{index}"), world, new_share_id=share_id_of
        )
        assert isinstance(outcome, Allocated | DoesNotFit)
        if isinstance(outcome, Allocated):
            found.append(f"node-{index}")
    return found


def nodes(*kinds: int) -> list[str]:
    return [f"node-{index}" for index in range(100) if index % 4 in kinds]


@pytest.mark.parametrize(
    ("class_name", "want"),
    [
        ("gpu", nodes(0, 1, 2, 3)),
        ("h100", nodes(0)),
        ("a100", nodes(1, 2)),
        ("40Gi-and-more", nodes(0, 1, 2)),
        ("exactly-80Gi", nodes(0, 2)),
        ("nic", []),
    ],
)
def test_class_selectors_find_the_right_nodes_of_a_hundred(class_name: str, want) -> None:
    assert fitting(claim("c", request(device_class=class_name))) == want


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (f"{OWN}.driver.isGreaterThan(semver('550.0.0'))", nodes(0, 1, 2, 3)),
        (f"{OWN}.driver.major() >= 560", []),
        (f"{OWN}.model in ['L4', 'H100']", nodes(0, 3)),
        (f"{OWN}.numa == 1 && {OWN}.model.startsWith('A')", nodes(1, 2)),
    ],
)
def test_request_selectors_find_the_right_nodes_of_a_hundred(expression: str, want) -> None:
    assert fitting(claim("c", request("r", expression))) == want


def test_eight_devices_fit_a_node_nine_do_not() -> None:
    assert fitting(claim("c", request(count=8))) == nodes(0, 1, 2, 3)
    assert fitting(claim("c", request(count=9))) == []
    busy = [used("gpu-3", pool="node-0")]
    assert fitting(claim("c", request(count=8, device_class="h100")), in_use=busy) == nodes(0)[1:]


def test_an_h100_is_preferred_an_a100_will_do() -> None:
    wanted = claim(
        "c",
        first(
            "gpu",
            sub_request("h100", device_class="h100"),
            sub_request("a100", device_class="a100"),
        ),
    )
    world = snapshot(*CLUSTER, classes=CLASSES)

    assert by_request(ask(world, wanted, on=node("node-0"))) == [("gpu/h100", "gpu-0")]
    assert by_request(ask(world, wanted, on=node("node-1"))) == [("gpu/a100", "gpu-0")]
    assert names(ask(world, wanted, on=node("node-3"))) is None


def test_two_gpus_on_one_numa_node_and_a_nic_on_the_same_pcie_root() -> None:
    gpus = resource_slice(
        "gpus",
        *(
            device(f"gpu-{index}", attributes={"numa": numa, ROOT: f"pci0000:{root:02}"})
            for index, (numa, root) in enumerate([(0, 1), (1, 2), (1, 2), (1, 3)])
        ),
    )
    nics = resource_slice(
        "nics",
        *(
            device(f"nic-{index}", attributes={ROOT: f"pci0000:{root:02}"})
            for index, root in enumerate([1, 2, 3])
        ),
        driver=NIC_DRIVER,
    )
    wanted = claim(
        "c",
        request("gpus", count=2),
        request("nic", device_class="nic"),
        match(NUMA, "gpus"),
        match(ROOT, "gpus", "nic"),
    )
    outcome = ask(snapshot(gpus, nics, classes=CLASSES), wanted)

    assert by_request(outcome) == [("gpus", "gpu-1"), ("gpus", "gpu-2"), ("nic", "nic-1")]


def test_a_counter_of_8gi_admits_one_of_two_partitions_of_6gi() -> None:
    partitions = resource_slice(
        "partitions",
        *(
            device(f"mig-{index}", profile="6g", consumes=[consumes("card-0", memory="6Gi")])
            for index in range(2)
        ),
        count=2,
    )
    counters = resource_slice("counters", counters=[counter_set("card-0", memory="8Gi")], count=2)
    free = snapshot(partitions, counters, classes=CLASSES)
    taken = snapshot(partitions, counters, classes=CLASSES, in_use=[used("mig-0")])
    outcome = ask(taken, claim())

    assert names(ask(free, claim())) == ["mig-0"]
    assert names(ask(free, claim("x"), claim("y"))) is None
    assert kind(outcome) is ReasonKind.COUNTERS_EXHAUSTED


def test_a_card_of_80_units_is_shared_by_eight_claims_of_ten() -> None:
    card = resource_slice(
        "shared",
        device(
            "card",
            shareable=True,
            capacity={"memory": capacity(80, valid_range(10, 80, 10, default=10))},
        ),
    )
    holders: list[Any] = []
    for index in range(8):
        world = snapshot(card, classes=CLASSES, claims=holders)
        (share,) = results(ask(world, claim(f"c{index}", request(capacity={"memory": 7}))))
        assert share.consumed_capacity == {"memory": quantity(10)}
        holders.append(allocated_claim(f"c{index}", share))
    outcome = ask(snapshot(card, classes=CLASSES, claims=holders), claim("one-too-many"))

    assert names(outcome) is None
    assert kind(outcome) is ReasonKind.CAPACITY_EXHAUSTED


def test_a_tainted_device_serves_only_a_tolerating_claim() -> None:
    world = snapshot(
        resource_slice("s", device("sick", taints=[taint("example.com/ecc", "errors")])),
        classes=CLASSES,
    )
    tolerating = request(tolerations=[toleration("example.com/ecc", operator="Exists")])

    assert kind(ask(world, claim())) is ReasonKind.DEVICE_TAINTED
    assert names(ask(world, claim("c", tolerating))) == ["sick"]


def test_an_incomplete_pool_is_told_of() -> None:
    world = snapshot(resource_slice("s", device("a"), count=2), classes=CLASSES)

    assert kind(ask(world, claim())) is ReasonKind.POOL_INCOMPLETE


def test_eight_hundred_devices_are_used_exactly_once() -> None:
    world = snapshot(*CLUSTER[:10], classes=CLASSES)
    holders: list[Any] = []
    for _ in range(8):
        for index in range(10):
            outcome = ask(
                snapshot(*CLUSTER[:10], classes=CLASSES, claims=holders),
                claim(f"c{len(holders)}"),
                on=node(f"node-{index}"),
            )
            holders.append(allocated_claim(f"c{len(holders)}", *results(outcome)))
    ids = [r.device_id for one in holders for r in one.status.allocation.devices.results]

    assert len(ids) == len(set(ids)) == 80
    assert {device_id for one in world.slices for device_id in one.device_ids} == set(ids)


@pytest.mark.no_cover
def test_hostile_claims_stay_inside_the_budget() -> None:
    world = snapshot(
        resource_slice("s", *(device(f"d{index}", x=index % 8) for index in range(120))),
        classes=CLASSES,
    )
    lonely = claim("c", request(count=16), match(f"{GPU_DRIVER}/x"))
    split = claim("c", request("a", count=8), request("b", count=8), match(f"{GPU_DRIVER}/x"))

    assert kind(ask(world, lonely, budget=20_000)) is ReasonKind.CONSTRAINT_UNSATISFIED
    assert kind(ask(world, split, budget=20_000)) is ReasonKind.SEARCH_BUDGET_EXCEEDED
