"""An extender that decides nothing: filter answers what came in, bind sends the three writes. The floor for ours.

It can answer as few nodes as ours does: the first so many. With one node it remembers its choice, as our forced choice does,
so that no two pods are sent after the same device.
"""

import asyncio
from itertools import islice
from types import TracebackType
from typing import Any, Self

import orjson
import uvicorn

from e2e.harness.api import CLAIMS
from e2e.harness.controlplane import ControlPlane
from tests.benchmarks import backlog as backlogs


class DoNothingExtender:
    """Runs on loopback inside an async context."""

    def __init__(
        self, plane: ControlPlane, backlog: backlogs.Backlog, port: int, most: int = 0
    ) -> None:
        """Describe the extender.

        Args:
            plane: where binds are written.
            backlog: whose pods come.
            port: where it listens.
            most: nodes that filter answers; 0: all that came in and have devices left.
        """
        self._admin = plane.admin
        self._slots = Slots(backlogs.DEVICES_PER_NODE // backlog.shape.devices, most)
        self._shape = backlog.shape
        self._claims: dict[str, dict[str, Any]] = {}
        config = uvicorn.Config(
            self._app,
            host="127.0.0.1",
            port=port,
            log_level="warning",
            lifespan="off",
            http="h11",
            interface="asgi3",  # a bound method does not look like one
        )
        self._server = uvicorn.Server(config)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for claim in await self._admin.objects(CLAIMS, backlogs.NAMESPACE):
            self._claims[claim["metadata"]["ownerReferences"][0]["uid"]] = claim
        self._task = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.01)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        args = orjson.loads(body)
        verb = scope["path"].rsplit("/", 1)[-1]
        answer = await self._answer(verb, args)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": orjson.dumps(answer)})

    async def _answer(self, verb: str, args: dict[str, Any]) -> Any:
        if verb == "filter":
            free = self._slots.free(args["Pod"]["metadata"]["uid"], args["NodeNames"])
            return {"NodeNames": free, "FailedNodes": {}, "Error": ""}
        if verb == "prioritize":
            return [{"Host": name, "Score": 0} for name in args["NodeNames"]]
        if verb == "preempt":
            return {"NodeNameToMetaVictims": {}}
        uid, node = args["PodUID"], args["Node"]
        slot = self._slots.take(uid, node)
        if slot is None:
            return {"Error": "no device left"}
        pod = {"metadata": {"name": args["PodName"], "uid": uid}}
        per_node = self._slots.per_node
        index = int(node.rsplit("-", 1)[1]) * per_node + slot
        await backlogs.bind_bare(self._admin, self._shape, self._claims[uid], pod, index, per_node)
        return {"Error": ""}


class Slots:
    """Which places for a pod's devices are taken, on nodes that are all alike.

    Attributes:
        per_node: places of a node.
    """

    def __init__(self, per_node: int, most: int) -> None:
        self.per_node = per_node
        self._most = most
        self._used: dict[str, int] = {}
        self._chosen: dict[str, tuple[str, int]] = {}  # pod uid -> node and slot, taken by filter

    def free(self, uid: str, names: list[str]) -> list[str]:
        """Nodes to answer. A full one must not be among them, or kube-scheduler would choose it for ever."""
        if self._most == 1:
            chosen = self._chosen.get(uid)
            return self._choose(uid, names) if chosen is None else [chosen[0]]
        used, per_node = self._used, self.per_node
        free = (name for name in names if used.get(name, 0) < per_node)
        return list(islice(free, self._most) if self._most else free)

    def _choose(self, uid: str, names: list[str]) -> list[str]:
        for name in names:
            slot = self._take(name)
            if slot is not None:
                self._chosen[uid] = (name, slot)
                return [name]
        return []

    def take(self, uid: str, node: str) -> int | None:
        """Take a place of a node for a pod, if there is one."""
        chosen = self._chosen.get(uid)
        return chosen[1] if chosen is not None else self._take(node)

    def _take(self, node: str) -> int | None:
        slot = self._used.get(node, 0)
        if slot >= self.per_node:
            return None
        self._used[node] = slot + 1
        return slot
