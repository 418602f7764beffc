"""Long lists of one kind take shortcuts, which answer as the loops do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cel.library import collections
from allocator.cel.values import comparison, selection
from allocator.cel.values.comparison import equal
from allocator.cel.values.selection import contains
from allocator.errors import CelRuntimeError

INTS = st.integers(-3, 3)
TEXTS = st.sampled_from(["a", "b", "é", "😀"])
ANY = st.one_of(INTS, TEXTS, st.booleans(), st.just(1.0))
LISTS = st.one_of(
    *(st.lists(kind, min_size=60, max_size=80) for kind in (INTS, TEXTS, ANY, st.booleans()))
)


def outcome(call, *args):
    try:
        return call(*args)
    except CelRuntimeError as error:
        return error.message


@settings(max_examples=150)
@given(one=LISTS, other=LISTS, item=ANY)
def test_shortcuts_answer_as_the_loops_do(one, other, item):
    calls = [
        *((collections.FUNCTIONS[name], one) for name in ("sum", "min", "max", "isSorted")),
        (collections.FUNCTIONS["isSorted"], sorted(one, key=str)),
        (collections.FUNCTIONS["distinct"], one),
        *((collections.FUNCTIONS[name], one, item) for name in ("indexOf", "lastIndexOf")),
        (collections.FUNCTIONS["includes"], one, item),
        *(
            (collections.FUNCTIONS[f"sets.{name}"], one, other)
            for name in ("contains", "equivalent", "intersects")
        ),
        (contains, item, one),
        (equal, one, other),
        (equal, one, list(one)),
    ]
    quickly = [outcome(*call) for call in calls]
    with pytest.MonkeyPatch.context() as patch:
        for module in (comparison, selection, collections):
            patch.setattr(module, "kind_of", lambda _elements: None)
        slowly = [outcome(*call) for call in calls]
    assert quickly == slowly
    assert [type(each) for each in quickly] == [type(each) for each in slowly]


def test_a_sum_that_overflows_on_its_way_fails_although_its_end_would_not():
    values = [2**62, 2**62, -(2**62)] + [0] * 100
    assert "overflow" in outcome(collections.FUNCTIONS["sum"], values)
