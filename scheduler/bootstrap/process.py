"""One process from start to clean end: servers, reflectors, leadership, and the work of its mode.

SIGTERM: not ready any more, serve a little longer, refuse new work, let the binds under way end, give the lease back.
A lost lease ends the process within a second; so does the death of a critical task. Source:
docs/design/leader-election.md#rules, docs/design/process.md.
"""

import asyncio
import contextlib
import logging
import random
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

import uvloop

from allocator.features import FeatureGateError, Features
from allocator.outcome import Reason, ReasonKind
from scheduler.binder import LeaseLostError
from scheduler.binder.takeover import QUARANTINE_SECONDS, sweep
from scheduler.bootstrap.build import (
    Core,
    build_core,
    build_leadership,
    build_loop,
    detect_version,
)
from scheduler.bootstrap.logs import configure_logging
from scheduler.client import ApiClient, ApiError, UnavailableError
from scheduler.client.kube import ClientConfigError, ClientSettings, KubeClient
from scheduler.clock import Clock, SystemClock
from scheduler.config import Settings, TLSSettings
from scheduler.extender.holds import Holds
from scheduler.extender.service import ExtenderService
from scheduler.extender.wakeup import WakeUp
from scheduler.flight_recorder import FlightRecorder
from scheduler.framework.environment import Mode
from scheduler.framework.events import Event
from scheduler.leader import LeadershipLostError
from scheduler.model import ClaimRecord, Kind
from scheduler.web.health import create_health_app
from scheduler.web.profile import Profiling
from scheduler.web.recording import show_recording
from scheduler.web.server import (
    GRACE_SECONDS,
    is_loopback,
    make_server,
    reload_certificates,
    server_context,
    split_address,
)

_log: Final = logging.getLogger(__name__)

_NOT_SYNCED: Final = "caches are not synced"
LAG_SECONDS: Final = 3.0  # until endpoints have noticed that we are not ready
DRAIN_SECONDS: Final = 15.0
SILENCE_SECONDS: Final = 90.0
FOLLOWER_PATIENCE_SECONDS: Final = 5.0


class HttpServer(Protocol):
    """A server in this event loop, as far as a process deals with it."""

    should_exit: bool
    config: Any

    async def serve(self) -> None:
        """Serve until told to exit."""
        ...

    async def wait_started(self) -> None:
        """Wait until calls are answered."""
        ...


MakeServer = Callable[[Any, str, TLSSettings | None], HttpServer]
"""From an ASGI application, HOST:PORT and TLS settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """All that a process has to do with the world outside it: replaced as a whole, a process runs in a simulated one.

    Attributes:
        client: of the API server.
        lease_client: another one, so that renewals do not queue behind other requests.
        clock: time and waiting.
        rng: jitter, names, share IDs.
        make_server: serves webhooks and probes.
    """

    client: ApiClient
    lease_client: ApiClient
    clock: Clock
    rng: random.Random
    make_server: MakeServer = make_server


def run_extender(settings: Settings) -> int:
    """Serve the webhooks until told to end; returns the exit code."""
    return _run(settings, Mode.EXTENDER)


def run_standalone(settings: Settings) -> int:
    """Schedule our pods until told to end; returns the exit code."""
    return _run(settings, Mode.STANDALONE)


def _run(settings: Settings, mode: Mode) -> int:
    configure_logging(settings.logging_format, settings.verbosity)
    try:
        _check(settings, mode)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_main(settings, mode))
    except (ClientConfigError, FeatureGateError, ValueError) as error:
        print(f"dra-scheduler: {error}", file=sys.stderr)  # noqa: T201
        return 2


def _check(settings: Settings, mode: Mode) -> None:
    """Refuse settings that cannot work or are unsafe, such as webhooks without TLS outside loopback.

    Raises:
        ValueError: says which setting and why.
    """
    for address in (settings.bind_address, settings.health_address):
        split_address(address)
    if settings.tls.cert_file:
        server_context(settings.tls)
    elif mode is Mode.EXTENDER and not is_loopback(settings.bind_address):
        raise ValueError(
            "plain HTTP is only served on loopback: set --tls-cert-file and --client-ca-file"
        )
    if settings.leader_election.follow_lease and settings.leader_election.enabled:
        raise ValueError("followLease excludes leader election: set --leader-elect=false")


async def _main(settings: Settings, mode: Mode) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    timeouts = ClientSettings(
        request_timeout_seconds=settings.binding.request_timeout_seconds,
        server_timeout_seconds=settings.binding.server_timeout_seconds,
    )
    client = await KubeClient.connect(settings.kubeconfig, timeouts)
    # With the client's default times, which fit a lease.
    lease_client = await KubeClient.connect(settings.kubeconfig)
    surroundings = Surroundings(
        client=client,
        lease_client=lease_client,
        clock=SystemClock(),
        rng=random.SystemRandom(),
    )
    try:
        return await run_process(settings, mode, surroundings, stop)
    finally:
        await client.aclose()
        await lease_client.aclose()


async def run_process(
    settings: Settings,
    mode: Mode,
    surroundings: Surroundings,
    stop: asyncio.Event,
    on_built: Callable[["Process"], None] = lambda _process: None,
) -> int:
    """Build a process and run it until told to end, or until something critical fails; returns the exit code.

    Args:
        settings: checked.
        mode: extender or stand-alone.
        surroundings: what it runs in.
        stop: set to end it.
        on_built: gets the process before it runs.
    """
    client, clock, rng = surroundings.client, surroundings.clock, surroundings.rng
    features = await _features(client, settings, stop, clock, rng)
    if features is None:
        return 0
    leadership = build_leadership(settings, surroundings.lease_client, clock, rng)
    core = build_core(settings, client, leadership, features, clock, rng, mode)
    process = Process(core, mode, stop, surroundings.make_server)
    on_built(process)
    return await process.run()


async def _features(
    client: ApiClient,
    settings: Settings,
    stop: asyncio.Event,
    clock: Clock,
    rng: random.Random,
) -> Features | None:
    """The gates of the cluster, once it answers; None if we are told to end first."""
    warned = False
    while not stop.is_set():
        try:
            version = await detect_version(client, settings)
            return Features.for_version(version, settings.allocation.feature_gates)
        except (ApiError, UnavailableError) as error:
            if not warned:
                _log.warning("waiting for the API server: %s", error)
                warned = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5 + rng.random()):
                    await stop.wait()
    return None


class Process:
    """Everything that runs, and its end."""

    def __init__(
        self, core: Core, mode: Mode, stop: asyncio.Event, make_server: MakeServer = make_server
    ) -> None:
        self._make_server = make_server
        self.core = core
        self.mode = mode
        self._stop = stop
        self._is_warm = asyncio.Event()  # all is read, and prepared for the first question
        self._stopping = False  # not ready any more
        self._refusing = False  # no new work
        self._active = False  # leading, and done with what a takeover needs
        self._critical: dict[str, asyncio.Task[None]] = {}
        self._exit = 0
        self._stop_loop: Callable[[], None] | None = None
        self._wakeup: WakeUp | None = None
        self._servers: list[HttpServer] = []
        self._closers: list[Callable[[], None]] = []
        enabled = core.settings.enable_profiling
        self._profiling = Profiling(core.clock.monotonic) if enabled else None
        self._recorder: FlightRecorder | None = None
        if core.settings.enable_flight_recorder:
            self._recorder = FlightRecorder(core.cache, core.engine.environment)
            core.engine.observer = self._recorder
        self._server_tasks: set[asyncio.Task[None]] = set()

    # --- what probes say ----------------------------------------------------------------------------------------------

    def live(self) -> list[str]:
        """Dead tasks."""
        if self._stopping:
            return []
        return [f"task {name} has ended" for name, task in self._critical.items() if task.done()]

    def ready(self) -> list[str]:
        """Why this process should not be called."""
        if self._stopping:
            return ["shutting down"]
        problems = self.core.reflectors.problems()
        if not self._is_warm.is_set():
            return problems or [_NOT_SYNCED]
        if self.core.reflectors.silence_seconds() > SILENCE_SECONDS:
            problems.append("a watch has been silent for too long")
        return problems

    def started(self) -> list[str]:
        """What the first sync waits for."""
        if self._is_warm.is_set():
            return []
        return self.core.reflectors.problems() or [_NOT_SYNCED]

    def unavailable(self) -> Reason | None:
        """Why webhooks cannot be answered now."""
        if self._refusing:
            return Reason(kind=ReasonKind.NOT_READY, message="this extender is shutting down")
        if not self.core.reflectors.synced.is_set():
            return Reason(
                kind=ReasonKind.NOT_READY, message="this extender has not read the cluster yet"
            )
        if not self._active or not self.core.may_write():
            return Reason(kind=ReasonKind.NOT_LEADER, message="this extender is not the leader")
        return None

    def details(self) -> dict[str, object]:
        """For /debug/state."""
        core = self.core
        return {
            "leader": core.leadership.is_leader(),
            "active": self._active,
            "epoch": core.epochs(),
            "digest": {kind.name: digest for kind, digest in core.cache.digest().items()},
            "openBinds": core.binder.open_chains,
            "inFlightClaims": core.cache.in_flight_claims,
            "assumedClaims": core.cache.assumed_claims,
        }

    # --- run ----------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run until told to end or something critical fails; returns the exit code."""
        core = self.core
        # Critical from the first moment on; everything else stands on these.
        self._start("reflectors", core.reflectors.run())
        self._start("events", core.events.run())
        self._start("loop stalls", core.metrics.watch_stalls(core.clock))
        try:
            await self._serve()
            self._start("leadership", core.leadership.run(self._lead, self._follow))
            waiting = asyncio.create_task(self._stop.wait())
            ready = asyncio.create_task(self._announce())
            await asyncio.wait(
                {waiting, *self._critical.values()}, return_when=asyncio.FIRST_COMPLETED
            )
            waiting.cancel()
            ready.cancel()
            self._report_failures()
            if self._exit == 0:
                await self._drain()
        except OSError as error:
            _log.error("%s", error)
            self._exit = 1
        finally:
            self._stopping = self._refusing = True
            if self._profiling is not None:  # its answer would take as long as it was asked to
                self._profiling.close()
            for server in self._servers:
                server.should_exit = True
            if self._exit == 0 and self._server_tasks:  # answers that are ready are still sent
                await asyncio.wait(self._server_tasks, timeout=GRACE_SECONDS + 1.0)
            for close in self._closers:
                close()
            for task in self._critical.values():
                task.cancel()
            await asyncio.gather(*self._critical.values(), return_exceptions=True)
        return self._exit

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._critical[name] = asyncio.create_task(work, name=name)

    async def _announce(self) -> None:
        core = self.core
        await core.reflectors.synced.wait()
        if self.mode is Mode.EXTENDER:  # it will be asked about all nodes at once
            core.engine.follow(core.cache)
            for _ in core.engine.warm(core.cache.snapshot()):
                await asyncio.sleep(0)
        self._is_warm.set()
        _log.info("ready", extra={"mode": self.mode.value, "address": core.settings.bind_address})

    async def _serve(self) -> None:
        core, settings = self.core, self.core.settings
        health = create_health_app(
            live=self.live,
            ready=self.ready,
            started=self.started,
            metrics=core.metrics.render,
            details=self.details,
            profile=None if self._profiling is None else self._profiling.show,
            recording=None if self._recorder is None else show_recording(self._recorder),
        )
        if self._profiling is not None:
            _log.warning("profiling is on: %s/debug/profile", settings.health_address)
        if self._recorder is not None:
            _log.warning("decisions are recorded: %s/debug/recording", settings.health_address)
        self._servers.append(self._make_server(health, settings.health_address, None))
        if self.mode is Mode.EXTENDER:
            self._servers.append(self._extender_server())
        for server in self._servers:
            name = f"server {server.config.port}"
            self._start(name, server.serve())
            self._server_tasks.add(self._critical[name])
            await server.wait_started()

    def _extender_server(self) -> HttpServer:
        core, settings = self.core, self.core.settings
        # Profile safe needs it, too: kube-scheduler may see a device freed before we do, and ask too early.
        wakeup = WakeUp(
            core.client,
            core.clock,
            core.may_write,
            settings.extender.sentinel_namespace,
            settings.extender.sentinel_name,
        )
        if core.engine.environment.features.node_allocatable_resources:
            wakeup.helpful = Event.ROOM_FREED | Event.NODE_ALLOCATABLE
        core.cache.subscribe(wakeup.observe)
        self._start("wake-up", wakeup.run())
        self._wakeup = wakeup
        holds = None
        if settings.extender.forced_choice:
            holds = Holds(core.cache, core.clock, wakeup.freed)
            core.cache.subscribe(holds.observe)
            self._start("holds", holds.run())
        service = ExtenderService(
            cache=core.cache,
            binder=core.binder,
            engine=core.engine,
            clock=core.clock,
            wakeup=wakeup,
            max_open_binds=settings.binding.max_concurrent,
            shortlist=settings.extender.filter_shortlist,
            holds=holds,
            search_seconds=settings.allocation.timeout_seconds,
        )
        self._closers.append(service.close)
        # Only here: FastAPI takes a third of a second to import, and stand-alone has no use for it.
        from scheduler.extender.app import ExtenderApp

        app = ExtenderApp(
            service,
            unavailable=self.unavailable,
            clock=core.clock,
            patience_seconds=FOLLOWER_PATIENCE_SECONDS
            if settings.leader_election.follow_lease
            else 0.0,
            observe=core.metrics.webhook,
            refused=core.metrics.webhook_refused,
        ).create()
        server = self._make_server(app, settings.bind_address, settings.tls)
        if server.config.ssl is not None:
            self._start(
                "certificates", reload_certificates(server.config.ssl, settings.tls, core.clock)
            )
        return server

    # --- leading ------------------------------------------------------------------------------------------------------

    async def _lead(self) -> None:
        """Runs as a task while leading."""
        core = self.core
        await core.reflectors.synced.wait()
        if core.leadership.epoch > 0:
            await self._take_over()
        if self._wakeup is not None:
            self._wakeup.begin()
        self._active = True
        if self.mode is Mode.STANDALONE:
            loop = build_loop(core)
            self._stop_loop = loop.stop
            await loop.run()

    def _follow(self) -> None:
        """Called when leading ends."""
        self._active = False

    async def _take_over(self) -> None:
        """See all that the leader before us wrote. If it may still have writes under way: wait, then make them fail.

        Begun again when the lease is lost on the way: it may come back (a followed one does) before anybody stops us.
        """
        core = self.core
        while True:
            if core.leadership.needs_sweep:
                await core.clock.sleep(QUARANTINE_SECONDS)
            try:
                await core.reflectors.relist(Kind.RESOURCE_CLAIM)
            except (ApiError, UnavailableError, ValueError) as error:
                _log.warning("could not list claims again, continuing with the watch: %s", error)
            core.epochs.rise_above(claim.metadata.annotations for claim in core.cache.claims())
            if not core.leadership.needs_sweep:
                return
            try:
                await self._sweep()
            except LeaseLostError:
                continue
            return

    async def _sweep(self) -> None:
        core = self.core
        wanted: dict[str, ClaimRecord] = {}
        for pod in core.cache.pending_pods():
            for claim in core.cache.claims_of_pod(pod):
                record = core.cache.claim_by_uid(claim.metadata.uid)
                if record is not None:
                    wanted[claim.metadata.uid] = record
        epoch = core.epochs()
        stamped = await sweep(
            wanted.values(),
            epoch=epoch,
            client=core.client,
            clock=core.clock,
            rng=core.rng,
            may_write=core.may_write,
            assume=core.cache.assume_claim,
        )
        _log.info("took over leadership: stamped epoch on %d claims (epoch %d)", stamped, epoch)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _report_failures(self) -> None:
        for name, task in self._critical.items():
            if not task.done() or task.cancelled():
                continue
            error = task.exception()
            self._exit = 1
            if isinstance(error, LeadershipLostError):
                _log.error("the lease is lost: %s", error)
            elif error is None:
                _log.error("%s ended unexpectedly", name)
            else:
                _log.error("%s failed: %s", name, error, exc_info=error)

    async def _drain(self) -> None:
        """Finish binds in progress and start nothing new."""
        _log.info("shutting down")
        settings = self.core.settings
        self._stopping = True
        if self.mode is Mode.EXTENDER and not is_loopback(settings.bind_address):
            await self.core.clock.sleep(LAG_SECONDS)  # still serving: callers come until they know
        self._refusing = True
        if self._stop_loop is not None:
            self._stop_loop()
        is_drained = await self.core.binder.drain(DRAIN_SECONDS)
        # Whoever renews must have ended first, or would take the lease again right after it was given back.
        election = self._critical["leadership"]
        election.cancel()
        await asyncio.wait({election})
        if is_drained:
            await self.core.leadership.release()
        else:
            _log.warning("stopping with binds in progress: the next leader finishes or undoes them")
