"""Plugins read what they say they read, and nothing of a pod that is not compared: then answers may be shared."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings

from allocator.columns import encoded
from allocator.features import Features
from allocator.outcome import Reason, ReasonKind
from scheduler import cycle
from scheduler.engine import Engine
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.environment import Mode
from scheduler.framework.events import READ_OF_NODES, Event
from scheduler.framework.plugin import Plugin, Reads
from scheduler.framework.pod_info import Fact, PodInfo
from scheduler.framework.profile import Profile
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.model import (
    Affinity,
    NodeAllocatableMappedResources,
    NodeAllocatableResourceClaimStatus,
    NodeInfo,
    Pod,
    Taint,
)
from scheduler.plugins import PLUGINS, PROFILES, dynamic_resources, node_allocatable
from tests.builders import claim, device, device_class, quantity, resource_slice
from tests.pods import container, node_object, pod, port
from tests.scheduler.plugins.recording import (
    Log,
    closed,
    recorded_node,
    recorded_pod,
    undeclared,
    unread,
)
from tests.scheduler.world import World, environment, filtered
from tests.strategies import nodes, pods

FACTS = {
    # A value for each fact, whatever it is: what plugins make of it is not asked here.
    fact.name: fact.look_up(pod(labels={"app": "x"}), fact.gather(World().cache.snapshot()))
    for fact in PROFILES[Mode.STANDALONE].facts
} | {
    "domains that running pods keep this pod out of": frozenset({("zone", "z1")}),
    "requested extended resources that a DeviceClass backs": frozenset({"example.com/gpu"}),
}
DEMAND = (
    NodeAllocatableResourceClaimStatus(
        resource_claim_name="c",
        containers=("main",),
        mapping=(NodeAllocatableMappedResources(name="cpu", quantity=quantity("1")),),
    ),
)


def run(plugin: Plugin, info: PodInfo, node: NodeInfo) -> Any:
    """All that the plugin says of one pod and one node."""
    return (
        plugin.filter and plugin.filter(info, node),
        plugin.score and plugin.score(info, node),
        # Asked after the search for devices.
        plugin is node_allocatable.PLUGIN and node_allocatable.check(info.pod, DEMAND, node),
    )


@dataclass
class Recorded:
    """What one plugin read."""

    pod: Log = field(default_factory=dict)
    node: Log = field(default_factory=dict)


@lru_cache
def pool(size: int = 200) -> tuple[list[Pod], list[NodeInfo]]:
    """Random pods and nodes, the same ones in every run."""
    some_pods: list[Pod] = []
    some_nodes: list[NodeInfo] = []

    @settings(derandomize=True, max_examples=size, deadline=None, phases=[Phase.generate])
    @given(pods(), nodes())
    def draw(waiting: Pod, node: NodeInfo) -> None:
        some_pods.append(waiting)
        some_nodes.append(node)

    draw()
    return some_pods, some_nodes


def record(*plugins: Plugin) -> dict[str, Recorded]:
    """Run plugins over random pods and nodes."""
    found = {plugin.name: Recorded() for plugin in plugins}
    rng = random.Random(1)
    some_pods, some_nodes = pool()
    for waiting in some_pods * 4:
        node = rng.choice(some_nodes)
        for plugin in plugins:
            log = found[plugin.name]
            has_facts = rng.random() < 0.5
            facts = {f.name: FACTS[f.name] if has_facts else frozenset() for f in plugin.facts}
            info = PodInfo(waiting, Features(), facts)
            run(plugin, recorded_pod(info, log.pod), recorded_node(node, log.node))
    return found


recorded = lru_cache(partial(record, *PLUGINS))


def problems(plugin: Plugin, log: Recorded) -> set[str]:
    """What a plugin reads and does not say, or says and does not read, or cannot see."""
    return (
        undeclared(log.pod, plugin.reads.pod)
        | undeclared(log.node, plugin.reads.node)
        | unread(log.pod, plugin.reads.pod)
        | unread(log.node, plugin.reads.node)
        | closed([*log.pod, *plugin.reads.pod])
    )


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugin_reads_what_it_declares_and_nothing_that_is_closed(plugin: Plugin) -> None:
    assert problems(plugin, recorded()[plugin.name]) == set()


ENTRIES = [
    (plugin, kind, entry)
    for plugin in PLUGINS
    for kind in ("pod", "node")
    for entry in getattr(plugin.reads, kind)
]


@pytest.mark.parametrize(("plugin", "kind", "entry"), ENTRIES)
def test_without_one_entry_the_record_tells(plugin: Plugin, kind: str, entry: str) -> None:
    declared = tuple(each for each in getattr(plugin.reads, kind) if each != entry)

    assert undeclared(getattr(recorded()[plugin.name], kind), declared)


def with_one_of(one: Any, other: Any, path: list[str]) -> Any:
    """An object, or each of a tuple, with one thing as another object has it."""
    if isinstance(one, tuple):
        others = other or ()
        return tuple(
            with_one_of(each, others[place % len(others)] if others else None, path)
            for place, each in enumerate(one)
        )
    name, *rest = path
    if one is None and isinstance(other, msgspec.Struct):
        one = type(other)()
    if one is None:
        return None
    value = getattr(type(one)() if other is None else other, name)
    if rest:
        value = with_one_of(getattr(one, name), value, rest)
    return msgspec.structs.replace(one, **{name: value})


POD_ENTRIES = [(plugin, entry) for plugin, kind, entry in ENTRIES if kind == "pod"]


@lru_cache
def that_matter() -> dict[tuple[str, str], tuple[Pod, Pod]]:
    """Plugin, entry -> two pods that differ in this entry alone, and of which the plugin says different things."""
    found: dict[tuple[str, str], tuple[Pod, Pod]] = {}

    facts: dict[str, Any] = dict.fromkeys(FACTS, frozenset())
    rng = random.Random(2)
    some_pods, some_nodes = pool()
    for _ in range(5_000):
        one, other, node = rng.choice(some_pods), rng.choice(some_pods), rng.choice(some_nodes)
        for plugin, entry in POD_ENTRIES:
            if (plugin.name, entry) in found:
                continue
            changed = with_one_of(one, other, entry.split("."))
            infos = (PodInfo(each, Features(), facts) for each in (one, changed))
            first, second = (run(plugin, info, node) for info in infos)
            if first != second:
                found[plugin.name, entry] = (one, changed)
        if len(found) == len(POD_ENTRIES):
            break
    return found


@pytest.mark.parametrize(("plugin", "entry"), POD_ENTRIES)
def test_pods_that_differ_in_what_matters_ask_different_questions(
    plugin: Plugin, entry: str
) -> None:
    pair = that_matter().get((plugin.name, entry))

    assert pair is not None, f"no pods of tests/strategies.py differ in {entry} so that it matters"
    one, other = (encoded(PodInfo(each, Features()).spec) for each in pair)
    assert one != other


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_change_of_what_it_reads_of_a_node_wakes_what_it_refused(plugin: Plugin) -> None:
    for entry in plugin.reads.node:
        assert READ_OF_NODES[entry] in plugin.events


# --- a plugin whose author forgot something


def refusing(text: str) -> Status:
    return unresolvable(Reason(kind=ReasonKind.UNSUPPORTED, message=text), "Forgetful")


def forgetful(read: Callable[[PodInfo], Any]) -> Plugin:
    """Lets only those pods in of which it reads something; declares nothing."""
    return Plugin(
        name="Forgetful",
        filter=lambda pod, _node: SUCCESS if read(pod) else refusing("nothing to read"),
        events=Event.NODE_ADDED,
    )


def answers(plugin: Plugin, waiting: list[Pod]) -> tuple[list[Any], list[Any]]:
    """Of one engine that is asked for one pod after the other, and of the plain cycle."""
    world = World(node_object("n0"), node_object("n1"))
    profile = Profile((*PLUGINS, plugin), Mode.STANDALONE)
    env = environment()
    engine = Engine(env, profile=profile, check_every=0)
    remembered: list[Any] = []
    plain: list[Any] = []
    for each in waiting:
        state = engine.pre_filter(each, world.cache)
        plain_state = cycle.pre_filter(each, world.cache, env, profile)
        assert isinstance(state, CycleState)
        assert isinstance(plain_state, CycleState)
        remembered.append(filtered(engine, state).feasible)
        plain.append(cycle.filter_nodes(plain_state).feasible)
    return remembered, plain


OPEN: dict[str, tuple[Callable[[PodInfo], Any], Pod]] = {
    "priority": (lambda p: p.spec.priority, pod("q", priority=7)),
    "hostNetwork": (lambda p: p.spec.host_network, pod("q", host_network=True)),
    "os": (lambda p: p.spec.os, pod("q", os={"name": "windows"})),
    "spread": (
        lambda p: p.spec.topology_spread_constraints,
        pod("q", topology_spread_constraints=({"whenUnsatisfiable": "ScheduleAnyway"},)),
    ),
    "soft pod affinity": (
        lambda p: p.spec.affinity and p.spec.affinity.pod_affinity,
        pod("q", affinity=Affinity(pod_affinity={"preferred": []})),
    ),
    "name of a container": (
        lambda p: [c for c in p.spec.containers or () if c.name == "odd"],
        pod("q", containers=[container("odd")]),
    ),
}
HIDDEN: dict[str, tuple[Callable[[PodInfo], Any], Pod]] = {
    "name": (lambda p: p.pod.metadata.name, pod("q")),
    "labels": (lambda p: p.pod.metadata.labels, pod("q", labels={"a": "b"})),
    "volumes": (lambda p: p.spec.volumes, pod("q", volumes=({"name": "v", "emptyDir": {}},))),
    "image": (
        lambda p: [c.image for c in p.spec.containers or () if c.image],
        pod("q", containers=[container(image="i")]),
    ),
    "phase": (lambda p: p.pod.status.phase, pod("q")),
}


@pytest.mark.parametrize("what", OPEN)
def test_what_nobody_declared_is_answered_rightly_and_told_of(what: str) -> None:
    read, odd = OPEN[what]
    plugin = forgetful(read)

    remembered, plain = answers(plugin, [pod("p"), odd, pod("p2")])

    assert remembered == plain == [(), ("n0", "n1"), ()]
    assert problems(plugin, record(plugin)["Forgetful"])


@pytest.mark.parametrize("what", HIDDEN)
def test_what_is_closed_cannot_be_seen_and_so_is_never_shared_wrongly(what: str) -> None:
    read, odd = HIDDEN[what]
    plugin = forgetful(read)

    remembered, plain = answers(plugin, [pod("p"), odd])

    assert remembered == plain == [(), ()]
    assert problems(plugin, record(plugin)["Forgetful"])
    declared = Plugin(
        name="Forgetful", filter=plugin.filter, events=plugin.events, reads=Reads(pod=("metadata",))
    )
    assert problems(declared, record(declared)["Forgetful"])


def test_a_fact_that_nobody_declared_cannot_be_read() -> None:
    fact = Fact("undeclared", gather=lambda snapshot: snapshot, look_up=lambda _pod, _snapshot: 1)

    with pytest.raises(KeyError):
        answers(forgetful(lambda p: p.fact(fact)), [pod("p")])


def test_what_the_cluster_means_for_a_pod_is_a_part_of_what_it_asks() -> None:
    fact = Fact(
        "how many nodes have a namesake of the pod's app",
        gather=lambda snapshot: list(snapshot.nodes),
        look_up=lambda waiting, names: sum(
            name == (waiting.metadata.labels or {}).get("app") for name in names
        ),
    )
    plugin = Plugin(
        name="Forgetful",
        facts=(fact,),
        filter=lambda p, _node: SUCCESS if p.fact(fact) else refusing("no namesake"),
        events=Event.NODE_ADDED,
    )

    remembered, plain = answers(plugin, [pod("p"), pod("q", labels={"app": "n1"}), pod("r")])

    assert remembered == plain == [(), ("n0", "n1"), ()]


# --- what is read of a node is what its identity covers


@dataclass(frozen=True, kw_only=True)
class NodeCase:
    """A change of one thing that is read of a node, and a pod to which it matters."""

    path: str
    before: list[Any] = field(default_factory=list)
    after: list[Any]
    pod: Pod = field(default_factory=lambda: pod("p"))


NODE_CASES = [
    NodeCase(path="node.metadata.name", after=[node_object("n1")], pod=pod("p", node_name="n1")),
    NodeCase(
        path="node.spec.taints",
        after=[node_object("n0", taints=[Taint(key="a", effect="NoSchedule")])],
    ),
    NodeCase(path="node.spec.unschedulable", after=[node_object("n0", unschedulable=True)]),
    NodeCase(
        path="node.status.allocatable",
        after=[node_object("n0", allocatable={"cpu": "1", "pods": "9"})],
        pod=pod("p", requests={"cpu": "2"}),
    ),
    NodeCase(
        path="is_unlimited",
        before=[node_object("n0", allocatable={"cpu": "1", "pods": "9"})],
        after=[node_object("n0", silent=True)],
        pod=pod("p", requests={"cpu": "2"}),
    ),
    NodeCase(
        path="for_allocator.labels",
        after=[node_object("n0", labels={"zone": "z"})],
        pod=pod("p", node_selector={"zone": "z"}),
    ),
    NodeCase(
        path="pods",
        before=[node_object("n0", allocatable={"pods": "1"})],
        after=[pod("other", node_name="n0")],
    ),
    NodeCase(
        path="requested",
        before=[node_object("n0", allocatable={"cpu": "1", "pods": "9"})],
        after=[pod("other", node_name="n0", requests={"cpu": "1"})],
        pod=pod("p", requests={"cpu": "1"}),
    ),
    NodeCase(
        path="ports",
        after=[pod("other", node_name="n0", containers=[container(ports=[port(80)])])],
        pod=pod("p", containers=[container(ports=[port(80)])]),
    ),
]


@pytest.mark.parametrize("case", NODE_CASES, ids=lambda case: case.path)
def test_a_node_is_another_one_when_what_is_read_of_it_changes(case: NodeCase) -> None:
    world = World(node_object("n0"), *case.before, silent_is_unlimited=True)
    env = environment()
    engine = Engine(env, check_every=0)

    def asked() -> tuple[Any, Any]:
        state = engine.pre_filter(case.pod, world.cache)
        plain = cycle.pre_filter(case.pod, world.cache, env)
        assert isinstance(state, CycleState)
        assert isinstance(plain, CycleState)
        return filtered(engine, state).feasible, cycle.filter_nodes(plain).feasible

    before = asked()
    node = world.cache.snapshot().nodes["n0"]
    world.put(*case.after)
    after = asked()

    assert before[0] == before[1]
    assert after[0] == after[1]
    assert after != before
    assert case.path == "node.metadata.name" or world.cache.snapshot().nodes["n0"] is not node


def test_everything_that_is_read_of_a_node_has_its_case() -> None:
    read = {entry for plugin in PLUGINS for entry in plugin.reads.node}

    assert read <= {case.path for case in NODE_CASES}


# --- the registry


def test_names_and_facts_are_unique_and_one_plugin_has_the_weight_of_devices() -> None:
    names = [plugin.name for plugin in PLUGINS]
    facts = [fact.name for plugin in PLUGINS for fact in plugin.facts]
    without_scorer = [p.name for p in PLUGINS if p.weight and p.score is None]

    assert len(set(names)) == len(names)
    assert len(set(facts)) == len(facts)
    assert without_scorer == [dynamic_resources.NAME]


def test_devices_are_searched_after_all_predicates() -> None:
    world = World(device_class(), node_object("n0", unschedulable=True), claim("c"))
    world.put(resource_slice("n0", device("gpu-0"), pool="n0", node="n0"))
    engine = Engine(environment())
    state = engine.pre_filter(pod(claims=["c"]), world.cache)
    assert isinstance(state, CycleState)

    assert filtered(engine, state).rejected_by == {"NodeUnschedulable"}
    assert engine.searches == 0
