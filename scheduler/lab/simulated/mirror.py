"""What the simulated controllers share: writes as values, a mirror of the cluster, and a loop that reconciles it.

They use the client protocol and the clock alone, so that they work on the embedded server and on a real one.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from scheduler.client import (
    APPLY_PATCH,
    JSON,
    STRATEGIC_MERGE_PATCH,
    ApiClient,
    ApiError,
    Committed,
    GoneError,
    UnavailableError,
)
from scheduler.clock import Clock
from scheduler.lab.simulated import tolerant_json

Json = dict[str, Any]

PAGE_SIZE: Final = 500
RESYNC_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 0.5
WATCH_SECONDS: Final = 300

NAMESPACES: Final = "/api/v1/namespaces"
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
TEMPLATES: Final = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
JOBS: Final = "/apis/batch/v1/jobs"
DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
EVENTS: Final = "/api/v1/events"


def name(obj: Json) -> str:
    """`metadata.name`."""
    return str(obj["metadata"]["name"])


def namespace(obj: Json) -> str:
    """`metadata.namespace`, or empty."""
    return str(obj["metadata"].get("namespace", ""))


def uid(obj: Json) -> str:
    """`metadata.uid`."""
    return str(obj["metadata"]["uid"])


def key(obj: Json) -> tuple[str, str]:
    """Namespace and name."""
    return namespace(obj), name(obj)


def is_deleting(obj: Json) -> bool:
    """Whether it has a deletionTimestamp."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_terminal(pod: Json) -> bool:
    """Whether a pod has ended for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def controller_of(obj: Json) -> Json | None:
    """The owner reference that controls an object."""
    owners: list[Json] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def collection(resource: str, in_namespace: str) -> str:
    """Path of a resource in a namespace; of cluster-scoped resources (no namespace) the path itself."""
    if not in_namespace:
        return resource
    prefix, _, plural = resource.rpartition("/")
    return f"{prefix}/namespaces/{in_namespace}/{plural}"


def path_of(resource: str, obj: Json) -> str:
    """Path of an object."""
    return f"{collection(resource, namespace(obj))}/{name(obj)}"


class Api:
    """Reads that answer None for what is not there, writes that answer None for what did not happen."""

    def __init__(self, client: ApiClient) -> None:
        """Remember the client."""
        self.client = client

    async def get(self, path: str) -> Json | None:
        """An object, or None when there is none.

        Raises:
            ApiError: the server refused for another reason.
            UnavailableError: no usable answer.
        """
        try:
            found: Json = tolerant_json.loads(await self.client.get(path))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    async def list(self, path: str) -> tuple[list[Json], str]:
        """All objects of a collection, and the resourceVersion of the list.

        Raises:
            ApiError: the server refused.
            UnavailableError: no usable answer.
        """
        items: list[Json] = []
        query = {"limit": str(PAGE_SIZE)}
        while True:
            page = tolerant_json.loads(await self.client.get(path, query))
            items.extend(page["items"] or ())
            token = page["metadata"].get("continue")
            if not token:
                return items, page["metadata"]["resourceVersion"]
            query = {"limit": str(PAGE_SIZE), "continue": token}

    async def create(self, path: str, obj: Json) -> Json | None:
        """POST to a collection."""
        return await self._write("POST", path, obj)

    async def put(self, path: str, obj: Json) -> Json | None:
        """PUT an object."""
        return await self._write("PUT", path, obj)

    async def patch(self, path: str, patch: Json) -> Json | None:
        """Strategic merge patch."""
        return await self._write("PATCH", path, patch, STRATEGIC_MERGE_PATCH)

    async def apply(self, path: str, obj: Json, manager: str) -> Json | None:
        """Server-side apply, by force."""
        query = {"fieldManager": manager, "force": "true"}
        return await self._write("PATCH", path, obj, APPLY_PATCH, query)

    async def delete(self, path: str, obj: Json, options: Mapping[str, Any] | None = None) -> bool:
        """DELETE exactly this object; True also when it is gone already."""
        body = {"preconditions": {"uid": uid(obj)}, **(options or {})}
        outcome = await self.client.write("DELETE", path, tolerant_json.dumps(body))
        return isinstance(outcome, Committed) or getattr(outcome, "status", 0) == 404

    async def _write(
        self,
        method: str,
        path: str,
        obj: Json,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Json | None:
        body = tolerant_json.dumps(obj)
        outcome = await self.client.write(
            method, path, body, content_type=content_type, query=query
        )
        if not isinstance(outcome, Committed):
            return None
        stored: Json = tolerant_json.loads(outcome.body)
        return stored


class Mirror:
    """Objects of some resources as last seen; newer ones win, whatever way they come."""

    def __init__(self, api: Api, clock: Clock, resources: tuple[str, ...]) -> None:
        """Start empty.

        Args:
            api: to list and watch.
            clock: for pauses after failures.
            resources: paths of the collections, over all namespaces.
        """
        self.changed = asyncio.Event()
        self._api = api
        self._clock = clock
        self._objects: dict[str, dict[tuple[str, str], Json]] = {path: {} for path in resources}

    def objects(self, resource: str) -> list[Json]:
        """All objects in the order of their keys."""
        held = self._objects[resource]
        return [held[position] for position in sorted(held)]

    def find(self, resource: str, in_namespace: str, called: str) -> Json | None:
        """An object by name."""
        return self._objects[resource].get((in_namespace, called))

    def observe(self, resource: str, obj: Json) -> None:
        """Take an object over, unless a newer one is known."""
        held = self._objects[resource].get(key(obj))
        if held is None or uid(held) != uid(obj) or _version(held) < _version(obj):
            self._objects[resource][key(obj)] = obj
            self.changed.set()

    def forget(self, resource: str, obj: Json) -> None:
        """An object is gone."""
        held = self._objects[resource].get(key(obj))
        if held is not None and uid(held) == uid(obj):
            del self._objects[resource][key(obj)]
            self.changed.set()

    async def refresh(self) -> None:
        """List everything.

        Raises:
            ApiError: the server refused.
            UnavailableError: no usable answer.
        """
        for resource in self._objects:
            await self._list(resource)

    async def follow(self) -> None:
        """Keep current for ever."""
        async with asyncio.TaskGroup() as tasks:
            for resource in self._objects:
                tasks.create_task(self._follow(resource))

    async def _list(self, resource: str) -> str:
        items, version = await self._api.list(resource)
        listed = {key(obj): obj for obj in items}
        for known in self.objects(resource):
            if key(known) not in listed:
                self.forget(resource, known)
        for obj in items:
            self.observe(resource, obj)
        self.changed.set()
        return version

    async def _follow(self, resource: str) -> None:
        while True:
            with suppress(ApiError, UnavailableError):
                version = await self._list(resource)
                while True:
                    version = await self._watch(resource, version)
            await self._clock.sleep(RETRY_SECONDS)

    async def _watch(self, resource: str, version: str) -> str:
        query = {
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with self._api.client.watch(resource, query) as lines:
            async for line in lines:
                event = tolerant_json.loads(line)
                version = self._take(resource, event["type"], event["object"])
        return version

    def _take(self, resource: str, event: str, obj: Json) -> str:
        if event == "ERROR":
            raise GoneError(obj.get("code", 410), obj.get("reason", ""), obj.get("message", ""))
        if event == "DELETED":
            self.forget(resource, obj)
        elif event in ("ADDED", "MODIFIED"):
            self.observe(resource, obj)
        return str(obj["metadata"]["resourceVersion"])


def _version(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


class Controller(ABC):
    """Reconciles the cluster with the desired state, in a loop."""

    resources: tuple[str, ...] = ()

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        """Remember the client.

        Args:
            client: of any API server.
            clock: for pauses and timestamps.
        """
        self.api = Api(client)
        self.clock = clock
        self.mirror = Mirror(self.api, clock, self.resources)

    @abstractmethod
    async def reconcile(self) -> None:
        """Look at everything in the mirror and write what is needed; what fails is tried again next time."""

    def next_due(self) -> float | None:
        """Seconds until there is something to do even if nothing changes; None: nothing."""
        return None

    async def sync_once(self) -> None:
        """List everything, then reconcile once: a step for tests that must not depend on timing.

        Raises:
            ApiError: the server refused a list.
            UnavailableError: no usable answer.
        """
        await self.mirror.refresh()
        self.mirror.changed.clear()
        await self.reconcile()

    async def run(self) -> None:
        """Follow the cluster for ever; ends by cancellation."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.mirror.follow())
            while True:
                due = self.next_due()
                await _wait(
                    self.mirror.changed,
                    self.clock,
                    RESYNC_SECONDS if due is None else min(due, RESYNC_SECONDS),
                )
                self.mirror.changed.clear()
                with suppress(ApiError, UnavailableError):
                    await self.reconcile()


async def _wait(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Wait for an event, but not for longer than that."""
    waiting: set[asyncio.Task[Any]] = {
        asyncio.ensure_future(event.wait()),
        asyncio.ensure_future(clock.sleep(seconds)),
    }
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def referents(obj: Json) -> Iterator[Json]:
    """Owner references of an object."""
    yield from obj["metadata"].get("ownerReferences") or ()
