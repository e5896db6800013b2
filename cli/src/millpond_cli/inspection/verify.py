"""Checks of all files of a snapshot or savepoint, without a restore."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
from millpond.config import RestoreConfig
from millpond.errors import MillpondError, RestoreError
from millpond.savepoints.operator_tables import read_operator_states
from millpond.savepoints.savepoint_file import SavedOperator, TableFile
from millpond.savepoints.table_files import read_state
from millpond.snapshots.handles import (
    PORTABLE,
    FilePart,
    KeyedStateHandle,
    SavepointHandle,
    SnapshotFile,
)
from millpond.snapshots.row_files import verify_rows
from millpond.spi.keys import KeyLayout

from millpond_cli.output import show, working
from millpond_cli.terminal import complain

_NAMED = 3
"""Maximum number of damaged files that the final message names."""


def files_of(handle: KeyedStateHandle) -> list[FilePart]:
    """Return the parts of all files of a snapshot, with keyed state and operator state."""
    shares = [part.file for part in handle.operator_state if part.file is not None]
    return [*handle.files, *shares]


def verify_file(
    handle: KeyedStateHandle,
    file: FilePart,
    limits: RestoreConfig = RestoreConfig(),
) -> None:
    """Read a part of a snapshot's file, and check its size and digests.

    Raises:
        CorruptSnapshotError: the file is damaged or missing, or exceeds `limits`.
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


def verify_table(handle: SavepointHandle, operator: SavedOperator, file: TableFile) -> None:
    """Read one table of a savepoint, and check its digest, its columns and each row.

    Raises:
        CorruptSnapshotError: the table is damaged or missing, or was edited without a call of
            ``seal_savepoint``.
    """
    for state in operator.states:
        if file in state.files:
            alone = attrs.evolve(state, files=(file,))
            for _ in read_state(handle, operator, alone, operator.key_group_range):
                pass
    own = tuple(state for state in operator.operator_states if state.file == file)
    read_operator_states(handle, attrs.evolve(operator, operator_states=own))


@attrs.frozen
class Checked:
    """A file to check.

    Attributes:
        operator: the operator, for the output.
        path: the path, for the output.
        size: the number of bytes.
        check: a function that raises a MillpondError if the file is damaged.
    """

    operator: str
    path: str
    size: int
    check: Callable[[], None]


def finding(operator: str, path: str, size: int, verdict: str) -> dict[str, Any]:
    """Return the output row of a checked file; `verdict` is ``ok`` or describes the damage."""
    return {"operator": operator, "file": path, "bytes": size, "verdict": verdict}


def verified(files: Sequence[Checked]) -> Iterator[dict[str, Any]]:
    """Check files one after the other, and yield an output row for each file."""
    with working("verifying", sum(file.size for file in files)) as done:
        for file in files:
            try:
                file.check()
                verdict = "ok"
            except MillpondError as error:
                verdict = str(error)
            yield finding(file.operator, file.path, file.size, verdict)
            done(file.size)


def show_findings(directory: str, rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Print the verdict on each file; exit with status 1 if a file is damaged or `rows` is empty.

    Args:
        directory: the directory as the user has named it.
        rows: the results of `finding`.
        as_json: whether to print JSON.
    """
    show(rows, as_json=as_json, empty="There is nothing to check.", by=("operator",))
    damaged = [row["file"] for row in rows if row["verdict"] != "ok"]
    if damaged:
        first = ", ".join(damaged[:_NAMED]) + (", ..." if len(damaged) > _NAMED else "")
        found = f"{len(damaged)} of {len(rows)} files are damaged or missing"
        complain(f"{directory}: {found}: {first}")
    if damaged or not rows:
        sys.exit(1)
