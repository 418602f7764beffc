"""The store: revisions, history, the past."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.lab.apiserver.store import CompactedError, Store


def put(store: Store, key: str, value: int = 0) -> int:
    return store.put("things", key, {"metadata": {"name": key}, "value": value}).revision


def state(store: Store, revision: int | None = None) -> dict[str, int]:
    return {stored.key: stored.obj["value"] for stored in store.objects("things", revision)}


def test_every_write_is_a_revision_of_its_own() -> None:
    store = Store(first_revision=5)
    assert [put(store, "a"), put(store, "b"), put(store, "a")] == [6, 7, 8]
    assert store.delete("things", "b").revision == 9
    assert store.revision == 9


def test_an_object_carries_the_revision_of_its_last_write() -> None:
    store = Store()
    put(store, "a")
    revision = put(store, "a", 1)
    found = store.get("things", "a")
    assert found is not None
    assert found.obj["metadata"]["resourceVersion"] == str(revision)
    assert str(revision).encode() in found.raw


def test_a_deleted_object_is_shown_with_the_revision_of_its_deletion() -> None:
    store = Store()
    first = put(store, "a")
    last = store.delete("things", "a")
    assert last.obj["metadata"]["resourceVersion"] == str(first + 1)
    [_, change] = store.changes_after("things", 1)
    assert (change.new, change.last) == (None, last)
    assert change.old is not None
    assert change.old.obj["metadata"]["resourceVersion"] == str(first)


def test_collections_share_revisions_but_not_objects() -> None:
    store = Store()
    put(store, "a")
    other = store.put("others", "a", {"metadata": {}})
    assert other.revision == 3
    assert [change.revision for change in store.changes_after("things", 0 + 1)] == [2]


def test_compaction_forgets_the_past_and_keeps_the_present() -> None:
    store = Store()
    put(store, "a", 1)
    before = put(store, "a", 2)
    put(store, "a", 3)
    store.compact()
    assert state(store) == {"a": 3}
    assert store.changes_after("things", store.revision) == []
    with pytest.raises(CompactedError):
        store.changes_after("things", before)
    with pytest.raises(CompactedError):
        store.objects("things", before)


def test_a_collection_that_was_never_written_is_compacted_too() -> None:
    store = Store(first_revision=3)
    with pytest.raises(CompactedError):
        store.changes_after("things", 2)
    assert store.changes_after("things", 3) == []


def test_history_is_cut_to_its_window() -> None:
    store = Store(window=10)
    revisions = [put(store, "a", value) for value in range(100)]
    kept = store.changes_after("things", revisions[-11])
    assert len(kept) == 10
    with pytest.raises(CompactedError):
        store.changes_after("things", revisions[50])


def test_listeners_hear_of_every_write_until_they_leave() -> None:
    store = Store()
    heard: list[int] = []
    leave = store.subscribe(lambda: heard.append(store.revision))
    put(store, "a")
    store.delete("things", "a")
    leave()
    put(store, "a")
    assert heard == [2, 3]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=40))
def test_every_state_of_the_past_can_be_listed(writes: list[tuple[str, int]]) -> None:
    store = Store()
    states = {store.revision: state(store)}
    for key, value in writes:
        if value == 0 and store.get("things", key) is not None:
            store.delete("things", key)
        else:
            put(store, key, value)
        states[store.revision] = state(store)
    for revision, expected in states.items():
        assert state(store, revision) == expected
        assert list(state(store, revision)) == sorted(expected)
