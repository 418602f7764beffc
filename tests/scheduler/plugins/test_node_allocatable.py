"""Devices that count in cpu or memory of their node: how much, whether it fits, and who may share them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from allocator.model.claims import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from allocator.model.devices import (
    Device,
    NodeAllocatableResource,
    ResourceSlice,
)
from allocator.model.hooks import dec_hook
from allocator.snapshot import SliceIndex
from scheduler.framework.plan import Demand
from scheduler.framework.status import Code, Status
from scheduler.model import Container, NodeAllocatableResourceClaimStatus, Pod, ResourceRequirements
from scheduler.plugins import node_allocatable
from tests import builders
from tests.builders import (
    GPU_DRIVER,
    claim,
    costs,
    device,
    mapped,
    only_node,
    resource_slice,
)
from tests.pods import container, node_info, node_object, pod, quantities, requirements

NODE = node_object("n1", allocatable={"cpu": "8", "memory": "16Gi", "hugepages-2Mi": "64Mi"})
CORES = f"{GPU_DRIVER}/cores"


def both(
    mapping: NodeAllocatableResource, overhead: NodeAllocatableResource
) -> NodeAllocatableResource:
    return NodeAllocatableResource(mapping=mapping.mapping, overhead=overhead.overhead)


def counting(name: str, /, **resources: NodeAllocatableResource) -> Device:
    return builders.counting(device(name), **resources)


def here(*devices: Device, **more: Any) -> ResourceSlice:
    return resource_slice("s", *devices, **({"node": "n1", "pool": "n1"} | more))


def result(
    name: str, consumed: Mapping[str, str] | None = None, pool: str = "n1"
) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        request="gpu",
        driver=GPU_DRIVER,
        pool=pool,
        device=name,
        consumed_capacity=None if consumed is None else quantities(**consumed),
    )


def holding(*results: DeviceRequestAllocationResult) -> AllocationResult:
    return AllocationResult(
        devices=DeviceAllocationResult(results=results), node_selector=only_node("n1")
    )


def user(name: str, *entries: str, **requests: str) -> Container:
    return container(name, requests, claims=entries)


def written(demand: Demand | Status) -> list[dict[str, Any]]:
    assert not isinstance(demand, Status), demand
    return [told(each) for each in demand]


def told(status: NodeAllocatableResourceClaimStatus) -> dict[str, Any]:
    """As short as can be: claim, containers, resource -> amount, resource -> (a pod, a container)."""
    short: dict[str, Any] = {"claim": status.resource_claim_name}
    if status.containers:
        short["containers"] = list(status.containers)
    for mapping in status.mapping or ():
        short[mapping.name] = str(mapping.quantity)
    for overhead in status.overhead or ():
        amounts = (overhead.per_pod, overhead.per_container)
        short[f"{overhead.name} overhead"] = tuple(
            None if amount is None else str(amount) for amount in amounts
        )
    return short


@dataclass(frozen=True, kw_only=True)
class Counted:
    id: str
    devices: tuple[Device, ...]
    results: tuple[DeviceRequestAllocationResult, ...]
    pod: Pod = field(
        default_factory=lambda: pod(claims=["c"], containers=[user("main", "c", cpu="1")])
    )
    want: list[dict[str, Any]] = field(default_factory=list)


MAIN = {"claim": "c", "containers": ["main"]}
COUNTED = [
    Counted(id="an ordinary device", devices=(device("gpu-0"),), results=(result("gpu-0"),)),
    Counted(
        id="every device brings the same",
        devices=(counting("a", cpu=mapped(each="8")), counting("b", cpu=mapped(each="8"))),
        results=(result("a"), result("b")),
        want=[MAIN | {"cpu": "16"}],
    ),
    Counted(
        id="consumed capacity times its multiplier",
        devices=(counting("a", cpu=mapped(key=CORES, times="2")),),
        results=(result("a", {CORES: "3"}), result("a", {CORES: "1500m"})),
        want=[MAIN | {"cpu": "9"}],
    ),
    Counted(
        id="the format is that of the capacity, not of the multiplier",
        devices=(counting("a", memory=mapped(key=CORES, times="2")),),
        results=(result("a", {CORES: "4Gi"}),),
        want=[MAIN | {"memory": "8Gi"}],
    ),
    Counted(
        id="products are exact, and rounded up once when they are written",
        devices=(counting("a", cpu=mapped(key=CORES, times="500m")),),
        results=(result("a", {CORES: "1n"}), result("a", {CORES: "2n"})),
        want=[MAIN | {"cpu": "2n"}],
    ),
    Counted(
        id="no multiplier counts as one",
        devices=(counting("a", cpu=mapped(key=CORES)),),
        results=(result("a", {CORES: "3"}),),
        want=[MAIN | {"cpu": "3"}],
    ),
    Counted(
        id="a capacity that is not consumed counts nothing",
        devices=(counting("a", cpu=mapped(key=CORES, times="2")),),
        results=(result("a", {f"{GPU_DRIVER}/other": "3"}),),
    ),
    Counted(
        id="only the devices that were chosen count",
        devices=(device("gpu-0"), counting("cpu-0", cpu=mapped(each="8"))),
        results=(result("gpu-0"),),
    ),
    Counted(
        id="overhead a pod and a container",
        devices=(counting("a", memory=costs("1Gi", "512Mi")),),
        results=(result("a"),),
        want=[MAIN | {"memory overhead": ("1Gi", "512Mi")}],
    ),
    Counted(
        id="overhead of several devices adds up, each part for itself",
        devices=(
            counting("a", memory=costs("1Gi")),
            counting("b", memory=costs(container="512Mi")),
            counting("c", memory=costs("1Gi", "512Mi")),
        ),
        results=(result("a"), result("b"), result("c")),
        want=[MAIN | {"memory overhead": ("2Gi", "1Gi")}],
    ),
    Counted(
        id="overhead that says nothing",
        devices=(counting("a", memory=costs()),),
        results=(result("a"),),
    ),
    Counted(
        id="mapping and overhead of one resource are told apart",
        devices=(counting("a", cpu=both(mapped(each="4"), costs("100m", "10m"))),),
        results=(result("a"),),
        want=[MAIN | {"cpu": "4", "cpu overhead": ("100m", "10m")}],
    ),
    Counted(
        id="all containers that use the claim, init containers first",
        devices=(counting("a", memory=costs(container="1Gi")),),
        results=(result("a"),),
        pod=pod(
            claims=["c"],
            init_containers=[user("init", "c")],
            containers=[user("one", "c"), user("two"), user("three", "c")],
        ),
        want=[
            {
                "claim": "c",
                "containers": ["init", "one", "three"],
                "memory overhead": (None, "1Gi"),
            }
        ],
    ),
    Counted(
        id="a claim that no container uses counts too",
        devices=(counting("a", cpu=mapped(each="2"), memory=costs("1Gi", "1Gi")),),
        results=(result("a"),),
        pod=pod(claims=["c"]),
        want=[{"claim": "c", "cpu": "2", "memory overhead": ("1Gi", "1Gi")}],
    ),
]


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: case.id)
def test_what_a_claim_counts_is_written_per_resource(case: Counted) -> None:
    slices = SliceIndex.build([here(*case.devices)])
    device_of = node_allocatable.devices_on(slices, NODE.for_allocator())

    demand = node_allocatable.demand_of(case.pod, [(claim("c"), holding(*case.results))], device_of)

    assert written(demand) == case.want


def demand_of(slices: list[ResourceSlice], *claims: tuple[ResourceClaim, AllocationResult]) -> Any:
    device_of = node_allocatable.devices_on(SliceIndex.build(slices), NODE.for_allocator())
    used = pod(claims=[claim.metadata.name for claim, _ in claims])
    return node_allocatable.demand_of(used, claims, device_of)


def test_claims_are_told_of_in_the_order_of_their_names() -> None:
    slices = [here(counting("a", cpu=mapped(each="1")), device("b"))]

    demand = demand_of(
        slices,
        (claim("z"), holding(result("a"))),
        (claim("none"), holding(result("b"))),
        (claim("c"), holding(result("a"))),
    )

    assert [each["claim"] for each in written(demand)] == ["c", "z"]


def test_containers_are_found_by_the_claim_made_for_an_entry_and_once_each() -> None:
    one = pod(
        templates={"made": "p-made", "late": None},
        containers=[user("main", "made", "late", "unknown")],
    )
    two = pod(claims=["c"], containers=[user("main", "c", "again")])
    again = msgspec.structs.replace((two.spec.resource_claims or ())[0], name="again")
    entries = (*(two.spec.resource_claims or ()), again)
    two = msgspec.structs.replace(
        two, spec=msgspec.structs.replace(two.spec, resource_claims=entries)
    )

    assert node_allocatable.containers_of_claims(one) == {"p-made": ["main"]}
    assert node_allocatable.containers_of_claims(two) == {"c": ["main"]}


def test_a_capacity_that_a_device_cannot_consume_is_an_error_without_names() -> None:
    demand = demand_of(
        [here(counting("a", cpu=mapped(key=CORES, times="2")))], (claim("c"), holding(result("a")))
    )

    assert isinstance(demand, Status)
    assert demand.code is Code.ERROR
    assert CORES in demand.message


@pytest.mark.parametrize(
    ("resource", "consumed", "names"),
    [
        (mapped(each="-8"), None, "cpu"),
        (mapped(key=CORES, times="-2"), "3", "cpu"),
        (mapped(key=CORES, times="2"), "-3", CORES),
        (mapped(key=CORES, times="-2"), "-3", CORES),
        (costs(pod="-1"), None, "cpu"),
        (costs(pod="1", container="-1"), None, "cpu"),
    ],
)
def test_an_amount_below_zero_is_an_error_and_not_room_on_the_node(
    resource: NodeAllocatableResource, consumed: str | None, names: str
) -> None:
    held = result("a", None if consumed is None else {CORES: consumed})
    demand = demand_of([here(counting("a", cpu=resource))], (claim("c"), holding(held)))

    assert isinstance(demand, Status)
    assert demand.code is Code.ERROR
    assert names in demand.message


def test_a_device_that_is_gone_is_an_error_only_beside_one_that_counts() -> None:
    slices = [here(counting("a", cpu=mapped(each="2")))]

    beside = demand_of(slices, (claim("c"), holding(result("a"), result("gone"))))
    alone = demand_of(slices, (claim("c"), holding(result("gone"))))

    assert isinstance(beside, Status)
    assert alone == ()


@pytest.mark.parametrize(
    ("more", "is_here"),
    [
        ({}, True),
        ({"node": "n2"}, False),
        ({"node": None, "all_nodes": True}, True),
        ({"node": None, "selector": only_node("n1")}, True),
        ({"node": None, "selector": only_node("n2")}, False),
        ({"node": None, "per_device": True}, False),
    ],
)
def test_devices_of_other_nodes_count_nothing_here(more: dict[str, Any], *, is_here: bool) -> None:
    slices = [here(counting("a", cpu=mapped(each="2")), **more)]

    assert bool(demand_of(slices, (claim("c"), holding(result("a"))))) is is_here


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_device_with_a_node_of_its_own_counts_there(node: str) -> None:
    card = msgspec.structs.replace(counting("a", cpu=mapped(each="2")), node_name=node)

    demand = demand_of([here(card, node=None, per_device=True)], (claim("c"), holding(result("a"))))

    assert bool(demand) is (node == "n1")


def test_the_newest_generation_tells_what_a_device_counts() -> None:
    old, new = (
        resource_slice(
            f"s{generation}",
            counting("a", cpu=mapped(each=str(generation))),
            node="n1",
            pool="n1",
            generation=generation,
        )
        for generation in (1, 2)
    )

    demand = demand_of([old, new], (claim("c"), holding(result("a"))))

    assert written(demand) == [{"claim": "c", "cpu": "2"}]


# --- does it fit ------------------------------------------------------------------------------------------------------


def entry(
    mapping: dict[str, str] | None = None,
    overhead: dict[str, tuple[str | None, str | None]] | None = None,
    containers: tuple[str, ...] = ("main",),
) -> NodeAllocatableResourceClaimStatus:
    body = {
        "resourceClaimName": "c",
        "containers": containers,
        "mapping": [{"name": k, "quantity": v} for k, v in (mapping or {}).items()],
        "overhead": [
            {"name": k, **({"perPod": p} if p else {}), **({"perContainer": c} if c else {})}
            for k, (p, c) in (overhead or {}).items()
        ],
    }
    return msgspec.convert(body, NodeAllocatableResourceClaimStatus, dec_hook=dec_hook)


X, U = Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.UNSCHEDULABLE


@dataclass(frozen=True, kw_only=True)
class Fit:
    id: str
    entry: NodeAllocatableResourceClaimStatus
    pod: Pod = field(default_factory=lambda: pod(requests={"cpu": "1", "memory": "1Gi"}))
    running: tuple[Pod, ...] = ()
    want: tuple[Code, str] | None = None


def running(**requests: str) -> tuple[Pod, ...]:
    return (pod("other", requests=requests, node_name="n1"),)


FITS = [
    Fit(id="exactly", entry=entry({"cpu": "7"})),
    Fit(id="larger than the node", entry=entry({"cpu": "7001m"}), want=(X, "Insufficient cpu")),
    Fit(
        id="others are in the way",
        entry=entry({"cpu": "4"}),
        running=running(cpu="3500m"),
        want=(U, "Insufficient cpu"),
    ),
    Fit(id="with others", entry=entry({"cpu": "4"}), running=running(cpu="3")),
    Fit(
        id="cpu is rounded up to thousandths once",
        entry=entry({"cpu": "3999999999n"}, {"cpu": (None, "1n")}),
        running=running(cpu="3"),
    ),
    Fit(
        id="one nano-unit too much",
        entry=entry({"cpu": "4"}, {"cpu": (None, "1n")}),
        running=running(cpu="3"),
        want=(U, "Insufficient cpu"),
    ),
    Fit(
        id="one of two resources is larger than the node",
        entry=entry({"cpu": "5", "memory": "16Gi"}),
        running=running(cpu="3"),
        want=(X, "Insufficient cpu, Insufficient memory"),
    ),
    Fit(
        id="overhead counts once a pod and once a container",
        entry=entry(overhead={"cpu": ("1", "2")}, containers=("a", "b", "c")),
    ),
    Fit(
        id="overhead of four containers",
        entry=entry(overhead={"cpu": ("1", "2")}, containers=("a", "b", "c", "d")),
        want=(X, "Insufficient cpu"),
    ),
    Fit(
        id="a container's overhead without containers",
        entry=entry(overhead={"cpu": ("1", "20")}, containers=()),
    ),
    Fit(
        id="huge pages",
        entry=entry({"hugepages-2Mi": "64Mi"}),
        running=running(**{"hugepages-2Mi": "2Mi"}),
        want=(U, "Insufficient hugepages-2Mi"),
    ),
    Fit(
        id="huge pages of a size the node has not",
        entry=entry({"hugepages-1Gi": "1Gi"}),
        want=(X, "Insufficient hugepages-1Gi"),
    ),
    Fit(
        id="ephemeral storage that the node does not offer",
        entry=entry({"ephemeral-storage": "1"}),
        want=(X, "Insufficient ephemeral-storage"),
    ),
    Fit(
        id="what a pod asks for as a whole stands for its devices too",
        entry=entry({"cpu": "3"}),
        pod=pod(requests={"cpu": "1"}, resources=requirements({"cpu": "4"})),
        running=running(cpu="4"),
    ),
    Fit(
        id="what a pod asks for as a whole must cover its devices",
        entry=entry({"cpu": "3001m"}),
        pod=pod(requests={"cpu": "1"}, resources=requirements({"cpu": "4"})),
        want=(X, "the pod's request for cpu does not cover its containers and devices"),
    ),
    Fit(
        id="what a pod does not ask for as a whole need not cover anything",
        entry=entry({"memory": "2Gi"}),
        pod=pod(requests={"cpu": "1"}, resources=requirements({"cpu": "4"})),
    ),
    Fit(
        id="the overhead of a pod itself comes on top of what it asks for as a whole",
        entry=entry({"cpu": "1"}),
        pod=pod(
            requests={"cpu": "1"},
            resources=requirements({"cpu": "7"}),
            overhead=quantities(cpu="1001m"),
        ),
        want=(X, "Insufficient cpu"),
    ),
    Fit(
        id="a limit of the pod must cover each container and its devices",
        entry=entry({"cpu": "1"}, {"cpu": ("500m", "501m")}),
        pod=pod(
            containers=[Container(name="main", resources=requirements(limits={"cpu": "2"}))],
            resources=requirements(limits={"cpu": "4"}),
        ),
        want=(X, "the pod's limit for cpu does not cover container main and its devices"),
    ),
    Fit(
        id="a limit of the pod need not cover all containers together",
        entry=entry({"cpu": "1"}),
        pod=pod(
            containers=[
                Container(name="main", resources=requirements(limits={"cpu": "3"})),
                Container(name="other", resources=requirements(limits={"cpu": "4"})),
            ],
            resources=requirements(limits={"cpu": "4"}),
        ),
    ),
    Fit(
        id="a limit of huge pages must cover all containers together",
        entry=entry({"hugepages-2Mi": "2Mi"}),
        pod=pod(
            containers=[
                Container(
                    name="main",
                    resources=ResourceRequirements(limits=quantities(**{"hugepages-2Mi": "2Mi"})),
                ),
            ],
            resources=requirements(limits={"hugepages-2Mi": "3Mi"}),
        ),
        want=(X, "the pod's limit for hugepages-2Mi does not cover its containers and devices"),
    ),
]


@pytest.mark.parametrize("case", FITS, ids=lambda case: case.id)
def test_a_pod_with_its_devices_fits_or_not(case: Fit) -> None:
    status = node_allocatable.check(case.pod, (case.entry,), node_info(NODE, case.running))

    assert (None if status is None else (status.code, status.message)) == case.want


def test_a_pod_whose_devices_count_nothing_is_not_looked_at() -> None:
    huge = pod(requests={"cpu": "1000"})

    assert node_allocatable.check(huge, (), node_info(NODE)) is None


def test_a_node_that_does_not_say_what_it_has_has_nothing() -> None:
    silent = node_info(node_object("n1", silent=True))
    status = node_allocatable.check(pod(), (entry({"cpu": "1"}),), silent)

    assert status is not None
    assert (status.code, status.message) == (X, "Insufficient cpu")


def test_a_node_of_unknown_size_has_room() -> None:
    unlimited = node_info(node_object("n1", silent=True), unlimited=True)

    assert node_allocatable.check(pod(), (entry({"cpu": "1000"}),), unlimited) is None


@pytest.mark.parametrize(
    ("card", "is_mapped"),
    [
        (device("a"), False),
        (counting("a", memory=costs("1Gi")), False),
        (counting("a", memory=costs("1Gi"), cpu=mapped(each="1")), True),
        (counting("other", cpu=mapped(each="1")), False),
    ],
)
def test_a_claim_stands_for_a_resource_if_one_of_its_devices_does(
    card: Device, *, is_mapped: bool
) -> None:
    device_of = node_allocatable.devices_anywhere(SliceIndex.build([here(card, node="n2")]))

    assert node_allocatable.is_mapped(holding(result("a")), device_of) is is_mapped
