"""Rules for Pods: defaults, what may change after creation, and binding to a node.

Source: pkg/apis/core/v1/defaults.go, pkg/registry/core/pod/strategy.go and storage/storage.go, admission plugins Priority and
DefaultTolerationSeconds of Kubernetes 1.37.
"""

from collections.abc import Iterable, Iterator

from allocator.features import Features
from scheduler.lab.apiserver.errors import (
    Cause,
    StatusError,
    bad_request,
    conflict,
    duplicate_value,
    forbidden,
    forbidden_value,
    invalid_value,
    required,
)
from scheduler.lab.apiserver.objects import (
    Json,
    is_label,
    is_subdomain,
    metadata,
    name,
    same,
    spec,
    status,
)
from scheduler.lab.apiserver.resources import PODS
from scheduler.lab.apiserver.strategy import Lookup, Strategy

DEFAULT_GRACE_PERIOD_SECONDS = 30

_TOLERATED_SECONDS = 300
_NODE_FAILURES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_COUNTED = "nodeAllocatableResourceClaimStatuses"
# What a status write must not lose when an old client does not know it.
_KEPT_IN_STATUS = (
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    _COUNTED,
    "qosClass",
)

_NODE_ALLOCATABLE = ("cpu", "memory", "ephemeral-storage")


class PodStrategy(Strategy):
    """Pod."""

    has_status = True

    def __init__(self, features: Features) -> None:
        """Keep the gates that apply."""
        self._features = features

    def default(self, obj: Json) -> None:
        """Fill in defaults."""
        held = obj.setdefault("spec", {})
        held.setdefault("restartPolicy", "Always")
        held.setdefault("dnsPolicy", "ClusterFirst")
        held.setdefault("schedulerName", "default-scheduler")
        held.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_PERIOD_SECONDS)
        held.setdefault("securityContext", {})
        held.setdefault("enableServiceLinks", True)
        for container in (*held.get("initContainers", ()), *held.get("containers", ())):
            _default_container(container)

    def prepare_for_create(self, obj: Json, lookup: Lookup) -> None:
        """Clear and fill in what a client may not set."""
        held = spec(obj)
        _set_priority(obj, held, lookup)
        _add_tolerations(held)
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(held)}
        if held.get("schedulingGates"):
            obj["status"]["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastProbeTime": None,
                    "lastTransitionTime": None,
                }
            ]

    def prepare_for_status_update(self, new: Json, old: Json) -> None:
        """Undo changes that are not for the status."""
        super().prepare_for_status_update(new, old)
        meta = new["metadata"]
        meta.pop("deletionTimestamp", None)
        meta.pop("ownerReferences", None)
        if owners := metadata(old).get("ownerReferences"):
            meta["ownerReferences"] = owners
        held = new.setdefault("status", {})
        for field in _KEPT_IN_STATUS:
            if field not in held and field in status(old):
                held[field] = status(old)[field]
        if not self._features.node_allocatable_resources and not status(old).get(_COUNTED):
            held.pop(_COUNTED, None)

    def validate(self, obj: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a new one."""
        held = spec(obj)
        yield from _check_containers(held)
        if held.get("nodeName") and held.get("schedulingGates"):
            yield forbidden_value(
                "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
            )

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change."""
        before, after = spec(old), spec(new)
        gates = {gate["name"] for gate in before.get("schedulingGates") or ()}
        if any(gate["name"] not in gates for gate in after.get("schedulingGates") or ()):
            yield forbidden_value("spec.schedulingGates", "only deletion is allowed")
        kept = after.get("tolerations") or []
        if any(toleration not in kept for toleration in before.get("tolerations") or ()):
            yield forbidden_value(
                "spec.tolerations", "existing toleration can not be modified except its seconds"
            )
        if not same(_fixed(after, gated=bool(gates)), _fixed(before, gated=bool(gates))):
            yield forbidden_value(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,"
                "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
                "`spec.tolerations` (only additions to existing tolerations),"
                "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
            )

    def validate_status_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change of the status."""
        entries = {entry["name"] for entry in spec(new).get("resourceClaims") or ()}
        for index, entry in enumerate(status(new).get("resourceClaimStatuses") or ()):
            path = f"status.resourceClaimStatuses[{index}]"
            if entry.get("name") not in entries:
                yield invalid_value(
                    f"{path}.name",
                    f'"{entry.get("name")}": must match the name of an entry in `spec.resourceClaims`',
                )
            claim = entry.get("resourceClaimName")
            if claim is not None and not is_subdomain(claim):
                yield invalid_value(f"{path}.resourceClaimName", f'"{claim}": not a name')
        yield from _wrong_in_node_allocatable(new)
        nominated = status(new).get("nominatedNodeName")
        if nominated and not is_subdomain(nominated):
            yield invalid_value("status.nominatedNodeName", f'"{nominated}": not a node name')


def _wrong_in_node_allocatable(pod: Json) -> Iterable[Cause]:
    """What is wrong with what claims count in resources of the node."""
    held = status(pod)
    used = {entry.get("resourceClaimName") for entry in spec(pod).get("resourceClaims") or ()}
    used |= {entry.get("resourceClaimName") for entry in held.get("resourceClaimStatuses") or ()}
    for index, entry in enumerate(held.get(_COUNTED) or ()):
        path = f"status.{_COUNTED}[{index}]"
        claim = entry.get("resourceClaimName")
        if claim not in used:
            yield invalid_value(f"{path}.resourceClaimName", f'"{claim}": no claim of the pod')
        for field, amounts in (
            ("mapping", ("quantity",)),
            ("overhead", ("perPod", "perContainer")),
        ):
            for place, counted in enumerate(entry.get(field) or ()):
                name = counted.get("name", "")
                where = f"{path}.{field}[{place}]"
                if name not in _NODE_ALLOCATABLE and not name.startswith("hugepages-"):
                    yield invalid_value(f"{where}.name", f'"{name}": not a resource of nodes')
                if not any(amount in counted for amount in amounts):
                    yield invalid_value(where, f"one of {', '.join(amounts)} is required")


def _default_container(container: Json) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image", "")
    latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    resources = container.setdefault("resources", {})
    limits = resources.get("limits")
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")


def _set_priority(obj: Json, held: Json, lookup: Lookup) -> None:
    class_name = held.get("priorityClassName")
    if class_name:
        found = lookup.priority_class(class_name)
        if found is None:
            why = f"no PriorityClass with name {class_name} was found"
            raise forbidden("", PODS.plural, name(obj), why)
    else:
        found = lookup.default_priority_class()
        if found is not None:
            held["priorityClassName"] = name(found)
    priority = found.get("value", 0) if found else 0
    if held.get("priority", priority) != priority:
        why = "the integer value of priority must not be provided in pod spec; priority admission"
        raise forbidden("", PODS.plural, name(obj), f"{why} controller computed {priority}")
    held["priority"] = priority
    held.setdefault(
        "preemptionPolicy", (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    )


def _add_tolerations(held: Json) -> None:
    tolerations: list[Json] = held.setdefault("tolerations", [])
    for key in _NODE_FAILURES:
        if not any(_tolerates_no_execute(toleration, key) for toleration in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATED_SECONDS,
                }
            )


def _tolerates_no_execute(toleration: Json, key: str) -> bool:
    return (toleration.get("key") or key) == key and toleration.get("effect") in (
        "NoExecute",
        None,
        "",
    )


def qos_class(held: Json) -> str:
    """QoS class from the requests and limits of cpu and memory."""
    containers = [*held.get("initContainers", ()), *held.get("containers", ())]
    guaranteed, best_effort = True, True
    for container in containers:
        resources = container.get("resources") or {}
        for resource in ("cpu", "memory"):
            request = (resources.get("requests") or {}).get(resource)
            limit = (resources.get("limits") or {}).get(resource)
            best_effort = best_effort and request is None and limit is None
            guaranteed = guaranteed and limit is not None and request == limit
    if best_effort:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _check_containers(held: Json) -> Iterator[Cause]:
    if not held.get("containers"):
        yield required("spec.containers")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(held.get(field) or ()):
            path = f"spec.{field}[{index}]"
            called = container.get("name") or ""
            if not called:
                yield required(f"{path}.name")
            elif not is_label(called):
                yield invalid_value(f"{path}.name", f'"{called}": an RFC 1123 label is needed')
            if called in seen:
                yield duplicate_value(f"{path}.name", called)
            seen.add(called)
            if not container.get("image"):
                yield required(f"{path}.image")


def _fixed(held: Json, *, gated: bool) -> Json:
    """The part of a spec that no update may change."""
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if gated:
        free |= {"nodeSelector", "affinity"}
    fixed = {key: value for key, value in held.items() if key not in free}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{**container, "image": ""} for container in fixed[field]]
    return fixed


def bind(pod: Json, binding: Json, now: str) -> None:
    """Bind a pod to the node that the Binding names, in place.

    Args:
        pod: a copy of the stored pod, for the caller to write.
        binding: the Binding object.
        now: for the condition, as RFC 3339.

    Raises:
        StatusError: 409, when the pod is not what the Binding was made for, or not to be bound.
    """
    pod_name, meta = name(pod), metadata(pod)
    if why := _not_bindable(pod, metadata(binding)):
        # Upstream, preconditions are checked by the storage, and the rest by the binding itself.
        plural = PODS.plural if why.startswith("Precondition") else "pods/binding"
        raise conflict("", plural, pod_name, why)
    spec(pod)["nodeName"] = binding["target"]["name"]
    for field in ("annotations", "labels"):
        if added := metadata(binding).get(field):
            meta[field] = {**(meta.get(field) or {}), **added}
    held = pod.setdefault("status", {})
    held.pop("nominatedNodeName", None)
    set_condition(held, {"type": "PodScheduled", "status": "True"}, now)


def _not_bindable(pod: Json, wanted: Json) -> str:
    meta = metadata(pod)
    for field, text in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(field) and wanted[field] != meta[field]:
            return (
                f"Precondition failed: {text} in precondition: {wanted[field]}, "
                f"{text} in object meta: {meta[field]}"
            )
    pod_name = name(pod)
    if meta.get("deletionTimestamp"):
        return f"pod {pod_name} is being deleted, cannot be assigned to a host"
    if node := spec(pod).get("nodeName"):
        return f'pod {pod_name} is already assigned to node "{node}"'
    if spec(pod).get("schedulingGates"):
        return f"pod {pod_name} has non-empty .spec.schedulingGates"
    return ""


def check_binding(binding: Json, pod_name: str) -> StatusError | None:
    """What is wrong with a Binding by itself, if anything."""
    if name(binding) != pod_name:
        return bad_request("name in URL does not match name in Binding object")
    target: Json = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        # No StatusError upstream, so the generic one.
        return StatusError(500, "InternalError", f"target.kind: unsupported: {target['kind']}")
    if not target.get("name"):
        return StatusError(500, "InternalError", "target.name: Required value")
    return None


def set_condition(held: Json, condition: Json, now: str) -> None:
    """Set a condition of a status by type, in place; the time moves only when the value changes."""
    conditions: list[Json] = held.setdefault("conditions", [])
    for index, known in enumerate(conditions):
        if known.get("type") == condition["type"]:
            unchanged = known.get("status") == condition["status"]
            moved = known.get("lastTransitionTime") if unchanged else now
            conditions[index] = {"lastProbeTime": None, "lastTransitionTime": moved, **condition}
            return
    conditions.append({"lastProbeTime": None, "lastTransitionTime": now, **condition})
