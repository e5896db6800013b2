"""Raw streams: a file of bytes, cut into partitions that a restore gives out among subtasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs

from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError
from millpond.snapshots.output_stream import StreamStateHandle
from millpond.storage.checkpoint_storage import CheckpointStorage

__all__ = [
    "ByteStream",
    "OperatorRawHandle",
    "OperatorRawOutputStream",
]


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
