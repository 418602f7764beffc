"""`herd`: 1,000 pods that can never fit, and two feasible pods a second: how long do the feasible ones wait?

Measured once every hopeless pod has been refused, and half a minute (a minute) later: until then the feasible ones wait behind first
attempts and short backoffs, and the figure would be the length of that queue. (Backoffs only grow while something
happens, so feasible pods come in that time, too.) The in-tree scheduler is shown beside ours.

The hopeless ask for a model that nobody has. (Nine of eight devices would be as hopeless, but kube-scheduler tries all
orders of eight first, 0.8 s a pod: the figure of profile safe would be the in-tree allocator's.)
"""

import asyncio
import math
import time
from typing import Any

from e2e.harness import objects
from e2e.harness.api import CLAIMS, PODS, TEMPLATES
from e2e.harness.controlplane import ControlPlane, KubeScheduler, build
from e2e.harness.process import free_port
from e2e.harness.service import Service, scheduler_config
from tests.benchmarks.backlog import DRIVER, NAMESPACE, make_cluster
from tests.benchmarks.plan import Plan
from tests.benchmarks.row import Row
from tests.benchmarks.throughput import CONNECTION, LEVEL, in_tree_config

HOPELESS = 1_000
FEASIBLE = (
    100  # measured, with BENCH_FULL; else 60, so that the slowest of them is the 99th percentile
)
WARM_UP = 120  # before, likewise; else 60: half a minute
NODES = 100
IN_TREE = "in-tree"
REACH = {"standalone": 0.5, "safe": 0.5, "fast": 2.0, IN_TREE: None}
REFUSED_SECONDS = 300.0
PERIOD_SECONDS = 0.5


async def herd(plan: Plan) -> None:
    """p99 of create-to-bound, in seconds, for each way of scheduling; in-tree beside them with BENCH_FULL."""
    names = [name for name in REACH if plan.full or name != IN_TREE]
    warm_up, feasible = (WARM_UP, FEASIBLE) if plan.full else (60, 60)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(plan.repetitions):
        async with ControlPlane(await build()) as plane:
            await make_cluster(plane.admin, NODES)
            for name, model in (("hopeless", "B200"), ("feasible", None)):
                selector = model and f'device.attributes["{DRIVER}"].model == "{model}"'
                spec = objects.claim_spec(objects.request("gpu", selector=selector))
                body = {
                    "metadata": {"name": name, "namespace": NAMESPACE},
                    "spec": {"spec": spec},
                }
                await plane.admin.create(TEMPLATES, body)
            for name in names:
                figures[name].append(await _one(plane, name, warm_up, feasible))
    for name in names:
        shape = f"{HOPELESS} hopeless pods, 2 feasible/s, {NODES} nodes, {name}"
        row = Row(
            "herd",
            f"{shape}, p99 of {feasible} create to bound",
            figures[name],
            None,
            "s",
            "lower",
            REACH[name],
            LEVEL,
        )
        plan.report(row)


async def _one(plane: ControlPlane, name: str, warm_up: int, feasible: int) -> float:
    kubeconfig = plane.kubeconfig(plane.admin_identity)
    service = scheduler = None
    if name == "standalone":
        flags = (f"--scheduler-name={name}", "--leader-elect=false")
        service = Service("run", kubeconfig, plane.folder, flags=flags)
        await service.start()
    elif name == IN_TREE:
        scheduler = await _start_scheduler(plane, name, in_tree_config(name), ())
    else:
        flags = (f"--profile={name}", "--leader-elect=false")
        service = Service("extender", kubeconfig, plane.folder, port=free_port(), flags=flags)
        await service.start()
        config, gates = scheduler_config("1.37", name, service.url, None)
        scheduler = await _start_scheduler(plane, name, config, gates)
    try:
        return await _wait_times(plane, name, warm_up, feasible)
    finally:
        if scheduler is not None:
            await scheduler.stop()
        if service is not None:
            await service.stop()
        names = [pod["metadata"]["name"] for pod in await plane.admin.objects(PODS, NAMESPACE)]
        await plane.admin.delete_all(PODS, names, NAMESPACE)
        while await plane.admin.objects(CLAIMS, NAMESPACE):
            await asyncio.sleep(0.5)


async def _start_scheduler(
    plane: ControlPlane, name: str, config: dict[str, Any], flags: tuple[str, ...]
) -> KubeScheduler:
    config["leaderElection"] = {"leaderElect": False}
    config["clientConnection"] = CONNECTION
    config["profiles"][0]["schedulerName"] = name
    return await plane.start_scheduler(f"herd-{name}", config, plane.admin_identity, flags=flags)


async def _all_refused(plane: ControlPlane) -> None:
    """Wait until every pod there is has been told that it does not fit."""
    told: list[bool] = []
    for _ in range(int(REFUSED_SECONDS)):
        pods = await plane.admin.objects(PODS, NAMESPACE)
        told = [
            any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", []))
            for pod in pods
        ]
        if len(told) == HOPELESS and all(told):
            return
        await asyncio.sleep(1.0)
    raise RuntimeError(f"only {sum(told)} of {HOPELESS} hopeless pods have been refused")


async def _wait_times(plane: ControlPlane, name: str, warm_up: int, feasible: int) -> float:
    admin = plane.admin
    hopeless = (
        objects.pod(
            NAMESPACE, f"{name}-hopeless-{index}", scheduler=name, templates={"gpu": "hopeless"}
        )
        for index in range(HOPELESS)
    )
    await admin.create_all(PODS, hopeless)
    await _all_refused(plane)
    created: dict[str, float] = {}
    waits: dict[str, float] = {}
    version = (await admin.request("GET", f"{PODS.path(NAMESPACE)}?limit=1"))["metadata"][
        "resourceVersion"
    ]

    async def watch() -> None:
        async for _, pod in admin.watch(PODS, NAMESPACE, version):
            pod_name = pod["metadata"]["name"]
            if pod_name in created and pod["spec"].get("nodeName"):
                waits.setdefault(pod_name, time.monotonic() - created[pod_name])

    task = asyncio.create_task(watch())
    began = time.monotonic()
    for index in range(warm_up + feasible):
        pod_name = f"{name}-feasible-{index}"
        created[pod_name] = time.monotonic()
        await admin.create(
            PODS,
            objects.pod(NAMESPACE, pod_name, scheduler=name, templates={"gpu": "feasible"}),
        )
        await asyncio.sleep(max(0.0, began + (index + 1) * PERIOD_SECONDS - time.monotonic()))
    for _ in range(60):
        if len(waits) == len(created):
            break
        await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    now = time.monotonic()
    measured = list(created)[warm_up:]
    ordered = sorted(waits.get(each, now - created[each]) for each in measured)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]
