"""Types of the fields that rules look at: an object of another shape is refused before any rule meets it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from allocator.model.meta import ApiStruct, ObjectMeta
from allocator.quantity import Quantity
from scheduler.api.decode import TYPES
from scheduler.api.walk import FieldError, conform
from scheduler.lab.apiserver.errors import bad_request
from scheduler.lab.apiserver.objects import Json
from scheduler.model import PodSpec

# A missing field is a broken rule, and reported with the others.
_MISSING = "is required"


class _Template(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class _WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    replicas: int | None = None
    suspend: bool | None = None
    template: _Template = _Template()


class _Workload(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _WorkloadSpec = _WorkloadSpec()
    status: dict[str, Any] | None = None


class _NamespaceSpec(ApiStruct, frozen=True, kw_only=True):
    finalizers: tuple[str, ...] | None = None


class _Namespace(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _NamespaceSpec = _NamespaceSpec()
    status: dict[str, Any] | None = None


class _LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class _Lease(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _LeaseSpec = _LeaseSpec()


class _Series(ApiStruct, frozen=True, kw_only=True):
    count: int = 0
    last_observed_time: str | None = None


class _About(ApiStruct, frozen=True, kw_only=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Event(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    involved_object: _About = _About()
    event_time: str | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    source: dict[str, str] | None = None
    series: _Series | None = None


class _PriorityClass(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class _ConfigMap(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class _Target(ApiStruct, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""


class _Binding(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    target: _Target = _Target()


class _DeleteOptions(ApiStruct, frozen=True, kw_only=True):
    kind: str = ""
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    preconditions: dict[str, str] | None = None


class _Capacities(ApiStruct, frozen=True, kw_only=True):
    capacity: dict[str, Quantity] | None = None


class _NodeMore(ApiStruct, frozen=True, kw_only=True):
    status: _Capacities = _Capacities()


class _Periods(ApiStruct, frozen=True, kw_only=True):
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None


class _PodMore(ApiStruct, frozen=True, kw_only=True):
    spec: _Periods = _Periods()


# What a server looks at beyond what scheduling reads.
_MORE: Mapping[str, type[msgspec.Struct]] = {"Node": _NodeMore, "Pod": _PodMore}

_SHAPES: Mapping[str, type[msgspec.Struct]] = {
    **TYPES,
    "Job": _Workload,
    "Deployment": _Workload,
    "Namespace": _Namespace,
    "Lease": _Lease,
    "Event": _Event,
    "PriorityClass": _PriorityClass,
    "ConfigMap": _ConfigMap,
    "Binding": _Binding,
    "DeleteOptions": _DeleteOptions,
}


def conformed(kind: str, obj: Json) -> Json:
    """The object with quantities as text.

    Args:
        kind: one that is served, Binding or DeleteOptions.
        obj: in the stored shape.

    Raises:
        StatusError: 400, when a field has the wrong type.
    """
    try:
        fixed: Json = conform(_SHAPES[kind], obj)
        if kind in _MORE:
            fixed = conform(_MORE[kind], fixed)
    except FieldError as error:
        if error.problem == _MISSING:
            return obj
        raise bad_request(f"{kind}: {error.path}: {error.problem}") from None
    return fixed
