"""Window assigners: tumbling, sliding and session windows, also by the clocks of a time zone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, ClassVar, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs
from typing_extensions import override

from millpond.arguments import INT64, check_type, typed, within
from millpond.errors import ConfigError, brief
from millpond.functions.windows.triggers import (
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    Trigger,
)
from millpond.functions.windows.window import GLOBAL_WINDOW, TimeWindow, milliseconds, window_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# One day less than datetime's range, so that local times of every zone are in the range.
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND + 86_400_000
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND - 86_400_000


def as_time_zone(zone: str | tzinfo | None) -> tzinfo | None:
    """Return the time zone of an IANA name; a time zone or None is returned unchanged.

    Raises:
        ConfigError: there is no such zone, or this machine has no time zone data.
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
    """Divides the local time of a zone into slots of one size, such as days.

    A window is a period during which the local time is in one slot. So a window of a day may have
    23 or 25 hours. If clocks are set back into an earlier slot, that slot occurs twice, as two
    windows.

    Attributes:
        zone: the time zone.
        size: the size of a slot in ms.
        offset: the beginning of one of the slots, in ms after local midnight of 1970-01-01.
    """

    zone: tzinfo
    size: int
    offset: int

    def window_at(self, time: int) -> TimeWindow:
        """Return the window that contains ``time``, which is in ms since the epoch."""
        slot = self._slot(time)
        start, end = self._start(time, slot), self._end(time, slot)
        while self._slot(start - 1) == slot:
            start = self._start(start - 1, slot)
        while self._slot(end) == slot:
            end = self._end(end, slot)
        return window_of(start, end)

    def _shift(self, time: int) -> int:
        """Return the offset of local time from UTC at ``time``, in ms.

        Times before the year 1 have the offset of that year, and times after 9999 that of 9999.
        """
        within = min(max(time, _FIRST), _LAST)
        offset = (_EPOCH + timedelta(milliseconds=within)).astimezone(self.zone).utcoffset()
        return 0 if offset is None else offset // _MILLISECOND

    def _slot(self, time: int) -> int:
        """Return the number of the slot that contains ``time``, in ms."""
        return (time + self._shift(time) - self.offset) // self.size

    def _start(self, time: int, slot: int) -> int:
        """Return the start of ``slot``, which contains ``time``.

        If the UTC offset changes between that start and ``time``, return the time of the change.
        """
        shift = self._shift(time)
        start = slot * self.size + self.offset - shift
        return start if self._shift(start) == shift else self._change_between(time, start)

    def _end(self, time: int, slot: int) -> int:
        """Return the end of ``slot``, which contains ``time``.

        If the UTC offset changes between ``time`` and that end, return the time of the change.
        """
        shift = self._shift(time)
        end = (slot + 1) * self.size + self.offset - shift
        return end if self._shift(end - 1) == shift else self._change_between(time, end - 1)

    def _change_between(self, time: int, other: int) -> int:
        """Return the time between ``time`` and ``other`` at which the UTC offset changes.

        The UTC offsets at ``time`` and ``other`` must differ. The search is a bisection.
        """
        shift = self._shift(time)
        while abs(time - other) > 1:
            middle = (time + other) // 2
            if self._shift(middle) == shift:
                time = middle
            else:
                other = middle
        return max(time, other)


Length = timedelta | int
"""A timedelta, or milliseconds."""

_TIME = within(*INT64)
_MOST_WINDOWS = 100_000
"""The maximum number of windows that one element belongs to."""


class WindowAssigner(ABC):
    """Assigns windows to elements.

    Attributes:
        is_event_time: whether elements are assigned by event time instead of processing time.
        is_merging: whether windows that overlap or touch are merged.
        window_type: the type of the windows: any type that keys can have, with a method
            ``max_timestamp()``, which returns the last time of a window. Merging windows also need
            the methods ``intersects(other)`` and ``cover(other)``.
    """

    is_event_time: ClassVar[bool]
    is_merging: ClassVar[bool] = False
    window_type: ClassVar[type[Any]] = TimeWindow

    @abstractmethod
    def assign_windows(self, element: Any, timestamp: int) -> Collection[Any]:
        """Return the windows of ``element``, whose time in ms is ``timestamp``."""

    def _moments_alike(self, timestamp: int, windows: Sequence[Any]) -> tuple[int, int]:
        """Return a range of times around ``timestamp`` in which all elements get ``windows``.

        This method is called only if ``assign_windows`` is Millpond's own.

        Args:
            timestamp: the time of an element, in ms.
            windows: the element's windows, after they have been merged.

        Returns:
            The first time of the range, and the time after its last time.
        """
        return timestamp, timestamp

    def default_trigger(self) -> Trigger:
        """Return the trigger of the windows if the user sets no trigger."""
        return EventTimeTrigger() if self.is_event_time else ProcessingTimeTrigger()


@attrs.frozen
class _Tumbling(WindowAssigner):
    """Consecutive windows of one size."""

    size: int = attrs.field(validator=_TIME)
    offset: int = attrs.field(default=0, validator=_TIME)
    time_zone: tzinfo | None = attrs.field(default=None, converter=as_time_zone)
    _clock: WallClock | None = attrs.field(init=False, default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.size <= 0 or abs(self.offset) >= self.size:
            option = "size" if self.size <= 0 else "offset"
            reason = (
                f"size {self.size}, offset {self.offset} ms: the size must be positive, and the "
                "offset smaller than it"
            )
            raise ConfigError(option, reason, type(self).__name__)
        if self.time_zone is not None:
            clock = WallClock(self.time_zone, self.size, self.offset)
            object.__setattr__(self, "_clock", clock)

    @classmethod
    def of(cls, size: Length, offset: Length = 0, *, time_zone: str | tzinfo | None = None) -> Self:
        """Return consecutive windows of one size.

        Args:
            size: the size of a window.
            offset: the time from a multiple of ``size`` since 1970 to the beginning of a window.
            time_zone: a time zone such as ``"Europe/Berlin"``, UTC by default. With a zone, a day
                begins at local midnight and may have 23 or 25 hours.

        Raises:
            ConfigError: the size is not positive, the offset is not below the size, or there is no
                such time zone.
        """
        return cls(milliseconds(size, "size"), milliseconds(offset, "offset"), time_zone)

    @override
    def assign_windows(self, element: Any, timestamp: int) -> Collection[TimeWindow]:
        if self._clock is not None:
            return (self._clock.window_at(timestamp),)
        start = timestamp - (timestamp - self.offset) % self.size
        return (window_of(start, start + self.size),)

    @override
    def _moments_alike(self, timestamp: int, windows: Sequence[TimeWindow]) -> tuple[int, int]:
        # In local time a window may begin or end within an hour that occurs twice.
        return windows[0] if self._clock is None else (timestamp, timestamp + 1)


@attrs.frozen
class _Sliding(WindowAssigner):
    """Overlapping windows of one size; one begins every ``slide`` ms."""

    size: int = attrs.field(validator=_TIME)
    slide: int = attrs.field(validator=_TIME)
    offset: int = attrs.field(default=0, validator=_TIME)

    def __attrs_post_init__(self) -> None:
        extent = f"size {self.size}, slide {self.slide}, offset {self.offset} ms"
        if self.size <= 0 or self.slide <= 0 or abs(self.offset) >= self.slide:
            option = "size" if self.size <= 0 else "slide" if self.slide <= 0 else "offset"
            reason = f"{extent}: size and slide must be positive, and the offset smaller than slide"
            raise ConfigError(option, reason, type(self).__name__)
        if self.size > self.slide * _MOST_WINDOWS:
            reason = f"with {extent} each element is in more than {_MOST_WINDOWS:,} windows"
            raise ConfigError("size", reason, type(self).__name__)

    @classmethod
    def of(cls, size: Length, slide: Length, offset: Length = 0) -> Self:
        """Return windows of one size; a window begins every ``slide``.

        Raises:
            ConfigError: size or slide is not positive, the offset is not below the slide, or each
                element would be in more than 100,000 windows.
        """
        length, step = milliseconds(size, "size"), milliseconds(slide, "slide")
        return cls(length, step, milliseconds(offset, "offset"))

    @override
    def assign_windows(self, element: Any, timestamp: int) -> Collection[TimeWindow]:
        last = timestamp - (timestamp - self.offset) % self.slide
        starts = range(last, timestamp - self.size, -self.slide)
        return [window_of(start, start + self.size) for start in starts]

    @override
    def _moments_alike(self, timestamp: int, windows: Sequence[TimeWindow]) -> tuple[int, int]:
        latest, earliest = windows[0], windows[-1]
        first = max(latest.start, earliest.end - self.slide)
        return first, min(latest.start + self.slide, earliest.end)


@attrs.frozen
class _Session(WindowAssigner):
    """Windows that end after a gap without elements."""

    gap: int | Callable[[Any], Length] = attrs.field(validator=typed(int | Callable))

    is_merging: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        if isinstance(self.gap, int):
            milliseconds(self.gap, "gap", least=1, place=type(self).__name__)

    @classmethod
    def with_gap(cls, gap: Length) -> Self:
        """Return windows that end after a gap without elements.

        Raises:
            ConfigError: the gap is not positive.
        """
        return cls(milliseconds(gap, "gap"))

    @classmethod
    def with_dynamic_gap(cls, gap: Callable[[Any], Length]) -> Self:
        """Return session windows whose gap after an element is ``gap(element)``."""
        check_type("gap", gap, Callable)
        return cls(gap)

    @override
    def assign_windows(self, element: Any, timestamp: int) -> Collection[TimeWindow]:
        gap = self.gap
        if callable(gap):
            gap = milliseconds(gap(element), "gap", least=1, place=type(self).__name__)
        return (window_of(timestamp, timestamp + gap),)

    @override
    def _moments_alike(self, timestamp: int, windows: Sequence[TimeWindow]) -> tuple[int, int]:
        if not isinstance(self.gap, int):  # each element has its own gap
            return timestamp, timestamp
        session = windows[0]
        return session.start, session.end - self.gap + 1


class TumblingEventTimeWindows(_Tumbling):
    """Tumbling windows of event time."""

    is_event_time: ClassVar[bool] = True


class TumblingProcessingTimeWindows(_Tumbling):
    """Tumbling windows of processing time."""

    is_event_time: ClassVar[bool] = False


class SlidingEventTimeWindows(_Sliding):
    """Sliding windows of event time."""

    is_event_time: ClassVar[bool] = True


class SlidingProcessingTimeWindows(_Sliding):
    """Sliding windows of processing time."""

    is_event_time: ClassVar[bool] = False


class EventTimeSessionWindows(_Session):
    """Session windows of event time."""

    is_event_time: ClassVar[bool] = True


class ProcessingTimeSessionWindows(_Session):
    """Session windows of processing time."""

    is_event_time: ClassVar[bool] = False


@attrs.frozen
class GlobalWindows(WindowAssigner):
    """One window for all elements of a key. By default it never fires: set a trigger."""

    is_event_time: ClassVar[bool] = False

    @classmethod
    def create(cls) -> GlobalWindows:
        """Return the assigner; named as in Flink."""
        return cls()

    @override
    def assign_windows(self, element: Any, timestamp: int) -> Collection[TimeWindow]:
        return (GLOBAL_WINDOW,)

    @override
    def default_trigger(self) -> Trigger:
        """Return a trigger that never fires."""
        return NeverTrigger()


def is_ours(assigner: WindowAssigner) -> bool:
    """Return whether an assigner's ``assign_windows`` is Millpond's own method.

    The class that defines the method decides: a user's method may be decorated to look like ours.
    """
    owner = next(kind for kind in type(assigner).__mro__ if "assign_windows" in vars(kind))
    return owner.__module__ == WindowAssigner.__module__
