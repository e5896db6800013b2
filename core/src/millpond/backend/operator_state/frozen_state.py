"""Operator state in snapshots: the descriptions of its states, and their bytes."""

from __future__ import annotations

import enum

import attrs

from millpond.types import SerializerSnapshot

__all__ = ["FrozenState", "Mode", "OperatorStateMeta", "RestoredState"]


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


@attrs.frozen
class FrozenState:
    """A state as a snapshot writes it: a partition for each list element or map entry."""

    meta: OperatorStateMeta
    partitions: tuple[bytes, ...]


RestoredState = FrozenState
"""A state restored from a snapshot and not requested yet."""
