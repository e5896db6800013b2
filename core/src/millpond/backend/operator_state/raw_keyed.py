"""Raw keyed state: bytes of a function's own by key group, kept as a union list.

A restore gives it to all subtasks, and each takes what belongs to its key groups.
"""

from __future__ import annotations

from millpond.backend.operator_state.frozen_state import Mode, OperatorStateMeta
from millpond.state.descriptors import ListStateDescriptor
from millpond.types import serializer_for
from millpond.untrusted import decoding

__all__ = ["RAW_KEYED", "RAW_KEYED_STREAM", "key_group_of"]

RAW_KEYED_STREAM = ListStateDescriptor("raw-keyed-stream", tuple[int, bytes])
"""Elements are a key group and its bytes."""

_SERIALIZER = serializer_for(tuple[int, bytes])

RAW_KEYED = OperatorStateMeta(RAW_KEYED_STREAM.name, Mode.UNION, _SERIALIZER.snapshot())
"""What snapshots say of it."""


def key_group_of(data: bytes) -> int:
    """The key group of a stored element; CorruptSnapshotError where it is none."""
    with decoding("operator state", f"state {RAW_KEYED.name!r}: an element cannot be decoded"):
        group, _ = _SERIALIZER.deserialize(data)
        return int(group)
