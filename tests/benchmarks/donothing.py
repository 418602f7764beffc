"""An extender that decides nothing: filter answers what came in, bind sends the three writes. The floor for ours."""

import asyncio
from types import TracebackType
from typing import Any, Self

import orjson
import uvicorn

from e2e.harness.api import CLAIMS
from e2e.harness.controlplane import ControlPlane
from tests.benchmarks import backlog as backlogs


class DoNothingExtender:
    """Runs on loopback inside an async context."""

    def __init__(self, plane: ControlPlane, backlog: backlogs.Backlog, port: int) -> None:
        self._admin = plane.admin
        self._backlog = backlog
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
        self._used: dict[str, int] = {}

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
            # A node that has given all its devices away must not be answered, or kube-scheduler would choose it for ever.
            per_node = backlogs.DEVICES_PER_NODE // self._backlog.shape.devices
            free = [name for name in args["NodeNames"] if self._used.get(name, 0) < per_node]
            return {"NodeNames": free, "FailedNodes": {}, "Error": ""}
        if verb == "prioritize":
            return [{"Host": name, "Score": 0} for name in args["NodeNames"]]
        if verb == "preempt":
            return {"NodeNameToMetaVictims": {}}
        node = args["Node"]
        slot = self._used.get(node, 0)
        per_node = backlogs.DEVICES_PER_NODE // self._backlog.shape.devices
        if slot >= per_node:
            return {"Error": "no device left"}
        self._used[node] = slot + 1
        pod = {"metadata": {"name": args["PodName"], "uid": args["PodUID"]}}
        index = int(node.rsplit("-", 1)[1]) * per_node + slot
        await backlogs.bind_bare(
            self._admin, self._backlog.shape, self._claims[args["PodUID"]], pod, index, per_node
        )
        return {"Error": ""}
