"""Common parts of `Side`: the backend, the model, and their comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millpond as mp

from millpond_conformance.comparing import shown
from millpond_conformance.semantics import StateModel
from millpond_conformance.wide.coverage import Coverage
from millpond_conformance.wide.world import World

Place = tuple[int, int]
"""The numbers of a key and a namespace."""


_REUSED = 5
"""The number of requests of states with the same descriptors."""


class Bench:
    """One backend of a program, with its model."""

    backend: Any
    """The open backend; a restore or reopening replaces it."""

    def __init__(self, world: World, folder: Path, coverage: Coverage, number: int) -> None:
        self.world, self.coverage, self.number = world, coverage, number
        self.folder = folder
        self.clock = mp.ManualClock(1000)
        self.models = self.empty_models()
        self.dirty = 0
        self._descriptors: dict[int, Any] = {}
        self._requests = 0

    def empty_models(self) -> list[StateModel]:
        """Return empty models of all states."""
        return [spec.model() for spec in self.world.states]

    def state(self, number: int, at: Place) -> Any:
        """Return a state's object, set to a key and a namespace."""
        key, space = at
        self.backend.set_current_key(self.world.keys[key])
        return self.backend.get_partitioned_state(
            self._descriptor(number), self.world.spaces[space], self.world.space_type
        )

    def _descriptor(self, number: int) -> Any:
        """Return a state's descriptor, mostly a cached one, because creating it takes long."""
        self._requests += 1
        if self._requests % _REUSED == 0:
            self._descriptors.pop(number, None)
        if number not in self._descriptors:
            self._descriptors[number] = self.world.states[number].descriptor()
        return self._descriptors[number]

    def kind(self, number: int) -> str:
        """Return the kind of a state."""
        found: str = self.world.states[number].kind
        return found

    def wrote(self, count: int = 1) -> None:
        """Record that the buffer contains changes."""
        self.dirty += count
        limit = self.backend.parameters.config.buffer.max_entries
        if self.dirty > limit:
            self.coverage.note("flush forced by a full buffer")
            self.dirty = 0

    def describe(self, number: int, at: Place) -> str:
        """Return the names of state, key and namespace, for the message of a failure."""
        spec = self.world.states[number]
        key, space = self.world.keys[at[0]], self.world.spaces[at[1]]
        return f"{spec.kind} {spec.name!r} of key {shown(key)}, namespace {shown(space)}"
