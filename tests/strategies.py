"""Hypothesis strategies for small clusters: few names and values, so that ties and conflicts are common."""

from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import strategies as st

from allocator.model.claims import DeviceRequest, DeviceRequestAllocationResult, ResourceClaim
from allocator.model.devices import Device, ResourceSlice
from allocator.model.nodes import NodeSelector
from allocator.snapshot import Snapshot
from scheduler.model import (
    Affinity,
    Container,
    NodeAffinity,
    NodeInfo,
    Pod,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
)
from tests import pods as pods_of
from tests.builders import (
    GPU_DRIVER,
    NIC_DRIVER,
    claim,
    consumes,
    counter_set,
    device,
    device_class,
    distinct,
    first_available,
    match,
    node_selector,
    request,
    resource_slice,
    snapshot,
    sub_request,
    taint,
    toleration,
    used,
)

ATTRIBUTE = f"{GPU_DRIVER}/card"
COUNTERS = counter_set("set", memory=4)
SELECTORS = (
    f"device.driver == '{GPU_DRIVER}'",
    f"device.attributes['{GPU_DRIVER}'].?card.orValue(0) == 1",
    f"device.attributes['{GPU_DRIVER}'].?card.orValue(0) >= 1",
    "device.allowMultipleAllocations",
)
CLASSES = (
    device_class("gpu"),
    device_class("card", SELECTORS[2]),
)


@dataclass(frozen=True)
class Cluster:
    """What one example is about; slices are kept so that a property may put them in another order."""

    slices: tuple[ResourceSlice, ...]
    in_use: tuple[DeviceRequestAllocationResult, ...]

    def snapshot(self, *slices: ResourceSlice) -> Snapshot:
        """The cluster, or the same with its slices in another order."""
        return snapshot(*(slices or self.slices), classes=CLASSES, in_use=self.in_use)


@st.composite
def devices(draw: st.DrawFn, name: str, *, partitioned: bool) -> Device:
    """A device that may be shareable, a partition, tainted, large or small."""
    shareable = draw(st.sampled_from([None, None, True]))
    return device(
        name,
        card=draw(st.sampled_from([0, 1, 2])),
        shareable=shareable,
        capacity=draw(st.sampled_from([None, {"memory": 2}, {"memory": 4}])),
        consumes=[consumes("set", memory=draw(st.sampled_from([1, 2, 4])))]
        if partitioned and draw(st.booleans())
        else None,
        taints=draw(st.sampled_from([None, None, None, [taint("sick")]])),
    )


@st.composite
def pools(draw: st.DrawFn, name: str, most_devices: int) -> list[ResourceSlice]:
    """A complete pool, maybe in two slices, maybe with counters in a slice of their own."""
    number = draw(st.integers(1, most_devices))
    partitioned = draw(st.booleans())
    cards = [draw(devices(f"{name}-{index}", partitioned=partitioned)) for index in range(number)]
    cut = draw(st.integers(0, number))
    groups = [group for group in (cards[:cut], cards[cut:]) if group]
    where: dict[str, Any] = draw(
        st.sampled_from(
            [{}, {"all_nodes": True}, {"selector": node_selector(labels={"zone": "a"})}]
        )
    )
    driver = draw(st.sampled_from([GPU_DRIVER, GPU_DRIVER, NIC_DRIVER]))
    common: dict[str, Any] = {"pool": name, "driver": driver, "count": len(groups) + partitioned}
    slices = [
        resource_slice(f"{name}-s{index}", *group, **common, **where)
        for index, group in enumerate(groups)
    ]
    if partitioned:
        slices.append(resource_slice(f"{name}-counters", counters=[COUNTERS], **common, **where))
    return slices


@st.composite
def clusters(draw: st.DrawFn, most_pools: int = 2, most_devices: int = 3) -> Cluster:
    """Pools for one node, with some of their devices in use."""
    names = [f"pool-{index}" for index in range(draw(st.integers(1, most_pools)))]
    slices = [one for name in names for one in draw(pools(name, most_devices))]
    in_use = []
    for one in slices:
        for card in one.spec.devices or ():
            if draw(st.sampled_from([False, False, False, True])):
                shared = card.allow_multiple_allocations
                amounts = {"memory": 1} if shared and card.capacity else None
                in_use.append(
                    used(
                        card.name,
                        pool=one.spec.pool.name,
                        driver=one.spec.driver,
                        share="there-before" if shared else None,
                        consumed=amounts,
                    )
                )
    return Cluster(tuple(slices), tuple(in_use))


@st.composite
def requests(draw: st.DrawFn, name: str, *, odd: bool = True) -> DeviceRequest:
    """A request; `odd` also draws admin access and mode All."""
    chosen = draw(st.sampled_from(["exactly", "exactly", "first available", "all", "admin"]))
    if chosen == "first available":
        alternatives = [
            sub_request(
                f"s{index}",
                *draw(st.sampled_from([(), (SELECTORS[1],), (SELECTORS[0],)])),
                device_class=draw(st.sampled_from(["gpu", "card"])),
                count=draw(st.sampled_from([1, 2])),
            )
            for index in range(2)
        ]
        return first_available(name, *alternatives)
    return request(
        name,
        *draw(st.sampled_from([(), (), (SELECTORS[0],), (SELECTORS[1],), (SELECTORS[3],)])),
        device_class=draw(st.sampled_from(["gpu", "card"])),
        count=draw(st.sampled_from([1, 1, 2])),
        all_devices=odd and chosen == "all",
        admin=True if odd and chosen == "admin" else None,
        tolerations=draw(st.sampled_from([None, [toleration("sick", operator="Exists")]])),
        capacity=draw(st.sampled_from([None, None, {"memory": 1}, {"memory": 3}])),
    )


@st.composite
def claims(draw: st.DrawFn, *, most: int = 2, odd: bool = True) -> tuple[ResourceClaim, ...]:
    """The claims of a pod, each with one or two requests and maybe a constraint."""
    made = []
    for index in range(draw(st.integers(1, most))):
        parts = [draw(requests(f"r{n}", odd=odd)) for n in range(draw(st.integers(1, 2)))]
        everything = any(part.exactly and part.exactly.allocation_mode == "All" for part in parts)
        # A constraint that blocks "all" ends the attempt: another matter, with tests of its own.
        wanted = [] if everything else [None, match(ATTRIBUTE), distinct(ATTRIBUTE)]
        constraint = draw(st.sampled_from(wanted)) if wanted else None
        made.append(claim(f"c{index}", *parts, *([constraint] if constraint else [])))
    return tuple(made)


# --- pods and nodes as predicates see them

EFFECTS = ("NoSchedule", "PreferNoSchedule", "")
AMOUNTS = st.dictionaries(
    st.sampled_from(("cpu", "memory", "example.com/gpu", "hugepages-2Mi")),
    st.sampled_from(("1", "2", "300m")),
)
ZONES = st.sampled_from(("z1", "z2"))
PORTS = st.builds(pods_of.port, st.sampled_from((80, 81)), ip=st.sampled_from(("", "10.0.0.1")))


def _terms(zone: str) -> NodeSelector:
    return node_selector(labels={"zone": zone})


def _preferred(zone: str) -> tuple[PreferredSchedulingTerm, ...]:
    terms = _terms(zone).node_selector_terms or ()
    return tuple(PreferredSchedulingTerm(weight=3, preference=each) for each in terms)


AFFINITIES = st.builds(
    Affinity,
    node_affinity=st.none()
    | st.builds(
        NodeAffinity,
        required_during_scheduling_ignored_during_execution=st.none() | ZONES.map(_terms),
        preferred_during_scheduling_ignored_during_execution=st.none() | ZONES.map(_preferred),
    ),
)


def _container(
    name: str, requests: dict[str, str], limits: dict[str, str], **fields: Any
) -> Container:
    made = pods_of.container(name, **fields)
    return msgspec.structs.replace(made, resources=pods_of.requirements(requests, limits))


CONTAINERS = st.builds(
    _container,
    st.sampled_from(("main", "side")),
    AMOUNTS,
    AMOUNTS,
    sidecar=st.booleans(),
    ports=st.lists(PORTS, max_size=2),
)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """A pod without claims."""
    level = draw(st.none() | st.builds(pods_of.requirements, AMOUNTS, AMOUNTS))
    return pods_of.pod(
        labels=draw(st.sampled_from((None, {"app": "x"}))),
        node_name=draw(st.sampled_from(("", "", "n1", "n2"))),
        node_selector=draw(st.none() | st.builds(lambda zone: {"zone": zone}, ZONES)),
        affinity=draw(st.none() | AFFINITIES),
        tolerations=draw(
            st.lists(
                st.builds(
                    Toleration,
                    key=st.sampled_from(("a", "node.kubernetes.io/unschedulable")),
                    operator=st.sampled_from(("Exists", "Equal")),
                    effect=st.sampled_from(EFFECTS),
                ),
                max_size=2,
            )
        ),
        containers=draw(st.lists(CONTAINERS, min_size=1, max_size=2)),
        init_containers=draw(st.lists(CONTAINERS, max_size=1)),
        overhead=draw(st.none() | AMOUNTS.map(lambda some: pods_of.quantities(**some))),
        resources=level,
        priority=draw(st.none() | st.integers(0, 3)),
    )


@st.composite
def nodes(draw: st.DrawFn) -> NodeInfo:
    """A node, perhaps with a pod."""
    made = pods_of.node_object(
        draw(st.sampled_from(("n1", "n2"))),
        labels=draw(st.sampled_from(({}, {"zone": "z1"}, {"zone": "z2"}))),
        taints=draw(
            st.lists(
                st.builds(Taint, key=st.just("a"), effect=st.sampled_from(EFFECTS)), max_size=2
            )
        ),
        unschedulable=draw(st.booleans()),
        allocatable={"cpu": "2", "memory": "8", "pods": draw(st.sampled_from(("1", "9")))},
        silent=draw(st.booleans()),
    )
    running = draw(st.lists(pods(), max_size=1))
    return pods_of.node_info(made, running, unlimited=draw(st.booleans()))
