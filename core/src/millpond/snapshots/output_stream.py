"""The output streams of a snapshot's files: each gives a handle with size and digest at its end."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError, StreamClosedError
from millpond.snapshots.parts import part_reader, require_whole
from millpond.storage.checkpoint_storage import CheckpointStorage, FileWriter, check_path

__all__ = ["CheckpointOutputStream", "CheckpointStreamFactory", "StreamStateHandle"]


@attrs.frozen
class StreamStateHandle:
    """A file of a snapshot, or a part of one.

    Attributes:
        path: relative to the storage's root.
        size: in bytes.
        digest: SHA-256 of its bytes.
        offset: where it begins in the file.
        inline: the bytes themselves in base64, where the handle carries them.
    """

    path: str
    size: int
    digest: str
    offset: int = 0
    inline: str = ""

    def read(self, storage: CheckpointStorage, limits: RestoreConfig | None = None) -> bytes:
        """The bytes, checked.

        Raises:
            CorruptSnapshotError: the file is missing, or is not what was written, or has more bytes
                than the limits allow.
        """
        check_path(self.path)
        if limits is not None and self.size > limits.max_file_bytes:
            reason = f"its {self.size:,} bytes are more than restore.max-file-bytes allows"
            raise CorruptSnapshotError(self.path, reason)
        require_whole(storage, self)
        data = part_reader(storage, self)(0, self.size)
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise CorruptSnapshotError(self.path, "its digest is wrong")
        return data


class CheckpointOutputStream:
    """Writes one file of a snapshot; made by :class:`CheckpointStreamFactory`."""

    def __init__(self, storage: CheckpointStorage, path: str) -> None:
        self.path = check_path(path)
        self._storage = storage
        self._writer: FileWriter | None = None
        self._digest = hashlib.sha256()
        self._position = 0
        self._closed = False

    def write(self, data: bytes) -> None:
        """Append bytes; the file is begun by the first of them."""
        if self._closed:
            raise StreamClosedError(self.path)
        if not data:
            return
        if self._writer is None:
            self._writer = self._storage.open_writer(self.path)
        self._writer.write(data)
        self._digest.update(data)
        self._position += len(data)

    def tell(self) -> int:
        """How many bytes were written."""
        return self._position

    def close_and_get_handle(self) -> StreamStateHandle | None:
        """Finish the file; None, and no file, where nothing was written.

        Raises:
            StreamClosedError: the stream was closed before.
        """
        if self._closed:
            raise StreamClosedError(self.path)
        if self._writer is None:
            self._closed = True
            return None
        self._writer.commit()
        self._closed = True
        return StreamStateHandle(self.path, self._position, self._digest.hexdigest())

    def close(self) -> None:
        """Give the file up, unless its handle was taken; may be called at any time."""
        if not self._closed:
            self._closed = True
            if self._writer is not None:
                self._writer.abort()


@attrs.frozen
class CheckpointStreamFactory:
    """Makes the streams of one snapshot, each with a path that no other attempt uses."""

    storage: CheckpointStorage
    folder: str
    checkpoint_id: int

    @contextmanager
    def create(self, suffix: str) -> Iterator[CheckpointOutputStream]:
        """A stream; where it is left without its handle taken, no file remains."""
        name = f"{self.checkpoint_id}-{uuid.uuid4().hex}.{suffix}"
        stream = CheckpointOutputStream(self.storage, f"{self.folder}/{name}")
        try:
            yield stream
        finally:
            stream.close()
