"""S4, S11: an allocation answers the question that its claim asks.

Source: docs/design/allocator.md#search, docs/design/allocator.md#result.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.invariants.objects import (
    Device,
    Object,
    device_of,
    hard_taints,
    is_admin,
    is_shared,
    name,
    nanos,
    selector_matches,
    tolerates,
)
from tests.invariants.pools import Pool, PoolName, attributes, gather, matches, taints_of

MAX_RESULTS = 32


@dataclass(frozen=True, slots=True)
class View:
    """What a decision is made from.

    Attributes:
        slices: all.
        classes: by name.
        rules: DeviceTaintRules.
    """

    slices: Sequence[Object]
    classes: Mapping[str, Object]
    rules: Sequence[Object]


@dataclass(frozen=True, slots=True)
class Question:
    """A request, or one of its alternatives.

    Attributes:
        name: as results have it.
        mode: `ExactCount` or `All`.
        count: for ExactCount.
        spec: the request.
    """

    name: str
    mode: str
    count: int
    spec: Object


def questions(claim: Object) -> Iterator[tuple[str, list[Question]]]:
    """Request -> its alternatives, in order; one for a request that has none."""
    for request in claim["spec"].get("devices", {}).get("requests") or ():
        if request.get("firstAvailable"):
            yield (
                request["name"],
                [
                    _question(f"{request['name']}/{alternative['name']}", alternative)
                    for alternative in request["firstAvailable"]
                ],
            )
        else:
            yield request["name"], [_question(request["name"], request.get("exactly") or {})]


def _question(called: str, spec: Object) -> Question:
    mode = spec.get("allocationMode") or "ExactCount"
    return Question(called, mode, int(spec.get("count") or 1), spec)


def selectors(question: Question, view: View) -> list[str] | None:
    """Expressions of class and request; None: there is no such class."""
    found = view.classes.get(question.spec.get("deviceClassName", ""))
    if found is None:
        return None
    every = (*(found["spec"].get("selectors") or ()), *(question.spec.get("selectors") or ()))
    return [(each.get("cel") or {}).get("expression", "") for each in every]


def is_selected(question: Question, device_id: Device, device: Object, view: View) -> bool:
    """Whether class and request want a device."""
    expressions = selectors(question, view)
    if expressions is None:
        return False
    return all(matches(device_id[0], device, each) for each in expressions)


def is_tolerated(question: Question, device_id: Device, device: Object, view: View) -> bool:
    """Whether the request tolerates all hard taints of a device."""
    tolerations = question.spec.get("tolerations") or ()
    return all(
        any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in hard_taints(taints_of(device_id, device, view.rules))
    )


def problems(
    claim: Object, allocated: Object, node: Object, view: View, *, is_whole: bool = True
) -> Iterator[str]:
    """What is wrong with an allocation, if it is for this node; nothing: it is an answer.

    Args:
        claim: what was asked.
        allocated: its allocation.
        node: for which.
        view: of the cluster.
        is_whole: whether the allocation has been made completely (else: only what is there is looked at).
    """
    results: list[Object] = (allocated.get("devices") or {}).get("results") or []
    if len(results) > MAX_RESULTS:
        yield f"{len(results)} results"
    pools = gather(view.slices, node)
    chosen: dict[str, Question] = {}
    by_name: dict[str, Question] = {}
    for request, alternatives in questions(claim):
        for question in alternatives:
            by_name[question.name] = question
        served = [
            question
            for question in alternatives
            if any(result["request"] == question.name for result in results)
        ]
        if len(served) > 1:
            yield f"request {request} is served by {len(served)} alternatives"
        if served:
            chosen[request] = served[0]
            yield from _amount(served[0], results, pools, view)
        elif is_whole and not any(question.mode == "All" for question in alternatives):
            yield f"request {request} got no device"
    for result in results:
        if result["request"] not in by_name:
            yield f"there is no request {result['request']}"
            continue
        yield from _result(by_name[result["request"]], result, pools, view)
    yield from _twice(results)
    yield from constraint_problems(claim, results, pools)
    if is_whole:
        yield from _configuration(claim, allocated, chosen, view)


def _amount(
    question: Question, results: Iterable[Object], pools: Mapping[PoolName, Pool], view: View
) -> Iterator[str]:
    got = [device_of(result) for result in results if result["request"] == question.name]
    if len(set(got)) < len(got):
        yield f"request {question.name} got a device twice"
    if question.mode != "All":
        if len(got) != question.count:
            yield f"request {question.name} got {len(got)} of {question.count} devices"
        return
    broken = sorted("/".join(pool.name) for pool in pools.values() if pool.problem)
    if broken:
        yield f"request {question.name} asks for all devices while pool {broken[0]} is not whole"
    every = {
        (*pool.name, called)
        for pool in pools.values()
        for called, device in pool.devices.items()
        if is_selected(question, (*pool.name, called), device, view)
    }
    if every != set(got):
        yield f"request {question.name} asks for all {len(every)} devices, got {len(set(got))}"


def _result(
    question: Question, result: Object, pools: Mapping[PoolName, Pool], view: View
) -> Iterator[str]:
    device_id = device_of(result)
    called = "/".join(device_id)
    pool = pools.get((device_id[0], device_id[1]))
    if pool is None:
        yield f"{called}: the node has no such pool"
        return
    if pool.problem:
        yield f"{called}: the pool cannot be used: {pool.problem}"
    device = pool.devices.get(device_id[2])
    if device is None:
        yield f"{called}: the node has no such device"
        return
    if not is_selected(question, device_id, device, view):
        yield f"{called}: is not what {question.name} selects"
    if not is_tolerated(question, device_id, device, view):
        yield f"{called}: has a taint that {question.name} does not tolerate"
    if bool(question.spec.get("adminAccess")) != is_admin(result):
        yield f"{called}: admin access is not as {question.name} asks"
    yield from _consumption(question, result, device, called)


def _consumption(question: Question, result: Object, device: Object, called: str) -> Iterator[str]:
    shareable = bool(device.get("allowMultipleAllocations"))
    if shareable != is_shared(result):
        yield f"{called}: shareID does not go with the device"
    asked = (question.spec.get("capacity") or {}).get("requests") or {}
    capacities: Mapping[str, Object] = device.get("capacity") or {}
    for capacity, amount in asked.items():
        if capacity not in capacities:
            yield f"{called}: has no capacity {capacity}"
        elif nanos(amount) > nanos(capacities[capacity]["value"]):
            yield f"{called}: has too little {capacity}"
    consumed = result.get("consumedCapacity") or {}
    if not shareable:
        return
    for capacity, known in capacities.items():
        if capacity not in consumed:
            yield f"{called}: nothing is said of capacity {capacity}"
            continue
        want = consumption(known, asked.get(capacity))
        if want is not None and nanos(consumed[capacity]) != want:
            yield f"{called}: consumes {consumed[capacity]} of {capacity}, asked {asked.get(capacity)}"


def consumption(capacity: Object, asked: str | None) -> int | None:
    """Nano-units that a share consumes of a capacity; None: this judge does not know (fractional steps)."""
    policy: Object = capacity.get("requestPolicy") or {}
    if asked is None:
        return nanos(policy["default"]) if policy.get("default") else nanos(capacity["value"])
    want = nanos(asked)
    if not policy or (policy.get("default") and want == nanos(policy["default"])):
        return want
    if policy.get("validValues"):
        fitting = [nanos(value) for value in policy["validValues"] if nanos(value) >= want]
        return min(fitting) if fitting else None
    return _in_range(policy.get("validRange") or {}, want)


def _in_range(valid: Object, want: int) -> int | None:
    if not valid.get("min"):
        return want
    low = nanos(valid["min"])
    if want <= low or not valid.get("step"):
        return max(want, low)
    step = nanos(valid["step"])
    if step % 10**9 or low % 10**9 or want % 10**9:
        return None
    return low + -(-(want - low) // step) * step


def _twice(results: Iterable[Object]) -> Iterator[str]:
    seen: set[Device] = set()
    for result in results:
        if is_admin(result) or is_shared(result):
            continue
        if device_of(result) in seen:
            yield f"{'/'.join(device_of(result))} is given twice"
        seen.add(device_of(result))


def constraint_problems(
    claim: Object, results: Sequence[Object], pools: Mapping[PoolName, Pool]
) -> Iterator[str]:
    """What is wrong with the devices of a claim together."""
    for constraint in claim["spec"].get("devices", {}).get("constraints") or ():
        requests = constraint.get("requests") or ()
        concerned = [
            result
            for result in results
            if not requests
            or result["request"] in requests
            or result["request"].partition("/")[0] in requests
        ]
        values = [
            _value(
                result, constraint.get("matchAttribute") or constraint["distinctAttribute"], pools
            )
            for result in concerned
        ]
        if constraint.get("matchAttribute"):
            if any(value != values[0] or value is None for value in values):
                yield f"devices do not agree in {constraint['matchAttribute']}"
        elif None in values or len(set(values)) < len(values):
            yield f"devices do not differ in {constraint['distinctAttribute']}"


def _value(result: Object, attribute: str, pools: Mapping[PoolName, Pool]) -> Any:
    pool = pools.get((result["driver"], result["pool"]))
    device = None if pool is None else pool.devices.get(result["device"])
    if device is None:
        return None
    found = attributes(result["driver"], device).get(attribute)
    if found is None:
        return None
    return tuple(sorted((kind, str(value)) for kind, value in found.items()))


def _configuration(
    claim: Object, allocated: Object, chosen: Mapping[str, Question], view: View
) -> Iterator[str]:
    """Source: docs/design/allocator.md#result."""
    by_class: dict[str, list[str]] = {}
    for question in chosen.values():
        by_class.setdefault(question.spec.get("deviceClassName", ""), []).append(question.name)
    want: list[tuple[str, list[str], Any]] = []
    for class_name, names in by_class.items():
        found = view.classes.get(class_name) or {"spec": {}}
        entries = found["spec"].get("config") or ()
        want.extend(("FromClass", names, entry.get("opaque")) for entry in entries)
    served = {question.name for question in chosen.values()}
    for entry in claim["spec"].get("devices", {}).get("config") or ():
        names = list(entry.get("requests") or ())
        if not names or any(each in chosen or each in served for each in names):
            want.append(("FromClaim", names, entry.get("opaque")))
    expected = [
        (source, [] if _covers(names, chosen) else names, opaque) for source, names, opaque in want
    ]
    got = [
        (entry["source"], list(entry.get("requests") or ()), entry.get("opaque"))
        for entry in (allocated.get("devices") or {}).get("config") or ()
    ]
    if got != expected:
        yield "the configuration is not that of classes and claim"


def _covers(names: Sequence[str], chosen: Mapping[str, Question]) -> bool:
    return all(request in names or question.name in names for request, question in chosen.items())


def nodes_for(allocated: Object, nodes: Iterable[Object]) -> list[Object]:
    """Nodes that an allocation may have been made for."""
    return [
        node
        for node in sorted(nodes, key=name)
        if selector_matches(allocated.get("nodeSelector"), node)
    ]
