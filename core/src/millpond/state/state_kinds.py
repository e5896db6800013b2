"""The kinds of state, and where a new one is added.

Each kind has a descriptor (``state.descriptors``), an interface (``state.interfaces``), a raw state
over tables (``backend.states``, made in ``backend.states.make_state``), what TTL and the metrics
wrap around it (``state.ttl``, ``state.metrics``), the bytes of its cell where those are not the
value's alone (``backend.list_encoding``, ``backend.enumeration``), and a method of the runtime
context (``runtime.functions``). Tools know how to show it (``checkpoint.savepoint.table_rows``) and
to declare it anew (``runtime.stored_descriptors``).
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
