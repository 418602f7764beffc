"""What only several objects together show."""

from allocator.features import Features
from scheduler.validation import Severity, validate_cluster
from tests.scheduler.validation.objects import (
    CLAIM,
    CLASS,
    COUNTERS,
    GONE,
    POD,
    SLICE,
    TEMPLATE,
    edited,
)

NIC = edited(CLASS, {"metadata.name": "nic.example.com", "spec.extendedResourceName": GONE})


def found(*objects):
    violations = validate_cluster(objects, features=Features())
    assert all(violation.severity is Severity.WARNING for violation in violations)
    return [(violation.rule, violation.object, violation.path) for violation in violations]


def slice_(name, **edits):
    return edited(SLICE, {"metadata.name": name, "spec.pool.resourceSliceCount": 2, **edits})


def test_a_consistent_cluster_has_no_warning():
    second = slice_("b", **{"spec.devices[0].name": "gpu-1"})
    assert found(slice_("a"), second, CLASS, NIC, CLAIM, POD) == []


def test_a_device_published_twice():
    assert found(slice_("a"), slice_("b")) == [
        ("duplicate-device", "ResourceSlice/b", "spec.devices[0].name")
    ]


def test_an_old_generation_does_not_count():
    old = edited(SLICE, {"metadata.name": "old", "spec.pool.generation": 0})
    assert found(SLICE, old) == []


def test_slices_that_disagree_about_their_number():
    other = slice_("b", **{"spec.devices[0].name": "gpu-1", "spec.pool.resourceSliceCount": 3})
    assert ("slice-count-differs", "ResourceSlice/b", "spec.pool.resourceSliceCount") in found(
        slice_("a"), other
    )


def test_a_pool_with_a_slice_missing():
    assert found(slice_("a")) == [
        ("pool-incomplete", "ResourceSlice/a", "spec.pool.resourceSliceCount")
    ]


def test_counter_sets_are_looked_up_in_the_whole_pool():
    consumer = slice_(
        "a",
        **{
            "spec.devices[0].consumesCounters": [
                {"counterSet": "gpu-0", "counters": {"memory": {"value": "1"}}}
            ]
        },
    )
    counters = edited(COUNTERS, {"spec.pool.resourceSliceCount": 2})
    assert found(consumer, counters) == []
    assert (
        "unknown-counter-set",
        "ResourceSlice/a",
        "spec.devices[0].consumesCounters[0].counterSet",
    ) in found(consumer)


def test_counters_are_looked_up_in_their_set():
    consumer = slice_(
        "a",
        **{
            "spec.devices[0].consumesCounters": [
                {
                    "counterSet": "gpu-0",
                    "counters": {"memory": {"value": "1"}, "slices": {"value": "1"}},
                }
            ]
        },
    )
    counters = edited(COUNTERS, {"spec.pool.resourceSliceCount": 2})
    assert found(consumer, counters) == [
        (
            "unknown-counter-set",
            "ResourceSlice/a",
            'spec.devices[0].consumesCounters[0].counters["slices"]',
        )
    ]


def test_a_counter_set_published_twice():
    sets = [
        edited(COUNTERS, {"metadata.name": name, "spec.pool.resourceSliceCount": 2})
        for name in "ab"
    ]
    assert found(*sets) == [
        ("duplicate-counter-set", "ResourceSlice/b", "spec.sharedCounters[0].name")
    ]


def test_a_class_that_does_not_exist():
    paths = [(rule, path) for rule, _, path in found(TEMPLATE, CLASS)]
    assert paths == [
        ("unknown-class", "spec.spec.devices.requests[1].firstAvailable[0].deviceClassName"),
        ("unknown-class", "spec.spec.devices.requests[1].firstAvailable[1].deviceClassName"),
    ]


def test_a_capacity_that_no_device_has():
    claim = edited(
        CLAIM,
        {"spec.devices.requests[0].exactly.capacity": {"requests": {"memory": "1", "cores": "1"}}},
    )
    assert found(claim, CLASS, NIC, SLICE) == [
        (
            "capacity-request",
            "ResourceClaim/default/c",
            'spec.devices.requests[0].exactly.capacity.requests["cores"]',
        )
    ]


def test_a_claim_that_does_not_exist():
    assert found(POD) == [
        ("unknown-claim", "Pod/default/p", "spec.resourceClaims[0].resourceClaimName")
    ]


def test_objects_that_are_wrong_by_themselves_are_left_out():
    assert found(edited(SLICE, {"spec.driver": GONE, "spec.pool.resourceSliceCount": 2})) == []
