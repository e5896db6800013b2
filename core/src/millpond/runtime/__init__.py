"""Functions, contexts, one subtask's life, and how a backend is opened."""

from millpond.runtime.functions import Context, KeyedProcessFunction, RuntimeContext
from millpond.runtime.opening import open_keyed_backend
from millpond.runtime.operator import KeyedOperator, SubtaskInfo

__all__ = [
    "Context",
    "KeyedOperator",
    "KeyedProcessFunction",
    "RuntimeContext",
    "SubtaskInfo",
    "open_keyed_backend",
]
