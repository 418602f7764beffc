"""An independent reader of the API objects: what must hold whoever scheduled the pods.

It shares nothing with the product: it reads plain JSON as the API server hands it out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from e2e.harness.api import Object
from e2e.harness.objects import FINALIZER

MAX_CONSUMERS = 256
TERMINAL = ("Succeeded", "Failed")

Device = tuple[str, str, str]


@dataclass(frozen=True)
class Finding:
    """Something that must not be: the rule's id in the reliability page, and about what."""

    rule: str
    subject: str
    text: str


def judge(
    pods: Sequence[Object],
    claims: Sequence[Object],
    nodes: Sequence[Object],
    slices: Sequence[Object],
) -> list[Finding]:
    """Returns everything wrong with a state of the cluster.

    Args:
      pods: Those whose bindings are judged.
      claims: All claims of the cluster: a device is given once over all namespaces.
      nodes: All nodes.
      slices: All slices.
    """
    return [
        *exclusive(claims),
        *_claims_in_form(claims),
        *_devices_exist(claims, slices),
        *_bound_pods_usable(pods, claims, nodes),
    ]


def devices_of(claim: Object) -> list[Device]:
    """Returns the devices of a claim's allocation, admin access left out."""
    return [
        (result["driver"], result["pool"], result["device"])
        for result in _results(claim)
        if not result.get("adminAccess")
    ]


def exclusive(claims: Iterable[Object]) -> Iterator[Finding]:
    """S1: a device with an exclusive holder has no other holder, of either kind."""
    holders: dict[Device, list[tuple[str, bool]]] = defaultdict(list)
    for claim in claims:
        for result in _results(claim):
            if not result.get("adminAccess"):
                device = (result["driver"], result["pool"], result["device"])
                holders[device].append((_name(claim), result.get("shareID") is not None))
    for device, held in holders.items():
        if len(held) > 1 and not all(shared for _, shared in held):
            names = ", ".join(name for name, _ in held)
            yield Finding("S1", "/".join(device), f"is held by {names}")


def _claims_in_form(claims: Iterable[Object]) -> Iterator[Finding]:
    for claim in claims:
        allocation = _allocation(claim)
        reserved = claim.get("status", {}).get("reservedFor") or []
        uids = [entry["uid"] for entry in reserved]
        if len(uids) > MAX_CONSUMERS or len(uids) != len(set(uids)):
            yield Finding("S8", _name(claim), f"{len(uids)} consumers, {len(set(uids))} different")
        if allocation is None:
            continue
        finalizers = claim["metadata"].get("finalizers") or []
        if finalizers.count(FINALIZER) != 1:
            yield Finding("S7", _name(claim), f"allocated with finalizers {finalizers}")
        if not allocation.get("allocationTimestamp"):
            yield Finding("timestamp", _name(claim), "allocated without allocationTimestamp")


def _devices_exist(claims: Iterable[Object], slices: Iterable[Object]) -> Iterator[Finding]:
    published = {
        (s["spec"]["driver"], s["spec"]["pool"]["name"], d["name"])
        for s in slices
        for d in s["spec"].get("devices") or []
    }
    for claim in claims:
        for device in devices_of(claim):
            if device not in published:
                yield Finding("S4", _name(claim), f"{'/'.join(device)} is not published")


def _bound_pods_usable(
    pods: Iterable[Object], claims: Iterable[Object], nodes: Iterable[Object]
) -> Iterator[Finding]:
    by_name = {(c["metadata"]["namespace"], c["metadata"]["name"]): c for c in claims}
    node_by_name = {n["metadata"]["name"]: n for n in nodes}
    for pod in pods:
        node_name = pod["spec"].get("nodeName")
        phase = pod.get("status", {}).get("phase")
        if not node_name or phase in TERMINAL:
            continue
        node = node_by_name.get(node_name)
        if node is None:
            yield Finding("S6", _name(pod), f"bound to {node_name}, which does not exist")
            continue
        for entry, claim_name in claim_names(pod).items():
            if claim_name is None:
                yield Finding("S5", _name(pod), f"bound before {entry} had a claim")
                continue
            claim = by_name.get((pod["metadata"]["namespace"], claim_name))
            yield from _usable(pod, claim_name, claim, node)


def _usable(pod: Object, name: str, claim: Object | None, node: Object) -> Iterator[Finding]:
    if claim is None:
        yield Finding("S5", _name(pod), f"bound, but claim {name} does not exist")
        return
    allocation = _allocation(claim)
    if allocation is None:
        yield Finding("S5", _name(pod), f"bound, but claim {name} is not allocated")
        return
    reserved = claim["status"].get("reservedFor") or []
    if pod["metadata"]["uid"] not in {entry["uid"] for entry in reserved}:
        yield Finding("S5", _name(pod), f"bound, but claim {name} is not reserved for it")
    if not selector_matches(allocation.get("nodeSelector"), node):
        yield Finding("S5", _name(pod), f"bound to a node that claim {name} is not for")
    owners = [o for o in claim["metadata"].get("ownerReferences") or [] if o.get("controller")]
    if owners and owners[0]["uid"] != pod["metadata"]["uid"]:
        yield Finding("S5", _name(pod), f"uses claim {name} of another pod")


def claim_names(pod: Object) -> dict[str, str | None]:
    """Returns entry to claim name; None where a template's claim is not there yet.

    An entry whose status says that it needs no claim is left out.
    """
    statuses = {
        s["name"]: s.get("resourceClaimName")
        for s in pod.get("status", {}).get("resourceClaimStatuses") or []
    }
    names: dict[str, str | None] = {}
    for entry in pod["spec"].get("resourceClaims") or []:
        if entry.get("resourceClaimName"):
            names[entry["name"]] = entry["resourceClaimName"]
        elif entry["name"] not in statuses:
            names[entry["name"]] = None
        elif statuses[entry["name"]] is not None:
            names[entry["name"]] = statuses[entry["name"]]
    return names


def selector_matches(selector: Object | None, node: Object) -> bool:
    """Says whether a v1.NodeSelector matches: terms are alternatives, None matches all."""
    if selector is None:
        return True
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_expression(e, labels) for e in term.get("matchExpressions") or [])
        and all(_expression(e, fields) for e in term.get("matchFields") or [])
        for term in selector["nodeSelectorTerms"]
    )


def _expression(expression: Object, values: dict[str, str]) -> bool:
    value = values.get(expression["key"])
    wanted = expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            raise ValueError(f"the judge does not know the operator {operator}")


def _allocation(claim: Object) -> Object | None:
    allocation: Object | None = claim.get("status", {}).get("allocation")
    return allocation


def _results(claim: Object) -> list[Object]:
    allocation = _allocation(claim) or {}
    return allocation.get("devices", {}).get("results") or []


def _name(thing: Object) -> str:
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"
