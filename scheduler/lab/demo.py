"""A whole cluster in one process: embedded API server, simulated controllers, drivers and kubelets, our scheduler.

The scheduler is the real one, with its reflectors, cache, queue and binder; only the other side of the API is simulated.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson

from allocator.allocate import allocate
from allocator.features import Features
from allocator.outcome import Allocated, Reason
from scheduler import cycle
from scheduler.bootstrap.build import Core, build_core, build_loop
from scheduler.client import ApiClient, ApiError, Committed
from scheduler.clock import Clock, SystemClock
from scheduler.config import Settings
from scheduler.framework.environment import Mode
from scheduler.framework.status import Status
from scheduler.lab import demo_cluster
from scheduler.lab.apiserver.client import EmbeddedClient
from scheduler.lab.apiserver.server import ApiServer
from scheduler.lab.simulated.claim_controller import ClaimController
from scheduler.lab.simulated.drivers import Drivers
from scheduler.lab.simulated.garbage import GarbageCollector
from scheduler.lab.simulated.kubelets import Kubelets
from scheduler.lab.simulated.workloads import JobController
from scheduler.leader import AlwaysLeader
from scheduler.model import Pod
from scheduler.views.placement import PlacedPod, device_lines

SETTLE_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 60.0
Json = dict[str, Any]


class Demo:
    """The running cluster."""

    def __init__(self, clock: Clock | None = None, seed: int = 1) -> None:
        """Put the parts together; nothing runs yet."""
        self.clock = clock or SystemClock()
        self.server = ApiServer.create(self.clock, random.Random(seed))  # noqa: S311  # names and UIDs
        self.client = EmbeddedClient(self.server, self.clock)
        self.core: Core = build_core(
            Settings(),
            self.client,
            AlwaysLeader(),
            Features(),
            self.clock,
            random.Random(seed),  # noqa: S311  # jitter
            Mode.STANDALONE,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the scheduler and the simulated parts while the block runs."""
        core, clock = self.core, self.clock
        loop = build_loop(core)
        parts: list[Awaitable[Any]] = [
            core.reflectors.run(),
            core.events.run(),
            _when_synced(core, loop.run()),
            ClaimController(self.client, clock).run(),
            GarbageCollector(self.client, clock).run(),
            JobController(self.client, clock).run(),
            Drivers(self.client, clock, demo_cluster.publish).run(),
            Kubelets(self.client, clock).run(),
        ]
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def create_workload(self) -> None:
        """Create the nodes (drivers then publish), classes, claims and pods."""
        namespace = demo_cluster.NAMESPACE
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await _create(self.client, "/api/v1/namespaces", [body])
        await _create(self.client, "/api/v1/nodes", demo_cluster.nodes())
        group = "/apis/resource.k8s.io/v1"
        await _create(self.client, f"{group}/deviceclasses", demo_cluster.classes())
        scoped = f"{group}/namespaces/{namespace}"
        await _create(self.client, f"{scoped}/resourceclaimtemplates", demo_cluster.templates())
        await _create(self.client, f"{scoped}/resourceclaims", demo_cluster.claims())
        await _create(self.client, f"/api/v1/namespaces/{namespace}/pods", demo_cluster.pods())
        await _create(
            self.client, f"/apis/batch/v1/namespaces/{namespace}/jobs", demo_cluster.jobs()
        )

    async def wait_until_settled(self) -> bool:
        """Wait until every pod is bound or has said why not, and nothing has changed for a moment.

        Returns:
            Whether that was reached in time.
        """
        deadline = self.clock.monotonic() + TIMEOUT_SECONDS
        seen, since = None, self.clock.monotonic()
        while self.clock.monotonic() < deadline:
            await self.clock.sleep(0.05)
            now = self.core.cache.snapshot().revision, tuple(map(_state, self.core.cache.pods()))
            if now != seen:
                seen, since = now, self.clock.monotonic()
            is_decided = all(bound or refused for _, bound, refused in now[1])
            if now[1] and is_decided and self.clock.monotonic() - since > SETTLE_SECONDS:
                return True
        return False

    def placed(self) -> list[PlacedPod]:
        """What went where, in the order of names."""
        pods = sorted(self.core.cache.pods(), key=lambda pod: pod.metadata.name)
        return [self._placed(pod) for pod in pods]

    def _placed(self, pod: Pod) -> PlacedPod:
        node = pod.spec.node_name
        devices = [
            line
            for claim in self.core.cache.claims_of_pod(pod)
            if claim.status.allocation is not None
            for line in device_lines(claim.status.allocation)
        ]
        message = next(
            (
                c.message
                for c in pod.status.conditions or ()
                if c.type == "PodScheduled" and not node
            ),
            "",
        )
        return PlacedPod(
            pod.metadata.name, node, tuple(devices), message, {} if node else self._reasons(pod)
        )

    def _reasons(self, pod: Pod) -> dict[str, Reason]:
        """Search again on each node, with the reason for each device."""
        environment = self.core.engine.environment
        state = cycle.pre_filter(pod, self.core.cache, environment)
        if isinstance(state, Status):
            return {} if state.reason is None else {"": state.reason}
        reasons: dict[str, Reason] = {}
        for name, node in state.snapshot.nodes.items():
            outcome = allocate(
                state.unallocated,
                node.for_allocator,
                state.snapshot.devices,
                features=environment.features,
                cel=environment.cel,
                new_share_id=environment.new_share_id,
                explain=True,
            )
            if not isinstance(outcome, Allocated):
                reasons[name] = outcome.reason
        return reasons


def _state(pod: Pod) -> tuple[str, bool, bool]:
    refused = any(
        condition.type == "PodScheduled" and condition.status == "False"
        for condition in pod.status.conditions or ()
    )
    return pod.metadata.name, bool(pod.spec.node_name), refused


async def _when_synced(core: Core, work: Awaitable[None]) -> None:
    await core.reflectors.synced.wait()
    await work


async def _create(client: ApiClient, path: str, bodies: Iterable[Json]) -> None:
    for body in bodies:
        answer = await client.write("POST", path, orjson.dumps(body))
        if not isinstance(answer, Committed):
            raise ApiError(0, "", f"{body['kind']} {body['metadata']['name']}: {answer}")
