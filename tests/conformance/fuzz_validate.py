"""Differential fuzzing of API validation: good objects of every kind, one to three things changed in each.

A third of the objects is for a cluster with the alpha features on, and uses them.

Compared are the verdict (accepted or refused) and the set of fields complained about, the latter only as a figure: both
sides may stop at different places of a broken part.
"""

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allocator.features import Features
from scheduler.api.defaults import with_defaults, without_disabled_fields
from scheduler.validation import Severity, validate_claim_status, validate_object
from tests.conformance import objects as o
from tests.conformance.objects import Json
from tests.conformance.record import fingerprint
from tests.conformance.upstream import Oracle

_LABEL = "resource.kubernetes.io/admin-access"
_OPAQUE = {"driver": o.DRIVER, "parameters": {"a": 1}}
_SELECTORS = o.selectors('device.driver == "dra.example.com"')

_DEVICE: Json = {
    "name": "d0",
    "attributes": {
        "n": {"int": 1}, "model": {"string": "x"}, "ok": {"bool": True}, "v": {"version": "1.0.0"},
        "std.example.com/zone": {"string": "z"},
    },
    "capacity": {
        "m": {"value": "8", "requestPolicy": {"default": "2", "validRange": {"min": "2", "step": "2", "max": "8"}}},
        "k": {"value": "4", "requestPolicy": {"default": "1", "validValues": ["1", "2", "3"]}},
    },
    "allowMultipleAllocations": True,
    "taints": [{"key": "example.com/t", "value": "v", "effect": "NoSchedule"}],
    "consumesCounters": [{"counterSet": "cs", "counters": {"m": {"value": "1"}}}],
    "bindsToNode": True,
    "bindingConditions": ["ready"],
    "bindingFailureConditions": ["broken"],
}  # fmt: skip
_BASES: dict[str, Json] = {
    "ResourceSlice": o.slice_("slice", _DEVICE, o.device("d1", cap={"m": "1Gi"}), gen=1),
    "counters": o.slice_("slice", counters=[o.counter_set("cs", m=8, k=4), o.counter_set("cs2", m=1)]),
    "selected": o.slice_("slice", o.device("d0"), node=None, nodeSelector=o.label_selector(
        [o.expression("zone", "In", "a"), o.expression("n", "Gt", "1"), o.expression("x", "Exists")])),
    "per device": o.slice_("slice", o.device("d0", nodeName="n"), o.device("d1", allNodes=True),
                           o.device("d2", nodeSelector=o.label_selector([o.expression("zone", "In", "a")])),
                           node=None, perDeviceNodeSelection=True),
    "ResourceClaim": o.claim(
        "claim",
        o.request("r0", 2, cls="gpu", sel=('device.driver == "dra.example.com"',), cap={"m": 1}, adminAccess=False,
                  tol=[{"key": "t", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 3}]),
        o.first_of("r1", o.alternative("s0", "all", cls="gpu"), o.alternative("s1", 1, cls="gpu", sel=("true",))),
        constraints=[o.match("dra.example.com/n", "r0", "r1/s0"), o.distinct("std.example.com/zone")],
        config=[("all", []), ("some", ["r0", "r1/s1"])],
    ),
    "DeviceClass": o.device_class("class", "true", config=["x"]),
    "DeviceTaintRule": o.taint_rule("rule", o.taint("t", "v"), driver=o.DRIVER, pool="p", device="d"),
}  # fmt: skip
_BASES["DeviceClass"]["spec"]["extendedResourceName"] = "example.com/gpu"
_BASES["ResourceClaimTemplate"] = {
    "metadata": {"name": "template", "namespace": "default"},
    "spec": {"metadata": {"labels": {"a": "b"}}, "spec": _BASES["ResourceClaim"]["spec"]},
}

# Two of these just stay within what the derived attributes of a claim may cost together.
_LOOP = "lists.range({0}).all(a, lists.range({0}).all(b, a > b))"
_DERIVED = [{"name": "dra.example.com/n", "expression": _LOOP.format(260)}]
_EVERY: Json = {
    **_DEVICE,
    "attributes": {**_DEVICE["attributes"], "li": {"ints": [1, 2]}, "ls": {"strings": ["a"]}, "lb": {"bools": [True]},
                   "lv": {"versions": ["1.0.0", "1.2.3-rc.1"]}, "type": {"string": "half"}},
    "capacity": {
        "m": {"value": "8", "requestPolicy": {"default": "500m", "validRange": {"min": "250m", "step": "250m", "max": "4"}}},
        "k": {"value": "4", "requestPolicy": {"default": "1", "validValues": ["500m", "1", "2"]}},
    },
    "consumesCounters": [{"counterSet": "cs", "counters": {"m": {"value": "1"}}, "compatibilityGroups": ["g", "h"]}],
    "nodeAllocatableResources": {
        "cpu": {"mapping": {"capacityKey": "m", "capacityMultiplier": "2"}},
        "memory": {"mapping": {"deviceMultiplier": "1Gi"}, "overhead": {"perPod": "1Mi", "perContainer": "1Ki"}},
    },
}  # fmt: skip
# The same objects with what the alpha features bring.
_ALPHA_BASES: dict[str, Json] = {
    **_BASES,
    "ResourceSlice": o.slice_("slice", _EVERY, o.device("d1", cap={"m": "1Gi"}), gen=1,
                              skipNodeOperations=["NodePrepareResources", "NodeUnprepareResources"],
                              partitionTypeAttribute="dra.example.com/type"),
    "ResourceClaim": o.claim(
        "claim",
        o.request("r0", 2, cls="gpu", derivedAttributes=_DERIVED),
        o.first_of("r1", o.alternative("s0", "all", cls="gpu", derivedAttributes=_DERIVED), o.alternative("s1", cls="gpu")),
        constraints=[o.match("dra.example.com/n", "r0", "r1/s0"), o.distinct("std.example.com/zone")],
    ),
}  # fmt: skip
_ALPHA_BASES["ResourceClaimTemplate"] = {
    **_BASES["ResourceClaimTemplate"],
    "spec": {"spec": _ALPHA_BASES["ResourceClaim"]["spec"]},
}
ALPHAS = (
    "DRAFractionalCapacityRange", "DRAListTypeAttributes", "DRADerivedAttributes", "DRADeviceCompatibilityGroups",
    "DRAOptionalNodeOperations", "DRAPartitionableDevicesType", "DRANodeAllocatableResources",
)  # fmt: skip
# What these depend on.
_NEEDED = ("DRAResourcePoolStatus",)

_TEXTS = ("", "A", "a.b", "a" * 33, "a" * 64, "a" * 254, "a b", "a/b", "a/b/c", "-a", "é", "a_b", "9a", "example.com/x",
          "x.", "EXAMPLE.com", "*", "Exists", "Equal", "In", "Gt", "All", "ExactCount", "NoSchedule", "1.0", "v1.0.0",
          "true", "1", "((", "device.nope", "kubernetes.io/x", "r0", "r1", "r1/s1", "d0", "cs")  # fmt: skip
_ALPHA_TEXTS = ("NodePrepareResources", "NodeUnprepareResources", "dra.example.com/n", "dra.example.com/type", "cpu", "ephemeral-storage",
                "hugepages-2Mi", "[1, 2]", "device.attributes", _LOOP.format(300), _LOOP.format(400),
                'device.attributes["dra.example.com"].li')  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 33, 129, 2**31, 2**63 - 1)
_QUANTITIES = ("0", "1", "2", "3", "8", "9", "-1", "500m", "1Gi", "abc", "", "1e30", "2.5")
_AMOUNTS = ("value", "default", "min", "max", "step", "m", "k", "capacityMultiplier", "deviceMultiplier", "perPod",
            "perContainer")  # fmt: skip
# Fields that may be added to an object that has one of the others.
_EXTRA: dict[str, Json] = {
    "driver": {"allNodes": True, "nodeName": "n", "perDeviceNodeSelection": True, "skipNodeOperations": ["*"],
               "sharedCounters": [o.counter_set("cs", m=1)], "partitionTypeAttribute": "a.b/c", "devices": [o.device("dx")],
               "nodeSelector": o.label_selector([o.expression("zone", "In", "a")])},
    "attributes": {"nodeName": "n", "allNodes": True, "taints": [o.taint("t", "", "None")] * 17,
                   "bindingConditions": ["a", "b", "c", "d", "e"], "bindingFailureConditions": ["ready"]},
    "int": {"string": "x", "bool": False, "version": "1.2.3"},
    "string": {"int": 1, "bool": True},
    "value": {"requestPolicy": {"default": "1"}},
    "deviceClassName": {"adminAccess": True, "count": 3, "allocationMode": "All", "capacity": {"requests": {"a b": "-1"}},
                        "tolerations": [{"key": "t"}] * 17, "derivedAttributes": [{"name": "a.b/c", "expression": "1"}]},
    "matchAttribute": {"distinctAttribute": "a.b/c"},
    "counterSet": {"compatibilityGroups": ["g"]},
    "taint": {"deviceSelector": {"driver": "", "pool": "a b", "device": "A"}},
    "exactly": {"firstAvailable": [o.alternative("s9", cls="x")]},
    "mapping": {"overhead": {"perContainer": "-1"}},
    "capacityKey": {"deviceMultiplier": "1"},
    "deviceMultiplier": {"capacityKey": "m", "capacityMultiplier": "0"},
}  # fmt: skip


RECORD = Path(__file__).parent / "recorded" / "validate-1.37.jsonl"
_RECORDED = 900
_RECORDED_ALPHA = 600


def _nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _nodes(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _nodes(item, (*path, index))


def _change(
    rng: random.Random, root: Json, path: tuple[Any, ...], texts: tuple[str, ...] = _TEXTS
) -> None:
    """Delete, replace, repeat, rename or add something at a path."""
    parent: Any = root
    for step in path[:-1]:
        parent = parent[step]
    last = path[-1]
    value = parent[last]
    kind = rng.random()
    if kind < 0.15:
        del parent[last]
    elif isinstance(value, bool):
        parent[last] = not value
    elif isinstance(value, int):
        parent[last] = rng.choice(_NUMBERS)
    elif isinstance(value, str):
        parent[last] = rng.choice(_QUANTITIES if last in _AMOUNTS else texts)
    elif isinstance(value, list):
        copies = rng.choice((0, 2, 2, 5, 9, 17, 33, 65, 129))
        grown = [copy.deepcopy(item) for _ in range(copies) for item in value][: max(copies, 0)]
        if rng.random() < 0.5:
            for index, item in enumerate(grown):
                if isinstance(item, dict) and "name" in item:
                    item["name"] = f"x{index}"
        parent[last] = grown
    elif isinstance(value, dict):
        _change_object(rng, value, last, texts)


def _change_object(rng: random.Random, value: Json, name: Any, texts: tuple[str, ...]) -> None:
    if name in ("attributes", "capacity", "counters", "labels", "nodeAllocatableResources"):
        key = rng.choice(list(value)) if value else None
        if key is not None and rng.random() < 0.8:
            value[rng.choice(texts)] = copy.deepcopy(value[key])
        else:
            value.update({f"x{i}": copy.deepcopy(value[key]) for i in range(33)} if key else {})
        return
    for marker, extra in _EXTRA.items():
        if marker in value and rng.random() < 0.7:
            added = rng.choice(list(extra))
            value[added] = copy.deepcopy(extra[added])
            return
    value.clear()


_STATUS: Json = {
    "allocation": {
        "devices": {
            "results": [
                o.result("d0", consumed={"m": 1}, share=1, tolerations=[o.toleration()]) | {"request": "r0"},
                o.result("d1", bindingConditions=["ready"], bindingFailureConditions=["broken"]) | {"request": "r1/s0"},
                o.result("d2", adminAccess=True) | {"request": "r0"},
            ],
            "config": [
                {"source": "FromClass", "requests": ["r0"], "opaque": _OPAQUE},
                {"source": "FromClaim", "requests": ["r1/s0"], "opaque": _OPAQUE},
            ],
        },
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [o.expression("metadata.name", "In", "n")]}]},
    },
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u1"}, {"resource": "pods", "name": "q", "uid": "u2"}],
}  # fmt: skip


def _status_question(rng: random.Random, name: str) -> Json:
    """A status update: of a claim without or with an allocation, or of one being deleted."""
    before = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        **copy.deepcopy(_BASES["ResourceClaim"]),
    }
    before["metadata"] |= {"uid": "uid", "resourceVersion": "1"}
    if rng.random() < 0.1:
        before["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
                               "finalizers": ["resource.kubernetes.io/delete-protection"]}  # fmt: skip
    after = copy.deepcopy(before) | {"status": copy.deepcopy(_STATUS)}
    if rng.random() < 0.3:
        before["status"] = copy.deepcopy(_STATUS)
    for _ in range(rng.choice((1, 1, 2))):
        paths = [path for path in _nodes(after["status"], ("status",)) if len(path) > 1]
        if paths:
            _change(rng, after, rng.choice(paths))
    return {
        "id": name,
        "object": after,
        "old": before,
        "subresource": "status",
        "adminNamespace": rng.random() < 0.8,
    }


def _as_beta1(obj: Json) -> None:
    """Write a v1 object in the shape of v1beta1."""
    spec = obj["spec"].get("spec", obj["spec"]) if isinstance(obj.get("spec"), dict) else {}
    for device in _items(spec.get("devices") if obj["kind"] == "ResourceSlice" else None):
        name = device.pop("name", None)
        basic = dict(device)
        device.clear()
        device.update({"basic": basic} | ({} if name is None else {"name": name}))
    claim = spec.get("devices")
    for request in _items(claim.get("requests") if isinstance(claim, dict) else None):
        exactly = request.pop("exactly", None)
        if isinstance(exactly, dict):
            request.update(exactly)
    obj["apiVersion"] = "resource.k8s.io/v1beta1"


def _items(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def question(rng: random.Random, name: str) -> Json:
    """A good object with one to three changes, in one of the versions; or a status update."""
    if rng.random() < 0.15:
        return _status_question(rng, name)
    return _object_question(rng, name, _BASES, _TEXTS)


def alpha_question(rng: random.Random, name: str) -> Json:
    """The same for a cluster with the alpha features on, without status updates."""
    asked = _object_question(rng, name, _ALPHA_BASES, (*_TEXTS, *_ALPHA_TEXTS * 2))
    return {**asked, "gates": [*ALPHAS, *_NEEDED]}


def _object_question(
    rng: random.Random, name: str, bases: dict[str, Json], texts: tuple[str, ...]
) -> Json:
    base = rng.choice(list(bases))
    obj = copy.deepcopy(bases[base])
    kind = base if base[0].isupper() else "ResourceSlice"
    obj = {"apiVersion": "resource.k8s.io/v1", "kind": kind, **obj}
    obj["metadata"].pop("uid", None)
    if rng.random() < 0.03:
        obj["metadata"]["name"] = rng.choice(("", "A", "a_b", "a" * 254, "a.b"))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        paths = [path for path in _nodes(obj.get("spec", {}), ("spec",)) if len(path) > 1]
        if paths:
            _change(rng, obj, rng.choice(paths), texts)
    version = rng.random()
    if version < 0.15 and kind != "DeviceTaintRule":
        _as_beta1(obj)
    elif version < 0.3:
        obj["apiVersion"] = "resource.k8s.io/v1beta2"
    return {"id": name, "object": obj, "adminNamespace": rng.random() < 0.5}


def ours(asked: Json) -> list[tuple[str, str]]:
    """Our errors: path and message."""
    labels = {_LABEL: "true"} if asked.get("adminNamespace") else {}
    namespaces = {"default": labels}
    features = Features.for_version("1.37", dict.fromkeys(ALPHAS, True) if "gates" in asked else {})
    if "old" in asked:
        # The API server drops fields of closed gates and fills in defaults before it compares and checks.
        before, after = (
            with_defaults("ResourceClaim", without_disabled_fields("ResourceClaim", obj, features))
            for obj in (asked["old"], asked["object"])
        )
        changed = validate_claim_status(before, after, namespaces=namespaces)
        return [(item.path, item.message) for item in changed if item.severity is Severity.ERROR]
    found = validate_object(asked["object"], features=features, namespaces=namespaces)
    return [(item.path, item.message) for item in found if item.severity is Severity.ERROR]


def difference(asked: Json, answer: Json) -> str | None:
    """What differs in the verdict, or None."""
    if answer["result"] == "not comparable":
        return None
    refused, mine = answer["result"] in ("invalid", "decode_error"), ours(asked)
    if refused == bool(mine):
        return None
    if refused:
        return f"upstream refuses: {answer['message'][:300]}"
    return f"only we refuse: {mine[:3]}"


def _is_comparable(answer: Json) -> bool:
    """Fields that nobody knows are dropped, with a warning, unless a client asks for strictness."""
    return answer["result"] != "panic" and "unknown field" not in answer.get("message", "")


def recorded_questions() -> list[Json]:
    """The objects of the record, made again from their seeds."""
    default = [
        question(random.Random(f"record/{number}"), f"object-{number:03}")
        for number in range(_RECORDED)
    ]
    alpha = [
        alpha_question(random.Random(f"record/alpha/{number}"), f"alpha-{number:03}")
        for number in range(_RECORDED_ALPHA)
    ]
    return [*default, *alpha]


def load_record() -> dict[str, Json]:
    """Upstream's recorded verdicts by object."""
    return {
        item["id"]: item for item in (json.loads(line) for line in RECORD.read_text().splitlines())
    }


def alpha_oracle() -> Oracle:
    """Upstream with the alpha features on."""
    return Oracle(*(f"{gate}=true" for gate in (*ALPHAS, *_NEEDED)), program="validate")


def write_record(oracle: Oracle, alpha: Oracle) -> None:
    """Ask upstream about the recorded objects; those with unknown fields are recorded as not comparable."""
    lines = []
    for asked in recorded_questions():
        answer = (alpha if "gates" in asked else oracle).ask(asked)
        entry = {"id": asked["id"], "question": fingerprint(asked), "version": answer["version"],
                 "result": answer["result"] if _is_comparable(answer) else "not comparable",
                 "message": answer.get("message", "")[:300]}  # fmt: skip
        lines.append(json.dumps(entry, sort_keys=True))
    RECORD.write_text("\n".join(lines) + "\n")


def check_record(oracle: Oracle, alpha: Oracle) -> int:
    """Ask upstream afresh about the recorded objects; returns the number of other verdicts than recorded, or than ours."""
    recorded, differences = load_record(), 0
    for asked in recorded_questions():
        answer, known = (
            (alpha if "gates" in asked else oracle).ask(asked),
            recorded.get(asked["id"]),
        )
        result = answer["result"] if _is_comparable(answer) else "not comparable"
        problem = None
        if known is None or known["question"] != fingerprint(asked):
            problem = "not recorded (run with --record)"
        elif known["result"] != result:
            problem = f"the record says {known['result']}, upstream now {result}"
        elif result != "not comparable":
            problem = difference(asked, answer)
        if problem is not None:
            print(f"{asked['id']}: {problem}")
            differences += 1
    print(f"recorded objects: {len(recorded)}, differences: {differences}")
    return differences


def run(oracle: Oracle, alpha: Oracle, cases: int, seed: int, keep_going: int) -> bool:
    """Ask `cases` random questions; True when no verdict differs."""
    outcomes: Counter[str] = Counter()
    differences = same_fields = refused = 0
    for number in range(cases):
        rng, name = random.Random(f"{seed}/{number}"), f"object-{seed}-{number}"
        is_alpha = number % 3 == 2
        asked = alpha_question(rng, name) if is_alpha else question(rng, name)
        answer = (alpha if is_alpha else oracle).ask(asked)
        outcomes[answer["result"]] += 1
        if not _is_comparable(answer):
            continue
        problem = difference(asked, answer)
        if problem is not None:
            differences += 1
            print(f"{asked['id']}: {problem}")
            if differences >= keep_going:
                break
        elif answer["result"] == "invalid":
            refused += 1
            fields = {cause["field"] for cause in answer["causes"]}
            same_fields += fields == {path for path, _ in ours(asked)}
    print(f"random objects: {cases}, seed {seed}, {dict(outcomes)}, differences: {differences}; "
          f"same fields named in {same_fields} of {refused} refusals")  # fmt: skip
    return not differences
