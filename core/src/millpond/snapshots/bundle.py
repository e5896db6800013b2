"""The files of one snapshot, and its sealed metadata."""

from __future__ import annotations

import base64
import hashlib
from typing import Protocol, Self, TypeVar

import attrs

from millpond.config import CheckpointConfig
from millpond.errors import CorruptSnapshotError, SnapshotTooLargeError
from millpond.sealed_json import SealedJson
from millpond.snapshots.handles import PORTABLE, KeyedStateHandle, OperatorStateHandle, SnapshotFile
from millpond.snapshots.output_streams import StreamStateHandle, part_bytes
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
    """A text with its digest."""
    return _METADATA.seal(text)


def unseal_metadata(data: bytes, path: str) -> str:
    """The text of such bytes; CorruptSnapshotError where they are damaged, which names the path."""
    return _METADATA.unseal(data, path)


def write_sealed(storage: CheckpointStorage, path: str, text: str) -> None:
    """Write a text with its digest.

    Raises:
        SnapshotTooLargeError: it would have more bytes than are read again.
    """
    storage.write_all(path, seal_metadata(text), _LESS_IN_POINTERS)


def read_sealed(storage: CheckpointStorage, path: str) -> str:
    """Read such a text.

    Raises:
        CorruptSnapshotError: the file is missing, damaged, or not a metadata file.
    """
    return unseal_metadata(storage.read_all(path), path)


P = TypeVar("P", SnapshotFile, StreamStateHandle)

POINTER_BYTES = 5 << 20
"""What a subtask may keep in its pointer where there are no files; Flink's limit of a state."""
_MAGIC = b"MILLHNDL"
CUT_OFF = "it does not end with a snapshot's metadata"
"""The reason of the error where the end of a file is missing."""
_FEWER_PARTS = "use fewer states, operator state lists with fewer elements, or more subtasks"
_TRAILER = 4 + len(_MAGIC)
_TAIL = 64 << 10


@attrs.frozen
class Inlining:
    """What a handle may carry by itself.

    Attributes:
        limit: bytes of all parts together.
        always: whether a snapshot that is larger is refused, rather than written to a file.
    """

    limit: int = 0
    always: bool = False

    @classmethod
    def of(cls, config: CheckpointConfig) -> Self:
        """As configured."""
        if config.storage == "pointer":
            return cls(POINTER_BYTES, always=True)
        return cls(config.inline_threshold)


class Bundle:
    """Takes the parts of one snapshot; a context manager that leaves no half file.

    Args:
        storage: where the file goes.
        path: that of the file; no other attempt uses it.
        inlining: what the handle may carry.

    Attributes:
        path: that of the file.
        position: how many bytes of parts were written so far.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        path: str,
        inlining: Inlining = Inlining(),
    ) -> None:
        self._storage = storage
        self._inlining = inlining
        self._held: list[bytes] = []
        self._writer: FileWriter | None = None
        self.path = path
        self.position = 0

    @property
    def is_held(self) -> bool:
        """Whether all that was written so far is still in memory, for the handle to carry."""
        return self._inlining.limit > 0 and self._writer is None

    def write(self, data: bytes) -> None:
        """Append bytes of a part.

        Raises:
            SnapshotTooLargeError: they would have to go to a file, and there is to be none.
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
        self._writer = self._storage.open_writer(self.path)
        for data in self._held:
            self._writer.write(data)
        self._held.clear()
        return self._writer

    def carried(self, part: P) -> P:
        """A part of an earlier snapshot; copied if a handle carries it, and else as it is."""
        if not part.inline:
            return part
        at = self.position
        self.write(part_bytes(part))
        return attrs.evolve(part, path=self.path, offset=at, inline="")

    def carrying_on(self, handle: KeyedStateHandle) -> KeyedStateHandle:
        """A handle whose parts that an earlier handle carries are in the bundle."""
        if handle.format != PORTABLE:
            return handle
        return _with_parts(handle, self.carried)

    def finish(self, handle: KeyedStateHandle) -> KeyedStateHandle:
        """The complete handle, which carries the parts or is written behind them.

        ``handle`` names the parts as they were placed.
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
        held = b"".join(self._held)

        def inlined(part: P, /) -> P:
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


class _Changing(Protocol):
    """What makes a part of a part, whatever it describes."""

    def __call__(self, part: P, /) -> P: ...


def _with_parts(handle: KeyedStateHandle, change: _Changing) -> KeyedStateHandle:
    """A handle each of whose parts is changed."""

    def share(old: OperatorStateHandle) -> OperatorStateHandle:
        if old.raw is None:
            return old
        return attrs.evolve(old, raw=attrs.evolve(old.raw, stream=change(old.raw.stream)))

    files, history = tuple(map(change, handle.files)), tuple(map(change, handle.history))
    shares = tuple(map(share, handle.operator_state))
    return attrs.evolve(handle, files=files, history=history, operator_state=shares)


class PartStream:
    """Writes operator state as a part of a bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._start = bundle.position
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._bundle.write(data)
        self._digest.update(data)

    def tell(self) -> int:
        """How many bytes were written."""
        return self._bundle.position - self._start

    def close_and_get_handle(self) -> StreamStateHandle | None:
        """The part; None where nothing was written."""
        if not self.tell():
            return None
        digest = self._digest.hexdigest()
        return StreamStateHandle(self._bundle.path, self.tell(), digest, self._start)


def read_bundled(storage: CheckpointStorage, path: str) -> str:
    """The handle at the end of a bundle, as JSON.

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
    return unseal_metadata(tail[-whole:-_TRAILER], path)
