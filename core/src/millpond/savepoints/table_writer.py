"""Writing a savepoint's Parquet tables by key group; rows may be spooled to a file first."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import attrs
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typing_extensions import override

from millpond.closeable import Closeable
from millpond.config import RestoreConfig
from millpond.errors import SnapshotTooLargeError
from millpond.savepoints.savepoint_file import SavedOperator, SavedState, TableFile, state_folder
from millpond.savepoints.table_reader import exceeded_limit
from millpond.savepoints.table_rows import TableCodec
from millpond.snapshots.handles import SavepointHandle
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.spi.keys import KeyLayout
from millpond.spi.rows import Change, Changes, StateShape, StateView
from millpond.types.scalar import UnfitError

_CHUNK_BYTES = 4 << 20
_Rows = list[tuple[str, list[tuple[bytes, bytes]]]]


@attrs.frozen
class _Chunk:
    offset: int
    size: int


class SpooledRows(Closeable):
    """A temporary file of rows; a context manager.

    Args:
        layout: of the rows' keys.
        directory: the directory of the unnamed file; the system's temporary one by default.
    """

    def __init__(self, layout: KeyLayout, directory: Path | None = None) -> None:
        self._layout = layout
        file: IO[bytes] = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - closed with this
        self._file = file
        self._chunks: dict[int, list[_Chunk]] = {}
        self._held: dict[str, list[Change]] = {}
        self._bytes = 0
        self._group = -1

    def add(self, state: str, rows: list[Change]) -> None:
        """Add rows of a state and of one key group; key groups must not decrease."""
        group = self._layout.group_of(rows[0][0])
        if group != self._group or self._bytes > _CHUNK_BYTES:
            self._write()
            self._group = group
        self._held.setdefault(state, []).extend(rows)
        self._bytes += Changes.from_rows(rows).size

    def _write(self) -> None:
        if not self._held:
            return
        data = memoryview(msgspec.msgpack.encode(list(self._held.items())))
        chunk = _Chunk(self._file.tell(), len(data))
        while data:
            data = data[self._file.write(data) :]
        self._chunks.setdefault(self._group, []).append(chunk)
        self._held, self._bytes = {}, 0

    def rows(self, key_group: int) -> Iterator[tuple[str, Sequence[Change]]]:
        """Yield the rows of a key group: names of states, each with some of its rows."""
        self._write()
        for chunk in self._chunks.get(key_group, ()):
            data = os.pread(self._file.fileno(), chunk.size, chunk.offset)
            yield from msgspec.msgpack.decode(data, type=_Rows)

    @override
    def close(self) -> None:
        self._file.close()


class SpooledView(StateView):
    """A view of spooled rows for a savepoint."""

    def __init__(self, shape: StateShape, spooled: SpooledRows) -> None:
        super().__init__(shape)
        self._spooled = spooled

    @override
    def rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        for name, rows in self._spooled.rows(key_group):
            yield name, list(rows)


_FILE_BYTES = 48 << 20
_MAX_RATIO = 128
_ROW_GROUP = 1 << 16
_GROUP_BYTES = 8 << 20
_MAX_GAIN = 16 << 20


@attrs.define
class TableWriter:
    """Collects the batches of one state and writes a file when there are enough.

    Attributes:
        mark: follows the key groups in the files' names if several tasks write at a time.
    """

    handle: SavepointHandle
    folder: str
    schema: pa.Schema
    mark: str = ""
    files: list[TableFile] = attrs.field(factory=list)
    _batches: list[pa.RecordBatch] = attrs.field(factory=list)
    _bytes: int = 0
    _first: int | None = None
    _last: int = 0

    def add(self, batch: pa.RecordBatch, key_group: int) -> None:
        """Add a batch of rows of one key group; key groups must not decrease."""
        if batch.num_rows > 1 and batch.nbytes > _GROUP_BYTES:
            half = batch.num_rows // 2
            self.add(batch.slice(0, half), key_group)
            self.add(batch.slice(half), key_group)
            return
        if self._bytes + batch.nbytes > _FILE_BYTES:
            self.cut()
        self._first = key_group if self._first is None else self._first
        self._last = key_group
        self._batches.append(batch)
        self._bytes += batch.nbytes

    def cut(self) -> None:
        """Write the collected batches as a file."""
        if self._first is None:
            return
        table = pa.Table.from_batches(self._batches, self.schema)
        name = f"{self.folder}/kg-{self._first:05d}-{self._last:05d}{self.mark}"
        # A large key group takes several files.
        same = sum(file.path.startswith(name) for file in self.files)
        name += f"-{same}.parquet" if same else ".parquet"
        self.files.append(write_table(self.handle, name, table, first=self._first, last=self._last))
        self._batches, self._bytes, self._first = [], 0, None


def write_table(
    handle: SavepointHandle, name: str, table: pa.Table, *, first: int, last: int
) -> TableFile:
    """Write one Parquet file, sorted by key group, and return its description."""
    data = _readable(handle.path(name), table, handle.limits)
    handle.storage.write(handle.path(name), [data])
    digest = hashlib.sha256(data).hexdigest()
    return TableFile(name, len(data), digest, table.num_rows, first, last)


def _readable(path: str, table: pa.Table, limits: RestoreConfig) -> bytes:
    """Return a table as a Parquet file that a restore accepts; try four encodings in turn.

    Readers cannot distinguish strongly compressed data from a file made to exhaust memory, and
    large row groups of lists need more memory than small ones.

    Raises:
        SnapshotTooLargeError: a restore would refuse each of them.
    """
    most, room = min(_GROUP_BYTES, limits.max_unpacked_bytes), _FILE_BYTES
    found = ""
    for compression, group_bytes in (
        ("zstd", most),
        ("none", most),
        ("none", most >> 6),
        ("none", 1),
    ):
        pieces = list(_row_groups(table, group_bytes))
        data = _parquet(table.schema, pieces, compression)
        giant = any(piece.nbytes > _MAX_GAIN for piece in pieces)
        if compression != "none" and (giant or table.nbytes > room + _MAX_RATIO * len(data)):
            continue
        exceeded = exceeded_limit(path, data, table.nbytes, limits)
        if not exceeded:
            return data
        found = found or exceeded
    allowed = {"max-file-bytes": limits.max_file_bytes}.get(found, limits.max_unpacked_bytes)
    raise SnapshotTooLargeError(path, allowed, cure=f"raise restore.{found}")


def _parquet(schema: pa.Schema, pieces: Sequence[pa.Table], compression: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression=compression, use_dictionary=False) as writer:
        for piece in pieces:
            writer.write_table(piece)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _row_groups(table: pa.Table, most: int = _GROUP_BYTES) -> Iterator[pa.Table]:
    """Yield groups of consecutive rows within the memory limit; a larger row is a group alone."""
    waiting = [table]
    while waiting:
        rows = waiting.pop()
        if rows.num_rows > _ROW_GROUP or (rows.num_rows > 1 and _unpacked(rows) > most):
            half = min((rows.num_rows + 1) // 2, _ROW_GROUP)
            waiting += [rows.slice(half), rows.slice(0, half)]
        else:
            yield rows


def _unpacked(table: pa.Table) -> int:
    lists = [column for column in table.columns if pa.types.is_list(column.type)]
    return int(table.nbytes) + sum(32 * len(pc.list_flatten(column)) for column in lists)


def save_operator(
    view: StateView,
    handle: SavepointHandle,
    uid: str,
    task: SnapshotTask,
    exact: frozenset[str] = frozenset(),
    mark: str = "",
) -> SavedOperator:
    """Write the tables of all states of a view.

    Args:
        view: the states.
        handle: the savepoint.
        uid: the operator.
        task: may be cancelled.
        exact: states to write in the exact form. Another state is written again in this form if
            a value does not fit its natural column types.
        mark: the ending of the files' names.
    """
    while True:
        try:
            states = tuple(_save_states(view, handle, uid, exact, task, mark))
            break
        except _UnfitStateError as error:
            exact |= {error.state}
    return SavedOperator(uid, view.max_parallelism, view.key_group_range, view.key, states)


@attrs.define(eq=False, slots=False)
class _UnfitStateError(Exception):
    state: str


def _save_states(
    view: StateView,
    handle: SavepointHandle,
    uid: str,
    exact: frozenset[str],
    task: SnapshotTask,
    mark: str,
) -> Iterator[SavedState]:
    codecs = {
        meta.name: TableCodec(view.key, meta, view.max_parallelism, exact=meta.name in exact)
        for meta in view.metas
    }
    writers = {
        name: TableWriter(handle, state_folder(uid, name), codec.schema, mark)
        for name, codec in codecs.items()
    }
    for group in view.key_group_range:
        for name, rows in view.live_rows(group):
            task.check()
            for start in range(0, len(rows), _ROW_GROUP):
                try:
                    batch = codecs[name].to_batch(rows[start : start + _ROW_GROUP])
                except (UnfitError, pa.ArrowInvalid) as error:
                    raise _UnfitStateError(name) from error
                writers[name].add(batch, group)
    for meta in view.metas:
        writers[meta.name].cut()
        yield SavedState(meta, tuple(writers[meta.name].files), meta.name in exact)
