"""Patches and field ownership, as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.lab.apiserver import apply as ssa
from scheduler.lab.apiserver.errors import StatusError
from scheduler.lab.apiserver.objects import Json
from scheduler.lab.apiserver.patches import merge_patch, strategic_merge_patch

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text("abc", max_size=2), VALUES, max_size=4)


@pytest.mark.parametrize(
    ("current", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "foo"}, "bar", "bar"),
    ],
)
def test_merge_patch_is_that_of_the_rfc(current: object, patch: object, expected: object) -> None:
    assert merge_patch(current, patch) == expected


@pytest.mark.parametrize(
    ("current", "patch", "expected"),
    [
        (
            {"conditions": [{"type": "A", "x": 1}, {"type": "B"}]},
            {"conditions": [{"type": "A", "y": 2}, {"type": "C"}]},
            {"conditions": [{"type": "A", "x": 1, "y": 2}, {"type": "B"}, {"type": "C"}]},
        ),
        (
            {"conditions": [{"type": "A"}, {"type": "B"}]},
            {"conditions": [{"$patch": "delete", "type": "A"}]},
            {"conditions": [{"type": "B"}]},
        ),
        (
            {"conditions": [{"type": "A"}]},
            {"conditions": [{"$patch": "replace"}, {"type": "Z"}]},
            {"conditions": [{"type": "Z"}]},
        ),
        ({"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, {"taints": [{"key": "b"}]}),
        ({"finalizers": ["a"]}, {"finalizers": ["a", "b"]}, {"finalizers": ["a", "b"]}),
        (
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]},
            {"finalizers": ["b"]},
        ),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$patch": "replace", "d": 3}}, {"a": {"d": 3}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$retainKeys": ["b"], "b": 5}}, {"a": {"b": 5}}),
        ({"a": {"b": 1}}, {"a": None}, {}),
    ],
)
def test_strategic_merge_patch(current: Json, patch: Json, expected: Json) -> None:
    before = repr(current)
    assert strategic_merge_patch(current, patch) == expected
    assert repr(current) == before


@pytest.mark.parametrize(
    "patch", [{"conditions": [{"status": "True"}]}, {"a": {"$patch": "explode"}}]
)
def test_a_patch_that_makes_no_sense_is_refused(patch: Json) -> None:
    with pytest.raises(StatusError) as refused:
        strategic_merge_patch({"conditions": [{"type": "A"}]}, patch)
    assert refused.value.code == 400


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_applied_twice_is_applied_once(current: Json, patch: Json) -> None:
    once = merge_patch(current, patch)
    assert merge_patch(once, patch) == once


OWNED: Json = {
    "metadata": {"labels": {"a": "1"}, "name": "x"},
    "status": {
        "phase": "Pending",
        "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "c"}, {"name": "b"}],
    },
}


def test_ownership_survives_being_written_down() -> None:
    paths = ssa.owned_paths(OWNED)
    assert ssa.from_fields(ssa.to_fields(paths)) == paths
    assert ("f:metadata", "f:name") not in paths
    assert ("f:status", "f:resourceClaimStatuses", 'k:{"name":"b"}') in paths


def test_removing_all_that_is_owned_leaves_what_others_added() -> None:
    live: Json = {
        "metadata": {"labels": {"a": "1", "b": "2"}, "name": "x"},
        "status": {
            "phase": "Pending",
            "resourceClaimStatuses": [
                {"name": "a", "resourceClaimName": "c"},
                {"name": "b"},
                {"name": "theirs"},
            ],
        },
    }
    ssa.remove_paths(live, ssa.owned_paths(OWNED))
    assert live == {
        "metadata": {"labels": {"b": "2"}, "name": "x"},
        "status": {"resourceClaimStatuses": [{"name": "theirs"}]},
    }


def test_a_field_that_somebody_else_changed_is_not_owned_any_more() -> None:
    after = {**OWNED, "status": {**OWNED["status"], "phase": "Running"}}
    lost = ssa.owned_paths(OWNED) - ssa.still_owned(ssa.owned_paths(OWNED), OWNED, after)
    assert lost == {("f:status", "f:phase")}
