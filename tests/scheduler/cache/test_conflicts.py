"""Two writers never keep more than there is: whose allocation has to give way, for everything that is limited (W3, F32).

fault core 08: only devices given twice were looked at, not what several claims can share.
"""

from dataclasses import dataclass, field

import msgspec
import pytest

from allocator.model.claims import DeviceRequestAllocationResult, ResourceClaimConsumerReference
from allocator.model.devices import Device, ResourceSlice
from allocator.model.meta import ObjectMeta
from scheduler.cache.allocated import Conflict
from scheduler.cache.cluster import ClusterCache
from scheduler.model import ClaimRecord, Kind, UnreadableClaim, UnreadableSlice
from tests.builders import consumes, counter_set, device, resource_slice, used
from tests.pods import pod
from tests.scheduler.cache.objects import at, event, record

CLAIM, SLICE = Kind.RESOURCE_CLAIM, Kind.RESOURCE_SLICE
Results = tuple[DeviceRequestAllocationResult, ...]


def part(name: str, memory: int, *groups: str, **more):
    return device(name, consumes=[consumes("card", groups or None, memory=memory)], **more)


def card(
    *devices: Device, memory: int = 10, generation: int = 1, count: int = 2
) -> list[ResourceSlice]:
    """A pool of two slices: the counters of a card, and its partitions."""
    sets = [counter_set("card", memory=memory)]
    return [
        resource_slice(f"counters-{generation}", counters=sets, generation=generation, count=count),
        resource_slice(f"parts-{generation}", *devices, generation=generation, count=count),
    ]


PARTS = card(part("p0", 6), part("p1", 6), part("p2", 4), part("whole", 10))
NIC = [
    resource_slice("nic", device("n0", shareable=True, capacity={"bw": 10, "vf": 3}), device("n1"))
]


def share(name: str, number: int, **amounts: int) -> DeviceRequestAllocationResult:
    return used(name, share=f"s{number}", consumed=amounts or None)


def made_of(slices: list[ResourceSlice], **gates: bool) -> ClusterCache:
    cache = ClusterCache(**gates)
    cache.replace(SLICE, [at(each, 1) for each in slices], 10)
    cache.replace(CLAIM, [], 10)
    return cache


def write(
    cache: ClusterCache, name: str, version: int, *results: DeviceRequestAllocationResult | str
):
    cache.apply(event(record(name, version, *results), CLAIM))


def said(cache: ClusterCache, name: str) -> list[tuple[str, str]]:
    """Whom a claim gives way to, and who gives way to it."""
    return [
        (
            conflict.other_uid.removeprefix("uid-"),
            "earlier" if conflict.other_is_earlier else "later",
        )
        for conflict in cache.conflicts(f"uid-{name}")
    ]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Claims a, b, c ... are written in this order; `gives_way`: which have to; `adds_nothing`: and are no news."""

    id: str
    slices: list[ResourceSlice]
    claims: list[Results | DeviceRequestAllocationResult]
    gives_way: str
    adds_nothing: str = ""
    gates: dict[str, bool] = field(default_factory=dict)


def groups(*each: tuple[str, ...]) -> list[ResourceSlice]:
    return card(*[part(f"p{number}", 1, *names) for number, names in enumerate(each)])


NAMES = "abcdef"
CASES = [
    # counters
    Case(id="two partitions", slices=PARTS, claims=[used("p0"), used("p1")], gives_way="b"),
    Case(id="two that fit", slices=PARTS, claims=[used("p0"), used("p2")], gives_way=""),
    Case(id="partition, whole", slices=PARTS, claims=[used("p2"), used("whole")], gives_way="b"),
    Case(id="whole, partition", slices=PARTS, claims=[used("whole"), used("p2")], gives_way="b"),
    Case(
        id="of three writers the second, whatever the third does",
        slices=PARTS,
        claims=[used("p0"), used("p1"), used("p2")],
        gives_way="bc",
    ),
    Case(
        id="of three that fit by twos the third",
        slices=card(*[part(f"p{number}", 4) for number in range(3)]),
        claims=[used("p0"), used("p1"), used("p2")],
        gives_way="c",
    ),
    Case(
        id="a claim with two partitions",
        slices=PARTS,
        claims=[used("p2"), (used("p1"), used("p2", admin=True)), (used("p0"), used("p2"))],
        gives_way="c",
    ),
    Case(
        id="admin access takes nothing",
        slices=PARTS,
        claims=[used("p0", admin=True), used("p1"), used("whole", admin=True)],
        gives_way="",
    ),
    Case(
        id="counters of another pool and of another driver",
        slices=PARTS,
        claims=[used("p0", pool="pool-2"), used("p0", driver="nic.example.com"), used("p1")],
        gives_way="",
    ),
    Case(
        id="another set of the same pool",
        slices=[
            resource_slice(
                "all",
                part("p0", 6),
                device("q0", consumes=[consumes("other", memory=6)]),
                device("q1", consumes=[consumes("other", memory=6)]),
                counters=[counter_set("card", memory=10), counter_set("other", memory=10)],
            )
        ],
        claims=[used("q0"), used("q1"), used("p0")],
        gives_way="b",
    ),
    Case(
        id="only one of several counters",
        slices=[
            resource_slice(
                "all",
                *[device(n, consumes=[consumes("card", memory=1, units=2)]) for n in ("p0", "p1")],
                counters=[counter_set("card", memory=10, units=3)],
            )
        ],
        claims=[used("p0"), used("p1")],
        gives_way="b",
    ),
    Case(
        id="a shared device pays once, whoever shares it",
        slices=card(part("p0", 6, shareable=True), part("p1", 6), part("p2", 4)),
        claims=[share("p0", 1), share("p0", 2), used("p2"), used("p1")],
        gives_way="d",
    ),
    Case(
        id="a shared device beside a partition",
        slices=card(part("p0", 6, shareable=True), part("p1", 6)),
        claims=[used("p1"), share("p0", 1), share("p0", 2)],
        gives_way="bc",
        adds_nothing="c",
    ),
    # capacity
    Case(
        id="two shares",
        slices=NIC,
        claims=[share("n0", 1, bw=6), share("n0", 2, bw=6)],
        gives_way="b",
    ),
    Case(
        id="shares that fit",
        slices=NIC,
        claims=[share("n0", 1, bw=6), share("n0", 2, bw=4)],
        gives_way="",
    ),
    Case(
        id="of three shares the third",
        slices=NIC,
        claims=[share("n0", number, bw=1, vf=vf) for number, vf in enumerate((1, 2, 1))],
        gives_way="c",
    ),
    Case(
        id="a claim with two shares",
        slices=NIC,
        claims=[share("n0", 1, bw=5), (share("n0", 2, bw=3), share("n0", 3, bw=3))],
        gives_way="b",
    ),
    Case(
        id="shares that consume nothing",
        slices=NIC,
        claims=[share("n0", 1, bw=10), share("n0", 2, bw=0), share("n0", 3)],
        gives_way="",
    ),
    Case(
        id="the same share twice",
        slices=NIC,
        claims=[share("n0", 1, bw=1), share("n0", 1, bw=1)],
        gives_way="b",
    ),
    Case(
        id="a share and all of it",
        slices=NIC,
        claims=[share("n0", 1, bw=1), used("n0"), share("n0", 2, bw=1)],
        gives_way="bc",
    ),
    Case(
        id="two shares of a device that cannot be shared",
        slices=NIC,
        claims=[share("n1", 1), share("n1", 2)],
        gives_way="b",
    ),
    Case(
        id="one share of a device that cannot be shared",
        slices=NIC,
        claims=[share("n1", 1)],
        gives_way="",
    ),
    Case(
        id="a share takes the whole device without the gate",
        slices=NIC,
        claims=[share("n0", 1, bw=1), share("n0", 2, bw=1)],
        gives_way="b",
        gates={"consumable_capacity": False},
    ),
    Case(
        id="a capacity that is below zero has no room",
        slices=[resource_slice("nic", device("n0", shareable=True, capacity={"bw": -1}))],
        claims=[share("n0", 1, bw=0), share("n0", 2, bw=1)],
        gives_way="b",
    ),
    Case(
        id="a share that consumes less than nothing makes no room",
        slices=NIC,
        claims=[share("n0", 1, bw=-5), share("n0", 2, bw=6), share("n0", 3, bw=6)],
        gives_way="c",
    ),
    Case(
        id="a partition that takes less than nothing makes no room",
        slices=card(part("p0", -5), part("p1", 6), part("p2", 6)),
        claims=[used("p0"), used("p1"), used("p2")],
        gives_way="c",
    ),
    Case(
        id="a counter below zero has no room",
        slices=card(part("p0", 0), part("p1", 1), memory=-1),
        claims=[used("p0"), used("p1")],
        gives_way="b",
    ),
    # compatibility groups
    Case(
        id="groups without a common one",
        slices=groups(("x",), ("y",), ("x", "z")),
        claims=[used("p0"), used("p1"), used("p2")],
        gives_way="bc",
        adds_nothing="c",
    ),
    Case(
        id="groups that agree by twos only",
        slices=groups(("x", "y"), ("y", "z"), ("z", "x")),
        claims=[used("p0"), used("p1"), used("p2")],
        gives_way="c",
    ),
    Case(
        id="groups that agree",
        slices=groups(("x", "y"), ("y", "z"), ("y",)),
        claims=[used("p0"), used("p1"), used("p2")],
        gives_way="",
    ),
    Case(
        id="groups of a claim with two devices that agree with either",
        slices=groups(("x", "z"), ("x", "y"), ("y", "z")),
        claims=[used("p0"), (used("p1"), used("p2"))],
        gives_way="b",
    ),
    Case(
        id="a device without groups beside one with",
        slices=groups((), ("x",), ()),
        claims=[used("p1"), used("p0"), used("p2")],
        gives_way="bc",
        adds_nothing="c",
    ),
    Case(
        id="devices without groups",
        slices=groups((), ()),
        claims=[used("p0"), used("p1")],
        gives_way="",
    ),
    Case(
        id="a further share is not asked again",
        slices=card(part("p0", 1, "x", shareable=True), part("p1", 1, "x")),
        claims=[share("p0", 1), used("p1"), share("p0", 2)],
        gives_way="",
    ),
    # what slices say, and do not say
    Case(id="no slices at all", slices=[], claims=[used("p0"), share("p1", 1, bw=9)], gives_way=""),
    Case(
        id="devices that are not published take nothing",
        slices=PARTS,
        claims=[used("gone"), used("p0"), share("n7", 1, bw=99)],
        gives_way="",
    ),
    Case(
        id="what is not published any more is more than there is",
        slices=card(part("p0", 6), device("other", consumes=[consumes("gone", memory=1)])),
        claims=[used("other"), used("p0")],
        gives_way="a",
    ),
    Case(
        id="a capacity that is gone",
        slices=[resource_slice("nic", device("n0", shareable=True, capacity={"vf": 3}))],
        claims=[share("n0", 1, bw=1), share("n0", 2, vf=1)],
        gives_way="a",
    ),
    Case(
        id="the newest generation counts",
        slices=[
            *card(part("p0", 6), part("p1", 6), memory=99),
            *card(part("p0", 6), part("p1", 6), memory=10, generation=2),
        ],
        claims=[used("p0"), used("p1")],
        gives_way="b",
    ),
    Case(
        id="devices of an old generation take nothing once the new one is complete",
        slices=[*card(part("p0", 6)), *card(part("p1", 6), generation=2)],
        claims=[used("p0"), used("p1")],
        gives_way="",
    ),
    Case(
        id="until it is, what it does not say is taken from the old one",
        slices=[
            *card(part("p0", 6), part("p1", 6), memory=99),
            resource_slice(
                "counters-2", counters=[counter_set("card", memory=10)], generation=2, count=2
            ),
        ],
        claims=[used("p0"), used("p1")],
        gives_way="b",
    ),
    Case(
        id="devices count for whichever node they are",
        slices=[
            resource_slice(
                "counters", counters=[counter_set("card", memory=10)], all_nodes=True, count=3
            ),
            resource_slice("n1", part("p0", 6), node="n1", count=3),
            resource_slice("n2", part("p1", 6), node="n2", count=3),
        ],
        claims=[used("p0"), used("p1")],
        gives_way="b",
    ),
    # several pools in one claim
    Case(
        id="a plain device beside a partition",
        slices=[*PARTS, resource_slice("nic", device("n0"), pool="nic")],
        claims=[used("p0"), (used("n0", pool="nic"), used("p1")), used("n0", pool="nic")],
        gives_way="bc",
    ),
]


def write_all(case: Case, cache: ClusterCache) -> None:
    for number, results in enumerate(case.claims):
        some = (results,) if isinstance(results, DeviceRequestAllocationResult) else results
        write(cache, NAMES[number], 11 + number, *some)


def uids(names: str) -> set[str]:
    return {f"uid-{name}" for name in names}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_who_exceeds_a_limit_together_with_all_before_gives_way(case: Case) -> None:
    cache = made_of(case.slices, **case.gates)
    write_all(case, cache)
    names = NAMES[: len(case.claims)]
    gives_way = [name for name in names if any(side == "earlier" for _, side in said(cache, name))]
    assert "".join(gives_way) == case.gives_way


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_conflict_is_told_once_and_can_be_seen_from_every_side(case: Case) -> None:
    told: list[Conflict] = []
    cache = made_of(case.slices, **case.gates)
    cache.subscribe_conflicts(told.append)
    write_all(case, cache)
    write_all(case, cache)  # seen again, it is no news

    conflicts = [each for name in NAMES for each in cache.conflicts(f"uid-{name}")]
    alone = {each.claim_uid for each in conflicts if not each.other_uid}
    expected = uids(case.gives_way) - alone
    assert {each.claim_uid for each in told} == expected - uids(case.adds_nothing)
    assert len({(each.claim_uid, each.other_uid, each.problem) for each in told}) == len(told)
    both = cache.double_allocations()
    assert {each.claim_uid for each in both if each.other_is_earlier} == expected
    assert {each.other_uid for each in both} - expected if expected else not both


# --- who was first --------------------------------------------------------------------------------------------------


@pytest.fixture
def cache() -> ClusterCache:
    return made_of([*PARTS, resource_slice("plain", device("d1"), pool="plain")])


def test_after_a_list_nobody_knows_when_what_it_brings_was_allocated(cache):
    write(cache, "a", 11, used("p0"))
    cache.replace(CLAIM, [record("a", 11, used("p0")), record("b", 15, used("p1"))], 20)
    assert said(cache, "a") == [("b", "earlier")]
    assert said(cache, "b") == [("a", "earlier")]
    write(cache, "b", 21, used("p1"))  # a label, say: it was not allocated by that
    assert said(cache, "a") == [("b", "earlier")]


def test_what_a_list_has_as_it_was_keeps_its_place(cache):
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    cache.replace(CLAIM, [record("b", 12, used("p1")), record("a", 11, used("p0"))], 20)
    assert said(cache, "a") == [("b", "later")]
    assert said(cache, "b") == [("a", "earlier")]


def test_what_a_list_has_in_another_version_may_have_been_allocated_again(cache):
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    cache.replace(CLAIM, [record("a", 19, used("p0")), record("b", 12, used("p1"))], 20)
    assert said(cache, "a") == [("b", "earlier")]
    assert said(cache, "b") == [("a", "earlier")]


def test_a_later_version_of_an_allocation_does_not_make_it_later(cache):
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    write(cache, "a", 13, used("p0"))
    assert said(cache, "a") == [("b", "later")]


def test_an_allocation_that_was_given_up_and_set_again_is_as_late_as_the_second_time(cache):
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    write(cache, "a", 13)
    write(cache, "a", 14, used("p0"))
    assert said(cache, "a") == [("b", "earlier")]
    assert said(cache, "b") == [("a", "later")]


@pytest.mark.parametrize(("first", "second"), [("p0", "p1"), ("d1", "d1")])
def test_an_answer_does_not_say_when_an_allocation_was_set(cache, first, second):
    """A claim that is read may have been allocated long before the version that is read."""
    pool = "plain" if first == "d1" else "pool-1"
    theirs, ours = used(first, pool=pool), used(second, pool=pool)
    cache.assume_claim(record("theirs", 20, theirs))  # read; the watch has not come to it
    cache.assume_claim(record("ours", 15, ours))
    write(cache, "theirs", 12, theirs)
    write(cache, "ours", 15, ours)
    assert said(cache, "ours") == [("theirs", "earlier")]


def test_what_only_an_answer_has_shown_came_after_all_that_the_watch_has(cache):
    write(cache, "ours", 15, used("p0"))
    cache.assume_claim(record("theirs", 20, used("p1")))
    assert said(cache, "ours") == [("theirs", "later")]
    assert said(cache, "theirs") == [("ours", "earlier")]


def test_a_claim_that_is_gone_and_made_anew_has_no_place_from_before(cache):
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    cache.apply(event(record("a", 13), CLAIM, "DELETED"))
    write(cache, "a", 14, used("p0"))
    assert said(cache, "a") == [("b", "earlier")]


def test_a_claim_replaced_unseen_has_no_place_from_before(cache):
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    cache.apply(event(record("a", 14, used("p0"), uid="second"), CLAIM, "ADDED"))
    assert [c.other_is_earlier for c in cache.conflicts("second")] == [True]
    assert said(cache, "b") == [("second", "later")]


def unreadable(name: str, version: int, *results: DeviceRequestAllocationResult) -> ClaimRecord:
    claim = record(name, version, *results).claim
    lost = UnreadableClaim(
        metadata=claim.metadata, status=claim.status, problem="x", lost=("status.allocation",)
    )
    return ClaimRecord(lost, b"{}")


def test_nobody_knows_when_what_cannot_be_read_was_allocated(cache):
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    cache.apply(event(unreadable("a", 13), CLAIM))  # it holds what it held, and has its place
    assert (said(cache, "a"), said(cache, "b")) == ([("b", "later")], [("a", "earlier")])
    cache.apply(event(unreadable("a", 14, used("p2")), CLAIM))  # some of it is new, or was not seen
    assert all(conflict.other_is_earlier for conflict in cache.conflicts("uid-a"))
    assert {other for other, side in said(cache, "b") if side == "earlier"} == {"a"}
    write(cache, "a", 15, used("p0"))  # readable again: it may have had that all the time
    assert said(cache, "b") == [("a", "earlier")]
    assert said(cache, "a") == [("b", "earlier")]


def test_what_is_only_decided_gives_way_to_what_is_written(cache):
    told: list[Conflict] = []
    cache.subscribe_conflicts(told.append)
    ours = record("ours", 5).claim
    cache.hold("pod", {"uid-ours": (ours, record("x", 1, used("p0")).claim.status.allocation)})
    write(cache, "theirs", 11, used("p1"))
    [conflict] = told
    assert (conflict.claim_uid, conflict.other_uid) == ("uid-theirs", "uid-ours")
    assert said(cache, "ours") == [("theirs", "earlier")]
    assert said(cache, "theirs") == []


def test_after_a_rebuild_nobody_knows_the_order(cache):
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    cache.rebuild()
    assert said(cache, "a") == [("b", "earlier")]
    assert said(cache, "b") == [("a", "earlier")]
    assert cache.recount() == []
    write(cache, "c", 13, used("p2"))
    assert said(cache, "c") == [("b", "earlier")]


def test_the_recount_finds_an_order_that_cannot_be(cache):
    write(cache, "a", 11, used("p0"))
    cache._claims._allocated_at["uid-a"] = 12
    assert cache.recount() == ["claim uid-a: it is not so that it was allocated at version 12"]
    cache.rebuild()
    assert cache.recount() == []


def test_a_conflict_ends_when_one_side_gives_way(cache):
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    write(cache, "b", 13)
    assert said(cache, "a") == []
    write(cache, "c", 14, used("p2"))
    assert cache.double_allocations() == []


# --- slices that change (F22) ----------------------------------------------------------------------------------------


def bound(name: str, version: int, *results: DeviceRequestAllocationResult) -> ClaimRecord:
    """A claim that pod `name` has."""
    made = record(name, version, *results).claim
    consumer = ResourceClaimConsumerReference(resource="pods", name=name, uid=f"uid-{name}")
    status = msgspec.structs.replace(made.status, reserved_for=(consumer,))
    return ClaimRecord(msgspec.structs.replace(made, status=status), b"{}")


def bind(cache: ClusterCache, name: str, version: int) -> None:
    cache.apply(event(at(pod(name, node_name="n1"), version), Kind.POD))


def publish(cache: ClusterCache, version: int, *slices: ResourceSlice) -> None:
    for number, each in enumerate(slices):
        cache.apply(event(at(each, version + number), SLICE))


SHARED = card(part("p0", 6, shareable=True), part("p1", 6), part("p2", 1))
SHRUNK = card(memory=5)[0]


def test_a_claim_under_way_gives_way_when_slices_offer_less_than_it_takes():
    cache = made_of(SHARED)
    write(cache, "a", 11, used("p0"))
    publish(cache, 20, SHRUNK)
    assert said(cache, "a") == [("", "earlier")]
    assert cache.double_allocations() == []  # nobody else takes part


def test_a_pod_that_is_bound_keeps_what_shrank_and_whoever_shares_its_claim_may_come():
    cache = made_of(SHARED)
    told: list[Conflict] = []
    cache.subscribe_conflicts(told.append)
    cache.apply(event(bound("a", 11, used("p0")), CLAIM))
    bind(cache, "a", 12)
    publish(cache, 20, SHRUNK)
    cache.apply(event(bound("a", 21, used("p0")), CLAIM))
    assert said(cache, "a") == []
    assert told == []


def test_nothing_is_added_to_what_shrank():
    cache = made_of(SHARED)
    cache.apply(event(bound("a", 11, used("p0")), CLAIM))
    bind(cache, "a", 12)
    publish(cache, 20, SHRUNK)
    write(cache, "b", 21, used("p2"))
    assert said(cache, "b") == [("a", "earlier")]


def test_a_share_of_a_device_that_a_bound_pod_has_adds_nothing():
    cache = made_of(SHARED)
    cache.apply(event(bound("a", 11, share("p0", 1)), CLAIM))
    bind(cache, "a", 12)
    publish(cache, 20, SHRUNK)
    write(cache, "b", 21, share("p0", 2))
    assert said(cache, "b") == []


def test_it_does_while_somebody_who_takes_part_is_not_bound():
    """Else a writer that waits for a device to be freed, and one that counts on it not to be, would both keep theirs."""
    cache = made_of(SHARED)
    cache.apply(event(bound("a", 11, share("p0", 1)), CLAIM))
    bind(cache, "a", 12)
    write(cache, "p", 13, used("p1"))
    write(cache, "b", 14, share("p0", 2))
    assert said(cache, "b") == [("p", "earlier")]
    cache.apply(event(record("a", 15), CLAIM))
    assert said(cache, "p") == [("b", "later")]


def test_groups_of_bound_pods_that_disagree_already_are_not_held_against_anybody():
    """The allocator goes by one of them: who follows it must not be sent back for ever."""
    cache = made_of(groups((), ("x",), ()))
    cache.apply(event(bound("a", 11, used("p0")), CLAIM))
    cache.apply(event(bound("b", 12, used("p1")), CLAIM))
    write(cache, "c", 13, used("p2"))
    bind(cache, "a", 14)
    assert said(cache, "c") == [("b", "earlier")]
    bind(cache, "b", 15)
    assert said(cache, "c") == []


def test_groups_that_a_driver_changes_under_bound_pods_are_no_conflict_of_theirs():
    cache = made_of(groups(("x",), ("x",)))
    cache.apply(event(bound("a", 11, used("p0")), CLAIM))
    cache.apply(event(bound("b", 12, used("p1")), CLAIM))
    publish(cache, 20, *groups(("x",), ("y",)))
    assert said(cache, "b") == [("a", "earlier")]
    bind(cache, "a", 31)
    bind(cache, "b", 32)
    assert said(cache, "b") == []


def test_a_share_gives_way_when_its_device_offers_less():
    cache = made_of(NIC)
    write(cache, "a", 11, share("n0", 1, bw=6))
    publish(cache, 20, resource_slice("nic", device("n0", shareable=True, capacity={"bw": 5})))
    assert said(cache, "a") == [("", "earlier")]
    cache.apply(event(at(NIC[0], 21), SLICE, "DELETED"))
    assert said(cache, "a") == []  # nothing is known of it


def test_what_a_second_slice_of_the_pool_says_now_is_looked_at():
    cache = made_of(card(part("p0", 6), part("p1", 4)))
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    assert said(cache, "b") == []
    publish(cache, 20, card(part("p0", 6), part("p1", 5))[1])
    assert said(cache, "b") == [("a", "earlier")]


@pytest.mark.parametrize(
    ("slices", "first", "second"),
    [
        (PARTS, used("p0"), used("p2")),
        (NIC, share("n0", 1, bw=1), share("n0", 2, bw=1)),
        ([resource_slice("plain", device("d0"), device("d1"))], used("d0"), used("d1")),
    ],
    ids=["counters", "capacity", "neither, as far as is known"],
)
def test_nothing_new_comes_from_a_pool_of_which_a_slice_cannot_be_read(slices, first, second):
    cache = made_of(slices)
    told: list[Conflict] = []
    cache.subscribe_conflicts(told.append)
    cache.apply(event(bound("a", 11, first), CLAIM))
    bind(cache, "a", 12)
    lost = UnreadableSlice(
        metadata=ObjectMeta(name="lost"),
        spec=resource_slice("lost", generation=2**62, count=-1).spec,
        problem="x",
    )
    publish(cache, 20, lost)
    write(cache, "b", 21, second)
    assert said(cache, "b") == [("", "earlier")]
    assert said(cache, "a") == []  # its pod has a node
    assert told == cache.double_allocations() == []
    cache.apply(event(at(lost, 22), SLICE, "DELETED"))
    assert said(cache, "b") == []


def test_slices_that_come_after_the_claims_are_looked_at():
    cache = ClusterCache()
    write(cache, "a", 11, used("p0"))
    write(cache, "b", 12, used("p1"))
    assert said(cache, "b") == []
    publish(cache, 20, *PARTS)
    assert said(cache, "b") == [("a", "earlier")]
