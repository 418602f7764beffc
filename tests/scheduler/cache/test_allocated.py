"""Which claim uses what, counted once a claim; who uses more than there is: test_conflicts."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.claims import DeviceRequestAllocationResult
from allocator.model.devices import DeviceID, PoolID
from allocator.snapshot import NOTHING_USED, AllocatedState, PoolUsage
from scheduler.cache.allocated import AllocatedIndex, PoolUses
from tests.builders import GPU_DRIVER, allocated_claim, quantity, used
from tests.scheduler.cache.objects import allocation

POOL = PoolID(GPU_DRIVER, "pool-1")
DEVICE = DeviceID(GPU_DRIVER, "pool-1", "d1")


@pytest.fixture
def index():
    return AllocatedIndex()


def test_devices_shares_and_capacity_are_counted_as_the_allocator_counts_them(index):
    index.set_written("u1", allocation("d1", used("admin", admin=True)))
    index.set_written("u2", allocation(used("d2", share="s1", consumed={"mem": "10Gi"})))
    index.set_written("u3", allocation(used("d2", share="s2", consumed={"mem": "20Gi"})))
    assert index.state().usage(POOL) == PoolUsage(
        frozenset({"d1"}), {"d2": frozenset({"s1", "s2"})}, {"d2": {"mem": quantity("30Gi")}}
    )


def test_without_the_gate_a_share_takes_the_whole_device():
    index = AllocatedIndex(consumable_capacity=False)
    index.set_written("u2", allocation(used("d2", share="s1", consumed={"mem": "10Gi"})))
    assert index.state().usage(POOL) == PoolUsage(frozenset({"d2"}))


def test_a_claim_in_flight_and_written_counts_once(index):
    share = allocation(used("d2", share="s1", consumed={"mem": "10Gi"}))
    index.set_held("u1", [share])
    before = index.state()
    index.set_written("u1", share)
    assert index.state() is before
    index.set_held("u1", [])
    assert index.state() is before
    assert before.usage(POOL).consumed == {"d2": {"mem": quantity("10Gi")}}


def test_a_pool_with_nothing_in_use_any_more_is_gone(index):
    index.set_written("u1", allocation("d1"))
    index.state()
    index.set_written("u1", None)
    assert index.state().usage(POOL) is NOTHING_USED
    assert not index.state().pools


def test_states_given_out_do_not_change(index):
    index.set_written("u1", allocation("d1"))
    before = index.state()
    index.set_written("u2", allocation("d2"))
    assert before.usage(POOL).devices == {"d1"}
    assert index.state().usage(POOL).devices == {"d1", "d2"}


def test_new_uses_are_told_once(index):
    first, second = allocation("d1", "d2"), allocation("d2", "d3")
    assert [use.device for use in index.set_held("u1", [first])] == ["d1", "d2"]
    assert index.set_written("u1", first) == ()
    assert [use.device for use in index.set_written("u1", second)] == ["d3"]
    assert index.set_held("u1", []) == ()
    assert [use.device for use in index.uses_of("u1")] == ["d2", "d3"]
    assert [use.device for use in index.set_written("u1", first)] == ["d1"]


def test_what_is_held_is_not_written_but_counts(index):
    index.set_held("u1", [allocation("d1")])
    [held] = index.uses_of("u1")
    assert not index.is_written(held)
    index.set_written("u1", allocation("d2"))
    assert [(use.device, index.is_written(use)) for use in index.uses_of("u1")] == [
        ("d2", True),
        ("d1", False),
    ]


@pytest.mark.parametrize(
    ("first", "second", "excludes"),
    [
        (used("d1"), used("d1"), True),
        (used("d1"), used("d1", share="s1"), True),
        (used("d1", share="s1"), used("d1", share="s2"), False),
        (used("d1", share="s1"), used("d1", share="s1"), True),
    ],
)
def test_two_uses_of_a_device_exclude_each_other_unless_they_are_two_shares(
    index, first, second, excludes
):
    index.set_written("a", allocation(first))
    index.set_written("b", allocation(second))
    one, other = index.uses(DEVICE)
    assert one.excludes(other) is other.excludes(one) is excludes
    assert not one.excludes(one)


SHARES = [
    used(device, share=share, consumed=consumed)
    for device in ("d1", "d2")
    for share, consumed in (
        ("s1", {"mem": "1Gi", "cores": "1500m"}),
        ("s2", {"mem": "9223372036854775807"}),
        ("s3", {"cores": "0", "io": "0.5"}),
        ("s4", None),
        (None, None),
    )
]
EVENTS = st.tuples(
    st.sampled_from(("written", "held")),
    st.sampled_from(("u1", "u2", "u3")),
    st.lists(st.sampled_from(SHARES), max_size=4, unique_by=lambda one: (one.device, one.share_id)),
)


def precisely(usage: PoolUsage) -> object:
    """Sums with what rounding depends on, which equality of quantities ignores."""
    return {
        device: {name: (one.nanos, one.exponent, one.small) for name, one in amounts.items()}
        for device, amounts in usage.consumed.items()
    }


@given(st.lists(EVENTS, max_size=25))
def test_running_sums_are_a_count_from_nothing_after_every_event(events):
    index = AllocatedIndex()
    known: dict[str, dict[str, list[DeviceRequestAllocationResult]]] = {"written": {}, "held": {}}
    given_out = []
    for kind, uid, results in events:
        known[kind][uid] = results
        if kind == "written":
            index.set_written(uid, allocation(*results) if results else None)
        else:
            index.set_held(uid, [allocation(*results)] if results else [])
        fresh = AllocatedIndex()
        for uses in index._pools.get(
            POOL, PoolUses()
        ).uses.values():  # in the order they are counted
            for use in uses:
                fresh._add(use)
        usage, expected = index.state().usage(POOL), fresh.state().usage(POOL)
        claims = [
            allocated_claim(uid, *written, *only_held(known["held"].get(uid, ()), written))
            for uid in ("u1", "u2", "u3")
            for written in [known["written"].get(uid, [])]
        ]
        assert usage == expected == AllocatedState.from_claims(claims).usage(POOL)
        assert precisely(usage) == precisely(expected)
        given_out.append((usage, copy.deepcopy(usage)))
    assert all(usage == was for usage, was in given_out)


def only_held(held, written):
    known = {(one.device, one.share_id) for one in written}
    return [one for one in held if (one.device, one.share_id) not in known]


def test_parts_of_a_pool_that_did_not_change_are_the_same_objects(index):
    index.set_written("u1", allocation("d1"))
    index.set_written("u2", allocation(used("d2", share="s1", consumed={"mem": "1Gi"})))
    before = index.state().usage(POOL)
    index.set_written("u3", allocation("d3"))
    after = index.state().usage(POOL)
    assert after.devices == {"d1", "d3"}
    assert after.shares is before.shares
    assert after.consumed is before.consumed
