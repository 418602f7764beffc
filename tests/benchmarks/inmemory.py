"""A big cluster in the cache, with no API server: what decisions cost by themselves."""

import gc
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from allocator.cel import Compiler
from allocator.features import Features
from scheduler.engine.engine import Engine
from scheduler.framework.environment import Environment, Mode
from scheduler.offline.bench import measure_decisions
from scheduler.offline.synthetic import SyntheticCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def environment(mode: Mode) -> Environment:
    """As a running process has it."""
    return Environment(
        features=Features(),
        cel=Compiler(),
        now=lambda: NOW,
        new_share_id=lambda *_: "00000000-0000-4000-8000-000000000000",
        mode=mode,
    )


class BigCluster(SyntheticCluster):
    """Nodes with eight devices each, and pods that ask for one; the cluster of `dra-scheduler bench`."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes, time.perf_counter)


@dataclass(frozen=True)
class Decisions:
    """Stand-alone decisions with nobody to write them down."""

    nodes: int
    per_second: float
    worst_seconds: float


def decide(nodes: int, pods: int) -> Decisions:
    """Decide and hold, one pod after the other."""
    cluster = BigCluster(nodes)
    engine = Engine(environment(Mode.STANDALONE))
    engine.follow(cluster.cache)  # as the loop does
    waiting = [cluster.add_pod(f"pod-{index}") for index in range(pods)]
    gc.collect()
    gc.freeze()  # as a running process does once it has read the cluster
    try:
        figures = measure_decisions(
            cluster.cache, engine, waiting, time.perf_counter, lambda _what, _done, _total: None
        )
    finally:
        gc.unfreeze()
    if figures.placed != pods:
        raise RuntimeError(str(figures))
    return Decisions(nodes, figures.per_second, figures.one.worst / 1000)
