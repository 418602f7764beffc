"""Pools as an allocator for one node gathers them from ResourceSlices.

Source: docs/design/allocator.md#which-slices-count to docs/design/allocator.md#invalid-pools,
docs/design/allocator.md#inputs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
import orjson

from allocator.cel import Compiler, prepare_device
from allocator.errors import CelError
from allocator.model.devices import Device as TypedDevice
from allocator.model.hooks import dec_hook
from tests.invariants.objects import Device, Object, name, selector_matches

PoolName = tuple[str, str]

_COMPILER = Compiler()
_DEVICE = msgspec.json.Decoder(TypedDevice, dec_hook=dec_hook)


@dataclass(slots=True)
class Pool:
    """One pool for one node.

    Attributes:
        name: driver and pool.
        problem: why nothing may be taken from it; empty: nothing is wrong.
        devices: name -> device, of slices that count for the node and are for it.
        counters: counter set -> counter -> amount text, of the whole pool.
    """

    name: PoolName
    problem: str = ""
    devices: dict[str, Object] = field(default_factory=dict)
    counters: dict[str, dict[str, str]] = field(default_factory=dict)


def pool_name(slice_: Object) -> PoolName:
    return slice_["spec"]["driver"], slice_["spec"]["pool"]["name"]


def _generation(slice_: Object) -> int:
    return int(slice_["spec"]["pool"]["generation"])


def _is_for(place: Object, node: Object) -> bool:
    if place.get("nodeName"):
        return bool(place["nodeName"] == name(node))
    if place.get("allNodes"):
        return True
    return place.get("nodeSelector") is not None and selector_matches(place["nodeSelector"], node)


def counts_for(slice_: Object, node: Object) -> bool:
    """Whether a slice is gathered for a node at all."""
    spec = slice_["spec"]
    if spec.get("nodeName") or spec.get("allNodes") or spec.get("nodeSelector"):
        return _is_for(spec, node)
    if spec.get("perDeviceNodeSelection"):
        return any(_is_for(device, node) for device in spec.get("devices") or ())
    return False


def gather(slices: Iterable[Object], node: Object) -> dict[PoolName, Pool]:
    """The pools that a node can see."""
    everything = sorted(slices, key=name)
    by_pool: dict[PoolName, list[Object]] = {}
    local_first = sorted(everything, key=lambda each: not each["spec"].get("nodeName"))
    for slice_ in local_first:
        if counts_for(slice_, node):
            by_pool.setdefault(pool_name(slice_), []).append(slice_)
    pools = {}
    for pool, found in by_pool.items():
        made = _pool(pool, found, everything, node)
        if made is not None:
            pools[pool] = made
    return pools


def _pool(
    pool: PoolName, found: Sequence[Object], everything: Sequence[Object], node: Object
) -> Pool | None:
    newest = max(map(_generation, found))
    kept = [slice_ for slice_ in found if _generation(slice_) == newest]
    want = int(kept[0]["spec"]["pool"]["resourceSliceCount"])
    whole = kept
    if len(kept) != want:
        mates = [slice_ for slice_ in everything if pool_name(slice_) == pool]
        if any(_generation(slice_) > newest for slice_ in mates):
            return None
        whole = [slice_ for slice_ in mates if _generation(slice_) == newest]
    made = Pool(pool)
    if len(whole) != want:
        made.problem = f"{len(whole)} of {want} slices are there"
        return made
    for slice_ in kept:
        per_device = slice_["spec"].get("perDeviceNodeSelection")
        for device in slice_["spec"].get("devices") or ():
            if device["name"] in made.devices:
                made.problem = f"device {device['name']} is there twice"
            if not per_device or _is_for(device, node):
                made.devices[device["name"]] = device
    for slice_ in whole:
        for counter_set in slice_["spec"].get("sharedCounters") or ():
            if counter_set["name"] in made.counters:
                made.problem = f"counter set {counter_set['name']} is there twice"
            made.counters[counter_set["name"]] = {
                counter: amount["value"] for counter, amount in counter_set["counters"].items()
            }
    for slice_ in whole:
        for device in slice_["spec"].get("devices") or ():
            for consumed in device.get("consumesCounters") or ():
                known = made.counters.get(consumed["counterSet"], {})
                if any(counter not in known for counter in consumed["counters"]):
                    made.problem = f"device {device['name']} draws on counters that are not there"
    return made


@dataclass(slots=True)
class Published:
    """What drivers say of all nodes together.

    Attributes:
        devices: device -> as the newest generation that has it says.
        generations: device -> that generation.
        counters: (driver, pool), generation -> (counter set, counter) -> amount text.
    """

    devices: dict[Device, Object] = field(default_factory=dict)
    generations: dict[Device, int] = field(default_factory=dict)
    counters: dict[tuple[PoolName, int], dict[tuple[str, str], str]] = field(default_factory=dict)

    def limit(self, device: Device, counter_set: str, counter: str) -> str | None:
        """How much of a counter there is, as the generation says that the device is from."""
        pool = device[0], device[1]
        found = self.counters.get((pool, self.generations.get(device, -1)), {})
        return found.get((counter_set, counter))


def published(slices: Iterable[Object]) -> Published:
    """Index all slices; old generations too, since some node may still be served from them (2.3)."""
    made = Published()
    for slice_ in sorted(slices, key=_generation):
        pool, generation = pool_name(slice_), _generation(slice_)
        for device in slice_["spec"].get("devices") or ():
            device_id = (*pool, device["name"])
            made.devices[device_id] = device
            made.generations[device_id] = generation
        counters = made.counters.setdefault((pool, generation), {})
        for counter_set in slice_["spec"].get("sharedCounters") or ():
            for counter, amount in counter_set["counters"].items():
                counters[counter_set["name"], counter] = amount["value"]
    return made


def taints_of(device_id: Device, device: Object, rules: Iterable[Object]) -> list[Object]:
    """A device's own taints, and those that DeviceTaintRules give it."""
    driver, pool, called = device_id
    taints = list(device.get("taints") or ())
    for rule in rules:
        wanted = rule["spec"].get("deviceSelector")
        if wanted is None:
            continue
        fits = all(
            wanted.get(field_) in (None, value)
            for field_, value in (("driver", driver), ("pool", pool), ("device", called))
        )
        if fits:
            taints.append(rule["spec"]["taint"])
    return taints


def attributes(driver: str, device: Object) -> Mapping[str, Object]:
    """Qualified name -> value."""
    return {
        attribute if "/" in attribute else f"{driver}/{attribute}": value
        for attribute, value in (device.get("attributes") or {}).items()
    }


def matches(driver: str, device: Object, expression: str) -> bool | None:
    """Whether a CEL selector is true of a device; None: it fails on it."""
    return _matches(driver, orjson.dumps(device), expression)


@lru_cache(maxsize=8192)
def _matches(driver: str, raw: bytes, expression: str) -> bool | None:
    try:
        program = _COMPILER.selector(expression)
        return program.evaluate(prepare_device(driver, _DEVICE.decode(raw)))
    except CelError:
        return None
