"""The stand-alone loop on the embedded API server: real cache, engine and binder; time of the queue in the test's hand."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
import pytest

from allocator.cel import Compiler
from scheduler.binder import Binder
from scheduler.cache.cluster import ClusterCache
from scheduler.client import MERGE_PATCH, Committed, Rejected
from scheduler.config import BindSettings, Settings
from scheduler.engine import Attempt, Engine
from scheduler.events import Reference
from scheduler.framework.environment import Environment, Mode
from scheduler.framework.status import Status
from scheduler.metrics import Metrics
from scheduler.model import ClusterReader, Pod
from scheduler.scheduling_queue import Place, SchedulingQueue
from scheduler.standalone import loop as loop_module
from scheduler.standalone.loop import SLICE_SECONDS, StandaloneLoop
from tests.fakes import FakeClock
from tests.scheduler.embedded import NAMESPACE, Object, World, claims_path, pods_path, world


class RecordedEvents:
    def __init__(self) -> None:
        self.notes: list[tuple[str, str, str]] = []  # pod, reason, note

    def record(
        self, regarding: Reference, *, type_: str, reason: str, action: str, note: str
    ) -> None:
        self.notes.append((regarding.name, reason, note))

    def of(self, pod: str, reason: str) -> list[str]:
        return [note for name, why, note in self.notes if (name, why) == (pod, reason)]


@dataclass
class Core:
    """What the loop works with, of a running world."""

    world: World
    settings: Settings = field(default_factory=Settings)
    clock: FakeClock = field(default_factory=FakeClock)
    events: RecordedEvents = field(default_factory=RecordedEvents)
    metrics: Metrics = field(default_factory=Metrics)
    leads: bool = True
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.engine = Engine(
            Environment(
                features=self.world.environment.features,
                cel=Compiler(),
                now=self.world.clock.now,
                new_share_id=lambda *_: "00000000-0000-4000-8000-000000000001",
                mode=Mode.STANDALONE,
            )
        )

    @property
    def cache(self) -> ClusterCache:
        return self.world.cache

    @property
    def binder(self) -> Binder:
        return self.world.binder

    def may_write(self) -> bool:
        return self.leads


@dataclass
class Running:
    """A world whose pods the loop schedules."""

    world: World
    core: Core
    loop: StandaloneLoop

    async def settled(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(20):
            await self.world.settled()
            if not self.core.binder.open_chains:
                break

    async def after(self, seconds: float) -> None:
        """Let time pass for the queue."""
        await self.core.clock.advance(seconds)
        await self.settled()

    async def node_of(self, pod: str) -> str:
        await self.settled()
        found = await self.world.get(pods_path(pod))
        return str(found["spec"].get("nodeName", ""))

    async def condition(self, pod: str) -> tuple[str, str]:
        """Reason and message of PodScheduled."""
        await self.settled()
        found = await self.world.get(pods_path(pod))
        for condition in found.get("status", {}).get("conditions", []):
            if condition["type"] == "PodScheduled":
                return condition.get("reason", ""), condition.get("message", "")
        return "", ""

    def place(self, uid: str) -> Place | None:
        queued = self.loop.queue.get(uid)
        return None if queued is None else queued.place


@asynccontextmanager
async def running(
    *nodes: tuple[str, int],
    change: Callable[[Core], None] = lambda core: None,
    **gates: bool,
) -> AsyncIterator[Running]:
    async with world(**gates) as made:
        await made.cluster(*nodes)
        core = Core(made)
        change(core)
        loop = StandaloneLoop(core)
        task = asyncio.create_task(loop.run())
        try:
            yield Running(made, core, loop)
        finally:
            loop.stop()
            await asyncio.wait_for(task, 5)


async def uid_of(created: Object) -> str:
    return str(created["metadata"]["uid"])


async def test_a_pod_with_a_claim_gets_devices_and_a_node() -> None:
    async with running(("n1", 1)) as it:
        await it.world.claim("c")
        await it.world.pod("p", "c")

        assert await it.node_of("p") == "n1"
        claim = await it.world.get(claims_path("c"))
        assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        assert it.core.events.of("p", "Scheduled") == [f"Successfully assigned {NAMESPACE}/p to n1"]
        assert len(it.loop.queue) == 0


async def test_a_pod_without_claims_is_bound_too() -> None:
    async with running(("n1", 0)) as it:
        await it.world.pod("p")

        assert await it.node_of("p") == "n1"


async def test_pods_that_wait_already_are_taken_in_at_the_start() -> None:
    async with world() as made:
        await made.cluster(("n1", 1))
        await made.pod("p")
        await made.settled()
        core = Core(made)
        loop = StandaloneLoop(core)
        task = asyncio.create_task(loop.run())
        it = Running(made, core, loop)

        assert await it.node_of("p") == "n1"
        loop.stop()
        await task


async def test_pods_of_other_schedulers_are_left_alone() -> None:
    async with running(("n1", 1)) as it:
        await it.world.pod("p", schedulerName="default-scheduler")

        assert await it.node_of("p") == ""
        assert len(it.loop.queue) == 0


async def test_every_device_is_given_once_and_the_rest_waits_with_a_reason() -> None:
    async with running(("n1", 1), ("n2", 1)) as it:
        for name in "abc":
            await it.world.claim(name)
            await it.world.pod(name, name)

        nodes = [await it.node_of(name) for name in "abc"]
        assert sorted(nodes) == ["", "n1", "n2"]
        waiting = "abc"[nodes.index("")]
        reason, message = await it.condition(waiting)
        text = (
            f"0/2 nodes are available: 2 claim {NAMESPACE}/{waiting}, request gpu:"
            " matching devices are in use."
        )
        assert (reason, message) == ("Unschedulable", text)
        assert it.core.events.of(waiting, "FailedScheduling") == [text]


async def test_a_freed_device_goes_to_who_waits() -> None:
    async with running(("n1", 1)) as it:
        await it.world.claim("a")
        await it.world.pod("first", "a")
        assert await it.node_of("first") == "n1"
        await it.world.claim("b")
        await it.world.pod("second", "b")
        assert await it.node_of("second") == ""

        claim = await it.world.get(claims_path("a"))
        claim["status"] = {}
        await it.world.put(claims_path("a", "status"), claim)
        await it.settled()
        await it.after(1.0)

        assert await it.node_of("second") == "n1"


async def test_a_claim_made_later_brings_the_pod_back() -> None:
    async with running(("n1", 1)) as it:
        await it.world.pod("p", "c")
        assert await it.condition("p") == (
            "Unschedulable",
            "0/1 nodes are available: resourceclaim 'c' not found.",
        )

        await it.world.claim("c")
        await it.after(1.0)

        assert await it.node_of("p") == "n1"


async def test_a_pod_waits_for_its_generated_claim_in_silence_and_without_backoff() -> None:
    async with running(("n1", 1)) as it:
        entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
        pod = await it.world.pod("p", resourceClaims=[entry])
        uid = await uid_of(pod)
        assert await it.condition("p") == ("", "")
        assert it.place(uid) is Place.GATED

        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
        await it.world.claim("p-gpu", ownerReferences=[owner])
        pod = await it.world.get(pods_path("p"))
        pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu"}]
        await it.world.put(pods_path("p", "status"), pod)

        assert await it.node_of("p") == "n1"
        assert it.core.events.of("p", "FailedScheduling") == []


async def test_a_condition_is_not_written_twice() -> None:
    async with running(("n1", 0)) as it:
        await it.world.claim("c")
        await it.world.pod("p", "c")
        first = await it.condition("p")
        writes = len(it.world.client.writes)

        await it.world.node("n0")  # wakes the pod; the text counts nodes, so it changes once
        await it.after(1.0)
        second = await it.condition("p")
        await it.world.gpus("n0", 0)
        await it.after(2.0)
        third = await it.condition("p")

        assert first != second
        assert second == third
        assert len(it.world.client.writes) == writes + 1
        assert len(it.core.events.of("p", "FailedScheduling")) == 2


async def test_a_decision_taken_back_wakes_who_waits_for_its_devices() -> None:
    async with running(("n1", 1)) as it:
        release = asyncio.Event()

        async def refuse(method: str, path: str, _body: bytes) -> Rejected | None:
            if method != "PUT" or not path.endswith("/resourceclaims/a"):
                return None
            await release.wait()
            return Rejected(403, "Forbidden", "no")

        it.world.client.faults.append(refuse)
        await it.world.claim("a")
        await it.world.claim("b")
        await it.world.pod("first", "a")
        await it.world.settled()
        second = await it.world.pod("second", "b")
        await it.world.settled()
        assert it.place(await uid_of(second)) is Place.UNSCHEDULABLE

        release.set()
        await it.settled()

        assert it.place(await uid_of(second)) is Place.BACKOFF


async def test_gates_keep_a_pod_out_until_they_are_gone() -> None:
    async with running(("n1", 0)) as it:
        created = await it.world.pod("p", schedulingGates=[{"name": "g"}])
        await it.settled()
        assert it.place(await uid_of(created)) is Place.GATED

        patch = orjson.dumps({"spec": {"schedulingGates": None}})
        answer = await it.world.admin.write(
            "PATCH", pods_path("p"), patch, content_type=MERGE_PATCH
        )
        assert isinstance(answer, Committed), answer

        assert await it.node_of("p") == "n1"


async def test_what_is_not_supported_is_refused_with_a_fixed_text() -> None:
    async with running(("n1", 0)) as it:
        await it.world.pod(
            "p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]
        )

        assert await it.condition("p") == (
            "Unschedulable",
            "0/1 nodes are available: volumes of type persistentVolumeClaim and ephemeral are not"
            " supported by this scheduler.",
        )


async def test_a_failed_bind_is_an_error_with_backoff_and_then_succeeds() -> None:
    async with running(("n1", 1)) as it:
        it.world.answer_once("POST", "/binding", Rejected(403, "Forbidden", "no"), commit=False)
        await it.world.claim("c")
        created = await it.world.pod("p", "c")

        assert await it.node_of("p") == ""
        reason, message = await it.condition("p")
        assert (reason, message) == ("SchedulerError", "the pod cannot be bound: no")
        assert it.place(await uid_of(created)) is Place.BACKOFF

        await it.after(1.0)
        assert await it.node_of("p") == "n1"


async def test_an_idle_claim_on_the_wrong_node_is_given_back_and_taken_again() -> None:
    async with running(("n1", 1), ("n2", 1)) as it:
        await it.world.claim("c")
        await it.world.pod("first", "c", nodeSelector={"kubernetes.io/hostname": "n1"})
        assert await it.node_of("first") == "n1"
        claim = await it.world.get(claims_path("c"))
        claim["status"].pop("reservedFor")
        await it.world.put(claims_path("c", "status"), claim)

        await it.world.pod("second", "c", nodeSelector={"kubernetes.io/hostname": "n2"})
        await it.settled()
        await it.after(1.0)

        assert await it.node_of("second") == "n2"


async def test_a_node_filled_by_another_scheduler_is_noticed_before_the_binding() -> None:
    async with running(("n1", 1)) as it:

        async def fill() -> None:
            await it.world.pod(
                "other",
                nodeName="n1",
                schedulerName="else",
                containers=[
                    {"name": "m", "image": "i", "resources": {"requests": {"cpu": "7500m"}}}
                ],
            )

        it.world.before_once("PUT", "/status", fill)
        await it.world.claim("c")
        await it.world.pod(
            "p",
            "c",
            containers=[{"name": "m", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        )

        assert await it.node_of("p") == ""
        assert (await it.condition("p"))[1] == "Insufficient cpu"
        claim = await it.world.get(claims_path("c"))
        assert "allocation" not in claim.get("status", {})


async def test_the_pod_itself_does_not_count_against_it_before_the_binding() -> None:
    async with running(("n1", 1)) as it:

        async def touch() -> None:
            await it.world.pod("other", nodeName="n1", schedulerName="else")

        it.world.before_once("PUT", "/status", touch)
        await it.world.claim("c")
        await it.world.pod(
            "p",
            "c",
            containers=[{"name": "m", "image": "i", "resources": {"requests": {"cpu": "8"}}}],
        )

        assert await it.node_of("p") == "n1"


async def test_a_deleted_pod_is_forgotten() -> None:
    async with running(("n1", 0)) as it:
        await it.world.claim("c")
        await it.world.pod("p", "c")
        await it.settled()
        assert len(it.loop.queue) == 1

        await it.world.delete(pods_path("p"))
        await it.settled()

        assert len(it.loop.queue) == 0


async def test_nothing_is_decided_while_somebody_else_leads() -> None:
    async with running(("n1", 1)) as it:
        it.core.leads = False
        await it.world.pod("p")
        await it.after(5.0)
        assert await it.node_of("p") == ""

        it.core.leads = True
        await it.after(1.0)
        assert await it.node_of("p") == "n1"


async def test_no_more_is_decided_than_the_binder_can_write() -> None:
    def two_at_a_time(core: Core) -> None:
        core.settings = Settings(binding=BindSettings(max_concurrent=2))

    async with running(("n1", 5), change=two_at_a_time) as it:
        release = asyncio.Event()

        async def held(method: str, path: str, _body: bytes) -> None:
            if path.endswith("/binding"):
                await release.wait()

        it.world.client.faults.append(held)
        for number in range(5):
            await it.world.pod(f"p{number}")
        await it.world.settled()
        assert it.core.binder.open_chains == 2
        assert it.loop.queue.counts()[Place.ACTIVE] == 3

        release.set()
        assert [await it.node_of(f"p{number}") for number in range(5)] == ["n1"] * 5


class SlowEngine(Engine):
    """Every decision takes 4 ms."""

    clock: FakeClock

    def pre_filter(self, pod: Pod, reader: ClusterReader) -> Attempt | Status:
        self.clock.skip(0.004)
        return super().pre_filter(pod, reader)


async def test_deciding_gives_way_every_ten_milliseconds() -> None:
    def slow(core: Core) -> None:
        core.engine.__class__ = SlowEngine
        core.engine.clock = core.clock  # type: ignore[attr-defined]

    async with running(("n1", 0), change=slow) as it:
        moments: list[float] = []
        it.core.leads = False
        for number in range(10):
            await it.world.claim(f"c{number}")
            await it.world.pod(f"p{number}", f"c{number}")
        await it.settled()
        it.core.leads = True
        await it.world.node("n2")

        async def watch() -> None:
            for _ in range(300):
                moments.append(it.core.clock.monotonic())
                await asyncio.sleep(0)

        await watch()

        stalls = [after - before for before, after in itertools.pairwise(moments)]
        assert max(stalls) < SLICE_SECONDS + 0.004
        assert moments[-1] - moments[0] >= 0.039


@pytest.mark.parametrize("priority", ["", "system-cluster-critical"])
async def test_the_more_important_pod_gets_the_last_device(priority: str) -> None:
    async with running(("n1", 1)) as it:
        it.core.leads = False
        for name, importance in (("early", ""), ("late", priority)):
            await it.world.claim(name)
            spec = {"priorityClassName": importance} if importance else {}
            await it.world.pod(name, name, **spec)
        await it.settled()
        it.core.leads = True
        await it.after(1.0)

        winner = "late" if priority else "early"
        assert await it.node_of(winner) == "n1"


async def test_a_question_with_many_nodes_is_decided_over_several_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_module, "SLICE_SEARCHES", 2)
    async with running(*((f"n{number}", 1) for number in range(70))) as it:
        it.core.leads = False
        await it.world.claim("c", count=2)
        await it.world.pod("p", "c")
        await it.settled()
        counts = []
        it.core.leads = True
        await it.world.node("x")

        for _ in range(40):
            counts.append(it.core.engine.looks)
            await asyncio.sleep(0)
        await it.settled()

        steps = [after - before for before, after in itertools.pairwise(counts)]
        assert max(steps) == 32
        assert (await it.condition("p"))[0] == "Unschedulable"


async def test_a_pod_deleted_between_two_slices_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_module, "SLICE_SEARCHES", 2)
    async with running(*((f"n{number}", 1) for number in range(70))) as it:
        it.core.leads = False
        await it.world.claim("c", count=2)
        created = await it.world.pod("p", "c")
        await it.settled()
        it.core.leads = True
        await it.world.node("x")
        while it.core.engine.looks < 32:
            await asyncio.sleep(0)

        it.loop.queue.delete(await uid_of(created))
        await it.settled()

        assert it.core.engine.looks < 70
        await it.world.pod("q")
        assert await it.node_of("q") != ""


async def test_a_pod_that_waited_too_long_for_an_event_is_tried_again() -> None:
    async with running(("n1", 0)) as it:
        created = await it.world.pod(
            "p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]
        )
        await it.settled()
        uid = await uid_of(created)
        assert it.place(uid) is Place.UNSCHEDULABLE
        queued = it.loop.queue.get(uid)
        assert queued is not None
        assert queued.rejections == 1

        for _ in range(6):
            await it.after(60.0)

        assert queued.rejections == 2


async def test_a_pod_that_found_the_queue_full_is_taken_in_by_the_sweep() -> None:
    async with running(("n1", 0)) as it:
        it.core.leads = False
        it.loop.queue = SchedulingQueue(max_pods=1)
        await it.world.pod("a")
        await it.world.pod("b")
        await it.settled()
        assert len(it.loop.queue) == 1

        it.core.leads = True
        await it.after(61.0)

        assert [await it.node_of(name) for name in "ab"] == ["n1", "n1"]


async def test_binding_conditions_are_waited_for_without_backoff() -> None:
    async with running(("n1", 0)) as it:
        card = {"name": "gpu-0", "bindingConditions": ["Ready"], "bindingFailureConditions": ["No"]}
        await it.world.node("n2")
        await it.world.gpus("n2", 1, devices=[card])
        await it.world.claim("c")
        created = await it.world.pod("p", "c")
        text = "claim c: waiting for the binding conditions of its devices"
        assert await it.condition("p") == ("Unschedulable", text)
        await it.after(1.0)  # our own write of the claim may have been news
        assert it.place(await uid_of(created)) is Place.UNSCHEDULABLE

        claim = await it.world.get(claims_path("c"))
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "Done",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        entry = {"driver": "gpu.example.com", "pool": "n2", "device": "gpu-0"}
        claim["status"]["devices"] = [{**entry, "conditions": [condition]}]
        await it.world.put(claims_path("c", "status"), claim)
        await it.after(2.0)

        assert await it.node_of("p") == "n2"


async def test_a_bind_that_breaks_is_an_error_of_its_pod_alone() -> None:
    async with running(("n1", 0)) as it:

        def broken(method: str, path: str, _body: bytes) -> None:
            if path.endswith("/pods/p/binding"):
                raise RuntimeError("a defect")

        it.world.client.faults.append(broken)
        created = await it.world.pod("p")
        await it.world.pod("q")

        assert await it.node_of("q") == "n1"
        assert it.place(await uid_of(created)) is Place.BACKOFF


class BrokenEngine(Engine):
    """Has a defect that one pod brings to light."""

    def pre_filter(self, pod: Pod, reader: ClusterReader) -> Attempt | Status:
        if pod.metadata.name == "bad":
            raise ZeroDivisionError
        return super().pre_filter(pod, reader)


async def test_a_defect_that_one_pod_brings_to_light_does_not_stop_the_others() -> None:
    def broken(core: Core) -> None:
        core.engine.__class__ = BrokenEngine

    async with running(("n1", 0), change=broken) as it:
        created = await it.world.pod("bad")
        await it.world.pod("good")

        assert await it.node_of("good") == "n1"
        assert it.place(await uid_of(created)) is Place.BACKOFF


async def test_room_for_what_devices_count_is_waited_for() -> None:
    counted = {"cpu": {"mapping": {"deviceMultiplier": "5"}}}
    cards = [{"name": f"cpu-{index}", "nodeAllocatableResources": counted} for index in range(2)]

    async with running(DRANodeAllocatableResources=True) as it:
        await it.world.node("n1")
        await it.world.gpus("n1", 0, devices=cards)
        for name in ("a", "b"):
            await it.world.claim(name)
            await it.world.pod(name, name)
            await it.settled()

        assert await it.node_of("a") == "n1"
        told = (await it.world.get(pods_path("a")))["status"]
        assert told["nodeAllocatableResourceClaimStatuses"][0]["mapping"] == [
            {"name": "cpu", "quantity": "5"}
        ]
        assert await it.condition("b") == (
            "Unschedulable",
            "0/1 nodes are available: 1 Insufficient cpu.",
        )
        await it.world.end("a")
        await it.after(10)
        assert await it.node_of("b") == "n1"
