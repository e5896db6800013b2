"""The factory of heap backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
from millpond.backend import KeyedStateBackend
from millpond.config import structure_options
from millpond.spi import Capability, KeyedBackendParameters, StateBackend
from typing_extensions import override

from millpond_heap.backend import HeapKeyedStateBackend


@attrs.frozen
class HeapOptions:
    """The heap backend has no options; a key under ``backend.heap.`` is refused."""


class HeapStateBackend(StateBackend):
    """Keeps state as objects in dictionaries: the fastest, as long as it fits into memory."""

    name: ClassVar[str] = "heap"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.IN_PROCESS_COPY, Capability.ASYNC_SNAPSHOT}
    )

    @override
    def check_options(self, options: Mapping[str, Any]) -> None:
        structure_options(HeapOptions, options, "configuration", "backend.heap")

    @override
    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        return HeapKeyedStateBackend(parameters)
