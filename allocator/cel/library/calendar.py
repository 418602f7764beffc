"""Calendar fields of timestamps in a time zone, and units of durations.

Source: cel-go common/types/{duration,timestamp}.go.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from allocator.cel.values.moments import NANOS, shifted
from allocator.cel.values.names import no_such_overload
from allocator.cel.values.scalars import Duration, Timestamp
from allocator.errors import CelRuntimeError

_SHORT_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,8}", re.ASCII)


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo | int:
    """A zone by its IANA name, or the seconds east of UTC that a text like `-08:00` means.

    Raises:
        CelRuntimeError: unknown.
    """
    if ":" not in name:
        if name in ("", "UTC", "Local"):  # a scheduler runs in UTC
            return 0
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise CelRuntimeError(f"unknown time zone {name[:80]}") from None
    hours, _, minutes = name.partition(":")
    for part in (hours, minutes):
        if _SHORT_INTEGER.fullmatch(part) is None:
            raise CelRuntimeError(f'strconv.Atoi: parsing "{part[:40]}": invalid syntax')
    sign = -1 if hours.startswith("-") else 1
    return int(hours) * 3600 + sign * int(minutes) * 60


def _moment(value: Timestamp, zone: str) -> tuple[datetime, int]:
    seconds = value.nanos // NANOS
    found = _zone(zone)
    if isinstance(found, int):
        return shifted(seconds + found)
    moment, years = shifted(seconds)
    return moment.astimezone(found), years


def _milliseconds(value: Timestamp) -> int:
    return value.nanos % NANOS // 10**6


_FIELDS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda moment: moment.year,  # the caller adds the years that it was moved by
    "getMonth": lambda moment: moment.month - 1,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
}
_DURATION_UNITS: Final = {
    "getHours": 3600 * NANOS,
    "getMinutes": 60 * NANOS,
    "getSeconds": NANOS,
    "getMilliseconds": 10**6,
}


def _field(name: str) -> Callable[..., object]:
    """The method of timestamps and, where there is one, of durations."""
    unit = _DURATION_UNITS.get(name)
    field = _FIELDS.get(name)

    def method(value: Any, *zone: Any) -> int:
        cls = value.__class__
        if cls is Duration and unit is not None and not zone:
            quotient = abs(value.nanos) // unit
            return -quotient if value.nanos < 0 else quotient  # type: ignore[no-any-return]
        if cls is not Timestamp or (zone and zone[0].__class__ is not str):
            raise no_such_overload(name, value, *zone)
        moment, years = _moment(value, zone[0] if zone else "UTC")
        if field is None:
            return _milliseconds(value)
        return field(moment) + (years if name == "getFullYear" else 0)

    return method


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {
    name: _field(name) for name in (*_FIELDS, "getMilliseconds")
}
