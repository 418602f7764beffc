"""What cel-python says beside our CEL: which expressions it is asked, and what is known to differ."""

from collections import Counter

import pytest

from allocator.cel import Compiler, compile_selector
from tests.conformance.cel_second_opinion import is_common, known, questions
from tests.conformance.ours_cel import ours

pytestmark = pytest.mark.conformance


def test_every_known_difference_has_a_reason_and_is_one_where_we_say_what_upstream_says():
    compiler = Compiler()
    listed = known()
    asked = {each["id"]: each for each in questions()}

    assert listed.keys() <= asked.keys()
    for each in listed.values():
        mine = ours(asked[each.id], compiler)["result"]
        assert each.expr == asked[each.id]["expr"]
        assert each.upstream == ("error" if mine.endswith("_error") else mine)
        assert each.cel_python != each.upstream
        assert len(each.reason) > len("?")


def test_enough_is_asked_to_mean_something():
    kinds = Counter(each["id"].partition("-")[0] == "recorded" for each in questions())
    assert kinds[False] > 150
    assert kinds[True] > 1_500


@pytest.mark.parametrize(
    ("expression", "common"),
    [
        ('device.attributes["d"].a == 1 && [1].exists(x, x == 1)', True),
        ('has(device.attributes["d"].a) ? "x".startsWith("y") : timestamp("2024-01-01T00:00:00Z").getHours() == 1', True),
        ('device.capacity["d"].a == quantity("1")', False),
        ('device.attributes["d"].?a.orValue(1) == 1', False),
        ("cel.bind(x, 1, x == 1)", False),
        ("[1].all(i, x, x == 1)", False),
        ("google.protobuf.Int32Value{} == 0", False),
        ("[?optional.of(1)] == [1]", False),
        ('"x".lowerAscii() == "x"', False),
    ],
)  # fmt: skip
def test_the_subset_is_what_the_standard_knows(expression, common):
    assert is_common(compile_selector(expression)) is common
