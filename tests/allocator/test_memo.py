"""The bounded memory against a plain list of what was used last."""

from hypothesis import given
from hypothesis import strategies as st

from allocator.memo import Memo

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("put", "get", "grow")), st.sampled_from("abcdef"), st.integers(0, 4)
    ),
    max_size=60,
)


@given(steps=STEPS, limit=st.integers(1, 8))
def test_it_keeps_what_was_used_last_within_the_limit(
    steps: list[tuple[str, str, int]], limit: int
) -> None:
    memo: Memo[str, str] = Memo(limit)
    recent: list[tuple[str, int]] = []  # oldest first
    for step, key, weight in steps:
        known = dict(recent)
        if step == "get":
            assert (memo.get(key) is not None) == (key in known)
            new = known.get(key)
        elif step == "put":
            memo.put(key, key.upper(), weight)
            new = weight
        else:
            memo.grow(key, weight)
            new = known[key] + weight if key in known else None
        if new is not None:
            recent = [(k, w) for k, w in recent if k != key] + [(key, new)]
        while sum(w for _, w in recent) > limit and len(recent) > 1:
            recent.pop(0)

        assert len(memo) == len(recent)
        assert all(k in memo for k, _ in recent)
        assert memo.weight == sum(w for _, w in recent)


def test_it_counts_hits_misses_and_evictions() -> None:
    memo: Memo[str, int] = Memo(1)
    memo.put("a", 1)
    memo.put("b", 2)

    assert memo.get("a") is None
    assert memo.get("b") == 2
    assert (memo.hits, memo.misses, memo.evictions) == (1, 1, 1)


def test_clearing_forgets_everything() -> None:
    memo: Memo[str, int] = Memo(3)
    memo.put("a", 1, 2)
    memo.clear()

    assert (len(memo), memo.weight) == (0, 0)
