"""Rules for the kinds that are neither pods nor claims, and the table of all strategies."""

from collections.abc import Iterable, Mapping

from allocator.features import Features
from scheduler.apiserver.claims import (
    ClaimStrategy,
    ClassStrategy,
    SliceStrategy,
    TaintRuleStrategy,
    TemplateStrategy,
)
from scheduler.apiserver.errors import (
    Cause,
    forbidden_value,
    invalid_value,
    required,
)
from scheduler.apiserver.objects import Json, metadata, name, namespace, replace, same, spec
from scheduler.apiserver.pods import PodStrategy
from scheduler.apiserver.resources import (
    CLAIMS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    EVENTS,
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
from scheduler.apiserver.strategy import Lookup, StatusStrategy, Strategy

NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
NAME_LABEL = "kubernetes.io/metadata.name"

# A user's PriorityClass may not be above this; system classes are.
HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"

_EVENT_TYPES = ("Normal", "Warning")


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
        holder = held.get("holderIdentity")
        if holder is not None and not holder:
            yield invalid_value("spec.holderIdentity", "must not be empty")

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change."""
        yield from self.validate(new, lookup)


class EventStrategy(Strategy):
    """Event, as core/v1 stores it; those with an eventTime keep the rules of events.k8s.io/v1."""

    def validate(self, obj: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a new one."""
        about = (obj.get("involvedObject") or {}).get("namespace") or ""
        if (about or "default") != namespace(obj):
            yield invalid_value("involvedObject.namespace", "does not match event.namespace")
        if obj.get("eventTime"):
            yield from _check_new_event(obj)


def _check_new_event(obj: Json) -> Iterable[Cause]:
    for field, shown in (
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ):
        if not obj.get(field):
            yield required(shown)
    if obj.get("type") not in _EVENT_TYPES:
        yield invalid_value("type", f'"{obj.get("type") or ""}": has invalid value')
    if len(obj.get("message") or "") > 1024:
        yield invalid_value("note", "can have at most 1024 characters")


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


def strategies(features: Features, *, taint_new_nodes: bool) -> Mapping[str, Strategy]:
    """The strategy of each collection."""
    return {
        NAMESPACES.collection: NamespaceStrategy(),
        NODES.collection: NodeStrategy(taint_new_nodes=taint_new_nodes),
        PODS.collection: PodStrategy(),
        EVENTS.collection: EventStrategy(),
        CONFIG_MAPS.collection: Strategy(),
        DEPLOYMENTS.collection: DeploymentStrategy(),
        JOBS.collection: JobStrategy(),
        LEASES.collection: LeaseStrategy(),
        CLAIMS.collection: ClaimStrategy(features),
        TEMPLATES.collection: TemplateStrategy(features),
        DEVICE_CLASSES.collection: ClassStrategy(features),
        SLICES.collection: SliceStrategy(features),
        TAINT_RULES.collection: TaintRuleStrategy(features),
        PRIORITY_CLASSES.collection: PriorityClassStrategy(),
    }
