"""kube-scheduler as far as an extender sees it: a queue with backoff, and calls with time-outs.

One scheduling cycle at a time (filter, prioritize), binds beside it. A pod that was rejected waits for an event of a pod,
node or claim (in profile safe also of a slice, as the in-tree plugin then asks for), or for five minutes.
Source: docs/design/extender.md; docs/design/extender.md.
"""

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

import orjson

from tests.invariants import Call
from tests.invariants.objects import claim_names

if TYPE_CHECKING:
    from tests.simulation.replicas import Replica
    from tests.simulation.world import World

Object = dict[str, Any]
TIMEOUT_SECONDS: Final = 15.0
FLUSH_SECONDS: Final = 300.0
WAKING: Final = ("/pods", "/nodes", "resource.k8s.io/resourceclaims")
SAFE_WAKING: Final = (
    *WAKING,
    "resource.k8s.io/resourceslices",
    "resource.k8s.io/deviceclasses",
    "resource.k8s.io/devicetaintrules",
)


class KubeScheduler:
    """One kube-scheduler."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.rng = random.Random(world.rng.getrandbits(64))
        self.waking = self.rng.choice((WAKING, SAFE_WAKING))
        self._attempts: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._rejected: dict[str, tuple[float, int]] = {}  # when, and at which revision of `waking`
        self._assumed: dict[str, str] = {}  # pod UID -> node, while it is being bound
        self._tasks: set[asyncio.Task[None]] = set()

    def restart(self) -> None:
        """Forget everything (F27)."""
        self._attempts.clear()
        self._not_before.clear()
        self._rejected.clear()
        self._assumed.clear()
        for task in self._tasks:
            task.cancel()

    async def run(self) -> None:
        """Schedule for ever."""
        world = self.world
        while True:
            if world.happens("F27 kube-scheduler restart"):
                self.restart()
                self._bind_again()
            if world.happens("F28 malformed"):
                self._spawn(self._malformed())
            pod = self._next()
            if pod is None:
                await asyncio.sleep(0.25)
                continue
            await self._cycle(pod)
            await asyncio.sleep(0.002)

    def _next(self) -> Object | None:
        world, now = self.world, self.world.loop.time()
        changed = max(world.changed_at.get(each, 0) for each in self.waking)
        for pod in world.objects("/pods"):
            uid = pod["metadata"]["uid"]
            if (
                pod["spec"].get("schedulerName") != world.scheduler_name
                or pod["spec"].get("nodeName")
                or pod["spec"].get("schedulingGates")
                or pod["metadata"].get("deletionTimestamp")
                or uid in self._assumed
                or self._not_before.get(uid, 0.0) > now
                or not self._has_claims(pod)
            ):
                continue
            if uid in self._rejected:
                at, revision = self._rejected[uid]
                if changed <= revision and now < at + FLUSH_SECONDS:
                    continue
                del self._rejected[uid]
            return pod
        return None

    def _has_claims(self, pod: Object) -> bool:
        store = self.world.server.store
        return all(
            claim is not None
            and store.get(
                "resource.k8s.io/resourceclaims", f"{pod['metadata']['namespace']}/{claim}"
            )
            for claim in claim_names(pod).values()
        )

    def _target(self) -> "Replica":
        """Where the Service leads: to the leader, or with old endpoints to anybody."""
        world = self.world
        leaders = [
            replica
            for replica in world.replicas
            if not replica.is_down
            and replica.process is not None
            and replica.process.core.leadership.is_leader()
        ]
        if leaders and self.rng.random() < 0.95:
            return self.rng.choice(leaders)
        return self.rng.choice(world.replicas)

    async def _call(self, verb: str, request: Object) -> Any:
        """The decoded answer; None: an error."""
        world = self.world
        replica = self._target()
        if not replica.starts:
            return None
        began = world.loop.time()
        body = orjson.dumps(request)
        if world.happens("F26 repeated call"):
            self._spawn(self._repeat(replica, verb, body))
        seconds = TIMEOUT_SECONDS if self.rng.random() < 0.98 else 0.01
        author = replica.owner.name
        if verb == "bind":  # known before what it brings about
            world.record(Call(began, author, verb, request, 0))
        answer = await replica.call(f"/{verb}", body, seconds)
        world.net.operations += 1
        status, found = (0, None) if answer is None else (answer[0], _decoded(answer[1]))
        world.record(Call(began, author, verb, _short(request), status, found))
        if status == 500 or (status >= 400 and status != 503):
            world.note(f"webhook: {verb} {status}")
        return found if status == 200 else None

    async def _repeat(self, replica: "Replica", verb: str, body: bytes) -> None:
        await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.1, 20.0)))
        if verb == "bind" and self.rng.random() < 0.2:
            nodes = [node["metadata"]["name"] for node in self.world.objects("/nodes")]
            body = orjson.dumps({**orjson.loads(body), "Node": self.rng.choice([*nodes, "gone"])})
        if verb == "bind":
            request = orjson.loads(body)
            self.world.record(Call(self.world.loop.time(), replica.owner.name, verb, request, 0))
        await replica.call(f"/{verb}", body, TIMEOUT_SECONDS)

    async def _malformed(self) -> None:
        rng = self.rng
        body = rng.choice(
            (
                b"",
                b"{",
                b"[" * 200,
                b'{"Pod":null}',
                b'{"Pod":{"metadata":{"name":1}},"NodeNames":["a"]}',
                orjson.dumps({"Pod": {}, "NodeNames": ["x"] * 20}),
                orjson.dumps({"PodUID": "u", "Node": "\u0000"}),
                rng.randbytes(40),
            )
        )
        verb = rng.choice(("filter", "prioritize", "bind", "preempt"))
        replica = self._target()
        if not replica.starts:
            return
        answer = await replica.call(f"/{verb}", body, TIMEOUT_SECONDS)
        if answer is not None and answer[0] == 500 and b"internal error" in answer[1]:
            self.world.defect(f"{verb} of {body!r} is answered with an internal error")

    async def _cycle(self, pod: Object) -> None:
        world = self.world
        uid = pod["metadata"]["uid"]
        nodes = [
            node["metadata"]["name"]
            for node in world.objects("/nodes")
            if not node["spec"].get("unschedulable")
            and all(
                (node["metadata"].get("labels") or {}).get(key) == value
                for key, value in (pod["spec"].get("nodeSelector") or {}).items()
            )
        ]
        revision = max(world.changed_at.get(each, 0) for each in self.waking)
        if not nodes:
            self._rejected[uid] = (world.loop.time(), revision)
            return
        request = {"Pod": pod, "Nodes": None, "NodeNames": nodes}
        answer = await self._call("filter", request)
        if not isinstance(answer, dict) or answer.get("Error"):
            self._back_off(uid)
            return
        fitting = answer.get("NodeNames") or []
        if not fitting:
            self._rejected[uid] = (world.loop.time(), revision)
            self._back_off(uid)
            return
        node = fitting[0]
        if len(fitting) > 1:
            scores = await self._call("prioritize", {**request, "NodeNames": fitting})
            if isinstance(scores, list):
                best = max((each["Score"] for each in scores), default=0)
                node = self.rng.choice(
                    [each["Host"] for each in scores if each["Score"] == best] or fitting
                )
        self._assumed[uid] = node
        self._spawn(self._bind(pod, node))

    async def _bind(self, pod: Object, node: str) -> None:
        meta = pod["metadata"]
        uid = meta["uid"]
        request = {
            "PodName": meta["name"],
            "PodNamespace": meta["namespace"],
            "PodUID": uid,
            "Node": node,
        }
        answer = await self._call("bind", request)
        self._assumed.pop(uid, None)
        if not isinstance(answer, dict) or answer.get("Error"):
            self._back_off(uid)

    def _bind_again(self) -> None:
        bound = [pod for pod in self.world.objects("/pods") if pod["spec"].get("nodeName")]
        if bound:
            pod = self.rng.choice(bound)
            self._spawn(self._bind(pod, pod["spec"]["nodeName"]))

    def _back_off(self, uid: str) -> None:
        attempts = self._attempts[uid] = self._attempts.get(uid, 0) + 1
        pause = min(10.0, 2.0 ** min(attempts - 1, 4))
        self._not_before[uid] = self.world.loop.time() + pause

    def _spawn(self, work: Any) -> None:
        task = self.world.loop.spawn(None, work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _decoded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _short(request: Object) -> Object:
    """A request without what is in the trace already."""
    if "Pod" not in request:
        return request
    meta = request["Pod"]["metadata"]
    return {**request, "Pod": {"metadata": {"name": meta["name"], "uid": meta["uid"]}}}
