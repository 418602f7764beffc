"""Random allocation questions: small, rich in ties, and reaching every feature and combination.

Each question first draws a profile (which features take part), then objects that use them. Values come from small sets,
so that many devices are equal and the order of the search decides.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from tests.conformance import objects as o
from tests.conformance.gates import DEFAULTS, EVERYTHING, NEWEST, STABLE, changed
from tests.conformance.objects import Json

DRIVERS = ("dra.example.com", "net.example.com")
POOLS = ("pool-1", "pool-10", "pool-2", "a/b")
ZONE = "std.example.com/zone"
_ALPHAS = (
    "DRAListTypeAttributes",
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAOptionalNodeOperations",
)
_SWITCHED = (
    "DRAAdminAccess",
    "DRAPrioritizedList",
    "DRAPartitionableDevices",
    "DRADeviceTaints",
    "DRADeviceTaintRules",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRAResourceClaimDeviceStatus",
)
# Feature -> how often a question uses it at all.
USE = {
    "pools": 0.45, "drivers": 0.3, "slices": 0.35, "other_nodes": 0.3, "all_nodes": 0.15,
    "node_selector": 0.15, "per_device": 0.12, "generations": 0.12, "counters": 0.35, "groups": 0.15,
    "shared": 0.35, "policies": 0.3, "taints": 0.25, "taint_rules": 0.12, "selectors": 0.4,
    "class_selectors": 0.3, "match": 0.3, "distinct": 0.15, "lists": 0.15, "derived": 0.14,
    "alternatives": 0.3, "all": 0.2, "admin": 0.12, "claims": 0.4, "in_use": 0.45, "binding": 0.12,
    "binds_to_node": 0.06, "skip_operations": 0.14, "config": 0.2, "limits": 0.05, "missing": 0.05,
    "capacity_filter": 0.12, "foreign_gate": 0.06,
    "deep": 0.1,
}  # fmt: skip
# Things that are wrong on purpose.
FAULTS = {
    "incomplete": 0.05, "invalid": 0.06, "bad_cel": 0.015, "no_class": 0.01, "bad_selector": 0.01,
    "bad_mode": 0.01, "empty_constraint": 0.01, "two_terms": 0.01, "negative": 0.02, "odd_amount": 0.03,
}  # fmt: skip


@dataclass
class _Draw:
    """What one question is made from."""

    rng: random.Random
    uses: set[str]
    features: dict[str, bool]
    single_pool: bool
    names: list[str] = field(default_factory=list)
    devices: list[tuple[str, str, Json]] = field(default_factory=list)  # driver, pool, device

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, items: Any) -> Any:
        return self.rng.choice(items)

    def has(self, *names: str) -> bool:
        return any(name in self.uses for name in names)


def _gates(rng: random.Random) -> dict[str, bool]:
    """A version's defaults, everything, a random mix, or one gate off."""
    kind = rng.random()
    if kind < 0.38:
        return NEWEST
    if kind < 0.44:
        return DEFAULTS[rng.choice(("1.34", "1.35", "1.36"))]
    if kind < 0.5:
        return STABLE
    if kind < 0.65:
        return EVERYTHING
    if kind < 0.88:
        mixed = changed(NEWEST, on=[gate for gate in _ALPHAS if rng.random() < 0.4])
        return changed(mixed, on=["DRAFractionalCapacityRange"] if rng.random() < 0.4 else [])
    return changed(rng.choice((NEWEST, EVERYTHING)), off=[rng.choice(_SWITCHED)])


def _is_stable(features: dict[str, bool]) -> bool:
    binding = features["DRADeviceBindingConditions"] and features["DRAResourceClaimDeviceStatus"]
    newer = ("DRAConsumableCapacity", "DRAFractionalCapacityRange", *_ALPHAS)
    return not binding and not any(features[gate] for gate in newer)


_NEEDS = {
    "counters": "DRAPartitionableDevices", "per_device": "DRAPartitionableDevices", "groups": "DRADeviceCompatibilityGroups",
    "shared": "DRAConsumableCapacity", "policies": "DRAConsumableCapacity", "capacity_filter": "DRAConsumableCapacity",
    "lists": "DRAListTypeAttributes", "derived": "DRADerivedAttributes", "alternatives": "DRAPrioritizedList",
    "admin": "DRAAdminAccess", "binding": "DRADeviceBindingConditions", "skip_operations": "DRAOptionalNodeOperations",
    "taints": "DRADeviceTaints", "distinct": "DRAConsumableCapacity",
}  # fmt: skip


def _profile(rng: random.Random, features: dict[str, bool]) -> set[str]:
    uses = {name for name, share in USE.items() if rng.random() < share}
    uses |= {name for name, share in FAULTS.items() if rng.random() < share}
    if "foreign_gate" not in uses:  # mostly, a cluster has only what its gates let in
        uses -= {name for name, gate in _NEEDS.items() if not features[gate]}
    if "groups" in uses:
        uses.add("counters")
    if "policies" in uses:
        uses.add("shared")
    return uses


def question(rng: random.Random, name: str) -> Json:
    """One random question."""
    features = _gates(rng)
    # The stable allocator visits pools in random order: with one pool its results can be compared.
    single_pool = _is_stable(features) and rng.random() < 0.6
    draw = _Draw(rng, _profile(rng, features), features, single_pool=single_pool)
    slices = _slices(draw)
    classes = _classes(draw)
    labels = {"zone": draw.pick(("a", "b")), "n": draw.pick(("1", "5"))}
    declared = ["DRAOptionalNodeOperations"] if draw.chance(0.6) else None
    out: Json = {
        "id": name,
        "features": features,
        "node": o.node(labels=labels, features=declared),
        "slices": slices,
        "classes": classes,
        "claims": _claims(draw, classes),
    }
    if draw.has("in_use"):
        out["allocated"] = _holders(draw)
    if draw.has("taint_rules"):
        out["taintRules"] = [_rule(draw, i) for i in range(draw.pick((1, 1, 2)))]
    return out


# Slices -----------------------------------------------------------------------------------------


def _slices(draw: _Draw) -> list[Json]:
    deep = draw.has("deep")  # one pool with many devices and requests for several: long ways back
    count = 1 if draw.single_pool or deep or not draw.has("pools") else draw.pick((2, 2, 3))
    drivers = DRIVERS if draw.has("drivers") and not draw.single_pool else DRIVERS[:1]
    pools = draw.rng.sample([(driver, pool) for driver in drivers for pool in POOLS], count)
    broken = draw.pick(pools)
    slices: list[Json] = []
    for driver, pool in pools:
        slices += _pool(
            draw, driver, pool, (driver, pool) == broken, 9 // count + (5 if deep else 1)
        )
    draw.rng.shuffle(slices)
    return slices


def _pool(draw: _Draw, driver: str, pool: str, broken: bool, room: int) -> list[Json]:
    """One pool: device slices of this node, of others, counters, old generations, faults."""
    sets = _counter_sets(draw) if draw.has("counters") and draw.chance(0.8) else []
    parts: list[Json] = []
    for _ in range(draw.pick((1, 2, 2)) if draw.has("slices") else 1):
        devices = [_device(draw, driver, pool, sets) for _ in range(draw.rng.randint(1, room))]
        parts.append({"devices": devices, **_here(draw, devices)})
    if draw.has("other_nodes") and draw.chance(0.7):
        devices = [_device(draw, driver, pool, sets) for _ in range(draw.pick((1, 2)))]
        parts.append({"devices": devices, "nodeName": "node-2"})
    if sets:
        where = draw.pick(({"nodeName": o.NODE}, {"nodeName": "node-2"}, {"allNodes": True}))
        if len(sets) == 2 and draw.chance(0.3):
            parts.append({"sharedCounters": [sets[1]], **where})
            parts.append({"sharedCounters": [sets[0]], **where})
        else:
            parts.append({"sharedCounters": sets, **where})
    announced = len(parts)
    if broken and draw.has("incomplete"):
        announced += draw.pick((1, 1, -1)) or 1
    if broken and draw.has("invalid"):
        _invalidate(draw, parts)
        announced = len(parts)
    if not draw.has("generations"):
        return [_slice(draw, driver, pool, part, 1, announced) for part in parts]
    out = [_slice(draw, driver, pool, part, 2, announced) for part in parts]
    old = [_device(draw, driver, pool, [])]
    other = draw.pick(({"nodeName": o.NODE}, {"nodeName": "node-2"}))
    generation = draw.pick((1, 1, 1, 3))
    if generation == 3 and draw.chance(0.5):
        other = {"nodeName": "node-2"}
    out.append(
        _slice(draw, driver, pool, {"devices": old, **other}, generation, draw.pick((1, 1, 2)))
    )
    return out


def _slice(
    draw: _Draw, driver: str, pool: str, part: Json, generation: int, announced: int
) -> Json:
    name = f"s{draw.rng.randrange(1000):03}-{len(draw.names)}"
    draw.names.append(name)
    spec: Json = {
        "driver": driver,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": max(announced, 1)},
        **part,
    }
    if draw.has("skip_operations") and "devices" in part and draw.chance(0.5):
        spec["skipNodeOperations"] = draw.pick((["*"], ["NodeUnprepareResources"]))
    return {"metadata": {"name": name}, "spec": spec}


def _here(draw: _Draw, devices: list[Json]) -> Json:
    """Node selection of a slice that is (mostly) for this node."""
    if draw.has("per_device") and draw.chance(0.6):
        for device in devices:
            where = (
                {"nodeName": o.NODE}, {"nodeName": o.NODE}, {"nodeName": "node-2"}, {"allNodes": True},
                {"nodeSelector": _node_selector(draw)},
            )  # fmt: skip
            device.update(draw.pick(where))
        return {"perDeviceNodeSelection": True}
    if draw.has("node_selector") and draw.chance(0.7):
        return {"nodeSelector": _node_selector(draw)}
    if draw.has("all_nodes") and draw.chance(0.7):
        return {"allNodes": True}
    return {"nodeName": o.NODE}


def _node_selector(draw: _Draw) -> Json:
    requirements = (
        o.expression("zone", "In", "a"), o.expression("zone", "In", "b", "a"), o.expression("zone", "In", "a", "b"),
        o.expression("zone", "NotIn", "c"), o.expression("gone", "DoesNotExist"), o.expression("n", "Gt", "0"),
        o.expression("n", "Lt", "4"), o.expression("zone", "Exists"),
    )  # fmt: skip
    if draw.has("bad_selector") and draw.chance(0.5):
        return o.label_selector(
            [draw.pick((o.expression("zone", "Is", "a"), o.expression("n", "Gt", "x")))]
        )
    if draw.has("two_terms"):
        return o.label_selector([draw.pick(requirements)], [draw.pick(requirements)])
    if draw.chance(0.15):
        field_ = o.expression(
            "metadata.name", draw.pick(("In", "NotIn")), draw.pick((o.NODE, "node-2"))
        )
        return {"nodeSelectorTerms": [{"matchFields": [field_]}]}
    return o.label_selector(draw.rng.sample(requirements, draw.pick((1, 1, 2))))


def _invalidate(draw: _Draw, parts: list[Json]) -> None:
    kind = draw.rng.randrange(4)
    own = [part for part in parts if "devices" in part]
    if kind == 0:
        part = draw.pick(own)
        part["devices"].append(draw.pick(part["devices"]))
    elif kind == 1:
        draw.pick(own)["devices"][0]["consumesCounters"] = [
            {"counterSet": "nope", "counters": {"m": {"value": "1"}}}
        ]
    elif kind == 2:
        part = draw.pick(own)
        parts.append({**part, "devices": list(part["devices"])})
    else:
        where = draw.pick(({"nodeName": o.NODE}, {"nodeName": "node-2"}))
        parts.append({"sharedCounters": [o.counter_set("cs1", m=1)], **where})
        parts.append({"sharedCounters": [o.counter_set("cs1", m=1)], **where})


def _counter_sets(draw: _Draw) -> list[Json]:
    return [
        o.counter_set(
            name,
            m=draw.pick((2, 3, 4, 8)),
            **({"k": draw.pick((1, 2))} if draw.chance(0.3) else {}),
        )
        for name in draw.pick((("cs1",), ("cs1",), ("cs1", "cs2")))
    ]


def _device(draw: _Draw, driver: str, pool: str, sets: list[Json]) -> Json:
    name = f"{draw.pick('abxyz')}{len(draw.devices)}"
    out: Json = {"name": name}
    attributes = _attributes(draw)
    if attributes:
        out["attributes"] = attributes
    if draw.has("shared", "capacity_filter"):
        out["capacity"] = _capacities(draw)
        if draw.has("shared") and draw.chance(0.75):
            out["allowMultipleAllocations"] = True
            if draw.chance(0.1):
                del out["capacity"]
    if sets and draw.chance(0.8):
        out["consumesCounters"] = _consumption(draw, sets)
    if draw.has("taints") and draw.chance(0.35):
        out["taints"] = [_taint(draw) for _ in range(draw.pick((1, 1, 2)))]
    if draw.has("binding") and draw.chance(0.4):
        out["bindingConditions"] = draw.pick((["ready"], ["ready"], ["ready", "set"], []))
        out["bindingFailureConditions"] = ["broken"]
    if draw.has("binds_to_node") and draw.chance(0.5):
        out["bindsToNode"] = draw.pick((True, True, False))
    draw.devices.append((driver, pool, out))
    return out


def _attributes(draw: _Draw) -> Json:
    values: Json = {
        "n": o.attribute(draw.pick((0, 1, 2))),
        "model": o.attribute(draw.pick(("a", "b"))),
        "ok": o.attribute(draw.chance(0.7)),
        "v": o.version(draw.pick(("1.0.0", "1.1.0", "1.0.0+b"))),
        ZONE: o.attribute(draw.pick(("z1", "z1", "z2"))),
    }
    if draw.has("lists"):
        values["l"] = draw.pick(
            ({"ints": [1, 2]}, {"ints": [2]}, {"ints": [2, 3]}, {"int": 1}, {"strings": ["a", "b"]},
             {"ints": [1, 3]}, {"versions": ["1.0.0"]}, {"bools": [True, False]}, {"ints": []})
        )  # fmt: skip
        if draw.chance(0.4):
            values[ZONE] = draw.pick(({"strings": ["z1", "z2"]}, {"strings": ["z2"]}))
    if draw.has("missing"):
        for key in list(values):
            if draw.chance(0.2):
                del values[key]
        if draw.chance(0.1):
            values["w"] = draw.pick(({}, o.version("1.2"), {"string": "a", "int": 1}))
    return values


_AMOUNTS = ("1", "2", "3", "4", "8", "2000m", "1k", "1Ki")


def _capacities(draw: _Draw) -> Json:
    out: Json = {"m": _capacity(draw)}
    if draw.chance(0.3):
        out["k"] = _capacity(draw)
    if draw.chance(0.1):
        out[draw.pick(("dra.example.com/q", "std.example.com/q"))] = _capacity(draw)
    return out


def _capacity(draw: _Draw) -> Json:
    odd = draw.has("odd_amount")
    value = draw.pick(("4", "4", "8", "2", "1Ki", *(("1500m", "100m", "10E", "0") if odd else ())))
    if not draw.has("policies") or draw.chance(0.3):
        return {"value": value}
    amounts = (
        ("500m", "1", "200m", "100m", "1100m", "0")
        if odd or draw.chance(0.3)
        else ("1", "2", "3", "4")
    )
    rules: Json = {}
    if draw.chance(0.85):
        rules["default"] = draw.pick(amounts)
    kind = draw.rng.random()
    if kind < 0.55:
        limits: Json = {"min": draw.pick(amounts)}
        if draw.chance(0.6):
            limits["max"] = draw.pick(("2", "3", "4", "8"))
        if draw.chance(0.6):
            limits["step"] = draw.pick(amounts if draw.chance(0.3) else ("1", "2"))
            if limits["step"] == "0":
                limits["step"] = "1"
        rules["validRange"] = limits
    elif kind < 0.85:
        rules["validValues"] = sorted(draw.rng.sample(("1", "2", "3", "4"), draw.pick((1, 2, 3))))
    return {"value": value, "requestPolicy": rules}


def _consumption(draw: _Draw, sets: list[Json]) -> list[Json]:
    used = sets if draw.chance(0.3) else [draw.pick(sets)]
    out = []
    for counters in used:
        names = [name for name in counters["counters"] if draw.chance(0.8)] or ["m"]
        entry: Json = {
            "counterSet": counters["name"],
            "counters": {name: {"value": draw.pick(("1", "1", "2", "4"))} for name in names},
        }
        if draw.has("groups") and draw.chance(0.7):
            entry["compatibilityGroups"] = draw.pick((["x"], ["x"], ["y"], ["x", "y"], []))
        out.append(entry)
    return out


def _taint(draw: _Draw) -> Json:
    effect = draw.pick(("NoSchedule", "NoSchedule", "NoExecute", "NoExecute", "None", "Later"))
    return o.taint(draw.pick(("t", "t", "u")), draw.pick(("", "", "v")), effect)


def _rule(draw: _Draw, index: int) -> Json:
    driver, pool, device = draw.pick(draw.devices)
    selector = draw.pick(
        ({"device": device["name"]}, {"device": device["name"], "pool": pool}, {"driver": driver, "pool": pool},
         {"pool": pool}, {"driver": driver}, {})
    )  # fmt: skip
    rule = o.taint_rule(f"rule-{index}", _taint(draw), **selector)
    if draw.chance(0.05):
        del rule["spec"]["deviceSelector"]
    return rule


# Claims -----------------------------------------------------------------------------------------


def _expressions(driver: str) -> tuple[str, ...]:
    attrs = f'device.attributes["{driver}"]'
    return (
        f"{attrs}.n >= 1", f"{attrs}.n == 1", f"{attrs}.n != 2", f'{attrs}.model == "a"', f'{attrs}.model in ["a", "c"]',
        f"{attrs}.ok", f'{attrs}.v.isGreaterThan(semver("1.0.0"))', f"{attrs}.?n.orValue(0) < 2",
        f'"n" in {attrs} && {attrs}.n < 2', f'device.driver == "{driver}"',
        'device.attributes["std.example.com"].zone == "z1"', "device.allowMultipleAllocations", "true",
        f'device.capacity["{driver}"].?m.hasValue() && device.capacity["{driver}"].m.compareTo(quantity("4")) >= 0',
    )  # fmt: skip


_BAD = ("(((", "1", 'device.attributes["dra.example.com"].v == "1.0.0"', "device.nope", 'device.attributes["nope"].x == 1',
        'device.attributes["dra.example.com"].model')  # fmt: skip


def _classes(draw: _Draw) -> list[Json]:
    out = [
        o.device_class("any", config=["any"] if draw.has("config") and draw.chance(0.6) else None)
    ]
    for index, driver in enumerate(DRIVERS):
        extra = (
            [draw.pick(_expressions(driver))]
            if draw.has("class_selectors") and draw.chance(0.6)
            else []
        )
        config = [f"c{index}", f"c{index}x"][: draw.pick((1, 2))] if draw.has("config") else None
        out.append(
            o.device_class(f"d{index}", f'device.driver == "{driver}"', *extra, config=config)
        )
    return out


def _wanted(draw: _Draw, *, alternative: bool) -> Json:
    """The common part of a request and an alternative."""
    index = 0 if not draw.has("drivers") or draw.chance(0.6) else 1
    cls = f"d{index}" if draw.chance(0.75) else "any"
    out: Json = {"deviceClassName": cls}
    if draw.has("all") and draw.chance(0.5):
        out["allocationMode"] = "All"
    else:
        counts: tuple[int, ...] = (1, 1, 1, 1, 2, 2, 3) if not alternative else (1, 1, 2, 2, 3, 4)
        if draw.has("deep"):
            counts = (2, 2, 3, 3, 4)
        out |= {"allocationMode": "ExactCount", "count": draw.pick(counts)}
        if draw.has("limits") and draw.chance(0.5):
            out["count"] = draw.pick((0, 16, 31, 32, 33, 2**31))
    if draw.has("bad_mode") and draw.chance(0.3):
        out["allocationMode"] = draw.pick(("Some", ""))
    if draw.has("no_class") and draw.chance(0.3):
        out["deviceClassName"] = draw.pick(("nope", ""))
    if draw.has("selectors") and draw.chance(0.6):
        # An expression about another driver's attributes fails at run time: keep that rare.
        about = DRIVERS[index] if cls != "any" or draw.chance(0.1) else None
        texts = (
            _expressions(about)
            if about
            else ("true", 'device.attributes["std.example.com"].?zone.orValue("") == "z1"')
        )
        out["selectors"] = o.selectors(*draw.rng.sample(texts, draw.pick((1, 1, 2))))
    if draw.has("bad_cel") and draw.chance(0.5):
        out["selectors"] = o.selectors(draw.pick(_BAD))
    _decorate(draw, out, alternative=alternative)
    return out


def _decorate(draw: _Draw, out: Json, *, alternative: bool) -> None:
    if draw.has("shared", "capacity_filter") and draw.chance(0.6):
        wanted = {"m": draw.pick(("1", "1", "2", "3", "0"))}
        if draw.has("odd_amount"):
            wanted["m"] = draw.pick(("250m", "1500m", "100500u", "10E", "1"))
        if draw.has("negative") and draw.chance(0.7):
            wanted["m"] = "-1"
        if draw.chance(0.15):
            wanted["k"] = "1"
        if draw.chance(0.05):
            wanted = {}
        out["capacity"] = {"requests": wanted}
    if draw.has("taints", "taint_rules") and draw.chance(0.5):
        out["tolerations"] = [_toleration(draw) for _ in range(draw.pick((1, 2)))]
    if draw.has("admin") and not alternative and draw.chance(0.5):
        out["adminAccess"] = draw.pick((True, True, True, False))
    if draw.has("derived") and draw.chance(0.6):
        attrs = f'device.attributes["{DRIVERS[0]}"]'
        expression = draw.pick(
            (f"{attrs}.n % 2", f"{attrs}.?n.orValue(0)", f"{attrs}.n > 0", f"{attrs}.model", f"[{attrs}.n, 7]",
             f"{attrs}.v", f"{attrs}.nope" if draw.chance(0.2) else "device.driver")
        )  # fmt: skip
        out["derivedAttributes"] = [
            {
                "name": draw.pick((f"{DRIVERS[0]}/n", ZONE, "x.example.com/d")),
                "expression": expression,
            }
        ]


def _toleration(draw: _Draw) -> Json:
    out = o.toleration(
        draw.pick(("t", "u", "")),
        draw.pick(("Exists", "Exists", "Equal", "")),
        "",
        draw.pick(("", "", "NoSchedule", "NoExecute")),
    )
    if out.get("operator") == "Equal" and draw.chance(0.5):
        out["value"] = "v"
    if draw.chance(0.15):
        out["tolerationSeconds"] = draw.pick((0, 30))
    return out


def _request(draw: _Draw, name: str) -> Json:
    if draw.has("alternatives") and draw.chance(0.6):
        subs = [
            {"name": f"s{i}", **_wanted(draw, alternative=True)}
            for i in range(draw.pick((1, 2, 2, 3)))
        ]
        return {"name": name, "firstAvailable": subs}
    return {"name": name, "exactly": _wanted(draw, alternative=False)}


def _claims(draw: _Draw, classes: list[Json]) -> list[Json]:
    count = draw.pick((2, 2, 3)) if draw.has("claims") else 1
    out = []
    for index in range(count):
        requests = [
            _request(draw, f"r{i}")
            for i in range(draw.pick((1, 1, 2, 2, 3) if count == 1 else (1, 1, 2)))
        ]
        names = [request["name"] for request in requests]
        names += [
            f"{r['name']}/{sub['name']}" for r in requests for sub in r.get("firstAvailable", ())
        ]
        out.append(
            o.claim(
                f"c{index}",
                *requests,
                constraints=_constraints(draw, names),
                config=_config(draw, names),
            )
        )
    if draw.chance(0.01):
        out.append(o.claim("empty"))
    return out


def _subset(draw: _Draw, names: list[str]) -> list[str]:
    if draw.chance(0.5):
        return []
    return draw.rng.sample(names, draw.rng.randint(1, min(3, len(names))))


def _constraints(draw: _Draw, names: list[str]) -> list[Json]:
    out = []
    attributes = [f"{DRIVERS[0]}/n", f"{DRIVERS[0]}/model", f"{DRIVERS[0]}/v", ZONE, ZONE]
    if draw.has("lists"):
        attributes += [f"{DRIVERS[0]}/l"] * 3
    if draw.has("derived"):
        attributes += ["x.example.com/d"]
    if draw.has("missing"):
        attributes += [f"{DRIVERS[0]}/w"]
    if draw.has("match", "derived") and draw.chance(0.8):
        out += [
            o.match(draw.pick(attributes), *_subset(draw, names))
            for _ in range(draw.pick((1, 1, 2)))
        ]
    if draw.has("distinct") and draw.chance(0.8):
        out.append(o.distinct(draw.pick(attributes), *_subset(draw, names)))
    if draw.has("empty_constraint") and draw.chance(0.5):
        out.append({})
    draw.rng.shuffle(out)
    return out


def _config(draw: _Draw, names: list[str]) -> list[tuple[str, list[str]]]:
    if not draw.has("config"):
        return []
    return [(f"k{i}", _subset(draw, names)) for i in range(draw.pick((1, 2, 3)))]


# In use -----------------------------------------------------------------------------------------


def _holders(draw: _Draw) -> list[Json]:
    """Claims of other pods: exclusive devices, shares, admin access, devices that are gone."""
    out = []
    for index in range(draw.pick((1, 1, 2, 3))):
        results = []
        for number in range(draw.pick((1, 1, 2))):
            driver, pool, device = draw.pick(draw.devices)
            if (device.get("allowMultipleAllocations") and draw.chance(0.85)) or draw.chance(0.03):
                results.append(_share(draw, driver, pool, device, index * 10 + number))
            else:
                extra: Json = (
                    {"adminAccess": True} if draw.has("admin") and draw.chance(0.3) else {}
                )
                name = device["name"] if draw.chance(0.95) else "gone"
                results.append(o.result(name, driver=driver, pool=pool, **extra))
        out.append(o.holding(f"h{index}", *results))
    return out


def _share(draw: _Draw, driver: str, pool: str, device: Json, number: int) -> Json:
    consumed = None
    if device.get("capacity") and draw.chance(0.9):
        consumed = {name: draw.pick(("1", "1", "2", "500m")) for name in device["capacity"]}
    return o.result(device["name"], driver=driver, pool=pool, share=number, consumed=consumed)


# What a question holds --------------------------------------------------------------------------


def all_tags() -> tuple[str, ...]:
    """Every tag there is: what never occurs has to be seen in the table too."""
    return (*_WORDS, *_SHAPES)


def tags(question_: Json) -> set[str]:
    """Which features a question really uses; for the table of a run."""
    text = str(question_)
    found = {name for name, word in _WORDS.items() if f"'{word}'" in text}
    if "'selectors'" in str(question_["claims"]):
        found.add("request selectors")
    specs = [entry["spec"] for entry in question_["slices"]]
    if len({(spec["driver"], spec["pool"]["name"]) for spec in specs}) > 1:
        found.add("several pools")
    if len({spec["driver"] for spec in specs}) > 1:
        found.add("several drivers")
    if len({spec["pool"]["generation"] for spec in specs}) > 1:
        found.add("stale generations")
    if any(spec.get("nodeName") == "node-2" for spec in specs):
        found.add("slices of other nodes")
    if len(question_["claims"]) > 1:
        found.add("several claims")
    for claim in question_["claims"]:
        requests = claim["spec"]["devices"]["requests"]
        if len(requests) > 1:
            found.add("several requests")
            if claim["spec"]["devices"].get("constraints"):
                found.add("constraints over several requests")
        for request in requests:
            if any(sub["allocationMode"] == "All" for sub in request.get("firstAvailable", ())):
                found.add("firstAvailable with All")
    return found


_SHAPES = (
    "request selectors", "several pools", "several drivers", "stale generations", "slices of other nodes", "several claims",
    "several requests", "constraints over several requests", "firstAvailable with All",
)  # fmt: skip
_WORDS = {
    "All": "All", "admin access": "adminAccess", "firstAvailable": "firstAvailable",
    "matchAttribute": "matchAttribute", "distinctAttribute": "distinctAttribute", "counters": "consumesCounters",
    "compatibility groups": "compatibilityGroups", "shareable devices": "allowMultipleAllocations",
    "request policies": "requestPolicy", "capacity requests": "capacity", "taints": "taints", "tolerations": "tolerations",
    "taint rules": "taintRules", "derived attributes": "derivedAttributes", "binding conditions": "bindingConditions",
    "bindsToNode": "bindsToNode", "skipNodeOperations": "skipNodeOperations", "per-device nodes": "perDeviceNodeSelection",
    "node selectors": "nodeSelector", "all nodes": "allNodes", "configuration": "config", "devices in use": "allocated",
    "shares in use": "shareID", "list attributes": "ints",
}  # fmt: skip
