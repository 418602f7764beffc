"""The engine is the plain search, for every node, after every event; and every part of its key is needed for that.

A story is a random sequence of changes to a small cluster with everything an answer can depend on. After each change
the pods of all shapes are asked of all nodes, with memory and without.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from allocator.features import Features
from allocator.model.claims import ResourceClaim
from allocator.model.hooks import enc_hook
from allocator.outcome import ReasonKind
from allocator.snapshot import Snapshot
from scheduler import conclusion, cycle
from scheduler.cache import cluster as cluster_module
from scheduler.cache.changes import ChangeLog
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.nodes import NodeIndex
from scheduler.engine import Attempt, Engine, Plan, node_views
from scheduler.engine.answers import Answer
from scheduler.engine.node_answers import NodeAnswers
from scheduler.engine.node_views import NodeViews, SharedParts
from scheduler.engine.questions import Question
from scheduler.engine.results import SharedResult
from scheduler.engine.scores import scores_of
from scheduler.framework.cycle_state import CycleState, FilterResult, NodeVerdict
from scheduler.framework.environment import Environment, Mode
from scheduler.framework.profile import Scores
from scheduler.framework.status import Status
from scheduler.model import Pod, Taint, Toleration
from tests.builders import (
    allocated_claim,
    capacity,
    claim,
    consumes,
    costs,
    counter_set,
    counting,
    device,
    device_class,
    distinct,
    first_available,
    gpu_slice,
    mapped,
    match,
    node_selector,
    request,
    resource_slice,
    sub_request,
    taint,
    taint_rule,
    toleration,
    used,
    valid_range,
)
from tests.pods import container, node_object, pod, pod_owner, requirements
from tests.scheduler.world import World, environment, filtered, gpu_nodes

NODES = ("n0", "n1", "n2", "n3")
MODEL_A = 'device.attributes["gpu.example.com"].model == "a"'
MODEL_B = '"model" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"].model == "b"'


COUNTS = [
    mapped(each="1"),
    mapped(each="2500m"),
    mapped(key="memory", times="1"),
    mapped(key="gpu.example.com/memory", times="100m"),
    costs("500m"),
    costs(container="1"),
]


def shapes() -> list[tuple[list[ResourceClaim], dict[str, Any]]]:
    """Claims and pod fields of every kind of pod."""
    return [
        ([claim("c")], {"containers": [container("a", {"cpu": "1"}, claims=["c"])]}),
        ([claim("c", request("r", MODEL_A, count=2), match("gpu.example.com/model"))], {}),
        (
            [
                claim(
                    "c",
                    first_available("r", sub_request("a", MODEL_A, count=2), sub_request("b")),
                )
            ],
            {"requests": {"cpu": "1"}},
        ),
        ([claim("c", request("r", capacity={"memory": "10"}))], {}),
        ([claim("c", request("r", all_devices=True))], {}),
        ([claim("c", request("r", tolerations=[toleration(operator="Exists")]))], {}),
        ([claim("c"), claim("d", request("r", device_class="big"))], {}),
        ([], {"requests": {"cpu": "2"}, "node_selector": {"zone": "z1"}}),
        ([claim("c")], {"tolerations": [Toleration(operator="Exists")]}),
        ([claim("c", request("r", MODEL_B))], {}),
        ([claim("c", request("r", 'device.driver == "nic.example.com"'))], {}),
        (
            [claim("c", request("r", "size(device.attributes) > 0"))],
            {
                "containers": [
                    container("a", {"cpu": "100m"}, claims=["c"]),
                    container("b", {"cpu": "100m"}, claims=["c"]),
                ],
                "resources": requirements({"cpu": "2"}),
            },
        ),
        ([claim("c", request("r", 'device.attributes["gpu.example.com"].missing == 1'))], {}),
        ([claim("c", request("r", count=2), distinct("gpu.example.com/model"))], {}),
        ([claim("c", request("r", MODEL_A)), claim("d", request("r", MODEL_A))], {}),
    ]


class Story:
    """A random life of a small cluster."""

    def __init__(self, seed: int, engine: Engine) -> None:
        self.rng = random.Random(seed)
        self.engine = engine
        self.world = World(device_class(), device_class("big"))
        self.bound: list[tuple[Pod, list[str]]] = []
        self.made = 0
        for name in NODES:
            self._node(name)
            self._local_slice(name)

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.rng.choice(self._events())()
            for _ in range(2):
                self.ask()

    # --- changes

    def _events(self) -> list[Callable[[], None]]:
        each = self.rng.choice
        return [
            lambda: self._node(each(NODES)),
            lambda: self._local_slice(each(NODES)),
            lambda: self._local_slice(each(NODES)),
            self._shared_slices,
            self._shared_slices,
            lambda: self._odd_slice(each(NODES)),
            lambda: self._odd_slice(each(NODES)),
            self._choosy_slice,
            self._spread_pool,
            self._spread_pool,
            lambda: self._class(each(("gpu", "big"))),
            self._rule,
            self._bind,
            self._bind,
            self._bind,
            self._end,
            self._cordon,
            self._foreign_claim,
        ]

    def _node(self, name: str) -> None:
        zone = self.rng.choice(("z1", "z2"))
        cpu = self.rng.choice(("2", "4"))
        made = node_object(name, labels={"zone": zone}, allocatable={"cpu": cpu, "pods": "9"})
        features = self.rng.choice(((), ("DRAOptionalNodeOperations",)))
        status = msgspec.structs.replace(made.status, declared_features=features)
        self.world.put(msgspec.structs.replace(made, status=status))

    def _cordon(self) -> None:
        name = self.rng.choice(NODES)
        soft = self.rng.choice(((), (Taint(key="t", effect="NoSchedule"),)))
        self.world.put(
            node_object(name, taints=soft, unschedulable=self.rng.random() < 0.5, labels={})
        )

    def _local_slice(self, name: str) -> None:
        models = [self.rng.choice("ab") for _ in range(self.rng.randint(1, 3))]
        taints = [taint("bad")] if self.rng.random() < 0.2 else None
        devices = [
            device(f"gpu-{index}", model=model, taints=taints) for index, model in enumerate(models)
        ]
        devices.append(
            device(
                "shared",
                model="a",
                shareable=True,
                capacity={"memory": capacity("30", valid_range("10", "30", "10", "10"))},
            )
        )
        made = resource_slice(
            f"{name}-gpus",
            *devices,
            pool=name,
            node=name,
            generation=self.rng.randint(1, 2),
            count=self.rng.choice((1, 1, 1, 2)),
        )
        self.world.put(made)

    def _shared_slices(self) -> None:
        made = resource_slice(
            "net",
            device("card", model=self.rng.choice("ab")),
            pool="net",
            selector=node_selector(labels={"zone": "z1"}),
        )
        if self.rng.random() < 0.3:
            self.world.remove(made)
        else:
            self.world.put(made)

    def _odd_slice(self, name: str) -> None:
        """A second pool of a node, in front of or behind the first, with one thing that is seldom there."""
        place = self.rng.choice(("a", "z"))
        odd: dict[str, Any] = self.rng.choice(
            (
                {},
                {"conditions": ["ready"]},
                {"conditions": []},
                {"binds_to_node": True},
                {"shareable": True, "capacity": {"memory": "20"}},
                {"capacity": {"memory": "5"}},
                {"driver": "nic.example.com"},
                {"maps": True},
                {"skips": True},
            )
        )
        odd = dict(odd)
        driver, maps = odd.pop("driver", "gpu.example.com"), odd.pop("maps", False)
        skips = odd.pop("skips", False)
        card = device("odd", model=self.rng.choice("ab"), **odd)
        if maps:
            card = counting(card, cpu=self.rng.choice(COUNTS))
        made = resource_slice(
            f"{name}-odd",
            card,
            driver=driver,
            pool=f"{place}-{name}",
            node=name,
            skips=["NodePrepareResources"] if skips else None,
        )
        if self.rng.random() < 0.3:
            self.world.remove(made)
        else:
            self.world.put(made)

    def _choosy_slice(self) -> None:
        """Devices that choose their nodes themselves."""
        made = resource_slice(
            "choosy",
            device("by-name", model="a", node=self.rng.choice(NODES)),
            device(
                "by-zone",
                model=self.rng.choice("ab"),
                selector=node_selector(labels={"zone": self.rng.choice(("z1", "z2"))}),
            ),
            pool="choosy",
            per_device=True,
        )
        if self.rng.random() < 0.4:
            self.world.remove(made)
        else:
            self.world.put(made)

    def _spread_pool(self) -> None:
        """A pool over two nodes with counters in a slice of its own: what one takes, the other lacks."""
        generation = self.rng.randint(1, 2)
        counters = resource_slice(
            "spread-counters",
            pool="spread",
            all_nodes=True,
            count=3,
            counters=[counter_set("card", memory="10")],
            generation=generation,
        )
        parts = [
            resource_slice(
                f"spread-{name}",
                device(f"part-{name}", model="a", consumes=[consumes("card", memory="6")]),
                pool="spread",
                node=name,
                count=3,
                generation=generation,
            )
            for name in NODES[:2]
        ]
        for each in self.rng.sample([counters, *parts], self.rng.randint(1, 3)):
            if self.rng.random() < 0.15:
                self.world.remove(each)
            else:
                self.world.put(each)

    def _class(self, name: str) -> None:
        expressions = [MODEL_A] if self.rng.random() < 0.5 else []
        self.world.put(device_class(name, *expressions))

    def _rule(self) -> None:
        rule = taint_rule("rule", taint("rule"), pool=self.rng.choice(NODES), device="gpu-0")
        if self.rng.random() < 0.5:
            self.world.put(rule)
        else:
            self.world.remove(rule)

    def _bind(self) -> None:
        waiting, claims = self._pod()
        state = self.engine.pre_filter(waiting, self.world.cache)
        assert isinstance(state, CycleState)
        decision = self.engine.decide(state)
        if not isinstance(decision, Plan):
            return
        allocations = decision.allocations
        demand = decision.demand
        self.world.bind(waiting, decision.node_name, dict(allocations), demand)
        self.bound.append((waiting, claims))

    def _foreign_claim(self) -> None:
        """A claim without pod takes or leaves a device: nothing changes but what is in use."""
        name = self.rng.choice(NODES)
        holder = allocated_claim(f"foreign-{name}", used("gpu-0", pool=name))
        if self.rng.random() < 0.5:
            self.world.put(holder)
        else:
            self.world.remove(holder)

    def _end(self) -> None:
        if not self.bound:
            return
        ended, claims = self.bound.pop(self.rng.randrange(len(self.bound)))
        known = self.world.cache.pod(ended.metadata.uid)
        assert known is not None
        self.world.remove(known)
        for name in claims:
            record = self.world.cache.claim("default", name)
            assert record is not None
            self.world.remove(record)

    # --- questions

    def _pod(self) -> tuple[Pod, list[str]]:
        self.made += 1
        claims, fields = self.rng.choice(shapes())
        names = [f"{each.metadata.name}-{self.made}" for each in claims]
        templates = {each.metadata.name: name for each, name in zip(claims, names, strict=True)}
        waiting = pod(f"p{self.made}", templates=templates, **fields)
        for each, name in zip(claims, names, strict=True):
            meta = msgspec.structs.replace(
                each.metadata, name=name, uid=f"uid-{name}", owner_references=(pod_owner(waiting),)
            )
            self.world.put(msgspec.structs.replace(each, metadata=meta))
        self.world.put(waiting)
        return waiting, names

    def ask(self) -> None:
        """Compare memory and plain search for a new pod on every node, and with an engine that knows nothing."""
        waiting, claims = self._pod()
        assert differences(self.engine, waiting, self.world) == []
        if self.rng.random() < 0.1:
            fresh = Engine(self.engine.environment, check_every=0)
            assert differences(fresh, waiting, self.world) == []
        self.world.remove(waiting)
        for name in claims:
            self.world.remove(self.world.cache.claim("default", name))


def told(verdict: NodeVerdict) -> Any:
    """All that a verdict says, as plain data."""
    reason = verdict.status.reason
    return (
        verdict.status.code,
        verdict.status.plugin,
        None if reason is None else (reason.kind, reason.message, reason.claim, reason.request),
        () if reason is None else reason.devices,
        {
            uid: msgspec.json.encode(given, enc_hook=enc_hook)
            for uid, given in verdict.allocations.items()
        },
        verdict.unavailable,
        verdict.ends_attempt,
        verdict.demand,
    )


def planned(plan: Plan) -> Any:
    """What a plan says, as the verdict on its node says it."""
    return told(NodeVerdict(allocations=plan.allocations, demand=plan.demand))


def summed_up(result: FilterResult) -> Any:
    failure = result.failure
    return (
        None if failure is None else (failure.code, failure.reason, failure.plugin),
        conclusion.failure_message(result),
        result.feasible,
        result.rejected_by,
    )


def raw_scores(attempt: Attempt, result: SharedResult) -> dict[str, Scores]:
    """What the engine remembers of scores, or finds out."""
    return {name: scores_of(attempt, result.answers[name]) for name in result.fitting}


def plain_scores(state: CycleState, result: FilterResult) -> dict[str, Scores]:
    nodes = state.snapshot.nodes
    return {
        name: cycle.raw_scores(state, nodes[name], each) for name, each in result.fitting.items()
    }


def differences(
    engine: Engine, waiting: Pod, world: World, plainly: ClusterCache | None = None
) -> list[str]:
    """Where memory and plain search, on the same cache or another one, disagree."""
    plain_state = cycle.pre_filter(waiting, plainly or world.cache, engine.environment)
    state = engine.pre_filter(waiting, world.cache)
    if isinstance(plain_state, Status) or isinstance(state, Status):
        same = isinstance(plain_state, Status) and isinstance(state, Status)
        return [] if same else ["pre_filter"]
    plain, remembered = cycle.filter_nodes(plain_state), filtered(engine, state)
    found = [
        name
        for name in plain.verdicts
        if name not in remembered.verdicts
        or told(plain.verdicts[name]) != told(remembered.verdicts[name])
    ]
    texts = {name: verdict.status.message for name, verdict in plain.verdicts.items()}
    if remembered.messages() != texts:
        found.append("messages")
    if summed_up(plain) != summed_up(remembered):
        found.append("sum")
    if not found and raw_scores(state, remembered) != plain_scores(plain_state, plain):
        found.append("ranks")
    for name in (NODES[0], NODES[-1]):
        if name not in plain.verdicts:
            continue
        asked = engine.filter_node(state, state.snapshot.nodes[name])
        assert isinstance(asked, NodeVerdict)
        if told(asked) != told(plain.verdicts[name]):
            found.append(f"filter_node {name}")
    return found


def engine_for(env: Environment | None = None, **settings: Any) -> Engine:
    return Engine(env or environment(), check_every=1, **settings)


@pytest.mark.parametrize("seed", range(8))
def test_memory_answers_as_the_plain_search_after_every_event(seed: int) -> None:
    engine = engine_for(environment(features=EVERYTHING_ON if seed % 2 else Features()))

    Story(seed, engine).play(25)

    assert engine.mismatches == 0
    assert engine.reused > 0


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_the_same_with_the_oldest_allocator_and_in_each_mode(mode: Mode) -> None:
    env = environment(
        mode, features=Features.for_version("1.34", {"DRAPartitionableDevices": True})
    )
    engine = engine_for(env)

    for seed in range(4):
        Story(seed, engine).play(15)

    assert engine.mismatches == 0


def test_a_memory_that_forgets_answers_the_same() -> None:
    engine = engine_for(max_answers=6)

    Story(3, engine).play(25)

    assert engine.memo.evictions > 0
    assert engine.memo.weight <= 6 + len(NODES)


# --- every part of the key is needed: without it, some story finds a wrong answer


def always(*_: object, **__: object) -> bool:
    return True


def same_parts(what: str) -> Callable[..., bool]:
    """`node_views._is_same` that looks at one of two things only."""

    def is_same(pools: Any, devices: Snapshot) -> bool:
        return all(
            (what == "usage" or devices.slices.in_pool(pool) is group)
            and (what == "slices" or devices.allocated.usage(pool) is usage)
            for pool, group, usage in pools
        )

    return is_same


def structure_without(part: str) -> Callable[..., bool]:
    """`NodeViews._is_structure` that does not look at one part."""

    def is_structure(kept: Any, node: Any, local: object, shared: Any, devices: Snapshot) -> bool:
        return (
            (part == "node" or kept.view.node == node)
            and (part == "shared" or kept.shared.structure is shared.structure)
            and (part == "local" or kept.local is local)
            and (
                part == "pools"
                or all(devices.slices.in_pool(pool) is group for pool, group, _ in kept.pools)
            )
        )

    return staticmethod(is_structure)


def break_predicates(patch: pytest.MonkeyPatch) -> None:
    """Predicates are never asked again by the engine."""
    known: dict[tuple[str, int], Any] = {}
    whole = NodeAnswers._refusal

    def remembered(attempt: NodeAnswers, node: Any) -> Any:
        key = (node.name, id(attempt.question))
        return known.setdefault(key, whole(attempt, node))

    patch.setattr(NodeAnswers, "_refusal", remembered)


def no_log(patch: pytest.MonkeyPatch) -> None:
    """Every node is looked at after every change, so that only the views decide what is old."""
    patch.setattr(ChangeLog, "since", lambda *_: None)


def without_log_and(target: object, name: str, broken: object) -> Callable[[Any], None]:
    def apply(patch: pytest.MonkeyPatch) -> None:
        no_log(patch)
        patch.setattr(target, name, broken)

    return apply


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "labels of the node": without_log_and(NodeViews, "_is_structure", structure_without("node")),
    "slices without a node": without_log_and(
        NodeViews, "_is_structure", structure_without("shared")
    ),
    "slices of the node": without_log_and(NodeViews, "_is_structure", structure_without("local")),
    "pools of the node": without_log_and(NodeViews, "_is_structure", structure_without("pools")),
    "what is in use": without_log_and(node_views, "_is_same", same_parts("slices")),
    "what is shared by nodes": without_log_and(SharedParts, "is_current", always),
    "contents of classes": lambda p: p.setattr(Question, "is_current", always),
    "predicates": break_predicates,
    "room for what devices count": lambda p: p.setattr(
        NodeAnswers, "_found_on", lambda _, node, view, found: Answer(node, view=view, found=found)
    ),
    "the log of changes": lambda p: p.setattr(ChangeLog, "since", lambda *_: frozenset()),
    "the log of what is in use": lambda p: p.setattr(
        cluster_module, "nodes_reading", lambda *_: frozenset()
    ),
    "the log of nodes": lambda p: p.setattr(NodeIndex, "dirty", frozenset()),
}


EVERYTHING_ON = Features.for_version(
    "1.37",
    {
        "DRAOptionalNodeOperations": True,
        "DRADeviceBindingConditions": True,
        "DRANodeAllocatableResources": True,
    },
)


def play_stories(count: int) -> None:
    for seed in range(count):
        env = environment(features=EVERYTHING_ON if seed % 2 else Features())
        Story(seed, Engine(env, check_every=0)).play(30)


@pytest.mark.parametrize("part", BREAKS)
def test_without_a_part_of_the_key_some_answer_is_wrong(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    BREAKS[part](monkeypatch)

    with pytest.raises(AssertionError):
        play_stories(60)


KEY_PARTS: dict[str, Callable[[Pod], Pod]] = {
    "tolerations": lambda p: msgspec.structs.replace(
        p, spec=msgspec.structs.replace(p.spec, tolerations=(Toleration(operator="Exists"),))
    ),
    "node selector": lambda p: msgspec.structs.replace(
        p, spec=msgspec.structs.replace(p.spec, node_selector={"a": "b"})
    ),
    "requests": lambda p: msgspec.structs.replace(
        p,
        spec=msgspec.structs.replace(p.spec, containers=pod(requests={"cpu": "3"}).spec.containers),
    ),
    "node name": lambda p: msgspec.structs.replace(
        p, spec=msgspec.structs.replace(p.spec, node_name="x")
    ),
}


@pytest.mark.parametrize("part", KEY_PARTS)
def test_pods_that_differ_in_what_predicates_read_ask_different_questions(part: str) -> None:
    world = World(*gpu_nodes(1), claim("c"))
    engine = engine_for()
    one = pod(claims=["c"])
    other = KEY_PARTS[part](pod("q", claims=["c"]))
    for each in (one, other):
        assert isinstance(engine.pre_filter(each, world.cache), CycleState)

    assert len(engine.memo) == 2


# --- what it is for


def test_pods_of_one_template_share_their_searches() -> None:
    world = World(*gpu_nodes(5))
    engine = engine_for()
    for number in range(10):
        waiting = pod(f"p{number}", templates={"gpu": f"c{number}"})
        made = claim(f"c{number}")
        meta = msgspec.structs.replace(made.metadata, owner_references=(pod_owner(waiting),))
        world.put(msgspec.structs.replace(made, metadata=meta), waiting)
        state = engine.pre_filter(waiting, world.cache)
        assert isinstance(state, CycleState)
        decision = engine.decide(state)
        assert isinstance(decision, Plan)
        world.bind(waiting, decision.node_name, dict(decision.allocations))

    # nodes with both devices free, with one, with none: whichever node it is
    assert engine.searches == 3


def unequal_nodes(count: int) -> Iterable[Any]:
    """Nodes of which no two look alike to a search, so that each is searched."""
    yield device_class()
    for number in range(count):
        name = f"n{number:02}"
        memory = {"memory": f"{number + 1}Gi"}
        cards = [device(f"gpu-{index}", capacity=memory) for index in range(2)]
        yield node_object(name)
        yield resource_slice(f"{name}-gpus", *cards, pool=name, node=name)


def chosen(engine: Engine, world: World, waiting: Pod) -> str:
    state = engine.pre_filter(waiting, world.cache)
    assert isinstance(state, CycleState)
    decision = engine.decide(state)
    assert isinstance(decision, Plan), decision
    return decision.node_name


def test_of_many_nodes_enough_are_looked_at_each_time_from_one_further_on() -> None:
    world = World(*unequal_nodes(10), claim("c"))
    engine = Engine(environment(), enough_nodes=4)
    names = [chosen(engine, world, pod(claims=["c"])) for _ in range(12)]

    assert names == [f"n0{number}" for number in (*range(10), 0, 1)]
    assert engine.looked_up == 12 * 4
    assert engine.searches == 10


def test_nodes_in_front_that_do_not_fit_are_not_begun_with_again() -> None:
    world = World(*gpu_nodes(10), claim("c"))
    for number in range(5):
        world.put(node_object(f"n0{number}", unschedulable=True))
    engine = Engine(environment(), enough_nodes=4)

    assert chosen(engine, world, pod(claims=["c"])) == "n05"
    assert engine.looked_up == 5 + 4
    assert chosen(engine, world, pod(claims=["c"])) == "n05"
    assert engine.looked_up == 5 + 4 + 4


def test_a_device_on_the_last_node_only_is_found() -> None:
    nodes = [node_object(f"n{number:03}") for number in range(150)]
    world = World(device_class(), *nodes, gpu_slice("n149", "gpu-0"), claim("c"))

    assert chosen(engine_for(), world, pod(claims=["c"])) == "n149"


def test_the_nominated_node_comes_first() -> None:
    world = World(*gpu_nodes(3), claim("c"))
    waiting = pod(claims=["c"])
    waiting = msgspec.structs.replace(
        waiting, status=msgspec.structs.replace(waiting.status, nominated_node_name="n02")
    )
    engine = engine_for()
    assert chosen(engine, world, waiting) == "n02"

    world.put(node_object("n02", unschedulable=True))
    assert chosen(engine, world, waiting) == "n00"


@pytest.mark.parametrize("seed", range(3))
def test_with_few_nodes_the_choice_is_that_of_the_plain_cycle(seed: int) -> None:
    story = Story(seed, engine_for())
    for _ in range(25):
        story.rng.choice(story._events())()
        waiting, _ = story._pod()
        state = story.engine.pre_filter(waiting, story.world.cache)
        plain_state = cycle.pre_filter(waiting, story.world.cache, story.engine.environment)
        assert isinstance(state, CycleState)
        assert isinstance(plain_state, CycleState)
        plain = cycle.filter_nodes(plain_state)
        decision = story.engine.decide(state)
        name = cycle.select_node(plain_state, plain.fitting)

        if isinstance(decision, FilterResult):
            assert name is None
            assert summed_up(decision) == summed_up(plain)
        else:
            assert isinstance(decision, Plan)
            assert decision.node_name == name
            assert planned(decision) == told(plain.fitting[decision.node_name])


def test_hopeless_pods_are_refused_in_their_own_words_without_looking_again() -> None:
    world = World(*gpu_nodes(3), claim("a", request(count=9)), claim("b", request(count=9)))
    engine = engine_for()
    texts = []
    for name in ("a", "b"):
        state = engine.pre_filter(pod(name, claims=[name]), world.cache)
        assert isinstance(state, CycleState)
        result = engine.decide(state)
        assert isinstance(result, FilterResult)
        assert result.failure is not None
        assert result.failure.reason is not None
        texts.append((result.failure.reason.claim, conclusion.failure_message(result)))
        assert result.verdicts["n00"].status.message == result.failure.message

    assert engine.searches == 1
    assert [claim for claim, _ in texts] == ["a", "b"]
    assert texts[0][1].replace("default/a", "default/b") == texts[1][1]


def test_a_wrong_memory_is_noticed_and_dropped_and_the_plain_answer_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(*gpu_nodes(2, gpus=2), claim("a"), claim("b"))
    engine = engine_for()
    assert chosen(engine, world, pod("a", claims=["a"])) == "n00"
    record = world.cache.claim_by_uid("uid-b")
    assert record is not None
    state = engine.pre_filter(pod("b", claims=["b"]), world.cache)
    assert isinstance(state, CycleState)
    held = filtered(engine, state).fitting["n00"].allocations["uid-b"]
    world.cache.hold("uid-b", {"uid-b": (record.claim, held)})

    monkeypatch.setattr(ChangeLog, "since", lambda *_: frozenset())
    state = engine.pre_filter(pod("a", claims=["a"]), world.cache)
    assert isinstance(state, CycleState)
    decision = engine.decide(state)

    assert isinstance(decision, Plan)
    given = decision.allocations["uid-a"].devices.results or ()
    assert [result.device for result in given] == ["gpu-1"]
    assert engine.mismatches == 1
    assert len(engine.memo) == 0


def test_a_decision_can_be_made_in_slices() -> None:
    world = World(*unequal_nodes(10), claim("c"))
    engine = engine_for()
    answers = []
    for _ in range(4):
        state = engine.pre_filter(pod(claims=["c"]), world.cache)
        assert isinstance(state, CycleState)
        answers.append(engine.decide(state, max_searches=3))

    assert answers[:3] == [None, None, None]
    assert isinstance(answers[3], Plan)
    assert engine.searches == 10


def test_among_many_nodes_a_slice_takes_the_best_it_has_found() -> None:
    world = World(*unequal_nodes(10), claim("c"))
    engine = engine_for(enough_nodes=6)
    state = engine.pre_filter(pod(claims=["c"]), world.cache)
    assert isinstance(state, CycleState)

    assert isinstance(engine.decide(state, max_searches=3), Plan)
    assert engine.searches == 3


def test_a_search_that_ran_out_of_time_is_not_remembered_beyond_its_attempt() -> None:
    late = True
    env = environment(start_deadline=lambda: lambda: late)
    world = World(*unequal_nodes(2), claim("c"))
    engine = engine_for(env)

    def decided() -> Any:
        state = engine.pre_filter(pod(claims=["c"]), world.cache)
        assert isinstance(state, CycleState)
        return engine.decide(state, max_searches=1)

    assert decided() is None
    failed = decided()
    assert isinstance(failed, FilterResult)
    assert failed.failure is not None
    assert failed.failure.reason is not None
    assert failed.failure.reason.kind is ReasonKind.DEADLINE_EXCEEDED

    late = False
    assert decided() is None
    assert isinstance(decided(), Plan)
