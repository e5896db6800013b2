"""Savepoints: Parquet tables that every backend writes and restores, and that people edit."""

from millpond.checkpoint.savepoint.locate import locate_savepoint
from millpond.checkpoint.savepoint.savepoint_file import (
    SavedOperator,
    SavedState,
    Savepoint,
    SavepointHandle,
    read_savepoint,
    write_savepoint,
)
from millpond.checkpoint.savepoint.savepoint_restore import SavepointRestore
from millpond.checkpoint.savepoint.savepoint_strategy import SavepointStrategy
from millpond.checkpoint.savepoint.seal import rekey_savepoint, seal_savepoint

__all__ = [
    "SavedOperator",
    "SavedState",
    "Savepoint",
    "SavepointHandle",
    "SavepointRestore",
    "SavepointStrategy",
    "locate_savepoint",
    "read_savepoint",
    "rekey_savepoint",
    "seal_savepoint",
    "write_savepoint",
]
