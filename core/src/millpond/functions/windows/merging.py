"""Which windows of a key have become one, and under which namespace their state lies.

State is not moved when a window grows: the merged window goes on using the namespace of one of
its parts, as in Flink. The mapping is a list state of the key.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GenericAlias
from typing import Any

from millpond.functions.windows.window import TimeWindow, window_of
from millpond.state import ListStateDescriptor

__all__ = ["MergingWindowSet", "NameOf", "itself", "merging_descriptor"]

OnMerge = Callable[[TimeWindow, list[TimeWindow], list[TimeWindow], list[TimeWindow]], None]
"""Gets the merged window, its parts, those of them that are no more, and the parts' namespaces.

The merged window goes on under the first of these.
"""

NameOf = Callable[[Any], Any]


def itself(window: TimeWindow) -> TimeWindow:
    """What a time window is known by: Python compares it as its bytes compare."""
    return window


def merging_descriptor(window_type: type[Any]) -> ListStateDescriptor[Any]:
    """The list state that holds the mapping: of time windows their times, else the windows."""
    parts = (int, int, int, int) if window_type is TimeWindow else (window_type, window_type)
    kind: Any = GenericAlias(tuple, parts)
    return ListStateDescriptor("merging-windows", kind)


class MergingWindowSet:
    """The windows of the current key; ``persist`` after changes.

    Args:
        state: that of ``merging_descriptor``.
        window_type: of the windows.
        name_of: by what two windows are the same. States and timers lie under a window's bytes,
            whatever Python finds equal of a type of the user's.
    """

    def __init__(self, state: Any, window_type: type[Any], name_of: NameOf) -> None:
        self._state = state
        self._of_times = window_type is TimeWindow
        self._name_of = name_of
        stored = state.get()
        if self._of_times:
            stored = [
                (window_of(start, end), window_of(first, last))
                for start, end, first, last in stored
            ]
        # Each window with the namespace that its state lies under.
        self._mapping: dict[Any, tuple[Any, Any]] = {name_of(pair[0]): pair for pair in stored}
        self._stored = self._entries()
        self._touched = False

    def namespace_of(self, window: TimeWindow) -> TimeWindow | None:
        """Where the state of a window lies; None where there is no such window (any more)."""
        pair = self._mapping.get(self._name_of(window))
        return None if pair is None else pair[1]

    def retire(self, window: TimeWindow) -> None:
        """A window is over."""
        del self._mapping[self._name_of(window)]
        self._touched = True

    def _entries(self) -> list[tuple[Any, Any]]:
        """What the state is to hold, in a form that Python compares rightly."""
        if self._of_times:
            return list(self._mapping.values())
        return [(name, self._name_of(pair[1])) for name, pair in self._mapping.items()]

    def persist(self) -> None:
        """Write the mapping where it has changed."""
        if not self._touched:
            return
        self._touched = False
        entries = self._entries()
        if entries == self._stored:  # as where a late row's window came and went
            return
        pairs = list(self._mapping.values())
        if self._of_times:
            self._state.update([(*window, *namespace) for window, namespace in pairs])
        else:
            self._state.update(pairs)
        self._stored = entries

    def add(self, window: TimeWindow, on_merge: OnMerge) -> TimeWindow:
        """Add a window; returns the one that it has become part of, perhaps itself."""
        parts = {
            name: known for name, (known, _) in self._mapping.items() if known.intersects(window)
        }
        merged = window
        for part in parts.values():
            merged = merged.cover(part)
        name = self._name_of(merged)
        if not parts:
            self._mapping[name] = (window, window)
            self._touched = True
        elif list(parts) != [name]:
            namespaces = [self._mapping.pop(part)[1] for part in parts]
            self._mapping[name] = (merged, namespaces[0])
            self._touched = True
            ended = [part for other, part in parts.items() if other != name]
            on_merge(merged, list(parts.values()), ended, namespaces)
        return merged
