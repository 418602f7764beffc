"""Rules for the kinds that are neither pods nor claims, and the table of all strategies."""

from collections.abc import Callable, Iterable, Mapping

from allocator.features import Features
from scheduler.lab.apiserver.claims import (
    ClaimStrategy,
    ClassStrategy,
    SliceStrategy,
    TaintRuleStrategy,
    TemplateStrategy,
)
from scheduler.lab.apiserver.errors import (
    Cause,
    forbidden_value,
    invalid_value,
    required,
)
from scheduler.lab.apiserver.objects import Json, metadata, name, namespace, replace, same, spec
from scheduler.lab.apiserver.pods import PodStrategy
from scheduler.lab.apiserver.resources import (
    CLAIMS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    EVENTS,
    GROUP_EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
)
from scheduler.lab.apiserver.strategy import Lookup, StatusStrategy, Strategy

NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
NAME_LABEL = "kubernetes.io/metadata.name"

# A user's PriorityClass may not be above this; system classes are.
HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"

_EVENT_TYPES = ("Normal", "Warning")
_SHORTEST_SERIES = 2
# Field -> most characters; all but the message are required.
_EVENT_LIMITS: Mapping[str, int | None] = {
    "reportingComponent": None,
    "reportingInstance": 128,
    "action": 128,
    "reason": 128,
    "message": 1024,
}


class NamespaceStrategy(Strategy):
    """Namespace."""

    has_status = True

    def prepare_for_create(self, obj: Json, lookup: Lookup) -> None:
        """Clear and fill in what a client may not set."""
        finalizers = (obj.get("spec") or {}).get("finalizers") or []
        if "kubernetes" not in finalizers:
            finalizers = [*finalizers, "kubernetes"]
        obj["spec"] = {"finalizers": finalizers}
        obj["status"] = {"phase": "Active"}

    def default(self, obj: Json) -> None:
        """Fill in defaults."""
        if called := name(obj):
            labels = metadata(obj).get("labels") or {}
            metadata(obj)["labels"] = {**labels, NAME_LABEL: called}

    def prepare_for_update(self, new: Json, old: Json) -> None:
        """Undo changes that are not for this path."""
        super().prepare_for_update(new, old)
        replace(new, "spec", old)


class NodeStrategy(Strategy):
    """Node. A client may set the status when it creates one."""

    has_status = True

    def __init__(self, *, taint_new_nodes: bool) -> None:
        """Say what admission does.

        Args:
            taint_new_nodes: new nodes are not ready until something removes their taint, as with the admission plugin
                TaintNodesByCondition.
        """
        self._taint_new_nodes = taint_new_nodes

    def default(self, obj: Json) -> None:
        """Fill in defaults."""
        obj.setdefault("spec", {})
        held = obj.setdefault("status", {})
        if held.get("capacity") and not held.get("allocatable"):
            held["allocatable"] = dict(held["capacity"])

    def prepare_for_create(self, obj: Json, lookup: Lookup) -> None:
        """Clear and fill in what a client may not set."""
        if self._taint_new_nodes:
            taints: list[Json] = spec(obj).setdefault("taints", [])
            if NOT_READY_TAINT not in taints:
                taints.append(dict(NOT_READY_TAINT))

    def validate(self, obj: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a new one."""
        for index, taint in enumerate(spec(obj).get("taints") or ()):
            if not taint.get("key"):
                yield required(f"spec.taints[{index}].key")
            if not taint.get("effect"):
                yield required(f"spec.taints[{index}].effect")

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change."""
        yield from self.validate(new, lookup)


class JobStrategy(StatusStrategy):
    """Job: enough for one that runs its pods to the end."""

    def default(self, obj: Json) -> None:
        """Fill in defaults."""
        held = obj.setdefault("spec", {})
        if "completions" not in held and "parallelism" not in held:
            held["completions"] = 1
        held.setdefault("parallelism", 1)
        held.setdefault("backoffLimit", 6)
        held.setdefault("completionMode", "NonIndexed")
        held.setdefault("suspend", False)

    def validate(self, obj: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a new one."""
        template = spec(obj).get("template") or {}
        held = template.get("spec") or {}
        if not held.get("containers"):
            yield required("spec.template.spec.containers")
        if held.get("restartPolicy") not in ("Never", "OnFailure"):
            path = "spec.template.spec.restartPolicy"
            value = held.get("restartPolicy") or "Always"
            yield required(path, f'valid values: "OnFailure", "Never" (not "{value}")')


class LeaseStrategy(Strategy):
    """Lease."""

    def validate(self, obj: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a new one."""
        held = spec(obj)
        for field in ("leaseDurationSeconds", "leaseTransitions"):
            least = 1 if field == "leaseDurationSeconds" else 0
            value = held.get(field)
            if value is not None and value < least:
                limit = "greater than 0" if least else "greater than or equal to 0"
                yield invalid_value(f"spec.{field}", f"{value}: must be {limit}")

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change."""
        yield from self.validate(new, lookup)


class EventStrategy(Strategy):
    """Event, written as core/v1."""

    def validate(self, obj: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a new one."""
        about = (obj.get("involvedObject") or {}).get("namespace") or ""
        inside = namespace(obj)
        if obj.get("eventTime"):
            misplaced = not about and inside not in ("default", "kube-system")
            yield from _check_new_event(obj)
        else:
            misplaced = (about or "default") != inside
        if misplaced:
            yield invalid_value("involvedObject.namespace", "does not match event.namespace")

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change."""
        yield from self.validate(new, lookup)


class GroupEventStrategy(EventStrategy):
    """Event, written as events.k8s.io/v1: stricter, and after creation only the series changes."""

    def validate(self, obj: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a new one."""
        yield from super().validate(obj, lookup)
        if not obj.get("eventTime"):
            yield required("eventTime")
        if obj.get("type") not in _EVENT_TYPES:
            yield invalid_value("type", f"has invalid value: {obj.get('type') or ''}")
        for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
            if obj.get(field):
                yield invalid_value(field, "needs to be unset")
        yield from _check_series(obj)

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change."""
        yield from EventStrategy.validate(self, new, lookup)
        yield from _check_series(new)
        for field in sorted((new.keys() | old.keys()) - {"metadata", "series"}):
            if not same(new.get(field), old.get(field)):
                yield invalid_value(field, "field is immutable")


def _check_series(obj: Json) -> Iterable[Cause]:
    series = obj.get("series")
    if series is None:
        return
    if series.get("count", 0) < _SHORTEST_SERIES:
        yield invalid_value("series.count", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def _check_new_event(obj: Json) -> Iterable[Cause]:
    for field, limit in _EVENT_LIMITS.items():
        text = obj.get(field) or ""
        if not text and field != "message":
            yield required(field)
        if limit is not None and len(text) > limit:
            yield invalid_value(field, f"can have at most {limit} characters")


class PriorityClassStrategy(Strategy):
    """PriorityClass."""

    def default(self, obj: Json) -> None:
        """Fill in defaults."""
        obj.setdefault("value", 0)
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate(self, obj: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a new one."""
        if name(obj).startswith(SYSTEM_PREFIX):
            yield forbidden_value(
                "metadata.name", "priority class names with 'system-' prefix are reserved"
            )
        if obj["value"] > HIGHEST_USER_PRIORITY:
            text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            yield forbidden_value("value", text)

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change."""
        for field in ("value", "preemptionPolicy"):
            if not same(new.get(field), old.get(field)):
                yield forbidden_value(field, "may not be changed in an update.")

    def spec_changed(self, new: Json, old: Json) -> bool:
        """Whether the generation must grow."""
        return False


class DeploymentStrategy(StatusStrategy):
    """Deployment: stored, and run by the simulated controller."""

    def default(self, obj: Json) -> None:
        """Fill in defaults."""
        obj.setdefault("spec", {}).setdefault("replicas", 1)

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change."""
        if not same(spec(new).get("selector"), spec(old).get("selector")):
            yield invalid_value("spec.selector", "field is immutable")


def strategies(
    features: Features, now: Callable[[], str], *, taint_new_nodes: bool
) -> Mapping[str, Strategy]:
    """The strategy of each resource, by its key.

    Args:
        features: gates that apply.
        now: for what is dated, as RFC 3339.
        taint_new_nodes: see `NodeStrategy`.
    """
    return {
        NAMESPACES.key: NamespaceStrategy(),
        NODES.key: NodeStrategy(taint_new_nodes=taint_new_nodes),
        PODS.key: PodStrategy(features),
        EVENTS.key: EventStrategy(),
        GROUP_EVENTS.key: GroupEventStrategy(),
        CONFIG_MAPS.key: Strategy(),
        DEPLOYMENTS.key: DeploymentStrategy(),
        JOBS.key: JobStrategy(),
        LEASES.key: LeaseStrategy(),
        CLAIMS.key: ClaimStrategy(features),
        TEMPLATES.key: TemplateStrategy(features),
        DEVICE_CLASSES.key: ClassStrategy(features),
        SLICES.key: SliceStrategy(features, now),
        TAINT_RULES.key: TaintRuleStrategy(features, now),
        PRIORITY_CLASSES.key: PriorityClassStrategy(),
    }
