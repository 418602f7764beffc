"""A backlog on the real control plane: nodes, devices, and pods whose claims all exist before a scheduler starts.

With pods still being created, creation and claim generation eat the same two cores and hide the scheduler.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from e2e.harness import objects
from e2e.harness.api import (
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    TEMPLATES,
    Api,
    ApiError,
)
from e2e.harness.controlplane import ControlPlane

DRIVER = "gpu.example.com"
NAMESPACE = "bench"
DEVICES_PER_NODE = 8
MODELS = ("H100", "A100")
STALLED_SECONDS = 60.0
POLICY = (
    Path(__file__).parents[2] / "deploy" / "components" / "finalizer-at-creation" / "policy.yaml"
)
POLICY_SECONDS = 30.0


@dataclass(frozen=True)
class Shape:
    """What a pod claims.

    Attributes:
        name: for the table.
        spec: of the claim.
        devices: taken by one pod.
    """

    name: str
    spec: dict[str, Any]
    devices: int


def _exactly(name: str, count: int = 1) -> dict[str, Any]:
    return objects.request("gpu", name=name, count=count)


SHAPES = (
    Shape("one device", {"devices": {"requests": [_exactly("gpu")]}}, 1),
    Shape(
        "two devices with matchAttribute",
        {
            "devices": {
                "requests": [_exactly("gpu", 2)],
                "constraints": [{"matchAttribute": f"{DRIVER}/numa"}],
            }
        },
        2,
    ),
    Shape(
        "firstAvailable",
        {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "firstAvailable": [
                            {
                                "name": model.lower(),
                                "deviceClassName": "gpu",
                                "selectors": [
                                    {
                                        "cel": {
                                            "expression": f'device.attributes["{DRIVER}"].model'
                                            f' == "{model}"'
                                        }
                                    }
                                ],
                            }
                            for model in MODELS
                        ],
                    }
                ]
            }
        },
        1,
    ),
)


def gpu(index: int, node: int) -> dict[str, Any]:
    """A device as drivers publish them: most attributes differ from device to device, few are asked for."""
    return {
        **objects.device(
            f"gpu-{index}",
            model=MODELS[node % 2],
            numa=index // 4,
            index=index,
            uuid=f"GPU-{node:06d}-{index}",
        ),
        "capacity": {"memory": {"value": "80Gi"}},
    }


async def make_cluster(admin: Api, nodes: int) -> None:
    """Create nodes with 8 devices each, the class, and the namespace."""
    await admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await admin.create(CLASSES, objects.device_class("gpu", DRIVER))
    await add_nodes(admin, range(nodes))


async def add_nodes(admin: Api, numbers: range) -> None:
    """Create nodes with 8 devices each."""
    bodies = [objects.node(node_name(number)) for number in numbers]
    await admin.create_all(NODES, bodies)
    await _each(bodies, lambda body: _make_ready(admin, body))
    await admin.create_all(
        SLICES,
        (
            objects.resource_slice(
                f"{node_name(number)}-gpus",
                DRIVER,
                [gpu(device, number) for device in range(DEVICES_PER_NODE)],
                node=node_name(number),
            )
            for number in numbers
        ),
    )


def node_name(number: int) -> str:
    return f"node-{number:05d}"


async def set_finalizer_at_creation(admin: Api, *, on: bool) -> None:
    """Install or remove the admission policy that ships with us, and wait until the API server heeds it.

    Raises:
        RuntimeError: it does not.
    """
    manifests = list(yaml.safe_load_all(POLICY.read_text()))
    for manifest in manifests:
        if on:
            await admin.apply(manifest)
        else:
            await admin.delete(await admin.place(manifest), manifest["metadata"]["name"])
    probe = objects.claim(NAMESPACE, "probe", objects.request("gpu"))
    probe["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "probe"}
    body = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, **probe}
    end = time.monotonic() + POLICY_SECONDS
    while time.monotonic() < end:
        made = await admin.request("POST", f"{CLAIMS.path(NAMESPACE)}?dryRun=All", body)
        if has_finalizer(made) is on:
            return
        await asyncio.sleep(0.2)
    raise RuntimeError(f"finalizer at creation is not {'on' if on else 'off'}")


def has_finalizer(claim: dict[str, Any]) -> bool:
    return objects.FINALIZER in claim["metadata"].get("finalizers", [])


async def _make_ready(admin: Api, body: dict[str, Any]) -> None:
    """A new node is tainted not-ready by admission; nobody here would remove that."""
    name = body["metadata"]["name"]
    await admin.patch(NODES, name, {"spec": {"taints": None}})
    await admin.patch(NODES, name, {"status": body["status"]}, subresource="status")


async def _each(items: list[Any], do: Callable[[Any], Awaitable[None]]) -> None:
    gate = asyncio.Semaphore(32)

    async def one(item: Any) -> None:
        async with gate:
            await do(item)

    await asyncio.gather(*(one(item) for item in items))


@dataclass
class Binds:
    """When pods were bound, on the monotonic clock."""

    count: int
    times: list[float] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pods_per_second(self) -> float:
        """From the first bind to the last."""
        if len(self.times) < 2:
            return 0.0
        return (len(self.times) - 1) / (self.times[-1] - self.times[0])


class Backlog:
    """Pods of one shape that wait for one scheduler."""

    def __init__(
        self,
        plane: ControlPlane,
        shape: Shape,
        pods: int,
        scheduler: str,
        *,
        finalizers: bool = False,
    ) -> None:
        """Describe a backlog.

        Args:
            plane: where.
            shape: of the claims.
            pods: how many.
            scheduler: their `schedulerName`.
            finalizers: whether claims are created with the finalizer, by the admission policy.
        """
        self.plane = plane
        self.shape = shape
        self.pods = pods
        self.scheduler = scheduler
        self.finalizers = finalizers

    async def create(self) -> None:
        """Create pods and wait until each has its claim.

        Raises:
            RuntimeError: claims have a finalizer and should not, or the other way round.
        """
        admin = self.plane.admin
        template = {
            "metadata": {"name": "claim", "namespace": NAMESPACE},
            "spec": {"spec": self.shape.spec},
        }
        await admin.create(TEMPLATES, template)
        await admin.create_all(
            PODS,
            (
                objects.pod(
                    NAMESPACE,
                    f"pod-{index:05d}",
                    scheduler=self.scheduler,
                    templates={"gpu": "claim"},
                    requests={"cpu": "100m"},
                )
                for index in range(self.pods)
            ),
        )
        while await self._claims() < self.pods:
            await asyncio.sleep(0.5)
        while True:
            pods = await admin.objects(PODS, NAMESPACE)
            if all(pod["status"].get("resourceClaimStatuses") for pod in pods):
                break
            await asyncio.sleep(0.5)
        for claim in await admin.objects(CLAIMS, NAMESPACE):
            if has_finalizer(claim) is not self.finalizers:
                raise RuntimeError(f"finalizers of {claim['metadata']['name']} are not as expected")

    async def measure(
        self, start: Callable[[], Awaitable[None]], timeout_seconds: float
    ) -> tuple[Binds, float]:
        """Start a scheduler and wait until all pods are bound, or none has been for a minute.

        Returns:
            the binds, and the seconds from the start to the first.
        """
        admin = self.plane.admin
        listing = await admin.request("GET", f"{PODS.path(NAMESPACE)}?limit=1")
        version = listing["metadata"]["resourceVersion"]
        binds = Binds(self.pods)
        watch = asyncio.create_task(self._watch(binds, version))
        began = time.monotonic()
        try:
            await start()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    await _done_or_stalled(binds)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        first = binds.times[0] - began if binds.times else float("inf")
        return binds, first

    async def _watch(self, binds: Binds, version: str) -> None:
        bound: set[str] = set()
        while True:
            async for type_, pod in self.plane.admin.watch(PODS, NAMESPACE, version):
                if type_ == "ERROR":
                    raise RuntimeError(str(pod))
                version = pod["metadata"]["resourceVersion"]
                uid = pod["metadata"]["uid"]
                if pod["spec"].get("nodeName") and uid not in bound:
                    bound.add(uid)
                    binds.times.append(time.monotonic())
                    if len(bound) == binds.count:
                        binds.done.set()
                        return

    async def remove(self) -> None:
        """Delete pods and wait until their claims, and so their devices, are gone."""
        admin = self.plane.admin
        await admin.delete(TEMPLATES, "claim", NAMESPACE)
        names = [pod["metadata"]["name"] for pod in await admin.objects(PODS, NAMESPACE)]
        await admin.delete_all(PODS, names, NAMESPACE)
        left, since = await self._claims(), time.monotonic()
        while left:
            await asyncio.sleep(0.5)
            now = await self._claims()
            if now != left:
                left, since = now, time.monotonic()
            elif time.monotonic() - since > STALLED_SECONDS:
                raise RuntimeError("claims of deleted pods stay")

    async def _claims(self) -> int:
        """How many claims there are."""
        answer = await self.plane.admin.request("GET", f"{CLAIMS.path(NAMESPACE)}?limit=1")
        remaining: int = answer["metadata"].get("remainingItemCount", 0)
        return len(answer["items"] or ()) + remaining

    async def check(self) -> None:
        """Every device once; raises if not."""
        claims = await self.plane.admin.objects(CLAIMS, NAMESPACE)
        seen: set[tuple[str, str, str]] = set()
        for claim in claims:
            for result in (claim.get("status", {}).get("allocation") or {"devices": {}})[
                "devices"
            ].get("results", []):
                device = (result["driver"], result["pool"], result["device"])
                if device in seen:
                    raise RuntimeError(f"{device} was given twice")
                seen.add(device)


async def _done_or_stalled(binds: Binds) -> None:
    seen, since = -1, time.monotonic()
    while not binds.done.is_set() and time.monotonic() - since < STALLED_SECONDS:
        if len(binds.times) != seen:
            seen, since = len(binds.times), time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(binds.done.wait(), 1.0)


async def write_bare(backlog: Backlog, concurrency: int = 32) -> None:
    """Send the writes that a pod needs and nothing else: finalizer, allocation with reservation, Binding."""
    admin = backlog.plane.admin
    claims = {
        claim["metadata"]["ownerReferences"][0]["uid"]: claim
        for claim in await admin.objects(CLAIMS, NAMESPACE)
    }
    pods = await admin.objects(PODS, NAMESPACE)
    per_node = DEVICES_PER_NODE // backlog.shape.devices
    gate = asyncio.Semaphore(concurrency)

    async def one(index: int, pod: dict[str, Any]) -> None:
        async with gate:
            await bind_bare(
                admin, backlog.shape, claims[pod["metadata"]["uid"]], pod, index, per_node
            )

    await asyncio.gather(*(one(index, pod) for index, pod in enumerate(pods)))


async def bind_bare(
    admin: Api, shape: Shape, claim: dict[str, Any], pod: dict[str, Any], index: int, per_node: int
) -> None:
    node, slot = divmod(index, per_node)
    name = node_name(node)
    path = CLAIMS.path(NAMESPACE, claim["metadata"]["name"])
    if not has_finalizer(claim):
        claim["metadata"]["finalizers"] = [objects.FINALIZER]
        claim = await admin.request("PUT", path, claim)
    results = [
        {
            "request": "gpu",
            "driver": DRIVER,
            "pool": name,
            "device": f"gpu-{slot * shape.devices + offset}",
        }
        for offset in range(shape.devices)
    ]
    if shape.name == "firstAvailable":
        results[0]["request"] = f"gpu/{MODELS[node % 2].lower()}"
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    claim["status"] = {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            "allocationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
        "reservedFor": [
            {
                "resource": "pods",
                "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"],
            }
        ],
    }
    await admin.request("PUT", f"{path}/status", claim)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": pod["metadata"]["name"],
            "namespace": NAMESPACE,
            "uid": pod["metadata"]["uid"],
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": name},
    }
    try:
        await admin.request(
            "POST", f"{PODS.path(NAMESPACE, pod['metadata']['name'])}/binding", binding
        )
    except ApiError as error:
        raise RuntimeError(f"bare binding: {error}") from error
