"""Time windows, and the set of merged windows of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import lru_cache
from types import GenericAlias
from typing import Any, NamedTuple

from millpond.arguments import INT64, check_type, check_within
from millpond.errors import ConfigError, WindowRangeError, brief
from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.state import ListStateDescriptor


class TimeWindow(NamedTuple):
    """The times from ``start``, included, to ``end``, excluded, in ms since the epoch."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        """Return the last time of the window; MAX_TIMESTAMP for the window of ``GlobalWindows``."""
        return MAX_TIMESTAMP if self == GLOBAL_WINDOW else self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether this window and ``other`` overlap or touch."""
        try:
            return self.start <= other.end and self.end >= other.start
        except AttributeError:
            check_type("other", other, TimeWindow)
            raise

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains this window and ``other``."""
        if not isinstance(other, TimeWindow):
            check_type("other", other, TimeWindow)
        return window_of(min(self.start, other.start), max(self.end, other.end))


@lru_cache(maxsize=4096)
def window_of(start: int, end: int) -> TimeWindow:
    """Return the window from ``start`` to ``end``, usually as the same object for equal times.

    If a state gets the same object as a namespace again, it need not encode the namespace again.
    """
    return TimeWindow(start, end)


GLOBAL_WINDOW = window_of(MIN_TIMESTAMP, MAX_TIMESTAMP)
"""The only window of ``GlobalWindows``."""


def check_range(windows: Iterable[Any], time: int) -> None:
    """Raise WindowRangeError if a window of a row at ``time`` exceeds the range of 64-bit times."""
    for window in windows:
        if not isinstance(window, TimeWindow):
            return
        if window.start < MIN_TIMESTAMP or window.end > MAX_TIMESTAMP:
            raise WindowRangeError(time, *window)


def milliseconds(
    value: timedelta | int, what: str, *, least: int = INT64[0], place: str = "windows"
) -> int:
    """Return a length of time in ms.

    Args:
        value: the length as a timedelta or in ms.
        what: the name of the argument or option, for errors.
        least: the lowest allowed length in ms.
        place: the call or class that the error names.

    Raises:
        ConfigError: ``value`` is no length of time, is not a whole number of ms, or is below
            ``least``.
    """
    if isinstance(value, timedelta):
        given = value
        value, rest = divmod(given, timedelta(milliseconds=1))
        if rest and given != timedelta.max:  # the longest timedelta is accepted
            reason = f"{brief(given)} is not a whole number of milliseconds"
            raise ConfigError(what, reason, place)
    if isinstance(value, bool) or not isinstance(value, int):
        reason = f"expected a timedelta or ms as an int, got {brief(value)}"
        raise ConfigError(what, reason, place)
    check_within(what, value, *INT64)
    if value < least:
        fault = "is not positive" if least else "is negative"
        raise ConfigError(what, f"{value} ms {fault}", place)
    return value


OnMerge = Callable[[TimeWindow, list[TimeWindow], list[TimeWindow], list[TimeWindow]], None]
"""A function that is called when windows have merged into one.

Its arguments are the merged window, the old windows that it was merged from, the old windows that
no longer exist, and the namespaces of all old windows' contents. The contents of the merged window
will be stored under the first of these namespaces.
"""


def merging_descriptor(window_type: type[Any]) -> ListStateDescriptor[Any]:
    """Return the descriptor of the list that stores a ``MergingWindowSet``.

    Each element is a pair: a window, and the window under which its contents are stored. A pair of
    time windows is stored as four times.
    """
    parts = (int, int, int, int) if window_type is TimeWindow else (window_type, window_type)
    kind: Any = GenericAlias(tuple, parts)
    return ListStateDescriptor("merging-windows", kind)


class MergingWindowSet:
    """The merged windows of the current key, each with the namespace of its contents.

    When windows merge, the contents of all of them are stored in the namespace of one of the old
    windows. So the namespace of a merged window is an earlier, smaller window. Call ``persist``
    after changes.

    Args:
        state: the list state of ``merging_descriptor``.
        window_type: the type of the windows.
        name_of: returns the object that identifies a window: for a time window the window itself,
            for a window of the user's own type its bytes. Python may find two windows of the user's
            own type equal although their bytes differ.
    """

    def __init__(self, state: Any, window_type: type[Any], name_of: Callable[[Any], Any]) -> None:
        self._state = state
        self._of_times = window_type is TimeWindow
        self._name_of = name_of
        stored = state.get()
        if self._of_times:
            stored = [
                (window_of(start, end), window_of(first, last))
                for start, end, first, last in stored
            ]
        # Pairs of a window and the namespace of its contents, by the result of `name_of`.
        self._mapping: dict[Any, tuple[Any, Any]] = {name_of(pair[0]): pair for pair in stored}
        self._changed = False

    def namespace_of(self, window: TimeWindow) -> TimeWindow | None:
        """Return the namespace of a window's contents; None if the set lacks the window."""
        pair = self._mapping.get(self._name_of(window))
        return None if pair is None else pair[1]

    def retire(self, window: TimeWindow) -> None:
        """Remove a window that is over."""
        del self._mapping[self._name_of(window)]
        self._changed = True

    def persist(self) -> None:
        """Write the windows and their namespaces to the state if they have changed."""
        if not self._changed:
            return
        self._changed = False
        pairs = list(self._mapping.values())
        if self._of_times:
            self._state.update([(*window, *namespace) for window, namespace in pairs])
        else:
            self._state.update(pairs)

    def add(self, window: TimeWindow, on_merge: OnMerge) -> TimeWindow:
        """Add a window, merge it with the windows that it touches, and return the merged window."""
        parts = {
            name: known for name, (known, _) in self._mapping.items() if known.intersects(window)
        }
        merged = window
        for part in parts.values():
            merged = merged.cover(part)
        name = self._name_of(merged)
        if not parts:
            self._mapping[name] = (window, window)
            self._changed = True
        elif list(parts) != [name]:
            namespaces = [self._mapping.pop(part)[1] for part in parts]
            self._mapping[name] = (merged, namespaces[0])
            self._changed = True
            ended = [part for other, part in parts.items() if other != name]
            on_merge(merged, list(parts.values()), ended, namespaces)
        return merged
