"""Two writers, each with its own view of one API server, in any interleaving: they never keep more than there is.

The model is plain sums over what both have kept. Writers decide without looking, so that they collide all the time.
"""

from typing import Any, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.model.claims import DeviceRequestAllocationResult, ResourceClaimConsumerReference
from scheduler.cache.cluster import ClusterCache
from scheduler.model import ClaimRecord, Kind
from tests.builders import consumes, counter_set, device, quantity, resource_slice, used
from tests.pods import pod
from tests.scheduler.cache.objects import at, event, record

MEMORY, BANDWIDTH = 10, 10
PARTS = {"p0": 6, "p1": 6, "p2": 4, "n0": 3}
GROUPS = {"p0": {"x"}, "p1": {"x", "y"}, "p2": {"y", "x"}, "n0": {"x", "z"}, "g": {"z", "y"}}
SLICES = (
    resource_slice("counters", counters=[counter_set("card", memory=MEMORY)], count=2),
    resource_slice(
        "parts",
        *[
            device(
                name,
                consumes=[consumes("card", sorted(groups), memory=PARTS.get(name, 0))],
                shareable=name == "n0" or None,
                capacity={"bw": BANDWIDTH} if name == "n0" else None,
            )
            for name, groups in GROUPS.items()
        ],
        device("plain"),
        count=2,
    ),
)
RESULTS = (
    *(used(name) for name in ("p0", "p1", "p2", "n0", "g", "plain")),
    *(used("n0", share=f"s{n}", consumed={"bw": bw}) for n, bw in enumerate((3, 4, 7))),
    used("p0", admin=True),
)


def consumed(one: DeviceRequestAllocationResult) -> int:
    return (one.consumed_capacity or {"bw": quantity(0)})["bw"].rounded_up()


def is_possible(kept: list[DeviceRequestAllocationResult]) -> bool:
    """Whether all of this can be in use at once, by nothing but sums."""
    real = [one for one in kept if not one.admin_access]
    devices = {one.device for one in real}
    for name in devices:
        uses = [one for one in real if one.device == name]
        shares = [one.share_id for one in uses]
        if len(uses) > 1 and (None in shares or len(set(shares)) < len(shares)):
            return False
        if sum(consumed(one) for one in uses) > BANDWIDTH:
            return False
    groups = [GROUPS[name] for name in devices if name in GROUPS]
    return sum(PARTS.get(name, 0) for name in devices) <= MEMORY and (
        not groups or bool(set.intersection(*groups))
    )


class Written(NamedTuple):
    version: int
    results: list[DeviceRequestAllocationResult]
    was_alone: bool


class Server:
    """The API server and its two clients: 0 and 1."""

    def __init__(self) -> None:
        self.version = 100
        self.log: list[ClaimRecord] = []
        self.claims: dict[str, ClaimRecord] = {}
        self.caches = [ClusterCache(), ClusterCache()]
        self.read = [0, 0]  # events of the log
        self.open: list[dict[str, Written]] = [{}, {}]
        self.kept: dict[str, Written] = {}
        self.listed = False
        for cache in self.caches:
            cache.replace(Kind.RESOURCE_SLICE, [at(each, 1) for each in SLICES], 10)
            cache.replace(Kind.RESOURCE_CLAIM, [], self.version)

    def put(self, name: str, *results: DeviceRequestAllocationResult) -> ClaimRecord:
        self.version += 1
        claim = record(name, self.version, *results).claim
        user = ResourceClaimConsumerReference(resource="pods", name=name, uid=f"uid-{name}")
        status = msgspec.structs.replace(claim.status, reserved_for=(user,) if results else None)
        stored = ClaimRecord(msgspec.structs.replace(claim, status=status), b"{}")
        self.claims[name] = stored
        self.log.append(stored)
        return stored

    def write(
        self, who: int, name: str, results: list[DeviceRequestAllocationResult], *, assumes: bool
    ) -> None:
        if name in self.open[0] or name in self.open[1] or name in self.kept:
            return
        was_alone = not (self.open[0] or self.open[1] or self.kept)
        stored = self.put(name, *results)
        self.open[who][name] = Written(self.version, results, was_alone)
        if assumes:
            self.caches[who].assume_claim(stored)

    def touch(self, name: str, reader: int) -> None:
        """Somebody changes a label, and one of the writers happens to read the claim."""
        old = self.claims.get(name)
        if old is None:
            return
        self.version += 1
        stored = ClaimRecord(at(old.claim, self.version), b"{}")
        self.claims[name] = stored
        self.log.append(stored)
        self.caches[reader].assume_claim(stored)

    def watch(self, who: int, events: int) -> None:
        for item in self.log[self.read[who] :][:events]:
            self.caches[who].apply(event(item, Kind.RESOURCE_CLAIM))
            self.read[who] += 1

    def list(self, who: int) -> None:
        self.listed = True
        self.caches[who].replace(Kind.RESOURCE_CLAIM, list(self.claims.values()), self.version)
        self.read[who] = len(self.log)

    def check(self, who: int, name: str) -> None:
        """W3, and what follows: the pod is bound, or the allocation is taken back."""
        written = self.open[who].get(name)
        cache = self.caches[who]
        if written is None or cache.resource_version(Kind.RESOURCE_CLAIM) < written.version:
            return
        del self.open[who][name]
        if not any(conflict.other_is_earlier for conflict in cache.conflicts(f"uid-{name}")):
            self.kept[name] = written
            return
        assert self.listed or not written.was_alone, "the first one gave way"
        self.put(name)

    def show_bound(self, who: int) -> None:
        for number, name in enumerate(self.kept):
            item = at(pod(name, node_name="n1"), self.version + number)
            self.caches[who].apply(event(item, Kind.POD))

    def end(self, name: str) -> None:
        """The pod has ended, and its claim is deallocated."""
        if self.kept.pop(name, None) is not None:
            self.put(name)

    def holds(self) -> bool:
        return is_possible([one for written in self.kept.values() for one in written.results])


WHO = st.integers(0, 1)
NAME = st.sampled_from("abcdef")
SOME = st.lists(st.sampled_from(RESULTS), min_size=1, max_size=2, unique_by=id).filter(is_possible)
STEPS = st.one_of(
    st.tuples(st.just("write"), WHO, NAME, SOME, st.booleans()),
    st.tuples(st.just("check"), WHO, NAME),
    st.tuples(st.just("watch"), WHO, st.integers(1, 4)),
    st.tuples(st.just("touch"), NAME, WHO),
    st.tuples(st.just("show_bound"), WHO),
    st.tuples(st.just("end"), NAME),
)
LISTS = st.tuples(st.just("list"), WHO)


def play(steps: list[tuple[Any, ...]]) -> None:
    server = Server()
    for what, *how in steps:
        if what == "write":
            who, name, results, assumes = how
            server.write(who, name, results, assumes=assumes)
        else:
            getattr(server, what)(*how)
        assert server.holds()
    for who in (1, 0):
        server.watch(who, len(server.log))
        for name in list(server.open[who]):
            server.check(who, name)
            assert server.holds()
    for cache in server.caches:
        assert cache.recount() == []


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_they_never_keep_more_than_there_is_and_the_first_keeps(steps) -> None:
    play(steps)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(STEPS, LISTS), max_size=30))
def test_nor_do_they_when_lists_hide_the_order(steps) -> None:
    play(steps)
