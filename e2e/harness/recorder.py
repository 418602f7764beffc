"""Records every version of the claims and pods that the API server ever showed, and judges each."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from e2e.harness import judge
from e2e.harness.api import CLAIMS, PODS, Api, Object, Resource


@dataclass(frozen=True)
class Change:
    """One watch event."""

    type: str
    kind: str
    object: Object

    @property
    def revision(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])


@dataclass
class Recorder:
    """Holds the changes since it was started, in the API server's order."""

    changes: list[Change] = field(default_factory=list)
    _start: list[Change] = field(default_factory=list)

    def versions(self, kind: Resource, name: str) -> list[Object]:
        """Returns every version of one object, by name, in order."""
        return [
            change.object
            for change in self._ordered()
            if change.kind == kind.kind and change.object["metadata"]["name"] == name
        ]

    def allocations(self, name: str) -> list[Object]:
        """Returns the allocations that a claim went through: one entry for each new one."""
        seen: list[Object] = []
        previous: Object | None = None
        for version in self.versions(CLAIMS, name):
            allocation = version.get("status", {}).get("allocation")
            if allocation is not None and allocation != previous:
                seen.append(allocation)
            previous = allocation
        return seen

    def findings(self) -> list[judge.Finding]:
        """Judges every revision: devices once (S1), finalizer first (S7), no bare allocation (S10)."""
        return sorted(set(self._findings()), key=lambda finding: finding.subject)

    def _findings(self) -> Iterator[judge.Finding]:
        claims: dict[str, Object] = {}
        holders: dict[judge.Device, set[str]] = defaultdict(set)
        for change in [*self._start, *self._ordered()]:
            if change.kind != CLAIMS.kind:
                continue
            uid = change.object["metadata"]["uid"]
            before = claims.pop(uid, None)
            for device in judge.devices_of(before or {}):
                holders[device].discard(uid)
            if change.type == "DELETED":
                continue
            claims[uid] = change.object
            if before is not None:
                yield from judge.newly_allocated(before, change.object)
            concerned = {uid}
            for device in judge.devices_of(change.object):
                holders[device].add(uid)
                concerned |= holders[device]
            yield from judge.exclusive(claims[each] for each in sorted(concerned))

    def _ordered(self) -> list[Change]:
        return sorted(self.changes, key=lambda change: change.revision)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, api: Api, namespace: str) -> AsyncIterator[Recorder]:
        """Records claims and pods of one namespace while the context is open."""
        recorder = cls()
        tasks = []
        for kind in (CLAIMS, PODS):
            listing = await api.request("GET", kind.path(namespace))
            for item in listing["items"] or []:
                recorder._start.append(Change("ADDED", kind.kind, item))
            version = listing["metadata"]["resourceVersion"]
            tasks.append(asyncio.create_task(recorder._follow(api, kind, namespace, version)))
        try:
            yield recorder
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, api: Api, kind: Resource, namespace: str, version: str) -> None:
        while True:
            async for event, item in api.watch(kind, namespace, version):
                if event == "ERROR":
                    raise RuntimeError(f"watch of {kind.plural}: {item}")
                version = item["metadata"]["resourceVersion"]
                self.changes.append(Change(event, kind.kind, item))
