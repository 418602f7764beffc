"""Durations and timestamps: reading, writing and arithmetic.

Source: Go's time.ParseDuration and time.Parse(RFC3339), cel-go common/types/{duration,timestamp,overflow}.go.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from allocator.cel.values.scalars import MAX_INT, MIN_INT, Duration, Timestamp
from allocator.errors import CelRuntimeError

NANOS: Final = 10**9
_MIN_SECONDS: Final = -62135596800  # 0001-01-01T00:00:00Z
_MAX_SECONDS: Final = 253402300799  # 9999-12-31T23:59:59Z
_FOUR_CENTURIES: Final = 146097 * 86400
_FIRST_SECOND: Final = -9223372028741760000  # of Go's calendar, which starts again behind its end
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": NANOS,
    "m": 60 * NANOS,
    "h": 3600 * NANOS,
}
_PART: Final = re.compile(r"([0-9]*+)(?:\.([0-9]*+))?([^0-9.]++)")
_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:(Z)|([+-])([0-9]{2}):([0-9]{2}))",
    re.ASCII,
)
_MOST_DIGITS: Final = 19
_DIGITS_THAT_COUNT: Final = 300  # behind the point: what follows is far below a nanosecond
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ZERO_TIME: Final = Timestamp(_MIN_SECONDS * NANOS)  # what Go takes for no time at all


def parse_duration(text: str) -> Duration:
    """Read a Go duration such as `1h30m` or `-1.5s`.

    Raises:
        CelRuntimeError: it is none.
    """
    problem = CelRuntimeError("type conversion error from 'string' to 'google.protobuf.Duration'")
    negative = text[:1] == "-"
    rest = text[1:] if text[:1] in ("-", "+") and text else text
    if rest == "0":
        return Duration(0)
    if not rest:
        raise problem
    total = 0
    pos = 0
    while pos < len(rest):
        match = _PART.match(rest, pos)
        if match is None:
            raise problem
        whole, fraction, unit = match.groups()
        scale = _UNITS.get(unit)
        significant = whole.lstrip("0")
        if scale is None or not (whole or fraction) or len(significant) > _MOST_DIGITS:
            raise problem
        total += int(significant or "0") * scale
        if fraction:
            total += _part(fraction, scale)
        if total > 2**63:
            raise problem
        pos = match.end()
    if negative:
        return Duration(-total)
    if total > MAX_INT:
        raise problem
    return Duration(total)


def _part(fraction: str, scale: int) -> int:
    """A part of a unit, in Go's floating point operations on as many digits as 63 bits hold."""
    stripped = fraction.lstrip("0")
    digits = stripped[:_MOST_DIGITS]
    if len(digits) == _MOST_DIGITS and int(digits) > 2**63:
        digits = digits[:-1]
    count = len(fraction) - len(stripped) + len(digits)
    if not digits or count > _DIGITS_THAT_COUNT:
        return 0
    return int(float(int(digits)) * (scale / 10.0**count))


def write_duration(value: Duration) -> str:
    """Write a duration in seconds, e.g. `5400s`."""
    seconds = value.nanos // NANOS if value.nanos >= 0 else -(-value.nanos // NANOS)
    number = float(seconds) + (value.nanos - seconds * NANOS) / 1e9
    return f"{plain_float(number)}s"


def plain_float(value: float) -> str:
    """The shortest decimal without exponent that reads back to the same double."""
    text = repr(value)
    if "e" not in text:
        return text.removesuffix(".0")
    mantissa, _, exponent_text = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent_text)
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def go_float(value: float) -> str:
    """Go's %g: the shortest decimal, with an exponent below 1e-4 and from 1e6 on."""
    if value != value:  # NaN
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if str(value).startswith("-") else "0"
    plain = plain_float(value)
    if 1e-4 <= abs(value) < 1e6:
        return plain
    sign = "-" if value < 0 else ""
    whole, _, fraction = plain.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0").rstrip("0")
    exponent = len(whole) - 1 if whole != "0" else len(fraction.lstrip("0")) - len(fraction) - 1
    mantissa = f"{digits[0]}.{digits[1:]}".rstrip(".")
    return f"{sign}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def parse_timestamp(text: str) -> Timestamp:
    """Read an RFC 3339 time.

    Raises:
        CelRuntimeError: it is none, or outside the years 1 to 9999.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise CelRuntimeError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    year, month, day, hour, minute, second, fraction, zulu, sign, zone_hours, zone_minutes = (
        match.groups()
    )
    try:
        # Year 0 exists in Go's calendar, but not in the range of timestamps.
        moment = datetime(
            int(year) or 4, int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC
        )
    except ValueError:
        raise CelRuntimeError(
            "type conversion error from 'string' to 'google.protobuf.Timestamp'"
        ) from None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if year == "0000":
        seconds -= 4 * 365 * 86400 + 86400
    offset = 0
    if not zulu:
        if int(zone_hours) > 24 or int(zone_minutes) > 60:
            raise CelRuntimeError(
                "type conversion error from 'string' to 'google.protobuf.Timestamp'"
            )
        offset = int(zone_hours) * 3600 + int(zone_minutes) * 60
        offset = offset if sign == "+" else -offset
    nanos = int(fraction[:9].ljust(9, "0")) if fraction else 0
    return from_seconds(seconds - offset, nanos, offset)


def from_seconds(seconds: int, nanos: int = 0, offset: int = 0) -> Timestamp:
    """A timestamp from seconds since 1970.

    Raises:
        CelRuntimeError: outside the years 1 to 9999.
    """
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise CelRuntimeError("timestamp overflow")
    return Timestamp(seconds * NANOS + nanos, offset)


def duration_of(seconds: int, nanos: int) -> Duration:
    """The duration that a message of seconds and nanoseconds stands for; one that is too long is the longest."""
    total = seconds * NANOS + nanos
    return Duration(max(MIN_INT, min(MAX_INT, total)))


def timestamp_of(seconds: int, nanos: int) -> Timestamp:
    """The time that a message of seconds and nanoseconds since 1970 stands for, in any year.

    Go counts from the year 1 in 64 bits: the very last seconds come before all others.
    """
    seconds, nanos = seconds + nanos // NANOS, nanos % NANOS
    seconds = (seconds - _MIN_SECONDS + 2**63) % 2**64 - 2**63 + _MIN_SECONDS
    return Timestamp(seconds * NANOS + nanos)


def write_timestamp(value: Timestamp) -> str:
    """Write a time as RFC 3339 in the zone it was written in, with as many digits as needed."""
    seconds, nanos = divmod(value.nanos, NANOS)
    moment, years = shifted(seconds + value.offset)
    year = moment.year + years
    sign = "-" if year < 0 else ""
    text = f"{sign}{abs(year):04d}-{moment.month:02d}-{moment.day:02d}T{moment:%H:%M:%S}"
    if nanos:
        text = f"{text}.{nanos:09d}".rstrip("0")
    if not value.offset:
        return f"{text}Z"
    minutes = abs(value.offset) // 60
    return f"{text}{'-' if value.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def shifted(seconds: int) -> tuple[datetime, int]:
    """A time in UTC, moved by centuries where it would leave Python's calendar or come near its ends.

    The calendar repeats itself, weekdays included, after 400 years.

    Returns:
        The time, and the years to add to it.
    """
    cycles = 0
    if seconds < _FIRST_SECOND:
        seconds += 2**64
    # To years long ago or far ahead: zones had and will have the same rules there.
    if seconds < _MIN_SECONDS + _FOUR_CENTURIES:
        cycles = (seconds - _MIN_SECONDS) // _FOUR_CENTURIES - 1
    elif seconds > _MAX_SECONDS - _FOUR_CENTURIES:
        cycles = (seconds - _MAX_SECONDS) // _FOUR_CENTURIES + 2
    return _EPOCH + timedelta(seconds=seconds - cycles * _FOUR_CENTURIES), cycles * 400


def _duration(nanos: int) -> Duration:
    if MIN_INT <= nanos <= MAX_INT:
        return Duration(nanos)
    raise CelRuntimeError("duration overflow")


def _in_range(nanos: int) -> int:
    if MIN_INT <= nanos <= MAX_INT:
        return nanos
    raise CelRuntimeError("integer overflow")


def _timestamp(nanos: int, offset: int) -> Timestamp:
    if not _MIN_SECONDS <= nanos // NANOS <= _MAX_SECONDS:
        raise CelRuntimeError("timestamp overflow")
    return Timestamp(nanos, offset)


def add(left: Any, right: Any) -> Duration | Timestamp:
    """The `+` operator where the left side is a duration or timestamp."""
    one, other = left.__class__, right.__class__
    if one is Duration and other is Duration:
        return _duration(left.nanos + right.nanos)
    if {one, other} == {Duration, Timestamp}:
        return _timestamp(left.nanos + right.nanos, (left if one is Timestamp else right).offset)
    raise CelRuntimeError("no such overload")


def subtract(left: Any, right: Any) -> Duration | Timestamp:
    """The `-` operator where the left side is a duration or timestamp."""
    one, other = left.__class__, right.__class__
    if one is other is Timestamp:
        seconds = (left.nanos // NANOS - right.nanos // NANOS) * NANOS
        return Duration(_in_range(_in_range(seconds) + left.nanos % NANOS - right.nanos % NANOS))
    if one is other:
        return _duration(left.nanos - right.nanos)
    if one is Timestamp and other is Duration:
        return _timestamp(left.nanos - right.nanos, left.offset)
    raise CelRuntimeError("no such overload")


def negate(value: Duration) -> Duration:
    """The unary `-` of a duration."""
    return _duration(-value.nanos)
