"""The crash sweep: our process is killed at each of its writes, in each phase of the write, and the next one makes good.

`python -m e2e.crashes --points 15 --seed 1`. A point is a write (finalizer, status, binding, undo, give-back, pod
condition, wake-up, sweep of a takeover; create, renew, release the lease), a phase, the number of claims, and who comes
after: the same replica again, or another that was standing by. After each point the whole history is judged (S1-S15,
L1-L6), and the end has to be that of a run without a crash, up to the names of devices.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from e2e.harness import objects
from e2e.harness.api import CLAIMS, LEASES, NODES, PODS, SLICES, Object
from e2e.harness.cluster import Cluster
from e2e.harness.controlplane import SERVICE_NAMESPACE
from e2e.harness.outcome import end_state
from e2e.harness.proxy import Call, Fault
from e2e.harness.stage import SHORT, Name, Replica, Stage
from tests.invariants import Judge

Phase = Literal["before", "in flight", "committed", "delivered"]
After = Literal["restart", "takeover"]
PHASES: tuple[Phase, ...] = ("before", "in flight", "committed", "delivered")
AFTER: tuple[After, ...] = ("restart", "takeover")
MODES: tuple[Name, ...] = ("standalone", "fast")
WRITES = (
    "finalizer",
    "status",
    "binding",
    "undo",
    "give-back",
    "condition",
    "wake-up",
    "stamp",
    "lease create",
    "lease renew",
    "lease release",
)
OF_CLAIMS = ("finalizer", "status", "binding", "undo")
CLAIM_COUNTS = (1, 3)
WRITE = "PUT|PATCH"
LEASE = re.escape(LEASES.path(SERVICE_NAMESPACE)) + "(/dra-scheduler)?"
SENTINEL = re.escape(CLAIMS.path(SERVICE_NAMESPACE, "dra-scheduler-wakeup"))
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Point:
    """Where it is killed, and what comes after."""

    mode: Name
    write: str
    claims: int
    phase: Phase
    after: After

    def __str__(self) -> str:
        return f"{self.mode} {self.write} x{self.claims} {self.phase} → {self.after}"


def all_points() -> list[Point]:
    """Every point that makes sense."""
    return [
        Point(mode, write, claims, phase, after)
        for mode, write, claims, phase, after in itertools.product(
            MODES, WRITES, CLAIM_COUNTS, PHASES, AFTER
        )
        if (claims == 1 or write in OF_CLAIMS)
        # kube-scheduler writes the conditions of its pods; stand-alone needs no waking.
        and (mode, write) not in {("fast", "condition"), ("standalone", "wake-up")}
    ]


def drawn_points(seed: int) -> list[Point]:
    """All points in an order in which the first few have each write about equally often."""
    rng = random.Random(f"points {seed}")
    by_write: dict[str, list[Point]] = {write: [] for write in WRITES}
    for point in all_points():
        by_write[point.write].append(point)
    for points in by_write.values():
        rng.shuffle(points)
    turns = itertools.zip_longest(*by_write.values())
    return [point for turn in turns for point in turn if point is not None]


@dataclass
class Scene:
    """One point on its way: the corner of the cluster, and what the kill waits for."""

    stage: Stage
    cluster: Cluster
    point: Point
    rng: random.Random
    died: asyncio.Event = field(default_factory=asyncio.Event)
    kills: bool = True

    def claim_names(self) -> list[str]:
        return [f"c{i}" for i in range(self.point.claims)]


class Story:
    """How a write is provoked: `before` the kill is armed, `act`, and `after` the next process leads."""

    method = WRITE
    pods: tuple[str, ...] = ("a",)

    def path(self, scene: Scene) -> str:
        raise NotImplementedError

    def when(self, scene: Scene) -> Callable[[Call], bool] | None:
        return None

    def faults(self, scene: Scene) -> list[Fault]:
        """Further faults that provoke it."""
        return []

    async def before(self, scene: Scene) -> None:
        await scene.cluster.add_nodes(2, devices=4)
        for name in scene.claim_names():
            await scene.cluster.claim(name)

    async def act(self, scene: Scene, leader: Replica) -> None:
        await scene.cluster.pod("a", claims={name: name for name in scene.claim_names()})

    async def after(self, scene: Scene) -> None:
        """What the cluster does later."""


class OfClaim(Story):
    """A write of one of the pod's claims."""

    subresource = ""

    def path(self, scene: Scene) -> str:
        name = scene.rng.choice(scene.claim_names())
        return re.escape(CLAIMS.path(scene.cluster.namespace, name) + self.subresource)


class OfStatus(OfClaim):
    subresource = "/status"

    def when(self, scene: Scene) -> Callable[[Call], bool]:
        return has_allocation


class OfBinding(Story):
    method = "POST"

    def path(self, scene: Scene) -> str:
        return re.escape(PODS.path(scene.cluster.namespace, "a") + "/binding")


class OfUndo(OfStatus):
    """The Binding is refused for good, so the claims are given up."""

    def when(self, scene: Scene) -> Callable[[Call], bool]:
        return lambda call: not has_allocation(call)

    def faults(self, scene: Scene) -> list[Fault]:
        path = re.escape(PODS.path(scene.cluster.namespace, "a") + "/binding")
        return [Fault("POST", path, answer=(403, "injected"), name="refused")]


class OfGiveBack(OfUndo):
    """The pod's claim is allocated on a node that does not take the pod."""

    def faults(self, scene: Scene) -> list[Fault]:
        return []

    async def before(self, scene: Scene) -> None:
        cluster = scene.cluster
        cluster.tolerated.add("S10")  # it is we who allocate it, for nobody
        nodes = await cluster.add_nodes(2, devices=4)
        body: Object = {"spec": {"unschedulable": True}}
        await cluster.api.patch(NODES, nodes[0], body)
        await cluster.claim("c0", finalizer=True)
        result = {
            "request": "gpu",
            "driver": cluster.driver,
            "pool": nodes[0],
            "device": "gpu-0",
        }
        selector = {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [nodes[0]]}]}
            ]
        }
        allocation: Object = {
            "devices": {"results": [result]},
            "nodeSelector": selector,
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        }
        await cluster.api.patch(
            CLAIMS,
            "c0",
            {"status": {"allocation": allocation}},
            namespace=cluster.namespace,
            subresource="status",
        )


class OfLateDevices(Story):
    """The pod fits nowhere at first."""

    async def before(self, scene: Scene) -> None:
        await scene.cluster.add_nodes(2)
        for name in scene.claim_names():
            await scene.cluster.claim(name)

    async def after(self, scene: Scene) -> None:
        await publish(scene)


class OfCondition(OfLateDevices):
    def path(self, scene: Scene) -> str:
        return re.escape(PODS.path(scene.cluster.namespace, "a") + "/status")


class OfWakeUp(OfLateDevices):
    def path(self, scene: Scene) -> str:
        return SENTINEL

    async def act(self, scene: Scene, leader: Replica) -> None:
        await super().act(scene, leader)
        await scene.cluster.refused("a")
        await publish(scene)

    async def after(self, scene: Scene) -> None:
        return


class OfStamp(OfLateDevices):
    """A new leader is killed while it makes the writes of the old one fail."""

    method = "PATCH"

    def path(self, scene: Scene) -> str:
        return re.escape(CLAIMS.path(scene.cluster.namespace, "c0"))

    async def act(self, scene: Scene, leader: Replica) -> None:
        await super().act(scene, leader)
        await scene.cluster.refused("a")
        if scene.kills:
            await scene.stage.take_down(leader, kill=True)
            await scene.stage.start(leader)


class OfLease(Story):
    """A pod comes while the lease is written."""

    def path(self, scene: Scene) -> str:
        return LEASE

    def when(self, scene: Scene) -> Callable[[Call], bool]:
        return lambda call: bool(call.json()["spec"]["holderIdentity"])


class OfRelease(OfLease):
    def when(self, scene: Scene) -> Callable[[Call], bool]:
        return lambda call: not call.json()["spec"]["holderIdentity"]

    async def act(self, scene: Scene, leader: Replica) -> None:
        if scene.kills:
            await scene.stage.take_down(leader)
        await super().act(scene, leader)


class OfCreate(OfLease):
    method = "POST"

    async def act(self, scene: Scene, leader: Replica) -> None:
        if scene.kills:
            stage = scene.stage
            running = [r for r in stage.replicas if r.service.process.running]
            await asyncio.gather(*map(stage.take_down, running))
            await stage.api.delete(LEASES, "dra-scheduler", SERVICE_NAMESPACE)
            for replica in running:
                await stage.start(replica, wait=False)
        await super().act(scene, leader)


STORIES: dict[str, Story] = {
    "finalizer": OfClaim(),
    "status": OfStatus(),
    "binding": OfBinding(),
    "undo": OfUndo(),
    "give-back": OfGiveBack(),
    "condition": OfCondition(),
    "wake-up": OfWakeUp(),
    "stamp": OfStamp(),
    "lease create": OfCreate(),
    "lease renew": OfLease(),
    "lease release": OfRelease(),
}


def has_allocation(call: Call) -> bool:
    return bool((call.json().get("status") or {}).get("allocation"))


async def publish(scene: Scene) -> None:
    """The devices come."""
    nodes = scene.cluster.node_names
    for node in nodes:
        devices = [objects.device(f"gpu-{i}") for i in range(4)]
        await scene.cluster.create(SLICES, scene.cluster.slice(node, devices))


def kill_at(scene: Scene, replica: Replica, story: Story, path: str) -> Fault:
    """The fault that kills this replica at the point's phase of the write."""
    stage = scene.stage

    async def kill(_: Call) -> None:
        await stage.take_down(replica, kill=True)
        scene.died.set()

    async def kill_and_linger(call: Call) -> None:
        """What is on the wire comes later than the death of its sender, perhaps with the next one at work."""
        await kill(call)
        await asyncio.sleep(scene.rng.uniform(0.1, 4.0))

    async def kill_soon(call: Call) -> None:
        await asyncio.sleep(scene.rng.choice((0.0, 0.0005, 0.001, 0.002, 0.004)))
        await kill(call)

    hooks: dict[Phase, dict[str, Any]] = {
        "before": {"before": kill, "lost": True},
        "in flight": {"before": kill_and_linger},
        "committed": {"committed": kill, "cut": True},
        "delivered": {"delivered": kill_soon},
    }
    return Fault(
        story.method,
        path,
        name=f"killed {scene.point.phase}",
        when=story.when(scene),
        outlives=True,
        **hooks[scene.point.phase],
    )


@dataclass
class Result:
    """What became of a point."""

    point: Point
    seconds: float
    takeover_seconds: float
    problems: list[str]


class Lane:
    """Points in a row, on one control plane."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.seed = seed
        self.judge = Judge(stage.terms())
        self._number = 0
        self._baselines: dict[tuple[str, int], Object] = {}

    async def run(self, point: Point) -> Result:
        """Plays a point, and judges it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        rng = random.Random(f"{self.seed} {point}")
        problems: list[str] = []
        takeover = 0.0
        try:
            key = (point.write, point.claims)
            if key not in self._baselines:
                async with self._scene(point, rng) as scene:
                    scene.kills = False
                    self._baselines[key] = await self._undisturbed(scene)
            await self._prepare_replicas(point)
            async with self._scene(point, rng) as scene:
                takeover = await self._crash(scene)
                problems += await self._judged(scene, self._baselines[key])
        except (AssertionError, TimeoutError, RuntimeError) as error:
            problems.append(f"{type(error).__name__}: {error}")
            problems += await self._recover()
        lease = self.stage.lease
        most = 2 * (lease.lease_duration_seconds + lease.retry_period_seconds + 10.0)
        if takeover > most:
            problems.append(f"L6: {takeover:.1f} s until somebody led, at most {most:.1f}")
        return Result(point, loop.time() - began, takeover, problems)

    @contextlib.asynccontextmanager
    async def _scene(self, point: Point, rng: random.Random) -> AsyncIterator[Scene]:
        self._number += 1
        name = f"crash-{self._number}"
        async with Cluster.prepared(self.stage.api, name, self.stage.scheduler_name) as cluster:
            yield Scene(self.stage, cluster, point, rng)

    async def _prepare_replicas(self, point: Point) -> None:
        """One replica for a restart, another that stands by for a takeover."""
        stage = self.stage
        leader = await stage.leader()
        others = [replica for replica in stage.replicas if replica is not leader]
        if point.after == "restart":
            await asyncio.gather(*map(stage.take_down, others))
        elif not others:
            await stage.add_replica()
        else:
            for replica in others:
                if not replica.service.process.running:
                    await stage.start(replica)

    async def _undisturbed(self, scene: Scene) -> Object:
        """The same without a crash."""
        story = STORIES[scene.point.write]
        await story.before(scene)
        leader = await self.stage.leader()
        faults = story.faults(scene)
        with leader.proxy.fault(*faults) if faults else contextlib.nullcontext():
            await story.act(scene, leader)
            await story.after(scene)
            await scene.cluster.bound(*story.pods, timeout_seconds=PATIENCE_SECONDS)
        return await self._end_state(scene)

    async def _crash(self, scene: Scene) -> float:
        """Kills it; returns the seconds until somebody led again."""
        stage, point = self.stage, scene.point
        story = STORIES[point.write]
        loop = asyncio.get_running_loop()
        await story.before(scene)
        leader = await stage.leader()
        path = story.path(scene)
        stage.history.mark("crash", point=str(point))
        with contextlib.ExitStack() as armed:
            for replica in stage.replicas:
                if replica.service.process.running or replica is leader:
                    await self._arm(scene, replica, story, path, armed)
            acting = asyncio.create_task(story.act(scene, leader))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await scene.died.wait()
            died_at = loop.time()
            await acting
            if point.after == "restart":
                dead = [r for r in stage.replicas if not r.service.process.running]
                await stage.start(next(r for r in dead if r.proxy.happened))
            await stage.leader(PATIENCE_SECONDS)
            took = loop.time() - died_at
            await story.after(scene)
            await scene.cluster.bound(*story.pods, timeout_seconds=PATIENCE_SECONDS)
        return took

    async def _arm(
        self,
        scene: Scene,
        replica: Replica,
        story: Story,
        path: str,
        armed: contextlib.ExitStack,
    ) -> None:
        replica.proxy.happened.clear()
        kill = kill_at(scene, replica, story, path)
        is_first = scene.died

        # Only one dies of it.
        kill.when = _both(kill.when, lambda _call: not is_first.is_set())
        armed.enter_context(replica.proxy.fault(kill, *story.faults(scene)))

    async def _judged(self, scene: Scene, wanted: Object) -> list[str]:
        stage = self.stage
        stage.history.mark("healed")
        facts = await stage.facts()
        found = await self._end_state(scene)
        await stage.history.caught_up()
        stage.history.mark("end", **facts)
        problems = [str(finding) for finding in stage.history.hear(self.judge)]
        problems += [f"{f.rule} {f.subject}: {f.text}" for f in await scene.cluster.findings()]
        problems += [
            f"end state: {key} is {found.get(key)}, without a crash {wanted.get(key)}"
            for key in sorted({*found, *wanted})
            if found.get(key) != wanted.get(key)
        ]
        return problems

    async def _recover(self) -> list[str]:
        """After a point that failed: everybody runs again, so that the next says something of its own."""
        for replica in self.stage.replicas:
            if not replica.service.process.running:
                await self.stage.start(replica, wait=False)
        await self.stage.leader()
        return [str(finding) for finding in self.stage.history.hear(self.judge)]

    @staticmethod
    async def _end_state(scene: Scene) -> Object:
        return end_state(await scene.cluster.pods(), await scene.cluster.claims())


def _both(
    first: Callable[[Call], bool] | None, second: Callable[[Call], bool]
) -> Callable[[Call], bool]:
    return lambda call: (first is None or first(call)) and second(call)


async def run_lane(
    mode: Name, points: Sequence[Point], seed: int, folder: Path, tell: Callable[[Result], None]
) -> list[Result]:
    """Plays points of one mode."""
    results = []
    # Supervised, since a machine that stalls for longer than the renew deadline costs a leader its life.
    async with Stage.running(mode, folder=folder, lease=SHORT) as stage, stage.supervised():
        await stage.add_replica()
        lane = Lane(stage, seed)
        for point in points:
            result = await lane.run(point)
            tell(result)
            results.append(result)
        stage.history.store(folder / "history.jsonl", lane.judge.terms)
    return results


async def run(points: Sequence[Point], seed: int, folder: Path, lanes: int) -> list[Result]:
    """Plays points in lanes at the same time, each on a control plane of its own: most of a takeover is waiting."""
    # Restarts first, then takeovers: replicas need not be stopped and started in between.
    ordered = sorted(points, key=lambda point: point.after)
    of_mode = max(1, lanes // len(MODES))
    dealt = [
        (mode, lane, [point for point in ordered if point.mode == mode][lane::of_mode])
        for mode in MODES
        for lane in range(of_mode)
    ]
    running = await asyncio.gather(
        *(
            run_lane(mode, mine, seed, folder / f"{mode}-{lane + 1}", tell)
            for mode, lane, mine in dealt
            if mine
        )
    )
    return [result for each in running for result in each]


def tell(result: Result) -> None:
    verdict = "FAILED" if result.problems else "ok"
    print(
        f"{verdict:6} {result.point}: {result.seconds:.1f} s, led again after {result.takeover_seconds:.1f} s",
        flush=True,
    )
    for problem in result.problems:
        print(f"       {problem}", flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=15, help="how many are drawn; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="regular expression: only such points")
    parser.add_argument("--lanes", type=int, default=4, help="control planes at the same time")
    parser.add_argument("--folder", type=Path, help="for data and logs")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="dra-crashes-"))
    points = [p for p in drawn_points(options.seed) if re.search(options.only, str(p))]
    chosen = points[: options.points or None]
    print(f"crash sweep: {len(chosen)} of {len(all_points())} points, seed {options.seed}")
    print(f"logs in {folder}; load {os.getloadavg()[0]:.1f}", flush=True)
    results = asyncio.run(run(chosen, options.seed, folder, options.lanes))
    failed = [result for result in results if result.problems]
    seconds = sum(result.seconds for result in results)
    print(f"{len(results)} points, {len(failed)} failed, {seconds:.0f} s of them")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
