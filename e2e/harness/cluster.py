"""One test's corner of a cluster: its own namespace, driver, nodes and schedulerName."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from e2e.harness import judge, objects
from e2e.harness.api import (
    CLAIMS,
    CLASSES,
    EVENTS,
    MERGE,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    TEMPLATES,
    Api,
    ApiError,
    Object,
    Resource,
)
from e2e.harness.recorder import Recorder

POLL_SECONDS = 0.05
PATIENCE_SECONDS = 30.0

T = TypeVar("T")


async def eventually(
    what: str,
    probe: Callable[[], Awaitable[T]],
    timeout_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> T:
    """Waits until `probe` returns something true, and returns that.

    Raises:
      AssertionError: The time is over; the message says what was waited for and seen last.
    """
    last: object = None
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                answer = await probe()
                if answer:
                    return answer
                last = answer
                await asyncio.sleep(poll_seconds)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_seconds:g} s: {what}; last: {last}") from None


@dataclass
class Cluster:
    """What a test works with. Made by `Cluster.prepared`, which also cleans up.

    Attributes:
      api: A client with all rights.
      name: Namespace, prefix of node names, and label value of the nodes.
      scheduler: The schedulerName under test.
      recorder: Every version of the claims and pods in the namespace.
      tolerated: Rules of the judge that the test itself breaks on purpose.
    """

    api: Api
    name: str
    scheduler: str
    recorder: Recorder
    tolerated: set[str] = field(default_factory=set)
    _cluster_scoped: list[tuple[Resource, str]] = field(default_factory=list)
    _nodes: list[str] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.name

    @property
    def driver(self) -> str:
        return f"{self.name}.example.com"

    @property
    def device_class(self) -> str:
        return self.name

    @property
    def node_names(self) -> list[str]:
        """The test's nodes."""
        return list(self._nodes)

    @property
    def node_labels(self) -> dict[str, str]:
        """Labels of this test's nodes; pods get them as nodeSelector."""
        return {"e2e.example.com/test": self.name}

    @classmethod
    @contextlib.asynccontextmanager
    async def prepared(cls, api: Api, name: str, scheduler: str) -> AsyncIterator[Cluster]:
        """Makes the namespace and the class; at the end removes everything that was made."""
        await api.create(NAMESPACES, {"metadata": {"name": name}})
        async with Recorder.running(api, name) as recorder:
            cluster = cls(api, name, scheduler, recorder)
            await cluster.create(CLASSES, objects.device_class(name, cluster.driver))
            try:
                yield cluster
            finally:
                await cluster.clean_up()

    async def create(self, kind: Resource, body: Object) -> Object:
        """Creates an object; one without a namespace is deleted at the end of the test."""
        made = await self.api.create(kind, body)
        if not kind.namespaced:
            self._cluster_scoped.append((kind, made["metadata"]["name"]))
        return made

    async def add_nodes(
        self,
        count: int,
        *,
        devices: int = 0,
        allocatable: Mapping[str, str] | None = None,
        attributes: Mapping[str, str | int | bool] | None = None,
    ) -> list[str]:
        """Creates nodes, each with a slice of that many devices, and returns their names."""
        first = len(self._nodes)
        names = [f"{self.name}-{first + i}" for i in range(count)]
        bodies = [
            objects.node(name, labels=self.node_labels, allocatable=allocatable) for name in names
        ]
        await self.api.create_all(NODES, bodies)
        self._nodes += names
        self._cluster_scoped += [(NODES, name) for name in names]
        await asyncio.gather(*(self._untaint(name) for name in names))
        if devices:
            slices = [
                self.slice(
                    name, [objects.device(f"gpu-{i}", **attributes or {}) for i in range(devices)]
                )
                for name in names
            ]
            await asyncio.gather(*(self.create(SLICES, body) for body in slices))
        return names

    def slice(self, node: str | None, devices: Sequence[Object], **options: Any) -> Object:
        """Describes a slice of the test's driver on one node."""
        name = options.pop("name", None) or f"{node or self.name}-gpu"
        return objects.resource_slice(name, self.driver, devices, node=node, **options)

    async def publish(self, node: str | None, *names: str, **options: Any) -> Object:
        """Publishes devices by name."""
        body = self.slice(node, [objects.device(name) for name in names], **options)
        return await self.create(SLICES, body)

    def request(self, name: str = "gpu", **options: Any) -> Object:
        return objects.request(self.device_class, name=name, **options)

    async def claim(self, name: str, *requests: Object, finalizer: bool = False) -> Object:
        """Creates a claim; with one device of the test's class when no request is given."""
        asked = requests or (self.request(),)
        body = objects.claim(self.namespace, name, *asked, finalizer=finalizer)
        return await self.api.create(CLAIMS, body)

    async def template(self, name: str = "gpu", *requests: Object) -> Object:
        body = objects.template(self.namespace, name, *(requests or (self.request(),)))
        return await self.api.create(TEMPLATES, body)

    def pod_body(
        self,
        name: str,
        *,
        claims: Mapping[str, str] | None = None,
        templates: Mapping[str, str] | None = None,
        unused: Sequence[str] = (),
        requests: Mapping[str, str] | None = None,
        scheduler: str | None = None,
        node: str | None = None,
        spec: Mapping[str, Any] | None = None,
    ) -> Object:
        """Describes a pod for this test's nodes, or for one of them (by hostname label)."""
        selector = {"kubernetes.io/hostname": node} if node else self.node_labels
        return objects.pod(
            self.namespace,
            name,
            scheduler=scheduler or self.scheduler,
            claims=claims,
            templates=templates,
            unused=unused,
            requests=requests,
            spec={"nodeSelector": selector, **(spec or {})},
        )

    async def pod(self, name: str, **options: Any) -> Object:
        return await self.api.create(PODS, self.pod_body(name, **options))

    async def get_pod(self, name: str) -> Object:
        return await self.api.get(PODS, name, self.namespace)

    async def get_claim(self, name: str) -> Object:
        return await self.api.get(CLAIMS, name, self.namespace)

    async def bound(self, *names: str, timeout_seconds: float = PATIENCE_SECONDS) -> list[Object]:
        """Waits until the pods are bound, and returns them."""

        async def probe() -> list[Object] | None:
            pods = {p["metadata"]["name"]: p for p in await self.pods()}
            chosen = [pods[name] for name in names]
            return chosen if all(p["spec"].get("nodeName") for p in chosen) else None

        try:
            return await eventually(f"pods {names} bound", probe, timeout_seconds) or []
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self.describe()}") from None

    async def all_bound(self, count: int, timeout_seconds: float) -> list[Object]:
        """Waits until the namespace has `count` bound pods, and returns them."""
        seen: list[Object] = []

        async def probe() -> bool:
            nonlocal seen
            seen = [p for p in await self.pods() if p["spec"].get("nodeName")]
            return len(seen) >= count

        try:
            await eventually(f"{count} pods bound", probe, timeout_seconds, poll_seconds=0.5)
        except AssertionError:
            text = f"{len(seen)} of {count} pods bound after {timeout_seconds:g} s"
            raise AssertionError(f"{text}\n{await self.describe(limit=5)}") from None
        return seen

    async def pods(self) -> list[Object]:
        return await self.api.objects(PODS, self.namespace)

    async def claims(self) -> list[Object]:
        return await self.api.objects(CLAIMS, self.namespace)

    async def gone(self, kind: Resource, name: str) -> None:
        """Waits until an object of the namespace does not exist any more."""

        async def probe() -> bool:
            return await self.api.find(kind, name, self.namespace) is None

        await eventually(f"{kind.plural} {name} gone", probe)

    async def generated_claim(self, pod: str, entry: str = "gpu") -> str:
        """Waits for the controller to create a pod's claim, and returns its name."""

        async def probe() -> str | None:
            return judge.claim_names(await self.get_pod(pod)).get(entry)

        return await eventually(f"claim of pod {pod} for {entry}", probe) or ""

    async def refused(self, name: str, *texts: str) -> str:
        """Waits until PodScheduled is False with a message holding one of the texts; returns it."""

        async def probe() -> str | None:
            message = await self.condition(name)
            matches = message is not None and (not texts or any(t in message for t in texts))
            return message if matches else None

        try:
            return await eventually(f"pod {name} refused with {texts}", probe) or ""
        except AssertionError as error:
            seen = f"{await self.condition(name)}; events {await self.events(name)}"
            raise AssertionError(f"{error}\n{name}: {seen}") from None

    async def condition(self, name: str) -> str | None:
        """Returns `reason: message` of PodScheduled=False, or None."""
        pod = await self.get_pod(name)
        for condition in pod.get("status", {}).get("conditions") or []:
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return f"{condition.get('reason', '')}: {condition.get('message', '')}"
        return None

    async def stays_pending(self, *names: str, seconds: float = 2.0) -> None:
        """Watches that pods are not bound for a while.

        Raises:
          AssertionError: One was.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            for name in names:
                node = (await self.get_pod(name))["spec"].get("nodeName")
                assert node is None, f"pod {name} was bound to {node}"
            await asyncio.sleep(0.2)

    async def events(self, pod: str) -> list[str]:
        """Returns `reason: message` of the pod's events, of both event APIs."""
        items = await self.api.objects(EVENTS, self.namespace)
        return [
            f"{e.get('reason')}: {e.get('message')}"
            for e in items
            if e["involvedObject"].get("name") == pod
        ]

    async def finish(self, *names: str, phase: str = "Succeeded") -> None:
        """Does what kubelet does when the containers ended: reports the terminal phase."""
        body = {"status": {"phase": phase}}
        await asyncio.gather(
            *(
                self.api.patch(
                    PODS,
                    name,
                    body,
                    namespace=self.namespace,
                    subresource="status",
                    content_type=MERGE,
                )
                for name in names
            )
        )

    async def delete_pod(self, name: str) -> None:
        await self.api.delete(PODS, name, self.namespace, now=True)

    async def findings(self) -> list[judge.Finding]:
        """Judges the state as it is now, and each revision of the claims since the start."""
        pods, claims, nodes, slices = await asyncio.gather(
            self.pods(),
            # Only this namespace: its driver's devices are nobody else's.
            self.claims(),
            self.api.objects(NODES),
            self.api.objects(SLICES),
        )
        found = [*judge.judge(pods, claims, nodes, slices), *self.recorder.findings()]
        return [finding for finding in found if finding.rule not in self.tolerated]

    async def describe(self, limit: int = 10) -> str:
        """Returns unbound pods with conditions and events, for a failed wait."""
        lines: list[str] = []
        for pod in await self.pods():
            name = pod["metadata"]["name"]
            if pod["spec"].get("nodeName") is None and len(lines) < limit:
                events = await self.events(name)
                lines.append(f"{name}: {await self.condition(name)}; events {events[-3:]}")
        return "\n".join(lines)

    async def clean_up(self) -> None:
        """Removes pods, claims, nodes, slices and classes, then the namespace (not waited for)."""
        await self.api.delete_all(
            PODS, (p["metadata"]["name"] for p in await self.pods()), self.namespace
        )
        # Generated claims go with their pods; the controller takes care of them.
        mine = [c for c in await self.claims() if not c["metadata"].get("ownerReferences")]
        for claim in mine:
            if claim.get("status") or claim["metadata"].get("finalizers"):
                await self._release(claim["metadata"]["name"])
        await self.api.delete_all(CLAIMS, (c["metadata"]["name"] for c in mine), self.namespace)
        await eventually("no claims are left", self._no_claims, 60)
        gate = asyncio.Semaphore(32)

        async def remove(kind: Resource, name: str) -> None:
            async with gate:
                await self.api.delete(kind, name)

        for kind in {kind.plural for kind, _ in self._cluster_scoped}:
            chosen = [(k, name) for k, name in self._cluster_scoped if k.plural == kind]
            await asyncio.gather(*(remove(k, name) for k, name in chosen))
        slices = await self.api.objects(SLICES)
        published = [s["metadata"]["name"] for s in slices if s["spec"]["driver"] == self.driver]
        await asyncio.gather(*(remove(SLICES, name) for name in published))
        await remove(NAMESPACES, self.namespace)

    async def _no_claims(self) -> bool:
        return not await self.api.objects(CLAIMS, self.namespace, "?limit=1")

    async def _release(self, name: str) -> None:
        """Empties a claim's status and finalizers, so that nothing keeps it alive."""
        for body, subresource in (
            ({"status": {"reservedFor": None, "allocation": None, "devices": None}}, "status"),
            ({"metadata": {"finalizers": None}}, ""),
        ):
            with contextlib.suppress(ApiError):
                await self.api.patch(
                    CLAIMS, name, body, namespace=self.namespace, subresource=subresource
                )

    async def _untaint(self, name: str) -> None:
        """Takes away the not-ready taint that admission puts on a new node."""
        body: Object = {"spec": {"taints": None}}
        await self.api.patch(NODES, name, body)
