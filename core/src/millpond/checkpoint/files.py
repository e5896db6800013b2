"""The file format of portable snapshots.

A file is a row of segments, a footer and a trailer. A segment is a complete Arrow IPC stream
(LZ4) of the columns ``state`` (index into the footer's list), ``key`` (the physical key, which
begins with the key group) and ``value`` (null: removed). The footer is JSON and says of each
segment where it lies, its SHA-256 and the key groups it spans, so that a part of a file can be
read and checked by itself. The trailer is the footer's length and a magic word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa

from millpond.backend.keyed import Change
from millpond.checkpoint.handles import FORMAT_VERSION, SnapshotFile, check_format
from millpond.checkpoint.storage import CheckpointStorage
from millpond.errors import CorruptSnapshotError
from millpond.keygroups import KeyGroupRange

__all__ = ["Segment", "SegmentBuilder", "read_rows", "write_file"]

MAGIC = b"MILLPOND"
_TRAILER = 4 + len(MAGIC)
_SEGMENT_BYTES = 8 << 20
_SLICE = 1024
_SCHEMA = pa.schema([("state", pa.uint16()), ("key", pa.binary()), ("value", pa.binary())])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_MAX_RATIO = 256  # LZ4 cannot do better, so a larger claim is a lie


@attrs.frozen
class Segment:
    """An encoded segment, not yet placed in a file."""

    data: bytes
    rows: int
    raw_bytes: int
    first_group: int
    last_group: int
    digest: str


class SegmentBuilder:
    """Collects rows and cuts them into segments of some megabytes."""

    def __init__(self, prefix_bytes: int) -> None:
        self._prefix_bytes = prefix_bytes
        self.states: list[str] = []
        self.segments: list[Segment] = []
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
        for start in range(0, len(rows), _SLICE):
            keys, values = zip(*rows[start : start + _SLICE], strict=True)
            self._indexes += [index] * len(keys)
            self._keys += keys
            self._values += values
            self._raw_bytes += sum(map(len, keys)) + sum(map(len, filter(None, values)))
            if self._raw_bytes > _SEGMENT_BYTES:
                self.cut()

    def cut(self) -> None:
        """End the current segment, if it has rows."""
        if not self._keys:
            return
        columns = [
            pa.array(self._indexes, pa.uint16()),
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
        ]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA, options=_OPTIONS) as writer:
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        data = sink.getvalue().to_pybytes()
        size = self._prefix_bytes
        first, last = min(self._keys)[:size], max(self._keys)[:size]
        self.segments.append(
            Segment(
                data,
                len(self._keys),
                self._raw_bytes,
                int.from_bytes(first, "big"),
                int.from_bytes(last, "big"),
                hashlib.sha256(data).hexdigest(),
            )
        )
        self._clear()


def write_file(
    storage: CheckpointStorage,
    path: str,
    states: Sequence[str],
    segments: Sequence[Segment],
    kind: str,
    version: str,
) -> SnapshotFile:
    """Write segments as a new file and describe it."""
    entries, offset = [], 0
    for segment in segments:
        entry = attrs.asdict(segment, filter=attrs.filters.exclude("data"))
        entries.append({**entry, "offset": offset, "length": len(segment.data)})
        offset += len(segment.data)
    body = {"format_version": FORMAT_VERSION, "states": list(states), "segments": entries}
    text = json.dumps(body, separators=(",", ":")).encode()
    footer = text + len(text).to_bytes(4, "big") + MAGIC
    storage.write(path, [*(segment.data for segment in segments), footer])
    return SnapshotFile(
        path=path,
        size=offset + len(footer),
        footer=len(footer),
        digest=hashlib.sha256(footer).hexdigest(),
        kind=kind,
        version=version,
        rows=sum(segment.rows for segment in segments),
    )


def read_rows(
    storage: CheckpointStorage, file: SnapshotFile, groups: KeyGroupRange, prefix_bytes: int
) -> Iterator[tuple[str, list[Change]]]:
    """The rows of some key groups, checked, in the order they were written.

    Yields:
        A state's name and consecutive rows of it.

    Raises:
        CorruptSnapshotError: the file is damaged, missing or foreign.
        ApiVersionError: it was written by a newer Millpond.
    """
    footer = _read_footer(storage, file)
    states = footer["states"]
    low = groups.start.to_bytes(prefix_bytes, "big")
    high = (groups.end + 1).to_bytes(prefix_bytes + 1, "big")
    for entry in footer["segments"]:
        if entry["last_group"] < groups.start or entry["first_group"] > groups.end:
            continue
        whole = groups.start <= entry["first_group"] and entry["last_group"] <= groups.end
        for index, rows in _split_by_state(_read_segment(storage, file, entry)):
            inside = (
                rows if whole else [row for row in rows if low <= row[0] and b"\0" + row[0] < high]
            )
            yield states[index], inside


def _read_footer(storage: CheckpointStorage, file: SnapshotFile) -> dict[str, Any]:
    if not _TRAILER < file.footer <= file.size:
        raise CorruptSnapshotError(file.path, "its sizes make no sense")
    data = storage.read(file.path, file.size - file.footer, file.footer)
    if hashlib.sha256(data).hexdigest() != file.digest:
        raise CorruptSnapshotError(file.path, "the digest of its footer is wrong")
    footer: dict[str, Any] = json.loads(data[:-_TRAILER])
    check_format(f"The file {file.path}", footer["format_version"])
    return footer


def _read_segment(
    storage: CheckpointStorage, file: SnapshotFile, entry: dict[str, Any]
) -> pa.RecordBatch:
    offset, length = entry["offset"], entry["length"]
    if not (offset >= 0 and 0 < length <= file.size - file.footer - offset):
        raise CorruptSnapshotError(file.path, "a segment lies outside of the file")
    if entry["raw_bytes"] > length * _MAX_RATIO:
        raise CorruptSnapshotError(file.path, "a segment claims to unpack to an absurd size")
    data = storage.read(file.path, offset, length)
    if hashlib.sha256(data).hexdigest() != entry["digest"]:
        raise CorruptSnapshotError(file.path, f"the digest of the bytes at {offset} is wrong")
    try:
        with pa.ipc.open_stream(data) as reader:
            batch = reader.read_next_batch()
    except pa.ArrowException as error:
        raise CorruptSnapshotError(file.path, f"no Arrow stream at {offset}: {error}") from error
    if batch.schema != _SCHEMA or batch.num_rows != entry["rows"]:
        raise CorruptSnapshotError(file.path, f"unexpected columns or rows at {offset}")
    return batch


def _split_by_state(batch: pa.RecordBatch) -> Iterator[tuple[int, list[Change]]]:
    indexes = batch.column(0).to_pylist()
    keys, values = batch.column(1).to_pylist(), batch.column(2).to_pylist()
    start = 0
    while start < len(indexes):
        end = start
        while end < len(indexes) and indexes[end] == indexes[start]:
            end += 1
        yield indexes[start], list(zip(keys[start:end], values[start:end], strict=True))
        start = end
