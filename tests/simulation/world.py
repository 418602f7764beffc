"""A whole cluster in one seeded event loop: API server, controllers, drivers, tenants, and replicas of the application."""

import asyncio
import gc
import hashlib
import logging
import random
import sys
import warnings
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import orjson

from scheduler.client import JSON
from scheduler.config import BindSettings, ExtenderSettings, LeaderElectionSettings, Settings
from scheduler.framework.environment import Mode
from scheduler.lab.apiserver import opaque
from scheduler.lab.apiserver.requests import Request
from scheduler.lab.apiserver.server import ApiServer, Response
from scheduler.lab.apiserver.store import Change as StoreChange
from scheduler.lab.apiserver.watches import Watch
from scheduler.lab.simulated.claim_controller import ClaimController
from scheduler.lab.simulated.garbage import GarbageCollector
from scheduler.lab.simulated.kubelets import Kubelets
from tests.invariants import Change, Entry, Finding, Judge, Mark, Restored, Sent, Terms
from tests.invariants.objects import claim_names
from tests.simulation.chaos import Chaos, ReplicaFaults, write_name
from tests.simulation.clocks import ProcessClock
from tests.simulation.drivers import Drivers
from tests.simulation.faults import Faults, Verdict
from tests.simulation.kube_scheduler import KubeScheduler
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Answer, Network, NoAnswer, Wire
from tests.simulation.plan import Plan
from tests.simulation.replicas import Replica
from tests.simulation.tenants import Tenants, claims_path

Object = dict[str, Any]
OURS: Final = "dra-scheduler"
STEADY_SECONDS: Final = 60.0
WRITES: Final = ("finalizer", "allocate", "release", "bind", "lease", "pod status", "claim patch")
OUTCOMES: Final = ("committed", "conflict", "refused", "unknown")
KIND_OF_PLURAL: Final = {
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
}
RECORDED: Final = {
    "/pods": "Pod",
    "/nodes": "Node",
    "/namespaces": "Namespace",
    "resource.k8s.io/resourceclaims": "ResourceClaim",
    "resource.k8s.io/resourceslices": "ResourceSlice",
    "resource.k8s.io/deviceclasses": "DeviceClass",
    "resource.k8s.io/devicetaintrules": "DeviceTaintRule",
    "coordination.k8s.io/leases": "Lease",
}


@dataclass(slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        plan: what was run.
        findings: what is wrong.
        happened: fault or branch -> how often.
        steps: of the event loop.
        operations: requests that the API server carried out, and webhook calls.
        digest: of the whole trace.
        trace: if it was asked for.
    """

    plan: Plan
    findings: list[Finding]
    happened: Counter[str]
    steps: int
    operations: int
    digest: str
    trace: list[Entry] = field(default_factory=list)


class World:
    """See above."""

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        self.plan = plan
        self.rng = random.Random(f"world {plan.seed}")
        self.fault_rng = random.Random(f"faults {plan.seed}")
        self.loop = SimulatedLoop(random.Random(f"loop {plan.seed}"))
        self.clock = ProcessClock(self.loop, random.Random(0))
        self.server = ApiServer.create(self.clock, random.Random(self.rng.getrandbits(64)))
        self.net = Network(self.loop, self.server, random.Random(self.rng.getrandbits(64)))
        self.net.audit = self._audit
        self.net.on_change = self._on_change
        self.admin = Wire(self.net, None, "admin")
        self.tenant = Wire(self.net, None, "tenant")
        self.foreign = Wire(self.net, None, "foreign")
        self.changed_at: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._controllers: list[asyncio.Task[None]] = []
        self.refusals: list[str] = []
        self.happened: Counter[str] = Counter()
        self.is_over = False
        self.is_healed = False
        self.steady_from = float("inf")
        self.quiet_since = 0.0
        self.slack = 15.0
        self.scheduler_name = OURS
        self.judge = Judge(self._terms())
        self.findings: list[Finding] = []
        self.trace: list[Entry] = []
        self._keep_trace = keep_trace
        self._hash = hashlib.sha256()
        self.drivers = Drivers(self)
        self.tenants = Tenants(self)
        self.chaos = Chaos(self)
        self.kube_scheduler = KubeScheduler(self) if plan.mode is Mode.EXTENDER else None
        self.replicas = [
            Replica(self, f"{OURS}-{index}", plan.mode, self._settings())
            for index in range(plan.replicas)
        ]

    def _terms(self) -> Terms:
        plan = self.plan
        slack = 30.0 if set(plan.faults) & {"slow server"} else self.slack
        for fault, seconds in (
            ("F9 lag", 25.0),
            ("F16 pause", 40.0),
            ("partition", 100.0),
            ("F7 watch silent", 100.0),
            ("F19 server down", 20.0),
            ("refused", 20.0),
        ):
            if fault in plan.faults:
                slack = slack + seconds
        return Terms(
            ours=(OURS,),
            slack=slack,
            one_allocator=plan.one_allocator,
            predicates=plan.mode is Mode.STANDALONE and "F32 foreign" not in plan.faults,
            scheduler_name=self.scheduler_name,
        )

    def _settings(self) -> Settings:
        return Settings(
            leader_election=LeaderElectionSettings(enabled=self.plan.election),
            binding=BindSettings(),
            extender=ExtenderSettings(
                filter_shortlist=self.rng.choice((0, 0, 1)),
                forced_choice=self.rng.random() < 0.2,
            ),
        )

    # --- reading and writing ------------------------------------------------------------------------------------------

    def do(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = JSON,
        who: Wire | None = None,
    ) -> tuple[int, Object]:
        """A request that nothing happens to: status and body."""
        raw = b"" if body is None else opaque.encode(body)
        answer = self.net.handle(who or self.admin, Request(method, path, {}, raw, content_type))
        if isinstance(answer, Watch):
            raise TypeError(path)
        kind = KIND_OF_PLURAL.get(
            path.rpartition("/namespaces/")[2].partition("/")[2].partition("/")[0]
        )
        return answer.status, opaque.decode(kind or "", answer.body)

    def list(self, path: str) -> list[Object]:
        """All objects of a collection, as copies."""
        _, found = self.do("GET", path)
        return found["items"] or []

    def objects(self, collection: str) -> Iterator[Object]:
        """All objects of a collection of the store; not to be changed."""
        for stored in self.server.store.objects(collection):
            yield stored.obj

    # --- what is told -------------------------------------------------------------------------------------------------

    def record(self, entry: Entry) -> None:
        """Write down, and judge."""
        raw = msgspec.json.encode(entry)
        self._hash.update(raw)
        if self._keep_trace:
            self.trace.append(entry)
        self.judge.take(entry)

    def note(self, what: str) -> None:
        """Count what happened."""
        self.happened[what] += 1

    def happens(self, fault: str) -> bool:
        """Whether a fault happens now; counts it."""
        rate = self.plan.rate(fault)
        if not rate or self.is_healed or self.fault_rng.random() >= rate:
            return False
        self.happened[fault] += 1
        return True

    def mark(self, name: str, **facts: Any) -> None:
        """Put what the run does into the trace."""
        self.record(Mark(self.loop.time(), name, facts))

    def defect(self, text: str) -> None:
        """Something ended that should not."""
        finding = Finding("defect", "process", text)
        if finding not in self.findings:
            self.findings.append(replace(finding, at=self.loop.time()))

    def refused_by_server(self, answer: Object) -> None:
        """A tenant's object was refused: it was not valid."""
        self.happened["(tenant refused)"] += 1
        self.refusals.append(str(answer.get("message")))

    def _on_change(self, collection: str, change: StoreChange) -> None:
        self.changed_at[collection] = change.revision
        kind = RECORDED.get(collection)
        if kind is None:
            return
        if kind != "Lease":
            self.quiet_since = self.loop.time()
        type_ = "DELETED" if change.new is None else "ADDED" if change.old is None else "MODIFIED"
        author = self.net.author.identity if self.net.author is not None else ""
        # Stored objects are never changed afterwards, so they need not be copied.
        obj = opaque.changed(kind, change.last.obj, _as_text)
        self.record(Change(self.loop.time(), change.revision, type_, kind, obj, author))

    def _audit(self, wire: Wire, request: Request, answer: Answer, verdict: Verdict) -> None:
        if not wire.identity.startswith(OURS):
            return
        status, reason, message = 0, "", ""
        method = request.method
        if isinstance(answer, Response):
            status = answer.status
            if status >= 400:
                body = orjson.loads(answer.body)
                reason, message = body.get("reason", ""), body.get("message", "")
        elif not isinstance(answer, NoAnswer):
            status, method = 200, "WATCH"
        if name := write_name(request):
            is_unknown = verdict.loses_answer or isinstance(answer, NoAnswer)
            self.happened[f"outcome: {name} {_outcome(0 if is_unknown else status)}"] += 1
        self.record(
            Sent(
                self.loop.time(),
                wire.identity,
                method,
                request.path,
                status,
                reason,
                message,
                verdict.fault,
            )
        )

    # --- the run ------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run to the end."""
        self.run_in_loop(self._main())
        self.close()
        return Outcome(
            self.plan,
            [*self.findings, *self.judge.findings],
            self.happened,
            self.loop.steps,
            self.net.operations,
            self._hash.hexdigest(),
            self.trace,
        )

    def run_in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Run until something is done; everything else goes on meanwhile."""
        _defects.world = self
        try:
            self.loop.run_until_complete(work)
        finally:
            _defects.world = None

    def close(self) -> None:
        """Run nothing any more."""
        self.is_over = True
        for replica in self.replicas:
            if replica.starts:
                replica.owner.kill()
        for task in self._controllers:
            if task.done() and not task.cancelled() and (problem := task.exception()) is not None:
                self.defect(f"a simulated controller has ended: {problem!r}")
        for context in self.loop.errors:
            error = context.get("exception")
            if error is not None and not isinstance(error, asyncio.CancelledError):
                self.defect(f"{context.get('message')}: {error!r}")

    # --- backups ------------------------------------------------------------------------------------------------------

    def back_up(self) -> Any:
        """A backup of the server."""
        collections = self.server.store._collections
        return {name: dict(held.objects) for name, held in collections.items()}

    def restore(self, backup: Any) -> None:
        """Come back from a backup as etcd should: its history is gone, and its revision is higher than ever before."""
        store = self.server.store
        store.revision += 10_000
        for name, held in store._collections.items():
            held.objects.clear()
            held.objects.update(backup.get(name, {}))
        store.compact()
        for connection in tuple(self.net.connections):
            connection.fail("the connection was reset")
        objects = {
            kind: [opaque.changed(kind, stored.obj, _as_text) for stored in store.objects(name)]
            for name, kind in RECORDED.items()
        }
        self.record(Restored(self.loop.time(), store.revision, objects))
        for task in self._controllers:
            task.cancel()
        self._start_controllers()

    async def _main(self) -> None:
        plan = self.plan
        self.set_up()
        end = self.loop.time() + plan.seconds
        while self.loop.time() < end:
            self.tenants.second()
            self.drivers.second()
            self.chaos.second()
            await asyncio.sleep(1.0)
        if plan.liveness:
            await self.quiet()

    def set_up(self) -> None:
        """Make what there is from the beginning, and start everything."""
        self.mark("plan", **plan_facts(self.plan), terms=msgspec.to_builtins(self.judge.terms))
        self.do("POST", "/api/v1/namespaces", {"metadata": {"name": "dra-scheduler"}})
        self.do(
            "POST",
            claims_path("dra-scheduler"),
            {"metadata": {"name": "dra-scheduler-wakeup"}, "spec": {"devices": {}}},
        )
        self.tenants.set_up()
        self.drivers.set_up()
        self.chaos.set_up_nodes()
        self._start_controllers()
        for replica in self.replicas:
            self.loop.later(self.rng.random() * 3.0, replica.start)
        if self.kube_scheduler is not None:
            self._background(self.kube_scheduler.run())

    def _start_controllers(self) -> None:
        self._controllers = [
            self.loop.spawn(None, controller.run())
            for controller in (
                ClaimController(Wire(self.net, None, "claim-controller"), self.clock),
                GarbageCollector(Wire(self.net, None, "garbage-collector"), self.clock),
                Kubelets(Wire(self.net, None, "kubelets"), self.clock, self.tenants_run_seconds),
            )
        ]

    def _background(self, work: Any) -> None:
        self._tasks.append(self.loop.spawn(None, work))

    def tenants_run_seconds(self, pod: Object) -> float | None:
        """How long a pod runs: decided by its UID. At the end nothing changes any more, so that all can come to rest."""
        if self.loop.time() > self.steady_from:
            return None
        number = int(pod["metadata"]["uid"][:8], 16)
        return None if number % 5 == 0 else 1.0 + number % 30

    async def quiet(self) -> None:
        """Mend everything, and let a time without faults pass; then judge what has not happened."""
        self.tenants.are_writing = False
        self.chaos.heal()
        self.is_healed = True
        self.drivers.heal()
        self.mark("healed")
        self.steady_from = self.loop.time() + STEADY_SECONDS
        end = self.loop.time() + self.plan.quiet_seconds
        while self.loop.time() < end:
            self.drivers.attach()
            await asyncio.sleep(1.0)
        # Caches are compared with the server when nothing is on its way to them.
        for _ in range(100):
            if self.loop.time() - self.quiet_since > 2.0:
                break
            await asyncio.sleep(0.3)
        self.mark("end", **self._facts())

    def _facts(self) -> Object:
        processes: dict[str, Object] = {}
        for replica in self.replicas:
            process = replica.process
            if process is None or replica.is_down:
                processes[replica.name] = {"synced": False}
                continue
            details = process.details()
            processes[replica.name] = {
                "synced": not process.started(),
                "active": details["active"] and process.core.may_write(),
                "openBinds": details["openBinds"],
                "inFlightClaims": details["inFlightClaims"],
                "assumedClaims": details["assumedClaims"],
                "digest": details["digest"],
            }
        waiting = sum(not pod["spec"].get("nodeName") for pod in self.list("/api/v1/pods"))
        return {
            "processes": processes,
            "digest": self._digests(),
            "waiting": waiting,
            "leaders": 1 if self.plan.election else self.plan.replicas,
            "exempt_pods": sorted(self._doomed()),
            "exempt_claims": [],
            "writes_conditions": self.plan.mode is Mode.STANDALONE,
        }

    def _digests(self) -> Object:
        """What the digests of complete caches are."""
        kinds = {
            "NODE": "/nodes",
            "POD": "/pods",
            "RESOURCE_CLAIM": "resource.k8s.io/resourceclaims",
            "RESOURCE_SLICE": "resource.k8s.io/resourceslices",
            "DEVICE_CLASS": "resource.k8s.io/deviceclasses",
            "DEVICE_TAINT_RULE": "resource.k8s.io/devicetaintrules",
        }
        digests = {}
        for kind, collection in kinds.items():
            lines = sorted(
                f"{obj['metadata']['uid']} {obj['metadata']['resourceVersion']}"
                for obj in self.objects(collection)
            )
            digests[kind] = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
        return digests

    def _doomed(self) -> Iterator[str]:
        """Pods that can never be bound: a webhook of the cluster refuses one of their claims."""
        for pod in self.objects("/pods"):
            namespace = pod["metadata"]["namespace"]
            for called in claim_names(pod).values():
                if called and self.chaos.judged.get(f"{claims_path(namespace)}/{called}"):
                    yield pod["metadata"]["uid"]

    def clock_rate(self) -> float:
        """Of a new process."""
        if self.plan.rate("F14 clock") and not self.is_healed:
            self.note("F14 clock")
            return self.fault_rng.choice((0.9, 0.95, 1.05, 1.1))
        return 1.0

    def faults_of(self, replica: Replica) -> Faults:
        """What happens to its requests."""
        return ReplicaFaults(self, replica)


def _as_text(value: Any) -> Any:
    """Opaque text as text: what is equal byte for byte is equal, and everything can be stored."""
    return value.shown.decode("latin-1") if isinstance(value, opaque.Opaque) else value


def _outcome(status: int) -> str:
    if status == 0 or status >= 500:
        return "unknown"
    if status == 409:
        return "conflict"
    return "committed" if status < 300 else "refused"


def plan_facts(plan: Plan) -> Object:
    """A plan as JSON."""
    return {
        "seed": plan.seed,
        "mode": plan.mode.value,
        "liveness": plan.liveness,
        "replicas": plan.replicas,
        "election": plan.election,
        "nodes": plan.nodes,
        "seconds": plan.seconds,
        "faults": plan.faults,
        "drivers": list(plan.drivers),
    }


_collect = gc.collect


class _Defects(logging.Handler):
    """What the application logs with a traceback is a defect, whatever it did about it."""

    world: World | None = None

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if self.world is None or error is None:
            return
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = (
            "" if place is None else f" in {place.tb_frame.f_code.co_qualname}:{place.tb_lineno}"
        )
        self.world.defect(f"{type(error).__name__}: {error}{where}")


_defects = _Defects(logging.ERROR)


@contextmanager
def quiet_interpreter() -> Iterator[None]:
    """For many runs: no log, no word of tasks that were dropped on purpose, garbage collected between runs only."""
    kept = gc.freeze, gc.set_threshold
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    logger = logging.getLogger("scheduler")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(_defects)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logging.getLogger("asyncio").disabled = True
    gc.disable()
    gc.freeze = lambda: None
    gc.collect = lambda *_: 0
    gc.set_threshold = lambda *_: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            _collect()
    finally:
        gc.collect = _collect
        gc.freeze, gc.set_threshold = kept
        gc.enable()
        sys.unraisablehook = hook
        logger.removeHandler(_defects)
        logger.setLevel(level)
        logger.propagate = propagate
        logging.getLogger("asyncio").disabled = False


def collect_garbage() -> None:
    """Between two runs."""
    _collect()


def run_plan(plan: Plan, *, keep_trace: bool = False) -> Outcome:
    """Run one plan, inside `quiet_interpreter`."""
    return World(plan, keep_trace=keep_trace).run()
