"""Time windows: the namespaces of a window operator's state."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from millpond.arguments import INT64, check_type, check_within
from millpond.errors import ConfigError, WindowRangeError, brief
from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP

__all__ = ["GLOBAL_WINDOW", "TimeWindow", "check_range", "milliseconds", "window_of"]


class TimeWindow(NamedTuple):
    """The times from ``start`` up to, but not at, ``end``, in ms since the epoch."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        """Return the last time of the window; MAX_TIMESTAMP for the window of ``GlobalWindows``."""
        return MAX_TIMESTAMP if self == GLOBAL_WINDOW else self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether both have a time in common, or touch."""
        try:
            return self.start <= other.end and self.end >= other.start
        except AttributeError:
            check_type("other", other, TimeWindow)
            raise

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that holds both."""
        if not isinstance(other, TimeWindow):
            check_type("other", other, TimeWindow)
        return window_of(min(self.start, other.start), max(self.end, other.end))


@lru_cache(maxsize=4096)
def window_of(start: int, end: int) -> TimeWindow:
    """A window; the same object for the same times, by which states know it is still current."""
    return TimeWindow(start, end)


GLOBAL_WINDOW = window_of(MIN_TIMESTAMP, MAX_TIMESTAMP)
"""The one window of ``GlobalWindows``."""


def check_range(windows: Iterable[Any], time: int) -> None:
    """Raise WindowRangeError if a time window of a row exceeds the range of 64-bit times."""
    for window in windows:
        if not isinstance(window, TimeWindow):
            return
        if window.start < MIN_TIMESTAMP or window.end > MAX_TIMESTAMP:
            raise WindowRangeError(time, *window)


def milliseconds(value: timedelta | int, what: str) -> int:
    """A length of time in whole ms; ConfigError if it is not one, or has a part of a ms."""
    if isinstance(value, timedelta):
        given = value
        value, rest = divmod(given, timedelta(milliseconds=1))
        if rest and given != timedelta.max:  # the longest is taken as it is
            reason = f"{brief(given)} has a part of a millisecond; windows know whole ones alone"
            raise ConfigError(what, reason, "windows")
    if isinstance(value, bool) or not isinstance(value, int):
        reason = f"expected a timedelta or ms as an int, got {brief(value)}"
        raise ConfigError(what, reason, "windows")
    check_within(what, value, *INT64)
    return value
