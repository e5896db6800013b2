"""Row files: the portable format of a base or delta.

A row file consists of compressed Arrow streams, called segments, and a footer that describes them.
The rows of a base are sorted by key group. Digests and key groups are checked during reads.
"""

from __future__ import annotations

import hashlib
import json
import struct
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate, repeat
from typing import Any, Self

import attrs
import cattrs
import pyarrow as pa
import pyarrow.compute as pc

from millpond.config import Config, RestoreConfig
from millpond.errors import CorruptSnapshotError, SnapshotTooLargeError
from millpond.format_versions import SNAPSHOT_FILE
from millpond.keygroups import KeyGroupRange
from millpond.safe_decoding import decoding, exact_int, exact_text, parse_json
from millpond.snapshots.bundle import Bundle
from millpond.snapshots.handles import SnapshotFile
from millpond.spi.keys import KeyLayout
from millpond.spi.portable_rows import Change, Changes
from millpond.storage.checkpoint_storage import CheckpointStorage

_SCHEMA = pa.schema([("state", pa.uint16()), ("key", pa.binary()), ("value", pa.binary())])
_CODECS = {"lz4": "lz4_raw", "zstd": "zstd"}
"""Arrow's name of the codec for each value of ``checkpoint.compression``, except ``none``."""
_MAX_GAIN = 16 << 20


@attrs.frozen
class Packing:
    """The compression of segments.

    Attributes:
        compression: ``lz4``, ``zstd`` or ``none``.
        max_gain: the maximum number of bytes by which an unpacked segment may exceed its stored
            size. Readers refuse larger differences, so such a segment is stored uncompressed.
    """

    compression: str = "lz4"
    max_gain: int = _MAX_GAIN

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the configured compression, limited by ``restore.max-unpacked-bytes``."""
        max_gain = min(_MAX_GAIN, config.restore.max_unpacked_bytes)
        return cls(config.checkpoint.compression, max_gain)


def pack(
    indexes: list[int], keys: list[bytes], values: list[bytes | None], packing: Packing
) -> tuple[bytes, int, str]:
    """Return rows as a segment: its bytes, their unpacked size, and the compression used.

    Args:
        indexes: the number of each row's state.
        keys: the key of each row.
        values: the value of each row; None if the row deletes its key.
        packing: the desired compression.
    """
    columns = [
        pa.array(indexes, pa.uint16()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
    stream = sink.getvalue()
    if packing.compression != "none":
        data: bytes = pa.compress(stream, codec=_CODECS[packing.compression], asbytes=True)
        if stream.size - len(data) <= packing.max_gain:
            return data, stream.size, packing.compression
    return stream.to_pybytes(), stream.size, "none"


def unpack(
    path: str, data: bytes, size: int, budget: int, compression: str = "lz4"
) -> pa.RecordBatch:
    """Return the rows of a segment.

    Args:
        path: the file, for errors.
        data: the segment's bytes.
        size: the unpacked size, from the footer.
        budget: the maximum number of bytes by which the unpacked size may exceed ``len(data)``.
        compression: the compression, from the footer.

    Raises:
        CorruptSnapshotError: the bytes are not a segment, or their unpacked size exceeds the
            budget.
    """
    if compression not in (*_CODECS, "none"):
        raise CorruptSnapshotError(path, f"a segment is compressed by {compression[:40]!r}")
    if size <= 0 or (compression == "none" and size != len(data)):
        raise CorruptSnapshotError(path, "a segment claims to unpack to an absurd size")
    if size > len(data) + budget:
        reason = f"a segment of {len(data):,} bytes claims to unpack to {size:,}"
        raise CorruptSnapshotError(path, f"{reason}; restore.max-unpacked-bytes allows more")
    with decoding(path, "it is not an Arrow stream of rows"):
        stream = data
        if compression != "none":
            codec = _CODECS[compression]
            stream = pa.decompress(data, decompressed_size=size, codec=codec)
        messages = pa.ipc.MessageReader.open_stream(stream)
        if pa.ipc.read_schema(messages.read_next_message()) != _SCHEMA:
            raise ValueError("unexpected columns")
        message = messages.read_next_message()
        if message.type != "record batch" or _compressed(message.metadata.to_pybytes()):
            raise ValueError("it holds something else than plain rows")
        batch = pa.ipc.read_record_batch(message, _SCHEMA)
        batch.validate(full=True)
    return batch


_BATCH_HEADER, _COMPRESSION = 2, 3


def _compressed(metadata: bytes) -> bool:
    """Return whether the `metadata` of an Arrow record batch says that its buffers are compressed.

    PyArrow does not show this. Compressed buffers could need more memory than the limits allow.
    """
    (root,) = struct.unpack_from("<I", metadata)
    header = _field(metadata, root, _BATCH_HEADER)
    (offset,) = struct.unpack_from("<I", metadata, header)
    return _field(metadata, header + offset, _COMPRESSION) != 0


def _field(data: bytes, table: int, index: int) -> int:
    """Return the position in `data` of a field of a flatbuffers table; 0 if the field is missing.

    Args:
        data: the flatbuffers message.
        table: the position of the table.
        index: the number of the field in the table.
    """
    (back,) = struct.unpack_from("<i", data, table)
    vtable, at = table - back, 4 + 2 * index
    (size,) = struct.unpack_from("<H", data, vtable)
    if at >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + at)
    return table + offset if offset else 0


MAGIC = b"MILLPOND"
TRAILER = 4 + len(MAGIC)
_SEGMENT_BYTES = 1 << 20


@attrs.frozen
class Entry:
    """The description of a segment in the footer.

    Segments follow each other in the file without gaps.

    Attributes:
        rows: the number of rows.
        stream_bytes: the unpacked size.
        first_group: the lowest key group of the rows.
        last_group: the highest key group of the rows.
        digest: the SHA-256 digest of the stored bytes.
        length: the number of stored bytes.
        compression: ``lz4``, ``zstd`` or ``none``.
    """

    rows: int
    stream_bytes: int
    first_group: int
    last_group: int
    digest: str
    length: int
    compression: str


@attrs.frozen
class Segment:
    """The bytes of a segment, and the entry that describes the segment in the footer."""

    data: bytes
    entry: Entry


@attrs.frozen
class Footer:
    """The metadata at the end of a row file.

    Attributes:
        format_version: the version of the format.
        states: the names of the states; rows refer to them by their indexes.
        segments: the descriptions of the segments, in the order of the file.
    """

    format_version: int
    states: list[str]
    segments: list[Entry]


class SegmentBuilder:
    """A collector of rows, which calls `emit` with segments of about a megabyte."""

    def __init__(
        self, layout: KeyLayout, emit: Callable[[Segment], object], packing: Packing = Packing()
    ) -> None:
        self._layout = layout
        self._packing = packing
        self._emit = emit
        self.states: list[str] = []
        self._bytes: dict[str, int] = {}
        self._clear()

    def _clear(self) -> None:
        self._indexes: list[int] = []
        self._keys: list[bytes] = []
        self._values: list[bytes | None] = []
        self._raw_bytes = 0

    def add(self, state: str, rows: Sequence[Change]) -> None:
        """Add rows of a state. Emit a segment each time the collected rows reach a megabyte."""
        if state not in self.states:
            self.states.append(state)
        index = self.states.index(state)
        rows = Changes.from_rows(rows)
        size = rows.size
        self._bytes[state] = self._bytes.get(state, 0) + size
        if self._raw_bytes + size < _SEGMENT_BYTES:
            # Most calls add few rows. Skipping the search for the cuts halves their time.
            self._place(index, rows, size)
            return
        ends = list(accumulate((len(key) + len(value or b"") for key, value in rows), initial=0))
        start = 0
        while start < len(rows):
            # Take at least one row, and as many rows as fill the segment.
            full = ends[start] + _SEGMENT_BYTES - self._raw_bytes
            end = min(bisect_left(ends, full, start + 1), len(rows))
            self._place(index, rows[start:end], ends[end] - ends[start])
            if self._raw_bytes >= _SEGMENT_BYTES:
                self.cut()
            start = end

    def _place(self, index: int, rows: Changes, size: int) -> None:
        """Add rows to the current segment; `size` is the number of their bytes."""
        self._indexes += repeat(index, len(rows))
        self._keys += rows.keys
        self._values += rows.values
        self._raw_bytes += size

    def largest(self) -> str:
        """Return the state with the most bytes so far, for errors; empty if there are no rows."""
        return max(self._bytes, key=lambda state: self._bytes[state], default="")

    def cut(self) -> None:
        """End the current segment: emit it if it has rows, and begin a new one."""
        if not self._keys:
            return
        columns = self._indexes, self._keys, self._values
        data, stream_bytes, compression = pack(*columns, self._packing)
        entry = Entry(
            rows=len(self._keys),
            stream_bytes=stream_bytes,
            first_group=self._layout.group_of(min(self._keys)),
            last_group=self._layout.group_of(max(self._keys)),
            digest=hashlib.sha256(data).hexdigest(),
            length=len(data),
            compression=compression,
        )
        self._clear()
        self._emit(Segment(data, entry))


class RowFileWriter:
    """A writer of one row file, a base or delta, as a part of a bundle."""

    def __init__(self, bundle: Bundle, layout: KeyLayout, packing: Packing = Packing()) -> None:
        self._bundle = bundle
        self._start = bundle.position
        self._entries: list[Entry] = []
        self.builder = SegmentBuilder(layout, self.place, packing)

    def place(self, segment: Segment) -> None:
        """Append a segment to the part."""
        self._entries.append(segment.entry)
        self._write(segment.data)

    def _write(self, data: bytes) -> None:
        """Write bytes to the bundle.

        If the bundle becomes too large, the error names the state with the most bytes.
        """
        try:
            self._bundle.write(data)
        except SnapshotTooLargeError as error:
            error.state = self.builder.largest()
            raise

    def finish(self, kind: str, version: str, states: Sequence[str] | None = None) -> SnapshotFile:
        """Write the last segment and the footer, and return the complete part.

        Args:
            kind: ``base`` or ``delta``.
            version: the unique name of the state that is complete once this part was read.
            states: the names of the states by their numbers in the segments; by default, the states
                added to the builder.
        """
        self.builder.cut()
        names = list(self.builder.states if states is None else states)
        body = attrs.asdict(Footer(SNAPSHOT_FILE.version, names, self._entries))
        text = json.dumps(body, separators=(",", ":")).encode()
        footer = text + len(text).to_bytes(4, "big") + MAGIC
        self._write(footer)
        return SnapshotFile(
            path=self._bundle.path,
            size=self._bundle.position - self._start,
            footer=len(footer),
            digest=hashlib.sha256(footer).hexdigest(),
            kind=kind,
            version=version,
            rows=sum(entry.rows for entry in self._entries),
            offset=self._start,
        )


_SLICE = 1 << 16

_CONVERTER = cattrs.Converter(forbid_extra_keys=True)
_CONVERTER.register_structure_hook(int, exact_int)
_CONVERTER.register_structure_hook(str, exact_text)


def read_rows(
    storage: CheckpointStorage,
    file: SnapshotFile,
    groups: KeyGroupRange,
    layout: KeyLayout,
    states: Collection[str] | None = None,
    limits: RestoreConfig = RestoreConfig(),
) -> Iterator[tuple[str, Changes]]:
    """Yield the rows in `groups` from a row file, in the order in which they were written.

    The digest and the key groups of each segment are checked before its rows are yielded.

    Args:
        storage: the storage of the file.
        file: the description of the file from the snapshot's handle.
        groups: the key groups to read.
        layout: the description of the stored keys' bytes.
        states: the states that the handle names. A file with other states is refused.
        limits: the limits for the memory that unpacked segments need.

    Yields:
        The name of a state and consecutive rows of this state.

    Raises:
        CorruptSnapshotError: the file is damaged or missing.
        ApiVersionError: the file was written by a newer Millpond.
    """
    read = file.reader(storage)
    footer = _read_footer(read, file)
    unknown = [] if states is None else [name for name in footer.states if name not in states]
    if unknown:
        reason = f"it holds the state {unknown[0]!r}, which its handle does not name"
        raise CorruptSnapshotError(file.path, reason)
    for entry, offset in _placed(footer):
        if entry.last_group < groups.start or entry.first_group > groups.end:
            continue
        batch = _read_segment(read, file, entry, offset, layout, limits)
        if entry.first_group < groups.start or entry.last_group > groups.end:
            # Arrow filters the rows before they become Python objects.
            keys = batch.column(1)
            inside = pc.greater_equal(keys, layout.group_prefix(groups.start))
            if (end := layout.end_of_group(groups.end)) is not None:
                inside = pc.and_(inside, pc.less(keys, end))
            batch = batch.filter(inside)
        for index, rows in _split_by_state(batch):
            if index >= len(footer.states):
                raise CorruptSnapshotError(file.path, "a row belongs to no state")
            yield footer.states[index], rows


def verify_rows(
    storage: CheckpointStorage, file: SnapshotFile, layout: KeyLayout, limits: RestoreConfig
) -> None:
    """Read and check all segments of a row file; see :func:`read_rows` for the errors."""
    file.require_complete(storage)
    read = file.reader(storage)
    for entry, offset in _placed(_read_footer(read, file)):
        _read_segment(read, file, entry, offset, layout, limits)


def _placed(footer: Footer) -> Iterator[tuple[Entry, int]]:
    """Yield each entry of a footer with the offset of its segment in the file."""
    offsets = accumulate((entry.length for entry in footer.segments), initial=0)
    return zip(footer.segments, offsets, strict=False)


def _read_footer(read: Callable[[int, int], bytes], file: SnapshotFile) -> Footer:
    """Check the digest of a row file's footer and the sizes of its segments; return the footer."""
    if not TRAILER < file.footer <= file.size:
        raise CorruptSnapshotError(file.path, "its sizes are impossible")
    data = read(file.size - file.footer, file.footer)
    if hashlib.sha256(data).hexdigest() != file.digest:
        raise CorruptSnapshotError(file.path, "the digest of its footer is wrong")
    with decoding(file.path, "its footer cannot be read"):
        body: dict[str, Any] = parse_json(data[:-TRAILER])
        SNAPSHOT_FILE.check(body["format_version"], file.path)
        footer = _CONVERTER.structure(body, Footer)
    lengths = [entry.length for entry in footer.segments]
    if min(lengths, default=1) <= 0 or sum(lengths) != file.size - file.footer:
        raise CorruptSnapshotError(file.path, "its segments do not fill the file")
    return footer


def _read_segment(
    read: Callable[[int, int], bytes],
    file: SnapshotFile,
    entry: Entry,
    offset: int,
    layout: KeyLayout,
    limits: RestoreConfig,
) -> pa.RecordBatch:
    """Return the rows of the segment at `offset`, after checks.

    Raises:
        CorruptSnapshotError: the digest, the number of rows or their key groups differ from the
            footer's `entry`.
    """
    data = read(offset, entry.length)
    if hashlib.sha256(data).hexdigest() != entry.digest:
        raise CorruptSnapshotError(file.path, f"the digest of the bytes at {offset} is wrong")
    batch = unpack(
        file.path, data, entry.stream_bytes, limits.max_unpacked_bytes, entry.compression
    )
    if batch.num_rows != entry.rows or batch.column(0).null_count or not entry.rows:
        raise CorruptSnapshotError(file.path, f"unexpected columns or rows at {offset}")
    keys = batch.column(1)
    if keys.null_count or pc.min(pc.binary_length(keys)).as_py() < layout.group_bytes:
        raise CorruptSnapshotError(file.path, f"a row at {offset} has no key")
    # Readers choose segments by the key groups in the footer, so these key groups must be right.
    extent = pc.min_max(keys)
    first, last = (layout.group_of(extent[end].as_py()) for end in ("min", "max"))
    if (first, last) != (entry.first_group, entry.last_group):
        reason = f"the rows at {offset} are not of the key groups that the footer says"
        raise CorruptSnapshotError(file.path, reason)
    return batch


def _split_by_state(batch: pa.RecordBatch) -> Iterator[tuple[int, Changes]]:
    """Divide the rows of a segment into runs of consecutive rows of one state.

    Yield each run with the number of its state. A run has at most 65,536 rows.
    """
    for at in range(0, batch.num_rows, _SLICE):
        part = batch.slice(at, _SLICE)
        keys, values = part.column(1).to_pylist(), part.column(2).to_pylist()
        runs = pc.run_end_encode(part.column(0))
        start = 0
        for index, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield index, Changes(keys[start:end], values[start:end])
            start = end
