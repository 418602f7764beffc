"""Checks one object as the API server would: conversion, dropped fields, defaults, types, then the rules of its kind.

Works on plain data, does no I/O, never raises for anything an object can hold.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from allocator.features import Features
from allocator.model.claims import ResourceClaimSpec
from allocator.model.devices import DeviceClassSpec, DeviceTaintRuleSpec, ResourceSliceSpec
from scheduler.api.convert import KNOWN_VERSIONS, UnknownVersionError, to_v1
from scheduler.api.decode import TYPES, conformed
from scheduler.api.defaults import with_defaults, without_disabled_fields
from scheduler.api.walk import FieldError, conform, unknown_fields
from scheduler.validation.claim_status import check_claim_status
from scheduler.validation.claims import Namespaces, check_claim_spec
from scheduler.validation.classes import check_class, check_taint_rule
from scheduler.validation.common import check_labels, check_metadata
from scheduler.validation.cursor import Cursor
from scheduler.validation.pods import check_pod
from scheduler.validation.rules import Severity, Violation, severity_of
from scheduler.validation.slices import check_slice

Json = dict[str, Any]

_DROPPED: Final = "its feature gate is off: the API server drops it"
# kind → type of `spec`, where it has every field of the API
_WHOLE_SPECS: Final[dict[str, type]] = {
    "ResourceSlice": ResourceSliceSpec,
    "ResourceClaim": ResourceClaimSpec,
    "DeviceClass": DeviceClassSpec,
    "DeviceTaintRule": DeviceTaintRuleSpec,
}
# kind → paths that never change
_IMMUTABLE: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "ResourceClaim": (("spec",),),
    "ResourceClaimTemplate": (("spec",),),
    "ResourceSlice": (("spec", "driver"), ("spec", "pool", "name"), ("spec", "nodeName")),
}


@dataclass(frozen=True, slots=True)
class Admitted:
    """An object as it would be stored, and what is wrong with it.

    Attributes:
        obj: in the shape of v1, disabled fields dropped, defaults filled in; None if it has no readable shape.
        violations: errors first come first; empty for a good object.
    """

    obj: Json | None
    violations: list[Violation]

    @property
    def errors(self) -> list[Violation]:
        """The violations for which the API server refuses the object."""
        return [found for found in self.violations if found.severity is Severity.ERROR]


def validate_object(
    obj: Json, *, features: Features, namespaces: Namespaces | None = None
) -> list[Violation]:
    """Check an object of a known kind in any known version; other kinds have nothing to check.

    Args:
        obj: plain data, never changed.
        features: fields of disabled gates are dropped before the check, unless the object has been stored (has a uid).
        namespaces: labels by namespace, for admin access; None: not checked.

    Source: pkg/apis/resource/validation; docs/design/api-versions.md#validation.
    """
    return admit(obj, features=features, namespaces=namespaces).violations


def admit(obj: Json, *, features: Features, namespaces: Namespaces | None = None) -> Admitted:
    """Check an object and bring it into the form in which it would be stored."""
    kind = obj.get("kind")
    if not isinstance(kind, str) or not kind:
        return Admitted(None, [_violation("kind", "is required", "type")])
    if kind not in KNOWN_VERSIONS:
        return Admitted(obj, [])
    if not isinstance(obj.get("apiVersion"), str):
        return Admitted(None, [_violation("apiVersion", "is required", "version")])
    try:
        v1 = to_v1(kind, obj)
    except UnknownVersionError as error:
        return Admitted(None, [_violation("apiVersion", str(error), "version")])
    return _admit_v1(kind, v1, features, namespaces) if kind in TYPES else Admitted(v1, [])


def _admit_v1(kind: str, v1: Json, features: Features, namespaces: Namespaces | None) -> Admitted:
    kept = v1 if _is_stored(v1) else without_disabled_fields(kind, v1, features)
    violations = [_violation(path, _DROPPED, "disabled-field") for path in _dropped(v1, kept)]
    try:
        obj = conformed(kind, with_defaults(kind, kept))
    except FieldError as error:
        violations.append(_violation(error.path, error.problem, "type"))
        return Admitted(None, violations)
    violations.extend(
        _violation(path, "is not a field of this API version: it is ignored", "unknown-field")
        for path in _unknown(kind, obj)
    )
    _check_kind(kind, Cursor(obj, "", violations), features, namespaces)
    return Admitted(obj, violations)


def _violation(path: str, message: str, rule: str) -> Violation:
    return Violation(path=path, message=message, rule=rule, severity=severity_of(rule))


def _is_stored(obj: Json) -> bool:
    metadata = obj.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("uid"))


def _unknown(kind: str, obj: Json) -> Iterator[str]:
    """Unknown fields of the spec; only of kinds that are decoded whole."""
    spec_type = _WHOLE_SPECS.get(kind)
    return iter(()) if spec_type is None else unknown_fields(spec_type, obj.get("spec"), "spec")


def _dropped(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Paths of fields that are in `before` only; both have the same shape otherwise."""
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            step = f"{path}.{key}" if path else key
            if key not in after:
                yield step
            else:
                yield from _dropped(value, after[key], step)
    elif isinstance(before, list) and isinstance(after, list):
        for index, (left, right) in enumerate(zip(before, after, strict=True)):
            yield from _dropped(left, right, f"{path}[{index}]")


def _check_kind(kind: str, obj: Cursor, features: Features, namespaces: Namespaces | None) -> None:
    check_metadata(obj)
    match kind:
        case "ResourceSlice":
            check_slice(obj, features)
        case "ResourceClaim":
            namespace = obj["metadata"]["namespace"].text or "default"
            check_claim_spec(obj["spec"], features, namespace, namespaces)
            check_claim_status(obj, None, namespaces)
        case "ResourceClaimTemplate":
            namespace = obj["metadata"]["namespace"].text or "default"
            check_labels(obj["spec"]["metadata"])
            check_claim_spec(obj["spec"]["spec"], features, namespace, namespaces)
        case "DeviceClass":
            check_class(obj, features)
        case "DeviceTaintRule":
            check_taint_rule(obj)
        case "Pod":
            check_pod(obj)
        case _:
            pass


def validate_claim_status(
    old: Json, new: Json, *, namespaces: Namespaces | None = None
) -> list[Violation]:
    """Check a status update of a ResourceClaim; both objects in the shape of v1.

    Source: docs/design/api-versions.md#status.
    """
    violations: list[Violation] = []
    roots = []
    for obj in (old, new):
        try:
            roots.append(Cursor(conform(TYPES["ResourceClaim"], obj), "", violations))
        except FieldError as error:
            return [_violation(error.path, error.problem, "type")]
    check_claim_status(roots[1], roots[0], namespaces)
    return violations


def validate_update(old: Json, new: Json) -> list[Violation]:
    """Check that an update leaves alone what may never change; both objects in the shape of v1."""
    violations: list[Violation] = []
    before, after = Cursor(old, "", []), Cursor(new, "", violations)
    for path in _IMMUTABLE.get(str(new.get("kind")), ()):
        left, right = before, after
        for field in path:
            left, right = left[field], right[field]
        if left.value != right.value:
            right.report("immutable", "must not change")
    return violations
