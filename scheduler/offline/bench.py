"""How fast the engine is on a cluster, without a cluster: start-up, one filter call, and decision after decision.

Times are those of the engine alone: nothing is sent and nothing written. Whoever measures passes the timer.
"""

import gc
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from allocator.cel import Compiler
from scheduler.cache.cluster import ClusterCache
from scheduler.engine import Attempt, Engine, LongSearch, Plan
from scheduler.framework.cycle_state import FilterResult
from scheduler.framework.environment import Environment, Mode
from scheduler.framework.status import Code, Status
from scheduler.model import Kind, Pod
from scheduler.offline.inventory import InputError, take_inventory
from scheduler.offline.listed import FIRST_VERSION, ListedCluster, Lists, Timer, pages
from scheduler.offline.manifests import Manifest
from scheduler.offline.progress import Progress
from scheduler.offline.simulate import (
    SimulationOptions,
    environment_of,
    in_order,
    is_daemon_eligible,
)

CALLS: Final = 100
"""Filter calls after the first one, each after one node has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What to measure on.

    Attributes:
        source: `synthetic` or `manifests`.
        lists: the cluster, pods that wait included.
        errors: objects left out.
        notes: what else a person should know.
    """

    source: str
    lists: Lists
    errors: tuple[InputError, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of one of several like things: median, 99th percentile, and the longest."""

    p50: float
    p99: float
    worst: float


@dataclass(frozen=True, slots=True)
class Work:
    """How often the answer of a node was wanted, and how often it had to be searched for."""

    lookups: int
    searches: int

    @property
    def from_memory(self) -> int:
        """Answers that needed no search."""
        return max(0, self.lookups - self.searches)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """From the bytes of lists to a cluster that can be asked about. Seconds."""

    decode_seconds: float
    index_seconds: float
    objects: int

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.decode_seconds + self.index_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterFigures:
    """Asking about all nodes, as kube-scheduler asks the extender.

    Attributes:
        nodes: asked about in each call.
        views_ms: making the views of all nodes, which a running extender does before it is ready.
        first_ms: the first time that anything is asked.
        again: the same question, each time after one node has changed.
        calls: how often.
        work: of all calls.
    """

    nodes: int
    views_ms: float
    first_ms: float
    again: Times
    calls: int
    work: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFigures:
    """Deciding pod after pod, as the stand-alone scheduler does.

    Attributes:
        pods: that were decided.
        placed: that got a node, and their devices.
        refused: that fit nowhere, at least now.
        failed: whose attempt ended in an error.
        per_second: decisions.
        one: a decision, what it decided held and counted included.
        work: of all decisions.
    """

    pods: int
    placed: int
    refused: int
    failed: int
    per_second: float
    one: Times
    work: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that was measured.

    Attributes:
        source: `synthetic` or `manifests`.
        nodes: how many.
        devices: how many.
        pods: that waited.
        startup: decode and index.
        filter: None if no waiting pod could be asked about.
        decisions: about all waiting pods.
        peak_rss_bytes: most memory this process has had; None where the system does not tell.
    """

    source: str
    nodes: int
    devices: int
    pods: int
    startup: StartUp
    filter: FilterFigures | None
    decisions: DecisionFigures
    peak_rss_bytes: int | None


def workload_of(manifests: Sequence[Manifest], options: SimulationOptions) -> Workload:
    """The manifests as a cluster, as `simulate` takes them: those of their pods that have no node are the workload."""
    inventory = take_inventory(
        manifests, options.features, partial(is_daemon_eligible, environment_of(options))
    )
    objects: dict[Kind, list[Any]] = {
        Kind.NODE: inventory.nodes,
        Kind.POD: inventory.pods,
        Kind.RESOURCE_CLAIM: list(inventory.claims.values()),
        Kind.RESOURCE_SLICE: inventory.slices,
        Kind.DEVICE_CLASS: inventory.classes,
        Kind.DEVICE_TAINT_RULE: inventory.rules,
    }
    return Workload(
        source="manifests",
        lists={kind: pages(kind, map(_undated, some)) for kind, some in objects.items()},
        errors=tuple(inventory.errors),
        notes=tuple(inventory.notes),
    )


def _undated(item: Any) -> Any:
    """The object in the version of the list: those of manifests may be from several clusters, or text."""
    metadata = msgspec.structs.replace(item.metadata, resource_version=str(FIRST_VERSION))
    return msgspec.structs.replace(item, metadata=metadata)


def measure(
    workload: Workload, options: SimulationOptions, timer: Timer, progress: Progress
) -> Figures:
    """Measure everything, once. Consumes the workload.

    Args:
        workload: on what.
        options: gates, policy and budget.
        timer: seconds.
        progress: told what is going on, how far it is, and how far it goes; never while something is timed.
    """
    progress("start-up", 0, 1)
    cluster = ListedCluster(
        workload.lists,
        timer,
        consumable_capacity=options.features.consumable_capacity,
        counts_claims=options.features.node_allocatable_resources,
    )
    gc.collect()
    gc.freeze()  # as a running process does once it has read the cluster
    environment = environment_of(options)
    pods = in_order(cluster.cache.pods())
    filtered = measure_filter(
        cluster,
        replace(
            environment, mode=Mode.EXTENDER, cel=Compiler()
        ),  # nothing learned for the decisions
        pods,
        timer,
        progress,
    )
    engine = Engine(environment)
    engine.follow(cluster.cache)
    decisions = measure_decisions(cluster.cache, engine, pods, timer, progress)
    return Figures(
        source=workload.source,
        nodes=len(cluster.names),
        devices=cluster.devices,
        pods=len(pods),
        startup=StartUp(
            decode_seconds=cluster.decode_seconds,
            index_seconds=cluster.index_seconds,
            objects=cluster.objects,
        ),
        filter=filtered,
        decisions=decisions,
        peak_rss_bytes=peak_rss_bytes(),
    )


def measure_filter(
    cluster: ListedCluster,
    environment: Environment,
    pods: Sequence[Pod],
    timer: Timer,
    progress: Progress,
    calls: int = CALLS,
) -> FilterFigures | None:
    """Ask about all nodes again and again, one node changed in between. The cluster is afterwards as it was.

    Returns:
        None if no pod can be asked about, or there are no nodes.
    """
    cache, names = cluster.cache, cluster.names
    # With an engine and a compiler of its own: the first question is to be the first one.
    pod = _pod_to_ask_about(Engine(replace(environment, cel=Compiler())), cache, pods)
    if pod is None or not names:
        return None
    engine = Engine(environment)
    engine.follow(cache)
    began = timer()
    for _ in engine.warm(cache.snapshot()):
        pass
    views = timer() - began
    seconds: list[float] = []
    for call in range(calls + 1):
        progress("filter", call, calls + 1)
        if call:
            cluster.touch(names[(call - 1) % len(names)])
        began = timer()
        state = engine.pre_filter(pod, cache)
        if isinstance(state, Attempt):
            engine.filter_nodes(state, names)
        seconds.append(timer() - began)
    cluster.restore()
    return FilterFigures(
        nodes=len(names),
        views_ms=views * 1000,
        first_ms=seconds[0] * 1000,
        again=times(seconds[1:]),
        calls=calls,
        work=Work(engine.looked_up, engine.searches),
    )


def _pod_to_ask_about(engine: Engine, cache: ClusterCache, pods: Sequence[Pod]) -> Pod | None:
    """The first pod that needs devices; else the first that nothing keeps from all nodes."""
    other = None
    for pod in pods:
        state = engine.pre_filter(pod, cache)
        if isinstance(state, Status):
            continue
        if state.unallocated:
            return pod
        other = other or pod
    return other


def measure_decisions(
    cache: ClusterCache,
    engine: Engine,
    pods: Sequence[Pod],
    timer: Timer,
    progress: Progress,
) -> DecisionFigures:
    """Decide pod after pod; each decision is held and counted before the next one, as if it were being written."""
    seconds: list[float] = []
    ends = dict.fromkeys(("placed", "refused", "failed"), 0)
    for done, pod in enumerate(pods):
        progress("decisions", done, len(pods))
        began = timer()
        failure = _decide(cache, engine, pod)
        seconds.append(timer() - began)
        if failure is None:
            ends["placed"] += 1
        else:
            ends["failed" if failure.code is Code.ERROR else "refused"] += 1
    total = sum(seconds)
    return DecisionFigures(
        pods=len(pods),
        **ends,
        per_second=len(pods) / total if total else 0.0,
        one=times(seconds),
        work=Work(engine.looked_up, engine.searches),
    )


def _decide(cache: ClusterCache, engine: Engine, pod: Pod) -> Status | None:
    """Decide one pod; returns why it has no node."""
    state = engine.pre_filter(pod, cache)
    if isinstance(state, Status):
        return state
    decided: Plan | FilterResult | LongSearch | None = None
    while decided is None:
        decided = engine.decide(state)
    if isinstance(decided, FilterResult):
        return decided.failure
    if isinstance(decided, LongSearch):
        raise AssertionError(f"the search for {pod.key} ran out of time, and has none offline")  # noqa: TRY004
    cache.hold(pod.metadata.uid, decided.held)
    cache.assume_pod(pod, decided.node_name, decided.demand)
    return None


def times(seconds: Sequence[float]) -> Times:
    """Percentiles by nearest rank; all zero if there is nothing."""
    if not seconds:
        return Times(0.0, 0.0, 0.0)
    ordered = sorted(seconds)

    def rank(percent: int) -> float:
        return ordered[-(-percent * len(ordered) // 100) - 1] * 1000

    return Times(rank(50), rank(99), ordered[-1] * 1000)


def peak_rss_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """Most memory this process has had in RAM.

    `getrusage` counts what the process was before it became this program, so it is asked only where there is no /proc.
    """
    try:
        lines = status.read_text(encoding="ascii").splitlines()
    except OSError:
        return _rss_of_rusage()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def _rss_of_rusage() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if platform.system() == "Darwin" else most * 1024


def as_tree(figures: Figures) -> dict[str, Any]:
    """Plain data, for scripts; `scheduler.cli.bench` shows the shape."""
    startup, filtered, decisions = figures.startup, figures.filter, figures.decisions
    return {
        "python": platform.python_version(),
        "cluster": {
            "source": figures.source,
            "nodes": figures.nodes,
            "devices": figures.devices,
            "pods": figures.pods,
        },
        "startup": {
            "seconds": round(startup.seconds, 4),
            "decodeSeconds": round(startup.decode_seconds, 4),
            "indexSeconds": round(startup.index_seconds, 4),
            "objects": startup.objects,
        },
        "filter": filtered
        and {
            "nodes": filtered.nodes,
            "viewsMs": round(filtered.views_ms, 3),
            "firstMs": round(filtered.first_ms, 3),
            "againMs": _times_tree(filtered.again),
            "calls": filtered.calls,
            **_work_tree(filtered.work),
        },
        "decisions": {
            "pods": decisions.pods,
            "placed": decisions.placed,
            "refused": decisions.refused,
            "failed": decisions.failed,
            "perSecond": round(decisions.per_second, 1),
            "ms": _times_tree(decisions.one),
            **_work_tree(decisions.work),
        },
        "peakRssBytes": figures.peak_rss_bytes,
    }


def _times_tree(some: Times) -> dict[str, float]:
    return {"p50": round(some.p50, 3), "p99": round(some.p99, 3), "worst": round(some.worst, 3)}


def _work_tree(work: Work) -> dict[str, int]:
    return {"lookups": work.lookups, "searches": work.searches, "fromMemory": work.from_memory}
