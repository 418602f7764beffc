"""Times beyond Python's calendar, which a message can make."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cel.values.moments import shifted
from tests.allocator.cel.evaluation import ERROR, ask

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(microsecond=0)))
def test_a_moved_time_is_the_time(moment):
    found, years = shifted((moment - EPOCH) // timedelta(seconds=1))
    assert (found.year + years, found.timetuple()[1:8]) == (moment.year, moment.timetuple()[1:8])


@given(st.integers(-(10**17), 10**17))
def test_four_centuries_later_the_calendar_is_the_same(seconds):
    one, years = shifted(seconds)
    other, later = shifted(seconds + 146097 * 86400)
    assert one.timetuple()[1:8] == other.timetuple()[1:8]
    assert other.year + later == one.year + years + 400


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("string(T{seconds: 253402300800}) == '10000-01-01T00:00:00Z'", True),
        ("string(T{seconds: -62167219201}) == '-0001-12-31T23:59:59Z'", True),
        ("T{seconds: 100000000000000}.getFullYear() == 3170843", True),
        ("T{seconds: -62135596800}.getSeconds('America/New_York') == 58", True),  # before zones had whole hours
        ("T{seconds: 253402300800} + duration('0s') == T{}", ERROR),
        ("T{seconds: 9223372036854775807} < T{}", True),  # Go's clock starts again
        ("int(T{seconds: 9223372036854775807}) == 9223372036854775807", True),
        ("T{seconds: 9223372037} - T{} > duration('0s')", ERROR),
        ("T{nanos: -1} == timestamp('1969-12-31T23:59:59.999999999Z')", True),
    ],
)  # fmt: skip
def test_far_times_are_gos(expression, answer):
    assert ask(expression.replace("T{", "google.protobuf.Timestamp{")) == answer
