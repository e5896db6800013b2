"""What snapshots know of operator state: its states' forms, and their bytes."""

from __future__ import annotations

import enum

import attrs

from millpond.types import SerializerSnapshot

__all__ = ["FrozenState", "Mode", "OperatorStateMeta", "RestoredState"]


class Mode(enum.Enum):
    """How a state is given out when the parallelism changes."""

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@attrs.frozen
class OperatorStateMeta:
    """What a snapshot says of an operator state; ``map_key`` is of broadcast states."""

    name: str
    mode: Mode
    value: SerializerSnapshot
    map_key: SerializerSnapshot | None = None


@attrs.frozen
class FrozenState:
    """A state as a snapshot writes it: a partition for each list element or map entry."""

    meta: OperatorStateMeta
    partitions: tuple[bytes, ...]


RestoredState = FrozenState
"""A state as a snapshot gives it back, not requested yet."""
