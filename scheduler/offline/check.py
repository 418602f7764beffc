"""Checks manifests as the API server would, and against each other. What `validate` prints."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from allocator.features import Features
from scheduler.api.convert import KNOWN_VERSIONS
from scheduler.api.decode import TYPES, object_name
from scheduler.api.walk import FieldError, conform
from scheduler.offline.inventory import OTHER_TYPES, is_foreign
from scheduler.offline.manifests import Manifest
from scheduler.offline.workloads import WORKLOADS
from scheduler.validation import Severity, Violation, admit, validate_cluster
from scheduler.validation.claims import Namespaces

Json = dict[str, Any]
_POD_TEMPLATE: Final = "spec.template."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken rule and where it was found.

    Attributes:
        file: where the object came from.
        document: number of its document in the file.
        object: `Kind/namespace/name`.
        path: JSON path in the shape of v1.
        severity: `error` or `warning`.
        rule: name of the rule.
        message: what is wrong.
    """

    file: str
    document: int
    object: str
    path: str
    severity: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings, in input order."""

    objects: int
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    notes: tuple[str, ...]


def check_manifests(manifests: Sequence[Manifest], features: Features) -> Report:
    """Check every object of a known kind by itself and all of them together."""
    findings: list[Finding] = []
    unknown: dict[str, int] = {}
    known: list[Manifest] = []
    for manifest in manifests:
        kind, api_version = manifest.obj.get("kind"), manifest.obj.get("apiVersion")
        if isinstance(kind, str) and kind and is_foreign(kind, api_version):
            name = f"{kind} ({api_version})" if isinstance(api_version, str) else kind
            unknown[name] = unknown.get(name, 0) + 1
        else:
            known.append(manifest)
    namespaces = _namespaces(known)
    by_name: dict[str, Manifest] = {}
    for manifest in known:
        label = _label(manifest.obj)
        by_name.setdefault(label, manifest)
        findings.extend(
            _finding(manifest, label, violation)
            for violation in _check(manifest.obj, features, namespaces)
        )
    findings.extend(
        _finding(by_name[violation.object], violation.object, violation)
        for violation in validate_cluster((each.obj for each in known), features=features)
    )
    return Report(
        objects=len(known),
        errors=tuple(found for found in findings if found.severity == Severity.ERROR),
        warnings=tuple(found for found in findings if found.severity == Severity.WARNING),
        notes=tuple(f"{name}: {count} not checked" for name, count in unknown.items()),
    )


def _label(obj: Json) -> str:
    kind = obj.get("kind")
    return object_name(kind if isinstance(kind, str) and kind else "?", obj)


def _finding(manifest: Manifest, label: str, violation: Violation) -> Finding:
    return Finding(
        file=manifest.file,
        document=manifest.document,
        object=label,
        path=violation.path,
        severity=violation.severity.value,
        rule=violation.rule,
        message=violation.message,
    )


def _namespaces(manifests: Sequence[Manifest]) -> Namespaces:
    namespaces = {}
    for manifest in manifests:
        metadata = manifest.obj.get("metadata")
        if manifest.obj.get("kind") == "Namespace" and isinstance(metadata, dict):
            labels = metadata.get("labels")
            namespaces[str(metadata.get("name"))] = labels if isinstance(labels, dict) else {}
    return namespaces


def _check(obj: Json, features: Features, namespaces: Namespaces) -> list[Violation]:
    admitted = admit(obj, features=features, namespaces=namespaces)
    violations = list(admitted.violations)
    kind = obj.get("kind")
    if admitted.obj is None or not isinstance(kind, str) or kind in TYPES:
        return violations
    try:
        conform(OTHER_TYPES[kind], admitted.obj)
    except FieldError as error:
        return [*violations, Violation(path=error.path, message=error.problem, rule="type")]
    if kind in WORKLOADS:
        violations.extend(_check_template(admitted.obj, features, namespaces))
    return violations


def _check_template(workload: Json, features: Features, namespaces: Namespaces) -> list[Violation]:
    """Check a pod template as the pod it would become."""
    template = (workload.get("spec") or {}).get("template") or {}
    pod = {
        "apiVersion": KNOWN_VERSIONS["Pod"][0],
        "kind": "Pod",
        "metadata": {**(template.get("metadata") or {}), "name": "template"},
        "spec": template.get("spec") or {},
    }
    admitted = admit(pod, features=features, namespaces=namespaces)
    return [replace(found, path=f"{_POD_TEMPLATE}{found.path}") for found in admitted.violations]


def as_tree(report: Report) -> dict[str, Any]:
    """The report as plain data."""

    def tree(finding: Finding) -> dict[str, Any]:
        return {
            "file": finding.file,
            "document": finding.document,
            "object": finding.object,
            "path": finding.path,
            "rule": finding.rule,
            "message": finding.message,
        }

    return {
        "objects": report.objects,
        "errors": [tree(found) for found in report.errors],
        "warnings": [tree(found) for found in report.warnings],
        "notes": list(report.notes),
    }
