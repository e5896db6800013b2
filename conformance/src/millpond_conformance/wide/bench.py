"""The base class of all groups of steps: a backend with its model."""

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


_REUSED = 50
"""Every fiftieth request of a state uses a new descriptor instead of the cached one."""


class Bench:
    """A backend of a program with its model: the common base of all groups of steps.

    A step is a method that uses the backend and compares it with the model. Its arguments refer to
    states, keys and namespaces by their numbers in the world.

    Args:
        world: the world of the program.
        folder: the directory for the files of the backend.
        coverage: counts the steps.
        number: the number of the backend in the program.

    Attributes:
        models: the model of each state.
        dirty: the number of buffered changes, as an estimate.
    """

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
        """Return a new, empty model for each state of the world."""
        return [spec.model() for spec in self.world.states]

    def state(self, number: int, at: Place) -> Any:
        """Return the object of the state with this number, for the key and namespace `at`."""
        key, space = at
        self.backend.set_current_key(self.world.keys[key])
        return self.backend.get_partitioned_state(
            self._descriptor(number), self.world.spaces[space], self.world.space_type
        )

    def _descriptor(self, number: int) -> Any:
        """Return the descriptor of the state with this number.

        It is mostly a cached one, because creating a descriptor is slow.
        """
        self._requests += 1
        if self._requests % _REUSED == 0:
            self._descriptors.pop(number, None)
        if number not in self._descriptors:
            self._descriptors[number] = self.world.states[number].descriptor()
        return self._descriptors[number]

    def kind(self, number: int) -> str:
        """Return the kind of the state with this number."""
        found: str = self.world.states[number].kind
        return found

    def wrote(self, count: int = 1) -> None:
        """Record that `count` changes were written to the buffer, which may force a flush."""
        self.dirty += count
        limit = self.backend.parameters.config.buffer.max_entries
        if self.dirty > limit:
            self.coverage.note("flush forced by a full buffer")
            self.dirty = 0

    def describe(self, number: int, at: Place) -> str:
        """Return state, key and namespace as text for the message of a failure."""
        spec = self.world.states[number]
        key, space = self.world.keys[at[0]], self.world.spaces[at[1]]
        return f"{spec.kind} {spec.name!r} of key {shown(key)}, namespace {shown(space)}"
