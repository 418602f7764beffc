"""Builds the collaborators of one process and wires them together."""

import logging
import os
import random
import secrets
import socket
import uuid
from dataclasses import dataclass
from typing import Final

import orjson

from allocator.cel import Compiler
from allocator.features import LATEST_VERSION, FeatureGateError, Features, minor_version
from allocator.model.claims import ResourceClaim
from allocator.model.devices import DeviceID
from scheduler.binder import Binder, ClaimWriter, Epochs, PodWriter
from scheduler.cache.allocated import Conflict
from scheduler.cache.cluster import ClusterCache
from scheduler.client import ApiClient
from scheduler.client.counted import CountedClient
from scheduler.clock import Clock
from scheduler.config import Settings
from scheduler.engine.engine import Engine
from scheduler.events import WARNING, EventRecorder, Reference
from scheduler.framework.environment import Environment, Mode, ShouldStop
from scheduler.leader import AlwaysLeader, FollowLease, LeaderElector, Leadership
from scheduler.metrics import Metrics
from scheduler.model import Kind, Pod
from scheduler.reflectors.barrier import ClaimBarrier
from scheduler.reflectors.reflectors import Reflectors
from scheduler.standalone.loop import StandaloneLoop
from scheduler.workers import STALL_SECONDS

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Core:
    """What both modes have: the cluster as known, decisions, writes."""

    settings: Settings
    client: ApiClient
    clock: Clock
    rng: random.Random
    cache: ClusterCache
    reflectors: Reflectors
    leadership: Leadership
    engine: Engine
    binder: Binder
    events: EventRecorder
    metrics: Metrics
    epochs: Epochs

    def may_write(self) -> bool:
        """Whether this process may send a write now."""
        return self.leadership.can_write(self.clock.monotonic())


def build_loop(core: Core) -> StandaloneLoop:
    """The loop of the stand-alone mode."""
    return StandaloneLoop(core)


async def detect_version(client: ApiClient, settings: Settings) -> str:
    """The minor version whose gate defaults apply: as configured, else as the server says, else the newest known."""
    if settings.allocation.kubernetes_version:
        return minor_version(settings.allocation.kubernetes_version)
    found = str(orjson.loads(await client.get("/version")).get("gitVersion", ""))
    try:
        return minor_version(found)
    except FeatureGateError:
        _log.warning(
            "server version %s is not known: using the defaults of %s", found, LATEST_VERSION
        )
        return LATEST_VERSION


def own_pod() -> tuple[str, str] | None:
    """Namespace and name of the pod we run in, if the manifest tells."""
    namespace, name = os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")
    return (namespace, name) if namespace and name else None


def build_leadership(
    settings: Settings, client: ApiClient, clock: Clock, rng: random.Random
) -> Leadership:
    """The kind of leadership that the settings ask for."""
    election = settings.leader_election
    if election.follow_lease:
        hostname = os.environ.get("POD_NAME") or socket.gethostname()
        return FollowLease(client, election, clock, hostname, own_pod())
    if not election.enabled:
        return AlwaysLeader()
    identity = election.identity or f"{socket.gethostname()}_{secrets.token_hex(8)}"
    return LeaderElector(client, election, clock, rng, identity, own_pod())


def build_environment(
    settings: Settings, features: Features, clock: Clock, rng: random.Random, mode: Mode
) -> Environment:
    """The environment of all decisions."""
    allocation = settings.allocation

    def start_deadline() -> ShouldStop:
        """Searches start in the event loop and move to a thread when they take too long."""
        limit = clock.monotonic() + STALL_SECONDS

        return lambda: clock.monotonic() >= limit

    def new_share_id(_claim: ResourceClaim, _request: str, _device: DeviceID) -> str:
        return str(uuid.UUID(int=rng.getrandbits(128), version=4))

    return Environment(
        features=features,
        cel=Compiler(),
        now=clock.now,
        new_share_id=new_share_id,
        budget=allocation.budget,
        policy=allocation.policy,
        on_node_error=allocation.on_node_error,
        mode=mode,
        start_deadline=start_deadline,
        hands_over_searches=True,
        binding_timeout_seconds=settings.binding.binding_timeout_seconds,
    )


def build_core(
    settings: Settings,
    client: ApiClient,
    leadership: Leadership,
    features: Features,
    clock: Clock,
    rng: random.Random,
    mode: Mode,
) -> Core:
    """Build everything that both modes share."""
    metrics = Metrics()
    client = CountedClient(client, metrics.api_write)
    cache = ClusterCache(
        consumable_capacity=features.consumable_capacity,
        counts_claims=features.node_allocatable_resources,
    )
    kinds = [
        kind
        for kind in Kind
        if kind is not Kind.DEVICE_TAINT_RULE
        or features.device_taint_rules
        or features.device_taints
    ]
    reflectors = Reflectors(client, cache, clock, rng, metrics, kinds)
    events = EventRecorder(client, clock, rng, socket.gethostname(), metrics)

    def may_write() -> bool:
        return leadership.can_write(clock.monotonic())

    def warn(regarding: Reference, note: str) -> None:
        events.record(
            regarding, type_=WARNING, reason="ForeignAllocation", action="Allocating", note=note
        )

    def foreign(conflict: Conflict) -> str:
        return f"{conflict.message}: another writer allocates from the same pool"

    def on_conflict(pod: Pod, conflict: Conflict) -> None:
        """Foreign allocation, seen while binding: the pod's owner should know, without names of other tenants."""
        warn(Reference.to_pod(pod), foreign(conflict))

    def on_cache_conflict(conflict: Conflict) -> None:
        metrics.foreign_allocation()
        note = foreign(conflict)
        _log.error("%s", note)
        for uid in (conflict.claim_uid, conflict.other_uid):
            record = cache.claim_by_uid(uid)
            if record is not None:
                warn(Reference.to_claim(record.claim), note)

    cache.subscribe_conflicts(on_cache_conflict)
    epochs = Epochs(lambda: leadership.epoch)
    binder = Binder(
        claims=ClaimWriter(client, cache, clock, rng, may_write, epochs),
        pods=PodWriter(client, clock, rng, may_write),
        cache=cache,
        barrier=ClaimBarrier(cache, clock, metrics.cache_lag),
        clock=clock,
        settings=settings.binding,
        on_conflict=on_conflict,
        counts_claims=features.node_allocatable_resources,
    )
    engine = Engine(build_environment(settings, features, clock, rng, mode))
    _watch_values(metrics, cache, reflectors, leadership, epochs, engine, binder)
    return Core(
        settings=settings,
        client=client,
        clock=clock,
        rng=rng,
        cache=cache,
        reflectors=reflectors,
        leadership=leadership,
        engine=engine,
        binder=binder,
        events=events,
        metrics=metrics,
        epochs=epochs,
    )


def _watch_values(
    metrics: Metrics,
    cache: ClusterCache,
    reflectors: Reflectors,
    leadership: Leadership,
    epochs: Epochs,
    engine: Engine,
    binder: Binder,
) -> None:
    metrics.watch_value(
        "leader", "1 while this process may write", lambda: float(leadership.is_leader())
    )
    metrics.watch_value("epoch", "Epoch of the leadership", lambda: float(epochs()))
    metrics.watch_value(
        "watch_silence_seconds",
        "Seconds since the last event or bookmark of the quietest watch",
        reflectors.silence_seconds,
    )
    metrics.watch_value(
        "in_flight_claims",
        "Claims with an allocation that is decided and not yet written",
        lambda: float(cache.in_flight_claims),
    )
    metrics.watch_value(
        "assumed_claims",
        "Claims written and not yet seen by the watch",
        lambda: float(cache.assumed_claims),
    )
    metrics.watch_value(
        "unreadable_objects",
        "Objects known of which something that is needed cannot be read",
        lambda: float(cache.unreadable_count()),
    )
    metrics.watch_value("open_binds", "Binds in progress", lambda: float(binder.open_chains))
    _watch_memory(metrics, engine)


def _watch_memory(metrics: Metrics, engine: Engine) -> None:
    """Metrics of the memory of answers: hit rate and size.

    Hit rate: `1 - rate(searches_total) / rate(memo_lookups_total)`.
    """
    metrics.watch_count(
        "memo_lookups", "Node answers requested from the engine", lambda: float(engine.looked_up)
    )
    metrics.watch_count(
        "searches",
        "Searches run because no remembered answer was found",
        lambda: float(engine.searches),
    )
    metrics.watch_count(
        "memo_mismatch",
        "Remembered answers that a plain search contradicted; anything but 0 is a bug",
        lambda: float(engine.mismatches),
    )
    metrics.watch_count(
        "memo_evictions",
        "Questions evicted from memory, with their answers",
        lambda: float(engine.memo.evictions),
    )
    metrics.watch_value("memo_answers", "Node answers in memory", lambda: float(engine.memo.weight))
    metrics.watch_value("memo_questions", "Questions in memory", lambda: float(len(engine.memo)))
    metrics.watch_value(
        "memo_limit", "Maximum number of node answers in memory", lambda: float(engine.memo.limit)
    )
