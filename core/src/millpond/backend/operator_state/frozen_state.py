"""Operator state in snapshots: the descriptions of its states, and their bytes."""

from __future__ import annotations

import enum

import attrs

from millpond.state.names import Scope
from millpond.types import SerializerSnapshot

__all__ = ["FrozenState", "Mode", "OperatorStateMeta", "RestoredState", "StateId"]

StateId = tuple[str, Scope]
"""A state's name and scope; those of an operator state where nothing else is said."""


class Mode(enum.Enum):
    """How a state is distributed when the parallelism changes."""

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@attrs.frozen
class OperatorStateMeta:
    """A snapshot's description of an operator state; only broadcast states have ``map_key``."""

    name: str
    mode: Mode
    value: SerializerSnapshot
    map_key: SerializerSnapshot | None = None

    @property
    def scope(self) -> Scope:
        """Lists, split or union, share their names; broadcast states have theirs apart."""
        return "broadcast" if self.mode is Mode.BROADCAST else "list"

    @property
    def id(self) -> StateId:
        """By what the state is told from the operator's others; sorts by name."""
        return self.name, self.scope


@attrs.frozen
class FrozenState:
    """A state as a snapshot writes it: a partition for each list element or map entry."""

    meta: OperatorStateMeta
    partitions: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Bytes of all partitions."""
        return sum(map(len, self.partitions))


RestoredState = FrozenState
"""A state restored from a snapshot and not requested yet."""
