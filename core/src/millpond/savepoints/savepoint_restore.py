"""Filling a backend from savepoints, whichever backend wrote them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from millpond.backend.restore_target import RestoreTarget
from millpond.savepoints.savepoint_file import SavepointHandle, read_savepoint
from millpond.savepoints.table_reader import read_state
from millpond.snapshots.adoption import adopt_metadata, load_adopted

__all__ = ["SavepointRestore"]


@attrs.frozen
class SavepointRestore:
    """Reads the rows of the backend's key groups from savepoints."""

    backend: RestoreTarget
    handles: Sequence[SavepointHandle]

    def run(self) -> None:
        """Load everything.

        Raises:
            CorruptSnapshotError: a file is damaged, missing, edited but not sealed, or foreign.
            RestoreError: the savepoint does not hold this operator.
            MaxParallelismError, StateMigrationError: it does not fit the backend.
        """
        backend = self.backend
        limits = backend.parameters.config.restore
        for handle in self.handles:
            savepoint = read_savepoint(handle)
            operator = savepoint.operator(backend.parameters.operator)
            rewrite = adopt_metadata(
                backend, operator.max_parallelism, operator.key, operator.metas
            )
            groups = operator.key_group_range.intersection(backend.key_group_range)
            if groups is None:
                continue
            for state in operator.states:
                for rows in read_state(handle, operator, state, groups, limits):
                    load_adopted(backend, "savepoint", state.meta, rows, rewrite)
