"""What an update may change, and the status of claims."""

import pytest

from scheduler.validation import validate_claim_status, validate_update
from tests.scheduler.validation.objects import ALLOCATED, CLAIM, GONE, SLICE, TEMPLATE, edited


@pytest.mark.parametrize(
    ("obj", "edit", "path"),
    [
        (SLICE, {"spec.driver": "other"}, "spec.driver"),
        (SLICE, {"spec.pool.name": "other"}, "spec.pool.name"),
        (SLICE, {"spec.nodeName": GONE}, "spec.nodeName"),
        (CLAIM, {"spec.devices.requests[0].exactly.count": 2}, "spec"),
        (TEMPLATE, {"spec.metadata": {"labels": {"a": "b"}}}, "spec"),
    ],
)
def test_some_fields_never_change(obj, edit, path):
    assert [(v.rule, v.path) for v in validate_update(obj, edited(obj, edit))] == [
        ("immutable", path)
    ]


@pytest.mark.parametrize(
    ("obj", "edit"),
    [
        (SLICE, {"spec.pool.generation": 2}),
        (SLICE, {"spec.devices": []}),
        (CLAIM, {"metadata.labels": {"a": "b"}}),
    ],
)
def test_other_fields_may(obj, edit):
    assert validate_update(obj, edited(obj, edit)) == []


def test_an_allocation_may_be_set_and_removed():
    assert validate_claim_status(CLAIM, ALLOCATED) == []
    assert validate_claim_status(ALLOCATED, CLAIM) == []


def test_an_allocation_may_not_be_changed():
    other = edited(
        ALLOCATED, {"status.allocation.devices.results[0].device": "gpu-1", "status.devices": []}
    )
    (found,) = validate_claim_status(ALLOCATED, other)
    assert (found.rule, found.path) == ("allocation-immutable", "status.allocation")


def test_an_old_allocation_is_not_checked_again():
    broken = edited(ALLOCATED, {"status.allocation.devices.results[0].request": "gone"})
    assert validate_claim_status(broken, broken) == []


CONSUMER = {"resource": "pods", "name": "q", "uid": "v"}


def test_nobody_new_is_reserved_while_a_claim_is_being_deleted():
    old = edited(ALLOCATED, {"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"})
    (found,) = validate_claim_status(old, edited(old, {"status.reservedFor[1]": CONSUMER}))
    assert (found.rule, found.path) == ("reserved-for", "status.reservedFor")
    assert validate_claim_status(old, edited(old, {"status.reservedFor": []})) == []


def test_admin_access_results_need_the_label():
    claim = edited(ALLOCATED, {"status.allocation.devices.results[0].adminAccess": True})
    (found,) = validate_claim_status(CLAIM, claim, namespaces={"default": {}})
    assert found.rule == "admin-access"
    labelled = {"default": {"resource.kubernetes.io/admin-access": "true"}}
    assert validate_claim_status(CLAIM, claim, namespaces=labelled) == []


def test_a_status_of_the_wrong_type_is_one_finding():
    (found,) = validate_claim_status(CLAIM, edited(CLAIM, {"status": {"reservedFor": "x"}}))
    assert (found.rule, found.path) == ("type", "status.reservedFor")
