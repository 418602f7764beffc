"""Objects that stand for others: workloads become their pods, template entries become their claims.

Names are those the controllers make, without the random part. Works on plain dicts in the shape of v1.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from allocator.model.claims import Condition
from allocator.model.meta import ApiStruct, ObjectMeta
from scheduler.model import POD_CLAIM_NAME_ANNOTATION, PodSpec

Json = dict[str, Any]

_NAMESPACE: Final = uuid.UUID("5d7a2d0e-3c52-5b5c-9a0b-6f1f0f9c0d2a")
_MAX_BASE_NAME: Final = 57
_API_VERSIONS: Final = {
    "Job": "batch/v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
}
WORKLOADS: Final = tuple(_API_VERSIONS)


class _Template(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class _Ordinals(ApiStruct, frozen=True, kw_only=True):
    start: int = 0


class _WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    ordinals: _Ordinals | None = None
    template: _Template = _Template()


class _WorkloadStatus(ApiStruct, frozen=True, kw_only=True):
    succeeded: int = 0
    conditions: tuple[Condition, ...] | None = None


class Workload(ApiStruct, frozen=True, kw_only=True):
    """What is read of Jobs, Deployments, ReplicaSets, StatefulSets and DaemonSets; for checking types."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


class PriorityClass(ApiStruct, frozen=True, kw_only=True):
    """A named pod priority."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class Namespace(ApiStruct, frozen=True, kw_only=True):
    """A namespace; only its labels are read."""

    metadata: ObjectMeta = ObjectMeta()


# What the DaemonSet controller lets its pods tolerate. Source: pkg/controller/daemon/util, AddOrUpdateDaemonPodTolerations.
_DAEMON_TOLERATIONS: Final[tuple[Json, ...]] = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
)


def stable_uid(*parts: str) -> str:
    """A UID that depends on nothing but these texts."""
    return str(uuid.uuid5(_NAMESPACE, "\n".join(parts)))


def uid_of(kind: str, obj: Json) -> str:
    """The UID of an object; one made from its name if the manifest has none."""
    metadata = obj.get("metadata") or {}
    return metadata.get("uid") or stable_uid(
        kind, metadata.get("namespace") or "", metadata.get("name") or ""
    )


def is_controlled_by(obj: Json, kind: str, owner: Json) -> bool:
    """Whether an object is managed by another: same kind and UID, or same kind and name where a UID is missing."""
    metadata = obj.get("metadata") or {}
    owner_metadata = owner.get("metadata") or {}
    if (metadata.get("namespace") or "default") != (owner_metadata.get("namespace") or "default"):
        return False
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == kind:
            if reference.get("uid") and owner_metadata.get("uid"):
                return bool(reference["uid"] == owner_metadata["uid"])
            return bool(reference.get("name") == owner_metadata.get("name"))
    return False


def pods_of_workload(
    kind: str, workload: Json, nodes: Sequence[Json], is_eligible: Callable[[Json, Json], bool]
) -> Iterator[Json]:
    """The pods that a workload's controller would make.

    Args:
        kind: one of `WORKLOADS`.
        workload: the object; its values have been checked for type.
        nodes: all nodes, for a DaemonSet, which gets a pod for each eligible one.
        is_eligible: whether a DaemonSet's pod (first) may run on a node (second).
    """
    spec = workload.get("spec") or {}
    if kind == "DaemonSet":
        for index, node in enumerate(nodes):
            pod = _daemon_pod(workload, node, index)
            if is_eligible(pod, node):
                yield pod
        return
    first = 0
    if kind == "StatefulSet":
        first = (spec.get("ordinals") or {}).get("start") or 0
    for index in range(first, first + _replicas(kind, workload)):
        yield _pod(kind, workload, index)


def _replicas(kind: str, workload: Json) -> int:
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    if kind != "Job":
        replicas = spec.get("replicas")
        return 1 if replicas is None else int(replicas)
    if spec.get("suspend") or _is_finished(status):
        return 0
    parallelism = spec.get("parallelism")
    parallelism = 1 if parallelism is None else int(parallelism)
    completions = spec.get("completions")
    if completions is None:
        return parallelism
    return max(0, min(parallelism, int(completions) - int(status.get("succeeded") or 0)))


def _is_finished(status: Json) -> bool:
    return any(
        condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _pod(kind: str, workload: Json, index: int) -> Json:
    owner = workload["metadata"]
    template = (workload.get("spec") or {}).get("template") or {}
    template_metadata = template.get("metadata") or {}
    namespace = owner.get("namespace") or "default"
    name = f"{owner['name']}-{index}"
    metadata = {
        key: template_metadata[key] for key in ("labels", "annotations") if key in template_metadata
    }
    metadata |= {
        "name": name,
        "namespace": namespace,
        "uid": stable_uid("Pod", namespace, name),
        "ownerReferences": [
            {
                "apiVersion": _API_VERSIONS[kind],
                "kind": kind,
                "name": owner["name"],
                "uid": uid_of(kind, workload),
                "controller": True,
            }
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": dict(template.get("spec") or {}),
    }


def _daemon_pod(workload: Json, node: Json, index: int) -> Json:
    pod = _pod("DaemonSet", workload, index)
    spec = pod["spec"]
    tolerations = list(spec.get("tolerations") or ())
    tolerations.extend(extra for extra in _DAEMON_TOLERATIONS if extra not in tolerations)
    if spec.get("hostNetwork"):
        tolerations.append(
            {
                "key": "node.kubernetes.io/network-unavailable",
                "operator": "Exists",
                "effect": "NoSchedule",
            }
        )
    spec["tolerations"] = tolerations
    field = {
        "key": "metadata.name",
        "operator": "In",
        "values": [(node.get("metadata") or {}).get("name") or ""],
    }
    affinity = dict(spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    required: Json = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    # As the controller does it: the node's name replaces the field terms and joins every expression term.
    expressions: list[Json] = required.get("nodeSelectorTerms") or [{}]
    terms = [{**term, "matchFields": [field]} for term in expressions]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    affinity["nodeAffinity"] = node_affinity
    spec["affinity"] = affinity
    return pod


def claim_base_name(pod_name: str, entry: str) -> str:
    """The name the resourceclaim controller gives a claim, without the random part.

    Source: pkg/controller/resourceclaim, handlePodClaim.
    """
    length = (
        len(pod_name) + len(entry) + 2
    )  # both dashes count, also the one before the random part
    if length > _MAX_BASE_NAME:
        pod_name = pod_name[: len(pod_name) * _MAX_BASE_NAME // length]
        entry = entry[: len(entry) * _MAX_BASE_NAME // length]
    return f"{pod_name}-{entry}"


def claim_from_template(pod: Json, entry: str, name: str, template: Json) -> Json:
    """The claim that the controller would make for one entry of a pod."""
    spec = template.get("spec") or {}
    template_metadata = spec.get("metadata") or {}
    pod_metadata = pod["metadata"]
    namespace = pod_metadata.get("namespace") or "default"
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "annotations": {
            **(template_metadata.get("annotations") or {}),
            POD_CLAIM_NAME_ANNOTATION: entry,
        },
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod_metadata["name"],
                "uid": pod_metadata["uid"],
                "controller": True,
            }
        ],
    }
    if template_metadata.get("labels"):
        metadata["labels"] = template_metadata["labels"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": spec.get("spec") or {},
    }
