"""What is committed of an operator, by its pointers and its layout."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.config import RestoreConfig
from millpond.errors import RestoreError
from millpond.snapshots.handles import KeyedStateHandle
from millpond.storage.checkpoint_storage import CheckpointStorage

from millpond_spark.plan.layout import Layout
from millpond_spark.plan.pointer import Pointer

__all__ = ["committed_handles"]


def committed_handles(
    pointers: Sequence[Pointer],
    layout: Layout,
    storage: CheckpointStorage,
    limits: RestoreConfig,
) -> list[KeyedStateHandle]:
    """What is committed of an operator, by the pointers of one of its batches.

    These are the layout's own pointers, and for subtasks that have not run under it yet, their
    parts of its sources.

    Args:
        pointers: the batch's of the operator.
        layout: the one that counts.
        storage: where the snapshots are.
        limits: how large a file with raw keyed state may be.

    Raises:
        CorruptSnapshotError: such a file cannot be read, or is beyond the limits.
        RestoreError: a subtask has not run since the operator was started from a savepoint, a
            pointer is of another division, or the query was not stopped for ``rescale``.
    """
    own = {p.key_group_range: p for p in pointers if p.layout == layout.number}
    divided = {layout.key_groups(index) for index in range(layout.parallelism)}
    if foreign := sorted(str(groups) for groups in own.keys() - divided):
        cause = f"layout {layout.number} does not divide the key groups into {foreign[0]}"
        raise RestoreError("what the subtasks have left", (cause,))
    if any(layout.was_overtaken(pointer) for pointer in pointers):
        after = layout.settled_after
        cause = (
            f"the query was not stopped when its state was divided anew after batch {after}, and "
            f"has gone on in part: start anew from a savepoint with batch_id={after}"
        )
        raise RestoreError("what the subtasks have left", (cause,))
    handles: list[KeyedStateHandle] = []
    shares = layout.shares(limits) if divided - own.keys() else []
    for index in range(layout.parallelism):
        groups = layout.key_groups(index)
        if groups not in own:
            if layout.savepoint:
                cause = (
                    f"subtask {index} has had no row since the start from {layout.savepoint}: "
                    f"run the query as it was until each of the {layout.parallelism} has had one"
                )
                raise RestoreError("what the subtasks have left", (cause,))
            handles += layout.sources_of(index, shares)
        elif own[groups].handle:
            handles.append(KeyedStateHandle.from_json(own[groups].handle, storage))
    return handles
