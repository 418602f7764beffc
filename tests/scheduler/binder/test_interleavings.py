"""Binds of several pods at once, with faults, deletions and lost leases in every order a seed makes.

What must hold is checked against the API after every write: no device twice, the finalizer before the allocation, no
allocation without a reservation, and every claim of a bound pod allocated and reserved for it on its node. After the
faults have stopped, nothing may be left in memory, and what can be bound gets bound.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable
from typing import Any

import pytest

from scheduler import cycle
from scheduler.binder import Binder, ClaimWriter, PodWriter
from scheduler.client import Rejected, Unknown, WriteOutcome
from scheduler.clock import SystemClock
from scheduler.config import BindSettings
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plan import plan_of
from scheduler.model import FINALIZER
from scheduler.plugins.dynamic_resources import claim_to_give_back
from scheduler.reflectors.barrier import ClaimBarrier
from tests.scheduler.embedded import CONFLICT, LOST, Object, World, claims_path, pods_path, world

SEEDS = int(os.environ.get("DRA_INTERLEAVINGS", "60"))
NODES = {"node-1": 2, "node-2": 1}
OPEN_SECONDS = 9.0  # a request that was sent commits within this, or never
FAULTS: dict[str, WriteOutcome] = {
    "lost": LOST,
    "late": LOST,
    "conflict": CONFLICT,
    "refused": Rejected(403, "Forbidden", "no"),
    "busy": Rejected(429, "TooManyRequests", "later", retry_after_seconds=0.5),
    "unreachable": Rejected(0, "", "cannot reach the server"),
}


class FastClock(SystemClock):
    """Pauses take no time but move the clock."""

    def __init__(self) -> None:
        self.offset = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.offset

    async def sleep(self, seconds: float) -> None:
        self.offset += seconds
        await asyncio.sleep(0)


class Play:
    """One seed."""

    def __init__(self, here: World, seed: int) -> None:
        self.here = here
        self.rng = random.Random(seed)
        self.clock = FastClock()
        self.fault_rate = self.rng.choice([0.0, 0.1, 0.3, 0.6])
        # A few kinds of faults at a time get further into each other's way than all of them.
        self.faults = self.rng.sample([*FAULTS, "lost and done"], 2)
        self.late: set[asyncio.Task[None]] = set()
        self.problems: list[str] = []
        self.log: list[str] = []
        self.is_healed = False
        budget = self.rng.choice([0.5, 5.0, 1000.0])
        self.binder = Binder(
            claims=ClaimWriter(
                here.client,
                here.cache,
                self.clock,
                self.rng,
                lambda: here.may_write,
                lambda: here.epoch,
            ),
            pods=PodWriter(here.client, self.clock, self.rng, lambda: here.may_write),
            cache=here.cache,
            barrier=ClaimBarrier(here.cache),
            clock=self.clock,
            settings=BindSettings(budget_seconds=budget),
            on_conflict=lambda _pod, conflict: self.problems.append(f"conflict {conflict}"),
        )
        here.epoch = 1
        here.client.faults.append(self.fault)

    # --- the world ----------------------------------------------------------------------------------------------------

    async def fault(self, method: str, path: str, body: bytes) -> WriteOutcome | None:
        """Send the write, or lose it, or its answer; and look at what the API has then."""
        for _ in range(self.rng.choice([0, 0, 1, 3, 20])):
            await asyncio.sleep(0)
        kind = "sent" if self.is_healed or self.rng.random() >= self.fault_rate else ""
        kind = kind or self.rng.choice(self.faults)
        self.log.append(f"{method} {path.rpartition('/default/')[2]}: {kind}")
        if kind == "late":
            self.late.add(asyncio.create_task(self.commit_late(method, path, body)))
        if kind in FAULTS:
            return FAULTS[kind]
        answer = await self.here.client.send(method, path, body)
        await self.judge()
        return Unknown("the answer was lost") if kind == "lost and done" else answer

    async def commit_late(self, method: str, path: str, body: bytes) -> None:
        sent = self.clock.monotonic()
        for _ in range(self.rng.choice([3, 30, 300])):
            await asyncio.sleep(0)
        if self.clock.monotonic() - sent < OPEN_SECONDS:
            self.log.append(f"{method} {path.rpartition('/default/')[2]}: late, committed")
            await self.here.client.send(method, path, body)
            await self.judge()

    async def controller(self) -> None:
        """What the resourceclaim controller does: reservations of pods that are gone, and what follows."""
        uids = {pod["metadata"]["uid"] for pod in await self.list(pods_path())}
        for claim in await self.list(claims_path()):
            name, status = claim["metadata"]["name"], claim.get("status") or {}
            consumers = status.get("reservedFor") or []
            rest = [each for each in consumers if each["uid"] in uids]
            if len(rest) < len(consumers):
                status["reservedFor"] = rest
                if not rest:
                    claim["status"] = {}
                await self.try_put(claims_path(name, "status"), claim)
            elif not consumers and claim["metadata"].get("deletionTimestamp"):
                claim["metadata"]["finalizers"] = []
                await self.try_put(claims_path(name), claim)

    async def try_put(self, path: str, body: Object) -> None:
        with contextlib.suppress(AssertionError):  # somebody was faster: next time
            await self.here.put(path, body)

    async def list(self, path: str) -> list[Object]:
        items: list[Object] = (await self.here.get(path))["items"]
        return items

    # --- what must hold -----------------------------------------------------------------------------------------------

    async def judge(self) -> None:
        pods, claims = await self.list(pods_path()), await self.list(claims_path())
        pods = [pod for pod in pods if pod in await self.list(pods_path())]
        by_name = {claim["metadata"]["name"]: claim for claim in claims}
        owners: dict[tuple[str, str], str] = {}
        for name, claim in by_name.items():
            for device in devices_of(claim):
                if device in owners:
                    self.problems.append(f"{device} twice: {owners[device]}, {name}")
                owners[device] = name
            if devices_of(claim) and FINALIZER not in claim["metadata"].get("finalizers", ()):
                self.problems.append(f"{name}: allocated without finalizer")
            if devices_of(claim) and not claim["status"].get("reservedFor"):
                self.problems.append(f"{name}: allocated without reservation")
        for pod in pods:
            node = pod["spec"].get("nodeName")
            for entry in pod["spec"].get("resourceClaims", ()) if node else ():
                used = by_name.get(entry["resourceClaimName"], {})
                consumers = (used.get("status") or {}).get("reservedFor") or []
                if pod["metadata"]["uid"] not in {each["uid"] for each in consumers}:
                    self.problems.append(f"{pod['metadata']['name']}: bound without its claim")
                if any(pool != node for pool, _ in devices_of(used)):
                    self.problems.append(f"{pod['metadata']['name']}: devices of another node")

    # --- what happens -------------------------------------------------------------------------------------------------

    def attempt(self, name: str) -> Any:
        """Decide and begin to bind, in one step; or give back what keeps the pod away.

        Asked about some nodes only, and also while its bind is under way, as kube-scheduler may.
        """
        pod = self.here.cache.pod_by_name("default", name)
        if pod is None:
            return None
        state = cycle.pre_filter(pod, self.here.cache, self.here.environment)
        if not isinstance(state, CycleState):
            return None
        is_placed = bool(pod.spec.node_name or self.here.cache.assumed_node(pod.metadata.uid))
        count = len(NODES) if self.is_healed else self.rng.randint(1, len(NODES))
        verdicts = {}
        for node in self.rng.sample(sorted(NODES), count):
            verdict = verdicts[node] = cycle.filter_node(state, state.snapshot.nodes[node])
            if verdict.fits and not is_placed:
                chain = self.binder.start(plan_of(state, node, verdict))
                return self.binder.wait(chain)
        claim = claim_to_give_back(state, verdicts)
        return None if claim is None else self.binder.give_back(claim, state.pod)

    async def schedule(self, name: str) -> None:
        waiting: list[asyncio.Task[Any]] = []
        for _ in range(10):
            work = self.attempt(name)
            if work is not None:
                waiting.append(asyncio.create_task(self.note(name, work)))
            for _ in range(self.rng.randrange(30)):
                await asyncio.sleep(0)
        await asyncio.gather(*waiting)

    async def note(self, name: str, work: Awaitable[Any]) -> None:
        self.log.append(f"{name}: {await work}")

    async def disturb(self) -> None:
        for _ in range(self.rng.randrange(6)):
            for _ in range(self.rng.randrange(80)):
                await asyncio.sleep(0)
            what = self.rng.choice(["pod", "claim", "lease", "controller", "controller"])
            self.log.append(f"disturb: {what}")
            match what:
                case "pod":
                    name = self.rng.choice(self.pods)
                    spec = (await self.here.get(pods_path(name)))["spec"]
                    now = b'{"gracePeriodSeconds": 0}'
                    await self.here.admin.write("DELETE", pods_path(name), now)
                    await self.here.pod(name, *names_of(spec))
                case "claim":
                    name = self.rng.choice(self.claims)
                    await self.here.admin.write("DELETE", claims_path(name), b"")
                    await self.controller()
                    if name not in [c["metadata"]["name"] for c in await self.list(claims_path())]:
                        await self.here.claim(name)
                case "lease":
                    self.here.may_write = False
                    for _ in range(self.rng.randrange(40)):
                        await asyncio.sleep(0)
                    self.here.may_write = True
                case _:
                    await self.controller()

    async def run(self) -> None:
        self.claims = [f"c{index}" for index in range(4)]
        for name in self.claims:
            await self.here.claim(name, finalizers=self.rng.choice([[], [FINALIZER]]))
        self.pods = [f"p{index}" for index in range(5)]
        for name in self.pods:
            await self.here.pod(name, *self.rng.sample(self.claims, self.rng.choice([1, 1, 2])))
        await self.here.settled()
        await asyncio.gather(*(self.schedule(name) for name in self.pods), self.disturb())
        await self.heal()

    async def heal(self) -> None:
        self.is_healed = True
        await asyncio.gather(*self.late)
        assert await self.binder.drain(5.0)
        for _ in range(4):
            await self.controller()
            await self.here.settled()
            for name in self.pods:
                work = self.attempt(name)
                if work is not None:
                    await work
                await self.here.settled()
        await self.judge()
        cache = self.here.cache
        left = (cache.in_flight_claims, cache.assumed_claims, self.binder.open_chains)
        if left != (0, 0, 0):
            self.problems.append(f"left in memory: {left}")
        self.problems.extend(cache.recount())
        for pod in await self.list(pods_path()):
            if not pod["spec"].get("nodeName") and cache.assumed_node(pod["metadata"]["uid"]):
                self.problems.append(f"{pod['metadata']['name']}: still assumed")
        self.problems.extend(f"{name}: could be bound" for name in self.pods if self.fits(name))

    def fits(self, name: str) -> bool:
        """Whether some node would do for a pod that has none."""
        pod = self.here.cache.pod_by_name("default", name)
        if pod is None or pod.spec.node_name:
            return False
        state = cycle.pre_filter(pod, self.here.cache, self.here.environment)
        return isinstance(state, CycleState) and any(
            cycle.filter_node(state, state.snapshot.nodes[node]).fits for node in NODES
        )


def devices_of(claim: Object) -> list[tuple[str, str]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or []
    return [(result["pool"], result["device"]) for result in results]


def names_of(spec: Object) -> list[str]:
    return [entry["resourceClaimName"] for entry in spec.get("resourceClaims", ())]


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_order_of_events_breaks_a_bind(seed: int) -> None:
    async with world() as here:
        await here.cluster(*NODES.items())
        play = Play(here, seed)
        await play.run()
        assert not play.problems, "\n".join([*play.problems, *play.log])
