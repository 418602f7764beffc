"""What the manifests say the cluster is.

Objects are checked as the API server would, older versions converted, workloads turned into pods, template entries into
claims, priorities resolved. Whatever is refused is listed with its file, object, path and the words of the rule;
the rest goes on without it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import msgspec

from allocator.features import Features
from allocator.model.claims import ResourceClaim
from allocator.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from allocator.quantity import Quantity
from scheduler.api.convert import KNOWN_VERSIONS
from scheduler.api.decode import TYPES, DecodeError, decode_tree_object, object_name
from scheduler.api.walk import FieldError, conform
from scheduler.model import ClaimRecord, NodeObject, Pod
from scheduler.offline.manifests import Manifest
from scheduler.offline.workloads import (
    WORKLOADS,
    Namespace,
    PriorityClass,
    Workload,
    claim_base_name,
    claim_from_template,
    is_controlled_by,
    pods_of_workload,
    stable_uid,
    uid_of,
)
from scheduler.validation import admit
from scheduler.validation.claims import Namespaces

Json = dict[str, Any]
IsEligible = Callable[[Pod, NodeObject], bool]

_NAMESPACED: Final = frozenset({"Pod", "ResourceClaim", "ResourceClaimTemplate", *WORKLOADS})
# Kinds that are read besides those of `TYPES`.
OTHER_TYPES: Final[dict[str, type[msgspec.Struct]]] = {
    **dict.fromkeys(WORKLOADS, Workload),
    "PriorityClass": PriorityClass,
    "Namespace": Namespace,
}
_SYSTEM_PRIORITIES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_DEFAULT_MAX_PODS: Final = "110"  # what a kubelet offers unless told otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class InputError:
    """An object that is left out, and why.

    Attributes:
        file: where it came from.
        document: number of its document in the file.
        object: `Kind/namespace/name`.
        path: JSON path in the shape of v1.
        message: what is wrong.
    """

    file: str
    document: int
    object: str
    path: str
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """An object of a known kind, in the shape of v1, with its place in the input."""

    kind: str
    manifest: Manifest
    obj: Json

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.obj["metadata"].get("namespace") or "")

    @property
    def label(self) -> str:
        return object_name(self.kind, self.obj)


@dataclass(slots=True, eq=False)
class Inventory:
    """The cluster of the manifests.

    Attributes:
        nodes: in file order.
        slices: in name order, as a live cluster would be read.
        classes: in file order.
        rules: DeviceTaintRules in name order.
        claims: by `namespace/name`.
        pods: all that are not terminal, generated ones included, in file order.
        errors: objects left out.
        notes: what a person should know besides.
    """

    nodes: list[NodeObject] = field(default_factory=list)
    slices: list[ResourceSlice] = field(default_factory=list)
    classes: list[DeviceClass] = field(default_factory=list)
    rules: list[DeviceTaintRule] = field(default_factory=list)
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    errors: list[InputError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def take_inventory(
    manifests: Sequence[Manifest], features: Features, is_eligible: IsEligible
) -> Inventory:
    """Read the manifests as a cluster.

    Args:
        manifests: in input order, which breaks ties.
        features: fields of disabled gates are dropped.
        is_eligible: whether a DaemonSet's pod may run on a node.
    """
    return _Taking(manifests, features, is_eligible).run()


class _Taking:
    """One inventory while it is taken."""

    def __init__(
        self, manifests: Sequence[Manifest], features: Features, is_eligible: IsEligible
    ) -> None:
        self._manifests = manifests
        self._features = features
        self._is_eligible = is_eligible
        self._inventory = Inventory()
        self._namespaces: Namespaces = {}
        self._admitted: list[_Known] = []
        self._uids: dict[tuple[str, str], str] = {}

    def run(self) -> Inventory:
        inventory = self._inventory
        known = self._without_repetitions(self._known())
        self._namespaces = {
            item.name: item.obj["metadata"].get("labels") or {}
            for item in known
            if item.kind == "Namespace" and self._conforms(item)
        }
        for item in known:
            if item.kind != "Namespace":
                self._admit(item)
        self._expand_workloads()
        self._resolve_priorities()
        self._make_claims()
        for item in self._admitted:
            self._store(item)
        inventory.slices.sort(key=lambda each: each.metadata.name)
        inventory.rules.sort(key=lambda each: each.metadata.name)
        if inventory.rules and not self._features.device_taint_rules:
            inventory.notes.append(
                "DeviceTaintRules are ignored: feature gate DRADeviceTaintRules is off"
            )
            inventory.rules.clear()
        return inventory

    def _of(self, *kinds: str) -> list[_Known]:
        return [item for item in self._admitted if item.kind in kinds]

    def _refuse(self, manifest: Manifest, label: str, path: str, message: str) -> None:
        self._inventory.errors.append(
            InputError(
                file=manifest.file,
                document=manifest.document,
                object=label,
                path=path,
                message=message,
            )
        )

    def _known(self) -> list[_Known]:
        """Objects of known kinds, with namespace and name; notes for the others, errors for nameless ones."""
        known: list[_Known] = []
        unknown: dict[str, int] = {}
        for manifest in self._manifests:
            kind = manifest.obj.get("kind")
            api_version = manifest.obj.get("apiVersion")
            if not isinstance(kind, str) or not kind:
                self._refuse(manifest, object_name("?", manifest.obj), "kind", "is required")
            elif is_foreign(kind, api_version):
                name = f"{kind} ({api_version})" if isinstance(api_version, str) else kind
                unknown[name] = unknown.get(name, 0) + 1
            else:
                item = self._named(kind, manifest)
                if item is not None:
                    known.append(item)
        self._inventory.notes.extend(
            f"{name}: {count} {'object' if count == 1 else 'objects'} ignored: this kind does not affect scheduling"
            for name, count in unknown.items()
        )
        return known

    def _named(self, kind: str, manifest: Manifest) -> _Known | None:
        obj = manifest.obj
        metadata = obj.get("metadata")
        label = object_name(kind, obj)
        if not isinstance(metadata, dict):
            self._refuse(manifest, label, "metadata", "is required")
            return None
        name = metadata.get("name")
        if not name and isinstance(metadata.get("generateName"), str) and metadata["generateName"]:
            name = f"{metadata['generateName']}{manifest.document}"
            metadata = {**metadata, "name": name}
        if not isinstance(name, str) or not name:
            self._refuse(manifest, label, "metadata.name", "is required")
            return None
        if kind in _NAMESPACED and not metadata.get("namespace"):
            metadata = {**metadata, "namespace": "default"}
        return _Known(kind, manifest, {**obj, "metadata": metadata})

    def _without_repetitions(self, known: Iterable[_Known]) -> list[_Known]:
        first: dict[tuple[str, str, str], _Known] = {}
        for item in known:
            earlier = first.setdefault((item.kind, item.namespace, item.name), item)
            if earlier is item:
                continue
            if earlier.obj == item.obj:
                self._inventory.notes.append(
                    f"{item.label}: given twice ({earlier.manifest.file}, {item.manifest.file})"
                )
            else:
                self._refuse(
                    item.manifest,
                    item.label,
                    "metadata.name",
                    f"is defined twice, first in {earlier.manifest.file}, document"
                    f" {earlier.manifest.document}",
                )
        return list(first.values())

    def _conforms(self, item: _Known) -> bool:
        try:
            conform(OTHER_TYPES[item.kind], item.obj)
        except FieldError as error:
            self._refuse(item.manifest, item.label, error.path, error.problem)
            return False
        return True

    def _admit(self, item: _Known) -> None:
        admitted = admit(item.obj, features=self._features, namespaces=self._namespaces)
        for error in admitted.errors:
            self._refuse(item.manifest, item.label, error.path, error.message)
        if admitted.obj is None or admitted.errors:
            return
        if item.kind in OTHER_TYPES and not self._conforms(item):
            return
        obj = admitted.obj
        metadata = obj["metadata"]
        uid = metadata.get("uid") or uid_of(item.kind, obj)
        if (item.kind, uid) in self._uids:
            self._inventory.notes.append(
                f"{item.label}: its uid is also that of {self._uids[item.kind, uid]}; using another one"
            )
            uid = stable_uid(item.kind, item.namespace, item.name)
        self._uids[item.kind, uid] = item.label
        if metadata.get("uid") != uid:
            obj = {**obj, "metadata": {**metadata, "uid": uid}}
        self._admitted.append(_Known(item.kind, item.manifest, obj))

    # --- workloads -----------------------------------------------------------------------------------------------

    def _expand_workloads(self) -> None:
        """Put the pods of a workload where it stands, unless the manifests hold some already."""
        nodes = [item.obj for item in self._of("Node")]
        present = self._of("Pod", "ReplicaSet")
        taken = {(item.namespace, item.name) for item in self._of("Pod")}
        expanded: list[_Known] = []
        for item in self._admitted:
            expanded.append(item)
            if item.kind not in WORKLOADS or any(
                is_controlled_by(other.obj, item.kind, item.obj) for other in present
            ):
                continue
            is_first = True
            for pod in pods_of_workload(item.kind, item.obj, nodes, self._is_daemon_eligible):
                known = _Known("Pod", item.manifest, pod)
                if not self._may_be_made(known, taken, check=is_first):
                    break  # the others of this workload have the same fault
                expanded.append(known)
                is_first = False
        self._admitted = expanded

    def _may_be_made(self, pod: _Known, taken: set[tuple[str, str]], *, check: bool) -> bool:
        """Whether a generated pod has a name of its own and, if asked to check, would be admitted."""
        if (pod.namespace, pod.name) in taken:
            self._refuse(pod.manifest, pod.label, "metadata.name", "a pod of this name exists")
            return False
        taken.add((pod.namespace, pod.name))
        if not check:
            return True
        errors = admit(pod.obj, features=self._features, namespaces=self._namespaces).errors
        for error in errors:
            self._refuse(pod.manifest, pod.label, error.path, error.message)
        return not errors

    def _is_daemon_eligible(self, pod: Json, node: Json) -> bool:
        try:
            return self._is_eligible(
                cast("Pod", decode_tree_object("Pod", pod)),
                cast("NodeObject", decode_tree_object("Node", node)),
            )
        except DecodeError:
            return True  # checking the pod says what is wrong

    # --- priorities and claims -----------------------------------------------------------------------------------

    def _resolve_priorities(self) -> None:
        classes = self._of("PriorityClass")
        values = {item.name: int(item.obj.get("value") or 0) for item in classes}
        default = max(
            (values[item.name] for item in classes if item.obj.get("globalDefault")), default=0
        )
        for index, item in enumerate(self._admitted):
            spec = item.obj.get("spec") or {}
            if item.kind != "Pod" or spec.get("priority") is not None:
                continue
            name = spec.get("priorityClassName") or ""
            priority = default
            if name:
                priority = values.get(name, _SYSTEM_PRIORITIES.get(name, 0))
                if name not in values and name not in _SYSTEM_PRIORITIES:
                    self._inventory.notes.append(
                        f"{item.label}: there is no PriorityClass {name!r}; using priority 0"
                    )
            obj = {**item.obj, "spec": {**spec, "priority": priority}}
            self._admitted[index] = replace(item, obj=obj)

    def _make_claims(self) -> None:
        """Make the claims that the resourceclaim controller would make, and name them in the pods' status."""
        templates = {
            (item.namespace, item.name): item for item in self._of("ResourceClaimTemplate")
        }
        claims = {(item.namespace, item.name): item for item in self._of("ResourceClaim")}
        for index, item in enumerate(self._admitted):
            if item.kind != "Pod" or _is_over(item.obj):
                continue
            statuses = list((item.obj.get("status") or {}).get("resourceClaimStatuses") or ())
            named = {status.get("name") for status in statuses}
            for entry in (item.obj.get("spec") or {}).get("resourceClaims") or ():
                template = templates.get(
                    (item.namespace, entry.get("resourceClaimTemplateName") or "")
                )
                if template is None or entry["name"] in named:
                    continue
                name = self._claim_name(item, entry["name"], claims)
                if (item.namespace, name) not in claims:
                    made = claim_from_template(item.obj, entry["name"], name, template.obj)
                    claims[item.namespace, name] = self._made_claim(template, made)
                statuses.append({"name": entry["name"], "resourceClaimName": name})
            if statuses:
                status = {**(item.obj.get("status") or {}), "resourceClaimStatuses": statuses}
                self._admitted[index] = replace(item, obj={**item.obj, "status": status})

    def _claim_name(self, pod: _Known, entry: str, claims: dict[tuple[str, str], _Known]) -> str:
        """A name that is free, or that of a claim made for this pod already."""
        base = claim_base_name(pod.name, entry)
        name, number = base, 1
        while (taken := claims.get((pod.namespace, name))) is not None:
            if is_controlled_by(taken.obj, "Pod", pod.obj):
                break
            number += 1
            name = f"{base}-{number}"
        return name

    def _made_claim(self, template: _Known, claim: Json) -> _Known:
        """Store a claim made from a template; the template has been admitted, and the claim with it."""
        metadata = claim["metadata"]
        uid = stable_uid("ResourceClaim", metadata["namespace"], metadata["name"])
        obj = {**claim, "metadata": {**metadata, "uid": uid}}
        record = cast("ClaimRecord", decode_tree_object("ResourceClaim", obj))
        self._inventory.claims[record.claim.key] = record.claim
        return _Known("ResourceClaim", template.manifest, obj)

    # --- typed ---------------------------------------------------------------------------------------------------

    def _store(self, item: _Known) -> None:
        inventory = self._inventory
        if item.kind not in TYPES or item.kind == "ResourceClaimTemplate":
            return
        try:
            decoded = decode_tree_object(item.kind, item.obj)
        except DecodeError as error:
            self._refuse(item.manifest, item.label, error.path, error.problem)
            return
        match decoded:
            case NodeObject():
                inventory.nodes.append(self._with_pods(decoded))
            case ResourceSlice():
                inventory.slices.append(decoded)
            case DeviceClass():
                inventory.classes.append(decoded)
            case DeviceTaintRule():
                inventory.rules.append(decoded)
            case ClaimRecord(claim=claim):
                inventory.claims[claim.key] = claim
            case Pod() if not decoded.is_terminal:
                inventory.pods.append(decoded)
            case _:
                pass

    def _with_pods(self, node: NodeObject) -> NodeObject:
        """A hand-written node says what cpu and memory it has, hardly ever how many pods it takes."""
        allocatable = node.status.allocatable
        if allocatable is None or "pods" in allocatable:
            return node
        self._inventory.notes.append(
            f"Node/{node.metadata.name}: allocatable.pods is missing; assuming {_DEFAULT_MAX_PODS}"
        )
        status = msgspec.structs.replace(
            node.status, allocatable={**allocatable, "pods": Quantity.parse(_DEFAULT_MAX_PODS)}
        )
        return msgspec.structs.replace(node, status=status)


def is_foreign(kind: str, api_version: Any) -> bool:
    """Whether an object plays no part: its kind is not known, or another project's kind has the same name.

    A kind of ours in an unknown version is no such object, but an error.
    """
    versions = KNOWN_VERSIONS.get(kind)
    if versions is None:
        return True
    if kind in TYPES or not isinstance(api_version, str):
        return False
    return _group(api_version) != _group(versions[0])


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def _is_over(pod: Json) -> bool:
    status = pod.get("status") or {}
    return status.get("phase") in ("Succeeded", "Failed") or bool(
        pod["metadata"].get("deletionTimestamp")
    )
