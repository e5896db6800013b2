"""Raw streams: bytes that functions write themselves, by key group or by partition.

A keyed stream is cut by key group and rescales as keyed state does; an operator stream is cut
into partitions, which are what is given out anew when the parallelism changes.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from millpond.checkpoint.file_writer import CheckpointOutputStream, StreamStateHandle
from millpond.errors import CorruptSnapshotError, KeyGroupRangeError
from millpond.keygroups import KeyGroupRange
from millpond.storage.checkpoint_storage import CheckpointStorage

__all__ = [
    "KeyedRawHandle",
    "KeyedRawOutputStream",
    "OperatorRawHandle",
    "OperatorRawOutputStream",
]


def _slices(stream: StreamStateHandle, offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    """Begin and end of the part at each offset; CorruptSnapshotError where they make no sense."""
    ends = [*offsets[1:], stream.size]
    if (
        not offsets
        or list(offsets) != sorted(offsets)
        or offsets[0] < 0
        or offsets[-1] > stream.size
    ):
        raise CorruptSnapshotError(stream.path, "its offsets make no sense")
    return list(zip(offsets, ends, strict=True))


@attrs.frozen
class KeyedRawHandle:
    """What was written by key group.

    Attributes:
        stream: the file.
        offsets: where each written key group begins, by key group, ascending in the file.
        key_group_range: which of them this handle stands for.
    """

    stream: StreamStateHandle
    offsets: tuple[tuple[int, int], ...]
    key_group_range: KeyGroupRange

    def intersection(self, groups: KeyGroupRange) -> KeyedRawHandle | None:
        """The part within some key groups: the same file, fewer of its parts; None for none."""
        common = self.key_group_range.intersection(groups)
        return None if common is None else attrs.evolve(self, key_group_range=common)

    def read(self, storage: CheckpointStorage) -> Iterator[tuple[int, bytes]]:
        """The key groups of this handle that were written, and their bytes, checked."""
        data = self.stream.read(storage)
        slices = _slices(self.stream, tuple(offset for _, offset in self.offsets))
        for (group, _), (start, end) in zip(self.offsets, slices, strict=True):
            if group in self.key_group_range:
                yield group, data[start:end]


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

    def read(self, storage: CheckpointStorage) -> Iterator[bytes]:
        """The bytes of each partition of this handle, checked."""
        data = self.stream.read(storage)
        slices = _slices(self.stream, self.offsets)
        for number in self.partitions:
            if not 0 <= number < len(slices):
                raise CorruptSnapshotError(self.stream.path, f"it has no partition {number}")
            start, end = slices[number]
            yield data[start:end]


class KeyedRawOutputStream:
    """Writes bytes by key group; key groups come in any order, each at most once."""

    def __init__(self, stream: CheckpointOutputStream, groups: KeyGroupRange) -> None:
        self._stream = stream
        self._groups = groups
        self._offsets: list[tuple[int, int]] = []

    def start_new_key_group(self, key_group: int) -> None:
        """What is written from now on belongs to this key group.

        Raises:
            KeyGroupRangeError: it is another subtask's, or was written before.
        """
        if key_group not in self._groups or key_group in dict(self._offsets):
            reason = f"key group {key_group} is not free to write in {self._groups}"
            raise KeyGroupRangeError(reason)
        self._offsets.append((key_group, self._stream.tell()))

    def write(self, data: bytes) -> None:
        """Append bytes to the current key group."""
        if not self._offsets:
            raise KeyGroupRangeError("start a key group before writing to it")
        self._stream.write(data)

    def close_and_get_handle(self) -> KeyedRawHandle | None:
        """Finish; None where nothing was written."""
        stream = self._stream.close_and_get_handle()
        if stream is None:
            return None
        return KeyedRawHandle(stream, tuple(self._offsets), self._groups)


class OperatorRawOutputStream:
    """Writes bytes by partition."""

    def __init__(self, stream: CheckpointOutputStream) -> None:
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
