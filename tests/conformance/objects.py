"""Short builders of API objects as plain `resource.k8s.io/v1` dicts, for questions to both allocators."""

from typing import Any

Json = dict[str, Any]

DRIVER = "dra.example.com"
NODE = "node-1"


def attribute(value: Any) -> Json:
    """An attribute from a Python value; `{"version": ..}` and other dicts are taken as they are."""
    if isinstance(value, dict):
        return value
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    if isinstance(value, str):
        return {"string": value}
    first = value[0]
    kind = "bools" if isinstance(first, bool) else "ints" if isinstance(first, int) else "strings"
    return {kind: list(value)}


def version(text: str) -> Json:
    return {"version": text}


def capacity(value: Any) -> Json:
    return value if isinstance(value, dict) else {"value": str(value)}


def policy(value: str, **rules: Any) -> Json:
    """A capacity with a request policy: default, validValues, or validRange=(min, step, max)."""
    if "validRange" in rules:
        rules["validRange"] = {
            key: text
            for key, text in zip(("min", "step", "max"), rules["validRange"], strict=True)
            if text is not None
        }
    return {"value": value, "requestPolicy": rules}


def device(
    name: str,
    *,
    attrs: Json | None = None,
    cap: Json | None = None,
    shared: bool = False,
    counters: Json | None = None,
    groups: list[str] | None = None,
    taints: list[Json] | None = None,
    **fields: Any,
) -> Json:
    """A device; `counters` is {set: {counter: amount}}, `groups` goes to its first counter set."""
    out: Json = {"name": name, **fields}
    if attrs is not None:
        out["attributes"] = {key: attribute(value) for key, value in attrs.items()}
    if cap is not None:
        out["capacity"] = {key: capacity(value) for key, value in cap.items()}
    if shared:
        out["allowMultipleAllocations"] = True
    if counters is not None:
        out["consumesCounters"] = [
            {"counterSet": name, "counters": _amounts(amounts)}
            for name, amounts in counters.items()
        ]
        if groups is not None:
            out["consumesCounters"][0]["compatibilityGroups"] = groups
    if taints is not None:
        out["taints"] = taints
    return out


def _amounts(amounts: Json) -> Json:
    return {key: {"value": str(value)} for key, value in amounts.items()}


def counter_set(name: str, **amounts: Any) -> Json:
    return {"name": name, "counters": _amounts(amounts)}


def taint(key: str = "t", value: str = "", effect: str = "NoSchedule") -> Json:
    return {"key": key, "value": value, "effect": effect}


def toleration(
    key: str = "t", operator: str = "Exists", value: str = "", effect: str = "", **fields: Any
) -> Json:
    out = {"key": key, "operator": operator, "value": value, "effect": effect, **fields}
    return {name: item for name, item in out.items() if item != ""}


def slice_(
    name: str,
    *devices: Json,
    pool: str = "pool-1",
    driver: str = DRIVER,
    node: str | None = NODE,
    gen: int = 1,
    of: int = 1,
    counters: list[Json] | None = None,
    **spec: Any,
) -> Json:
    """A slice of a pool of `of` slices; `node=None` leaves the node to `spec`."""
    body: Json = {
        "driver": driver,
        "pool": {"name": pool, "generation": gen, "resourceSliceCount": of},
        **spec,
    }
    if node is not None:
        body["nodeName"] = node
    if devices:
        body["devices"] = list(devices)
    if counters is not None:
        body["sharedCounters"] = counters
    return {"metadata": {"name": name}, "spec": body}


def selectors(*expressions: str) -> list[Json]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def opaque(tag: str, driver: str = DRIVER) -> Json:
    return {"driver": driver, "parameters": {"tag": tag}}


def device_class(name: str, *expressions: str, config: list[str] | None = None) -> Json:
    spec: Json = {}
    if expressions:
        spec["selectors"] = selectors(*expressions)
    if config:
        spec["config"] = [{"opaque": opaque(tag)} for tag in config]
    return {"metadata": {"name": name}, "spec": spec}


ANY = device_class("any")


def _wanted(
    cls: str,
    n: int | str,
    sel: tuple[str, ...] | list[str],
    cap: Json | None,
    tol: list[Json] | None,
    derived: dict[str, str] | None,
) -> Json:
    out: Json = {"deviceClassName": cls}
    if n == "all":
        out["allocationMode"] = "All"
    else:
        out |= {"allocationMode": "ExactCount", "count": n}
    if sel:
        out["selectors"] = selectors(*sel)
    if cap is not None:
        out["capacity"] = {"requests": {key: str(value) for key, value in cap.items()}}
    if tol is not None:
        out["tolerations"] = tol
    if derived is not None:
        out["derivedAttributes"] = [
            {"name": name, "expression": expression} for name, expression in derived.items()
        ]
    return out


def request(
    name: str,
    n: int | str = 1,
    *,
    cls: str = "any",
    sel: tuple[str, ...] | list[str] = (),
    cap: Json | None = None,
    tol: list[Json] | None = None,
    derived: dict[str, str] | None = None,
    **fields: Any,
) -> Json:
    """An exact request; `n` is a count or "all"."""
    return {"name": name, "exactly": {**_wanted(cls, n, sel, cap, tol, derived), **fields}}


def alternative(
    name: str,
    n: int | str = 1,
    *,
    cls: str = "any",
    sel: tuple[str, ...] | list[str] = (),
    cap: Json | None = None,
    tol: list[Json] | None = None,
    derived: dict[str, str] | None = None,
    **fields: Any,
) -> Json:
    return {"name": name, **_wanted(cls, n, sel, cap, tol, derived), **fields}


def first_of(name: str, *alternatives: Json) -> Json:
    return {"name": name, "firstAvailable": list(alternatives)}


def match(attr: str, *requests: str) -> Json:
    return {"matchAttribute": attr, **({"requests": list(requests)} if requests else {})}


def distinct(attr: str, *requests: str) -> Json:
    return {"distinctAttribute": attr, **({"requests": list(requests)} if requests else {})}


def claim(
    name: str,
    *requests: Json,
    constraints: list[Json] | None = None,
    config: list[tuple[str, list[str]]] | None = None,
) -> Json:
    """A claim; `config` is a list of (tag, request names)."""
    devices: Json = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = constraints
    if config:
        devices["config"] = [
            {"opaque": opaque(tag), **({"requests": names} if names else {})}
            for tag, names in config
        ]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"devices": devices},
    }


def result(
    name: str,
    *,
    pool: str = "pool-1",
    driver: str = DRIVER,
    share: int | None = None,
    consumed: Json | None = None,
    **fields: Any,
) -> Json:
    """An entry of an allocation; `share` numbers its share id."""
    out: Json = {"request": "r", "driver": driver, "pool": pool, "device": name, **fields}
    if share is not None:
        out["shareID"] = f"00000000-0000-4000-8000-{share:012d}"
    if consumed is not None:
        out["consumedCapacity"] = {key: str(value) for key, value in consumed.items()}
    return out


def holding(name: str, *results: Json) -> Json:
    """Another claim that holds devices."""
    return {
        **claim(name, request("r")),
        "status": {"allocation": {"devices": {"results": list(results)}}},
    }


def taint_rule(name: str, added: Json, **selector: str) -> Json:
    """A DeviceTaintRule; no keyword selects every device."""
    return {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": added}}


def node(name: str = NODE, labels: Json | None = None, features: list[str] | None = None) -> Json:
    out: Json = {"metadata": {"name": name, "labels": labels or {}}}
    if features:
        out["status"] = {"declaredFeatures": features}
    return out


def label_selector(*terms: list[Json]) -> Json:
    """A node selector: each term a list of matchExpressions."""
    return {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
