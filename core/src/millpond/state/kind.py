"""The kinds of state.

Each kind has a descriptor (``state.descriptors``), an interface (``state.interfaces``), a raw state
over tables (``backend.states``, made in ``backend.states.making``), what TTL and the metrics wrap
around it (``state.ttl``, ``state.metrics``), the bytes of its cell (``backend.list_encoding``), and
a method of the runtime context (``runtime.functions``).
"""

from __future__ import annotations

import enum

__all__ = ["StateKind"]


class StateKind(enum.Enum):
    """The six kinds of keyed state, and timers; the values are written into snapshots."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    FOLDING = "folding"
    TIMER = "timer"
