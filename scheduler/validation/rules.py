"""The rules of API validation by name, and what a broken one is reported as.

One row for each row of docs/design/api-versions.md#validation. The names appear in reports and never change.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """What a broken rule means."""

    ERROR = "error"  # the API server refuses the object
    WARNING = "warning"  # it is accepted, and later refused or misunderstood


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One rule that an object breaks.

    Attributes:
        path: JSON path in the shape of v1; empty for the whole object.
        message: what is wrong, for a person.
        rule: a key of `RULES`.
        severity: error or warning.
        object: `Kind/namespace/name`; filled in by checks that look at several objects.
    """

    path: str
    message: str
    rule: str
    severity: Severity = Severity.ERROR
    object: str = ""


# rule → what it demands
ERRORS: Final[dict[str, str]] = {
    "version": "the API version is one this scheduler knows",
    "type": "every field has the type of its schema",
    "object-name": "metadata.name is a DNS subdomain",
    "labels": "labels and annotations have label keys, labels label values",
    "driver-name": "a driver is named by a DNS subdomain of at most 63 characters",
    "pool-name": "a pool is named by DNS subdomains separated by slashes, at most 253 characters",
    "pool-counts": "a pool has at least one slice and a generation that is not negative",
    "node-selection": "exactly one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection",
    "node-selector": "a node selector has one well-formed term",
    "devices-or-counters": "a slice has devices or shared counters, not both",
    "devices": "at most 128 devices (64 with taints, counters or lists), each named once",
    "device-name": "a device is named by a DNS label",
    "device-entries": "at most 32 attributes and capacities and 48 attribute values in a device",
    "qualified-name": "attributes and capacities are named by a C identifier of at most 32 characters, with or without domain",
    "attribute-value": "an attribute has one value of one type, within its limits",
    "request-policy": "a request policy needs multiple allocations and has values or a range, not both",
    "valid-values": "valid values are at most 10, ascending, unique, within the capacity and hold the default",
    "valid-range": "a valid range has a minimum and fits the capacity, the default and the step",
    "taint": "at most 16 taints, each with key and a known effect",
    "consumes-counters": "at most 2 counter sets are consumed, each named once and with counters",
    "compatibility-groups": "at most 2 compatibility groups, DNS labels, each named once",
    "shared-counters": "at most 8 counter sets, each named once and with at most 32 counters",
    "device-node-selection": "a device says where it is exactly when perDeviceNodeSelection is set",
    "binding-conditions": "at most 4 binding and 4 failure conditions, label keys, none twice, each needs the other",
    "skip-node-operations": "known operations, each once, prepare only with unprepare",
    "partition-type": "devices that consume counters carry the partition type attribute as text",
    "node-allocatable": "node-allocatable resources are cpu, memory or huge pages with positive multipliers",
    "requests": "at most 32 requests, each named once, exactly one of exactly and firstAvailable",
    "admin-access": "admin access needs a namespace with the label resource.kubernetes.io/admin-access",
    "device-class-name": "a request names a device class",
    "allocation-mode": "ExactCount has a positive count, All has none",
    "first-available": "at most 8 alternatives, each named once",
    "selectors": "at most 32 selectors, each a CEL expression of at most 10 KiB that compiles",
    "toleration": "a toleration has a known operator and effect, and a value only with Equal",
    "derived-attributes": "derived attributes are qualified, unique, used by a constraint of their request, and not too costly together",
    "constraints": "at most 32 constraints, each with a fully qualified attribute",
    "request-references": "constraints and configuration name requests of the claim, each once",
    "config": "at most 32 configurations, each with a driver and a JSON object of at most 10 KiB",
    "extended-resource-name": "an extended resource name has a domain that is not kubernetes.io",
    "taint-rule-selector": "driver, pool and device of a taint rule are names when they are set",
    "immutable": "specs of claims and templates, and a slice's driver, pool and node never change",
    "allocation-results": "at most 32 results, each for a request of the claim and a well-formed device",
    "allocation-config": "at most 64 configurations, each from FromClass or FromClaim",
    "allocation-immutable": "an allocation may be removed, not changed",
    "share-id": "a share is named by a lower-case UUID",
    "reserved-for": "at most 256 consumers with resource, name and uid, only with an allocation",
    "device-status": "a device status belongs to an allocated device",
    "pod-claims": "a pod's claim entries are DNS labels, each once, with exactly one source, and containers name them",
}
WARNINGS: Final[dict[str, str]] = {
    "disabled-field": "the field is dropped: its feature gate is off",
    "unknown-field": "every field of the spec is one the API has",
    "selector-number": "Gt and Lt compare with a whole number",
    "driver-case": "drivers are named in lower case",
    "too-many-devices": "more than 32 devices can never be allocated for one claim",
    "capacity-request": "capacity requests name a capacity of some device and are not negative",
    "negative-amount": "capacities and counters are not negative",
    "default-above-value": "the default of a request policy is at most the capacity",
    "device-selector-terms": "the node selector of a device has one term",
    "both-attributes": "a constraint has matchAttribute or distinctAttribute, not both",
    "name-with-two-slashes": "attribute names have at most one slash",
    "unknown-class": "the device class exists",
    "duplicate-device": "a device is published by one slice of its pool",
    "duplicate-counter-set": "a counter set is published by one slice of its pool",
    "unknown-counter-set": "consumed counters exist in the pool",
    "slice-count-differs": "all slices of a pool in one generation announce the same number of slices",
    "pool-incomplete": "a pool has as many slices as it announces",
    "shadowed-attribute": "a device names an attribute or capacity with or without its driver's domain, not both",
    "unknown-claim": "claims and templates that a pod names exist",
    "admin-access-unchecked": "the namespace of a claim with admin access is known",
}
RULES: Final[dict[str, str]] = {**ERRORS, **WARNINGS}


def severity_of(rule: str) -> Severity:
    """Whether a broken rule is an error or a warning."""
    return Severity.WARNING if rule in WARNINGS else Severity.ERROR
