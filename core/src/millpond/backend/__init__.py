"""The base classes of backends. A backend derives from one of the two classes exported here."""

from millpond.backend.bytestore.buffered_lists import whole_lists
from millpond.backend.bytestore.byte_store_backend import ByteStoreBackend
from millpond.backend.keyed_backend import KeyedStateBackend
from millpond.backend.sorted_entries import SortedCursor, SortedEntries
from millpond.backend.states.raw_states import RawValueState
from millpond.backend.timer_queue import MemoryTimerRows

__all__ = [
    "ByteStoreBackend",
    "KeyedStateBackend",
    "MemoryTimerRows",
    "RawValueState",
    "SortedCursor",
    "SortedEntries",
    "whole_lists",
]
