"""Pods bound a second on a backlog: ours, the in-tree scheduler, and the bare writes, in one run on one control plane.

Every client has qps and burst of 5,000 and is in the API priority level `exempt` (system:masters): at kube-scheduler's
default of 50 qps its figure would say nothing. The sides take turns, so that all of them see the same hour of the machine.
"""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from e2e.harness.controlplane import ControlPlane, build
from e2e.harness.process import free_port
from e2e.harness.service import Command, Service, scheduler_config
from tests.benchmarks.backlog import (
    DEVICES_PER_NODE,
    SHAPES,
    Backlog,
    Binds,
    Shape,
    make_cluster,
    set_finalizer_at_creation,
    write_bare,
)
from tests.benchmarks.donothing import DoNothingExtender
from tests.benchmarks.plan import Plan, Series, report_all

CONNECTION = {"qps": 5000, "burst": 5000}
LEVEL: dict[str, object] = {"api_priority_level": "exempt", "qps": 5000}
TIMEOUT_SECONDS = 900.0
SHORTLIST = 100
OURS = "dra-scheduler"


def in_tree_config(name: str) -> dict[str, Any]:
    """Kubernetes' own scheduler with its defaults."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": CONNECTION,
        "profiles": [{"schedulerName": name}],
    }


class Bench:
    """One control plane with one cluster, on which runs follow each other.

    Attributes:
        plane: the control plane.
        first_bind_seconds: of the last run, from the start of the scheduler.
        finalizers: whether claims get the finalizer when they are created.
        has_failed: whether some run did.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.has_failed = False
        self.first_bind_seconds = 0.0
        self.finalizers = False

    async def run(self, shape: Shape, pods: int, scheduler: str, go: "Runner") -> float:
        """Make a backlog, let one scheduler work it off, remove it, whatever happens; returns pods a second.

        Raises:
            RuntimeError: not all pods were bound, or a device was given twice.
        """
        backlog = Backlog(self.plane, shape, pods, scheduler, finalizers=self.finalizers)
        try:
            await backlog.create()
            binds: Binds = await go(self, backlog)
            await backlog.check()
            if len(binds.times) < pods:
                raise RuntimeError(f"{len(binds.times)} of {pods} pods were bound")
        except Exception as error:
            self.has_failed = True
            error.add_note(f"logs: {self.plane.folder}")
            raise
        finally:
            await backlog.remove()
        return binds.pods_per_second

    async def heed_finalizers(self, on: bool) -> None:
        """Whether claims get the finalizer when they are created, from now on."""
        if self.finalizers is not on:
            await set_finalizer_at_creation(self.plane.admin, on=on)
            self.finalizers = on


Runner = Callable[[Bench, Backlog], Awaitable[Binds]]


@asynccontextmanager
async def bench_with(nodes: int) -> AsyncIterator[Bench]:
    """A control plane with so many nodes. Its folder stays only when something goes wrong."""
    async with ControlPlane(await build()) as plane:
        await make_cluster(plane.admin, nodes)
        bench = Bench(plane)
        yield bench
    if not bench.has_failed:
        shutil.rmtree(plane.folder, ignore_errors=True)


async def in_tree(bench: Bench, backlog: Backlog) -> Binds:
    """The peer."""
    config = in_tree_config(backlog.scheduler)
    return await _with_scheduler(bench, backlog, "kube-scheduler-peer", config)


async def _with_scheduler(
    bench: Bench, backlog: Backlog, name: str, config: dict[str, Any], flags: tuple[str, ...] = ()
) -> Binds:
    async def start() -> None:
        identity = bench.plane.admin_identity
        await bench.plane.start_scheduler(name, config, identity, flags=flags)

    try:
        binds, bench.first_bind_seconds = await backlog.measure(start, TIMEOUT_SECONDS)
    finally:
        process = bench.plane.processes.get(name)
        if process is not None:
            await process.stop()
    return binds


def ours(command: Command, *flags: str) -> Runner:
    """Our scheduler, stand-alone."""

    async def go(bench: Bench, backlog: Backlog) -> Binds:
        service = _service(bench, command, (f"--scheduler-name={backlog.scheduler}", *flags))
        try:
            binds, bench.first_bind_seconds = await backlog.measure(service.start, TIMEOUT_SECONDS)
        finally:
            await service.stop()
        return binds

    return go


def _service(bench: Bench, command: Command, flags: tuple[str, ...]) -> Service:
    plane = bench.plane
    # The code of this checkout, if that is not the one that is installed.
    env = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else None
    return Service(
        command,
        plane.kubeconfig(plane.admin_identity),
        plane.folder,
        flags=("--leader-elect=false", *flags),
        env=env,
    )


async def bare(bench: Bench, backlog: Backlog) -> Binds:
    """The writes alone."""
    binds, bench.first_bind_seconds = await backlog.measure(
        lambda: write_bare(backlog), TIMEOUT_SECONDS
    )
    return binds


@dataclass(frozen=True)
class Answers:
    """How many nodes filter answers.

    Attributes:
        name: for the table.
        most: for the do-nothing extender; 0: all.
        settings: ours, of the section `extender` in the configuration file.
    """

    name: str
    most: int
    settings: dict[str, object]


ANSWERS = (
    Answers("all feasible nodes", 0, {}),
    Answers(f"shortlist of {SHORTLIST}", SHORTLIST, {"filterShortlist": SHORTLIST}),
    Answers("forced choice", 1, {"forcedChoice": True}),
)


def extender(profile: str, answers: Answers) -> Runner:
    """kube-scheduler with our extender."""

    async def go(bench: Bench, backlog: Backlog) -> Binds:
        config = bench.plane.folder / f"extender-{profile}-{answers.most}.yaml"
        settings = {
            "apiVersion": "dra-scheduler.dev/v1alpha1",
            "kind": "SchedulerConfiguration",
            "extender": {"profile": profile, **answers.settings},
        }
        config.write_text(yaml.safe_dump(settings))
        service = _service(bench, "extender", (f"--config={config}",))
        try:
            await service.start()
            return await _with_kube_scheduler(bench, backlog, service.url, profile)
        finally:
            await service.stop()

    return go


def do_nothing(profile: str, answers: Answers) -> Runner:
    """kube-scheduler with an extender that decides nothing: it only sends the writes."""

    async def go(bench: Bench, backlog: Backlog) -> Binds:
        port = free_port()
        async with DoNothingExtender(bench.plane, backlog, port, answers.most):
            return await _with_kube_scheduler(bench, backlog, f"http://127.0.0.1:{port}", profile)

    return go


async def _with_kube_scheduler(bench: Bench, backlog: Backlog, url: str, profile: str) -> Binds:
    config, flags = scheduler_config("1.37", profile, url, None)
    config["leaderElection"] = {"leaderElect": False}
    config["clientConnection"] = CONNECTION
    for each in config["profiles"]:
        each["schedulerName"] = backlog.scheduler
    return await _with_scheduler(bench, backlog, f"kube-scheduler-{profile}", config, flags)


def fitting_pods(nodes: int, shape: Shape, wanted: int) -> int:
    """How many pods a backlog has at most: an eighth of the devices stays free."""
    return min(wanted, nodes * (DEVICES_PER_NODE - 1) // shape.devices)


async def standalone(
    plan: Plan, name: str, nodes: int, pods: int, variants: tuple[tuple[Shape, bool], ...]
) -> None:
    """`throughput-standalone` and `api-bound`.

    Args:
        plan: how.
        name: of the bench.
        nodes: in the cluster.
        pods: in a backlog, at most.
        variants: shape of the claims, and whether they get the finalizer when they are created.
    """
    failures: list[str] = []
    async with bench_with(nodes) as bench:
        for shape, finalizers in variants:
            count = fitting_pods(nodes, shape, pods)
            series = Series(name)
            try:
                await bench.heed_finalizers(finalizers)
                for repetition in range(plan.repetitions):
                    for side, scheduler, go in (
                        ("in-tree", "in-tree", in_tree),
                        ("bare", "bare", bare),
                        ("ours", OURS, ours("run")),
                    ):
                        measured = bench.run(shape, count, scheduler, go)
                        if await series.take(side, repetition, measured):
                            series.keep(f"{side} first", repetition, bench.first_bind_seconds)
            finally:
                report_standalone(plan, series, nodes, count, shape, finalizers=finalizers)
            failures += series.failures
    Series(name, failures).end()


def report_standalone(
    plan: Plan, series: Series, nodes: int, pods: int, shape: Shape, *, finalizers: bool
) -> None:
    """The rows of one variant."""
    where = f"{nodes} nodes, {pods} pods, {shape.name}"
    writes = "three"
    if finalizers:
        where, writes = f"{where}, finalizer at creation", "two"
    is_large = series.name.endswith("-2000")
    wanted = 6 if is_large else 3
    rows = [
        series.row(f"{where}, peer in-tree", "ours", "in-tree", notes={**LEVEL, "wanted": wanted}),
        series.row(
            f"{where}, peer {writes} bare writes a pod",
            "ours",
            "bare",
            bench=series.name if is_large else "api-bound",
            reach=0.7,
            notes=LEVEL,
        ),
    ]
    if is_large:
        in_tree_seconds = [round(seconds, 2) for seconds in series.of("in-tree first")]
        rows.append(
            series.row(
                f"{where}, start of the process to first bind",
                "ours first",
                None,
                "s",
                better="lower",
                reach=2.0,
                notes={**LEVEL, "in_tree_seconds": in_tree_seconds},
            )
        )
    report_all(plan, rows)


async def with_extender(plan: Plan, name: str, nodes: int, pods: int) -> None:
    """`throughput-extender`: both profiles against in-tree, and against an extender that does nothing."""
    shape = SHAPES[0]
    count = fitting_pods(nodes, shape, pods)
    series = Series(name)
    runs: list[tuple[str, str, Runner]] = [("in-tree", "in-tree", in_tree)]
    for answers in ANSWERS:
        runs += [
            (f"do-nothing, {answers.name}", "fast", do_nothing("fast", answers)),
            (f"fast, {answers.name}", "fast", extender("fast", answers)),
        ]
    runs.append(("safe", "safe", extender("safe", ANSWERS[0])))
    try:
        async with bench_with(nodes) as bench:
            for repetition in range(plan.repetitions):
                for side, scheduler, go in runs:
                    measured = bench.run(shape, count, scheduler, go)
                    await series.take(side, repetition, measured)
    finally:
        report_extender(plan, series, f"{nodes} nodes, {count} pods, {shape.name}")
    series.end()


def report_extender(plan: Plan, series: Series, where: str) -> None:
    """All rows of `throughput-extender`."""
    for answers in ANSWERS:
        side, shape = f"fast, {answers.name}", f"{where}, profile fast, {answers.name}"
        rows = [
            series.row(
                f"{shape}, peer do-nothing extender that answers as many",
                side,
                f"do-nothing, {answers.name}",
                reach=0.85,
                notes=LEVEL,
            ),
            series.row(f"{shape}, peer in-tree", side, "in-tree", notes=LEVEL),
        ]
        report_all(plan, rows)
    safe = series.row(
        f"{where}, profile safe, peer in-tree", "safe", "in-tree", reach=0.75, notes=LEVEL
    )
    report_all(plan, [safe])
