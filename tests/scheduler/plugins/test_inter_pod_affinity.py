"""Anti-affinity of running pods keeps others away from their domain."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from allocator.outcome import ReasonKind
from scheduler import cycle
from scheduler.engine import Engine, Plan
from scheduler.framework.cycle_state import CycleState, FilterResult
from scheduler.framework.environment import Mode
from scheduler.framework.status import Code
from scheduler.model import Affinity, Pod
from scheduler.plugins.inter_pod_affinity import matches_labels
from tests.pods import node_object, pod
from tests.scheduler.world import World, environment, filtered

ANY: dict[str, Any] = {}


def term(selector: Any, key: str = "zone", **fields: Any) -> dict[str, Any]:
    return {"labelSelector": selector, "topologyKey": key, **fields}


def loner(*terms: dict[str, Any], node_name: str = "a", namespace: str = "default") -> Pod:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return pod(
        "loner",
        namespace=namespace,
        node_name=node_name,
        affinity=Affinity(pod_anti_affinity=required),
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """Nodes a and b are in zone 1, node c in zone 2, node d in none; the loner runs on a."""

    id: str
    loner: Pod
    want: str
    labels: dict[str, str] = field(default_factory=lambda: {"app": "x"})
    namespace: str = "default"


APP_X = {"matchLabels": {"app": "x"}}
CASES = [
    Case(id="the whole domain is closed", loner=loner(term(APP_X)), want="cd"),
    Case(id="the node alone", loner=loner(term(APP_X, "host")), want="bcd"),
    Case(id="other labels", loner=loner(term({"matchLabels": {"app": "y"}})), want="abcd"),
    Case(id="an empty selector means everybody", loner=loner(term(ANY)), want="cd"),
    Case(id="no selector means nobody", loner=loner(term(None)), want="abcd"),
    Case(id="another namespace", loner=loner(term(APP_X)), namespace="other", want="abcd"),
    Case(
        id="a namespace that is named",
        loner=loner(term(APP_X, namespaces=["other"])),
        namespace="other",
        want="cd",
    ),
    Case(
        id="its own namespace is not named",
        loner=loner(term(APP_X, namespaces=["other"])),
        want="abcd",
    ),
    Case(
        id="all namespaces",
        loner=loner(term(APP_X, namespaceSelector={})),
        namespace="other",
        want="cd",
    ),
    Case(
        id="namespaces that cannot be looked up are kept away, too",
        loner=loner(term(APP_X, namespaceSelector={"matchLabels": {"team": "t"}})),
        namespace="other",
        want="cd",
    ),
    Case(id="a label the node does not have", loner=loner(term(APP_X, "rack")), want="abcd"),
    Case(id="any of several terms", loner=loner(term(None), term(APP_X, "host")), want="bcd"),
    Case(id="on another node", loner=loner(term(APP_X), node_name="c"), want="abd"),
]


def world_of(case: Case) -> World:
    zones = {"a": {"zone": "1"}, "b": {"zone": "1"}, "c": {"zone": "2"}, "d": {}}
    nodes = [node_object(name, labels={"host": name, **labels}) for name, labels in zones.items()]
    return World(*nodes, case.loner)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_where_a_pod_may_go(case: Case) -> None:
    world = world_of(case)
    waiting = pod("p", labels=case.labels, namespace=case.namespace)

    state = cycle.pre_filter(waiting, world.cache, environment())
    assert isinstance(state, CycleState)
    engine = Engine(environment())
    same = engine.pre_filter(waiting, world.cache)
    assert isinstance(same, CycleState)

    assert "".join(cycle.filter_nodes(state).feasible) == case.want
    assert "".join(filtered(engine, same).feasible) == case.want


@pytest.mark.parametrize("follows", [True, False])
def test_the_refusal_can_be_helped_by_evicting_and_goes_when_the_loner_goes(follows: bool) -> None:
    repelling = loner(term(ANY, "host"))
    world = World(node_object("a", labels={"host": "a"}), repelling)
    engine = Engine(environment())
    if follows:
        engine.follow(world.cache)

    def decided() -> Any:
        state = engine.pre_filter(pod("p"), world.cache)
        assert isinstance(state, CycleState)
        return engine.decide(state)

    refused = decided()
    assert isinstance(refused, FilterResult)
    assert refused.failure is not None
    assert refused.failure.reason is not None
    assert refused.failure.code is Code.UNSCHEDULABLE
    assert refused.failure.reason.kind is ReasonKind.POD_AFFINITY

    world.remove(repelling)
    assert isinstance(decided(), Plan)

    world.put(node_object("b", labels={"host": "b"}), repelling)
    found = decided()
    assert isinstance(found, Plan)
    assert found.node_name == "b"

    status = msgspec.structs.replace(repelling.status, phase="Succeeded")
    world.put(
        msgspec.structs.replace(repelling, status=status), node_object("b", unschedulable=True)
    )
    assert isinstance(decided(), Plan)


def test_kube_scheduler_looks_itself() -> None:
    world = World(node_object("a", labels={"host": "a"}), loner(term(ANY, "host")))

    state = cycle.pre_filter(pod("p"), world.cache, environment(Mode.EXTENDER))

    assert isinstance(state, CycleState)
    assert cycle.filter_nodes(state).feasible == ("a",)


@pytest.mark.parametrize(
    ("operator", "values", "want"),
    [
        ("In", ["x", "y"], True),
        ("In", ["y"], False),
        ("NotIn", ["y"], True),
        ("NotIn", ["x"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Odd", [], False),
    ],
)
def test_label_expressions(operator: str, values: list[str], want: bool) -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}

    assert matches_labels(selector, {"app": "x"}) is want
