"""Watches: from a version, from now, with selectors, bookmarks, and too late."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from scheduler.client import NotFoundError
from scheduler.lab.apiserver.client import EmbeddedClient
from tests.contract.api import HOLD, Api, types, with_metadata

INITIAL_END = "k8s.io/initial-events-end"


async def _version(api: Api) -> str:
    return str((await api.get(api.claims())).meta["resourceVersion"])


@asynccontextmanager
async def stirring(api: Api) -> AsyncIterator[None]:
    """Others write meanwhile, or there is nothing to tell in a bookmark: its version must be a new one."""

    async def stir() -> None:
        while True:
            await asyncio.sleep(0.01 if isinstance(api.client, EmbeddedClient) else 0.3)
            body = {"metadata": {"generateName": "stir-"}, "data": {}}
            await api.post(api.path("configmaps"), body)
            # A consistent read of the watched kind takes its cache to the newest version.
            await api.get(api.claims())

    task = asyncio.create_task(stir())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_from_a_version_shows_what_came_after(api: Api) -> None:
    await api.claim("before")
    start = await _version(api)
    made = await api.claim("a")
    changed = await api.put(api.claims("a"), with_metadata(made, labels={"a": "b"}))
    await api.delete(api.claims("a"))
    events = await api.events(api.claims(), 3, resourceVersion=start)
    assert types(events) == ["ADDED", "MODIFIED", "DELETED"]
    assert [obj["metadata"]["name"] for _, obj in events] == ["a"] * 3
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions[:2] == [made.version, changed.version]
    assert versions[2] > changed.version
    assert events[2][1]["metadata"]["labels"] == {"a": "b"}


async def test_watched_objects_say_kind_and_version(api: Api) -> None:
    start = await _version(api)
    await api.claim("a")
    [(_, obj)] = await api.events(api.claims(), 1, resourceVersion=start)
    assert (obj["kind"], obj["apiVersion"]) == ("ResourceClaim", "resource.k8s.io/v1")


async def test_a_watch_without_version_starts_with_what_is_there(api: Api) -> None:
    await api.claim("a")
    await api.claim("b")
    events = await api.events(api.claims(), 2)
    assert types(events) == ["ADDED", "ADDED"]
    assert {obj["metadata"]["name"] for _, obj in events} == {"a", "b"}


async def test_a_watch_shows_its_namespace_only(api: Api) -> None:
    start = await _version(api)
    other = f"{api.namespace}-other"
    await api.made("/api/v1/namespaces", {"metadata": {"name": other}})
    elsewhere = {"metadata": {"name": "elsewhere"}, "data": {}}
    await api.made(f"/api/v1/namespaces/{other}/configmaps", elsewhere)
    await api.made(api.path("configmaps"), {"metadata": {"name": "here"}, "data": {}})
    events = await api.events(
        api.path("configmaps"),
        1,
        resourceVersion=start,
        fieldSelector="metadata.name!=kube-root-ca.crt",
    )
    assert [obj["metadata"]["name"] for _, obj in events] == ["here"]
    await api.delete(f"/api/v1/namespaces/{other}")


async def test_a_watch_can_be_for_one_name(api: Api) -> None:
    start = await _version(api)
    await api.claim("a")
    await api.claim("b")
    events = await api.events(
        api.claims(), 1, resourceVersion=start, fieldSelector="metadata.name=b"
    )
    assert [obj["metadata"]["name"] for _, obj in events] == ["b"]


async def test_leaving_the_selection_is_a_deletion_and_entering_an_addition(api: Api) -> None:
    start = await _version(api)
    made = await api.claim("a", labels={"in": "yes"})
    out = await api.put(api.claims("a"), with_metadata(made, labels={"in": "no"}))
    await api.put(api.claims("a"), with_metadata(out, labels={"in": "yes"}))
    events = await api.events(api.claims(), 3, resourceVersion=start, labelSelector="in=yes")
    assert types(events) == ["ADDED", "DELETED", "ADDED"]
    assert events[1][1]["metadata"]["labels"] == {"in": "yes"}
    assert events[1][1]["metadata"]["resourceVersion"] == out.meta["resourceVersion"]


async def test_a_deletion_that_waits_is_a_modification(api: Api) -> None:
    start = await _version(api)
    await api.claim("a", finalizers=[HOLD])
    deleted = await api.delete(api.claims("a"))
    await api.put(api.claims("a"), with_metadata(deleted, finalizers=None))
    events = await api.events(api.claims(), 3, resourceVersion=start)
    assert types(events) == ["ADDED", "MODIFIED", "DELETED"]
    assert events[1][1]["metadata"]["deletionTimestamp"]


async def test_a_pod_that_is_deleted_at_once_is_marked_first(api: Api) -> None:
    start = await _version(api)
    await api.pod("p")
    await api.delete(api.pods("p"))
    events = await api.events(api.pods(), 3, resourceVersion=start)
    assert types(events) == ["ADDED", "MODIFIED", "DELETED"]
    assert events[1][1]["metadata"]["deletionTimestamp"]


async def test_a_watch_from_too_long_ago_is_told_so(api: Api) -> None:
    await api.claim("a")
    events = await api.events(api.claims(), 1, resourceVersion="1")
    if types(events) == ["ADDED"] and not isinstance(api.client, EmbeddedClient):
        pytest.skip("a server this young remembers everything, and forgets only after minutes")
    assert types(events) == ["ERROR"]
    assert (events[0][1]["code"], events[0][1]["reason"]) == (410, "Expired")


async def test_a_watch_ends_after_its_time(api: Api) -> None:
    start = await _version(api)
    assert await api.events(api.claims(), 1, resourceVersion=start, timeoutSeconds="1") == []


async def test_a_bookmark_tells_how_far_the_watch_is(api: Api) -> None:
    start = await _version(api)
    made = await api.claim("a")
    async with stirring(api):
        events = await api.events(
            api.claims(),
            2,
            resourceVersion=start,
            allowWatchBookmarks="true",
            timeoutSeconds="5",
        )
    assert types(events) == ["ADDED", "BOOKMARK"]
    bookmark = events[1][1]
    assert (bookmark["kind"], bookmark["apiVersion"]) == ("ResourceClaim", "resource.k8s.io/v1")
    assert int(bookmark["metadata"]["resourceVersion"]) >= made.version


async def test_no_bookmark_comes_unasked(api: Api) -> None:
    start = await _version(api)
    async with stirring(api):
        assert await api.events(api.claims(), 1, resourceVersion=start, timeoutSeconds="5") == []


async def test_a_bookmark_is_a_place_to_go_on_from(api: Api) -> None:
    start = await _version(api)
    async with stirring(api):
        events = await api.events(
            api.claims(), 1, resourceVersion=start, allowWatchBookmarks="true", timeoutSeconds="5"
        )
    assert types(events) == ["BOOKMARK"]
    await api.claim("a")
    [(kind, obj)] = await api.events(
        api.claims(), 1, resourceVersion=events[0][1]["metadata"]["resourceVersion"]
    )
    assert (kind, obj["metadata"]["name"]) == ("ADDED", "a")


async def test_a_watch_list_marks_the_end_of_what_is_there(api: Api) -> None:
    made = await api.claim("a")
    events = await api.events(
        api.claims(),
        2,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    assert types(events) == ["ADDED", "BOOKMARK"]
    meta = events[1][1]["metadata"]
    assert meta["annotations"] == {INITIAL_END: "true"}
    assert int(meta["resourceVersion"]) >= made.version


async def test_a_watch_of_all_namespaces_sees_ours(api: Api) -> None:
    start = await _version(api)
    made = await api.claim("a")
    events = await api.events(
        "/apis/resource.k8s.io/v1/resourceclaims",
        1,
        resourceVersion=start,
        fieldSelector=f"metadata.namespace={api.namespace}",
    )
    assert [obj["metadata"]["uid"] for _, obj in events] == [made.meta["uid"]]


async def test_an_older_version_can_be_watched(api: Api) -> None:
    start = await _version(api)
    await api.claim("a")
    [(_, obj)] = await api.events(api.claims(version="v1beta1"), 1, resourceVersion=start)
    assert obj["apiVersion"] == "resource.k8s.io/v1beta1"
    assert obj["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu.example.com"


async def test_a_watch_of_nonsense_is_not_found(api: Api) -> None:
    with pytest.raises(NotFoundError):
        await api.events("/api/v1/nonsense", 1, resourceVersion="0")


async def test_binding_is_seen_by_watchers_of_the_node(api: Api) -> None:
    start = await _version(api)
    await api.pod("p")
    await api.bind("p", "node-1")
    events = await api.events(
        api.pods(), 1, resourceVersion=start, fieldSelector="spec.nodeName=node-1"
    )
    assert types(events) == ["ADDED"]
