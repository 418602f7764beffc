"""The snapshot: indexes of slices that change by copying, and what other claims hold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.devices import PoolID, ResourceSlice
from allocator.snapshot import NOTHING_USED, AllocatedState, SliceIndex
from tests.builders import (
    GPU_DRIVER,
    allocated_claim,
    claim,
    counter_set,
    device,
    quantity,
    resource_slice,
    taint,
    taint_rule,
    used,
)

POOL = PoolID(GPU_DRIVER, "pool-1")


def view(index: SliceIndex) -> dict[str, Any]:
    """Everything one can ask an index, by names."""
    return {
        "all": sorted(p.name for p in index),
        "shared": sorted(p.name for p in index.shared),
        "node-1": sorted(p.name for p in index.local("node-1")),
        "node-2": sorted(p.name for p in index.local("node-2")),
        "pools": {str(pool): sorted(p.name for p in index.in_pool(pool)) for pool in index.pools},
        "counters": sorted(p.name for p in index.with_counters),
        "size": len(index),
    }


LOCAL = resource_slice("local", device("a"))
SHARED = resource_slice("shared", device("b"), all_nodes=True, pool="pool-2")
COUNTERS = resource_slice("counters", counters=[counter_set("s", m=1)], node="node-2")


def test_slices_are_found_by_node_pool_and_name() -> None:
    index = SliceIndex.build([LOCAL, SHARED, COUNTERS])

    assert view(index) == {
        "all": ["counters", "local", "shared"],
        "shared": ["shared"],
        "node-1": ["local"],
        "node-2": ["counters"],
        "pools": {
            f"{GPU_DRIVER}/pool-1": ["counters", "local"],
            f"{GPU_DRIVER}/pool-2": ["shared"],
        },
        "counters": ["counters"],
        "size": 3,
    }
    assert index.get("local") is not None
    assert index.get("nobody") is None
    assert index.in_pool(PoolID("x", "y")) == ()


def test_a_change_makes_a_new_index_and_keeps_what_did_not_change() -> None:
    before = SliceIndex.build([LOCAL, SHARED])
    after = before.changed(upserts=[resource_slice("local", device("c"))], removed=["shared"])

    assert view(before)["all"] == ["local", "shared"]
    assert view(after)["all"] == ["local"]
    assert [d.device for p in after for d in p.device_ids] == ["c"]
    assert after.changed(upserts=[SHARED]).get("local") is after.get("local")


def test_removing_what_is_not_there_changes_nothing() -> None:
    index = SliceIndex.build([LOCAL])

    assert view(index.changed(removed=["nobody"])) == view(index)


NAMES = st.sampled_from(["a", "b", "c"])
SLICES = st.builds(
    lambda name, node, pool, shared: resource_slice(
        name, device("d"), pool=pool, node=node, all_nodes=True if shared else None
    ),
    NAMES,
    st.sampled_from(["node-1", "node-2"]),
    st.sampled_from(["pool-1", "pool-2"]),
    st.booleans(),
)


@given(st.lists(st.tuples(st.lists(SLICES, max_size=2), st.lists(NAMES, max_size=2)), max_size=5))
def test_an_index_changed_step_by_step_equals_one_built_at_once(steps) -> None:
    index = SliceIndex.build([])
    known: dict[str, ResourceSlice] = {}
    for upserts, removed in steps:
        by_name = {one.metadata.name: one for one in upserts}
        gone = [name for name in removed if name not in by_name]
        index = index.changed(by_name.values(), gone)
        known = {name: one for name, one in {**known, **by_name}.items() if name not in gone}

        assert view(index) == view(SliceIndex.build(known.values()))


RULE = taint_rule("rule", taint("sick"), pool="pool-1")


def taints(index: SliceIndex, name: str) -> list[str]:
    prepared = index.get(name)
    assert prepared is not None
    return [t.key for d in prepared.slice.spec.devices or () for t in d.taints or ()]


def test_new_rules_touch_the_slices_they_select_or_selected_only() -> None:
    plain = SliceIndex.build([LOCAL, SHARED, COUNTERS])
    tainted = plain.with_rules([RULE])
    cleared = tainted.with_rules([])

    assert taints(tainted, "local") == ["sick"]
    assert tainted.get("shared") is plain.get("shared")
    assert taints(cleared, "local") == []
    assert taints(tainted.changed(upserts=[LOCAL]), "local") == ["sick"]
    assert view(tainted) == view(plain)


def test_a_rule_for_one_device_leaves_the_others_as_they_are() -> None:
    both = resource_slice("s", device("a", taints=[taint("own")]), device("b"))
    index = SliceIndex.build([both], [taint_rule("r", taint("sick"), device="a")])
    (prepared,) = index

    assert [[t.key for t in d.taints or ()] for d in prepared.slice.spec.devices or ()] == [
        ["own", "sick"],
        [],
    ]
    assert prepared.source is both


def test_the_use_of_devices_is_counted_by_pool() -> None:
    state = AllocatedState.from_claims(
        [
            claim("not-allocated"),
            allocated_claim("x", used("a"), used("admin", admin=True)),
            allocated_claim("y", used("s", share="1", consumed={"memory": 2, "io": 1})),
            allocated_claim(
                "z", used("s", share="2", consumed={"memory": 3}), used("t", share="3")
            ),
        ]
    )
    usage = state.usage(POOL)

    assert usage.devices == {"a"}
    assert usage.shares == {"s": {"1", "2"}, "t": {"3"}}
    assert usage.consumed == {"s": {"memory": quantity(5), "io": quantity(1)}}
    assert not usage.is_empty
    assert list(state.pools) == [POOL]
    assert state.usage(PoolID("x", "y")) is NOTHING_USED
    assert NOTHING_USED.is_empty


def test_consumed_amounts_below_zero_count_as_zero() -> None:
    amounts = {"memory": -2, "io": 1}
    state = AllocatedState.from_claims(
        [
            allocated_claim("x", used("s", share="1", consumed=amounts)),
            allocated_claim("y", used("s", share="2", consumed={"memory": 3, "io": -1})),
        ]
    )
    assert state.usage(POOL).consumed == {"s": {"memory": quantity(3), "io": quantity(1)}}


def test_without_consumable_capacity_every_result_is_exclusive_use() -> None:
    state = AllocatedState.from_claims(
        [allocated_claim("x", used("s", share="1"))], consumable_capacity=False
    )

    assert state.usage(POOL).devices == {"s"}
    assert state.usage(POOL).shares == {}


@pytest.mark.parametrize("where", ["local", "shared"])
def test_a_slice_that_moves_is_no_longer_where_it_was(where: str) -> None:
    moved = resource_slice(where, device("x"), node="node-2", pool="pool-3")
    index = SliceIndex.build([LOCAL, SHARED]).changed(upserts=[moved])

    assert where in view(index)["node-2"]
    assert where not in view(index)["shared"]
    assert where not in view(index)["node-1"]


def test_what_a_node_reads_can_be_prepared_anew_without_what_was_found_out() -> None:
    elsewhere = resource_slice("elsewhere", device("c"), node="node-3", pool="pool-3")
    rules = [taint_rule("rule", taint("bad"), driver=GPU_DRIVER)]
    index = SliceIndex.build([LOCAL, SHARED, COUNTERS, elsewhere], rules)
    for prepared in index:
        prepared.memo["facts"] = "something"

    fresh = index.anew(["node-1"], most=2)

    assert fresh is not None
    assert [p.name for p in fresh.local("node-1")] == ["local"]
    assert [p.name for p in fresh.shared] == ["shared"]
    # The pool of the node's slice, with its slice of counters on another node.
    assert sorted(p.name for p in fresh.in_pool(POOL)) == ["counters", "local"]
    assert fresh.get("elsewhere") is None
    assert all(p.memo == {} for p in fresh)
    for prepared in fresh:
        known = index.get(prepared.name)
        assert known is not None
        assert prepared.slice == known.slice  # with the taints of the rules
        assert known.memo == {"facts": "something"}


def test_too_much_is_not_prepared_anew() -> None:
    assert SliceIndex.build([LOCAL, SHARED]).anew(["node-1"], most=1) is None


def test_all_that_was_found_out_can_be_forgotten() -> None:
    index = SliceIndex.build([LOCAL, SHARED])
    for prepared in index:
        prepared.memo["facts"] = "something"

    index.forget()

    assert all(prepared.memo == {} for prepared in index)
