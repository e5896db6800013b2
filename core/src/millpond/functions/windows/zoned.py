"""Windows by the clock on the wall: days and hours of a time zone, across its changes of offset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs

from millpond.arguments import check_type
from millpond.errors import ConfigError, brief
from millpond.functions.windows.window import TimeWindow, window_of

__all__ = ["WallClock", "zone_named"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# A day within what datetime holds, so that every offset of a zone still fits.
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND + 86_400_000
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND - 86_400_000


def zone_named(zone: str | tzinfo | None) -> tzinfo | None:
    """A time zone by its IANA name, or as it is.

    Raises:
        ConfigError: there is no such zone, or this machine has no data of zones.
    """
    check_type("time_zone", zone, str | tzinfo | None)
    if not isinstance(zone, str):
        return zone
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        reason = (
            f"{brief(zone)} is not a time zone that this machine knows: expected an IANA name "
            "such as 'Europe/Berlin'; if that is one, install the package tzdata"
        )
        raise ConfigError("time_zone", reason, "windows") from None


@attrs.frozen
class WallClock:
    """Divides the time that a zone's clocks show into slots of a size.

    A window is a stretch of time during which the clocks stay in one slot: a day may have 23 or
    25 hours, and when clocks are set back within a slot, the slot is as much longer. Where they
    are set back into an earlier slot, that one comes twice, as two windows.

    Attributes:
        zone: the time zone.
        size: of a slot in ms.
        offset: where slots begin, in ms after local midnight of 1970-01-01.
    """

    zone: tzinfo
    size: int
    offset: int

    def window_at(self, time: int) -> TimeWindow:
        """The window of a time, both in ms since the epoch."""
        slot = self._slot(time)
        start, end = self._start(time, slot), self._end(time, slot)
        while self._slot(start - 1) == slot:
            start = self._start(start - 1, slot)
        while self._slot(end) == slot:
            end = self._end(end, slot)
        return window_of(start, end)

    def _shift(self, time: int) -> int:
        """How far local clocks are ahead of UTC; beyond year 1 and 9999 as at those."""
        within = min(max(time, _FIRST), _LAST)
        offset = (_EPOCH + timedelta(milliseconds=within)).astimezone(self.zone).utcoffset()
        return 0 if offset is None else offset // _MILLISECOND

    def _slot(self, time: int) -> int:
        return (time + self._shift(time) - self.offset) // self.size

    def _start(self, time: int, slot: int) -> int:
        """Since when the clocks have been in a slot with the offset that they have at a time."""
        shift = self._shift(time)
        start = slot * self.size + self.offset - shift
        return start if self._shift(start) == shift else self._last_change(start, time)

    def _end(self, time: int, slot: int) -> int:
        """Until when the clocks stay in a slot with the offset that they have at a time."""
        shift = self._shift(time)
        end = (slot + 1) * self.size + self.offset - shift
        return end if self._shift(end - 1) == shift else self._first_change(time, end - 1)

    def _last_change(self, before: int, time: int) -> int:
        """The first time of the offset at ``time``, which another one preceded at ``before``."""
        shift = self._shift(time)
        while time - before > 1:
            middle = (before + time) // 2
            before, time = (before, middle) if self._shift(middle) == shift else (middle, time)
        return time

    def _first_change(self, time: int, after: int) -> int:
        """The first time of another offset than at ``time``; there is another at ``after``."""
        shift = self._shift(time)
        while after - time > 1:
            middle = (time + after) // 2
            time, after = (middle, after) if self._shift(middle) == shift else (time, middle)
        return after
