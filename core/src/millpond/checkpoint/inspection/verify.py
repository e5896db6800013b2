"""Checking a snapshot's files without restoring them."""

from __future__ import annotations

from millpond.backend.key_layout import KeyLayout
from millpond.checkpoint.handles import PORTABLE, KeyedStateHandle, SnapshotFile
from millpond.checkpoint.output_stream import StreamStateHandle
from millpond.checkpoint.row_file_reader import verify_rows
from millpond.config import RestoreConfig
from millpond.errors import RestoreError

__all__ = ["files_of", "verify_file"]


def files_of(handle: KeyedStateHandle) -> list[SnapshotFile | StreamStateHandle]:
    """The files of a snapshot, those of its operator state too."""
    streams = [part.raw.stream for part in handle.operator_state if part.raw is not None]
    return [*handle.files, *streams]


def verify_file(
    handle: KeyedStateHandle,
    file: SnapshotFile | StreamStateHandle,
    limits: RestoreConfig = RestoreConfig(),
) -> None:
    """Read one file of a snapshot and check size and digests.

    Raises:
        CorruptSnapshotError: it is damaged, missing or foreign.
    """
    if handle.storage is None:
        raise RestoreError(f"checkpoint {handle.checkpoint_id}", ("its handle has no storage",))
    if isinstance(file, StreamStateHandle):
        file.read(handle.storage)
    elif handle.format == PORTABLE:
        layout = KeyLayout(handle.max_parallelism)
        verify_rows(handle.storage, file, layout, limits)
    else:
        part = StreamStateHandle(file.path, file.size, file.digest, file.offset, file.inline)
        part.read(handle.storage)
