"""Checking the files of a snapshot or savepoint without restoring them."""

from __future__ import annotations

import attrs
from millpond.config import RestoreConfig
from millpond.errors import RestoreError
from millpond.savepoints.operator_tables import read_operator_states
from millpond.savepoints.savepoint_file import SavedOperator, TableFile
from millpond.savepoints.table_reader import read_state
from millpond.snapshots.handles import (
    PORTABLE,
    FilePart,
    KeyedStateHandle,
    SavepointHandle,
    SnapshotFile,
)
from millpond.snapshots.row_files import verify_rows
from millpond.spi.keys import KeyLayout


def files_of(handle: KeyedStateHandle) -> list[FilePart]:
    """Return the files of a snapshot and of its operator state."""
    shares = [part.file for part in handle.operator_state if part.file is not None]
    return [*handle.files, *shares]


def verify_file(
    handle: KeyedStateHandle,
    file: FilePart,
    limits: RestoreConfig = RestoreConfig(),
) -> None:
    """Read one file of a snapshot and check size and digests.

    Raises:
        CorruptSnapshotError: it is damaged, missing or foreign, or beyond the limits.
    """
    if handle.storage is None:
        raise RestoreError(f"checkpoint {handle.checkpoint_id}", ("its handle has no storage",))
    if not isinstance(file, SnapshotFile):
        file.read_all(handle.storage, limits)
    elif handle.format == PORTABLE:
        layout = KeyLayout(handle.max_parallelism)
        verify_rows(handle.storage, file, layout, limits)
    else:
        file.read_all(handle.storage)


def verify_table(
    handle: SavepointHandle,
    operator: SavedOperator,
    file: TableFile,
    limits: RestoreConfig = RestoreConfig(),
) -> None:
    """Read one table of a savepoint and check its digest, its columns and each row.

    Raises:
        CorruptSnapshotError: it is damaged or missing, or was edited and not sealed.
    """
    for state in operator.states:
        if file in state.files:
            alone = attrs.evolve(state, files=(file,))
            for _ in read_state(handle, operator, alone, operator.key_group_range, limits):
                pass
    own = tuple(state for state in operator.operator_states if state.file == file)
    read_operator_states(handle, attrs.evolve(operator, operator_states=own), limits)
