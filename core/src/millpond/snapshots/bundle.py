"""Bundles: a bundle is the file of one snapshot, with its parts and, at the end, its metadata."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Self, TypeVar

import attrs

from millpond.config import CheckpointConfig
from millpond.errors import CorruptSnapshotError, SnapshotTooLargeError
from millpond.sealed_json import SealedJson
from millpond.snapshots.handles import PORTABLE, FilePart, KeyedStateHandle, OperatorStateHandle
from millpond.storage.checkpoint_storage import (
    MAX_WHOLE,
    CheckpointStorage,
    FileWriter,
    checked_metadata,
)

_METADATA = SealedJson("a metadata file")
_LESS_IN_POINTERS = (
    "let pointers carry less, by a lower checkpoint.inline-threshold, or by files as "
    "checkpoint.storage, for a few batches"
)


def seal_metadata(text: str) -> bytes:
    """Return the bytes of a metadata file that contains `text` and the digest of `text`."""
    return _METADATA.seal(text)


def write_sealed(storage: CheckpointStorage, path: str, text: str) -> None:
    """Write `text` and its digest to the file `path`.

    Raises:
        SnapshotTooLargeError: the file would have more bytes than readers accept.
    """
    storage.write_all(path, seal_metadata(text), _LESS_IN_POINTERS)


def read_sealed(storage: CheckpointStorage, path: str) -> str:
    """Return the text of a file that `write_sealed` has written.

    Raises:
        CorruptSnapshotError: the file is missing, damaged, or not a metadata file.
    """
    return _METADATA.unseal(storage.read_all(path), path)


P = TypeVar("P", bound=FilePart)

POINTER_BYTES = 5 << 20
"""Maximum size of a subtask's snapshot in Spark's pointer if `checkpoint.storage` is ``pointer``.

Flink has the same limit for a state.
"""
_MAGIC = b"MILLHNDL"
CUT_OFF = "it does not end with a snapshot's metadata"
"""The reason in the CorruptSnapshotError for a bundle whose end is missing."""
_FEWER_PARTS = "use fewer states, operator state lists with fewer elements, or more subtasks"
_TRAILER = 4 + len(_MAGIC)
_TAIL = 64 << 10


@attrs.frozen
class Inlining:
    """The size up to which the bytes of a snapshot are stored in its handle, instead of in a file.

    Attributes:
        limit: the maximum size of the snapshot in bytes.
        always: whether a larger snapshot raises an error instead of being written to a file.
    """

    limit: int = 0
    always: bool = False

    @classmethod
    def from_config(cls, config: CheckpointConfig) -> Self:
        """Return the limit that the configuration sets."""
        if config.storage == "pointer":
            return cls(POINTER_BYTES, always=True)
        return cls(config.inline_threshold)


class Bundle:
    """The writer of one snapshot's file; a context manager that deletes an incomplete file.

    The parts of a snapshot are its files of rows and its operator state. They remain in memory
    while they are small enough for the handle, and :meth:`finish` puts them into the handle. If
    they become too large, all parts are written to the file, one after the other.

    Args:
        storage: the file's storage.
        path: the file's path, which no other attempt of the task uses.
        inlining: the maximum size of parts that are put into the handle.

    Attributes:
        path: the file's path.
        position: the number of bytes written so far, in memory or to the file.
    """

    def __init__(
        self, storage: CheckpointStorage, path: str, inlining: Inlining = Inlining()
    ) -> None:
        self._storage = storage
        self._inlining = inlining
        self._held: list[bytes] = []
        self._writer: FileWriter | None = None
        self.path = path
        self.position = 0

    @property
    def is_held(self) -> bool:
        """Whether all parts are still in memory, so that the handle can contain them."""
        return self._inlining.limit > 0 and self._writer is None

    def write(self, data: bytes) -> None:
        """Append `data`, the bytes of a part or some of them.

        Raises:
            SnapshotTooLargeError: the parts are too large for the handle, and the configuration
                allows no file.
        """
        if self._writer is None and self.position + len(data) > self._inlining.limit:
            if self._inlining.always:
                cure = "set checkpoint.storage to files"
                raise SnapshotTooLargeError(self.path, self._inlining.limit, cure=cure)
            self._open()
        if self._writer is None:
            self._held.append(data)
        else:
            self._writer.write(data)
        self.position += len(data)

    def _open(self) -> FileWriter:
        """Open the file, and write the parts that were in memory."""
        self._writer = self._storage.open_writer(self.path)
        for data in self._held:
            self._writer.write(data)
        self._held.clear()
        return self._writer

    def copy_carried(self, handle: KeyedStateHandle) -> KeyedStateHandle:
        """Write the parts that `handle` contains as bytes to this bundle.

        Return a copy of `handle` that instead names the bundle's file and the parts' offsets in it.
        """

        def copied(part: P) -> P:
            if not part.inline:
                return part
            at = self.position
            self.write(part.carried_bytes())
            return attrs.evolve(part, path=self.path, offset=at, inline="")

        return _with_parts(handle, copied) if handle.format == PORTABLE else handle

    def finish(self, handle: KeyedStateHandle) -> KeyedStateHandle:
        """Complete the bundle, and return the complete handle.

        If the parts are still in memory, the returned handle contains their bytes. Otherwise the
        handle is written to the end of the file.

        Args:
            handle: the handle of the snapshot, with the parts' offsets in this bundle.
        """
        if self.is_held:
            return self._carrying(handle)
        complete = attrs.evolve(handle, metadata=self.path)
        sealed = checked_metadata(self.path, seal_metadata(complete.to_json()), _FEWER_PARTS)
        writer = self._writer or self._open()
        writer.write(sealed + len(sealed).to_bytes(4, "big") + _MAGIC)
        writer.commit()
        self._writer = None
        return complete

    def _carrying(self, handle: KeyedStateHandle) -> KeyedStateHandle:
        """Return a copy of `handle` that contains the bytes of this bundle's parts as base64."""
        held = b"".join(self._held)

        def inlined(part: P) -> P:
            if part.path != self.path:
                return part
            data = base64.b64encode(held[part.offset : part.offset + part.size]).decode()
            return attrs.evolve(part, inline=data, offset=0)

        return _with_parts(handle, inlined)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.abort()


def _with_parts(handle: KeyedStateHandle, change: Callable[[Any], Any]) -> KeyedStateHandle:
    """Return a copy of `handle` in which each file part is replaced by `change(part)`."""

    def share(old: OperatorStateHandle) -> OperatorStateHandle:
        return old if old.file is None else attrs.evolve(old, file=change(old.file))

    files, history = tuple(map(change, handle.files)), tuple(map(change, handle.history))
    shares = tuple(map(share, handle.operator_state))
    return attrs.evolve(handle, files=files, history=history, operator_state=shares)


def read_bundled(storage: CheckpointStorage, path: str) -> str:
    """Return the handle at the end of a bundle, as JSON.

    Raises:
        CorruptSnapshotError: the file is missing, damaged, or not a bundle.
    """
    size = storage.size(path)
    tail = storage.read(path, max(size - _TAIL, 0), min(size, _TAIL))
    length = int.from_bytes(tail[-_TRAILER : -len(_MAGIC)], "big")
    whole = length + _TRAILER
    if not tail.endswith(_MAGIC) or whole > size or length > MAX_WHOLE:
        raise CorruptSnapshotError(path, CUT_OFF)
    if whole > len(tail):
        tail = storage.read(path, size - whole, whole)
    return _METADATA.unseal(tail[-whole:-_TRAILER], path)
