"""The mapping that is changed without being copied is what a dict would be, and versions given out hold."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.cache.layered import LayeredMap
from tests.threads import at_once

KEYS = st.integers(0, 60)
CHANGES = st.lists(st.dictionaries(KEYS, st.none() | st.integers(), max_size=5), max_size=40)


@given(base=st.dictionaries(KEYS, st.integers()), steps=CHANGES)
def test_it_is_what_a_dict_would_be_after_every_change(base, steps):
    mapping, expected = LayeredMap(dict(base)), dict(base)
    versions = [(mapping, dict(expected))]
    for changes in steps:
        mapping = mapping.changed(changes)
        for key, value in changes.items():
            expected.pop(key, None) if value is None else expected.update({key: value})
        versions.append((mapping, dict(expected)))
    for made, was in versions:
        assert dict(made.items()) == was
        assert len(made) == len(was) == len(list(made))
        assert set(made) == made.keys() == was.keys()
        assert sorted(made.values()) == sorted(was.values())
        for key in range(61):
            assert (key in made) is (key in was)
            assert made.get(key, "none") == was.get(key, "none")


def test_values_of_known_keys_change_without_changing_the_order():
    mapping = LayeredMap({"a": 1, "b": 2, "c": 3}).changed({"b": 5})
    assert list(mapping.items()) == [("a", 1), ("b", 5), ("c", 3)]


def test_a_change_copies_neither_base_nor_all_earlier_changes():
    mapping = LayeredMap(dict.fromkeys(range(10_000), 0))
    bases = set()
    for number in range(1_000):
        mapping = mapping.changed({number: 1})
        bases.add(id(mapping._base))
        assert len(mapping._over) <= 100
    assert len(bases) <= 11


def test_it_is_merged_in_one_thread_while_others_merge_and_read_it() -> None:
    for _ in range(300):
        changed = LayeredMap({number: number for number in range(400)}).changed(
            {1: -1, 2: None, 1000: 5}
        )

        def read(changed: LayeredMap[int, int] = changed) -> None:
            assert [changed.get(key) for key in (1, 2, 3, 1000)] == [-1, None, 3, 5]

        at_once(changed.keys, changed.keys, read)
        read()
