"""Records a cluster for the judge of `tests.invariants`: every version of every object, and what we asked for.

Objects are watched at the API server itself, never through a fault proxy. Who wrote a version is known from the
answers that passed a replica's proxy: each holds the resourceVersion that its write was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import orjson

from e2e.harness.api import (
    CLAIMS,
    CLASSES,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    TAINT_RULES,
    Api,
    ApiError,
    Resource,
)
from e2e.harness.proxy import Call, FaultProxy, Reply
from tests.invariants import Change, Entry, Finding, Judge, Mark, Sent, Terms, write_trace

KINDS = (PODS, CLAIMS, SLICES, CLASSES, TAINT_RULES, NODES, NAMESPACES, LEASES)
# What our process keeps, by the name that it has in /debug/state.
CACHED = {
    "POD": PODS,
    "NODE": NODES,
    "RESOURCE_CLAIM": CLAIMS,
    "RESOURCE_SLICE": SLICES,
    "DEVICE_CLASS": CLASSES,
    "DEVICE_TAINT_RULE": TAINT_RULES,
}
LATE_SECONDS = 0.3
AGAIN_SECONDS = 0.2
WRITES = {"POST", "PUT", "PATCH"}


class History:
    """What happened since it was started."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._changes: list[tuple[float, str, str, dict[str, Any]]] = []
        self._rest: list[Entry] = []
        self._author: dict[int, str] = {}
        self._seen: dict[str, int] = {}
        self._nodes: dict[str, str] = {}
        self._heard: list[Entry] = []
        self._last: dict[str, dict[str, dict[str, Any]]] = {kind.kind: {} for kind in KINDS}
        self._moved = asyncio.Event()
        self.bound_by = "dra-scheduler"
        self.excuse = ""  # for refusals that no proxy made: they count as injected

    def listen(self, proxy: FaultProxy, author: str) -> None:
        """Takes what a replica asks for from its proxy."""

        def told(call: Call, reply: Reply, fault: str) -> None:
            self._sent(call, reply, fault, author)

        proxy.listeners.append(told)

    def blame(self, revision: int, author: str) -> None:
        """Says who made a write."""
        # A write that changes nothing answers with the version of whoever wrote last.
        self._author.setdefault(revision, author)

    def mark(self, name: str, **facts: Any) -> None:
        """Writes down what the run itself does."""
        self._rest.append(Mark(self._now(), name, facts))

    def hear(self, judge: Judge) -> list[Finding]:
        """Tells a judge what is new since the last time, in the API server's order; returns what it finds."""
        before = len(judge.findings)
        for entry in self._new():
            self._heard.append(entry)
            judge.take(entry)
        return judge.findings[before:]

    def store(self, path: Path, terms: Terms) -> None:
        """Keeps what was heard, to be judged again: `python -m tests.simulation.judge FILE`."""
        plan = Mark(0.0, "plan", {"terms": msgspec.to_builtins(terms)})
        write_trace(path, [plan, *self._heard])

    def _new(self) -> list[Entry]:
        changes, self._changes = self._changes, []
        rest, self._rest = self._rest, []
        found: list[Entry] = []
        at = self._heard[-1].at if self._heard else float("-inf")
        for when, type_, kind, obj in sorted(changes, key=lambda each: _revision(each[3])):
            at = max(at, when)  # watches of different kinds are not in step
            author = self._author.get(_revision(obj), "")
            if kind == PODS.kind:
                uid, node = obj["metadata"]["uid"], obj["spec"].get("nodeName") or ""
                if uid in self._nodes and node and not self._nodes[uid]:
                    author = self.bound_by  # the answer to a Binding names no version
                self._nodes[uid] = node
            found.append(Change(at, _revision(obj), type_, kind, obj, author))
        # Stable: changes stay in their order.
        return sorted([*found, *rest], key=lambda entry: entry.at)

    async def caught_up(self, timeout_seconds: float = 60.0) -> None:
        """Waits until everything that is there now has been recorded, and a moment for what is gone."""
        async with asyncio.timeout(timeout_seconds):
            for kind in KINDS:
                for item in await self._api.objects(kind):
                    while self._seen.get(item["metadata"]["uid"], 0) < _revision(item):
                        self._moved.clear()
                        await self._moved.wait()
        await asyncio.sleep(LATE_SECONDS)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, api: Api) -> AsyncIterator[History]:
        """Records while the context is open."""
        history = cls(api)
        tasks = []
        for kind in KINDS:
            listing = await api.request("GET", kind.path())
            for item in listing["items"] or []:
                history._take("ADDED", kind, item)
            version = listing["metadata"]["resourceVersion"]
            tasks.append(asyncio.create_task(history._follow(kind, version)))
        try:
            yield history
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    raise result

    async def _follow(self, kind: Resource, version: str) -> None:
        while True:
            try:
                async for event, item in self._api.watch(kind, None, version):
                    if event == "ERROR":
                        version = await self._catch_up_by_list(kind)
                        break
                    version = item["metadata"]["resourceVersion"]
                    self._take(event, kind, item)
            except (aiohttp.ClientError, OSError, ApiError, TimeoutError):
                await asyncio.sleep(AGAIN_SECONDS)  # the server itself may be what is taken down

    async def _catch_up_by_list(self, kind: Resource) -> str:
        """After a restart the server may not remember far enough back: what happened between is lost."""
        listing = await self._api.request("GET", kind.path())
        version: str = listing["metadata"]["resourceVersion"]
        there = set()
        for item in listing["items"] or []:
            there.add(item["metadata"]["uid"])
            if self._seen.get(item["metadata"]["uid"], 0) < _revision(item):
                self._take("MODIFIED", kind, item)
        for uid, last in list(self._last[kind.kind].items()):
            if uid not in there:
                metadata = {**last["metadata"], "resourceVersion": version}
                self._take("DELETED", kind, {**last, "metadata": metadata})
        return version

    def _take(self, type_: str, kind: Resource, item: dict[str, Any]) -> None:
        item["metadata"].pop("managedFields", None)
        uid = item["metadata"]["uid"]
        self._changes.append((self._now(), type_, kind.kind, item))
        self._seen[uid] = _revision(item)
        if type_ == "DELETED":
            self._last[kind.kind].pop(uid, None)
        else:
            self._last[kind.kind][uid] = item
        self._moved.set()

    def _sent(self, call: Call, reply: Reply, fault: str, author: str) -> None:
        reason, message = "", ""
        if reply.status == 403:
            fault = fault or self.excuse
        body: Any = None
        if call.method in WRITES or reply.status >= 400:
            with contextlib.suppress(orjson.JSONDecodeError):
                body = orjson.loads(reply.body)
        if isinstance(body, dict):
            if reply.status >= 400:
                reason, message = str(body.get("reason", "")), str(body.get("message", ""))
            elif reply.is_success and call.method in WRITES:
                version = str((body.get("metadata") or {}).get("resourceVersion") or "")
                if version.isdecimal():
                    self.blame(int(version), author)
        method = "WATCH" if call.is_watch else call.method
        self._rest.append(
            Sent(self._now(), author, method, call.path, reply.status, reason, message, fault)
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _revision(item: dict[str, Any]) -> int:
    return int(item["metadata"]["resourceVersion"])


async def digests(api: Api) -> dict[str, str]:
    """What the digests in /debug/state have to be: a hash over UID and version of all objects of a kind."""
    found = {}
    for name, kind in CACHED.items():
        items: Sequence[dict[str, Any]] = await api.objects(kind)
        lines = sorted(
            f"{item['metadata']['uid']} {item['metadata']['resourceVersion']}" for item in items
        )
        found[name] = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return found
