"""Newer wins, whatever order things come in (R2, R7, F10, F11, F13)."""

import pytest

from scheduler.cache.store import Store, meta_of
from tests.pods import pod
from tests.scheduler.cache.objects import at


@pytest.fixture
def store():
    made = Store(meta_of)
    made.replace([at(pod("a"), 5), at(pod("b"), 7)], 10)
    return made


def test_a_newer_object_replaces_an_older_one(store):
    new = at(pod("a"), 11)
    [(old, changed)] = store.upsert(new)
    assert (old.metadata.resource_version, changed) == ("5", new)
    assert store.get("default/a") is store.by_uid("uid-a") is new
    assert store.resource_version == 11


@pytest.mark.parametrize("version", [4, 5])
def test_an_older_or_repeated_event_changes_nothing(store, version):
    assert store.upsert(at(pod("a"), version)) == []
    assert store.get("default/a").metadata.resource_version == "5"


def test_versions_are_compared_as_numbers(store):
    store.upsert(at(pod("a"), 99))
    assert store.upsert(at(pod("a"), 100))


def test_a_replayed_event_does_not_bring_a_deleted_object_back(store):
    store.delete(at(pod("a"), 12))
    assert store.upsert(at(pod("a"), 11)) == []
    assert store.get("default/a") is None


def test_a_replayed_event_of_the_former_uid_does_not_replace_the_new_object(store):
    store.upsert(at(pod("a"), 13, uid="new"))
    assert store.upsert(at(pod("a"), 12, uid="uid-a")) == []
    assert store.by_uid("new") is not None


def test_a_new_uid_under_a_known_name_is_a_deletion_and_an_addition(store):
    new = at(pod("a"), 13, uid="new")
    [(gone, nothing), (nothing_before, added)] = store.upsert(new)
    assert (gone.metadata.uid, nothing, nothing_before, added) == ("uid-a", None, None, new)
    assert store.by_uid("uid-a") is None


@pytest.mark.parametrize(
    ("version", "uid", "is_deleted"),
    [(5, "uid-a", True), (12, "uid-a", True), (4, "uid-a", False), (12, "other", False)],
)
def test_a_deletion_counts_for_its_own_uid_and_no_older_version(store, version, uid, is_deleted):
    changes = store.delete(at(pod("a"), version, uid=uid))
    assert bool(changes) == is_deleted
    assert (store.get("default/a") is None) == is_deleted


def test_a_list_deletes_what_is_not_in_it_and_keeps_what_has_not_changed(store):
    same = store.get("default/b")
    changes = store.replace([at(pod("b"), 7), at(pod("c"), 15)], 20)
    assert {(old and old.metadata.name, new and new.metadata.name) for old, new in changes} == {
        ("a", None),
        (None, "c"),
    }
    assert store.get("default/b") is same
    assert store.resource_version == 20


def test_a_list_with_another_uid_deletes_and_adds(store):
    changes = store.replace([at(pod("a"), 15, uid="new"), at(pod("b"), 7)], 20)
    assert [(old and old.metadata.uid, new and new.metadata.uid) for old, new in changes] == [
        ("uid-a", None),
        (None, "new"),
    ]


def test_a_list_older_than_what_has_been_seen_is_refused(store):
    with pytest.raises(ValueError, match="older"):
        store.replace([], 9)
    assert len(store) == 2


def test_a_list_that_grows_tells_only_what_it_has_more_of():
    store = Store(meta_of)
    pods = [at(pod(name), number) for number, name in enumerate("dbca", start=1)]
    told = [store.replace(pods[:end], 10) for end in (1, 3, 3, 4)]
    assert told == [[(None, pods[0])], [(None, pods[1]), (None, pods[2])], [], [(None, pods[3])]]
    assert list(store) == pods
    assert all(store.by_uid(item.metadata.uid) is item for item in pods)


def test_a_list_that_begins_alike_but_is_shorter_deletes(store):
    a, b = store
    assert store.replace([a], 11) == [(b, None)]
    assert list(store) == [a]
