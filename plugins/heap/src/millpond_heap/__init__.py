"""The heap backend: state in Python dictionaries."""

from collections.abc import Iterable

from millpond.spi import StateBackend, hookimpl

from millpond_heap.factory import HeapStateBackend

__all__ = ["HeapStateBackend", "millpond_state_backends"]

MILLPOND_API = 1


@hookimpl
def millpond_state_backends() -> Iterable[StateBackend]:
    """Provide the backend ``heap``."""
    return [HeapStateBackend()]
