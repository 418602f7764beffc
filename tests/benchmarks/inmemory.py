"""A big cluster in the cache, with no API server: what decisions cost by themselves."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from allocator.cel import Compiler
from allocator.features import Features
from allocator.model.devices import Device
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent
from scheduler.engine.engine import Decision, Engine
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.environment import Environment, Mode
from scheduler.model import ClaimRecord, Kind, NodeObject, Pod
from tests.builders import claim, device, device_class, request, resource_slice
from tests.pods import node_object, pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEVICES = 8


def environment(mode: Mode) -> Environment:
    """As a running process has it."""
    return Environment(
        features=Features(),
        cel=Compiler(),
        now=lambda: NOW,
        new_share_id=lambda *_: "00000000-0000-4000-8000-000000000000",
        mode=mode,
    )


def gpus(node: str, count: int = DEVICES) -> list[Device]:
    """Devices of a node."""
    return [
        device(
            f"gpu-{index}",
            model="H100",
            uuid=f"GPU-{node}-{index}",
            numa=index // 4,
            capacity={"memory": "80Gi"},
        )
        for index in range(count)
    ]


class BigCluster:
    """Nodes with eight devices each, that differ in uuid and index as real ones do."""

    def __init__(self, nodes: int) -> None:
        self.cache = ClusterCache()
        self._version = 0
        names = [f"node-{index:05d}" for index in range(nodes)]
        self.cache.replace(Kind.NODE, [self._node(name) for name in names], self._next())
        self.cache.replace(
            Kind.RESOURCE_SLICE,
            [resource_slice(f"{name}-gpus", *gpus(name), pool=name, node=name) for name in names],
            self._next(),
        )
        self.cache.replace(Kind.DEVICE_CLASS, [device_class()], self._next())
        self.names = names

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _node(self, name: str) -> NodeObject:
        return node_object(name)

    def add_pod(self, name: str) -> Pod:
        """A pod with one unallocated claim for one device."""
        made = claim(name, request())
        self.cache.apply(
            WatchEvent(Kind.RESOURCE_CLAIM, EventType.ADDED, ClaimRecord(made, b"{}"), self._next())
        )
        added = pod(name, claims=[name])
        self.cache.apply(WatchEvent(Kind.POD, EventType.ADDED, added, self._next()))
        return added


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
    worst = 0.0
    began = time.perf_counter()
    for each in waiting:
        start = time.perf_counter()
        state = engine.pre_filter(each, cluster.cache)
        if not isinstance(state, CycleState):
            raise RuntimeError(str(state))
        decision = engine.decide(state)
        if not isinstance(decision, Decision):
            raise RuntimeError(str(decision))
        allocations = decision.verdict.allocations
        cluster.cache.hold(
            each.metadata.uid, {c.uid: (c.claim, allocations[c.uid]) for c in state.claims}
        )
        cluster.cache.assume_pod(each, decision.node_name)
        worst = max(worst, time.perf_counter() - start)
    return Decisions(nodes, pods / (time.perf_counter() - began), worst)
