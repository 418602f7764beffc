"""The cluster cache: what a decision sees, step by step.

R2, R7, R11, R12, docs/design/claims.md#memory and docs/design/scheduling-cycle.md#which-pods.
"""

import pytest

from allocator.model.devices import DeviceID, PoolID
from scheduler.cache.allocated import Conflict
from scheduler.cache.cluster import ClusterCache, digest_of
from scheduler.cache.store import EventType, WatchEvent
from scheduler.model import HostPort, Kind, PodStatus
from tests.builders import (
    GPU_DRIVER,
    device,
    device_class,
    gpu_slice,
    resource_slice,
    taint,
    taint_rule,
)
from tests.pods import container, node_object, pod, port
from tests.scheduler.cache.objects import allocation, at, bookmark, event, record

CLAIM, POD, NODE = Kind.RESOURCE_CLAIM, Kind.POD, Kind.NODE
POOL = PoolID(GPU_DRIVER, "pool-1")


@pytest.fixture
def cache():
    made = ClusterCache()
    made.replace(NODE, [at(node_object("n2"), 1), at(node_object("n1"), 2)], 10)
    return made


def in_use(cache):
    return cache.snapshot().devices.allocated.usage(POOL).devices


def test_a_snapshot_is_the_same_object_while_nothing_changes(cache):
    first = cache.snapshot()
    assert cache.snapshot() is first
    cache.apply(bookmark(NODE, 50))
    assert cache.snapshot() is first


def test_nodes_are_in_name_order_however_they_came(cache):
    cache.apply(event(at(node_object("n0"), 11), NODE, "ADDED"))
    assert list(cache.snapshot().nodes) == ["n0", "n1", "n2"]
    cache.apply(event(at(node_object("n1"), 12), NODE, "DELETED"))
    assert list(cache.snapshot().nodes) == ["n0", "n2"]


def test_an_untouched_node_keeps_its_info_and_an_older_snapshot_its_content(cache):
    before = cache.snapshot()
    cache.apply(event(at(pod("p", node_name="n1", requests={"cpu": "2"}), 11), POD, "ADDED"))
    after = cache.snapshot()
    assert after.nodes["n2"] is before.nodes["n2"]
    assert (dict(before.nodes["n1"].requested), dict(after.nodes["n1"].requested)) == (
        {},
        {"cpu": 2000},
    )
    assert (len(before.nodes["n1"].pods), len(after.nodes["n1"].pods)) == (0, 1)
    assert after.revision > before.revision
    assert after.nodes["n1"].generation > before.nodes["n1"].generation


def test_a_pod_counts_until_it_ends_also_while_it_is_being_deleted(cache):
    bound = pod("p", node_name="n1", requests={"cpu": "2"})
    for version, change, counts in (
        (11, bound, True),
        (12, pod("p", node_name="n1", requests={"cpu": "2"}, deleted="2026-01-01T00:00:00Z"), True),
        (13, pod("p", node_name="n1", status=PodStatus(phase="Failed")), False),
    ):
        cache.apply(event(at(change, version), POD))
        assert ("uid-p" in cache.snapshot().nodes["n1"].pods) is counts


def test_a_pod_on_a_node_not_known_yet_counts_when_the_node_comes(cache):
    cache.apply(event(at(pod("p", node_name="n9", requests={"cpu": "2"}), 11), POD))
    cache.apply(event(at(node_object("n9"), 12), NODE, "ADDED"))
    assert cache.snapshot().nodes["n9"].requested == {"cpu": 2000}


def test_host_ports_are_in_use_as_long_as_one_pod_uses_them(cache):
    one = pod("a", node_name="n1", containers=[container(ports=[port(80)])])
    two = pod("b", node_name="n1", containers=[container(ports=[port(80)])])
    cache.apply(event(at(one, 11), POD))
    cache.apply(event(at(two, 12), POD))
    cache.apply(event(at(one, 13), POD, "DELETED"))
    assert cache.snapshot().nodes["n1"].ports == {HostPort(ip="0.0.0.0", protocol="TCP", port=80)}
    cache.apply(event(at(two, 14), POD, "DELETED"))
    assert cache.snapshot().nodes["n1"].ports == frozenset()


def test_an_assumed_pod_counts_until_it_is_seen_bound_anywhere(cache):
    waiting = at(pod("p", requests={"cpu": "1"}), 11)
    cache.apply(event(waiting, POD, "ADDED"))
    assert cache.pending_pods() == (waiting,)
    cache.assume_pod(waiting, "n1")
    assert cache.assumed_node("uid-p") == "n1"
    assert cache.pending_pods() == ()
    assert "uid-p" in cache.snapshot().nodes["n1"].pods
    cache.apply(event(at(pod("p", requests={"cpu": "1"}, labels={"a": "b"}), 12), POD))
    assert cache.snapshot().nodes["n1"].pods["uid-p"].metadata.labels == {"a": "b"}
    cache.apply(event(at(pod("p", requests={"cpu": "1"}, node_name="n2"), 13), POD))
    assert cache.assumed_node("uid-p") is None
    nodes = cache.snapshot().nodes
    assert ("uid-p" in nodes["n1"].pods, "uid-p" in nodes["n2"].pods) == (False, True)


def test_a_forgotten_or_deleted_assumed_pod_counts_no_more(cache):
    waiting = at(pod("p", requests={"cpu": "1"}), 11)
    cache.apply(event(waiting, POD, "ADDED"))
    cache.assume_pod(waiting, "n1")
    cache.forget_pod("uid-p")
    assert not cache.snapshot().nodes["n1"].requested
    assert cache.pending_pods() == (waiting,)
    cache.assume_pod(waiting, "n1")
    cache.apply(event(at(pod("p"), 12), POD, "DELETED"))
    assert not cache.snapshot().nodes["n1"].requested


def test_a_pod_assumed_before_the_watch_shows_it_is_dropped_with_its_deletion(cache):
    cache.replace(POD, [], 10)
    early = at(pod("p", requests={"cpu": "1"}), 11)
    cache.assume_pod(early, "n1")
    assert "uid-p" in cache.snapshot().nodes["n1"].pods
    cache.apply(event(at(pod("p"), 12), POD, "DELETED"))
    assert "uid-p" not in cache.snapshot().nodes["n1"].pods
    cache.assume_pod(early, "n1")  # a slow caller: the watch has come past this pod
    assert "uid-p" not in cache.snapshot().nodes["n1"].pods


def test_pods_are_found_by_the_claims_they_name_also_generated_ones(cache):
    cache.apply(event(at(pod("a", claims=["shared"]), 11), POD))
    cache.apply(event(at(pod("b", claims=["shared"], templates={"gpu": None}), 12), POD))
    cache.apply(event(at(pod("b", claims=["shared"], templates={"gpu": "b-gpu"}), 13), POD))
    assert [found.metadata.name for found in cache.pods_by_claim("default", "shared")] == ["a", "b"]
    assert [found.metadata.name for found in cache.pods_by_claim("default", "b-gpu")] == ["b"]
    assert cache.pods_by_claim("other", "shared") == ()
    cache.apply(event(at(pod("a"), 14), POD, "DELETED"))
    assert [found.metadata.name for found in cache.pods_by_claim("default", "shared")] == ["b"]


def test_claims_of_a_pod_are_those_that_are_known(cache):
    cache.apply(event(record("c1", 11), CLAIM))
    user = pod("a", claims=["c1", "missing"])
    assert [found.metadata.name for found in cache.claims_of_pod(user)] == ["c1"]


def test_devices_are_in_use_from_the_decision_to_the_deallocation_without_a_gap(cache):
    cache.apply(event(record("c", 11), CLAIM, "ADDED"))
    claim = cache.claim("default", "c")
    cache.hold("uid-p", {"uid-c": (claim, allocation("d1"))})
    assert cache.in_flight("uid-c") == allocation("d1")
    steps = [lambda: None]
    steps.append(lambda: cache.assume_claim(record("c", 12, "d1")))
    steps.append(lambda: cache.release("uid-p"))
    steps.append(lambda: cache.apply(event(record("c", 12, "d1"), CLAIM)))
    for step in steps:
        step()
        assert in_use(cache) == {"d1"}
    assert cache.in_flight("uid-c") is None
    cache.apply(event(record("c", 13), CLAIM))
    assert in_use(cache) == frozenset()


def test_a_hold_given_up_frees_its_devices(cache):
    cache.hold("uid-p", {"uid-c": (record("c", 1).claim, allocation("d1"))})
    cache.hold("uid-p", {"uid-c": (record("c", 1).claim, allocation("d2"))})
    assert in_use(cache) == {"d2"}
    cache.release("uid-p")
    assert in_use(cache) == frozenset()
    cache.release("uid-p")


def test_a_claim_held_by_two_pods_stays_held_until_the_second_lets_go(cache):
    claim = record("c", 1).claim
    cache.hold("uid-p", {"uid-c": (claim, allocation("d1"))})
    cache.hold("uid-q", {"uid-c": (claim, allocation("d1"))})
    cache.release("uid-p")
    assert in_use(cache) == {"d1"}
    cache.release("uid-q")
    assert in_use(cache) == frozenset()


def test_restoring_a_claim_frees_what_was_only_assumed(cache):
    cache.apply(event(record("c", 11), CLAIM, "ADDED"))
    cache.assume_claim(record("c", 12, "d1"))
    cache.restore_claim("uid-c")
    assert in_use(cache) == frozenset()
    assert cache.claim("default", "c").metadata.resource_version == "11"


def test_a_relist_without_an_allocated_claim_frees_its_devices(cache):
    cache.replace(CLAIM, [record("c", 11, "d1"), record("e", 12, "d2")], 20)
    cache.replace(CLAIM, [record("e", 12, "d2")], 30)
    assert in_use(cache) == {"d2"}


def test_a_second_claim_with_the_same_device_is_told_once_and_can_be_asked_for(cache):
    told: list[Conflict] = []
    cache.subscribe_conflicts(told.append)
    cache.apply(event(record("ours", 11, "d1"), CLAIM, "ADDED"))
    cache.apply(event(record("theirs", 12, "d1"), CLAIM, "ADDED"))
    cache.apply(event(record("theirs", 13, "d1"), CLAIM))
    [conflict] = told
    assert conflict.device == DeviceID(GPU_DRIVER, "pool-1", "d1")
    assert [c.other_is_earlier for c in cache.conflicts("uid-ours")] == [False]
    assert [c.other_is_earlier for c in cache.conflicts("uid-theirs")] == [True]
    assert len(cache.double_allocations()) == 2


def test_after_a_relist_nobody_knows_who_was_first(cache):
    cache.apply(event(record("ours", 11, "d1"), CLAIM, "ADDED"))
    cache.replace(CLAIM, [record("ours", 11, "d1"), record("theirs", 15, "d1")], 20)
    assert [c.other_is_earlier for c in cache.conflicts("uid-ours")] == [True]
    assert [c.other_is_earlier for c in cache.conflicts("uid-theirs")] == [True]


def test_listeners_hear_every_change_when_the_indexes_agree_again(cache):
    heard = []
    cache.subscribe(
        lambda change: heard.append(
            (change.kind, change.old is not None, change.new is not None, set(in_use(cache)))
        )
    )
    cache.apply(event(record("c", 11), CLAIM, "ADDED"))
    cache.assume_claim(record("c", 12, "d1"))
    cache.apply(event(record("c", 12, "d1"), CLAIM))
    cache.apply(event(record("c", 13, "d1"), CLAIM, "DELETED"))
    assert heard == [
        (CLAIM, False, True, set()),
        (CLAIM, True, True, {"d1"}),
        (CLAIM, True, False, set()),
    ]


def test_a_node_that_does_not_say_what_it_has_is_not_unlimited(cache):
    cache.apply(event(at(node_object("n3", silent=True), 11), NODE, "ADDED"))
    assert not cache.snapshot().nodes["n3"].is_unlimited
    assert cache.recount() == []


def test_progress_is_told_for_events_bookmarks_and_lists(cache):
    heard = []
    cache.subscribe_progress(lambda kind, version: heard.append((kind, version)))
    cache.apply(event(record("c", 11), CLAIM, "ADDED"))
    cache.apply(bookmark(CLAIM, 15))
    cache.replace(CLAIM, [], 20)
    assert heard == [(CLAIM, 11), (CLAIM, 15), (CLAIM, 20)]
    assert cache.resource_version(CLAIM) == 20


def test_slices_classes_and_rules_are_in_the_next_snapshot(cache):
    cache.replace(Kind.RESOURCE_SLICE, [at(gpu_slice("n1", "d1"), 11)], 20)
    cache.replace(Kind.DEVICE_CLASS, [at(device_class("gpu"), 12)], 20)
    first = cache.snapshot().devices
    assert ([s.name for s in first.slices], list(first.classes)) == (["n1-gpus"], ["gpu"])
    cache.apply(event(at(taint_rule("r", taint("sick")), 21), Kind.DEVICE_TAINT_RULE, "ADDED"))
    second = cache.snapshot().devices
    assert [t.key for t in second.slices.get("n1-gpus").slice.spec.devices[0].taints or ()] == [
        "sick"
    ]
    assert not first.slices.get("n1-gpus").slice.spec.devices[0].taints
    cache.apply(event(at(gpu_slice("n1", "d1"), 22), Kind.RESOURCE_SLICE, "DELETED"))
    cache.apply(event(at(device_class("gpu"), 23), Kind.DEVICE_CLASS, "DELETED"))
    third = cache.snapshot().devices
    assert (list(third.slices), dict(third.classes)) == ([], {})


def test_many_slices_at_once_are_indexed_in_name_order_like_one_by_one():
    slices = [
        at(
            resource_slice(
                f"s{number:03}",
                device("d"),
                pool=f"p{number}",
                all_nodes=True if number % 2 else None,
            ),
            number + 1,
        )
        for number in range(300)
    ]
    at_once, one_by_one = ClusterCache(), ClusterCache()
    at_once.replace(Kind.RESOURCE_SLICE, slices[::-1], 999)
    for item in slices:
        one_by_one.apply(event(item, Kind.RESOURCE_SLICE, "ADDED"))
        one_by_one.snapshot()
    ours, theirs = at_once.snapshot().devices.slices, one_by_one.snapshot().devices.slices
    assert [s.name for s in ours.shared] == [s.name for s in theirs.shared]
    assert [s.name for s in ours.local("node-1")] == [s.name for s in theirs.local("node-1")]


def test_a_list_older_than_what_has_been_seen_changes_nothing(cache):
    with pytest.raises(ValueError, match="older"):
        cache.replace(NODE, [], 9)
    assert len(cache.snapshot().nodes) == 2


def test_the_digest_is_that_of_a_fresh_list_of_what_was_watched(cache):
    cache.replace(CLAIM, [record("a", 11), record("b", 12)], 20)
    cache.assume_claim(record("a", 25, "d1"))
    fresh = [record("b", 12), record("a", 11)]
    assert cache.digest()[CLAIM] == digest_of(fresh)
    assert cache.digest()[CLAIM] != digest_of([record("a", 11)])
    assert cache.count(CLAIM) == 2


def test_a_wrong_index_is_found_and_made_anew(cache):
    cache.replace(CLAIM, [record("a", 11, "d1")], 20)
    cache.replace(POD, [at(pod("p", node_name="n1", requests={"cpu": "1"}), 12)], 20)
    assert cache.recount() == []
    cache._allocated.set_written("uid-a", None)
    cache._node_index.remove_pod("uid-p")
    assert len(cache.recount()) == 2
    cache.rebuild()
    assert cache.recount() == []
    assert in_use(cache) == {"d1"}
    assert "uid-p" in cache.snapshot().nodes["n1"].pods


def test_what_is_held_is_known_to_a_recount_and_after_it(cache):
    cache.apply(event(record("c", 11), CLAIM, "ADDED"))
    cache.hold("uid-p", {"uid-c": (cache.claim("default", "c"), allocation("d1"))})
    cache.snapshot()
    assert cache.recount() == []
    cache.rebuild()
    assert in_use(cache) == {"d1"}
    assert cache.recount() == []
    cache.release("uid-p")
    assert in_use(cache) == frozenset()


def test_a_hold_that_the_index_has_lost_is_found(cache):
    cache.hold("uid-p", {"uid-c": (record("c", 1).claim, allocation("d1"))})
    cache._allocated.set_held("uid-c", [])
    assert len(cache.recount()) == 1
    cache.rebuild()
    assert in_use(cache) == {"d1"}


def test_a_pod_bound_elsewhere_counts_where_it_is_and_not_where_it_was_to_go(cache):
    wanted = pod("p", requests={"cpu": "2"})
    cache.apply(event(at(wanted, 11), POD, "ADDED"))
    cache.assume_pod(cache.pod("uid-p"), "n1")
    assert list(cache.snapshot().nodes["n1"].pods) == ["uid-p"]
    cache.apply(event(at(pod("p", requests={"cpu": "2"}, node_name="n2"), 12), POD))
    nodes = cache.snapshot().nodes
    assert (list(nodes["n1"].pods), list(nodes["n2"].pods)) == ([], ["uid-p"])
    assert (dict(nodes["n1"].requested), dict(nodes["n2"].requested)) == ({}, {"cpu": 2000})
    assert cache.assumed_node("uid-p") is None
    cache.forget_pod("uid-p")
    assert list(cache.snapshot().nodes["n2"].pods) == ["uid-p"]
    assert cache.recount() == []


def test_an_event_of_a_former_pod_does_not_touch_its_successor(cache):
    cache.apply(event(at(pod("p", node_name="n1"), 11, uid="old"), POD, "ADDED"))
    cache.apply(event(at(pod("p"), 13, uid="new"), POD, "ADDED"))
    cache.apply(WatchEvent(POD, EventType.DELETED, at(pod("p", node_name="n1"), 12, uid="old"), 12))
    assert cache.pod("new") is not None
    assert cache.pod("old") is None
    assert cache.pod_by_name("default", "p").metadata.uid == "new"
    assert not cache.snapshot().nodes["n1"].pods
