"""ResourceClaims and templates: the spec.

Source: docs/design/api-versions.md#claims, docs/design/api-versions.md#warnings.
"""

from collections.abc import Mapping
from typing import Final

from allocator.features import Features
from scheduler.validation import formats
from scheduler.validation.common import (
    check_configs,
    check_expression,
    check_format,
    check_selectors,
    check_toleration,
)
from scheduler.validation.cursor import Cursor

ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"
MAX_DEVICES_IN_CLAIM: Final = 32
_MAX_REQUESTS: Final = 32
_MAX_ALTERNATIVES: Final = 8
_MAX_CONSTRAINTS: Final = 32
_MAX_DERIVED: Final = 32
_MAX_DERIVED_COST: Final = 1_000_000  # of all requests together

Namespaces = Mapping[str, Mapping[str, str]]


def check_claim_spec(
    spec: Cursor, features: Features, namespace: str, namespaces: Namespaces | None
) -> None:
    """Check the spec of a claim.

    Args:
        spec: the spec, of a claim or under a template.
        features: for what a constraint may be.
        namespace: where the claim is or will be.
        namespaces: labels by namespace, as far as they are known; None: not at all.
    """
    devices = spec["devices"]
    requests, constraints = devices["requests"], devices["constraints"]
    requests.limit("requests", _MAX_REQUESTS)
    requests.unique("requests", "name")
    names = request_names(devices)
    used = _attributes_by_request(constraints)
    cost = 0
    for request in requests.items():
        cost += _check_request(request, used, features)
        _check_admin_access(request["exactly"]["adminAccess"], namespace, namespaces)
    if cost > _MAX_DERIVED_COST:
        devices.report(
            "derived-attributes",
            f"the derived attributes of the claim may cost {cost} together, more than {_MAX_DERIVED_COST}",
        )
    _check_counts(requests)
    constraints.limit("constraints", _MAX_CONSTRAINTS)
    for constraint in constraints.items():
        _check_constraint(constraint, features)
        check_references(constraint["requests"], names)
    check_configs(devices["config"])
    for config in devices["config"].items():
        check_references(config["requests"], names)


def request_names(devices: Cursor) -> frozenset[str]:
    """All names a constraint or configuration may use: `request` and `request/alternative`."""
    names = set()
    for request in devices["requests"].items():
        name = request["name"].text
        names.add(name)
        names.update(f"{name}/{sub['name'].text}" for sub in request["firstAvailable"].items())
    return frozenset(names)


def _attributes_by_request(constraints: Cursor) -> dict[str, set[str]]:
    """Request name (empty: all requests) → attributes that its constraints compare."""
    used: dict[str, set[str]] = {}
    for constraint in constraints.items():
        for name in constraint["requests"].value or ("",):
            for field in ("matchAttribute", "distinctAttribute"):
                used.setdefault(name, set()).add(constraint[field].text)
    return used


def _check_request(request: Cursor, used: Mapping[str, set[str]], features: Features) -> int:
    """Check a request; returns the most that its derived attributes may cost."""
    name = request["name"].text
    check_format(request["name"], "requests", formats.label)
    exactly, alternatives = request["exactly"], request["firstAvailable"]
    if exactly.present and alternatives.size:
        request.report("requests", "exactly and firstAvailable cannot both be set")
    elif not exactly.present and not alternatives.size:
        request.report("requests", "exactly or firstAvailable is required")
    cost = 0
    if exactly.present:
        cost += _check_device_request(exactly, name, used, features)
    alternatives.limit("first-available", _MAX_ALTERNATIVES)
    alternatives.unique("first-available", "name")
    for alternative in alternatives.items():
        check_format(alternative["name"], "first-available", formats.label)
        where = f"{name}/{alternative['name'].text}"
        cost += _check_device_request(alternative, where, used, features)
    return cost


def _check_device_request(
    request: Cursor, name: str, used: Mapping[str, set[str]], features: Features
) -> int:
    check_format(request["deviceClassName"], "device-class-name", formats.subdomain)
    check_selectors(request["selectors"], features)
    mode, count = request["allocationMode"], request["count"]
    match mode.text:
        case "All":
            if count.number != 0:
                count.report("allocation-mode", "must not be set with mode All")
        case "ExactCount":
            if count.number <= 0:
                count.report("allocation-mode", "must be greater than 0 with mode ExactCount")
            elif count.number > MAX_DEVICES_IN_CLAIM:
                count.report(
                    "too-many-devices",
                    f"a claim can hold at most {MAX_DEVICES_IN_CLAIM} devices: it can never be allocated",
                )
        case _:
            mode.report("allocation-mode", "must be ExactCount or All")
    for toleration in request["tolerations"].items():
        check_toleration(toleration)
    for _, amount in request["capacity"]["requests"].entries():
        quantity = amount.quantity
        if quantity is not None and quantity.nanos < 0:
            amount.report("capacity-request", "is negative")
    return _check_derived(request["derivedAttributes"], name, used, features)


def _check_derived(
    derived: Cursor, request: str, used: Mapping[str, set[str]], features: Features
) -> int:
    rule = "derived-attributes"
    derived.limit(rule, _MAX_DERIVED)
    derived.unique(rule, "name")
    compared = (
        used.get("", set()) | used.get(request, set()) | used.get(request.partition("/")[0], set())
    )
    cost = 0
    for attribute in derived.items():
        check_format(attribute["name"], rule, formats.fully_qualified_name)
        name = attribute["name"].text
        if name and not formats.fully_qualified_name(name) and name not in compared:
            attribute["name"].report(rule, "no constraint of this request compares it")
        cost += check_expression(attribute["expression"], rule, features, derived=True)
    return cost


def _check_admin_access(place: Cursor, namespace: str, namespaces: Namespaces | None) -> None:
    if place.value is not True or namespaces is None:
        return
    labels = namespaces.get(namespace)
    if labels is None:
        place.report(
            "admin-access-unchecked",
            f"namespace {namespace!r} is not known; it must carry the label {ADMIN_ACCESS_LABEL}: 'true'",
        )
    elif labels.get(ADMIN_ACCESS_LABEL) != "true":
        place.report(
            "admin-access", f"namespace {namespace!r} lacks the label {ADMIN_ACCESS_LABEL}: 'true'"
        )


def _check_counts(requests: Cursor) -> None:
    """The least number of devices that the requests together take; mode All takes at least none here."""
    least = 0
    for request in requests.items():
        alternatives = [
            sub["count"].number if sub["allocationMode"].text == "ExactCount" else 0
            for sub in request["firstAvailable"].items()
        ]
        count = min(alternatives) if alternatives else request["exactly"]["count"].number
        if count > MAX_DEVICES_IN_CLAIM:
            return
        least += count
    if least > MAX_DEVICES_IN_CLAIM:
        requests.report(
            "too-many-devices",
            f"the counts add up to {least}; a claim can hold at most {MAX_DEVICES_IN_CLAIM} devices",
        )


def _check_constraint(constraint: Cursor, features: Features) -> None:
    match, distinct = constraint["matchAttribute"], constraint["distinctAttribute"]
    if match.present and distinct.present:
        constraint.report("both-attributes", "distinctAttribute is ignored beside matchAttribute")
    for attribute in (match, distinct):
        if attribute.present:
            check_format(attribute, "constraints", formats.fully_qualified_name)
    if match.present or distinct.present:
        return
    if features.consumable_capacity:
        constraint.report("constraints", "matchAttribute or distinctAttribute is required")
    else:
        match.report("constraints", "is required")


def check_references(
    references: Cursor, names: frozenset[str], rule: str = "request-references"
) -> None:
    """Check a list of request names."""
    references.limit(rule, _MAX_REQUESTS)
    references.unique(rule)
    for reference in references.items():
        check_reference(reference, names, rule)


def check_reference(reference: Cursor, names: frozenset[str], rule: str) -> None:
    """Check one request name."""
    if reference.text not in names:
        reference.report(
            rule,
            f"{reference.text[:80]!r} is not a request of the claim (REQUEST or REQUEST/ALTERNATIVE)",
        )
