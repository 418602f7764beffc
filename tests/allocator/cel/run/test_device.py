"""A device as expressions see it."""

import pytest

from tests.allocator.cel.evaluation import ERROR, ask, device

A = 'device.attributes["d.example.com"]'
C = 'device.capacity["d.example.com"]'


@pytest.mark.parametrize("expression", ["true", f"{A}.flag", "device.driver != ''"])
@pytest.mark.parametrize(
    "broken", [{"version": "9.0"}, {"version": "v1.0.0"}, {"versions": ("1.0.0", "x")}, {}]
)
def test_one_broken_attribute_fails_every_expression(expression, broken):
    assert ask(expression, device(bad=broken)) == ERROR


def test_lists_win_over_scalars_in_upstreams_order():
    both = device(both={"int_": 1, "string": "s", "strings": ("x",), "bools": (True,)})
    assert ask(f"{A}.both == [true]", both) is True
    scalars = device(both={"version": "1.0.0", "string": "s", "bool_": False})
    assert ask(f"{A}.both == false", scalars) is True


def test_names_split_at_the_first_slash():
    odd = device(**{"a/b/c": {"int_": 1}})
    assert ask('device.attributes["a"]["b/c"] == 1', odd) is True
    assert ask('device.attributes["std.example.com"].numa == 1', odd) is True


def test_allow_multiple_allocations_is_false_when_unset():
    assert ask("device.allowMultipleAllocations") is False
    assert ask("device.allowMultipleAllocations", device(multiple=True)) is True
