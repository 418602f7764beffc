"""Reading API objects that are plain JSON."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from allocator.quantity import Quantity

Object = dict[str, Any]
Device = tuple[str, str, str]

FINALIZER = "resource.kubernetes.io/delete-protection"
EPOCH_ANNOTATION = "dra-scheduler.dev/epoch"
ADMIN_LABEL = "resource.kubernetes.io/admin-access"
TERMINAL = ("Succeeded", "Failed")


def uid(obj: Object) -> str:
    """The UID; the name of an object that was never stored."""
    return str(obj["metadata"].get("uid") or full_name(obj))


def name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def namespace(obj: Object) -> str:
    return str(obj["metadata"].get("namespace", ""))


def full_name(obj: Object) -> str:
    return "/".join(part for part in (namespace(obj), name(obj)) if part)


def is_deleting(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def annotations(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def status(obj: Object) -> Object:
    return obj.get("status") or {}


def allocation(claim: Object) -> Object | None:
    found: Object | None = status(claim).get("allocation")
    return found


def results(claim: Object) -> list[Object]:
    """The results of a claim's allocation."""
    return ((allocation(claim) or {}).get("devices") or {}).get("results") or []


def results_of(allocated: Object) -> list[Object]:
    return (allocated.get("devices") or {}).get("results") or []


def device_of(result: Object) -> Device:
    return (result["driver"], result["pool"], result["device"])


def reserved_for(claim: Object) -> list[Object]:
    return status(claim).get("reservedFor") or []


def is_shared(result: Object) -> bool:
    return result.get("shareID") is not None


def is_admin(result: Object) -> bool:
    return bool(result.get("adminAccess"))


def is_terminal(pod: Object) -> bool:
    return status(pod).get("phase") in TERMINAL


def node_of(pod: Object) -> str:
    return str(pod["spec"].get("nodeName") or "")


def is_live(pod: Object) -> bool:
    """Bound and not ended."""
    return bool(node_of(pod)) and not is_terminal(pod)


@lru_cache(maxsize=4096)
def nanos(text: str) -> int:
    """A quantity in units of 10^-9."""
    return Quantity.parse(text).nanos


def controller(obj: Object) -> Object | None:
    return next(
        (each for each in obj["metadata"].get("ownerReferences") or () if each.get("controller")),
        None,
    )


def claim_names(pod: Object) -> dict[str, str | None]:
    """Entry -> claim name; None where a template's claim is not there yet. Entries that need no claim are left out."""
    made = {
        each["name"]: each.get("resourceClaimName")
        for each in status(pod).get("resourceClaimStatuses") or ()
    }
    names: dict[str, str | None] = {}
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry.get("resourceClaimName"):
            names[entry["name"]] = entry["resourceClaimName"]
        elif entry["name"] not in made:
            names[entry["name"]] = None
        elif made[entry["name"]] is not None:
            names[entry["name"]] = made[entry["name"]]
    return names


def selector_matches(selector: Object | None, node: Object) -> bool:
    """Whether a v1.NodeSelector matches: terms are alternatives, None matches all, an empty term nothing."""
    if selector is None:
        return True
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": name(node)}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_expression(each, labels) for each in term.get("matchExpressions") or ())
        and all(_expression(each, fields) for each in term.get("matchFields") or ())
        for term in selector.get("nodeSelectorTerms") or ()
    )


def _expression(expression: Object, values: Mapping[str, str]) -> bool:
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
        case "Gt" | "Lt" as operator:
            if value is None or not value.lstrip("-").isdecimal():
                return False
            return int(value) > int(wanted[0]) if operator == "Gt" else int(value) < int(wanted[0])
        case operator:
            raise ValueError(f"the judge does not know the operator {operator}")


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration (of a pod or a device request) covers a taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    key = toleration.get("key") or ""
    if key and key != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def hard_taints(taints: Iterable[Object]) -> Iterator[Object]:
    return (taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute"))
