"""Which windows of a key have become one, and under which namespace their state lies.

State is not moved when a window grows: the merged window goes on using the namespace of one of
its parts, as in Flink. The mapping is a list state of the key.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GenericAlias
from typing import Any

from millpond.runtime.windows.window import TimeWindow, window_of
from millpond.state import ListStateDescriptor

__all__ = ["MergingWindowSet", "merging_descriptor"]

OnMerge = Callable[[TimeWindow, list[TimeWindow], TimeWindow, list[TimeWindow]], None]
"""Gets the merged window, its parts, the namespace it uses, and the namespaces to move there."""


def merging_descriptor(window_type: type[Any]) -> ListStateDescriptor[Any]:
    """The list state that holds the mapping: of time windows their times, else the windows."""
    parts = (int, int, int, int) if window_type is TimeWindow else (window_type, window_type)
    kind: Any = GenericAlias(tuple, parts)
    return ListStateDescriptor("merging-windows", kind)


class MergingWindowSet:
    """The windows of the current key; ``persist`` after changes."""

    def __init__(self, state: Any, window_type: type[Any] = TimeWindow) -> None:
        self._state = state
        self._of_times = window_type is TimeWindow
        stored = state.get()
        if self._of_times:
            stored = [
                (window_of(start, end), window_of(first, last))
                for start, end, first, last in stored
            ]
        self._stored: list[tuple[Any, Any]] = stored
        self._mapping = dict(stored)
        self._touched = False

    def namespace_of(self, window: TimeWindow) -> TimeWindow | None:
        """Where the state of a window lies; None where there is no such window (any more)."""
        return self._mapping.get(window)

    def retire(self, window: TimeWindow) -> None:
        """A window is over."""
        del self._mapping[window]
        self._touched = True

    def persist(self) -> None:
        """Write the mapping where it has changed."""
        if not self._touched:
            return
        self._touched = False
        entries = list(self._mapping.items())
        if entries == self._stored:  # as where a late row's window came and went
            return
        if self._of_times:
            self._state.update([(*window, *namespace) for window, namespace in entries])
        else:
            self._state.update(entries)
        self._stored = entries

    def add(self, window: TimeWindow, on_merge: OnMerge) -> TimeWindow:
        """Add a window; returns the one that it has become part of, perhaps itself."""
        parts = [known for known in self._mapping if known.intersects(window)]
        merged = window
        for part in parts:
            merged = merged.cover(part)
        if not parts:
            self._mapping[window] = window
            self._touched = True
        elif parts != [merged]:
            namespaces = [self._mapping.pop(part) for part in parts]
            self._mapping[merged] = namespaces[0]
            self._touched = True
            on_merge(merged, parts, namespaces[0], namespaces[1:])
        return merged
