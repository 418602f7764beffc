from tests.benchmarks.donothing import Slots

_NAMES = ["a", "b", "c"]


def test_all_nodes_with_something_left_are_answered():
    slots = Slots(1, 0)
    assert slots.take("p", "b") == 0
    assert slots.free("q", _NAMES) == ["a", "c"]
    assert slots.take("q", "b") is None


def test_a_shortlist_holds_the_first_nodes_with_something_left():
    slots = Slots(2, 2)
    assert [slots.take(pod, "a") for pod in "pq"] == [0, 1]
    assert slots.free("r", _NAMES) == ["b", "c"]


def test_a_forced_choice_is_held_for_its_pod_and_no_two_pods_get_the_same_place():
    slots = Slots(1, 1)
    assert slots.free("p", _NAMES) == ["a"]
    assert slots.free("q", _NAMES) == ["b"]
    assert slots.free("p", _NAMES) == ["a"]
    assert slots.take("p", "a") == 0
    assert slots.take("q", "b") == 0
    assert slots.free("r", _NAMES) == ["c"]
    assert slots.free("s", _NAMES) == []
