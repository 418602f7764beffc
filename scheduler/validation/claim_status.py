"""Status of a ResourceClaim, for whoever writes it. Source: docs/design/api-versions.md#status."""

from typing import Final

from scheduler.validation import formats
from scheduler.validation.claims import (
    ADMIN_ACCESS_LABEL,
    Namespaces,
    check_reference,
    check_references,
    request_names,
)
from scheduler.validation.common import (
    check_binding_conditions,
    check_configs,
    check_format,
    check_node_selector,
    check_skip_node_operations,
    check_toleration,
)
from scheduler.validation.cursor import Cursor

_MAX_RESULTS: Final = 32
_MAX_CONFIGS: Final = 64
_MAX_CONSUMERS: Final = 256


def check_claim_status(
    claim: Cursor, old: Cursor | None, namespaces: Namespaces | None = None
) -> None:
    """Check the status of a claim, on its own or as an update of `old`.

    An allocation that was there before is not checked again, only compared: rules grow stricter with versions.
    """
    status = claim["status"]
    allocation = status["allocation"]
    old_allocation = old["status"]["allocation"] if old is not None else None
    names = request_names(claim["spec"]["devices"])
    if old_allocation is not None and old_allocation.present and allocation.present:
        if allocation.value != old_allocation.value:
            allocation.report("allocation-immutable", "may be removed, not changed")
    elif allocation.present:
        _check_allocation(allocation, names)
        _check_admin_results(allocation, claim["metadata"]["namespace"].text, namespaces)
    _check_reserved_for(claim, old)
    _check_devices(status)


def _check_allocation(allocation: Cursor, names: frozenset[str]) -> None:
    results, config = allocation["devices"]["results"], allocation["devices"]["config"]
    rule = "allocation-results"
    results.limit(rule, _MAX_RESULTS)
    for result in results.items():
        check_reference(result["request"], names, rule)
        check_format(result["driver"], rule, formats.driver_name)
        check_format(result["pool"], rule, formats.pool_name)
        check_format(result["device"], rule, formats.label)
        check_binding_conditions(result)
        for toleration in result["tolerations"].items():
            check_toleration(toleration)
        if result["shareID"].present:
            check_format(result["shareID"], "share-id", formats.uuid)
        check_skip_node_operations(result["skipNodeOperations"])
    check_configs(config, most=_MAX_CONFIGS, rule="allocation-config")
    for entry in config.items():
        if entry["source"].text not in ("FromClass", "FromClaim"):
            entry["source"].report("allocation-config", "must be FromClass or FromClaim")
        check_references(entry["requests"], names, "allocation-config")
    if allocation["nodeSelector"].present:
        check_node_selector(allocation["nodeSelector"], one_term=False)


def _check_admin_results(allocation: Cursor, namespace: str, namespaces: Namespaces | None) -> None:
    if namespaces is None or namespace not in namespaces:
        return
    if namespaces[namespace].get(ADMIN_ACCESS_LABEL) == "true":
        return
    for result in allocation["devices"]["results"].items():
        if result["adminAccess"].value is True:
            result["adminAccess"].report(
                "admin-access",
                f"namespace {namespace!r} lacks the label {ADMIN_ACCESS_LABEL}: 'true'",
            )


def _check_reserved_for(claim: Cursor, old: Cursor | None) -> None:
    rule = "reserved-for"
    reserved = claim["status"]["reservedFor"]
    reserved.limit(rule, _MAX_CONSUMERS)
    reserved.unique(rule, "uid")
    for consumer in reserved.items():
        for field in ("resource", "name", "uid"):
            if not consumer[field].text:
                consumer[field].report(rule, "is required")
    if not reserved.size:
        return
    if not claim["status"]["allocation"].present:
        reserved.report(rule, "needs an allocation")
    elif claim["metadata"]["deletionTimestamp"].present:
        before = (old["status"]["reservedFor"].value or []) if old is not None else reserved.value
        if any(consumer not in before for consumer in reserved.value):
            reserved.report(rule, "no consumer may be added while the claim is being deleted")


def _check_devices(status: Cursor) -> None:
    allocated = {
        (result["driver"].text, result["pool"].text, result["device"].text, result["shareID"].value)
        for result in status["allocation"]["devices"]["results"].items()
    }
    seen = set()
    for device in status["devices"].items():
        identity = (
            device["driver"].text,
            device["pool"].text,
            device["device"].text,
            device["shareID"].value,
        )
        if identity not in allocated:
            device.report("device-status", "is not an allocated device of the claim")
        if identity in seen:
            device.report("device-status", "occurs twice")
        seen.add(identity)
