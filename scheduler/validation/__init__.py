"""API validation: what the API server refuses, and what it accepts but allocation stumbles over."""

from scheduler.validation.cluster import validate_cluster
from scheduler.validation.rules import ERRORS, RULES, WARNINGS, Severity, Violation
from scheduler.validation.validate import (
    Admitted,
    admit,
    validate_claim_status,
    validate_object,
    validate_update,
)

__all__ = [
    "ERRORS",
    "RULES",
    "WARNINGS",
    "Admitted",
    "Severity",
    "Violation",
    "admit",
    "validate_claim_status",
    "validate_cluster",
    "validate_object",
    "validate_update",
]
