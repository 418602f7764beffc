"""Pods bound a second on a backlog: ours, the in-tree scheduler, and the bare writes, in one run on one control plane.

Every client has qps and burst of 5,000 and is in the API priority level `exempt` (system:masters): at kube-scheduler's
default of 50 qps its figure would say nothing.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from e2e.harness.controlplane import ControlPlane, KubeScheduler, build
from e2e.harness.process import free_port
from e2e.harness.service import Command, Service, scheduler_config
from tests.benchmarks.backlog import SHAPES, Backlog, Binds, Shape, make_cluster, write_bare
from tests.benchmarks.donothing import DoNothingExtender
from tests.benchmarks.row import Row

CONNECTION = {"qps": 5000, "burst": 5000}
LEVEL = {"api_priority_level": "exempt", "qps": 5000}
TIMEOUT_SECONDS = 600.0


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
    """One control plane with one cluster, on which runs follow each other."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.first_bind_seconds = 0.0

    async def run(self, shape: Shape, pods: int, scheduler: str, go: "Runner") -> float:
        """Make a backlog, let one scheduler work it off, remove it; returns pods a second."""
        backlog = Backlog(self.plane, shape, pods, scheduler)
        await backlog.create()
        binds: Binds = await go(self, backlog)
        await backlog.check()
        await backlog.remove()
        if len(binds.times) < pods:
            raise RuntimeError(f"{scheduler}: {len(binds.times)} of {pods} pods were bound")
        return binds.pods_per_second


Runner = Callable[[Bench, Backlog], Awaitable[Binds]]


async def in_tree(bench: Bench, backlog: Backlog) -> Binds:
    """The peer."""
    scheduler: list[KubeScheduler] = []

    async def start() -> None:
        config = in_tree_config(backlog.scheduler)
        identity = bench.plane.admin_identity
        scheduler.append(await bench.plane.start_scheduler("kube-scheduler-peer", config, identity))

    binds, bench.first_bind_seconds = await backlog.measure(start, TIMEOUT_SECONDS)
    await scheduler[0].stop()
    return binds


def ours(command: Command, *flags: str) -> Runner:
    """Our scheduler, stand-alone."""

    async def go(bench: Bench, backlog: Backlog) -> Binds:
        service = _service(bench, command, (f"--scheduler-name={backlog.scheduler}", *flags))
        binds, bench.first_bind_seconds = await backlog.measure(service.start, TIMEOUT_SECONDS)
        await service.stop()
        return binds

    return go


def _service(bench: Bench, command: Command, flags: tuple[str, ...]) -> Service:
    plane = bench.plane
    return Service(
        command,
        plane.kubeconfig(plane.admin_identity),
        plane.folder,
        flags=("--leader-elect=false", *flags),
    )


async def bare(bench: Bench, backlog: Backlog) -> Binds:
    """The writes alone."""
    binds, bench.first_bind_seconds = await backlog.measure(
        lambda: write_bare(backlog), TIMEOUT_SECONDS
    )
    return binds


def extender(profile: str) -> Runner:
    """kube-scheduler with our extender."""

    async def go(bench: Bench, backlog: Backlog) -> Binds:
        service = _service(bench, "extender", (f"--profile={profile}",))
        await service.start()
        try:
            return await _with_kube_scheduler(bench, backlog, service.url, profile)
        finally:
            await service.stop()

    return go


def do_nothing(profile: str) -> Runner:
    """kube-scheduler with an extender that decides nothing: it only sends the writes."""

    async def go(bench: Bench, backlog: Backlog) -> Binds:
        port = free_port()
        async with DoNothingExtender(bench.plane, backlog, port):
            return await _with_kube_scheduler(bench, backlog, f"http://127.0.0.1:{port}", profile)

    return go


async def _with_kube_scheduler(bench: Bench, backlog: Backlog, url: str, profile: str) -> Binds:
    config, flags = scheduler_config("1.37", profile, url, None)
    config["leaderElection"] = {"leaderElect": False}
    config["clientConnection"] = CONNECTION
    for each in config["profiles"]:
        each["schedulerName"] = backlog.scheduler
    scheduler: list[KubeScheduler] = []

    async def start() -> None:
        scheduler.append(
            await bench.plane.start_scheduler(
                f"kube-scheduler-{profile}",
                config,
                bench.plane.admin_identity,
                flags=flags,
            )
        )

    binds, bench.first_bind_seconds = await backlog.measure(start, TIMEOUT_SECONDS)
    await scheduler[0].stop()
    return binds


async def standalone(nodes: int, pods: int, repetitions: int, shapes: int) -> list[Row]:
    """`throughput-standalone` and `api-bound`."""
    rows: list[Row] = []
    async with ControlPlane(await build()) as plane:
        await make_cluster(plane.admin, nodes)
        bench = Bench(plane)
        for shape in SHAPES[:shapes]:
            count = min(pods, nodes * 8 * 7 // (8 * shape.devices))
            figures: dict[str, list[float]] = {"ours": [], "peer": [], "bare": []}
            for _ in range(repetitions):
                figures["peer"].append(await bench.run(shape, count, "in-tree", in_tree))
                figures["bare"].append(await bench.run(shape, count, "bare", bare))
                figures["ours"].append(await bench.run(shape, count, "dra-scheduler", ours("run")))
            name = "throughput-standalone" if nodes < 1000 else f"throughput-standalone-{nodes}"
            rows.extend(
                _standalone_rows(name, f"{nodes} nodes, {count} pods, {shape.name}", figures)
            )
    return rows


def _standalone_rows(name: str, shape: str, figures: dict[str, list[float]]) -> Iterator[Row]:
    yield Row(
        name, f"{shape}, peer in-tree", figures["ours"], figures["peer"], "pods/s", notes=LEVEL
    )
    yield Row(
        "api-bound" if name == "throughput-standalone" else name,
        f"{shape}, peer bare writes",
        figures["ours"],
        figures["bare"],
        "pods/s",
        reach=0.7,
        notes=LEVEL,
    )


async def with_extender(nodes: int, pods: int, repetitions: int) -> list[Row]:
    """`throughput-extender`: both profiles against in-tree and a do-nothing extender."""
    rows: list[Row] = []
    shape = SHAPES[0]
    async with ControlPlane(await build()) as plane:
        await make_cluster(plane.admin, nodes)
        bench = Bench(plane)
        figures: dict[str, list[float]] = {}
        for _ in range(repetitions):
            for name, scheduler, go in (
                ("in-tree", "in-tree", in_tree),
                ("do-nothing", "fast", do_nothing("fast")),
                ("fast", "fast", extender("fast")),
                ("safe", "safe", extender("safe")),
            ):
                figures.setdefault(name, []).append(await bench.run(shape, pods, scheduler, go))
    where = f"{nodes} nodes, {pods} pods, {shape.name}"
    rows.append(
        Row(
            "throughput-extender",
            f"{where}, profile fast, peer do-nothing extender",
            figures["fast"],
            figures["do-nothing"],
            "pods/s",
            reach=0.85,
            notes=LEVEL,
        )
    )
    for profile, reach in (("fast", None), ("safe", 0.75)):
        rows.append(
            Row(
                "throughput-extender",
                f"{where}, profile {profile}, peer in-tree",
                figures[profile],
                figures["in-tree"],
                "pods/s",
                reach=reach,
                notes=LEVEL,
            )
        )
    return rows
