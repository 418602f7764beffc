"""What a pod says of claims. Source: pkg/apis/core/validation, validatePodResourceClaims."""

from scheduler.validation import formats
from scheduler.validation.common import check_format
from scheduler.validation.cursor import Cursor


def check_pod(obj: Cursor) -> None:
    """Check a pod's claim entries and the names that its containers use."""
    rule = "pod-claims"
    entries = obj["spec"]["resourceClaims"]
    entries.unique(rule, "name")
    for entry in entries.items():
        check_format(entry["name"], rule, formats.label)
        sources = [
            field
            for field in ("resourceClaimName", "resourceClaimTemplateName")
            if entry[field].present
        ]
        if len(sources) != 1:
            entry.report(
                rule, "exactly one of resourceClaimName and resourceClaimTemplateName is required"
            )
        for field in sources:
            check_format(entry[field], rule, formats.subdomain)
    names = {entry["name"].text for entry in entries.items()}
    for field in ("initContainers", "containers"):
        for container in obj["spec"][field].items():
            for claim in container["resources"]["claims"].items():
                if claim["name"].text not in names:
                    claim["name"].report(
                        rule, f"{claim['name'].text[:80]!r} is not in spec.resourceClaims"
                    )
