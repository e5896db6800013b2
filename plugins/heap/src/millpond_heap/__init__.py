"""The heap backend, which keeps state in Python dictionaries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from millpond.backend import KeyedStateBackend
from millpond.spi import Capability, KeyedBackendParameters, StateBackend, hookimpl
from typing_extensions import override

from millpond_heap.backend import HeapKeyedStateBackend


class HeapStateBackend(StateBackend):
    """The backend that keeps state as objects in dictionaries: fast, but limited by memory."""

    name: ClassVar[str] = "heap"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.IN_PROCESS_COPY, Capability.ASYNC_SNAPSHOT}
    )

    @override
    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        return HeapKeyedStateBackend(parameters)


MILLPOND_API = 1


@hookimpl
def millpond_state_backends() -> Iterable[StateBackend]:
    """Return the backend ``heap``."""
    return [HeapStateBackend()]
