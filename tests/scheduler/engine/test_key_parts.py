"""Each part of the key of an answer is needed: two nodes, or two pods, that differ in that part alone.

With the whole key both get their own answer; with the part left out the second gets the answer of the first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from allocator import columns
from allocator import view as view_module
from allocator.features import Features
from allocator.model.claims import ResourceClaim
from allocator.model.devices import Device, DeviceAttribute, NodeAllocatableResource
from allocator.pools import PoolState
from allocator.view import NodeView
from scheduler import cycle
from scheduler.engine import Engine
from scheduler.engine import questions as questions_module
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.environment import Environment
from scheduler.framework.pod_info import CLOSED, PodInfo
from scheduler.model import (
    Affinity,
    Container,
    NodeAffinity,
    Pod,
    PodSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Taint,
    Toleration,
)
from scheduler.plugins import PLUGINS
from scheduler.plugins.inter_pod_affinity import REPELLED_FROM
from scheduler.plugins.unsupported import BACKED_RESOURCES
from tests.builders import (
    allocated_claim,
    claim,
    consumes,
    costs,
    counter_set,
    counting,
    device,
    device_class,
    mapped,
    node_selector,
    quantity,
    request,
    resource_slice,
    taint,
    used,
)
from tests.pods import container, node_object, pod, port, requirements
from tests.scheduler.engine.test_engine import plain_scores, raw_scores, told
from tests.scheduler.world import World, environment, filtered

MODEL_A = 'device.attributes["gpu.example.com"].model == "a"'
NEW = {
    "DRADerivedAttributes": True,
    "DRAOptionalNodeOperations": True,
}  # upstream's newest allocator


COUNTING = {"DRANodeAllocatableResources": True}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Nodes `n0` and `n1` differ in one thing; with `breaks` in place nobody sees it."""

    id: str
    objects: Sequence[Any]
    breaks: Callable[[pytest.MonkeyPatch], None]
    claim: ResourceClaim = field(default_factory=lambda: claim("c"))
    gates: dict[str, bool] = field(default_factory=dict)
    features: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def key_without(part: int) -> Callable[[pytest.MonkeyPatch], None]:
    """`NodeView.key` without what the pools are (0), what is in use (1) or attributes (2)."""
    whole = NodeView.key

    def key(self: NodeView, reads: Any) -> Any:
        structure, usage, *attributes = whole(self, reads)
        parts = (structure, usage, tuple(attributes))
        return parts[:part] + parts[part + 1 :]

    return lambda patch: patch.setattr(NodeView, "key", key)


def frame_without(part: str) -> Callable[[pytest.MonkeyPatch], None]:
    """`columns._frame` without one field of every device, or of the slice."""
    whole = columns._frame

    def frame(spec: Any) -> Any:
        if part in Device.__struct_fields__:
            bare = tuple(msgspec.structs.replace(d, **{part: None}) for d in spec.devices or ())
            spec = msgspec.structs.replace(spec, devices=bare)
        if part in spec.__struct_fields__:
            spec = msgspec.structs.replace(spec, **{part: "" if part == "driver" else None})
        return whole(spec)

    return lambda patch: patch.setattr(columns, "_frame", frame)


def both(*breaks: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Where two parts of the key tell of the same thing."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        for each in breaks:
            each(patch)

    return apply


def problems_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(columns, "attribute_problem", lambda _: None)


def structure_without(part: str) -> Callable[[pytest.MonkeyPatch], None]:
    """`view._structure` that does not know one thing."""
    whole = view_module._structure

    def structure(node: Any, pools: Any, *rest: Any) -> Any:
        match part:
            case "order":
                pools = sorted(pools, key=lambda pool: len(pool.candidates))
            case "state":
                pools = [msgspec.structs.replace(pool, state=PoolState.OK) for pool in pools]
            case "driver":
                pools = [msgspec.structs.replace(p, id=p.id._replace(driver="")) for p in pools]
            case "features":
                node = msgspec.structs.replace(node, declared_features=frozenset())
            case "labels":
                node = msgspec.structs.replace(node, name="", labels={})
            case "elsewhere":
                pools = [msgspec.structs.replace(pool, elsewhere=()) for pool in pools]
            case _:  # counters
                pools = [msgspec.structs.replace(pool, counter_sets={}) for pool in pools]
        return whole(node, pools, *rest)

    return lambda patch: patch.setattr(view_module, "_structure", structure)


def usage_without(part: int) -> Callable[[pytest.MonkeyPatch], None]:
    """`view._usage_key` without devices (0), shares (1) or consumed capacity (2)."""
    whole = view_module._usage_key

    def usage_key(pool: Any, usage: Any) -> Any:
        key = whole(pool, usage)
        return None if key is None else (*key[:part], *key[part + 1 :])

    return lambda patch: patch.setattr(view_module, "_usage_key", usage_key)


def of(number: int, *devices: Device, name: str = "", **fields: Any) -> Any:
    """A slice of a node, in a pool of its own."""
    node = f"n{number}"
    return resource_slice(f"{node}-{name}", *devices, pool=f"{name}{node}", node=node, **fields)


def partition(number: int, *, counters: str, elsewhere: str = "1") -> list[Any]:
    """A pool with a part on the node, one on another node, and counters."""
    name = f"p{number}"
    parts = ((f"n{number}", "6"), (f"x{number}", elsewhere))
    return [
        resource_slice(
            f"{name}-counters",
            pool=name,
            count=3,
            node=f"n{number}",
            counters=[counter_set("card", memory=counters)],
        ),
        *(
            resource_slice(
                f"{name}-{index}",
                device(f"part-{index}", consumes=[consumes("card", memory=amount)]),
                pool=name,
                node=node,
                count=3,
            )
            for index, (node, amount) in enumerate(parts)
        ),
    ]


def broken(card: Device) -> Device:
    """With one more attribute, of which no question reads the value, which is invalid."""
    more = {**(card.attributes or {}), "driverVersion": DeviceAttribute(version="none")}
    return msgspec.structs.replace(card, attributes=more)


def shared(memory: str, **fields: Any) -> Device:
    return device("gpu-0", shareable=True, capacity={"memory": memory}, **fields)


LARGE = {"memory": "20"}
SMALL = {"memory": "5"}
TEN = request("r", capacity={"memory": "10"})

NODES = [
    Case(
        id="what is in use: devices",
        objects=[
            of(0, device("gpu-0"), device("gpu-1")),
            of(1, device("gpu-0"), device("gpu-1")),
            allocated_claim("other", used("gpu-0", pool="n1")),
        ],
        breaks=key_without(1),
    ),
    Case(
        id="what is in use: devices, not shares",
        objects=[
            of(0, device("gpu-0"), device("gpu-1")),
            of(1, device("gpu-0"), device("gpu-1")),
            allocated_claim("one", used("gpu-1", pool="n0")),
            allocated_claim("other", used("gpu-0", pool="n1")),
        ],
        breaks=usage_without(0),
    ),
    Case(
        id="what is in use: consumed capacity",
        objects=[
            of(0, shared("20")),
            of(1, shared("20")),
            allocated_claim("one", used("gpu-0", pool="n0", share="s0", consumed={"memory": 5})),
            allocated_claim("other", used("gpu-0", pool="n1", share="s1", consumed={"memory": 15})),
        ],
        claim=claim("c", TEN),
        breaks=usage_without(2),
    ),
    Case(
        id="what is in use: shares",
        # The first share of a device pays for its counters.
        objects=[
            each
            for number in (0, 1)
            for each in (
                resource_slice(
                    f"n{number}-counters",
                    pool=f"n{number}",
                    node=f"n{number}",
                    count=2,
                    counters=[counter_set("card", memory="6")],
                ),
                of(
                    number,
                    device("gpu-0", shareable=True, consumes=[consumes("card", memory="6")]),
                    device("gpu-1", shareable=True, consumes=[consumes("card", memory="6")]),
                    count=2,
                ),
            )
        ]
        + [
            allocated_claim("one", used("gpu-0", pool="n0", share="s0")),
            allocated_claim("other", used("gpu-1", pool="n1", share="s1")),
        ],
        breaks=usage_without(1),
    ),
    Case(
        id="attributes that are read",
        objects=[of(0, device("gpu-0", model="a")), of(1, device("gpu-0", model="b"))],
        claim=claim("c", request("r", MODEL_A)),
        breaks=key_without(2),
    ),
    Case(
        id="attributes without a value",
        objects=[
            of(0, device("gpu-0", model="a")),
            of(1, broken(device("gpu-0", model="a"))),
        ],
        claim=claim("c", request("r", MODEL_A)),
        breaks=problems_unseen,
    ),
    Case(
        id="taints",
        objects=[of(0, device("gpu-0")), of(1, device("gpu-0", taints=[taint("bad")]))],
        breaks=frame_without("taints"),
    ),
    Case(
        id="capacity",
        objects=[
            of(0, device("gpu-0", capacity=LARGE)),
            of(1, device("gpu-0", capacity=SMALL)),
        ],
        claim=claim("c", TEN),
        breaks=frame_without("capacity"),
    ),
    Case(
        id="sharing",
        objects=[of(0, shared("20")), of(1, device("gpu-0", capacity=LARGE))],
        claim=claim("c", TEN),
        breaks=frame_without("allow_multiple_allocations"),
    ),
    Case(
        id="binding conditions",
        objects=[of(0, device("gpu-0")), of(1, device("gpu-0", conditions=["ready"]))],
        gates={"DRADeviceBindingConditions": False},
        breaks=frame_without("binding_conditions"),
    ),
    Case(
        id="terms of a slice's node selector",
        objects=[
            resource_slice(
                "one", device("gpu-0"), pool="one", selector=node_selector(labels={"zone": "z0"})
            ),
            resource_slice(
                "two",
                device("gpu-0"),
                pool="two",
                selector=msgspec.structs.replace(
                    node_selector(labels={"zone": "z1"}),
                    node_selector_terms=2
                    * (node_selector(labels={"zone": "z1"}).node_selector_terms or ()),
                ),
            ),
        ],
        breaks=frame_without("node_selector"),
    ),
    Case(
        id="features of the node",
        objects=[of(number, device("gpu-0"), skips=["NodePrepareResources"]) for number in (0, 1)],
        gates=NEW,
        features=(("DRAOptionalNodeOperations",), ()),
        breaks=structure_without("features"),
    ),
    Case(
        id="labels of the node",
        objects=[
            resource_slice(
                "choosy",
                device("one", selector=node_selector(labels={"zone": "z0"})),
                device("two", selector=node_selector(labels={"zone": "z1"})),
                pool="choosy",
                per_device=True,
            )
        ],
        breaks=structure_without("labels"),
    ),
    Case(
        id="order of pools",
        objects=[
            of(0, device("gpu-0", capacity=SMALL), name="a"),
            of(0, *(device(f"gpu-{i}", capacity=LARGE) for i in (0, 1)), name="z"),
            of(1, device("gpu-0", capacity=SMALL), name="z"),
            of(1, *(device(f"gpu-{i}", capacity=LARGE) for i in (0, 1)), name="a"),
        ],
        claim=claim("c", TEN),
        breaks=structure_without("order"),
    ),
    Case(
        id="state of pools",
        objects=[of(0, device("gpu-0")), of(1, device("gpu-0"), count=2)],
        breaks=structure_without("state"),
    ),
    Case(
        id="driver",
        objects=[of(0, device("gpu-0")), of(1, device("gpu-0"), driver="nic.example.com")],
        claim=claim("c", request("r", 'device.driver == "gpu.example.com"')),
        breaks=both(structure_without("driver"), frame_without("driver")),
    ),
    Case(
        id="counters",
        objects=[*partition(0, counters="10"), *partition(1, counters="5")],
        breaks=structure_without("counters"),
    ),
    Case(
        id="counters that a device takes",
        objects=[
            *partition(0, counters="10"),
            *(
                msgspec.structs.replace(
                    each,
                    spec=msgspec.structs.replace(
                        each.spec,
                        devices=(device("part-0", consumes=[consumes("card", memory="11")]),),
                    ),
                )
                if each.metadata.name == "p1-0"
                else each
                for each in partition(1, counters="10")
            ),
        ],
        breaks=frame_without("consumes_counters"),
    ),
    Case(
        id="counters that devices elsewhere take",
        objects=[
            *partition(0, counters="10", elsewhere="1"),
            *partition(1, counters="10", elsewhere="6"),
            allocated_claim("one", used("part-1", pool="p0")),
            allocated_claim("other", used("part-1", pool="p1")),
        ],
        breaks=structure_without("elsewhere"),
    ),
]


def wrong_answers(case: Case) -> list[str]:
    """Nodes on which memory and plain search disagree."""
    nodes = []
    for number, features in enumerate(case.features):
        made = node_object(f"n{number}", labels={"zone": f"z{number}"})
        status = msgspec.structs.replace(made.status, declared_features=features)
        nodes.append(msgspec.structs.replace(made, status=status))
    world = World(device_class(), *nodes, *case.objects, case.claim)
    env = environment(features=Features.for_version("1.37", case.gates))
    return disagreements(env, world, [pod(claims=["c"])])


def disagreements(
    env: Environment, world: World, pods: Sequence[Pod], engine: Engine | None = None
) -> list[str]:
    engine = engine or Engine(env, check_every=0)
    wrong = []
    for each in pods:
        plain_state = cycle.pre_filter(each, world.cache, env)
        state = engine.pre_filter(each, world.cache)
        assert isinstance(plain_state, CycleState)
        assert isinstance(state, CycleState)
        plain, remembered = cycle.filter_nodes(plain_state), filtered(engine, state)
        wrong += [
            f"{each.metadata.name} on {name}"
            for name in plain.verdicts
            if told(plain.verdicts[name]) != told(remembered.verdicts[name])
        ]
        if not wrong and raw_scores(state, remembered) != plain_scores(plain_state, plain):
            wrong.append(f"ranks for {each.metadata.name}")
    return wrong


@pytest.mark.parametrize("case", NODES, ids=lambda case: case.id)
def test_nodes_that_differ_in_one_thing_have_different_views(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong_answers(case) == []

    case.breaks(monkeypatch)
    try:
        wrong = wrong_answers(case)
    except (LookupError, AssertionError):
        return  # what was found on one node cannot even be written down on the other
    assert wrong != []


# --- pods


def wrong_after_it_counts() -> bool:
    """Whether memory and plain search disagree on a device that has begun to count in resources of its node."""
    world = World(device_class(), node_object("n0"), of(0, device("gpu-0")), claim("c"))
    env = environment(features=Features.for_version("1.37", COUNTING))
    engine = Engine(env, check_every=0)
    state = engine.pre_filter(pod(claims=["c"]), world.cache)
    assert isinstance(state, CycleState)
    assert filtered(engine, state).feasible == ("n0",)

    world.put(of(0, counting(device("gpu-0"), cpu=mapped(each="1000"))))
    state = engine.pre_filter(pod(claims=["c"]), world.cache)
    assert isinstance(state, CycleState)
    return bool(filtered(engine, state).feasible)


def test_what_a_device_counts_is_a_part_of_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not wrong_after_it_counts()

    frame_without("node_allocatable_resources")(monkeypatch)
    assert wrong_after_it_counts()


@dataclass(frozen=True, kw_only=True)
class Question:
    """Two pods that differ in one part of the question, on a cluster where that makes a difference."""

    part: str
    one: dict[str, Any] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)
    claims: tuple[Sequence[ResourceClaim], Sequence[ResourceClaim]] = ((), ())
    objects: Sequence[Any] = ()
    later: Sequence[Any] = ()
    gates: dict[str, bool] = field(default_factory=dict)


def counted(
    part: str,
    amount: NodeAllocatableResource,
    one: dict[str, Any],
    other: dict[str, Any],
    resource: str = "cpu",
) -> Question:
    """Two pods with an equal claim, on a node with 4 cpus whose device counts in them."""
    return Question(
        part=part,
        one=one,
        other=other,
        claims=([claim("c0")], [claim("c1")]),
        objects=[of(0, counting(device("gpu-0"), **{resource: amount}))],
        gates=COUNTING,
    )


def using(entry: str, cpu: str, limit: str | None = None, name: str = "main") -> Container:
    made = container(name, {"cpu": cpu}, claims=[entry])
    limits = None if limit is None else {"cpu": quantity(limit)}
    return msgspec.structs.replace(
        made, resources=msgspec.structs.replace(made.resources, limits=limits)
    )


def hugepages(entry: str, limit: str) -> dict[str, Any]:
    """Fields of a pod with huge pages for an init container that uses a claim."""
    amounts = {"hugepages-2Mi": "1Mi"}
    first = container("first", amounts, claims=[entry])
    limits = {"hugepages-2Mi": quantity(limit)}
    resources = msgspec.structs.replace(first.resources, limits=limits)
    return {
        "init_containers": [msgspec.structs.replace(first, resources=resources)],
        "resources": requirements({"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"}),
    }


def preferring(zone: str) -> Affinity:
    terms = node_selector(labels={"zone": zone}).node_selector_terms or ()
    term = PreferredSchedulingTerm(weight=1, preference=terms[0])
    return Affinity(
        node_affinity=NodeAffinity(preferred_during_scheduling_ignored_during_execution=(term,))
    )


def repelling() -> Pod:
    """A running pod that keeps pods with a label out of its zone."""
    term = {
        "labelSelector": {"matchLabels": {"app": "loud"}},
        "topologyKey": "zone",
    }
    affinity = Affinity(
        pod_anti_affinity={"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    )
    return pod("quiet", node_name="n0", affinity=affinity)


def needing(**amounts: str) -> dict[str, Any]:
    """Fields of a pod that needs so much before it runs."""
    return {"init_containers": [container("first", amounts)]}


QUESTIONS = [
    Question(
        part="claims",
        claims=([claim("c0")], [claim("c1", request("r", count=2))]),
        objects=[of(0, device("gpu-0"))],
    ),
    Question(
        part="spec.node_selector",
        one={"node_selector": {"zone": "z0"}},
        other={"node_selector": {}},
    ),
    Question(
        part="spec.affinity.node_affinity",
        one={"affinity": preferring("z0")},
        other={"affinity": preferring("z1")},
    ),
    Question(
        part="spec.tolerations",
        other={"tolerations": [Toleration(operator="Exists")]},
        objects=[node_object("n0", taints=(Taint(key="t", effect="NoSchedule"),))],
    ),
    Question(
        part="spec.containers.resources.requests",
        one={"requests": {"cpu": "1"}},
        other={"requests": {"cpu": "9"}},
    ),
    Question(
        part="spec.containers.resources.requests",  # that scores read
        one={"requests": {"cpu": "1"}},
        other={"requests": {"cpu": "3", "memory": "1Gi"}},
        objects=[pod("busy", node_name="n0", requests={"cpu": "2"})],
    ),
    Question(
        part="spec.init_containers.resources.requests", one=needing(cpu="1"), other=needing(cpu="9")
    ),
    Question(
        part="spec.init_containers.restart_policy",
        one={"requests": {"cpu": "3"}, "init_containers": [container("a", {"cpu": "2"})]},
        other={
            "requests": {"cpu": "3"},
            "init_containers": [container("a", {"cpu": "2"}, sidecar=True)],
        },
    ),
    Question(
        part="spec.resources.requests",
        one={"resources": requirements({"cpu": "1"})},
        other={"resources": requirements({"cpu": "9"})},
    ),
    Question(part="spec.overhead", other={"overhead": {"cpu": quantity("9")}}),
    Question(
        part="spec.containers.ports",
        other={"containers": [container(ports=[port(80)])]},
        objects=[pod("server", node_name="n0", containers=[container(ports=[port(80)])])],
    ),
    Question(
        part="spec.init_containers.ports",
        one={"init_containers": [container(sidecar=True)]},
        other={"init_containers": [container(sidecar=True, ports=[port(80)])]},
        objects=[pod("server", node_name="n0", containers=[container(ports=[port(80)])])],
    ),
    Question(
        part=f"facts.{BACKED_RESOURCES.name}",
        # The same pod, before and after there is such a class.
        one={"requests": {"example.com/gpu": "1"}},
        other={"requests": {"example.com/gpu": "1"}},
        later=[
            msgspec.structs.replace(
                device_class("backed"),
                spec=msgspec.structs.replace(
                    device_class("backed").spec, extended_resource_name="example.com/gpu"
                ),
            )
        ],
    ),
    Question(
        part=f"facts.{REPELLED_FROM.name}", other={"labels": {"app": "loud"}}, objects=[repelling()]
    ),
    counted(  # who uses the claim
        "users",
        costs(container="3500m"),
        {"containers": [using("c0", "1")]},
        {"containers": [using("none", "1")]},
    ),
    counted(  # amounts before they are rounded
        "spec.containers.resources.requests",
        mapped(each="3000000001n"),
        {"containers": [using("c0", "1")]},
        {"containers": [using("c1", "999999999n")]},
    ),
    counted(  # of init containers
        "users",
        costs("1", "1500m"),
        {"init_containers": [using("c0", "1"), using("c0", "1", name="second")]},
        {"init_containers": [using("c1", "1"), using("x", "1", name="second")]},
    ),
    counted(
        "spec.containers.resources.limits",
        mapped(each="1"),
        {"containers": [using("c0", "1", "4")], "resources": requirements(limits={"cpu": "4"})},
        {"containers": [using("c1", "1", "3")], "resources": requirements(limits={"cpu": "4"})},
    ),
    counted(
        "spec.init_containers.resources.limits",
        mapped(each="2Mi"),
        hugepages("c0", "4Mi"),
        hugepages("c1", "2Mi"),
        resource="hugepages-2Mi",
    ),
    counted(
        "spec.resources.limits",
        mapped(each="1"),
        {"containers": [using("c0", "1", "3")], "resources": requirements(limits={"cpu": "3"})},
        {"containers": [using("c1", "1", "3")], "resources": requirements(limits={"cpu": "4"})},
    ),
    counted(
        "spec.containers.name",  # of one that does not use the claim, and asks for too much
        mapped(each="1"),
        {
            "containers": [using("c0", "1"), using("none", "1", "5", name="one")],
            "resources": requirements(limits={"cpu": "4"}),
        },
        {
            "containers": [using("c1", "1"), using("none", "1", "5", name="other")],
            "resources": requirements(limits={"cpu": "4"}),
        },
    ),
    counted(
        "spec.overhead",
        mapped(each="3000000001n"),
        {"overhead": {"cpu": quantity("1")}},
        {"overhead": {"cpu": quantity("999999999n")}},
    ),
]


def wrong_for_pods(case: Question) -> list[str]:
    nodes = [
        node_object(
            f"n{number}",
            labels={"zone": f"z{number}"},
            allocatable={"cpu": "4", "memory": "8Gi", "pods": "9", "hugepages-2Mi": "8Mi"},
        )
        for number in (0, 1)
    ]
    world = World(device_class(), *nodes, *case.objects)
    pods = []
    for number, fields in enumerate((case.one, case.other)):
        claims = case.claims[number]
        world.put(*claims)
        pods.append(pod(f"p{number}", claims=[c.metadata.name for c in claims], **fields))
    features = Features.for_version("1.37", case.gates)
    engine = Engine(environment(features=features), check_every=0)
    wrong = disagreements(engine.environment, world, pods[:1], engine)
    world.put(*case.later)
    return wrong + disagreements(engine.environment, world, pods[1:], engine)


Path = tuple[str, ...]


def blanked(value: Any, path: Path) -> Any:
    """An object, each object of a tuple, or a mapping, without one thing in it."""
    name, *rest = path
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(blanked(each, path) for each in value)
    if isinstance(value, Mapping):
        return {key: each for key, each in value.items() if key != name}
    if rest:
        inner = blanked(getattr(value, name), tuple(rest))
        return msgspec.structs.replace(value, **{name: inner})
    return msgspec.structs.replace(value, **{name: None})


def parts_but(left_out: str) -> Callable[[CycleState], dict[str, Any]]:
    whole = questions_module.question_parts
    name, *rest = left_out.split(".", 1)

    def parts(state: CycleState) -> dict[str, Any]:
        made = whole(state)
        value = made.pop(name, None)
        if rest and value is not None:
            path = rest if name == "facts" else rest[0].split(".")
            made[name] = blanked(value, tuple(path))
        return made

    return parts


@pytest.mark.parametrize("case", QUESTIONS, ids=lambda case: case.part)
def test_pods_that_differ_in_one_thing_ask_different_questions(
    case: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong_for_pods(case) == []

    monkeypatch.setattr(questions_module, "question_parts", parts_but(case.part))
    assert wrong_for_pods(case) != []


def test_every_fact_has_its_case() -> None:
    """Fields of the spec have theirs in the tests of plugins."""
    facts = {f"facts.{fact.name}" for plugin in PLUGINS for fact in plugin.facts}

    assert {case.part for case in QUESTIONS} >= facts | {"claims", "users"}


def question_of(waiting: Pod, gates: dict[str, bool] | None = None) -> dict[str, Any]:
    world = World(device_class(), node_object("n0"), claim("c"))
    counts = environment(features=Features.for_version("1.37", gates or {}))
    state = Engine(counts).pre_filter(waiting, world.cache)
    assert isinstance(state, CycleState)
    return questions_module.question_parts(state)


def test_a_question_has_no_part_but_these() -> None:
    parts = question_of(pod(claims=["c"]), COUNTING)

    assert set(parts) == {"spec", "facts", "claims", "users"}


def test_without_the_gate_nobody_asks_who_uses_the_claims() -> None:
    assert "users" not in question_of(pod(claims=["c"]))


ODD_TEXT: Any = "odd"  # where nothing else is expected, so that every field can have it


def encoded(waiting: Pod) -> bytes:
    return columns.encoded(PodInfo(waiting, Features()).spec)


FIELDS = [
    (type_, name)
    for type_ in (PodSpec, Container, ResourceRequirements)
    for name in type_.__struct_fields__
    if name not in ("containers", "init_containers")  # their own fields are
]


@pytest.mark.parametrize(("type_", "name"), FIELDS)
def test_every_field_of_a_pod_is_compared_unless_it_is_closed(type_: Any, name: str) -> None:
    """A field that the model learns is compared from the first day."""
    plain = pod()
    [one] = plain.spec.containers or ()
    if type_ is PodSpec:
        spec = msgspec.structs.replace(plain.spec, **{name: ODD_TEXT})
    else:
        inner = one if type_ is Container else one.resources
        odd: Any = msgspec.structs.replace(inner, **{name: ODD_TEXT})
        if name == "resources":
            odd = msgspec.structs.replace(one, resources=requirements({"cpu": "7"}))
        elif type_ is not Container:
            odd = msgspec.structs.replace(one, resources=odd)
        spec = msgspec.structs.replace(plain.spec, containers=(odd,))
    differs = encoded(msgspec.structs.replace(plain, spec=spec)) != encoded(plain)

    assert differs is (name not in CLOSED[type_])


def test_what_a_controller_or_admission_writes_into_each_pod_unshares_nothing() -> None:
    one = job_pod(0)

    assert encoded(job_pod(1)) == encoded(one)


def job_pod(index: int) -> Pod:
    """A pod of an Indexed Job as the API server hands it out."""
    text = str(index)
    token = {"name": f"kube-api-access-{index}", "projected": {"sources": []}}
    mount = {"name": token["name"], "mountPath": "/var/run/secrets"}
    made = pod(
        f"job-{index}",
        labels={
            "batch.kubernetes.io/controller-uid": "u",
            "batch.kubernetes.io/job-completion-index": text,
            "statefulset.kubernetes.io/pod-name": f"job-{index}",
            "apps.kubernetes.io/pod-index": text,
        },
        claims=[f"claim-{index}"],
        containers=[container(claims=[f"claim-{index}"], volume_mounts=(mount,))],
        volumes=(token,),
    )
    notes = {"batch.kubernetes.io/job-completion-index": text}
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, annotations=notes)
    )


def test_a_selector_of_the_cluster_that_reads_such_a_label_is_obeyed() -> None:
    """One pod of the job keeps those with another index out of its zone."""
    index = "batch.kubernetes.io/job-completion-index"
    term = {"labelSelector": {"matchLabels": {index: "1"}}, "topologyKey": "zone"}
    affinity = Affinity(
        pod_anti_affinity={"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    )
    world = World(device_class(), *(node_object(f"n{n}", labels={"zone": f"z{n}"}) for n in (0, 1)))
    world.put(pod("quiet", node_name="n0", affinity=affinity))
    world.put(*(claim(f"claim-{number}") for number in range(3)))
    world.put(of(0, device("gpu-0")), of(1, device("gpu-0")))
    jobs = [job_pod(number) for number in range(3)]

    assert disagreements(environment(), world, jobs) == []
    engine = Engine(environment(), check_every=0)
    fitting = []
    for each in jobs:
        state = engine.pre_filter(each, world.cache)
        assert isinstance(state, CycleState)
        fitting.append(filtered(engine, state).feasible)
    assert fitting == [("n0", "n1"), ("n1",), ("n0", "n1")]
    assert len(engine.memo) == 2
