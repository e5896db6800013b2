"""How much memory a Parquet file needs, from the headers of its pages, before any is unpacked.

A page's header says what it unpacks to; dictionaries, and lists, make more of it: a dictionary's
entry is repeated by a few bits. So the most that some consecutive rows can need is computed from
the headers, and as many rows are read at once as the budget allows. The layout is Parquet's, the
headers are Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from millpond.errors import CorruptSnapshotError

_MAX_BATCH = 1 << 15
_PER_VALUE = 32
"""What a null, a number or an element of a list takes, as a Python object too."""
_NESTED_FACTOR = 4
"""Elements of lists may need so many times the file's bytes: the objects of eight-byte numbers."""
_DICTIONARY_PAGE, _INDEX_PAGE = 2, 1
_DELTA_BYTE_ARRAY = 7


@attrs.frozen
class _Page:
    """What the header of a data page says: values (or rows) in it, and bytes when unpacked."""

    values: int
    size: int


@attrs.frozen
class _Chunk:
    """The pages of one column in one row group.

    Attributes:
        entry: the most bytes that a dictionary gives for a value.
        nested: whether a row may have many values.
    """

    pages: tuple[_Page, ...]
    entry: int
    nested: bool

    def need(self, rows: int) -> int:
        """The most bytes that so many consecutive rows unpack to."""
        if self.nested:
            size = sum(page.size for page in self.pages)
            return size + self.values * (self.entry + _PER_VALUE)
        return _window(self.pages, rows) + rows * (self.entry + _PER_VALUE)

    @property
    def values(self) -> int:
        """The number of values."""
        return sum(page.values for page in self.pages)


def _window(pages: Sequence[_Page], rows: int) -> int:
    """The most bytes of the pages that so many consecutive rows touch."""
    worst = size = values = first = 0
    for page in pages:
        size += page.size
        worst = max(worst, size)
        values += page.values
        while values > rows and first < len(pages) - 1:
            values -= pages[first].values
            size -= pages[first].size
            first += 1
    return worst


def rows_at_once(
    path: str, data: bytes, metadata: pq.FileMetaData, group: int, names: set[str], budget: int
) -> int:
    """How many rows of a row group may be read at once.

    Args:
        path: the file, for errors.
        data: its bytes.
        metadata: its footer.
        group: the row group.
        names: the columns to read.
        budget: by how many bytes what is unpacked may exceed the file.

    Raises:
        CorruptSnapshotError: the headers contradict each other, or one row exceeds the budget.
    """
    row_group = metadata.row_group(group)
    chunks = [
        _chunk(path, data, row_group.column(at), metadata.schema.column(at), row_group.num_rows)
        for at in range(row_group.num_columns)
        if row_group.column(at).path_in_schema.partition(".")[0] in names
    ]
    nested = sum(chunk.need(1) for chunk in chunks if chunk.nested)
    if nested > budget + _NESTED_FACTOR * len(data):
        raise _too_much(path, nested)
    rows: int = min(_MAX_BATCH, max(row_group.num_rows, 1))
    while (need := sum(chunk.need(rows) for chunk in chunks if not chunk.nested)) > (
        budget + len(data)
    ):
        if rows == 1:
            raise _too_much(path, need)
        rows //= 2
    return rows


def check_statistics(path: str, data: bytes, schema: pq.ParquetSchema) -> None:
    """Refuse statistics of sizes for which Arrow's library ends the process.

    Args:
        path: the file, for errors.
        data: its bytes.
        schema: its columns.

    Raises:
        CorruptSnapshotError: there are such.
        ValueError, LookupError: the footer contradicts itself or the file.
    """
    length = int.from_bytes(data[-8:-4], "little")
    footer = _Thrift(memoryview(data)[-8 - length : -8], 0).read_struct(0)
    columns = [schema.column(at) for at in range(len(schema))]
    for row_group in footer.get(4, []):
        for leaf, column in zip(columns, row_group[1], strict=True):
            if not _fit(column.get(3, {}).get(16, {}), leaf):
                raise CorruptSnapshotError(path, "its statistics of sizes do not fit its columns")


def _fit(sizes: dict[int, Any], leaf: Any) -> bool:
    """Whether there are texts' sizes for texts alone, and a count for each level."""
    levels = {2: leaf.max_repetition_level, 3: leaf.max_definition_level}
    return (leaf.physical_type == "BYTE_ARRAY" or 1 not in sizes) and all(
        len(sizes.get(field) or ()) in (0, level + 1) for field, level in levels.items()
    )


def _too_much(path: str, need: int) -> CorruptSnapshotError:
    reason = f"it may unpack to {need:,} bytes at once"
    return CorruptSnapshotError(path, f"{reason}; restore.max-unpacked-bytes allows more")


def _chunk(path: str, data: bytes, column: Any, leaf: Any, rows: int) -> _Chunk:
    width = max(int(leaf.length), 0)
    pages: list[_Page] = []
    entry = 0
    for header, body in _headers(path, data, column):
        if header.get(1) == _DICTIONARY_PAGE:
            entry = max(entry, _entry_size(header, body, column, leaf))
        elif header.get(1) != _INDEX_PAGE:
            inner = header.get(5) or header.get(8) or {}
            encoding = inner.get(2 if 5 in header else 4)  # noqa: PLR2004 - Parquet's numbers
            if encoding == _DELTA_BYTE_ARRAY:
                raise CorruptSnapshotError(path, "its texts are delta-encoded; write them plain")
            pages.append(_Page(_count(path, inner.get(1)), _count(path, header.get(2))))
    chunk = _Chunk(tuple(pages), entry + width, leaf.max_repetition_level > 0)
    if not chunk.nested and chunk.values != rows:
        raise CorruptSnapshotError(path, "its pages do not hold the rows that its footer says")
    return chunk


def _count(path: str, number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise CorruptSnapshotError(path, "the header of a page contradicts itself")
    return number


def _entry_size(header: dict[int, Any], body: memoryview, column: Any, leaf: Any) -> int:
    """The longest entry of a dictionary."""
    size, count = int(header[2]), int(header[7][1])
    if leaf.physical_type != "BYTE_ARRAY":
        return int(size // max(count, 1))
    if size * _MAX_BATCH <= _SMALL:
        return size
    codec = column.compression.lower()
    plain = bytes(body)
    if codec != "uncompressed":
        if size > len(body) + _SMALL:
            return size
        name = {"lz4": "lz4_raw"}.get(codec, codec)
        plain = pa.decompress(plain, decompressed_size=size, codec=name, asbytes=True)
    longest = at = 0
    while at + 4 <= len(plain):
        (length,) = struct.unpack_from("<I", plain, at)
        longest = max(longest, length)
        at += 4 + length
    return min(longest, size)


_SMALL = 16 << 20


def _headers(path: str, data: bytes, column: Any) -> Iterator[tuple[dict[int, Any], memoryview]]:
    """The headers of all pages of a column's part, and their bytes."""
    starts = [column.data_page_offset, column.dictionary_page_offset]
    at = min(start for start in starts if start)
    end = at + column.total_compressed_size
    if not 0 < at <= end <= len(data):
        raise CorruptSnapshotError(path, "a column lies outside of the file")
    view = memoryview(data)
    while at < end:
        reader = _Thrift(view[:end], at)
        header = reader.read_struct(0)
        size = _count(path, header.get(3))
        if reader.at + size > end:
            raise CorruptSnapshotError(path, "a page lies outside of its column")
        yield header, view[reader.at : reader.at + size]
        at = reader.at + size


class _Thrift:
    """Reads structs of Thrift's compact protocol as dictionaries by field id."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self.at = at

    def read_struct(self, depth: int) -> dict[int, Any]:
        """The fields of a struct; numbers, nested structs and nothing else are kept."""
        if depth > 8:  # noqa: PLR2004 - headers nest three deep
            raise ValueError("a page's header is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind, delta = head & 15, head >> 4
            number = number + delta if delta else self._zigzag()
            fields[number] = self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:  # noqa: PLR2004 - Thrift's numbers of types
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind in (7, 8):  # a double, or bytes after their length
            length = self._varint() if kind == 8 else 8  # noqa: PLR2004
            self.at += length
            return None
        if kind == 9:  # noqa: PLR2004
            return self._list(depth)
        if kind == 12:  # noqa: PLR2004
            return self.read_struct(depth + 1)
        raise ValueError("a page's header is not one of Parquet's")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        kind, size = head & 15, head >> 4
        if size == 15:  # noqa: PLR2004
            size = self._varint()
        if size > len(self._data) - self.at:
            raise ValueError("a list in a footer is longer than the file")
        return [self._value(3 if kind in (1, 2) else kind, depth) for _ in range(size)]

    def _byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:  # noqa: PLR2004
                return value
            if shift > 63:  # noqa: PLR2004
                raise ValueError("a number in a page's header is beyond 64 bits")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
