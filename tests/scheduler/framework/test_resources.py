"""What pods request: tables against the rules of KEP-753 (sidecars), 1287 (resize) and 2837 (pod-level resources)."""

from dataclasses import dataclass, field

import msgspec
import pytest

from allocator.quantity import Quantity
from scheduler.framework.resources import (
    allocatable,
    assigned_pod_requests,
    claim_resources,
    host_ports,
    is_extended,
    pod_requests,
    scoring_requests,
)
from scheduler.model import (
    ContainerStatus,
    HostPort,
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
    Pod,
    PodCondition,
    PodStatus,
    ResourceRequirements,
)
from tests.pods import container, node_object, pod, port, quantities, requirements

MI = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Case:
    id: str
    pod: Pod
    want: dict[str, int] = field(default_factory=dict)


def resized(spec: str, *, allocated: str | None, actual: str | None, reason: str = "") -> Pod:
    conditions = (PodCondition(type="PodResizePending", status="True", reason=reason),)
    return pod(
        requests={"cpu": spec},
        node_name="n1",
        status=PodStatus(
            phase="Running",
            conditions=conditions if reason else None,
            container_statuses=(
                ContainerStatus(
                    name="main",
                    allocated_resources=None if allocated is None else quantities(cpu=allocated),
                    resources=None if actual is None else requirements({"cpu": actual}),
                ),
            ),
        ),
    )


PENDING = [
    Case(id="nothing requested", pod=pod(), want={}),
    Case(
        id="containers add up and cpu is rounded up once, after summing",
        pod=pod(containers=[container("a", {"cpu": "1500u"}), container("b", {"cpu": "1500u"})]),
        want={"cpu": 3},
    ),
    Case(
        id="memory is rounded up to bytes",
        pod=pod(requests={"memory": "1500m"}),
        want={"memory": 2},
    ),
    Case(
        id="the largest ordinary init container wins over less",
        pod=pod(
            containers=[container("a", {"cpu": "1"})],
            init_containers=[container("i", {"cpu": "3"}), container("j", {"cpu": "2"})],
        ),
        want={"cpu": 3000},
    ),
    Case(
        id="a sidecar runs beside containers",
        pod=pod(
            containers=[container("a", {"cpu": "1"})],
            init_containers=[container("s", {"cpu": "2"}, sidecar=True)],
        ),
        want={"cpu": 3000},
    ),
    Case(
        id="an init container counts the sidecars started before it, not those after",
        pod=pod(
            containers=[container("a", {"cpu": "1"})],
            init_containers=[
                container("s", {"cpu": "1"}, sidecar=True),
                container("i", {"cpu": "5"}),
                container("t", {"cpu": "1"}, sidecar=True),
            ],
        ),
        want={"cpu": 6000},
    ),
    Case(
        id="pod-level cpu, memory and hugepages replace, other resources stay summed",
        pod=pod(
            containers=[
                container("a", {"cpu": "1", "ephemeral-storage": "1Ki", "hugepages-2Mi": "4Mi"})
            ],
            resources=requirements(
                {"cpu": "500m", "hugepages-2Mi": "2Mi", "ephemeral-storage": "9Ki"}
            ),
        ),
        want={"cpu": 500, "ephemeral-storage": 1024, "hugepages-2Mi": 2 * MI},
    ),
    Case(
        id="overhead comes on top, also of pod-level requests",
        pod=pod(
            requests={"cpu": "1"},
            resources=requirements({"cpu": "2"}),
            overhead=quantities(cpu="250m", memory="1Mi"),
        ),
        want={"cpu": 2250, "memory": MI},
    ),
    Case(
        id="extended resources are summed, names nobody compares are left out",
        pod=pod(
            containers=[
                container("a", {"example.com/gpu": "1", "storage": "1"}),
                container("b", {"example.com/gpu": "2"}),
            ]
        ),
        want={"example.com/gpu": 3},
    ),
    Case(id="an explicit zero stays", pod=pod(requests={"cpu": "0"}), want={"cpu": 0}),
    Case(
        id="status of a pending pod does not count",
        pod=resized("1", allocated="7", actual="8"),
        want={"cpu": 1000},
    ),
]

ASSIGNED = [
    Case(
        id="no status: the spec", pod=pod(requests={"cpu": "1"}, node_name="n"), want={"cpu": 1000}
    ),
    Case(
        id="allocated above the spec",
        pod=resized("1", allocated="3", actual="2"),
        want={"cpu": 3000},
    ),
    Case(id="actual above all", pod=resized("1", allocated="2", actual="4"), want={"cpu": 4000}),
    Case(id="spec above all", pod=resized("5", allocated="2", actual="4"), want={"cpu": 5000}),
    Case(
        id="an infeasible resize leaves the spec out",
        pod=resized("9", allocated="2", actual="1", reason="Infeasible"),
        want={"cpu": 2000},
    ),
    Case(
        id="a deferred resize still counts the spec",
        pod=resized("9", allocated="2", actual="1", reason="Deferred"),
        want={"cpu": 9000},
    ),
    Case(
        id="an infeasible resize without any status of the container counts nothing",
        pod=resized("9", allocated=None, actual=None, reason="Infeasible"),
        want={},
    ),
    Case(
        id="a container without actual resources counts what it was allocated",
        pod=resized("1", allocated="3", actual=None),
        want={"cpu": 3000},
    ),
    Case(
        id="overhead comes on top of what a running pod has",
        pod=pod(
            requests={"cpu": "1"},
            overhead=quantities(cpu="250m", memory="1Mi"),
            node_name="n1",
            status=PodStatus(
                container_statuses=(
                    ContainerStatus(name="main", allocated_resources=quantities(cpu="3")),
                ),
            ),
        ),
        want={"cpu": 3250, "memory": MI},
    ),
    Case(
        id="and of what a resized pod has as a whole",
        pod=pod(
            requests={"cpu": "1"},
            resources=requirements({"cpu": "2"}),
            overhead=quantities(cpu="250m"),
            node_name="n1",
            status=PodStatus(
                allocated_resources=quantities(cpu="4"),
                resources=ResourceRequirements(requests=quantities(cpu="3")),
            ),
        ),
        want={"cpu": 4250},
    ),
    Case(
        id="pod-level status takes the place of the containers' status",
        pod=pod(
            requests={"cpu": "1"},
            node_name="n1",
            status=PodStatus(
                container_statuses=(
                    ContainerStatus(name="main", allocated_resources=quantities(cpu="9")),
                ),
                allocated_resources=quantities(cpu="2"),
                resources=ResourceRequirements(requests=quantities(cpu="3")),
            ),
        ),
        want={"cpu": 3000},
    ),
    Case(
        id="pod-level requests that are being resized count the most of spec, allocated and actual",
        pod=pod(
            requests={"cpu": "1"},
            node_name="n1",
            resources=requirements({"cpu": "2"}),
            status=PodStatus(
                allocated_resources=quantities(cpu="4"),
                resources=ResourceRequirements(requests=quantities(cpu="3")),
            ),
        ),
        want={"cpu": 4000},
    ),
]


# What the API server refuses in a spec may come from a manifest; in a status it stores it.
BELOW_ZERO = [
    Case(
        id="a request",
        pod=pod(requests={"cpu": "-1", "memory": "1Mi"}),
        want={"cpu": 0, "memory": MI},
    ),
    Case(
        id="a container beside another",
        pod=pod(containers=[container("a", {"cpu": "-4"}), container("b", {"cpu": "3"})]),
        want={"cpu": 3000},
    ),
    Case(
        id="a sidecar, and an init container after it",
        pod=pod(
            containers=[container("a", {"cpu": "1"})],
            init_containers=[
                container("s", {"cpu": "-4"}, sidecar=True),
                container("i", {"cpu": "3"}),
            ],
        ),
        want={"cpu": 3000},
    ),
    Case(
        id="overhead",
        pod=pod(requests={"cpu": "1"}, overhead=quantities(cpu="-1")),
        want={"cpu": 1000},
    ),
    Case(
        id="pod level",
        pod=pod(requests={"cpu": "1"}, resources=requirements({"cpu": "-2"})),
        want={"cpu": 0},
    ),
    Case(
        id="what the kubelet has promised and given",
        pod=resized("1", allocated="-2", actual="-3", reason="Infeasible"),
        want={"cpu": 0},
    ),
    Case(
        id="the same with a spec that counts",
        pod=resized("1", allocated="-2", actual="-3"),
        want={"cpu": 1000},
    ),
    Case(
        id="one of two containers, as the kubelet says",
        pod=pod(
            containers=[container("a", {"cpu": "1"}), container("b", {"cpu": "1"})],
            node_name="n1",
            status=PodStatus(
                conditions=(PodCondition(type="PodResizePending", reason="Infeasible"),),
                container_statuses=(
                    ContainerStatus(name="a", allocated_resources=quantities(cpu="-9")),
                    ContainerStatus(name="b", allocated_resources=quantities(cpu="2")),
                ),
            ),
        ),
        want={"cpu": 2000},
    ),
    Case(
        id="the whole pod, as the kubelet says",
        pod=pod(
            requests={"cpu": "1"},
            node_name="n1",
            status=PodStatus(
                conditions=(PodCondition(type="PodResizePending", reason="Infeasible"),),
                allocated_resources=quantities(cpu="-2"),
                resources=requirements({"cpu": "-3"}),
            ),
        ),
        want={"cpu": 0},
    ),
]


@pytest.mark.parametrize("case", BELOW_ZERO, ids=lambda case: case.id)
def test_an_amount_below_zero_counts_nothing(case: Case) -> None:
    assert assigned_pod_requests(case.pod) == case.want


def test_what_devices_count_below_zero_counts_nothing() -> None:
    statuses = (
        NodeAllocatableResourceClaimStatus(
            containers=("a", "b"),
            resources=quantities(cpu="-1", memory="5"),
            mapping=(
                NodeAllocatableMappedResources(name="cpu", quantity=Quantity.parse("-2")),
                NodeAllocatableMappedResources(name="memory", quantity=Quantity.parse("7")),
            ),
            overhead=(
                NodeAllocatableOverheadResources(
                    name="cpu", per_pod=Quantity.parse("3"), per_container=Quantity.parse("-4")
                ),
                NodeAllocatableOverheadResources(name="memory", per_pod=Quantity.parse("-9")),
            ),
        ),
    )
    assert claim_resources(statuses) == {"cpu": 3 * 10**9, "memory": 12 * 10**9}


def test_scoring_counts_nothing_below_zero() -> None:
    assert scoring_requests(pod(requests={"cpu": "-1", "memory": "-1"})) == (0, 0)


def test_a_node_offers_what_its_status_says() -> None:
    assert allocatable(node_object(silent=True)) == {}
    said = node_object(allocatable={"cpu": "1500u", "memory": "1500m", "pods": "3"})
    assert allocatable(said) == {"cpu": 2, "memory": 2, "pods": 3}
    assert allocatable(node_object(allocatable={"cpu": "-1"})) == {"cpu": -1000}


@pytest.mark.parametrize("case", PENDING, ids=lambda case: case.id)
def test_requests_of_a_pending_pod(case: Case) -> None:
    assert pod_requests(case.pod) == case.want


@pytest.mark.parametrize("case", ASSIGNED, ids=lambda case: case.id)
def test_requests_of_an_assigned_pod(case: Case) -> None:
    assert assigned_pod_requests(case.pod) == case.want


def test_containers_without_requests_count_a_little_in_scoring() -> None:
    two = pod(containers=[container("a", {"cpu": "1"}), container("b", {"memory": "1Mi"})])

    assert scoring_requests(two) == (1100, 200 * MI + MI)
    assert scoring_requests(pod(requests={"cpu": "0", "memory": "0"})) == (0, 0)


def test_host_ports_are_those_of_containers_and_sidecars() -> None:
    ports = host_ports(
        pod(
            containers=[container("a", ports=[port(80), port(53, ip="10.0.0.1", protocol="UDP")])],
            init_containers=[
                container("i", ports=[port(81)]),
                container("s", sidecar=True, ports=[port(82)]),
            ],
        )
    )

    assert ports == {
        HostPort(ip="0.0.0.0", protocol="TCP", port=80),
        HostPort(ip="10.0.0.1", protocol="UDP", port=53),
        HostPort(ip="0.0.0.0", protocol="TCP", port=82),
    }


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("example.com/gpu", True),
        ("deviceclass.resource.kubernetes.io/gpu", True),
        ("kubernetes.io/foo", False),
        ("requests.example.com/gpu", False),
        ("cpu", False),
        ("hugepages-2Mi", False),
    ],
)
def test_extended_resource_names(name: str, want: bool) -> None:
    assert is_extended(name) is want


# --- devices that count in resources of the node -------------------------------------------------------------------

OF_CLAIMS = (
    NodeAllocatableResourceClaimStatus(
        resource_claim_name="c",
        containers=("main", "other"),
        mapping=(NodeAllocatableMappedResources(name="cpu", quantity=Quantity.parse("2")),),
        overhead=(
            NodeAllocatableOverheadResources(
                name="memory",
                per_pod=Quantity.parse("10Mi"),
                per_container=Quantity.parse("1Mi"),
            ),
        ),
    ),
)


def counting(made: Pod) -> Pod:
    status = msgspec.structs.replace(
        made.status, node_allocatable_resource_claim_statuses=OF_CLAIMS
    )
    return msgspec.structs.replace(made, status=status)


COUNTING = [
    Case(
        id="what devices count is added",
        pod=pod(requests={"cpu": "1"}),
        want={"cpu": 3000, "memory": 12 * MI},
    ),
    Case(
        id="what a pod asks for as a whole stands for its devices too",
        pod=pod(requests={"cpu": "1"}, resources=requirements({"cpu": "4"})),
        want={"cpu": 4000, "memory": 12 * MI},
    ),
    Case(
        id="promised resources do not have the devices in them",
        pod=resized("1", allocated="2", actual="1"),
        want={"cpu": 4000, "memory": 12 * MI},
    ),
    Case(
        id="actual ones have",
        pod=resized("1", allocated="1", actual="5"),
        want={"cpu": 5000, "memory": 12 * MI},
    ),
    Case(
        id="an infeasible resize",
        pod=resized("9", allocated="1", actual="2", reason="Infeasible"),
        want={"cpu": 3000, "memory": 12 * MI},
    ),
    Case(
        id="the kubelet's word on the whole pod has them in it",
        pod=pod(
            requests={"cpu": "1"},
            node_name="n1",
            status=PodStatus(
                phase="Running",
                allocated_resources=quantities(cpu="3"),
                resources=requirements({"cpu": "3500m"}),
            ),
        ),
        want={"cpu": 3500, "memory": 12 * MI},
    ),
]


@pytest.mark.parametrize("case", COUNTING, ids=lambda case: case.id)
def test_a_pod_on_a_node_counts_what_its_devices_count(case: Case) -> None:
    assert assigned_pod_requests(counting(case.pod), counts_claims=True) == case.want


@pytest.mark.parametrize("case", COUNTING, ids=lambda case: case.id)
def test_without_the_gate_it_does_not(case: Case) -> None:
    assert assigned_pod_requests(counting(case.pod)) == assigned_pod_requests(case.pod)


def test_what_1_36_wrote_of_a_pod_is_counted_too() -> None:
    told = (NodeAllocatableResourceClaimStatus(resources=quantities(cpu="1500m")),)

    assert claim_resources(told) == {"cpu": 1_500_000_000}


def test_a_pending_pod_counts_what_this_attempt_chose_not_what_an_earlier_one_wrote() -> None:
    one = counting(pod(requests={"cpu": "1"}))

    assert pod_requests(one) == {"cpu": 1000}
    assert pod_requests(one, OF_CLAIMS) == {"cpu": 3000, "memory": 12 * MI}
