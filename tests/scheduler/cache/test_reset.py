"""A server that has gone back to an older state: what was seen, assumed and expected since is of a history that is gone."""

import pytest

from scheduler.cache.cluster import ClusterCache
from scheduler.model import Kind
from tests.pods import node_object, pod
from tests.scheduler.cache.objects import at, event, record

CLAIM = Kind.RESOURCE_CLAIM


def held(cache: ClusterCache) -> set[str]:
    pools = cache.snapshot().devices.allocated.pools
    return {device for usage in pools.values() for device in usage.devices}


def test_an_older_list_is_refused_unless_the_server_has_gone_back() -> None:
    cache = ClusterCache()
    cache.replace(CLAIM, [record("a", 900, "gpu-0")], 1000)
    with pytest.raises(ValueError, match="older"):
        cache.replace(CLAIM, [], 500)
    assert cache.replace(CLAIM, [record("b", 400, "gpu-1")], 500, is_reset=True)
    assert [claim.metadata.name for claim in cache.claims()] == ["b"]
    assert cache.resource_version(CLAIM) == 500
    assert held(cache) == {"gpu-1"}
    cache.apply(event(record("b", 501), CLAIM))
    assert held(cache) == set()


def test_the_same_version_of_another_history_is_another_object() -> None:
    cache = ClusterCache()
    cache.replace(CLAIM, [record("a", 450, "gpu-0", uid="u")], 1000)
    cache.replace(CLAIM, [record("a", 450, "gpu-1", uid="u")], 500, is_reset=True)
    assert held(cache) == {"gpu-1"}


def test_what_our_writes_returned_is_forgotten() -> None:
    cache = ClusterCache()
    cache.replace(CLAIM, [record("a", 400, uid="u")], 1000)
    cache.assume_claim(record("a", 1001, "gpu-0", uid="u"))
    cache.assume_claim(record("new", 1002, "gpu-1", uid="v"))
    assert held(cache) == {"gpu-0", "gpu-1"}
    cache.replace(CLAIM, [record("a", 400, uid="u")], 500, is_reset=True)
    assert (held(cache), cache.assumed_claims) == (set(), 0)
    assert cache.claim_by_uid("v") is None
    cache.apply(event(record("a", 501, "gpu-2", uid="u"), CLAIM))
    assert held(cache) == {"gpu-2"}
    assert cache.recount() == []


def test_who_was_first_is_not_known_of_a_history_that_is_gone() -> None:
    """Both give way then, as after any list: a guess could let both stay."""
    cache = ClusterCache()
    cache.replace(CLAIM, [], 10)
    cache.apply(event(record("late", 900, "gpu-0", uid="u"), CLAIM))
    cache.replace(CLAIM, [record("late", 400, "gpu-0", uid="u")], 500, is_reset=True)
    cache.apply(event(record("new", 510, "gpu-0", uid="v"), CLAIM))
    (conflict,) = cache.conflicts("v")
    assert conflict.other_is_earlier


def test_pods_that_were_being_bound_wait_again() -> None:
    cache = ClusterCache()
    cache.replace(Kind.NODE, [at(node_object("n1", allocatable={"cpu": "4"}), 1)], 1)
    waiting = at(pod("p", requests={"cpu": "1"}), 400, "u")
    unseen = at(pod("q", requests={"cpu": "1"}), 1_100, "v")
    cache.replace(Kind.POD, [waiting], 1000)
    cache.assume_pod(waiting, "n1")
    cache.assume_pod(unseen, "n1")
    assert cache.snapshot().nodes["n1"].requested == {"cpu": 2000}
    cache.replace(Kind.POD, [waiting], 500, is_reset=True)
    assert cache.snapshot().nodes["n1"].requested == {}
    assert [each.metadata.name for each in cache.pending_pods()] == ["p"]
    assert cache.recount() == []


@pytest.mark.parametrize("is_reset", [True, False])
def test_a_list_tells_whether_it_showed_anything_new(*, is_reset: bool) -> None:
    cache = ClusterCache()
    assert cache.replace(CLAIM, [record("a", 3, uid="u")], 10)
    assert not cache.replace(CLAIM, [record("a", 3, uid="u")], 12, is_reset=is_reset)
    assert cache.replace(CLAIM, [record("a", 4, uid="u")], 13, is_reset=is_reset)
    assert cache.replace(CLAIM, [], 14, is_reset=is_reset)
    assert not cache.replace(CLAIM, [], 15, is_reset=is_reset)
