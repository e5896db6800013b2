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
"""The index of a key and the index of a namespace in the lists of the world."""


_REUSED = 50
"""A request of a state usually uses a cached descriptor; every fiftieth uses a new one."""


class Bench:
    """A backend of a program with its model. It is the base class of all groups of steps.

    A step is a method that uses the backend and compares it with the model. The arguments of a step
    are numbers: the indexes of states, keys and namespaces in the lists of `world`.

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
        """Select the key and namespace `at`, and return the state with the index `number`."""
        key, space = at
        self.backend.set_current_key(self.world.keys[key])
        return self.backend.get_partitioned_state(
            self._descriptor(number), self.world.spaces[space], self.world.space_type
        )

    def _descriptor(self, number: int) -> Any:
        """Return a descriptor of the state with the index `number`.

        The descriptor is usually a cached one, because creating a descriptor is slow.
        """
        self._requests += 1
        if self._requests % _REUSED == 0:
            self._descriptors.pop(number, None)
        if number not in self._descriptors:
            self._descriptors[number] = self.world.states[number].descriptor()
        return self._descriptors[number]

    def kind(self, number: int) -> str:
        """Return the kind of the state with the index `number`."""
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
        """Return a text that names the state, the key and the namespace, for error messages."""
        spec = self.world.states[number]
        key, space = self.world.keys[at[0]], self.world.spaces[at[1]]
        return f"{spec.kind} {spec.name!r} of key {shown(key)}, namespace {shown(space)}"
