"""A cluster from lists: what is in the cache, and what touching a node changes."""

from itertools import count

import pytest

from allocator.model.devices import ResourceSlice
from scheduler.model import ClaimRecord, Kind, Pod
from scheduler.offline.listed import PAGE_SIZE, ListedCluster, pages
from scheduler.offline.synthetic import SyntheticCluster, synthetic_lists
from tests.builders import claim, device_class, gpu_slice, request, resource_slice
from tests.pods import node_object, pod


def timer():
    """Each look at the clock is a second after the one before."""
    return count().__next__


def names_of(cluster: ListedCluster, node: str) -> list[str]:
    """Devices of a node as decisions see them."""
    local = cluster.cache.snapshot().devices.slices.local(node)
    return [each.name for prepared in local for each in prepared.slice.spec.devices or ()]


def labels_of(cluster: ListedCluster, node: str) -> dict[str, str]:
    return cluster.cache.snapshot().nodes[node].node.metadata.labels or {}


def test_a_synthetic_cluster_is_what_was_asked_for():
    cluster = ListedCluster(synthetic_lists(nodes=3, devices=2, pods=4), timer())
    assert cluster.names == ["node-00000", "node-00001", "node-00002"]
    assert (cluster.devices, cluster.objects) == (6, 3 + 3 + 4 + 4 + 1)
    assert names_of(cluster, "node-00001") == ["gpu-0", "gpu-1"]
    assert [each.metadata.name for each in cluster.cache.pending_pods()] == [
        f"pod-{index}" for index in range(4)
    ]
    assert cluster.cache.claim("default", "pod-3") is not None


def test_no_two_devices_have_the_same_uuid():
    cluster = ListedCluster(synthetic_lists(nodes=2, devices=2), timer())
    uuids = [
        (each.attributes or {})["uuid"].string
        for name in cluster.names
        for prepared in cluster.cache.snapshot().devices.slices.local(name)
        for each in prepared.slice.spec.devices or ()
    ]
    assert len(uuids) == len(set(uuids)) == 4


def test_lists_come_in_pages_and_are_used_up():
    lists = {Kind.NODE: pages(Kind.NODE, [node_object(f"n{i}") for i in range(PAGE_SIZE + 1)])}
    assert len(lists[Kind.NODE]) == 2
    cluster = ListedCluster(lists, timer())
    assert cluster.names == [f"n{i}" for i in range(PAGE_SIZE + 1)]
    assert lists == {Kind.NODE: []}


def test_decoding_is_timed_page_by_page_and_indexing_kind_by_kind():
    lists = {Kind.NODE: pages(Kind.NODE, [node_object(f"n{i}") for i in range(PAGE_SIZE + 1)])}
    cluster = ListedCluster(lists, timer())
    assert cluster.decode_seconds == 2  # two pages
    assert cluster.index_seconds == 2  # one kind, and the snapshot


OBJECTS = [
    (Kind.NODE, node_object("n1", allocatable={"cpu": "4", "memory": "1Gi"})),
    (Kind.POD, pod("p", claims=["c"], requests={"cpu": "100m"}, labels={"a": "b"})),
    (Kind.RESOURCE_CLAIM, claim("c", request(count=2, capacity={"memory": "10Gi"}))),
    (Kind.RESOURCE_SLICE, gpu_slice("n1", "gpu-0", memory="80Gi", model="H100", fast=True, numa=1)),
    (Kind.DEVICE_CLASS, device_class("gpu", "device.driver == 'x'", config=["parameters"])),
]


@pytest.mark.parametrize(("kind", "item"), OBJECTS, ids=lambda value: str(value)[:14])
def test_objects_come_out_of_a_page_as_they_went_in(kind, item):
    cluster = ListedCluster({kind: pages(kind, [item])}, timer())
    (found,) = cluster.cache._stores[kind]
    assert (found.claim if isinstance(found, ClaimRecord) else found) == item


def test_an_object_that_cannot_be_read_is_an_error():
    with pytest.raises(ValueError, match="Node/x"):
        ListedCluster(
            {Kind.NODE: pages(Kind.NODE, [{"metadata": {"name": "x", "uid": 3}}])}, timer()
        )


def test_a_touched_node_loses_a_device_and_gets_it_back():
    cluster = SyntheticCluster(2, timer(), devices=3)
    name, other = cluster.names
    cluster.touch(name)
    assert names_of(cluster, name) == ["gpu-0", "gpu-1"]
    assert names_of(cluster, other) == ["gpu-0", "gpu-1", "gpu-2"]
    cluster.touch(name)
    assert names_of(cluster, name) == ["gpu-0", "gpu-1", "gpu-2"]


def test_restoring_makes_all_nodes_as_they_were():
    cluster = SyntheticCluster(3, timer(), devices=2)
    before = [names_of(cluster, name) for name in cluster.names]
    for name in [*cluster.names, cluster.names[0]]:
        cluster.touch(name)
    cluster.restore()
    assert [names_of(cluster, name) for name in cluster.names] == before


def test_touching_a_node_with_one_device_or_none_of_its_own():
    shared = resource_slice("shared", pool="p", node=None, all_nodes=True)
    lists = {
        Kind.NODE: pages(Kind.NODE, [node_object("one"), node_object("none")]),
        Kind.RESOURCE_SLICE: pages(Kind.RESOURCE_SLICE, [gpu_slice("one", "gpu-0"), shared]),
    }
    cluster = ListedCluster(lists, timer())
    labels = labels_of(cluster, "none")
    cluster.touch("one")
    cluster.touch("none")
    assert names_of(cluster, "one") == []
    assert labels_of(cluster, "none") != labels
    cluster.restore()
    assert names_of(cluster, "one") == ["gpu-0"]
    assert labels_of(cluster, "none") == labels
    with pytest.raises(KeyError):
        cluster.touch("nowhere")


def test_pods_are_added_one_by_one_with_their_claims():
    cluster = SyntheticCluster(1, timer())
    added = cluster.add_pod("p")
    assert isinstance(added, Pod)
    assert [each.metadata.name for each in cluster.cache.pending_pods()] == ["p"]
    (found,) = cluster.cache.claims_of_pod(added)
    assert found.metadata.name == "p"


def test_every_event_is_newer_than_all_before():
    cluster = SyntheticCluster(1, timer())
    versions = [cluster.cache.resource_version(kind) for kind in (Kind.POD, Kind.RESOURCE_SLICE)]
    cluster.add_pod("p")
    cluster.touch(cluster.names[0])
    after = [cluster.cache.resource_version(kind) for kind in (Kind.POD, Kind.RESOURCE_SLICE)]
    assert versions == [1, 1]
    assert after[0] > 1
    assert after[1] > after[0]


def test_slices_can_be_published_with_fewer_devices():
    cluster = SyntheticCluster(1, timer())
    (name,) = cluster.names
    cluster.set_devices(name, 2)
    assert names_of(cluster, name) == ["gpu-0", "gpu-1"]
    cluster.set_devices(name, None)
    assert len(names_of(cluster, name)) == 8
    assert isinstance(cluster._slices[name], ResourceSlice)
