"""`allocator`: the search alone, ours against upstream's own (Go), on named cases.

Cold: nothing is known of slices and devices, only the selectors are compiled, as in upstream's cache. Upstream's time is that
of its Allocate calls; creating its allocator (which PreFilter does, once an attempt) counts for the whole cluster, and so
does our PreFilter there. Both sides must give the same answer, or there is no row.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from allocator.allocate import allocate
from allocator.cel import Compiler
from allocator.outcome import Outcome
from scheduler import engine as engines
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent
from scheduler.engine import Attempt, Engine
from scheduler.framework.cycle_state import FilterResult
from scheduler.framework.environment import Environment, Mode
from scheduler.model import ClaimRecord, Kind, Pod
from tests.benchmarks.inmemory import NOW
from tests.benchmarks.plan import Plan, Series, report_all
from tests.conformance.answers import difference
from tests.conformance.gates import NEWEST, features_of
from tests.conformance.objects import (
    DRIVER,
    Json,
    claim,
    counter_set,
    device,
    device_class,
    distinct,
    match,
    node,
    request,
    slice_,
)
from tests.conformance.ours import answer_of, decode, node_of, share_ids, snapshot_of
from tests.conformance.upstream import Oracle
from tests.pods import node_object, pod

COLD_REACH = 5.0
WARM_REACH = 0.2
CLUSTER_NODES = 500
DEVICES = 8
# A search takes from some microseconds to a second. The two sides take turns, so that both see the same minute of the machine.
ROUNDS = 5
MOST_SAMPLES = 11
SAMPLING_SECONDS = 0.2

CLASS = device_class("gpu", f'device.driver == "{DRIVER}"')
MODEL = f'device.attributes["{DRIVER}"].model == "H100"'


@dataclass(frozen=True)
class Case:
    """A named question for one node.

    Attributes:
        name: for the table.
        slices: of the whole cluster.
        claim: of the pod.
        nodes: names of all nodes; the first is the one that is asked about.
    """

    name: str
    slices: list[Json]
    claim: Json
    nodes: tuple[str, ...]

    def question(self, **more: object) -> Json:
        """What both allocators are asked."""
        return {
            "id": self.name,
            "features": NEWEST,
            "node": node(self.nodes[0]),
            "slices": self.slices,
            "classes": [CLASS],
            "claims": [self.claim],
            **more,
        }


def _gpu(index: int, where: str) -> Json:
    return device(
        f"gpu-{index}",
        attrs={
            "model": "H100",
            "uuid": f"GPU-{where}-{index}",
            "index": index,
            "numa": index // 4,
            "resource.kubernetes.io/pcieRoot": f"pci0000:{index:02x}",
        },
        cap={"memory": "80Gi"},
    )


def _gpus(where: str) -> Json:
    devices = (_gpu(index, where) for index in range(DEVICES))
    return slice_(f"{where}-gpus", *devices, pool=where, node=where)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"node-{index:05d}" for index in range(count))


def one_node() -> Case:
    asked = claim("c", request("gpu", cls="gpu", sel=[MODEL]))
    return Case("1 node x 8 devices, one device", [_gpus("node-00000")], asked, names(1))


def cluster(nodes: int = CLUSTER_NODES) -> Case:
    asked = claim("c", request("gpu", cls="gpu", sel=[MODEL]))
    slices = [_gpus(name) for name in names(nodes)]
    return Case(f"{nodes} nodes x 8 devices, one device", slices, asked, names(nodes))


def counters() -> Case:
    """Eight cards, each whole or as seven small partitions of its counters; four of the small ones and two whole cards."""
    where = "node-00000"
    devices = []
    for card in range(DEVICES):
        whole = {f"card-{card}": {"memory": "80Gi", "slices": 7}}
        devices.append(device(f"gpu-{card}", attrs={"profile": "whole"}, counters=whole))
        devices += [
            device(
                f"gpu-{card}-part-{part}",
                attrs={"profile": "small"},
                counters={f"card-{card}": {"memory": "10Gi", "slices": 1}},
            )
            for part in range(7)
        ]
    sets = [counter_set(f"card-{card}", memory="80Gi", slices=7) for card in range(DEVICES)]
    slices = [
        slice_("a-devices", *devices, pool=where, node=where, of=2),
        slice_("b-counters", counters=sets, pool=where, node=where, of=2),
    ]

    def of(profile: str, count: int) -> Json:
        selector = f'device.attributes["{DRIVER}"].profile == "{profile}"'
        return request(profile, count, cls="gpu", sel=[selector])

    asked = claim("c", of("small", 4), of("whole", 2))
    return Case("counters, 64 partitions of 8 cards, 6 devices", slices, asked, names(1))


def match_attribute() -> Case:
    """Two of eight GPUs and two of eight NICs at one PCIe root; only the last of each are at the same one."""
    where = "node-00000"

    def kind(name: str, roots: list[int]) -> list[Json]:
        return [
            device(f"{name}-{i}", attrs={"kind": name, "root": f"r{root}"})
            for i, root in enumerate(roots)
        ]

    gpus = kind("gpu", [0, 1, 2, 3, 4, 5, 6, 6])
    nics = kind("nic", [5, 4, 3, 2, 1, 0, 6, 6])
    slices = [slice_("devices", *gpus, *nics, pool=where, node=where)]

    def of(name: str) -> Json:
        selector = f'device.attributes["{DRIVER}"].kind == "{name}"'
        return request(name, 2, cls="gpu", sel=[selector])

    asked = claim("c", of("gpu"), of("nic"), constraints=[match(f"{DRIVER}/root")])
    return Case("matchAttribute, 2 of 8 GPUs with 2 of 8 NICs", slices, asked, names(1))


def unsatisfiable() -> Case:
    """64 devices that differ in nothing that matters: four of them with distinct values of what has three."""
    where = "node-00000"
    devices = (device(f"gpu-{i}", attrs={"group": f"g{i % 3}"}) for i in range(64))
    asked = claim("c", request("gpu", 4, cls="gpu"), constraints=[distinct(f"{DRIVER}/group")])
    slices = [slice_("devices", *devices, pool=where, node=where)]
    return Case("unsatisfiable, symmetric, 64 devices", slices, asked, names(1))


CASES: tuple[Callable[[], Case], ...] = (
    one_node,
    cluster,
    counters,
    match_attribute,
    unsatisfiable,
)


async def allocator(plan: Plan) -> None:
    """Milliseconds of a search: ours, and upstream's in the same run. A case that fails does not keep the others from running.

    Raises:
        BenchFailedError: some case did.
    """
    failures: list[str] = []
    with Oracle("allocate") as oracle:
        for make in CASES:
            case = make()
            series = _measured(case, plan, oracle, cold)
            _report(plan, series, "cold", f"{case.name}, cold, one node", COLD_REACH)
            failures += series.failures
        case = cluster()
        series = _measured(case, plan, oracle, whole_cluster)
    _report(plan, series, "first", f"{case.name}, cold, whole cluster", None)
    shape = f"{case.name}, whole cluster, asked again after a pod was placed"
    _report(plan, series, "again", shape, WARM_REACH)
    Series("allocator", failures + series.failures).end()


@dataclass(frozen=True)
class Pair:
    """Milliseconds."""

    ours: float
    upstream: float


Measure = Callable[[Case, Oracle], dict[str, Pair]]


def _measured(case: Case, plan: Plan, oracle: Oracle, measure: Measure) -> Series:
    """Pairs by what was measured, as sides `<what>` and `<what>, Go`."""
    series = Series("allocator")
    for repetition in range(plan.repetitions):
        try:
            pairs = measure(case, oracle)
        except Exception as error:
            series.failures.append(f"{case.name}: {type(error).__name__}: {error}")
            continue
        for what, pair in pairs.items():
            series.keep(what, repetition, pair.ours)
            series.keep(f"{what}, Go", repetition, pair.upstream)
    return series


def _report(plan: Plan, series: Series, what: str, shape: str, reach: float | None) -> None:
    row = series.row(
        f"{shape}, peer upstream's allocator (Go)",
        what,
        f"{what}, Go",
        "ms",
        better="lower",
        reach=reach,
    )
    report_all(plan, [row])


def cold(case: Case, oracle: Oracle) -> dict[str, Pair]:
    """One node, nothing known of its slices.

    Raises:
        RuntimeError: the two allocators do not agree.
    """
    question = case.question()
    seconds: list[float] = []
    upstream: list[float] = []
    count = 1
    for _ in range(ROUNDS):
        samples = _samples(question, count)
        # The first round tells how many there is time for.
        count = max(1, min(MOST_SAMPLES, int(SAMPLING_SECONDS / max(s for _, s in samples))))
        seconds += [taken for _, taken in samples]
        answer = oracle.ask(case.question(repeat=max(len(samples), 3)))
        upstream.append(answer["timing"]["allocateNanoseconds"] / 1e6)
        problem = difference(answer, answer_of(samples[-1][0]))
        if problem is not None:
            raise RuntimeError(f"{case.name}: {problem}")
    return {"cold": Pair(median(seconds) * 1e3, median(upstream))}


def _samples(question: Json, count: int) -> list[tuple[Outcome, float]]:
    """Outcomes with their seconds, one after the other as upstream's: each in objects of its own, decoded before."""
    asked = [_Asked(question) for _ in range(count)]
    # As timeit does: collecting what was decoded is not the search's work, in Go neither.
    gc.collect()
    gc.disable()
    try:
        return [each.search() for each in asked]
    finally:
        gc.enable()


class _Asked:
    """A question in objects that no memo of any kind can know."""

    def __init__(self, question: Json) -> None:
        typed = decode(question)
        self._claims = typed.claims
        self._features = features_of(typed.features)
        self._snapshot, self._node = snapshot_of(typed, self._features), node_of(typed.node)
        self._compiler = compiled(question)

    def search(self) -> tuple[Outcome, float]:
        """The outcome, and the seconds it took."""
        began = time.perf_counter()
        outcome = allocate(
            self._claims,
            self._node,
            self._snapshot,
            features=self._features,
            cel=self._compiler,
            new_share_id=share_ids(),
        )
        return outcome, time.perf_counter() - began


def compiled(question: Json) -> Compiler:
    """A compiler that knows the selectors of a question, and nothing of what they say of any device."""
    compiler = Compiler()
    selecting = [each["spec"] for each in question["classes"]]
    for asked in question["claims"]:
        selecting += [each["exactly"] for each in asked["spec"]["devices"]["requests"]]
    for each in selecting:
        for selector in each.get("selectors", ()):
            compiler.selector(selector["cel"]["expression"])
    return compiler


class Cluster:
    """The cluster of a case in the cache of a scheduler, with an engine that knows nothing yet."""

    def __init__(self, case: Case) -> None:
        question = case.question()
        typed = decode(question)
        self.cache = ClusterCache()
        self._claim = case.claim
        self._question = question
        self._version = 0
        self.cache.replace(Kind.NODE, [node_object(name) for name in case.nodes], self._next())
        self.cache.replace(Kind.RESOURCE_SLICE, typed.slices, self._next())
        self.cache.replace(Kind.DEVICE_CLASS, typed.classes, self._next())
        environment = Environment(
            features=features_of(typed.features),
            cel=compiled(question),
            now=lambda: NOW,
            new_share_id=share_ids(),
            mode=Mode.EXTENDER,
        )
        self.engine = Engine(environment)
        self.engine.follow(self.cache)

    def _next(self) -> int:
        self._version += 1
        return self._version

    def add_pod(self, name: str) -> Pod:
        """A pod with a claim as the case says."""
        metadata = {**self._claim["metadata"], "name": name, "uid": f"uid-{name}"}
        [made] = decode(
            {**self._question, "slices": [], "claims": [{**self._claim, "metadata": metadata}]}
        ).claims
        self.cache.apply(
            WatchEvent(Kind.RESOURCE_CLAIM, EventType.ADDED, ClaimRecord(made, b"{}"), self._next())
        )
        added = pod(name, claims=[name])
        self.cache.apply(WatchEvent(Kind.POD, EventType.ADDED, added, self._next()))
        return added

    def ask(self, asking: Pod) -> tuple[Attempt, int, float]:
        """Filter all nodes for a pod: its state, how many nodes fit, and the seconds that took."""
        began = time.perf_counter()
        state = self.engine.pre_filter(asking, self.cache)
        if not isinstance(state, Attempt):
            raise RuntimeError(str(state))
        result = self.engine.filter_nodes(state)
        if not isinstance(result, FilterResult):
            raise RuntimeError(str(result))
        fitting = len(result.feasible)
        return state, fitting, time.perf_counter() - began

    def place(self, state: Attempt) -> None:
        """Give the pod its devices, as a scheduler does between two decisions."""
        decision = self.engine.decide(state)
        if not isinstance(decision, engines.Plan):
            raise RuntimeError(str(decision))
        self.cache.hold(state.pod.metadata.uid, decision.held)
        self.cache.assume_pod(state.pod, decision.node_name)


def whole_cluster(case: Case, oracle: Oracle) -> dict[str, Pair]:
    """All nodes for one pod: the first time, and again for another pod after the first was placed.

    Raises:
        RuntimeError: another number of nodes fits than upstream says.
    """
    first: list[float] = []
    again: list[float] = []
    upstream: list[float] = []
    question = case.question(repeat=1, nodes=[node(name) for name in case.nodes])
    for _ in range(ROUNDS):
        asked = Cluster(case)
        fits: set[int] = set()
        # No more pods than a node has devices: every node fits to the end.
        for at in range(DEVICES):
            state, fitting, taken = asked.ask(asked.add_pod(f"pod-{at}"))
            (again if at else first).append(taken)
            fits.add(fitting)
            asked.place(state)
        timing = oracle.ask(question)["timing"]
        upstream.append((timing["setupNanoseconds"] + timing["allocateNanoseconds"]) / 1e6)
        if fits != {timing["fitting"]}:
            raise RuntimeError(f"{case.name}: {fits} nodes fit, upstream says {timing['fitting']}")
    return {
        "first": Pair(median(first) * 1e3, median(upstream)),
        "again": Pair(median(again) * 1e3, median(upstream)),
    }
