"""The engine on a cache with a history is the plain cycle on a cache made just now: whatever came in which order.

`test_engine` compares on one cache. Here every input is made again from nothing after every event, and the events are
those by which something that is kept can go out of step: nodes that come after their pods, or go and come back; pods
that are only decided; classes that go and come back; slices without node; lists in place of events.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from allocator.cel import Compiler
from scheduler import cycle
from scheduler.cache.assume import AssumeCache
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import Store
from scheduler.engine import Engine, Plan
from scheduler.framework.cycle_state import CycleState, FilterResult
from scheduler.framework.environment import Environment
from scheduler.framework.status import Status
from scheduler.model import Affinity, Kind, Pod
from scheduler.plugins.anti_affinity import REQUIRED, repelling_pods
from scheduler.plugins.repelling import RepellingPods
from tests.pods import node_object, pod
from tests.scheduler.engine.test_engine import (
    EVERYTHING_ON,
    NODES,
    Story,
    differences,
    planned,
    summed_up,
    told,
)
from tests.scheduler.world import World, environment

KEYS = ("kubernetes.io/hostname", "zone")


def from_nothing(cache: ClusterCache) -> ClusterCache:
    """A cache that was given the same objects just now, each kind as one list."""
    made = ClusterCache(counts_claims=True)
    for kind, store in cache._stores.items():
        assert isinstance(store, Store | AssumeCache)
        objects = list(store.watched if isinstance(store, AssumeCache) else store)
        made.replace(kind, objects, store.resource_version)
    for waiting, node_name in cache._assumed_pods.values():
        made.assume_pod(waiting, node_name)
    for uid in cache._in_flight.claims:
        record = cache.claim_by_uid(uid)
        assert record is not None
        allocation = cache.in_flight(uid)
        assert allocation is not None
        made.hold(f"holder of {uid}", {uid: (record.claim, allocation)})
    return made


def loner(name: str, node_name: str, about: str, key: str) -> Pod:
    """A running pod that wants no pod with this label near it."""
    term = {"labelSelector": {"matchLabels": {"app": about}}, "topologyKey": key}
    affinity = Affinity(pod_anti_affinity={REQUIRED: [term]})
    return pod(name, node_name=node_name, affinity=affinity, labels={"app": about})


class WholeStory(Story):
    """A random life in which things come in any order."""

    def __init__(self, seed: int, engine: Engine) -> None:
        super().__init__(seed, engine)
        self.loners: dict[str, Pod] = {}
        self.assumed: list[Pod] = []
        if seed % 2:
            engine.follow(self.world.cache)

    def _events(self) -> list[Callable[[], None]]:
        return [
            *super()._events(),
            *[self._loner] * 4,
            self._loner_ends,
            *[self._node_goes] * 2,
            *[self._assume] * 2,
            self._assumption_ends,
            self._class_goes,
            self._labels_of_loner,
            *[self._relist] * 3,
        ]

    def _loner(self) -> None:
        """Often on a node that is not there, or not there yet."""
        name, node_name = f"loner-{self.rng.randrange(4)}", self.rng.choice((*NODES, "n8", "n9"))
        known = self.loners.get(name)
        if known is not None:
            self.world.remove(known)
        made = loner(name, node_name, self.rng.choice("xy"), self.rng.choice(KEYS))
        uid = f"uid-{name}-{self.made}-{self.rng.random()}"
        made = msgspec.structs.replace(made, metadata=_with(made.metadata, uid=uid))
        self.loners[name] = made
        self.world.put(made)

    def _loner_ends(self) -> None:
        if not self.loners:
            return
        name = self.rng.choice(sorted(self.loners))
        gone = self.loners.pop(name)
        if self.rng.random() < 0.5:
            self.world.remove(gone)
        else:
            self.world.put(_with(gone, status=_with(gone.status, phase="Succeeded")))

    def _labels_of_loner(self) -> None:
        """Its terms stay, its labels do not; nor, sometimes, its terms."""
        if self.loners:
            name = self.rng.choice(sorted(self.loners))
            other = _with(self.loners[name], metadata=_with(self.loners[name].metadata, labels={}))
            if self.rng.random() < 0.5:
                other = _with(other, spec=_with(other.spec, affinity=None))
            self.world.put(other)

    def _node_goes(self) -> None:
        name = self.rng.choice((*NODES, "n8", "n9"))
        if self.world.cache.node(name) is None:
            self._node(name)
        else:
            self.world.remove(self.world.cache.node(name))

    def _assume(self) -> None:
        """A decision that no watch has shown yet, of a pod that repels others too."""
        self.made += 1
        node_name = self.rng.choice(NODES)
        decided = loner(f"assumed-{self.made}", "", self.rng.choice("xy"), self.rng.choice(KEYS))
        self.world.put(decided)
        known = self.world.cache.pod(decided.metadata.uid)
        assert known is not None
        self.world.cache.assume_pod(known, node_name)
        self.assumed.append(known)

    def _assumption_ends(self) -> None:
        if not self.assumed:
            return
        decided = self.assumed.pop(0)
        self.world.cache.forget_pod(decided.metadata.uid)
        if self.rng.random() < 0.5:
            node_name = self.rng.choice(NODES)
            self.world.put(_with(decided, spec=_with(decided.spec, node_name=node_name)))
        else:
            self.world.remove(decided)

    def _class_goes(self) -> None:
        gone = self.world.cache.device_class("big")
        if gone is None:
            self._class("big")
        else:
            self.world.remove(gone)

    def _relist(self) -> None:
        """A watch was cut: a list says what has become of a kind, all at once."""
        kind = self.rng.choice(list(Kind))
        cache = self.world.cache
        store = cache._stores[kind]
        objects: list[Any] = list(store.watched if isinstance(store, AssumeCache) else store)
        if kind in (Kind.NODE, Kind.RESOURCE_SLICE, Kind.DEVICE_TAINT_RULE):
            objects = [each for each in objects if self.rng.random() < 0.8]
        if kind is Kind.POD:
            gone = {name for name in sorted(self.loners) if self.rng.random() < 0.3}
            for name in gone:
                del self.loners[name]
            objects = [each for each in objects if each.metadata.name not in gone]
            made = loner("loner-9", self.rng.choice(NODES), "x", self.rng.choice(KEYS))
            uid = f"uid-{self.rng.random()}"  # as if made anew under the same name
            self.world._version += 1
            meta = _with(made.metadata, uid=uid, resource_version=str(self.world._version))
            objects = [each for each in objects if each.metadata.name != "loner-9"]
            objects.append(_with(made, metadata=meta))
        self.world._version += 1
        cache.replace(kind, objects, self.world._version)

    def _bind(self) -> None:
        waiting, claims = self._pod()
        state = self.engine.pre_filter(waiting, self.world.cache)
        if isinstance(state, Status):
            return
        decision = self.engine.decide(state)
        if isinstance(decision, Plan):
            allocations = dict(decision.allocations)
            self.world.bind(waiting, decision.node_name, allocations, decision.demand)
            self.bound.append((waiting, claims))

    def _pod(self) -> tuple[Pod, list[str]]:
        waiting, claims = super()._pod()
        labels = self.rng.choice(({"app": "x"}, {"app": "y"}, None))
        waiting = _with(waiting, metadata=_with(waiting.metadata, labels=labels))
        self.world.put(waiting)
        return waiting, claims

    def ask(self) -> None:
        waiting, claims = self._pod()
        fresh = from_nothing(self.world.cache)
        assert differences(self.engine, waiting, self.world, fresh) == []
        self._decide(waiting, fresh)
        self.world.remove(waiting)
        for name in claims:
            self.world.remove(self.world.cache.claim("default", name))

    def _decide(self, waiting: Pod, fresh: ClusterCache) -> None:
        state = self.engine.pre_filter(waiting, self.world.cache)
        plain_state = cycle.pre_filter(waiting, fresh, plain(self.engine.environment))
        if isinstance(state, Status) or isinstance(plain_state, Status):
            return
        decided, expected = self.engine.decide(state), cycle.filter_nodes(plain_state)
        name = cycle.select_node(plain_state, expected.fitting)
        if name is None:
            assert isinstance(decided, FilterResult)
            assert summed_up(decided) == summed_up(expected)
        else:
            assert isinstance(decided, Plan)
            assert decided.node_name == name
            assert planned(decided) == told(expected.fitting[name])


def plain(known: Environment) -> Environment:
    return replace(known, cel=Compiler())


def _with(item: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(item, **fields)


@pytest.mark.parametrize("seed", range(8))
def test_after_every_event_the_engine_answers_as_if_it_had_just_begun(seed: int) -> None:
    env = environment(features=EVERYTHING_ON) if seed % 4 == 3 else environment()
    engine = Engine(env, check_every=1)

    WholeStory(seed, engine).play(40)

    assert engine.mismatches == 0
    assert engine.reused > 0


@pytest.mark.parametrize("has_log", [True, False])
def test_pods_that_repel_are_those_of_whatever_snapshot_is_asked_about(has_log: bool) -> None:
    """Also of an older one, which an attempt of some slices ago may still hold."""
    story = WholeStory(5, Engine(environment(), check_every=0))
    kept, snapshots = RepellingPods(), []
    for _ in range(120):
        story.rng.choice([story._loner, story._loner_ends, story._node_goes, story._relist])()
        snapshots.append(story.world.cache.snapshot())
        asked = story.rng.choice((snapshots[-1], snapshots[-1], story.rng.choice(snapshots)))
        if not has_log:
            asked = replace(asked, changes=None)

        found = [(each.metadata.uid, dict(labels)) for each, labels in kept.of(asked)]
        expected = [(each.metadata.uid, dict(labels)) for each, labels in repelling_pods(asked)]
        assert sorted(found, key=str) == sorted(expected, key=str)


def test_a_node_that_comes_after_its_pods() -> None:  # fault core 13
    runs = loner("runs", "n1", "x", KEYS[0])
    world = World(runs)
    engine = Engine(environment(), check_every=1)
    engine.follow(world.cache)
    world.put(node_object("n1"), pod("p", labels={"app": "x"}))

    state = engine.pre_filter(pod("p", labels={"app": "x"}), world.cache)

    assert isinstance(state, CycleState)
    assert isinstance(engine.decide(state), FilterResult)
    assert engine.mismatches == 0
