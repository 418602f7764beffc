"""Bugs put into the application on purpose: the test of the tests. Each must be found within 500 seeds.

    python -m tests.simulation.planted               all of them, with the number of seeds each took
    python -m tests.simulation.planted no-finalizer --seeds 50

A bug changes what the application does at one of its outer edges: what it sends, what it is told, what its cache says.
It counts as found when a run breaks one of the rules that the bug must break, and the same seed without it does not.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

import msgspec

from allocator import pools
from allocator.model.claims import ResourceClaim
from scheduler.binder import Binder, ClaimWriter, PodWriter
from scheduler.binder.edits import Deallocation
from scheduler.binder.outcome import BindError
from scheduler.binder.requests import send
from scheduler.bootstrap.process import Process
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent
from scheduler.client import PROTOBUF, Committed, Rejected, Unknown
from scheduler.engine.engine import Engine
from scheduler.extender.service import ExtenderService, FilterAnswer
from scheduler.extender.wakeup import WakeUp
from scheduler.framework.environment import Mode
from scheduler.lab.apiserver import opaque
from scheduler.lab.apiserver.requests import Request
from scheduler.leader import LeaderElector
from scheduler.model import EPOCH_ANNOTATION, FINALIZER, ClaimRecord, Kind
from scheduler.reflectors.reflector import Reflector
from scheduler.scheduling_queue import SchedulingQueue
from scheduler.standalone.reports import Reports
from tests.simulation.chaos import write_name
from tests.simulation.network import Wire
from tests.simulation.plan import Plan, make_plan
from tests.simulation.run import with_fixed_hashes
from tests.simulation.world import OURS, collect_garbage, quiet_interpreter, run_plan

MOST_SEEDS: Final = 500


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug.

    Attributes:
        text: what is wrong.
        rules: those that it breaks; one of them must be found broken.
        plant: puts it in, until the block ends.
        faults: kinds without which it cannot show; they are switched on.
        liveness: whether it shows only in what does not happen.
        mode: in which it can be seen; None: both.
        drivers: kinds of devices that it needs.
    """

    text: str
    rules: frozenset[str]
    plant: Callable[[ExitStack], None]
    faults: tuple[str, ...] = ()
    liveness: bool | None = None
    mode: Mode | None = None
    drivers: tuple[str, ...] = ()
    replicas: int = 0


PLANTED: Final[dict[str, Planted]] = {}


def planted(
    name: str, text: str, rules: str, **options: Any
) -> Callable[[Callable[[ExitStack], None]], Callable[[ExitStack], None]]:
    """Register a bug."""

    def register(plant: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
        PLANTED[name] = Planted(text, frozenset(rules.split()), plant, **options)
        return plant

    return register


def _replace(stack: ExitStack, owner: Any, name: str, new: Any) -> None:
    stack.enter_context(patch.object(owner, name, new))


def _on_write(stack: ExitStack, change: Callable[[str, str, Any], Any]) -> None:
    """Change bodies that we send: `change(name of the write, method, document)` returns another document."""
    write = Wire.write

    async def changed(self: Wire, method: str, path: str, body: bytes, **options: Any) -> Any:
        is_json = options.get("content_type") != PROTOBUF
        if self.identity.startswith(OURS) and body and is_json:
            name = write_name(Request(method, path, {}, body))
            if name:
                document = change(name, method, opaque.decode("ResourceClaim", body))
                body = opaque.encode(document)
        return await write(self, method, path, body, **options)

    _replace(stack, Wire, "write", changed)


# --- writing claims ---------------------------------------------------------------------------------------------------


@planted("no-finalizer", "claims are allocated without their finalizer", "S7")
def _(stack: ExitStack) -> None:
    def change(name: str, _method: str, document: Any) -> Any:
        if name == "finalizer":
            meta = document["metadata"]
            meta["finalizers"] = [each for each in meta.get("finalizers", ()) if each != FINALIZER]
        return document

    _on_write(stack, change)


@planted("no-reservation", "a claim is allocated in one write and reserved never", "S10 S5")
def _(stack: ExitStack) -> None:
    def change(name: str, _method: str, document: Any) -> Any:
        if name == "allocate":
            document["status"].pop("reservedFor", None)
        return document

    _on_write(stack, change)


@planted(
    "spec-changed",
    "claims are written back in other bytes, and what is refused for that is tried again as it is",
    "S12 L1 L7",
    faults=("odd objects",),
)
def _(stack: ExitStack) -> None:
    from scheduler.binder import claims, requests

    for module in (claims, requests):
        _replace(stack, module, "may_be_refused", lambda *_: False)
    _replace(stack, requests, "may_rewrite", lambda *_: False)


@planted(
    "labels-lost", "labels of a claim are lost when it is written", "S12", faults=("odd objects",)
)
def _(stack: ExitStack) -> None:
    def change(name: str, _method: str, document: Any) -> Any:
        if name == "finalizer":
            document["metadata"].pop("labels", None)
        return document

    _on_write(stack, change)


@planted(
    "released-on-unknown",
    "a write without an answer is taken for one that did not happen",
    "S1 S2 S3 S1b S9 L4",
    faults=("F4 late commit", "F4 answer lost"),
)
def _(stack: ExitStack) -> None:
    async def send_once(self: ClaimWriter, claim: Any, request: Any) -> Any:
        del claim
        if request is None:
            return Rejected(409, "Conflict", "")
        answer = await send(self.client, request)
        return (
            Rejected(403, "Forbidden", "taken for a no") if isinstance(answer, Unknown) else answer
        )

    _replace(stack, ClaimWriter, "_send", send_once)

    async def undo(self: Binder, chain: Any, touched: Any) -> None:
        """Believes that there is nothing to take back."""

    _replace(stack, Binder, "_undo", undo)


@planted("unreserved-of-all", "giving a claim back takes the reservations of others along", "S9 S5")
def _(stack: ExitStack) -> None:
    def change(name: str, _method: str, document: Any) -> Any:
        if name == "release" or (name == "allocate" and len(document["status"]["reservedFor"]) > 1):
            document["status"].pop("allocation", None)
            document["status"]["reservedFor"] = []
        return document

    _on_write(stack, change)


@planted("two-timestamps", "an allocation is written without its time", "timestamp")
def _(stack: ExitStack) -> None:
    def change(name: str, _method: str, document: Any) -> Any:
        if name == "allocate":
            document["status"].get("allocation", {}).pop("allocationTimestamp", None)
        return document

    _on_write(stack, change)


@planted(
    "no-holds",
    "devices are not held between the decision and the write",
    "S1 S2 S3",
    faults=("slow server",),
)
def _(stack: ExitStack) -> None:
    _replace(stack, ClusterCache, "hold", lambda *_: None)


@planted("holds-for-ever", "devices of a failed bind are never let go", "L5 L1", liveness=True)
def _(stack: ExitStack) -> None:
    _replace(stack, ClusterCache, "release", lambda *_: None)


@planted(
    "no-recheck-after-write",
    "nobody looks whether another allocator was faster (W3)",
    "S1b S2 S3",
    faults=("F18 two active",),
    replicas=2,
)
def _(stack: ExitStack) -> None:
    async def nothing(*_: Any) -> None:
        pass

    _replace(stack, Binder, "_check_alone", nothing)


@planted("bound-before-written", "the pod is bound while its claims are still being written", "S5")
def _(stack: ExitStack) -> None:
    reserve = ClaimWriter.reserve
    tasks = set()

    async def early(
        self: ClaimWriter, claim: ResourceClaim, pod: Any, *args: Any, **kw: Any
    ) -> Any:
        async def late() -> None:
            await self.clock.sleep(0.05)
            await reserve(self, claim, pod, *args, **kw)

        task = asyncio.get_running_loop().create_task(late())
        tasks.add(task)
        return claim

    _replace(stack, ClaimWriter, "reserve", early)
    _replace(stack, Binder, "_check_kept", lambda *_: None)

    async def nothing(*_: Any) -> None:
        pass

    _replace(stack, Binder, "_check_alone", nothing)


@planted(
    "no-uid",
    "a pod is bound by its name alone",
    "S5 S6 S8",
    faults=("F24 pod deleted", "slow server"),
)
def _(stack: ExitStack) -> None:
    def change(name: str, _method: str, document: Any) -> Any:
        if name == "bind":
            document["metadata"].pop("uid", None)
        return document

    _on_write(stack, change)


@planted(
    "gives-back-used-claims",
    "a claim that others use is given back for a pod that waits",
    "S9 S5",
    liveness=None,
)
def _(stack: ExitStack) -> None:
    async def give_back(self: ClaimWriter, claim: ResourceClaim, pod_uid: str) -> bool:
        del pod_uid
        held = await self._read(claim, fresh=False)
        return held.is_allocated and isinstance(await self.put(held, Deallocation()), Committed)

    _replace(stack, ClaimWriter, "give_back", give_back)
    from scheduler.extender import service
    from scheduler.standalone import loop

    for module in (service, loop):
        _replace(
            stack,
            module,
            "claim_to_give_back",
            lambda state, _: next(iter(state.allocated), None) and state.allocated[0].claim,
        )


# --- the cache --------------------------------------------------------------------------------------------------------


@planted(
    "vanished-stay",
    "what a list does not have any more stays in the cache",
    "L1 L5 S4 S6 S8",
    faults=("F8 gone", "F11 skipped", "F20 compaction"),
)
def _(stack: ExitStack) -> None:
    def keep(self: ClusterCache, kind: Kind, objects: Any, resource_version: int) -> None:
        for item in objects:
            meta = item.claim.metadata if isinstance(item, ClaimRecord) else item.metadata
            self.apply(WatchEvent(kind, EventType.MODIFIED, item, int(meta.resource_version)))
        self.apply(WatchEvent(kind, EventType.BOOKMARK, None, resource_version))

    _replace(stack, ClusterCache, "replace", keep)


@planted(
    "older-wins",
    "an older event overwrites what is newer",
    "S1 S2 S3 S5 S8 S9 L1 L5 S12",
    faults=("F10 repeated",),
)
def _(stack: ExitStack) -> None:
    from scheduler.cache import assume, store

    for module in (assume, store):
        _replace(stack, module, "is_newer", lambda _version, _than: True)


@planted(
    "deaf-to-claims",
    "one odd claim ends the watch of claims for good",
    "L1 L4 L5 S1 S2 S3 L2",
    faults=("odd objects",),
    liveness=True,
)
def _(stack: ExitStack) -> None:
    take = Reflector._take

    def odd(self: Reflector, line: bytes) -> bool:
        if self.kind is Kind.RESOURCE_CLAIM and b'"deep":' in line:
            from scheduler.reflectors.machine import Failure

            self._failed(Failure.UNREACHABLE, ValueError("odd"))
            return False
        return take(self, line)

    _replace(stack, Reflector, "_take", odd)


@planted(
    "pods-lost",
    "a pod that was rejected is never tried again",
    "L1 L2",
    liveness=True,
    mode=Mode.STANDALONE,
)
def _(stack: ExitStack) -> None:
    _replace(stack, SchedulingQueue, "on_change", lambda *_: None)
    _replace(stack, SchedulingQueue, "sweep", lambda *_: None)
    _replace(stack, SchedulingQueue, "_missed_something", lambda *_: False)


@planted(
    "late-nodes-unseen",
    "nodes that come later are never looked at",
    "L1",
    faults=("nodes",),
    liveness=True,
)
def _(stack: ExitStack) -> None:
    apply = ClusterCache.apply

    def only_first(self: ClusterCache, event: WatchEvent) -> None:
        if event.kind is Kind.NODE and event.type is EventType.ADDED:
            return
        apply(self, event)

    _replace(stack, ClusterCache, "apply", only_first)


# --- deciding ---------------------------------------------------------------------------------------------------------


@planted(
    "incomplete-pools",
    "devices of a pool that is being updated are given out",
    "S4 S2 S3",
    faults=("F21 incomplete", "F21 republish"),
)
def _(stack: ExitStack) -> None:
    def whole(pool_id: Any, kept: Any, slices: Any, rules: Any) -> Any:
        return pools._remembered(pool_id, kept, None, rules)

    _replace(stack, pools, "_pool", whole)


@planted(
    "old-generations",
    "slices of an old generation count, too",
    "S4 L1 L2",
    faults=("F21 republish", "F22 shrink"),
)
def _(stack: ExitStack) -> None:
    def keep(kept: Any, prepared: Any) -> None:
        kept.setdefault(prepared.pool_id, []).append(prepared)

    def pool(pool_id: Any, kept: Any, slices: Any, rules: Any) -> Any:
        return pools._remembered(pool_id, kept, None, rules)

    _replace(stack, pools, "_keep", keep)
    _replace(stack, pools, "_pool", pool)


@planted(
    "shares-uncounted", "what shares of a device consume is not counted", "S2", drivers=("shared",)
)
def _(stack: ExitStack) -> None:
    from scheduler.cache.allocated import AllocatedIndex

    uses_of = AllocatedIndex._uses_of

    def none(self: Any, uid: str, allocation: Any) -> Any:
        return tuple(
            use._replace(consumed=None) if use.share_id is not None else use
            for use in uses_of(self, uid, allocation)
        )

    _replace(stack, AllocatedIndex, "_uses_of", none)


@planted(
    "admin-counted",
    "devices under admin access count as taken",
    "L1",
    liveness=True,
    drivers=("gpu",),
)
def _(stack: ExitStack) -> None:
    from scheduler.cache.allocated import AllocatedIndex

    uses_of = AllocatedIndex._uses_of

    def all_of_them(self: Any, uid: str, allocation: Any) -> Any:
        devices = msgspec.structs.replace(
            allocation.devices,
            results=tuple(
                msgspec.structs.replace(result, admin_access=None)
                for result in allocation.devices.results or ()
            ),
        )
        return uses_of(self, uid, msgspec.structs.replace(allocation, devices=devices))

    _replace(stack, AllocatedIndex, "_uses_of", all_of_them)


@planted("too-few", "a claim gets one device less than it asks for", "S4")
def _(stack: ExitStack) -> None:
    def change(name: str, _method: str, document: Any) -> Any:
        devices = document.get("status", {}).get("allocation", {}).get("devices", {})
        if name == "allocate" and len(devices.get("results") or ()) > 1:
            devices["results"].pop()
        return document

    _on_write(stack, change)


@planted("config-forgotten", "an allocation lacks the configuration of its claim", "S4")
def _(stack: ExitStack) -> None:
    def change(name: str, _method: str, document: Any) -> Any:
        if name == "allocate":
            devices = document["status"].get("allocation", {}).get("devices", {})
            devices.pop("config", None)
        return document

    _on_write(stack, change)


@planted(
    "nodes-not-asked", "filter answers nodes that it was not asked about", "S14", mode=Mode.EXTENDER
)
def _(stack: ExitStack) -> None:
    answer = ExtenderService.filter

    async def more(self: ExtenderService, args: Any) -> FilterAnswer:
        found = await answer(self, args)
        return (
            replace(found, node_names=[*found.node_names, "another"]) if found.node_names else found
        )

    _replace(stack, ExtenderService, "filter", more)


@planted("filter-writes", "filter binds at once, before anybody asks", "S14", mode=Mode.EXTENDER)
def _(stack: ExitStack) -> None:
    from scheduler.api.extender_v1 import BindArgs

    answer = ExtenderService.filter
    tasks = set()

    async def eager(self: ExtenderService, args: Any) -> FilterAnswer:
        found = await answer(self, args)
        if found.node_names:
            meta = args.pod.metadata
            asked = BindArgs(
                pod_name=meta.name,
                pod_namespace=meta.namespace,
                pod_uid=meta.uid,
                node=found.node_names[0],
            )
            task = asyncio.get_running_loop().create_task(self.bind(asked))
            tasks.add(task)
        return found

    _replace(stack, ExtenderService, "filter", eager)


# --- who may write ----------------------------------------------------------------------------------------------------


@planted(
    "followers-write",
    "followers believe that they lead",
    "L6 S1 S2 S3 S13",
    replicas=2,
    liveness=True,
)
def _(stack: ExitStack) -> None:
    async def run(self: LeaderElector, on_started: Any, on_stopped: Any) -> None:
        self._is_leader = True
        self._epoch = 1
        try:
            await on_started()
            await asyncio.get_running_loop().create_future()
        finally:
            on_stopped()

    _replace(stack, LeaderElector, "run", run)
    _replace(stack, LeaderElector, "can_write", lambda *_: True)


@planted(
    "old-epochs",
    "a leader goes on although a later one has stamped the claims",
    "S13 S1 S2 S3 L6",
    faults=("F16 pause", "partition", "F15 lease blocked"),
    replicas=2,
)
def _(stack: ExitStack) -> None:
    _replace(stack, LeaderElector, "can_write", lambda self, _now: self._is_leader)
    _replace(stack, LeaderElector, "_in_time", lambda _self: True)
    _replace(stack, ClaimWriter, "_check_epoch", lambda *_: None)
    renew = LeaderElector._renew_until_lost

    async def for_ever(self: LeaderElector) -> None:
        await renew(self)
        await asyncio.get_running_loop().create_future()

    _replace(stack, LeaderElector, "_renew_until_lost", for_ever)


@planted(
    "no-epoch",
    "claims are written under the first epoch for ever",
    "S13",
    replicas=2,
    faults=("F17 crash",),
)
def _(stack: ExitStack) -> None:
    _replace(stack, ClaimWriter, "_check_epoch", lambda *_: None)

    def change(name: str, _method: str, document: Any) -> Any:
        if name == "finalizer" and old.get("number", 0) % 3 == 0:
            annotations = document["metadata"].get("annotations") or {}
            if EPOCH_ANNOTATION in annotations:
                annotations[EPOCH_ANNOTATION] = "1"
        old["number"] = old.get("number", 0) + 1
        return document

    old: dict[str, int] = {}
    _on_write(stack, change)


# --- noise ------------------------------------------------------------------------------------------------------------


@planted(
    "changing-text",
    "the reason that a pod is told has a number that changes",
    "L2 L7",
    liveness=True,
    mode=Mode.STANDALONE,
)
def _(stack: ExitStack) -> None:
    failed = Reports.failed
    count = iter(range(1_000_000))

    def changing(self: Reports, pod: Any, reason: Any, *, is_error: bool) -> None:
        text = f"{reason.message} (attempt {next(count)})"
        failed(self, pod, replace(reason, message=text), is_error=is_error)

    _replace(stack, Reports, "failed", changing)


@planted(
    "wakes-for-ever",
    "the sentinel is patched every second, whoever waits",
    "L7",
    liveness=True,
    mode=Mode.EXTENDER,
)
def _(stack: ExitStack) -> None:
    _replace(stack, WakeUp, "_is_needed", lambda _self: True)

    def begin(self: WakeUp) -> None:
        self._due.set()
        self._due = _AlwaysSet()  # type: ignore[assignment]

    _replace(stack, WakeUp, "begin", begin)


class _AlwaysSet:
    async def wait(self) -> None:
        await asyncio.sleep(0)

    def set(self) -> None:
        pass

    def clear(self) -> None:
        pass

    def is_set(self) -> bool:
        return True


@planted(
    "refusals-repeated",
    "a write that is refused for good is sent again at once",
    "L7",
    liveness=True,
    faults=("refused for good",),
)
def _(stack: ExitStack) -> None:
    reserve = ClaimWriter.reserve

    async def stubborn(self: ClaimWriter, *args: Any, **kw: Any) -> Any:
        while True:
            try:
                return await reserve(self, *args, **kw)
            except BindError as problem:
                if "denied" not in str(problem):
                    raise
            await self.clock.sleep(0.2)

    _replace(stack, ClaimWriter, "reserve", stubborn)


@planted(
    "never-active",
    "after a takeover nothing is scheduled any more",
    "L1 L6 L2",
    liveness=True,
    replicas=2,
    faults=("F17 crash",),
)
def _(stack: ExitStack) -> None:
    async def hang(self: Process) -> None:
        if self.core.leadership.needs_sweep:
            await asyncio.get_running_loop().create_future()

    _replace(stack, Process, "_take_over", hang)


@planted(
    "memory-mixed-up",
    "answers of the memory are those of the cluster as it was",
    "S1 S2 S3 S4 L1 L2",
    liveness=None,
)
def _(stack: ExitStack) -> None:
    follow = Engine.follow
    del follow
    snapshot = ClusterCache.snapshot
    kept: dict[int, Any] = {}

    def old(self: ClusterCache) -> Any:
        found = snapshot(self)
        number = kept.setdefault(id(self), [0, found])
        number[0] += 1
        if number[0] % 20 == 0:
            number[1] = found
        return number[1] if len(number[1].nodes) else found

    _replace(stack, ClusterCache, "snapshot", old)


@planted(
    "conditions-unwritten",
    "nobody is told why a pod is not bound",
    "L2",
    liveness=True,
    mode=Mode.STANDALONE,
)
def _(stack: ExitStack) -> None:
    async def silent(self: PodWriter, *_: Any, **__: Any) -> bool:
        return True

    _replace(stack, PodWriter, "set_unscheduled", silent)


# --- finding them -----------------------------------------------------------------------------------------------------


@contextmanager
def planted_in(bug: Planted) -> Iterator[None]:
    """The application with a bug, until the block ends."""
    with ExitStack() as stack:
        bug.plant(stack)
        yield


def plan_for(bug: Planted, seed: int) -> Plan:
    """A plan in which a bug may show."""
    liveness = bug.liveness if bug.liveness is not None else seed % 4 == 0
    plan = make_plan(
        seed, liveness=liveness, mode=bug.mode, replicas=bug.replicas, wanted=bug.faults
    )
    if bug.drivers and not set(bug.drivers) & set(plan.drivers):
        plan.drivers = bug.drivers
    return plan


def find(bug: Planted, seeds: range) -> tuple[int, str] | None:
    """The number of seeds that it took to find a bug, and what was found."""
    for number, seed in enumerate(seeds, start=1):
        if number % 10 == 0:
            collect_garbage()
        with planted_in(bug):
            found = [
                each for each in run_plan(plan_for(bug, seed)).findings if each.rule in bug.rules
            ]
        if not found:
            continue
        clean = run_plan(plan_for(bug, seed)).findings
        known = {(each.rule, each.subject, each.text) for each in clean}
        new = [each for each in found if (each.rule, each.subject, each.text) not in known]
        if new:
            return number, str(new[0])
    return None


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="which bugs; none: all")
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS, help="to try for each")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    options = parser.parse_args()
    unknown = set(options.names) - set(PLANTED)
    if unknown:
        parser.error(f"there is no bug {', '.join(sorted(unknown))}")
    missed = []
    with quiet_interpreter():
        for name in options.names or PLANTED:
            began = time.monotonic()
            found = find(PLANTED[name], range(options.first, options.first + options.seeds))
            seconds = time.monotonic() - began
            if found is None:
                missed.append(name)
                print(f"{name:24} NOT FOUND in {options.seeds} seeds, {seconds:.0f} s")
            else:
                print(f"{name:24} seed {found[0]:3}, {seconds:4.0f} s: {found[1][:100]}")
            sys.stdout.flush()
    print(f"{len(options.names or PLANTED) - len(missed)} of {len(options.names or PLANTED)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    with_fixed_hashes()
    code = main()
    sys.stdout.flush()
    os._exit(code)
