"""Finding layouts: the one in force, the one that counts, those of a uid, that of a run."""

from __future__ import annotations

from contextlib import suppress

from millpond.errors import CorruptSnapshotError, MillpondError, RestoreError, StorageAccessError
from millpond.operator_id import OperatorId
from millpond.snapshots.paths import layout_folder, parse_layout_path
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri

from millpond_spark.plan.layout import Layout, read_layout, unusable

__all__ = ["current_layout", "last_counting", "layout_of_run", "layouts_by_uid", "uids_of"]

_RUNS_KEPT = 64
_of_runs: dict[tuple[str, OperatorId, str], Layout] = {}
"""The layouts that tasks of this process have asked for."""


def _layouts_below(storage: CheckpointStorage, folder: str) -> list[tuple[OperatorId, int]]:
    """The operator and the number of each layout that lies in a folder; ConfigError without one."""
    try:
        paths = storage.list(folder)
    except (StorageAccessError, CorruptSnapshotError) as error:
        raise unusable(storage, error) from error
    return [found for path in paths if (found := parse_layout_path(path))]


def current_layout(storage: CheckpointStorage, operator: OperatorId) -> Layout | None:
    """The layout in force; None before an operator's first run.

    Raises:
        ConfigError: the storage cannot be listed.
        CorruptSnapshotError: the layout is damaged.
    """
    numbers = [number for _, number in _layouts_below(storage, layout_folder(operator))]
    return read_layout(storage, operator, max(numbers)) if numbers else None


def last_counting(
    storage: CheckpointStorage, operator: OperatorId, current: Layout, now: int
) -> Layout | None:
    """The layout whose pointers count; None where the operator's state was dropped.

    State counts as dropped only once a batch has been committed without the operator. What
    ``rescale`` has written counts once a batch has begun under it.

    Args:
        storage: where the layouts lie.
        operator: whose they are.
        current: the one in force.
        now: the last committed batch, -1 before the first.
    """
    while current.dropped_after is not None or not current.begun:
        if current.dropped_after not in (None, now):
            return None
        current = read_layout(storage, operator, current.number - 1)
    return current


def layouts_by_uid(storage: CheckpointStorage, uid: str) -> list[Layout]:
    """The layouts in force of all queries that have kept state of this uid in a storage.

    Damaged ones are skipped, for they may be other queries'; the start reads its own.

    Raises:
        ConfigError: the storage cannot be listed.
    """
    layouts = _layouts_below(storage, "")
    found = []
    for operator in sorted({operator for operator, _ in layouts if operator.uid == uid}):
        with suppress(MillpondError):
            found.append(current_layout(storage, operator))
    return [layout for layout in found if layout is not None]


def uids_of(storage: CheckpointStorage, query: str) -> set[str]:
    """The operators that have a layout in a query."""
    layouts = _layouts_below(storage, query)
    return {operator.uid for operator, _ in layouts if operator.query == query}


def layout_of_run(storage: CheckpointStorage, operator: OperatorId, run: str) -> Layout:
    """The layout of a run of a query; the worker asks once a run, for it cannot change in one.

    Raises:
        RestoreError: the driver's file is not where this worker looks.
        ConfigError: this worker cannot look there.
    """
    key = (storage.uri, operator, run)
    layout = _of_runs.get(key) or current_layout(storage, operator)
    if layout is None:
        cause = (
            f"what the driver has settled for run {run} is not in {public_uri(storage.uri)}: "
            "name a directory that the driver and all workers share; if it was moved or deleted "
            "while the query ran, bring it back and start the query again"
        )
        raise RestoreError(f"operator {operator.uid!r}", (cause,))
    if len(_of_runs) >= _RUNS_KEPT:
        _of_runs.clear()
    _of_runs[key] = layout
    return layout
