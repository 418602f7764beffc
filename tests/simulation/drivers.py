"""Drivers of simulated devices: what they publish, and how they go wrong about it."""

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tests.invariants.objects import results, status
from tests.simulation.eviction import evict
from tests.simulation.tenants import claims_path

if TYPE_CHECKING:
    from tests.simulation.world import World

Object = dict[str, Any]
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES: Final = "/apis/resource.k8s.io/v1/deviceclasses"
RULES: Final = "/apis/resource.k8s.io/v1/devicetaintrules"
SHARED_POOL: Final = "fabric"
ATTACHED: Final = "example.com/attached"
FAILED: Final = "example.com/failed"


def driver_name(kind: str) -> str:
    return f"{kind}.example.com"


def device_class(kind: str, rng: random.Random) -> Object:
    """The class that selects a driver's devices, at times with configuration of its own."""
    spec: Object = {
        "selectors": [{"cel": {"expression": f'device.driver == "{driver_name(kind)}"'}}]
    }
    if rng.random() < 0.3:
        spec["config"] = [
            {"opaque": {"driver": driver_name(kind), "parameters": {"kind": "Default", "n": 1}}}
        ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": kind},
        "spec": spec,
    }


def _gpus(count: int, rng: random.Random) -> list[Object]:
    return [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "model": {"string": rng.choice(("A100", "H100"))},
                "index": {"int": index},
                "numa": {"int": index // 2},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci{index // 2:04x}:00"},
                "driverVersion": {"version": f"1.{index % 3}.0"},
                "healthy": {"bool": True},
            },
            "capacity": {"memory": {"value": rng.choice(("40Gi", "80Gi"))}},
        }
        for index in range(count)
    ]


def _shared(count: int, rng: random.Random) -> list[Object]:
    policies: list[Object] = [
        {},
        {
            "requestPolicy": {
                "default": "1Gi",
                "validRange": {"min": "1Gi", "step": "1Gi", "max": "8Gi"},
            }
        },
        {"requestPolicy": {"default": "2Gi", "validValues": ["2Gi", "4Gi", "8Gi"]}},
    ]
    return [
        {
            "name": f"share-{index}",
            "allowMultipleAllocations": True,
            "attributes": {"index": {"int": index}},
            "capacity": {"memory": {"value": "10Gi", **rng.choice(policies)}},
        }
        for index in range(count)
    ]


def _partitions(count: int) -> tuple[list[Object], list[Object]]:
    """Devices and counters of cards that can be cut."""
    devices: list[Object] = []
    counters: list[Object] = []
    for card in range(max(1, count // 3)):
        counters.append(
            {
                "name": f"card-{card}",
                "counters": {"memory": {"value": "8Gi"}, "slots": {"value": "3"}},
            }
        )
        for part, (memory, slots) in enumerate(
            (("4Gi", "1"), ("4Gi", "1"), ("6Gi", "2"), ("8Gi", "3"))
        ):
            devices.append(
                {
                    "name": f"card-{card}-part-{part}",
                    "attributes": {"card": {"int": card}},
                    "capacity": {"memory": {"value": memory}},
                    "consumesCounters": [
                        {
                            "counterSet": f"card-{card}",
                            "counters": {"memory": {"value": memory}, "slots": {"value": slots}},
                        }
                    ],
                }
            )
    return devices, counters


class Pool:
    """What one driver wants to publish for one node, or for all."""

    def __init__(self, kind: str, node: str, count: int, rng: random.Random) -> None:
        self.kind = kind
        self.node = node
        self.name = node or SHARED_POOL
        self.generation = 1
        self.pieces = rng.choice((1, 1, 2))
        self.counters: list[Object] = []
        if kind == "mig":
            self.devices, self.counters = _partitions(count)
        elif kind == "shared":
            self.devices = _shared(count, rng)
        else:
            self.devices = _gpus(count, rng)
        if kind == "slow":
            for device in self.devices:
                device |= {"bindingConditions": [ATTACHED], "bindingFailureConditions": [FAILED]}
        self.whole = ([*self.devices], [*self.counters])

    def slices(self) -> list[Object]:
        """The slices of the current generation."""
        contents: list[Object] = [{"sharedCounters": self.counters}] if self.counters else []
        size = -(-len(self.devices) // self.pieces) or 1
        parts = [self.devices[start : start + size] for start in range(0, len(self.devices), size)]
        contents.extend({"devices": part} for part in parts or [[]])
        place: Object = {"nodeName": self.node} if self.node else {"allNodes": True}
        return [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"{self.kind}-{self.name}-{index}"},
                "spec": {
                    "driver": driver_name(self.kind),
                    "pool": {
                        "name": self.name,
                        "generation": self.generation,
                        "resourceSliceCount": len(contents),
                    },
                    **place,
                    **content,
                },
            }
            for index, content in enumerate(contents)
        ]


class Drivers:
    """All drivers of a world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.rng = random.Random(world.rng.getrandbits(64))
        self.pools: list[Pool] = []

    def set_up(self) -> None:
        """Publish classes, and pools for the nodes there are."""
        for kind in self.world.plan.drivers:
            self.world.do("POST", CLASSES, device_class(kind, self.rng))
            if kind == "net":
                self._add(Pool(kind, "", self.rng.randint(1, 4), self.rng))

    def node_added(self, node: str) -> None:
        """Publish the devices of a node."""
        for kind in self.world.plan.drivers:
            if kind != "net":
                self._add(Pool(kind, node, self.rng.randint(1, 6), self.rng))

    def node_removed(self, node: str) -> None:
        """Withdraw them."""
        for pool in [each for each in self.pools if each.node == node]:
            self.pools.remove(pool)
            self._withdraw(pool)

    def _add(self, pool: Pool) -> None:
        self.pools.append(pool)
        self.publish(pool, spread=self.rng.choice((0.0, 0.0, 2.0)))

    def publish(self, pool: Pool, *, spread: float = 0.0, stop_after: int | None = None) -> None:
        """Write the slices of a pool one after the other, and remove what is too many.

        Args:
            pool: which.
            spread: seconds that it takes.
            stop_after: slices that are written before the driver dies; None: all.
        """
        wanted = pool.slices()
        self.rng.shuffle(wanted)
        generation = pool.generation
        delay = 0.0
        for slice_ in wanted[:stop_after]:
            delay += self.rng.random() * spread / max(1, len(wanted))
            self._later(delay, pool, generation, lambda slice_=slice_: self._write(slice_))
        if stop_after is None:
            keep = {slice_["metadata"]["name"] for slice_ in wanted}
            self._later(delay, pool, generation, lambda: self._remove_others(pool, keep))

    def _later(self, delay: float, pool: Pool, generation: int, do: Any) -> None:
        def step() -> None:
            if pool in self.pools and pool.generation == generation:
                do()

        if delay:
            self.world.loop.later(delay, step)
        else:
            step()

    def _write(self, slice_: Object) -> None:
        path = f"{SLICES}/{slice_['metadata']['name']}"
        status, found = self.world.do("GET", path)
        if status == 404:
            self.world.do("POST", SLICES, slice_)
        elif found["spec"] != slice_["spec"]:
            self.world.do("PUT", path, {**slice_, "metadata": found["metadata"]})

    def _remove_others(self, pool: Pool, keep: Iterable[str]) -> None:
        kept = set(keep)
        for slice_ in self.world.list(SLICES):
            spec = slice_["spec"]
            mine = (spec["driver"], spec["pool"]["name"]) == (driver_name(pool.kind), pool.name)
            if mine and slice_["metadata"]["name"] not in kept:
                self.world.do("DELETE", f"{SLICES}/{slice_['metadata']['name']}")

    def _withdraw(self, pool: Pool) -> None:
        self._remove_others(pool, ())

    # --- faults -------------------------------------------------------------------------------------------------------

    def second(self) -> None:
        """What goes wrong in one second."""
        world, rng = self.world, self.rng
        self.attach()
        if world.plan.rate("taints"):
            evict(world)
        if not self.pools:
            return
        pool = rng.choice(self.pools)
        if world.happens("F21 republish"):
            pool.generation += 1
            pool.pieces = rng.choice((1, 2, 3))
            self.publish(pool, spread=3.0)
        if world.happens("F21 incomplete"):
            pool.generation += 1
            pool.pieces = rng.choice((2, 3))
            count = len(pool.slices())
            self.publish(pool, spread=1.0, stop_after=max(1, count - 1))
            world.loop.later(rng.uniform(2.0, 15.0), lambda: self.publish(pool))
        if world.happens("F22 shrink"):
            pool.generation += 1
            devices, counters = pool.whole
            keep = rng.randint(0, len(devices))
            pool.devices = rng.sample(devices, keep)
            if counters and rng.random() < 0.5:
                pool.devices = [*devices]
                pool.counters = [
                    {**each, "counters": {**each["counters"], "memory": {"value": "6Gi"}}}
                    for each in counters
                ]
            self.publish(pool, spread=1.0)
            world.loop.later(rng.uniform(5.0, 20.0), lambda: self._whole(pool))
        if world.happens("driver restart"):
            self._withdraw(pool)
            world.loop.later(rng.uniform(0.1, 8.0), lambda: self.publish(pool, spread=2.0))
        if world.happens("invalid pool"):
            pool.generation += 1
            pool.devices = [*pool.whole[0], *pool.whole[0][:1]]
            pool.pieces = 2
            self.publish(pool)
            world.loop.later(rng.uniform(2.0, 15.0), lambda: self._whole(pool))
        if world.happens("taints"):
            self._taint(pool)
        if world.happens("classes"):
            self._change_class()

    def attach(self) -> None:
        """Devices of the slow driver are attached some time after they were allocated, or fail."""
        if "slow" not in self.world.plan.drivers:
            return
        for claim in list(self.world.objects("resource.k8s.io/resourceclaims")):
            waiting = [
                result
                for result in results(claim)
                if result.get("bindingConditions") and not status(claim).get("devices")
            ]
            if waiting and self.rng.random() < 0.4:
                self._tell(claim, waiting)

    def _tell(self, claim: Object, waiting: Iterable[Object]) -> None:
        world = self.world
        type_ = FAILED if world.happens("attach failed") else ATTACHED
        world.note(f"(devices {type_.rpartition('/')[2]})")
        condition = {
            "type": type_,
            "status": "True",
            "reason": "Told",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        meta = claim["metadata"]
        path = f"{claims_path(meta['namespace'])}/{meta['name']}"
        _, current = world.do("GET", path)
        current["status"]["devices"] = [
            {
                **{field: result[field] for field in ("driver", "pool", "device")},
                "conditions": [condition],
            }
            for result in waiting
        ]
        world.do("PUT", f"{path}/status", current)

    def _whole(self, pool: Pool) -> None:
        if pool in self.pools:
            pool.generation += 1
            pool.devices, pool.counters = [*pool.whole[0]], [*pool.whole[1]]
            self.publish(pool, spread=0.5)

    def _taint(self, pool: Pool) -> None:
        rng, world = self.rng, self.world
        effect = rng.choice(("NoSchedule", "NoExecute", "None"))
        taint: Object = {"key": "example.com/sick", "effect": effect, "value": "x"}
        if rng.random() < 0.5 and pool.devices:
            sick = rng.randrange(len(pool.devices))
            pool.generation += rng.choice((0, 1))
            pool.devices = [
                {**device, "taints": [taint]} if index == sick else device
                for index, device in enumerate(pool.devices)
            ]
            self.publish(pool)
            world.loop.later(rng.uniform(3.0, 15.0), lambda: self._whole(pool))
            return
        called = f"rule-{rng.randrange(3)}"
        selector: Object = {"driver": driver_name(pool.kind)}
        if rng.random() < 0.7:
            selector["pool"] = pool.name
        world.do("DELETE", f"{RULES}/{called}")
        world.do(
            "POST",
            RULES,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceTaintRule",
                "metadata": {"name": called},
                "spec": {"deviceSelector": selector, "taint": taint},
            },
        )
        world.loop.later(rng.uniform(3.0, 15.0), lambda: world.do("DELETE", f"{RULES}/{called}"))

    def _change_class(self) -> None:
        rng, world = self.rng, self.world
        kind = rng.choice(world.plan.drivers)
        if rng.random() < 0.5:
            world.do("DELETE", f"{CLASSES}/{kind}")
            world.loop.later(
                rng.uniform(0.1, 10.0), lambda: world.do("POST", CLASSES, device_class(kind, rng))
            )
            return
        status, found = world.do("GET", f"{CLASSES}/{kind}")
        if status == 200:
            found["spec"] = device_class(kind, rng)["spec"]
            world.do("PUT", f"{CLASSES}/{kind}", found)

    def heal(self) -> None:
        """Publish everything as it should be."""
        for pool in self.pools:
            self._whole(pool)
        for rule in self.world.list(RULES):
            self.world.do("DELETE", f"{RULES}/{rule['metadata']['name']}")
        for kind in self.world.plan.drivers:
            self.world.do("POST", CLASSES, device_class(kind, self.rng))
