"""The self-check sees a fault in whatever the engine derives and keeps: it is counted, all is dropped, and the plain
answer is used. And it never holds up the event loop for long, however large the cluster."""

from collections.abc import Callable
from typing import Any

import pytest

from scheduler import cycle
from scheduler.engine import Engine, Plan
from scheduler.engine.answers import Answer
from scheduler.engine.attempt import Attempt
from scheduler.engine.node_answers import NodeAnswers
from scheduler.engine.questions import Question
from scheduler.engine.results import SharedResult
from scheduler.engine.self_check import SAMPLE_NODES, sample
from scheduler.framework.cycle_state import CycleState, FilterResult
from scheduler.framework.environment import Mode
from scheduler.framework.plan import plan_of
from scheduler.model import Affinity, Pod
from scheduler.plugins.anti_affinity import REQUIRED
from scheduler.plugins.inter_pod_affinity import REPELLED_FROM
from scheduler.plugins.repelling import RepellingPods
from tests.builders import (
    allocated_claim,
    claim,
    device_class,
    gpu_slice,
    request,
    used,
)
from tests.pods import node_object, pod
from tests.scheduler.engine.test_engine import MODEL_A, MODEL_B, planned
from tests.scheduler.world import World, environment, filtered, gpu_nodes

HOST = "kubernetes.io/hostname"
TERM = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": HOST}
LONER = Affinity(pod_anti_affinity={REQUIRED: [TERM]})


def waiting() -> Pod:
    return pod(claims=["c"], labels={"app": "x"})


def loner(node_name: str) -> Pod:
    return pod(f"loner-{node_name}", node_name=node_name, affinity=LONER)


def cluster() -> World:
    """Two GPUs each on n1 and n2, of different models; n3 has none."""
    return World(
        device_class(),
        *(node_object(f"n{number}") for number in (1, 2, 3)),
        gpu_slice("n1", "gpu-0", "gpu-1", model="a"),
        gpu_slice("n2", "gpu-0", "gpu-1", model="b"),
        claim("c"),
        waiting(),
    )


class Life:
    """A cluster, an engine that has decided once on it, and what is remembered since."""

    def __init__(self) -> None:
        self.world = cluster()
        self.engine = Engine(environment(), check_every=0)
        assert self.decide(None).node_name == "n1"
        self.engine._check_every = 1

    def state(self) -> Attempt:
        state = self.engine.pre_filter(waiting(), self.world.cache)
        assert isinstance(state, CycleState)
        return state

    def decide(self, max_searches: int | None) -> Any:
        for _ in range(1_000):
            decided = self.engine.decide(self.state(), max_searches)
            if decided is not None:
                return decided
        raise AssertionError("no decision")

    def plain(self) -> Plan | FilterResult:
        state = cycle.pre_filter(waiting(), self.world.cache, environment())
        assert isinstance(state, CycleState)
        result = cycle.filter_nodes(state)
        name = cycle.select_node(state, result.fitting)
        return result if name is None else plan_of(state, name, result.fitting[name])

    @property
    def question(self) -> Question:
        return self.state().question

    def caught_up(self) -> Question:
        """The question after it has learnt what changed."""
        return NodeAnswers(self.state(), self.engine._views).question


def repelling_of(engine: Engine) -> RepellingPods:
    index = engine._indexes[REPELLED_FROM]
    assert isinstance(index, RepellingPods)
    return index


def forgotten_loner(life: Life) -> None:
    life.world.put(loner("n1"))
    life.state()
    repelling_of(life.engine)._by_node.clear()


def imagined_loners(life: Life) -> None:
    for name in ("n1", "n2"):
        repelling_of(life.engine)._by_node[name] = [(loner(name), {HOST: name})]


def missed_by_views(life: Life) -> None:
    """n1 is full, but its view was not marked old."""
    both = [used(name, pool="n1") for name in ("gpu-0", "gpu-1")]
    life.world.put(allocated_claim("other", *both))
    life.engine._views.catch_up(life.state().snapshot)
    life.engine._views._stale.clear()


def missed_by_question(life: Life) -> None:
    """n1 is cordoned, but its answer was not marked old."""
    life.world.put(node_object("n1", unschedulable=True))
    life.caught_up().stale.clear()


def old_predicates(life: Life) -> None:
    """n1 is cordoned, but counts as looked at."""
    life.world.put(node_object("n1", unschedulable=True))
    life.question.answers["n1"].info = life.state().snapshot.nodes["n1"]


def old_class(life: Life) -> None:
    """The class asks for another model now, but the question counts as current."""
    question = life.question
    life.world.put(device_class("gpu", MODEL_B))
    question.classes = (("gpu", life.world.cache.snapshot().devices.classes["gpu"]),)


def another_answer(life: Life) -> None:
    """n1 says what n3 said."""
    life.caught_up().keep("n1", life.question.answers["n3"])


def another_yes(life: Life) -> None:
    """n1 and n2 refuse; n3 says what n1 said."""
    question = life.question
    yes, no = question.answers["n1"], question.answers["n3"]
    life.caught_up()
    for name, answer in (("n1", no), ("n2", no), ("n3", yes)):
        question.keep(name, answer)


def another_finding(life: Life) -> None:
    """What was found in a view, shared by equal nodes, is of another view; a new node has such a view."""
    question = life.question
    refusal = question.answers["n3"].found
    assert refusal is not None
    for key in list(question.found):
        question.found[key] = refusal
    life.world.put(node_object("n0"), gpu_slice("n0", "gpu-0", "gpu-1", model="a"))


def another_device(life: Life) -> None:
    """n1 gives the device that it gave while the first one was in use; nothing else tells the two apart."""
    right = life.question.answers["n1"]
    life.engine._check_every = 0
    other = allocated_claim("other", used("gpu-0", pool="n1"))
    life.world.put(other, node_object("n2", unschedulable=True))
    assert life.decide(None).node_name == "n1"
    wrong = life.question.answers["n1"]
    life.world.remove(other)
    life.world.put(node_object("n2"))
    assert life.decide(None).node_name == "n1"
    life.engine._check_every = 1
    planted = Answer(right.info, view=right.view, found=wrong.found)
    planted.scores = right.scores
    life.question.keep("n1", planted)


def wrong_scores(life: Life) -> None:
    life.caught_up().answers["n2"].scores = (1_000, 0, 0, 0)


def wrong_failure(life: Life) -> None:
    """It is remembered that no node can do in this very snapshot: what was found for another question."""
    hopeless = claim("d", request("r", count=9))
    life.world.put(hopeless)
    state = life.engine.pre_filter(pod("q", claims=["d"]), life.world.cache)
    assert isinstance(state, CycleState)
    life.engine._check_every = 0
    assert isinstance(life.engine.decide(state), FilterResult)
    life.engine._check_every = 1
    life.caught_up().failure = state.question.failure


def wrong_claims(life: Life) -> None:
    """The claims of the question were prepared from others."""
    life.world.put(claim("d", request("r", MODEL_B)))
    state = life.engine.pre_filter(pod("q", claims=["d"]), life.world.cache)
    assert isinstance(state, CycleState)
    question = life.question
    question.prepared = state.question.prepared
    question.answers.clear()
    question.found.clear()
    question.fitting.clear()


def wrong_selector_answers(life: Life) -> None:
    """What is kept with a slice: no device of n1 matches."""
    life.world.put(device_class("gpu", MODEL_A))
    life.engine._check_every = 0
    life.decide(None)
    for prepared in life.state().snapshot.devices.slices:
        for row in prepared.memo["facts"].rows.values():
            row[:] = [False] * len(row)
    life.engine.memo.clear()
    life.engine._check_every = 1


FAULTS: dict[str, Callable[[Life], None]] = {
    "a pod that repels others is forgotten": forgotten_loner,
    "pods that repel others are imagined": imagined_loners,
    "the views miss a change": missed_by_views,
    "a question misses a change": missed_by_question,
    "predicates are not asked again": old_predicates,
    "a class is an old one": old_class,
    "a node refuses wrongly": another_answer,
    "a node that refuses fits, others do not": another_yes,
    "what was found is of another view": another_finding,
    "a node gives another device": another_device,
    "scores are wrong": wrong_scores,
    "no node can do, wrongly": wrong_failure,
    "claims are prepared from others": wrong_claims,
    "what is kept with a slice is wrong": wrong_selector_answers,
}


def same(decided: Any, plain: Any) -> bool:
    if isinstance(plain, FilterResult):
        return isinstance(decided, FilterResult) and decided.failure == plain.failure
    return (decided.node_name, planned(decided)) == (plain.node_name, planned(plain))


@pytest.mark.parametrize("max_searches", [None, 2], ids=["at once", "in slices"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_in_what_is_kept_is_noticed_and_mended(
    fault: Callable[[Life], None], max_searches: int | None
) -> None:  # fault core 13
    life = Life()
    fault(life)

    decided = life.decide(max_searches)

    assert same(decided, life.plain())
    assert life.engine.mismatches == 1
    assert len(life.engine.memo) == 0
    assert same(life.decide(max_searches), life.plain())
    assert life.engine.mismatches == 1


# --- how it is done -----------------------------------------------------------------------------------------------------


def test_without_a_fault_nothing_is_dropped_whether_a_pod_is_placed_or_refused() -> None:
    life = Life()
    for _ in range(2):
        assert isinstance(life.decide(None), Plan)
    for name in ("n1", "n2"):
        life.world.put(node_object(name, unschedulable=True))
    for _ in range(2):
        assert isinstance(life.decide(None), FilterResult)

    assert life.engine.mismatches == 0
    assert len(life.engine.memo) == 1


def test_refusals_are_counted_apart_so_that_many_decisions_do_not_hide_them() -> None:
    engine = Engine(environment(), check_every=5)
    world = World(*gpu_nodes(2), claim("c"), claim("d", request("r", count=9)))

    def decide(name: str, **spec: Any) -> Question:
        state = engine.pre_filter(pod(claims=[name], **spec), world.cache)
        assert isinstance(state, CycleState)
        fits = name == "c" and not spec
        assert isinstance(engine.decide(state), Plan if fits else FilterResult)
        question: Question = state.question
        return question

    for name in "cdcdcdc":
        decide(name)
    question = decide("d")
    other = decide("c", node_selector={"no": "node"})  # the fifth refusal, which is checked
    question.failure = other.failure
    for _ in range(4):
        decide("d")
    decide("c")
    assert engine.mismatches == 0

    decide("d")
    assert engine.mismatches == 1


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100, 5_000])
def test_samples_are_few_and_come_to_every_node(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    seen: set[str] = set()
    for turn in range(-(-count // SAMPLE_NODES)):
        some = sample(names, turn)
        assert len(some) <= SAMPLE_NODES
        seen.update(some)

    assert seen == set(names)


def large_cluster() -> World:
    """800 nodes with 8 pods each, of which one repels others."""
    nodes = [node_object(f"n{number:03}") for number in range(800)]
    runs = [pod(f"r{number}", node_name=f"n{number % 800:03}") for number in range(6_400)]
    return World(*gpu_nodes(3), *nodes, *runs, loner("n700"), claim("c"), waiting())


def test_a_check_of_a_large_cluster_is_done_in_portions_and_the_decision_waits_for_it() -> None:
    world = large_cluster()
    engine = Engine(environment(), check_every=1)

    def decide() -> Any:
        state = engine.pre_filter(waiting(), world.cache)
        assert isinstance(state, CycleState)
        return engine.decide(state, 4)

    answers: list[object] = []
    while not answers or answers[-1] is None:
        answers.append(decide())
        world.put(node_object(f"another-{len(answers)}"))  # life goes on

    assert [each is None for each in answers] == [True, True, False]
    assert isinstance(answers[-1], Plan)
    assert engine.mismatches == 0


def test_a_mismatch_in_a_large_cluster_is_mended_in_portions_on_the_cluster_as_it_is_then() -> None:
    """The node that the plain attempt finds first is full by the time it has ended."""
    world = large_cluster()
    engine = Engine(environment(), check_every=1)
    engine.follow(world.cache)
    repelling_of(engine)._by_node.clear()

    def decide() -> Any:
        state = engine.pre_filter(waiting(), world.cache)
        assert isinstance(state, CycleState)
        return engine.decide(state, 4)

    while engine.mismatches == 0:
        assert decide() is None
    world.put(node_object("n00", unschedulable=True))
    engine._check_every = 0
    while (decided := decide()) is None:
        pass

    assert isinstance(decided, Plan)
    assert decided.node_name in ("n01", "n02")


def test_a_check_whose_pod_is_gone_is_given_up_for_the_next_pod() -> None:
    world = large_cluster()
    world.put(claim("d"), pod("q", claims=["d"]))
    engine = Engine(environment(), check_every=1)
    engine.follow(world.cache)
    repelling_of(engine)._by_node.clear()  # so that the check would end in another answer
    state = engine.pre_filter(waiting(), world.cache)
    assert isinstance(state, CycleState)
    while engine._check is None:
        assert engine.decide(state, 4) is None

    world.remove(waiting())
    engine._check_every = 0
    state = engine.pre_filter(pod("q", claims=["d"]), world.cache)
    assert isinstance(state, CycleState)
    while (decided := engine.decide(state, 4)) is None:
        pass
    assert isinstance(decided, Plan)
    assert list(decided.allocations) == ["uid-d"]
    assert engine._check is None


def test_a_pod_that_plainly_fits_nowhere_is_refused() -> None:
    life = Life()
    state = life.state()
    life.world.remove(claim("c"))  # which no snapshot shows

    decided = life.engine.decide(state)

    assert isinstance(decided, FilterResult)
    assert decided.failure is not None
    assert decided.failure.message == "resourceclaim 'c' not found"
    assert life.engine.mismatches == 1


def test_a_node_that_takes_long_is_not_compared() -> None:
    life = Life()
    slow = life.engine.environment
    object.__setattr__(slow, "start_deadline", lambda: lambda: True)
    object.__setattr__(slow, "hands_over_searches", True)

    assert life.decide(None).node_name == "n1"  # from memory
    assert life.engine.mismatches == 0


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_results_for_many_nodes_are_compared_too(mode: Mode) -> None:
    world = cluster()
    engine = Engine(environment(mode), check_every=1)

    def answered() -> tuple[Attempt, SharedResult]:
        state = engine.pre_filter(waiting(), world.cache)
        assert isinstance(state, CycleState)
        return state, filtered(engine, state, ["n1", "n2", "n3", "unknown"])

    assert engine.confirms(*answered())
    question = answered()[0].question
    question.keep("n1", question.answers["n3"])
    assert not engine.confirms(*answered())
    assert engine.mismatches == 1
    state, result = answered()
    assert result.feasible == ("n1", "n2")
    assert engine.confirms(state, result)
