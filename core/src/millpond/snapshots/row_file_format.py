"""The file format of portable snapshots.

A base or a delta is a row of segments, a footer and a trailer. A segment is a complete Arrow IPC
stream, compressed as one block, of the columns ``state`` (index into the footer's list),
``key`` (the physical key, which begins with the key group) and ``value`` (null: removed). The
footer is JSON and says of each segment where it lies, its size when unpacked, its SHA-256 and the
key groups it spans, so that a part of a file can be read and checked by itself, and nothing is
unpacked beyond what was announced. The trailer is the footer's length and a magic word.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, repeat

import attrs

from millpond.backend.changes import Change, Changes
from millpond.backend.key_layout import KeyLayout
from millpond.errors import SnapshotTooLargeError
from millpond.format_versions import SNAPSHOT_FILE
from millpond.snapshots.bundle import Bundle
from millpond.snapshots.handles import SnapshotFile
from millpond.snapshots.segments import Packing, pack

__all__ = [
    "TRAILER",
    "Entry",
    "Footer",
    "RowFileWriter",
    "Segment",
    "SegmentBuilder",
    "write_segments",
]

MAGIC = b"MILLPOND"
TRAILER = 4 + len(MAGIC)
_SEGMENT_BYTES = 1 << 20


@attrs.frozen
class Segment:
    """An encoded segment, not yet placed in a file."""

    data: bytes
    rows: int
    stream_bytes: int
    first_group: int
    last_group: int
    digest: str
    compression: str = "lz4"


class SegmentBuilder:
    """Collects rows and cuts them into segments of about a megabyte, which it hands on."""

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
        """Add rows of a state."""
        if state not in self.states:
            self.states.append(state)
        index = self.states.index(state)
        rows = Changes.of(rows)
        size = rows.size
        self._bytes[state] = self._bytes.get(state, 0) + size
        if self._raw_bytes + size < _SEGMENT_BYTES:
            # Without looking for where to cut it is half the time.
            self._place(index, rows, size)
            return
        ends = list(accumulate((len(key) + len(value or b"") for key, value in rows), initial=0))
        start = 0
        while start < len(rows):
            # One row at least, and as many as fill the segment.
            full = ends[start] + _SEGMENT_BYTES - self._raw_bytes
            end = min(bisect_left(ends, full, start + 1), len(rows))
            self._place(index, rows[start:end], ends[end] - ends[start])
            if self._raw_bytes >= _SEGMENT_BYTES:
                self.cut()
            start = end

    def _place(self, index: int, rows: Changes, size: int) -> None:
        """Add rows of so many bytes to the current segment."""
        self._indexes += repeat(index, len(rows))
        self._keys += rows.keys
        self._values += rows.values
        self._raw_bytes += size

    def largest(self) -> str:
        """The state with the most bytes so far; empty where there is none."""
        return max(self._bytes, key=lambda state: self._bytes[state], default="")

    def cut(self) -> None:
        """End the current segment, if it has rows."""
        if not self._keys:
            return
        columns = self._indexes, self._keys, self._values
        data, stream_bytes, compression = pack(*columns, self._packing)
        segment = Segment(
            data=data,
            rows=len(self._keys),
            stream_bytes=stream_bytes,
            first_group=self._layout.group_of(min(self._keys)),
            last_group=self._layout.group_of(max(self._keys)),
            digest=hashlib.sha256(data).hexdigest(),
            compression=compression,
        )
        self._clear()
        self._emit(segment)


@attrs.frozen
class Entry:
    """What the footer says of a segment."""

    rows: int
    stream_bytes: int
    first_group: int
    last_group: int
    digest: str
    offset: int
    length: int
    compression: str


@attrs.frozen
class Footer:
    """What stands behind the segments."""

    format_version: int
    states: list[str]
    segments: list[Entry]


class RowFileWriter:
    """Writes the rows of one base or delta, segment by segment, as a part of a bundle."""

    def __init__(self, bundle: Bundle, layout: KeyLayout, packing: Packing = Packing()) -> None:
        self._bundle = bundle
        self._start = bundle.position
        self._entries: list[Entry] = []
        self._offset = 0
        self.builder = SegmentBuilder(layout, self.place, packing)

    def place(self, segment: Segment) -> None:
        """Append a segment."""
        fields = attrs.asdict(segment, filter=attrs.filters.exclude("data"))
        self._entries.append(Entry(**fields, offset=self._offset, length=len(segment.data)))
        self._write(segment.data)
        self._offset += len(segment.data)

    def _write(self, data: bytes) -> None:
        try:
            self._bundle.write(data)
        except SnapshotTooLargeError as error:
            raise attrs.evolve(error, state=self.builder.largest()) from None

    def finish(self, kind: str, version: str, states: Sequence[str] | None = None) -> SnapshotFile:
        """Write the footer and describe the part."""
        self.builder.cut()
        names = list(self.builder.states if states is None else states)
        body = attrs.asdict(Footer(SNAPSHOT_FILE.version, names, self._entries))
        text = json.dumps(body, separators=(",", ":")).encode()
        footer = text + len(text).to_bytes(4, "big") + MAGIC
        self._write(footer)
        return SnapshotFile(
            path=self._bundle.path,
            size=self._offset + len(footer),
            footer=len(footer),
            digest=hashlib.sha256(footer).hexdigest(),
            kind=kind,
            version=version,
            rows=sum(entry.rows for entry in self._entries),
            offset=self._start,
        )


def write_segments(
    bundle: Bundle,
    layout: KeyLayout,
    states: Sequence[str],
    segments: Sequence[Segment],
    version: str,
) -> SnapshotFile:
    """Write encoded segments as a new delta."""
    writer = RowFileWriter(bundle, layout)
    for segment in segments:
        writer.place(segment)
    return writer.finish("delta", version, states)
