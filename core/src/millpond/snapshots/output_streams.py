"""Files of snapshots: parts, output streams and raw streams."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import attrs

from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError, StreamClosedError
from millpond.safe_decoding import decoding
from millpond.snapshots.paths import BUNDLE_ENDING
from millpond.storage.checkpoint_storage import CheckpointStorage, FileWriter, check_path, exactly


class Part(Protocol):
    """What a handle says of a part."""

    @property
    def path(self) -> str:
        """The file."""

    @property
    def offset(self) -> int:
        """Where it begins there."""

    @property
    def size(self) -> int:
        """In bytes."""

    @property
    def inline(self) -> str:
        """The bytes themselves in base64, where the handle carries them."""


def part_bytes(part: Part) -> bytes:
    """The bytes of a part that its handle carries.

    Raises:
        CorruptSnapshotError: they are not base64, or not as many as they should be.
    """
    with decoding(part.path, "what its handle carries cannot be read"):
        data = base64.b64decode(part.inline, validate=True)
    if len(data) != part.size:
        raise CorruptSnapshotError(part.path, f"its size is not {part.size:,} bytes")
    return data


def part_reader(storage: CheckpointStorage, part: Part) -> Callable[[int, int], bytes]:
    """What reads exactly so many bytes of a part from an offset in it.

    Raises:
        CorruptSnapshotError: what the handle carries is damaged; in a read, also where the
            file is missing or too short.
    """
    if part.inline:
        data = part_bytes(part)
        return lambda at, length: exactly(part.path, data[at : at + length], length)
    check_path(part.path)
    return lambda at, length: storage.read(part.path, part.offset + at, length)


def require_whole(storage: CheckpointStorage, part: Part) -> None:
    """Raise CorruptSnapshotError where a part's file is missing, or has another size.

    A file of several parts has to hold this one.
    """
    if part.inline:
        return
    size, end = storage.size(part.path), part.offset + part.size
    if size < end or (size > end and not part.path.endswith(BUNDLE_ENDING)):
        raise CorruptSnapshotError(part.path, f"its size is not {part.size:,} bytes")


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


def _slices(stream: StreamStateHandle, offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    """Begin and end of the part at each offset; CorruptSnapshotError where that is impossible."""
    ends = [*offsets[1:], stream.size]
    if (
        not offsets
        or list(offsets) != sorted(offsets)
        or offsets[0] < 0
        or offsets[-1] > stream.size
    ):
        raise CorruptSnapshotError(stream.path, "its offsets are not ascending, or beyond its end")
    return list(zip(offsets, ends, strict=True))


@attrs.frozen
class OperatorRawHandle:
    """What was written by partition.

    Attributes:
        stream: the file.
        offsets: where every partition begins.
        partitions: which of them this handle stands for.
    """

    stream: StreamStateHandle
    offsets: tuple[int, ...]
    partitions: tuple[int, ...]

    def read(
        self, storage: CheckpointStorage, limits: RestoreConfig | None = None
    ) -> Iterator[bytes]:
        """The bytes of each partition of this handle, checked."""
        data = self.stream.read(storage, limits)
        slices = _slices(self.stream, self.offsets)
        for number in self.partitions:
            if not 0 <= number < len(slices):
                raise CorruptSnapshotError(self.stream.path, f"it has no partition {number}")
            start, end = slices[number]
            yield data[start:end]


class ByteStream(Protocol):
    """What partitions are written to: a file, or a part of one."""

    def write(self, data: bytes) -> None:
        """Append bytes."""

    def tell(self) -> int:
        """How many bytes were written."""

    def close_and_get_handle(self) -> StreamStateHandle | None:
        """Finish; None where nothing was written."""


class OperatorRawOutputStream:
    """Writes bytes by partition."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._offsets: list[int] = []

    def start_new_partition(self) -> None:
        """What is written from now on belongs to a further partition."""
        self._offsets.append(self._stream.tell())

    def write(self, data: bytes) -> None:
        """Append bytes to the current partition, the first one where none was started."""
        if not self._offsets:
            self.start_new_partition()
        self._stream.write(data)

    def close_and_get_handle(self) -> OperatorRawHandle | None:
        """Finish; None where nothing was written."""
        stream = self._stream.close_and_get_handle()
        if stream is None:
            return None
        return OperatorRawHandle(stream, tuple(self._offsets), tuple(range(len(self._offsets))))
