"""What goes wrong in a round of chaos: named faults, each drawn with its own generator and over when it is told to be.

A disturbance is a coroutine that makes its fault and lasts until it is cancelled or its time is over; whatever it
changed is as before when it ends. What really happened is counted in `Stage`'s proxies, or by the disturbance itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from e2e.harness.api import CLAIMS, NODES, PODS, SLICES, TAINT_RULES, ApiError, Object
from e2e.harness.load import SLICES_PER_POOL, Load, persist
from e2e.harness.proxy import Call, Fault, FaultProxy
from e2e.harness.stage import Name, Stage

EVER = 10**9
ROLES_SECONDS = 3.0
WRITES = "POST|PUT|PATCH"
WORK = r"/api.*(pods|resourceclaims|events)(/.*)?"
CLAIM = r"/apis/resource\.k8s\.io/.*/resourceclaims/[^/]+(/status)?"
LEASE = r".*/leases(/.*)?"
STREAM_FAULTS = ("cut", "half", "end", "gone", "garbage", "silence", "replay")


@dataclass
class Scene:
    """Where a disturbance happens.

    Attributes:
      stage: Control plane, replicas, proxies.
      load: The pods, and their nodes.
      rng: Draws everything.
      counts: Name to how often something really happened, beside what the proxies count.
    """

    stage: Stage
    load: Load
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def is_two_allocators(self) -> bool:
        """Whether somebody may have written who did not lead any more, so that only bound pods are exclusive."""
        return any(self.counts[name] for name in ("paused", "lease blocked"))


Play = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True)
class Disturbance:
    """A kind of fault.

    Attributes:
      name: As it is printed.
      play: Makes it; cancelled when its time is over.
      modes: Where it makes sense; all when empty.
    """

    name: str
    play: Play
    modes: tuple[Name, ...] = ()


EXTENDER: tuple[Name, ...] = ("safe", "fast")
ELECTED: tuple[Name, ...] = ("standalone", "fast")


def _on_requests(name: str, method: str, path: str, share: float, **what: Any) -> Disturbance:
    async def play(scene: Scene) -> None:
        async with _faults(scene, scene.stage.proxies, name, method, path, share, what):
            await asyncio.Event().wait()

    return Disturbance(name, play)


def _on_webhooks(name: str, path: str, share: float, **what: Any) -> Disturbance:
    async def play(scene: Scene) -> None:
        if scene.stage.q is not None:
            async with _faults(scene, [scene.stage.q], name, "POST", path, share, what):
                await asyncio.Event().wait()

    return Disturbance(name, play, EXTENDER)


@contextlib.asynccontextmanager
async def _faults(
    scene: Scene,
    proxies: list[FaultProxy],
    name: str,
    method: str,
    path: str,
    share: float,
    what: dict[str, Any],
) -> AsyncIterator[None]:
    with contextlib.ExitStack() as armed:
        for proxy in proxies:
            fault = Fault(
                method,
                path,
                times=EVER,
                name=name,
                share=share,
                random=random.Random(scene.rng.getrandbits(32)),
                **what,
            )
            armed.enter_context(proxy.fault(fault))
        yield


async def _conflicts(scene: Scene) -> None:
    """Somebody else edits the claim right before our write."""

    async def edit(call: Call) -> None:
        name = call.path.removesuffix("/status")
        body: Object = {"metadata": {"annotations": {"edited": str(scene.rng.getrandbits(32))}}}
        with contextlib.suppress(ApiError, aiohttp.ClientError, OSError):
            await scene.stage.api.request("PATCH", name, body, "application/merge-patch+json")

    what = {"before": edit}
    async with _faults(scene, scene.stage.proxies, "conflict", "PUT|PATCH", CLAIM, 0.3, what):
        await asyncio.Event().wait()


async def _streams(scene: Scene) -> None:
    """Open watches are disturbed, one every few hundred milliseconds; silent ones are cut when the network heals."""
    silent = []
    try:
        while True:
            await asyncio.sleep(scene.rng.uniform(0.2, 0.8))
            proxy = scene.rng.choice(scene.stage.proxies)
            if not proxy.streams:
                continue
            stream = scene.rng.choice(proxy.streams)
            name = scene.rng.choice(STREAM_FAULTS)
            proxy.disturb(name, stream)
            if name == "silence":
                silent.append(stream)
    finally:
        for stream in silent:
            stream.cut()


async def _lag(scene: Scene) -> None:
    """The watches of one kind, or of all, come seconds late."""
    kind = scene.rng.choice(("", "resourceclaims", "pods", "resourceslices", "nodes"))
    while True:
        for proxy in scene.stage.proxies:
            for stream in proxy.streams:
                if kind in stream.path:
                    proxy.disturb("hold", stream, seconds=scene.rng.uniform(0.5, 5.0))
        await asyncio.sleep(1.5)


async def _skips(scene: Scene) -> None:
    """Events are left out, then they are too old to be had."""
    while True:
        for proxy in scene.stage.proxies:
            if proxy.streams:
                stream = scene.rng.choice(proxy.streams)
                proxy.disturb("skip", stream, events=scene.rng.randint(1, 8))
        await asyncio.sleep(scene.rng.uniform(1.0, 3.0))


async def _killed(scene: Scene) -> None:
    """The leader is killed at any moment; the supervisor starts it again."""
    while True:
        await asyncio.sleep(scene.rng.uniform(0.5, 4.0))
        with contextlib.suppress(TimeoutError):
            leader = await scene.stage.leader(5.0)
            await leader.service.kill()
            scene.counts["killed"] += 1
        await asyncio.sleep(6)


async def _stopped(scene: Scene) -> None:
    """The leader is told to end, as in a rollout."""
    await asyncio.sleep(scene.rng.uniform(0.5, 4.0))
    with contextlib.suppress(TimeoutError):
        leader = await scene.stage.leader(5.0)
        await leader.service.stop()
        scene.counts["stopped"] += 1
    await asyncio.Event().wait()


async def _paused(scene: Scene) -> None:
    """The leader stands still for longer than its lease."""
    await asyncio.sleep(scene.rng.uniform(0.5, 3.0))
    leader = await scene.stage.leader()
    process = leader.service.process
    process.pause()
    scene.counts["paused"] += 1
    try:
        await asyncio.sleep(scene.rng.uniform(3.0, 12.0))
    finally:
        process.resume()
    await asyncio.Event().wait()


async def _lease_blocked(scene: Scene) -> None:
    """The leader cannot renew, and everything else goes on."""
    leader = await scene.stage.leader()
    scene.counts["lease blocked"] += 1
    async with _faults(
        scene, [leader.proxy], "lease blocked", "PUT|POST", LEASE, 1.0, {"lost": True}
    ):
        await asyncio.Event().wait()


async def _cut_off(scene: Scene) -> None:
    """One replica reaches nothing for some seconds."""
    proxy = scene.rng.choice(scene.stage.proxies)
    proxy.is_down = True
    scene.counts["cut off"] += 1
    for stream in tuple(proxy.streams):
        stream.cut()
    try:
        await asyncio.sleep(scene.rng.uniform(1.0, 6.0))
    finally:
        proxy.is_down = False
    await asyncio.Event().wait()


async def _server_restarts(scene: Scene) -> None:
    """The API server is killed and comes back."""
    await asyncio.sleep(scene.rng.uniform(0.5, 3.0))
    scene.counts["API server restarted"] += 1
    await asyncio.shield(asyncio.ensure_future(_restart_server(scene.stage)))
    await asyncio.Event().wait()


async def _restart_server(stage: Stage) -> None:
    # It answers before it has read the roles, and forbids everything until then.
    stage.history.excuse = "the API server starts"
    await stage.plane.restart_apiserver()
    await asyncio.sleep(ROLES_SECONDS)
    stage.history.excuse = ""


async def _compaction(scene: Scene) -> None:
    """etcd forgets history, and watches have to begin again."""
    while True:
        await scene.stage.plane.compact()
        scene.counts["compacted"] += 1
        for proxy in scene.stage.proxies:
            for stream in tuple(proxy.streams):
                stream.cut()
        await asyncio.sleep(5)


async def _republish(scene: Scene) -> None:
    """A driver publishes new generations, slice by slice."""
    load, rng = scene.load, scene.rng
    api = load.cluster.api
    while True:
        node = rng.choice(load.cluster.node_names)
        load.generation += 1
        generation = load.generation
        for part in range(SLICES_PER_POOL):
            body = load.slice(node, part, generation)
            patch: Object = {"spec": {"pool": body["spec"]["pool"]}}
            # To its end even when the round is over: a pool that stays incomplete keeps pods waiting for good.
            await asyncio.shield(
                asyncio.ensure_future(
                    persist(
                        lambda name=body["metadata"]["name"], patch=patch: api.patch(  # type: ignore[misc]
                            SLICES, name, patch
                        )
                    )
                )
            )
            if part == 0:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(rng.uniform(0.1, 1.0))
        scene.counts["republished"] += 1
        await asyncio.sleep(rng.uniform(0.2, 1.0))


async def _taints(scene: Scene) -> None:
    """An administrator taints devices, and takes the taint away."""
    cluster, rng = scene.load.cluster, scene.rng
    made: list[str] = []
    try:
        while True:
            name = f"{cluster.name}-taint-{len(made)}"
            selector = {
                "driver": cluster.driver,
                "pool": rng.choice(cluster.node_names),
                "device": f"gpu-{rng.randrange(16)}",
            }
            taint = {"key": "example.com/sick", "effect": "NoSchedule"}
            body: Object = {
                "metadata": {"name": name},
                "spec": {"deviceSelector": selector, "taint": taint},
            }
            await persist(lambda body=body: cluster.api.create(TAINT_RULES, body))  # type: ignore[misc]
            made.append(name)
            scene.counts["tainted"] += 1
            await asyncio.sleep(rng.uniform(0.2, 1.0))
    finally:
        for name in made:
            await persist(lambda name=name: cluster.api.delete(TAINT_RULES, name))  # type: ignore[misc]


async def _cordons(scene: Scene) -> None:
    """Nodes are cordoned and come back."""
    cluster, rng = scene.load.cluster, scene.rng
    try:
        while True:
            node = rng.choice(cluster.node_names)
            for value in (True, None):
                body: Object = {"spec": {"unschedulable": value}}
                await persist(
                    lambda node=node, body=body: cluster.api.patch(NODES, node, body)  # type: ignore[misc]
                )
                await asyncio.sleep(rng.uniform(0.1, 1.5))
            scene.counts["cordoned"] += 1
    finally:
        await scene.load.uncordon()


async def _deletes(scene: Scene) -> None:
    """A pod, or a claim that nobody has yet, is deleted right before it is written, and made again."""
    cluster = scene.load.cluster

    async def replace(call: Call) -> None:
        is_binding = call.path.endswith("/binding")
        name = call.path.split("/")[-2 if is_binding else -1]
        kind = PODS if is_binding else CLAIMS
        with contextlib.suppress(ApiError, aiohttp.ClientError, OSError):
            found = await cluster.api.get(kind, name, cluster.namespace)
            if found["metadata"].get("ownerReferences"):
                return
            await cluster.api.delete(kind, name, cluster.namespace, now=is_binding)
            scene.counts["deleted before its write"] += 1
            metadata = {"name": name, "namespace": cluster.namespace}
            spec = dict(found["spec"])
            body: Object = {"metadata": metadata, "spec": spec}
            await asyncio.shield(
                asyncio.ensure_future(persist(lambda: cluster.api.create(kind, body)))
            )

    namespace = rf"/api.*/namespaces/{cluster.namespace}"
    path = rf"{namespace}/pods/[^/]+/binding|{namespace}/resourceclaims/named-[^/]+"
    what = {"before": replace, "outlives": True}
    async with _faults(
        scene, scene.stage.proxies, "deleted before", "POST|PUT|PATCH", path, 0.15, what
    ):
        await asyncio.Event().wait()


async def _scheduler_restarts(scene: Scene) -> None:
    """kube-scheduler is killed and comes back."""
    await asyncio.sleep(scene.rng.uniform(0.5, 3.0))
    scene.counts["kube-scheduler restarted"] += 1
    await asyncio.shield(asyncio.ensure_future(scene.stage.restart_kube_scheduler()))
    await asyncio.Event().wait()


def _truncated(body: bytes) -> bytes:
    return body[: len(body) // 2]


def _html(_: bytes) -> bytes:
    return b"<html><body>502 Bad Gateway</body></html>"


ALL: tuple[Disturbance, ...] = (
    Disturbance("conflicts", _conflicts),
    _on_requests(
        "429 with Retry-After",
        WRITES,
        WORK,
        0.3,
        answer=(429, "injected: too many requests"),
        headers={"Retry-After": "1"},
    ),
    _on_requests("503 before", WRITES, WORK, 0.2, answer=(503, "injected: unavailable")),
    _on_requests("500 before", ".*", WORK, 0.1, answer=(500, "injected: internal error")),
    _on_requests("504 after commit", WRITES, WORK, 0.2, late_answer=(504, "injected: timeout")),
    _on_requests("cut after commit", WRITES, WORK, 0.2, cut=True),
    _on_requests("request lost", WRITES, WORK, 0.2, lost=True),
    _on_requests("answer truncated", ".*", WORK, 0.15, spoil=_truncated),
    _on_requests("HTML instead", ".*", WORK, 0.15, spoil=_html),
    _on_requests("slow answers", ".*", WORK, 0.4, hold_seconds=1.5),
    _on_requests("slow requests", WRITES, WORK, 0.3, delay_seconds=1.5, outlives=True),
    _on_requests(
        "late after the client gave up", WRITES, CLAIM, 0.1, delay_seconds=9.0, outlives=True
    ),
    _on_requests("sent twice", WRITES, WORK, 0.3, twice=True),
    Disturbance("watches broken", _streams),
    Disturbance("watches lag", _lag),
    Disturbance("events skipped", _skips),
    Disturbance("leader killed", _killed),
    Disturbance("leader stopped", _stopped),
    Disturbance("leader paused", _paused),
    Disturbance("lease blocked", _lease_blocked, ELECTED),
    Disturbance("cut off", _cut_off),
    Disturbance("API server restarts", _server_restarts),
    Disturbance("compaction", _compaction),
    Disturbance("republished", _republish),
    Disturbance("device taints", _taints),
    Disturbance("cordons", _cordons),
    Disturbance("deleted before the write", _deletes),
    _on_webhooks("webhook twice", "/(filter|bind|prioritize)", 0.3, twice=True),
    _on_webhooks("webhook late", "/(filter|bind)", 0.15, hold_seconds=5.0, outlives=True),
    _on_webhooks("webhook answer lost", "/(filter|bind)", 0.2, cut=True),
    _on_webhooks("webhook lost", "/(filter|bind)", 0.2, lost=True),
    Disturbance("kube-scheduler restarts", _scheduler_restarts, EXTENDER),
)


def possible(mode: Name) -> list[Disturbance]:
    """Those that make sense in a mode."""
    return [each for each in ALL if not each.modes or mode in each.modes]
