"""DRA drivers that have no devices: they publish ResourceSlices for nodes, and keep them as they should be.

The functions build what a node publishes; `Drivers` does the publishing. Attribute names are those of real drivers, so
that the selectors people write work here.
"""

import uuid
from collections.abc import Callable
from typing import Final

from scheduler.client import ApiClient
from scheduler.clock import Clock
from scheduler.lab.simulated.mirror import NODES, SLICES, Controller, Json, name, path_of, uid

GPU_DRIVER: Final = "gpu.example.com"
NIC_DRIVER: Final = "nic.example.com"
MIG_DRIVER: Final = "mig.example.com"
SHARED_DRIVER: Final = "shared.example.com"

PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
NUMA: Final = "numa"

# On what we publish: a cluster may have drivers of its own with these names.
MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "dra-scheduler-simulated"}

DEVICES_A_PCIE_ROOT: Final = 2

_NAMESPACE = uuid.UUID("6f1c6d54-9f0e-4f0e-8a57-0d7a3a1f2b10")


def resource_slice(
    node: str, driver: str, index: int = 0, count: int = 1, **content: object
) -> Json:
    """One slice of a pool that has the name of its node.

    Args:
        node: which node the devices are on.
        driver: who publishes.
        index: which slice of the pool.
        count: how many slices the pool has.
        content: `devices` or `sharedCounters`.
    """
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}-{index}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": count},
            **content,
        },
    }


def _place(index: int, count: int) -> Json:
    """NUMA node and PCIe root of a device: two NUMA nodes, a PCIe root for every two devices."""
    numa = 0 if index < (count + 1) // 2 else 1
    root = index // DEVICES_A_PCIE_ROOT
    return {NUMA: {"int": numa}, PCIE_ROOT: {"string": f"pci{root:04x}:00"}}


def gpus(
    node: str,
    count: int = 8,
    *,
    model: str = "H100",
    memory: str = "80Gi",
    driver_version: str = "570.86.15",
) -> list[Json]:
    """GPUs that are given out whole."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "model": {"string": model},
                "index": {"int": index},
                "uuid": {"string": f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}"},
                "driverVersion": {"version": driver_version},
                **_place(index, count),
            },
            "capacity": {"memory": {"value": memory}},
        }
        for index in range(count)
    ]
    return [resource_slice(node, GPU_DRIVER, devices=devices)]


def nics(node: str, count: int = 4, *, speed: str = "400Gbit") -> list[Json]:
    """Network cards that share PCIe roots with the GPUs of the same node."""
    devices = [
        {
            "name": f"nic-{index}",
            "attributes": {
                "speed": {"string": speed},
                "index": {"int": index},
                NUMA: {"int": 0 if index < (count + 1) // 2 else 1},
                PCIE_ROOT: {"string": f"pci{index:04x}:00"},
            },
        }
        for index in range(count)
    ]
    return [resource_slice(node, NIC_DRIVER, devices=devices)]


def partitionable_cards(
    node: str,
    count: int = 1,
    *,
    memory_gi: int = 8,
    partitions_gi: tuple[int, ...] = (6, 6, 2),
) -> list[Json]:
    """Cards that can be cut into partitions that draw on one memory counter; the counters are in a slice of their own.

    Args:
        node: which node the cards are on.
        count: how many cards.
        memory_gi: memory of a card.
        partitions_gi: memory of each partition it offers; together they may need more than there is.
    """
    counters = [
        {
            "name": f"card-{card}-counters",
            "counters": {"memory": {"value": f"{memory_gi}Gi"}},
        }
        for card in range(count)
    ]
    devices = [
        {
            "name": f"card-{card}-part-{index}",
            "attributes": {
                "type": {"string": "partition"},
                "profile": {"string": f"{size}gi"},
                "card": {"int": card},
            },
            "capacity": {"memory": {"value": f"{size}Gi"}},
            "consumesCounters": [
                {
                    "counterSet": f"card-{card}-counters",
                    "counters": {"memory": {"value": f"{size}Gi"}},
                }
            ],
        }
        for card in range(count)
        for index, size in enumerate(partitions_gi)
    ]
    return [
        resource_slice(node, MIG_DRIVER, 0, 2, sharedCounters=counters),
        resource_slice(node, MIG_DRIVER, 1, 2, devices=devices),
    ]


def shared_cards(node: str, count: int = 1, *, units: int = 80, share: int = 10) -> list[Json]:
    """Cards whose memory is given out in shares.

    Args:
        node: which node the cards are on.
        count: how many cards.
        units: memory units of a card.
        share: units in the smallest share, and in the one given when nothing is asked for.
    """
    policy = {
        "default": str(share),
        "validRange": {"min": str(share), "max": str(units), "step": str(share)},
    }
    devices = [
        {
            "name": f"shared-{index}",
            "allowMultipleAllocations": True,
            "attributes": {"model": {"string": "shared"}, "index": {"int": index}},
            "capacity": {"memory": {"value": str(units), "requestPolicy": policy}},
        }
        for index in range(count)
    ]
    return [resource_slice(node, SHARED_DRIVER, devices=devices)]


def device_class(class_name: str, driver: str, *selectors: str) -> Json:
    """A class of a driver's devices, by further selectors if there are any."""
    expressions = (f'device.driver == "{driver}"', *selectors)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": class_name},
        "spec": {"selectors": [{"cel": {"expression": text}} for text in expressions]},
    }


Publisher = Callable[[Json], list[Json]]


class Drivers(Controller):
    """Publishes what the nodes have."""

    resources: tuple[str, ...] = (NODES, SLICES)

    def __init__(self, client: ApiClient, clock: Clock, publish: Publisher) -> None:
        """Say what is published.

        Args:
            client: of any API server.
            clock: for pauses.
            publish: the slices of a node, given its object; always the same for the same node.
        """
        super().__init__(client, clock)
        self._publish = publish

    async def reconcile(self) -> None:
        """One pass over all nodes."""
        wanted: dict[str, Json] = {}
        for node in self.mirror.objects(NODES):
            owner = {"apiVersion": "v1", "kind": "Node", "name": name(node), "uid": uid(node)}
            for published in self._publish(node):
                published["metadata"] |= {"ownerReferences": [owner], "labels": MANAGED_BY}
                wanted[name(published)] = published
        held = {name(obj): obj for obj in self.mirror.objects(SLICES) if _is_ours(obj)}
        for slice_name, published in wanted.items():
            if slice_name not in held:
                await self._create(published)
            elif held[slice_name]["spec"] != published["spec"]:
                await self._update(held[slice_name], published)
        for slice_name, obj in held.items():
            if slice_name not in wanted:
                await self.api.delete(path_of(SLICES, obj), obj)

    async def _create(self, published: Json) -> None:
        stored = await self.api.create(SLICES, published)
        if stored is not None:
            self.mirror.observe(SLICES, stored)

    async def _update(self, held: Json, published: Json) -> None:
        spec = published["spec"]
        pool = {**spec["pool"], "generation": held["spec"]["pool"]["generation"]}
        if held["spec"] == {**spec, "pool": pool}:
            # An administrator, or a newer driver, has raised the generation.
            return
        pool["generation"] += 1
        body = {**published, "metadata": held["metadata"], "spec": {**spec, "pool": pool}}
        stored = await self.api.put(path_of(SLICES, held), body)
        if stored is not None:
            self.mirror.observe(SLICES, stored)


def _is_ours(obj: Json) -> bool:
    return (obj["metadata"].get("labels") or {}).items() >= MANAGED_BY.items()
