"""The file format of portable snapshots.

A file is a row of segments, a footer and a trailer. A segment is a complete Arrow IPC stream,
compressed as one LZ4 block, of the columns ``state`` (index into the footer's list), ``key``
(the physical key, which begins with the key group) and ``value`` (null: removed). The footer is
JSON and says of each segment where it lies, its size when unpacked, its SHA-256 and the key
groups it spans, so that a part of a file can be read and checked by itself, and nothing is
unpacked beyond what was announced. The trailer is the footer's length and a magic word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Self

import attrs
import cattrs
import pyarrow as pa
import pyarrow.compute as pc

from millpond.backend.changes import Change
from millpond.checkpoint.formats import SNAPSHOT_FILE
from millpond.checkpoint.handles import SnapshotFile
from millpond.checkpoint.segments import pack, unpack
from millpond.checkpoint.storage import CheckpointStorage
from millpond.checkpoint.untrusted import decoding, exact_int, exact_text, parse_json
from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError, SnapshotTooLargeError
from millpond.keygroups import KeyGroupRange

__all__ = ["Segment", "SegmentBuilder", "SnapshotWriter", "read_rows", "write_segments"]

MAGIC = b"MILLPOND"
_TRAILER = 4 + len(MAGIC)
_SEGMENT_BYTES = 1 << 20
_SLICE = 1 << 16


@attrs.frozen
class Segment:
    """An encoded segment, not yet placed in a file."""

    data: bytes
    rows: int
    stream_bytes: int
    first_group: int
    last_group: int
    digest: str


class SegmentBuilder:
    """Collects rows and cuts them into segments of about a megabyte, which it hands on."""

    def __init__(self, prefix_bytes: int, emit: Callable[[Segment], object]) -> None:
        self._prefix_bytes = prefix_bytes
        self._emit = emit
        self.states: list[str] = []
        self._clear()

    def _clear(self) -> None:
        self._indexes: list[int] = []
        self._keys: list[bytes] = []
        self._values: list[bytes | None] = []
        self._raw_bytes = 0

    def add(self, state: str, rows: Sequence[Change]) -> None:
        """Add rows of a state."""
        if state not in self.states:
            self.states.append(state)
        index = self.states.index(state)
        start = 0
        while start < len(rows):
            end, size = _slice_end(rows, start, _SEGMENT_BYTES - self._raw_bytes)
            keys, values = zip(*rows[start:end], strict=True)
            self._indexes += [index] * len(keys)
            self._keys += keys
            self._values += values
            self._raw_bytes += size
            if self._raw_bytes >= _SEGMENT_BYTES:
                self.cut()
            start = end

    def cut(self) -> None:
        """End the current segment, if it has rows."""
        if not self._keys:
            return
        data, stream_bytes = pack(self._indexes, self._keys, self._values)
        size = self._prefix_bytes
        first, last = min(self._keys)[:size], max(self._keys)[:size]
        segment = Segment(
            data=data,
            rows=len(self._keys),
            stream_bytes=stream_bytes,
            first_group=int.from_bytes(first, "big"),
            last_group=int.from_bytes(last, "big"),
            digest=hashlib.sha256(data).hexdigest(),
        )
        self._clear()
        self._emit(segment)


def _slice_end(rows: Sequence[Change], start: int, room: int) -> tuple[int, int]:
    """Where rows that fill the room end, at least one; and their bytes."""
    size = 0
    for at in range(start, len(rows)):
        key, value = rows[at]
        size += len(key) + len(value or b"")
        if size >= room:
            return at + 1, size
    return len(rows), size


@attrs.frozen
class _Entry:
    """What the footer says of a segment."""

    rows: int
    stream_bytes: int
    first_group: int
    last_group: int
    digest: str
    offset: int
    length: int


@attrs.frozen
class _Footer:
    format_version: int
    states: list[str]
    segments: list[_Entry]


_CONVERTER = cattrs.Converter(forbid_extra_keys=True)
_CONVERTER.register_structure_hook(int, exact_int)
_CONVERTER.register_structure_hook(str, exact_text)


class SnapshotWriter:
    """Writes one file, segment by segment; a context manager that leaves no half file."""

    def __init__(self, storage: CheckpointStorage, path: str, prefix_bytes: int) -> None:
        self._path = path
        self._sink = storage.open_sink(path)
        self._entries: list[_Entry] = []
        self._offset = 0
        self._done = False
        self.builder = SegmentBuilder(prefix_bytes, self.place)

    def place(self, segment: Segment) -> None:
        """Append a segment."""
        fields = attrs.asdict(segment, filter=attrs.filters.exclude("data"))
        self._entries.append(_Entry(**fields, offset=self._offset, length=len(segment.data)))
        self._write(segment.data)
        self._offset += len(segment.data)

    def _write(self, data: bytes) -> None:
        try:
            self._sink.write(data)
        except SnapshotTooLargeError as error:
            raise attrs.evolve(error, state=", ".join(self.builder.states[-1:])) from None

    def finish(self, kind: str, version: str, states: Sequence[str] | None = None) -> SnapshotFile:
        """Write the footer, make the file visible and describe it."""
        self.builder.cut()
        names = list(self.builder.states if states is None else states)
        body = attrs.asdict(_Footer(SNAPSHOT_FILE.version, names, self._entries))
        text = json.dumps(body, separators=(",", ":")).encode()
        footer = text + len(text).to_bytes(4, "big") + MAGIC
        self._write(footer)
        self._sink.commit()
        self._done = True
        return SnapshotFile(
            path=self._path,
            size=self._offset + len(footer),
            footer=len(footer),
            digest=hashlib.sha256(footer).hexdigest(),
            kind=kind,
            version=version,
            rows=sum(entry.rows for entry in self._entries),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._done:
            self._sink.abort()


def write_segments(
    storage: CheckpointStorage,
    path: str,
    states: Sequence[str],
    segments: Sequence[Segment],
    version: str,
) -> SnapshotFile:
    """Write encoded segments as a new delta."""
    with SnapshotWriter(storage, path, 1) as writer:
        for segment in segments:
            writer.place(segment)
        return writer.finish("delta", version, states)


def read_rows(
    storage: CheckpointStorage,
    file: SnapshotFile,
    groups: KeyGroupRange,
    prefix_bytes: int,
    states: Collection[str] | None = None,
    limits: RestoreConfig = RestoreConfig(),
) -> Iterator[tuple[str, list[Change]]]:
    """The rows of some key groups, checked, in the order they were written.

    Args:
        storage: where the file is.
        file: what its handle says of it.
        groups: the key groups to read.
        prefix_bytes: how many bytes of a physical key hold its key group.
        states: the states that the handle names; a file with others is refused.
        limits: how much memory may be needed.

    Yields:
        A state's name and consecutive rows of it.

    Raises:
        CorruptSnapshotError: the file is damaged, missing or foreign.
        ApiVersionError: it was written by a newer Millpond.
    """
    footer = _read_footer(storage, file)
    unknown = [] if states is None else [name for name in footer.states if name not in states]
    if unknown:
        reason = f"it holds the state {unknown[0]!r}, which its handle does not name"
        raise CorruptSnapshotError(file.path, reason)
    for entry in footer.segments:
        if entry.last_group < groups.start or entry.first_group > groups.end:
            continue
        batch = _read_segment(storage, file, entry, prefix_bytes, limits)
        if entry.first_group < groups.start or entry.last_group > groups.end:
            batch = _inside(batch, groups, prefix_bytes)
        for index, rows in _split_by_state(batch):
            if index >= len(footer.states):
                raise CorruptSnapshotError(file.path, "a row belongs to no state")
            yield footer.states[index], rows


def _inside(batch: pa.RecordBatch, groups: KeyGroupRange, prefix_bytes: int) -> pa.RecordBatch:
    """The rows of some key groups; filtered before Python sees them."""
    keys = batch.column(1)
    inside = pc.greater_equal(keys, groups.start.to_bytes(prefix_bytes, "big"))
    if groups.end + 1 < 1 << (8 * prefix_bytes):
        end = (groups.end + 1).to_bytes(prefix_bytes, "big")
        inside = pc.and_(inside, pc.less(keys, end))
    return batch.filter(inside)


def verify_rows(
    storage: CheckpointStorage, file: SnapshotFile, prefix_bytes: int, limits: RestoreConfig
) -> None:
    """Read a whole file and check it; raises what :func:`read_rows` raises."""
    if storage.size(file.path) != file.size:
        raise CorruptSnapshotError(file.path, f"its size is not {file.size:,} bytes")
    for entry in _read_footer(storage, file).segments:
        _read_segment(storage, file, entry, prefix_bytes, limits)


def _read_footer(storage: CheckpointStorage, file: SnapshotFile) -> _Footer:
    if not _TRAILER < file.footer <= file.size:
        raise CorruptSnapshotError(file.path, "its sizes make no sense")
    data = storage.read(file.path, file.size - file.footer, file.footer)
    if hashlib.sha256(data).hexdigest() != file.digest:
        raise CorruptSnapshotError(file.path, "the digest of its footer is wrong")
    with decoding(file.path, "its footer makes no sense"):
        body: dict[str, Any] = parse_json(data[:-_TRAILER])
        SNAPSHOT_FILE.check(body["format_version"], file.path)
        footer = _CONVERTER.structure(body, _Footer)
    position = 0
    for entry in footer.segments:
        if entry.offset != position or entry.length <= 0:
            reason = f"a segment at {entry.offset} lies outside of the file or within another"
            raise CorruptSnapshotError(file.path, reason)
        position += entry.length
    if position != file.size - file.footer:
        raise CorruptSnapshotError(file.path, "its segments lie outside of the file")
    return footer


def _read_segment(
    storage: CheckpointStorage,
    file: SnapshotFile,
    entry: _Entry,
    prefix_bytes: int,
    limits: RestoreConfig,
) -> pa.RecordBatch:
    offset = entry.offset
    data = storage.read(file.path, offset, entry.length)
    if hashlib.sha256(data).hexdigest() != entry.digest:
        raise CorruptSnapshotError(file.path, f"the digest of the bytes at {offset} is wrong")
    batch = unpack(file.path, data, entry.stream_bytes, limits.max_unpacked_bytes)
    if batch.num_rows != entry.rows or batch.column(0).null_count or not entry.rows:
        raise CorruptSnapshotError(file.path, f"unexpected columns or rows at {offset}")
    _check_extent(file, entry, batch.column(1), prefix_bytes)
    return batch


def _check_extent(
    file: SnapshotFile, entry: _Entry, keys: pa.BinaryArray, prefix_bytes: int
) -> None:
    """The key groups must be those that the footer says: by them segments are skipped."""
    if keys.null_count or pc.min(pc.binary_length(keys)).as_py() < prefix_bytes:
        raise CorruptSnapshotError(file.path, f"a row at {entry.offset} has no key")
    extent = pc.min_max(keys)
    first, last = (
        int.from_bytes(extent[end].as_py()[:prefix_bytes], "big") for end in ("min", "max")
    )
    if (first, last) != (entry.first_group, entry.last_group):
        reason = f"the rows at {entry.offset} are not of the key groups that the footer says"
        raise CorruptSnapshotError(file.path, reason)


def _split_by_state(batch: pa.RecordBatch) -> Iterator[tuple[int, list[Change]]]:
    """Consecutive rows of one state; of many small rows not all are made objects at once."""
    for at in range(0, batch.num_rows, _SLICE):
        part = batch.slice(at, _SLICE)
        indexes = part.column(0).to_pylist()
        keys, values = part.column(1).to_pylist(), part.column(2).to_pylist()
        start = 0
        while start < len(indexes):
            end = start
            while end < len(indexes) and indexes[end] == indexes[start]:
                end += 1
            yield indexes[start], list(zip(keys[start:end], values[start:end], strict=True))
            start = end
