"""Upper bounds of the memory that Arrow needs for a Parquet file, from the file's page headers.

Arrow unpacks as many bytes as a page's header says, without a limit. It ignores the sizes in the
file's footer. For example, a file of 13 kB whose footer claims 100 bytes may unpack to 400 MB.
Dictionaries and lists multiply the memory, because a few bits of the file stand for a whole entry
of the dictionary, or for a null in the list.
This module therefore computes an upper bound of the memory that a number of consecutive rows can
need. A reader reads at once as many rows as its memory budget allows.

Page headers and the footer are structs in Thrift's compact protocol. They are read here because
pyarrow does not show page headers, and because its access to a column's metadata ends the process
if statistics do not fit the schema.
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
"""Memory for a null, a number or a list element, in Arrow and as a Python object, in bytes."""
_NESTED_FACTOR = 4
"""Allowed memory for lists, as a multiple of the file's size, as numbers become Python objects."""
_SMALL = 16 << 20

# Numbers of Parquet's definition in Thrift.
_ROW_GROUPS, _COLUMNS, _NUM_ROWS, _COLUMN_META = 4, 1, 3, 3
_CODEC, _COMPRESSED_SIZE, _DATA_OFFSET, _DICTIONARY_OFFSET = 4, 7, 9, 11
_PAGE_TYPE, _UNPACKED_SIZE, _STORED_SIZE = 1, 2, 3
_DATA_HEADER, _DICTIONARY_HEADER, _DATA_HEADER_2 = 5, 7, 8
_INDEX_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_2 = 1, 2, 3
_DELTA_BYTE_ARRAY = 7
_CODECS = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


@attrs.frozen
class _Chunk:
    """The data pages of one column in one row group.

    Attributes:
        pages: for each page, the number of values and the number of unpacked bytes.
        entry: the maximum size of one value in bytes. It follows from the longest entry of the
            dictionary, or from the fixed width of the type.
        nested: whether a row may have several values.
    """

    pages: Sequence[tuple[int, int]]
    entry: int
    nested: bool

    def need(self, rows: int) -> int:
        """Return the maximum number of bytes to which `rows` consecutive rows may unpack."""
        if self.nested:
            values = sum(count for count, _ in self.pages)
            return sum(size for _, size in self.pages) + values * (self.entry + _PER_VALUE)
        # Slide a window of pages over the column: `worst` is the maximum size of the pages that
        # `rows` consecutive rows touch.
        worst = size = values = first = 0
        for count, unpacked in self.pages:
            size += unpacked
            worst = max(worst, size)
            values += count
            while values > rows and first < len(self.pages) - 1:
                values -= self.pages[first][0]
                size -= self.pages[first][1]
                first += 1
        return worst + rows * (self.entry + _PER_VALUE)


class PageHeaders:
    """The page headers of one Parquet file.

    Args:
        path: the file, for errors.
        data: the bytes of the file.
        schema: the columns, which Arrow has read from the footer of this file.

    Raises:
        ValueError, LookupError: the footer contradicts itself or the rest of the file.
    """

    def __init__(self, path: str, data: bytes, schema: pq.ParquetSchema) -> None:
        self._path = path
        self._data = memoryview(data)
        self._leaves = [schema.column(at) for at in range(len(schema))]
        length = int.from_bytes(data[-8:-4], "little")
        footer = _Thrift(self._data[:-8], len(data) - 8 - length).read_struct()
        self._row_groups = footer.get(_ROW_GROUPS, [])

    def rows_at_once(self, group: int, names: set[str], budget: int) -> int:
        """Return the number of rows of a row group that may be read at once.

        Args:
            group: the number of the row group.
            names: the columns to read.
            budget: the number of bytes by which unpacked rows may exceed the size of the file.

        Raises:
            CorruptSnapshotError: the headers contradict each other, or a single row may exceed the
                budget.
        """
        row_group = self._row_groups[group]
        count = self._count(row_group[_NUM_ROWS])
        chunks = [
            self._chunk(column[_COLUMN_META], leaf, count)
            for leaf, column in zip(self._leaves, row_group[_COLUMNS], strict=True)
            if leaf.path.partition(".")[0] in names
        ]
        nested = sum(chunk.need(1) for chunk in chunks if chunk.nested)
        if nested > budget + _NESTED_FACTOR * len(self._data):
            raise self._too_much(nested)
        rows, flat = min(_MAX_BATCH, max(count, 1)), [each for each in chunks if not each.nested]
        while (need := sum(chunk.need(rows) for chunk in flat)) > budget + len(self._data):
            if rows == 1:
                raise self._too_much(need)
            rows //= 2
        return rows

    def _chunk(self, column: dict[int, Any], leaf: Any, rows: int) -> _Chunk:
        """Read the page headers of one column in one row group.

        Args:
            column: the column's metadata in the footer.
            leaf: the column in Arrow's schema.
            rows: the number of rows in the row group.
        """
        pages: list[tuple[int, int]] = []
        width, entry = max(int(leaf.length), 0), 0
        for header, body in self._pages(column):
            kind, unpacked = header.get(_PAGE_TYPE), self._count(header.get(_UNPACKED_SIZE))
            if kind == _DICTIONARY_PAGE:
                entries = self._count(header[_DICTIONARY_HEADER][1])
                entry = max(entry, self._longest_entry(unpacked, entries, body, column, leaf))
            elif kind != _INDEX_PAGE:
                inner = header[_DATA_HEADER_2 if kind == _DATA_PAGE_2 else _DATA_HEADER]
                if inner.get(4 if kind == _DATA_PAGE_2 else 2) == _DELTA_BYTE_ARRAY:
                    reason = "its texts are delta-encoded; write them plain"
                    raise CorruptSnapshotError(self._path, reason)
                pages.append((self._count(inner.get(1)), unpacked))
        nested = leaf.max_repetition_level > 0
        if not nested and sum(count for count, _ in pages) != rows:
            reason = "its pages do not hold the rows that its footer says"
            raise CorruptSnapshotError(self._path, reason)
        return _Chunk(pages, entry + width, nested)

    def _longest_entry(
        self, unpacked: int, entries: int, body: memoryview, column: dict[int, Any], leaf: Any
    ) -> int:
        """Return an upper bound of the size of one entry in a dictionary page, in bytes.

        If unpacking the page needs little memory, it is unpacked to measure its strings.

        Args:
            unpacked: the unpacked size of the page.
            entries: the number of entries.
            body: the stored bytes of the page.
            column: the column's metadata in the footer.
            leaf: the column in Arrow's schema.
        """
        if leaf.physical_type != "BYTE_ARRAY":
            return unpacked // max(entries, 1)
        codec = _CODECS.get(column[_CODEC])
        if unpacked * _MAX_BATCH <= _SMALL or unpacked > len(body) + _SMALL or codec is None:
            return unpacked
        plain = bytes(body)
        if codec:
            plain = pa.decompress(plain, decompressed_size=unpacked, codec=codec, asbytes=True)
        longest = at = 0
        while at + 4 <= len(plain):
            (length,) = struct.unpack_from("<I", plain, at)
            longest = max(longest, length)
            at += 4 + length
        return min(longest, unpacked)

    def _pages(self, column: dict[int, Any]) -> Iterator[tuple[dict[int, Any], memoryview]]:
        """Yield the header and the stored bytes of each page of a column in one row group."""
        starts = (column.get(_DATA_OFFSET), column.get(_DICTIONARY_OFFSET))
        at = min(start for start in starts if start)
        end = at + column[_COMPRESSED_SIZE]
        if not 0 < at <= end <= len(self._data):
            raise CorruptSnapshotError(self._path, "a column is outside of the file")
        while at < end:
            reader = _Thrift(self._data[:end], at)
            header = reader.read_struct()
            size = self._count(header.get(_STORED_SIZE))
            if reader.at + size > end:
                raise CorruptSnapshotError(self._path, "a page is outside of its column")
            at = reader.at + size
            yield header, self._data[reader.at : at]

    def _count(self, number: Any) -> int:
        """Return `number`; raise CorruptSnapshotError if it is not an integer of at least 0."""
        if not isinstance(number, int) or number < 0:
            raise CorruptSnapshotError(self._path, "the header of a page contradicts itself")
        return number

    def _too_much(self, need: int) -> CorruptSnapshotError:
        reason = f"it may unpack to {need:,} bytes at once"
        return CorruptSnapshotError(self._path, f"{reason}; restore.max-unpacked-bytes allows more")


class _Thrift:
    """A reader of structs in Thrift's compact protocol, as dictionaries by field id."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self.at = at

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the struct at the current position.

        A field with a float or a string has the value None, because no caller needs it. `depth` is
        the number of enclosing structs.
        """
        if depth > 8:  # noqa: PLR2004 - Parquet's structs nest six deep
            raise ValueError("a page's header is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind, delta = head & 15, head >> 4
            number = number + delta if delta else self._zigzag()
            fields[number] = self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        """Return the value at the current position; `kind` is Thrift's number of its type."""
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._zigzag()
            case 7:
                self.at += 8
            case 8:
                length = self._varint()
                self.at += length
            case 9:
                return self._list(depth)
            case 12:
                return self.read_struct(depth + 1)
            case _:
                raise ValueError("a page's header is not one of Parquet's")
        return None

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        kind, size = head & 15, head >> 4
        if size == 15:  # noqa: PLR2004 - the mark of a size that follows
            size = self._varint()
        if size > len(self._data) - self.at:
            raise ValueError("a list in a footer is longer than the file")
        return [self._value(3 if kind in (1, 2) else kind, depth) for _ in range(size)]

    def _byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def _varint(self) -> int:
        """Return the unsigned integer at the current position, stored with 7 bits per byte."""
        value = shift = 0
        while shift <= 63:  # noqa: PLR2004 - bits
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:  # noqa: PLR2004 - the last byte
                return value
            shift += 7
        raise ValueError("a number in a page's header is beyond 64 bits")

    def _zigzag(self) -> int:
        """Return the signed integer at the current position, stored in zigzag form."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
