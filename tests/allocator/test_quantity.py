"""Quantities: what they mean, how they are written, how they add up."""

import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.errors import QuantityError
from allocator.quantity import BINARY_SI, DECIMAL_EXPONENT, DECIMAL_SI, NANOS_PER_UNIT, Quantity

# Text -> canonical text, as upstream writes it.
CANONICAL = [
    ("0", "0"),
    ("1", "1"),
    ("+5", "5"),
    ("-5", "-5"),
    ("1000", "1k"),
    ("1500", "1500"),
    ("1500m", "1500m"),
    ("0.5", "500m"),
    ("1.5Gi", "1536Mi"),
    ("1024Mi", "1Gi"),
    ("1024", "1024"),
    ("0.5Ki", "512"),
    ("1.5", "1500m"),
    ("1e3", "1e3"),
    ("1.5e3", "1500"),
    ("12e4", "120e3"),
    ("100u", "100u"),
    ("0.0000000001", "1n"),
    ("-0.0000000001", "-1n"),
    ("1e-30", "1e-9"),
    ("16Ei", "9223372036854775807"),
    ("5.", "5"),
    (".5", "500m"),
    ("1E", "1E"),
    ("1000E", "1"),  # upstream has no suffix for it, and leaves it out
    ("00012", "12"),
]
REFUSED = [
    "",
    " ",
    "1 ",
    "1GB",
    "1ki",
    "KiB",
    "1e",
    "1e+",
    "e",
    "--1",
    "1.2.3",
    "0x10",
    "1_000",
    "\u0661",
    "1e401",
    "Ei",
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_a_quantity_is_written_as_upstream_writes_it(text, canonical):
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_is_no_quantity_is_refused(text):
    with pytest.raises(QuantityError):
        Quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "whole"),
    [("1", 1), ("1k", 1000), ("1e3", 1000), ("80Gi", 80 * 2**30), ("1000m", None), ("1.5Gi", None), ("0.5", None),
     ("9223372036854775807", None), ("123456789012345678", 123456789012345678), ("0", 0)],
)  # fmt: skip
def test_only_what_upstream_holds_as_an_integer_is_one(text, whole):
    assert Quantity.parse(text).as_int64() == whole


def test_the_format_is_that_of_the_text():
    assert Quantity.parse("1Gi").format == BINARY_SI
    assert Quantity.parse("1G").format == DECIMAL_SI
    assert Quantity.parse("1e9").format == DECIMAL_EXPONENT
    assert Quantity.parse("0.1Ki").format == BINARY_SI
    assert Quantity.parse("0.0001Ki").format == DECIMAL_SI


def test_values_round_away_from_zero():
    assert Quantity.parse("1.2").rounded_up() == 2
    assert Quantity.parse("-1.2").rounded_up() == -2
    assert Quantity.parse("1").rounded_up() == 1
    assert Quantity.parse("0.0001").milli_rounded_up() == 1


def test_a_sum_keeps_the_format_of_its_first_part_unless_that_is_nothing():
    assert str(Quantity.parse("1Gi") + Quantity.parse("1Gi")) == "2Gi"
    assert str(Quantity.parse("0") + Quantity.parse("1Gi")) == "1Gi"
    assert str(Quantity.parse("1k") - Quantity.parse("1")) == "999"


def test_a_short_text_makes_no_huge_number():
    with pytest.raises(QuantityError):
        Quantity.parse("1e999999999")
    assert Quantity.parse("1e-999999999").nanos == 1
    assert Quantity.parse("0e999999999").nanos == 0


SCALES = {
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "m": Fraction("0.001"),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
}
amounts = st.integers(-(10**30), 10**30)
formats = st.sampled_from([BINARY_SI, DECIMAL_SI, DECIMAL_EXPONENT])


@given(st.integers(-(2**62), 2**62), formats)
def test_whole_numbers_survive_being_written_and_read(value, format_):
    quantity = Quantity.from_int(value, format_)
    assert Quantity.parse(str(quantity)) == quantity


@given(st.integers(-(10**18), 10**18), st.sampled_from([DECIMAL_SI, DECIMAL_EXPONENT]))
def test_fractions_survive_being_written_and_read(nanos, format_):
    quantity = Quantity(nanos, format_)
    assert Quantity.parse(str(quantity)) == quantity


@given(
    st.integers(0, 10**12),
    st.integers(0, 9),
    st.sampled_from(sorted(SCALES)),
)
def test_a_text_means_what_it_says(number, decimals, suffix):
    exact = Fraction(number, 10**decimals) * SCALES[suffix] * NANOS_PER_UNIT
    text = f"{number:0{decimals + 1}d}"
    text = f"{text[:-decimals]}.{text[-decimals:]}" if decimals else text
    ceiling = -(-exact.numerator // exact.denominator)
    if ceiling <= (2**63 - 1) * NANOS_PER_UNIT:
        assert Quantity.parse(text + suffix).nanos == ceiling


@given(amounts, amounts)
def test_order_equality_and_sums_are_those_of_the_numbers(left, right):
    one, other = Quantity(left), Quantity(right)
    assert (one < other, one <= other, one > other, one >= other, one == other) == (
        left < right, left <= right, left > right, left >= right, left == right,
    )  # fmt: skip
    assert (one + other).nanos == left + right
    assert (one - other).nanos == left - right
    assert hash(one) == hash(Quantity(left, BINARY_SI))


@given(st.text(alphabet="0123456789.+-eEnumkKMGTPi ", max_size=12))
def test_any_text_is_read_or_refused_and_reads_back(text):
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    if abs(quantity.nanos) < 10**21 * NANOS_PER_UNIT:
        assert Quantity.parse(str(quantity)) == quantity
    assert pickle.loads(pickle.dumps(quantity)) == quantity
