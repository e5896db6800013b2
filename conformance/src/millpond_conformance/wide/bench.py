"""What the parts of a side share: the backend, the model, and how the two are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millpond as mp

from millpond_conformance.semantics import StateModel
from millpond_conformance.wide.coverage import Coverage
from millpond_conformance.wide.world import World

__all__ = ["Bench", "Place", "same"]

Place = tuple[int, int]
"""Numbers of a key and a namespace."""


_LONGEST = 300


def _shown(value: Any) -> str:
    text = repr(value)
    return (
        text
        if len(text) <= _LONGEST
        else f"{text[:150]} … {text[-100:]} ({len(text):,} characters)"
    )


def same(found: Any, expected: Any, what: str) -> None:
    """Compare by ``repr``, which tells more than equality: -0.0, Decimal zeros, types."""
    if repr(found) != repr(expected):
        raise AssertionError(f"{what}: expected {_shown(expected)}, got {_shown(found)}")


class Bench:
    """One backend of a program, with its model."""

    backend: Any
    """The backend that is alive; restores and reopenings replace it."""

    def __init__(self, world: World, folder: Path, coverage: Coverage, number: int) -> None:
        self.world, self.coverage, self.number = world, coverage, number
        self.folder = folder
        self.clock = mp.ManualClock(1000)
        self.models = self.empty_models()
        self.dirty = 0

    def empty_models(self) -> list[StateModel]:
        """Models of all states, with nothing in them."""
        return [spec.model() for spec in self.world.states]

    def state(self, number: int, at: Place) -> Any:
        """A state's object, set to a key and a namespace."""
        key, space = at
        self.backend.set_current_key(self.world.keys[key])
        descriptor = self.world.states[number].descriptor()
        return self.backend.get_partitioned_state(
            descriptor, self.world.spaces[space], self.world.space_type
        )

    def kind(self, number: int) -> str:
        """The kind of a state."""
        found: str = self.world.states[number].kind
        return found

    def wrote(self, count: int = 1) -> None:
        """Note that the buffer holds something."""
        self.dirty += count
        limit = self.backend.parameters.config.buffer.max_entries
        if self.dirty > limit:
            self.coverage.note("flush forced by a full buffer")
            self.dirty = 0

    def told(self, number: int, at: Place) -> str:
        """The state, key and namespace, for a failure."""
        spec = self.world.states[number]
        key, space = self.world.keys[at[0]], self.world.spaces[at[1]]
        return f"{spec.kind} {spec.name!r} of key {_shown(key)}, namespace {_shown(space)}"
