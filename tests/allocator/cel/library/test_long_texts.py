"""Texts of thousands of characters are read as upstream reads them, in time that grows with their length."""

import time

import pytest

from allocator.cel.library.convert import to_double, to_int
from allocator.cel.values.moments import parse_duration
from allocator.errors import CelRuntimeError, QuantityError
from allocator.quantity import Quantity
from tests.allocator.cel.evaluation import ERROR, ask

ZEROS = "0" * 5000
SECONDS = 30  # tells linear from quadratic on a slow machine


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (f"int(string(dyn('{ZEROS}1'))) == 1", True),
        (f"int(string(dyn('-{ZEROS}9223372036854775808'))) < 0", True),
        (f"dyn(int(string(dyn('{ZEROS}9223372036854775808').substring(0)))) == 1", ERROR),
        (f"uint('{ZEROS}18446744073709551615') > 1u", True),
        (f"double('0.{ZEROS}1') == 0.0", True),
        (f"double('1.{ZEROS}') == 1.0", True),
        (f"duration('{ZEROS}1h{ZEROS}1m') == duration('61m')", True),
        (f"duration('1.{'9' * 5000}s') == duration('2s')", True),
        (f"duration('0.{ZEROS}1s') == duration('0s')", True),
        (f"timestamp('2024-01-01T00:00:00.{'1' * 5000}Z') > timestamp('2024-01-01T00:00:00Z')", True),
        (f"quantity('{ZEROS}1Gi') == quantity('1024Mi')", True),
        (f"quantity('0.{ZEROS}1') == quantity('1n')", True),
        (f"quantity('1e{ZEROS}3') == quantity('1k')", True),
        (f"quantity('{'1' * 2000}') == quantity('1')", ERROR),  # larger than ours, see allocator.quantity
    ],
)  # fmt: skip
def test_zeros_and_digits_beyond_counting_do_not_matter(expression, answer):
    assert ask(expression) == answer


@pytest.mark.parametrize("read", [to_int, to_double, parse_duration, Quantity.parse])
@pytest.mark.parametrize(
    "text",
    ["0" * 500_000 + "?", "1." + "1" * 500_000 + "?", "1_" * 250_000, "1e" + "0" * 500_000 + "x"],
)
def test_a_long_text_that_is_none_is_refused_soon(read, text):
    start = time.process_time()
    with pytest.raises((CelRuntimeError, QuantityError)):
        read(text)
    assert time.process_time() - start < SECONDS
