"""Predicates and scorers other than devices: tables of one node and one pod."""

from dataclasses import dataclass

import pytest

from allocator.model.nodes import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from allocator.outcome import ReasonKind
from scheduler import cycle
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.environment import Mode
from scheduler.framework.status import Code
from scheduler.model import (
    Affinity,
    NodeAffinity,
    NodeInfo,
    Pod,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
)
from scheduler.plugins import PROFILES, node_affinity, node_resources, taint_toleration
from tests.pods import container, node_info, node_object, pod, port
from tests.scheduler.world import World, environment

OK = (Code.SUCCESS, None)
X = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
U = Code.UNSCHEDULABLE


def state_of(waiting: Pod) -> CycleState:
    state = cycle.pre_filter(waiting, World().cache, environment())
    assert isinstance(state, CycleState), state
    return state


@dataclass(frozen=True, kw_only=True)
class Case:
    id: str
    pod: Pod
    node: NodeInfo
    want: tuple[Code, ReasonKind | None] = OK


def tainted(*taints: Taint, unschedulable: bool = False) -> NodeInfo:
    return node_info(node_object(taints=taints, unschedulable=unschedulable))


def requires(*terms: NodeSelectorTerm) -> Affinity:
    selector = NodeSelector(node_selector_terms=terms)
    return Affinity(
        node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector)
    )


def term(
    *expressions: tuple[str, ...], fields: tuple[tuple[str, ...], ...] = ()
) -> NodeSelectorTerm:
    def requirements(
        parts: tuple[tuple[str, ...], ...],
    ) -> tuple[NodeSelectorRequirement, ...] | None:
        return (
            tuple(
                NodeSelectorRequirement(key=key, operator=operator, values=tuple(values))
                for key, operator, *values in parts
            )
            or None
        )

    return NodeSelectorTerm(
        match_expressions=requirements(expressions), match_fields=requirements(fields)
    )


def labeled(**labels: str) -> NodeInfo:
    return node_info(node_object("n1", labels=labels))


NO_SCHEDULE = Taint(key="a", value="1", effect="NoSchedule")
NO_EXECUTE = Taint(key="a", value="1", effect="NoExecute")
SOFT = Taint(key="a", value="1", effect="PreferNoSchedule")
TAINTED = (X, ReasonKind.NODE_TAINTED)
MISMATCH = (X, ReasonKind.NODE_AFFINITY_MISMATCH)
CORDONED = (X, ReasonKind.NODE_UNSCHEDULABLE)

TAINTS = [
    Case(id="taint not tolerated", pod=pod(), node=tainted(NO_SCHEDULE), want=TAINTED),
    Case(id="NoExecute keeps away, too", pod=pod(), node=tainted(NO_EXECUTE), want=TAINTED),
    Case(id="PreferNoSchedule does not", pod=pod(), node=tainted(SOFT)),
    Case(
        id="equal key and value, empty operator and effect",
        pod=pod(tolerations=[Toleration(key="a", value="1")]),
        node=tainted(NO_SCHEDULE),
    ),
    Case(
        id="another value",
        pod=pod(tolerations=[Toleration(key="a", value="2", operator="Equal")]),
        node=tainted(NO_SCHEDULE),
        want=TAINTED,
    ),
    Case(
        id="another effect",
        pod=pod(tolerations=[Toleration(key="a", value="1", effect="NoExecute")]),
        node=tainted(NO_SCHEDULE),
        want=TAINTED,
    ),
    Case(
        id="Exists ignores the value",
        pod=pod(tolerations=[Toleration(key="a", operator="Exists")]),
        node=tainted(NO_SCHEDULE),
    ),
    Case(
        id="Exists without key tolerates everything",
        pod=pod(tolerations=[Toleration(operator="Exists")]),
        node=tainted(NO_SCHEDULE, NO_EXECUTE),
    ),
    Case(
        id="an empty key with Equal tolerates nothing",
        pod=pod(tolerations=[Toleration(operator="Equal", value="1")]),
        node=tainted(NO_SCHEDULE),
        want=TAINTED,
    ),
    Case(
        id="Gt is behind an alpha gate",
        pod=pod(tolerations=[Toleration(key="a", operator="Gt", value="0")]),
        node=tainted(NO_SCHEDULE),
        want=TAINTED,
    ),
    Case(
        id="every taint must be tolerated",
        pod=pod(tolerations=[Toleration(key="a", operator="Exists")]),
        node=tainted(NO_SCHEDULE, Taint(key="b", effect="NoSchedule")),
        want=TAINTED,
    ),
    Case(id="cordoned", pod=pod(), node=tainted(unschedulable=True), want=CORDONED),
    Case(
        id="cordon tolerated",
        pod=pod(
            tolerations=[
                Toleration(
                    key="node.kubernetes.io/unschedulable", operator="Exists", effect="NoSchedule"
                )
            ]
        ),
        node=tainted(unschedulable=True),
    ),
]

AFFINITY = [
    Case(id="selector matches", pod=pod(node_selector={"a": "1"}), node=labeled(a="1", b="2")),
    Case(
        id="selector wants all labels",
        pod=pod(node_selector={"a": "1", "b": "3"}),
        node=labeled(a="1", b="2"),
        want=MISMATCH,
    ),
    Case(
        id="terms are alternatives",
        pod=pod(affinity=requires(term(("a", "In", "9")), term(("a", "In", "1")))),
        node=labeled(a="1"),
    ),
    Case(
        id="expressions of a term all count",
        pod=pod(affinity=requires(term(("a", "In", "1"), ("b", "Exists")))),
        node=labeled(a="1"),
        want=MISMATCH,
    ),
    Case(
        id="selector and affinity both count",
        pod=pod(node_selector={"a": "2"}, affinity=requires(term(("a", "Exists")))),
        node=labeled(a="1"),
        want=MISMATCH,
    ),
    Case(
        id="an empty term matches nothing",
        pod=pod(affinity=requires(NodeSelectorTerm())),
        node=labeled(a="1"),
        want=MISMATCH,
    ),
    Case(
        id="zero terms match nothing", pod=pod(affinity=requires()), node=labeled(), want=MISMATCH
    ),
    Case(
        id="NotIn matches a missing label",
        pod=pod(affinity=requires(term(("z", "NotIn", "1")))),
        node=labeled(),
    ),
    Case(
        id="Gt compares numbers",
        pod=pod(affinity=requires(term(("a", "Gt", "9")))),
        node=labeled(a="10"),
    ),
    Case(
        id="Lt of no number",
        pod=pod(affinity=requires(term(("a", "Lt", "9")))),
        node=labeled(a="x"),
        want=MISMATCH,
    ),
    Case(
        id="a field names the node",
        pod=pod(affinity=requires(term(fields=(("metadata.name", "In", "n1"),)))),
        node=labeled(),
    ),
    Case(
        id="a field names another node",
        pod=pod(affinity=requires(term(fields=(("metadata.name", "In", "n2"),)))),
        node=labeled(),
        want=MISMATCH,
    ),
    Case(
        id="a term that makes no sense leaves the others",
        pod=pod(affinity=requires(term(("a", "Gt", "x")), term(("a", "In", "1")))),
        node=labeled(a="1"),
    ),
    Case(
        id="a term that makes no sense does not match",
        pod=pod(affinity=requires(term(("a", "Gt", "x")))),
        node=labeled(a="1"),
        want=MISMATCH,
    ),
    Case(id="nodeName of another node", pod=pod(node_name="n9"), node=labeled(), want=MISMATCH),
    Case(id="nodeName of this node", pod=pod(node_name="n1"), node=labeled()),
]


def using(*ports_: tuple[int, str, str]) -> NodeInfo:
    ports = [port(number, ip=ip, protocol=protocol) for number, ip, protocol in ports_]
    return node_info(pods=[pod("other", containers=[container(ports=ports)])])


def wanting(number: int, ip: str = "", protocol: str = "TCP") -> Pod:
    return pod(containers=[container(ports=[port(number, ip=ip, protocol=protocol)])])


CONFLICT = (U, ReasonKind.PORT_CONFLICT)
PORTS = [
    Case(id="port taken", pod=wanting(80), node=using((80, "", "TCP")), want=CONFLICT),
    Case(id="another port", pod=wanting(81), node=using((80, "", "TCP"))),
    Case(id="another protocol", pod=wanting(80, protocol="UDP"), node=using((80, "", "TCP"))),
    Case(id="another address", pod=wanting(80, "10.0.0.1"), node=using((80, "10.0.0.2", "TCP"))),
    Case(
        id="any address against one",
        pod=wanting(80),
        node=using((80, "10.0.0.2", "TCP")),
        want=CONFLICT,
    ),
    Case(
        id="one address against any",
        pod=wanting(80, "10.0.0.1"),
        node=using((80, "0.0.0.0", "TCP")),
        want=CONFLICT,
    ),
]


def offering(used: dict[str, str] | None = None, pods: int = 0, **allocatable: str) -> NodeInfo:
    running = [pod("user", requests=used)] if used is not None else []
    running += [pod(f"idle-{number}") for number in range(pods)]
    offered = {"pods": "3", **allocatable}
    return node_info(node_object(allocatable=offered), running)


SHORT_U = (U, ReasonKind.INSUFFICIENT_RESOURCES)
SHORT_X = (X, ReasonKind.INSUFFICIENT_RESOURCES)
RESOURCES = [
    Case(id="exactly enough", pod=pod(requests={"cpu": "1"}), node=offering({"cpu": "1"}, cpu="2")),
    Case(
        id="a thousandth too little",
        pod=pod(requests={"cpu": "1001m"}),
        node=offering({"cpu": "1"}, cpu="2"),
        want=SHORT_U,
    ),
    Case(
        id="more than the node has at all",
        pod=pod(requests={"cpu": "3"}),
        node=offering({"cpu": "1"}, cpu="2"),
        want=SHORT_X,
    ),
    Case(
        id="one of two shortages cannot be helped",
        pod=pod(requests={"cpu": "2", "memory": "9Gi"}),
        node=offering({"cpu": "1"}, cpu="2", memory="1Gi"),
        want=SHORT_X,
    ),
    Case(
        id="a resource the node does not have",
        pod=pod(requests={"example.com/gpu": "1"}),
        node=offering(cpu="2"),
        want=SHORT_X,
    ),
    Case(
        id="zero of a resource the node does not have",
        pod=pod(requests={"example.com/gpu": "0"}),
        node=offering(cpu="2"),
    ),
    Case(
        id="too many pods, though nothing is requested",
        pod=pod(),
        node=offering(pods=3),
        want=SHORT_U,
    ),
    Case(id="one more pod", pod=pod(), node=offering(pods=2)),
    Case(
        id="hugepages short",
        pod=pod(requests={"hugepages-2Mi": "4Mi"}),
        node=node_info(node_object(allocatable={"hugepages-2Mi": "2Mi", "pods": "1"})),
        want=SHORT_X,
    ),
    Case(
        id="a node that does not say what it has, has nothing",
        pod=pod(requests={"cpu": "1"}),
        node=node_info(node_object(silent=True)),
        want=SHORT_X,
    ),
    Case(
        id="not even for a pod that asks for nothing",
        pod=pod(),
        node=node_info(node_object(silent=True)),
        want=SHORT_U,
    ),
    Case(
        id="nor does one that does not say how many pods it takes",
        pod=pod(),
        node=node_info(node_object(allocatable={"cpu": "8", "memory": "8Gi"})),
        want=SHORT_U,
    ),
    Case(
        id="nor one that says something else only",
        pod=pod(requests={"cpu": "1"}),
        node=node_info(node_object(allocatable={"pods": "8"})),
        want=SHORT_X,
    ),
    Case(
        id="in a manifest it has whatever is asked for",
        pod=pod(requests={"cpu": "1000"}),
        node=node_info(node_object(silent=True), unlimited=True),
    ),
    Case(
        id="less than no cpu",
        pod=pod(requests={"cpu": "1m"}),
        node=node_info(node_object(allocatable={"cpu": "-1", "pods": "8"})),
        want=SHORT_X,
    ),
    Case(
        id="less than no cpu, for a pod that asks for none",
        pod=pod(requests={"cpu": "0"}),
        node=node_info(node_object(allocatable={"cpu": "-1", "pods": "8"})),
    ),
    Case(
        id="room for less than no pods",
        pod=pod(),
        node=node_info(node_object(allocatable={"cpu": "8", "pods": "-3"})),
        want=SHORT_U,
    ),
    Case(
        id="a request below zero asks for nothing, on a node that has less than nothing left",
        pod=pod(requests={"cpu": "-1"}),
        node=offering({"cpu": "3"}, cpu="2"),
    ),
    Case(
        id="and makes no room for the other containers",
        pod=pod(containers=[container("a", {"cpu": "-4"}), container("b", {"cpu": "3"})]),
        node=offering(cpu="2"),
        want=SHORT_X,
    ),
]


@pytest.mark.parametrize("case", TAINTS + AFFINITY + PORTS + RESOURCES, ids=lambda case: case.id)
def test_predicates(case: Case) -> None:
    verdict = cycle.filter_node(state_of(case.pod), case.node)

    reason = verdict.status.reason
    assert (verdict.status.code, None if reason is None else reason.kind) == case.want


def test_the_text_names_every_resource_that_is_short_in_order() -> None:
    hungry = pod(requests={"memory": "9Gi", "cpu": "9", "example.com/gpu": "1"})

    verdict = cycle.filter_node(state_of(hungry), offering(pods=3, cpu="1", memory="1Gi"))

    assert (
        verdict.status.message
        == "Insufficient cpu, Insufficient example.com/gpu, Insufficient memory, Too many pods"
    )


def test_a_gated_pod_is_refused_before_any_node() -> None:
    status = cycle.pre_filter(pod(gates=["b", "a"]), World().cache, environment())

    assert not isinstance(status, CycleState)
    assert status.message == "waiting for scheduling gates: [b a]"


def test_taint_score_counts_what_is_not_tolerated() -> None:
    other = Taint(key="b", effect="PreferNoSchedule")
    tolerating = pod(tolerations=[Toleration(key="a", operator="Exists", effect="NoSchedule")])
    soft = pod(tolerations=[Toleration(key="a", operator="Exists")])
    node = tainted(SOFT, other, NO_SCHEDULE)

    assert taint_toleration.score_node(state_of(pod()).info, node) == 2
    assert taint_toleration.score_node(state_of(tolerating).info, node) == 2
    assert taint_toleration.score_node(state_of(soft).info, node) == 1


def test_affinity_score_sums_the_weights_of_matching_terms() -> None:
    preferred = (
        PreferredSchedulingTerm(weight=5, preference=term(("a", "Exists"))),
        PreferredSchedulingTerm(weight=7, preference=term(("b", "Exists"))),
        PreferredSchedulingTerm(weight=9, preference=term(("z", "Exists"))),
        PreferredSchedulingTerm(weight=11, preference=NodeSelectorTerm()),
    )
    affinity = Affinity(
        node_affinity=NodeAffinity(preferred_during_scheduling_ignored_during_execution=preferred)
    )

    assert (
        node_affinity.score_node(state_of(pod(affinity=affinity)).info, labeled(a="1", b="1")) == 12
    )


def test_scores_are_weighed_as_upstream_does_by_default() -> None:
    """devices 2, taints 3, affinity 2, resources 1: each after it is scaled, so that the best node has 100."""
    raw = {
        "tainted": (0, 2, 0, 0),
        "plain": (0, 0, 0, 0),
        "liked": (0, 0, 7, 0),
        "devices": (9, 0, 0, 0),
        "empty": (0, 0, 0, 100),
    }
    weighed = PROFILES[Mode.STANDALONE].weigh(raw.values())
    assert {name: weighed[scores] for name, scores in raw.items()} == {
        "tainted": 0,
        "plain": 300,
        "liked": 500,
        "devices": 500,
        "empty": 400,
    }


def test_resource_score_is_the_mean_share_left() -> None:
    node = node_info(
        node_object(allocatable={"cpu": "4", "memory": "1000Mi", "pods": "9"}),
        [pod("user", requests={"cpu": "1", "memory": "0"})],
    )

    assert node_resources.score_node(state_of(pod()).info, node_info(node_object(silent=True))) == 0
    # cpu: 4000 - 1000 - 1000 of 4000; memory: 1000 - 0 - 200 (a container that asks for none) of 1000
    assert (
        node_resources.score_node(state_of(pod(requests={"cpu": "1"})).info, node) == (50 + 80) // 2
    )
