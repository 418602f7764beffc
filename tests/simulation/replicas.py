"""Replicas of the real application, and what starts them again when they have ended."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from scheduler.bootstrap.process import Process, Surroundings, run_process
from scheduler.config import Settings, TLSSettings
from scheduler.framework.environment import Mode
from tests.simulation.clocks import ProcessClock
from tests.simulation.loop import Owner
from tests.simulation.network import Wire

if TYPE_CHECKING:
    from tests.simulation.world import World

WEBHOOKS: Final = "127.0.0.1:8888"
EXTENDER_SECONDS: Final = 15.0


class AppServer:
    """A server without sockets: its application is called directly."""

    def __init__(self, app: Any, address: str) -> None:
        self.app = app
        self.config = SimpleNamespace(port=int(address.rpartition(":")[2]), ssl=None)
        self._exit = asyncio.Event()

    @property
    def should_exit(self) -> bool:
        return self._exit.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        if value:
            self._exit.set()

    async def serve(self) -> None:
        await self._exit.wait()

    async def wait_started(self) -> None:
        await asyncio.sleep(0)


@dataclass(slots=True, eq=False)
class Replica:
    """One replica; each start is a process of its own, with its own clock and connections.

    Attributes:
        name: of the pod, say.
        mode: extender or stand-alone.
        settings: as from flags.
        starts: how often it was started.
        exits: exit codes of those that ended by themselves.
        is_down: dead, and to be started later.
    """

    world: "World"
    name: str
    mode: Mode
    settings: Settings
    starts: int = 0
    exits: list[int] = field(default_factory=list)
    owner: Owner = field(init=False)
    clock: ProcessClock = field(init=False)
    wire: Wire = field(init=False)
    lease_wire: Wire = field(init=False)
    process: Process | None = None
    is_down: bool = True
    restarts_by_itself: bool = True
    _servers: dict[str, AppServer] = field(default_factory=dict)
    _stop: asyncio.Event | None = None
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        """Start a new process."""
        world = self.world
        self.starts += 1
        rng = random.Random(world.rng.getrandbits(64))
        name = f"{self.name}#{self.starts}"
        self.owner = Owner(name)
        self.clock = ProcessClock(world.loop, rng, rate=world.clock_rate())
        self.wire = Wire(world.net, self.owner, name, world.faults_of(self))
        self.lease_wire = Wire(world.net, self.owner, name, world.faults_of(self))
        self.process = None
        self.is_down = False
        self._servers = {}
        election = replace(self.settings.leader_election, identity=name)
        settings = replace(self.settings, leader_election=election)
        surroundings = Surroundings(
            client=self.wire,
            lease_client=self.lease_wire,
            clock=self.clock,
            rng=rng,
            make_server=self._make_server,
        )
        owner = self.owner

        async def run() -> None:
            self._stop = asyncio.Event()
            try:
                code = await run_process(settings, self.mode, surroundings, self._stop, self._built)
            except Exception as error:
                world.defect(f"{name} ended by {type(error).__name__}: {error}")
                code = 1
            self._ended(owner, code)

        self._tasks.append(world.loop.spawn(owner, run()))

    def stop(self) -> None:
        """SIGTERM."""
        if self._stop is not None and not self.is_down:
            self.world.loop.later(0.0, self._stop.set)

    def crash(self) -> None:
        """SIGKILL: nothing of it runs any more; what it has sent is still under way."""
        if self.is_down:
            return
        self.owner.kill()
        self.is_down = True
        for wire in (self.wire, self.lease_wire):
            for connection in tuple(wire.watches):
                connection.close()
        self._start_later()

    async def call(self, path: str, body: bytes, seconds: float) -> tuple[int, bytes] | None:
        """POST to the webhooks; None: no answer in time."""
        server = self._servers.get(WEBHOOKS)
        if server is None or self.is_down:
            return None
        loop = self.world.loop
        answer: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [(b"content-type", b"application/json")],
            "query_string": b"",
        }
        found: dict[str, Any] = {"status": 0, "body": b""}

        async def receive() -> Mapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                found["status"] = message["status"]
            else:
                found["body"] += message.get("body", b"")

        async def serve() -> None:
            await server.app(scope, receive, send)

            def done() -> None:
                if not answer.done():
                    answer.set_result((found["status"], found["body"]))

            loop.later(self.world.net.latency(), done)

        self._tasks.append(loop.spawn(self.owner, serve()))
        loop.later(seconds, lambda: answer.done() or answer.cancel())
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                return None
            raise

    def _make_server(self, app: Any, address: str, tls: TLSSettings | None) -> AppServer:
        server = self._servers[address] = AppServer(app, address)
        return server

    def _built(self, process: Process) -> None:
        self.process = process

    def _ended(self, owner: Owner, code: int) -> None:
        if owner is not self.owner or self.is_down:
            return
        self.exits.append(code)
        self.is_down = True
        owner.kill()
        for wire in (self.wire, self.lease_wire):
            for connection in tuple(wire.watches):
                connection.close()
        self._start_later()

    def _start_later(self) -> None:
        if self.restarts_by_itself:
            self.world.loop.later(self.world.rng.uniform(0.2, 6.0), self._start_again)

    def _start_again(self) -> None:
        if self.is_down and not self.world.is_over:
            self.start()


Starter = Callable[[Replica], None]
