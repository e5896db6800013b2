"""The Parquet files of a savepoint: reading them within memory limits, and writing them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
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
from millpond.errors import CorruptSnapshotError, SnapshotTooLargeError
from millpond.keygroups import KeyGroupRange
from millpond.safe_decoding import decoding
from millpond.savepoints.page_headers import PageHeaders
from millpond.savepoints.savepoint_file import (
    METADATA_FILE,
    SavedOperator,
    SavedState,
    TableFile,
    state_folder,
)
from millpond.savepoints.state_tables import TableCodec
from millpond.snapshots.handles import SavepointHandle
from millpond.snapshots.progress import ProgressLog
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.spi.portable_rows import Change, Changes, StateShape, StateView
from millpond.types.scalar_base import UnfitError

_FOREIGN = "it is not a table of this state"
_EDITED = "; if you have edited it on purpose, call mp.seal_savepoint on the savepoint"
_MAX_RATIO = 256
"""Allowed unpacked bytes per stored byte, in addition to twice ``restore.max-unpacked-bytes``."""
_ROW_GROUP = 1 << 16
_GROUP_BYTES = 8 << 20
_FILE_BYTES = 48 << 20
_CHUNK_BYTES = 4 << 20


def read_state(
    handle: SavepointHandle, operator: SavedOperator, state: SavedState, groups: KeyGroupRange
) -> Iterator[Changes]:
    """Yield the stored rows of a keyed state whose key groups are in `groups`.

    Args:
        handle: the savepoint.
        operator: the record of the operator in the savepoint's metadata.
        state: the record of the state in the savepoint's metadata.
        groups: the key groups to read.

    Raises:
        CorruptSnapshotError: a file is damaged, missing, or holds other columns or values.
    """
    codec = state_codec(handle, operator, state)
    for file in state.files:
        if file.last_group < groups.start or file.first_group > groups.end:
            continue
        path = handle.path(file.path)
        data = table_bytes(handle, file.path, file)
        for batch in read_table(path, data, codec.schema, handle.limits):
            column = batch.column("key_group")
            extent = pc.min_max(column).as_py()
            first, last = file.first_group, file.last_group
            if column.null_count or extent["min"] < first or extent["max"] > last:
                reason = f"it holds others than the key groups {first} to {last}"
                raise CorruptSnapshotError(path, reason)
            is_wanted = pc.and_(
                pc.greater_equal(column, groups.start), pc.less_equal(column, groups.end)
            )
            wanted = batch.filter(is_wanted)
            rows = codec.from_batch(wanted, path)
            if codec.groups(rows) != wanted.column("key_group").to_pylist():
                reason = "a row's key_group is not its key's; see mp.seal_savepoint"
                raise CorruptSnapshotError(path, reason)
            if rows:
                yield rows


def state_codec(handle: SavepointHandle, operator: SavedOperator, state: SavedState) -> TableCodec:
    """Return the codec of a state's table.

    Raises:
        CorruptSnapshotError: the savepoint describes a type that cannot be read.
    """
    with decoding(handle.path(METADATA_FILE), f"the types of state {state.meta.name!r}"):
        return TableCodec(operator.key, state.meta, operator.max_parallelism, exact=state.exact)


def table_bytes(handle: SavepointHandle, name: str, file: TableFile | None = None) -> bytes:
    """Return the bytes of a table's file.

    Args:
        handle: the savepoint.
        name: the file, relative to the savepoint.
        file: the description with the expected size and digest. If it is None, the file is not
            checked, so that an edited file can be read.

    Raises:
        CorruptSnapshotError: the file is missing, too large, or not as described.
    """
    path = handle.path(name)
    size = handle.storage.size(path) if file is None else file.size
    if size > handle.limits.max_file_bytes:
        reason = f"its {size:,} bytes are more than restore.max-file-bytes allows"
        raise CorruptSnapshotError(path, reason)
    if file is not None and handle.storage.size(path) != size:
        raise CorruptSnapshotError(path, f"its size is not {size:,} bytes{_EDITED}")
    data = handle.storage.read(path, 0, size)
    if file is not None and hashlib.sha256(data).hexdigest() != file.digest:
        raise CorruptSnapshotError(path, f"its digest is wrong{_EDITED}")
    return data


def read_table(
    path: str, data: bytes, schema: pa.Schema, limits: RestoreConfig = RestoreConfig()
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a Parquet file, with the columns and types of `schema`.

    Other programs may have changed the types. For example, pandas converts a column of integers
    with nulls to floats. Values are cast to the type in `schema` if this does not change them.

    Args:
        path: the file, for errors.
        data: the bytes of the file.
        schema: the columns to read, with their types.
        limits: the limits for the memory that unpacked rows need. They also determine how many rows
            are read at once.

    Raises:
        CorruptSnapshotError: the file is not Parquet, a column is missing, a value cannot be cast,
            or the rows need too much memory.
    """
    with decoding(path, _FOREIGN):
        file = _open_table(data)
        names = file.schema_arrow.names
        missing = [name for name in schema.names if name not in names]
        if missing:
            raise CorruptSnapshotError(path, f"the columns {', '.join(missing)} are missing")
        if len(set(names)) < len(names):
            raise CorruptSnapshotError(path, "it has two columns of one name")
        headers = PageHeaders(path, data, file.schema)
    room = _most_unpacked(len(data), limits)
    for group in range(file.num_row_groups):
        with decoding(path, _FOREIGN):
            rows = headers.rows_at_once(group, set(schema.names), limits.max_unpacked_bytes)
            batches = file.iter_batches(rows, row_groups=[group], columns=schema.names)
        while True:
            with decoding(path, _FOREIGN):
                found = next(batches, None)
                if found is None:
                    break
                arrays = [found.column(field.name).cast(field.type) for field in schema]
                batch = pa.record_batch(arrays, schema=schema)
                batch.validate(full=True)
            room -= batch.nbytes
            if room < 0:
                reason = f"its {len(data):,} bytes unpack to too many"
                raise CorruptSnapshotError(
                    path, f"{reason}; restore.max-unpacked-bytes allows more"
                )
            yield batch


def _most_unpacked(size: int, limits: RestoreConfig) -> int:
    """Return the maximum number of bytes to which a file of `size` bytes may unpack in total."""
    return 2 * limits.max_unpacked_bytes + _MAX_RATIO * size


def _open_table(data: bytes) -> pq.ParquetFile:
    """Open a Parquet file with limits on its footer."""
    # Thrift reserves memory for all elements that a list in the footer claims to have. A list
    # cannot have more elements than fit into the file.
    elements = max(1000, len(data) // 16)
    return pq.ParquetFile(
        pa.BufferReader(data),
        pre_buffer=False,
        thrift_string_size_limit=max(len(data), 1),
        thrift_container_size_limit=elements,
    )


class SpooledRows(Closeable):
    """A temporary file that collects rows and returns them by key group; a context manager.

    `SavepointWriter` and bootstrapping on Spark write savepoints from such a file.

    Args:
        directory: the directory of the temporary file; by default the system's.
    """

    def __init__(self, directory: Path | None = None) -> None:
        file: IO[bytes] = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - closed with this
        self._file = file
        self._chunks: dict[int, list[tuple[int, int]]] = {}  # offsets and sizes by key group
        self._held: dict[tuple[int, str], Changes] = {}
        self._bytes = 0

    def add(self, state: str, key_group: int, rows: Changes) -> None:
        """Add rows of a state that are all in one key group."""
        held = self._held.setdefault((key_group, state), Changes([], []))
        held.keys += rows.keys
        held.values += rows.values
        self._bytes += rows.size
        if self._bytes > _CHUNK_BYTES:
            self._write()

    def _write(self) -> None:
        """Write the rows that are still in memory, as a chunk for each state and key group."""
        for (key_group, state), rows in self._held.items():
            data = memoryview(msgspec.msgpack.encode((state, rows.keys, rows.values)))
            self._chunks.setdefault(key_group, []).append((self._file.tell(), len(data)))
            while data:
                data = data[self._file.write(data) :]
        self._held, self._bytes = {}, 0

    def rows(self, key_group: int) -> Iterator[tuple[str, Changes]]:
        """Yield the rows of a key group in pairs: the name of a state, and some rows of the state.

        Several pairs may have the same state.
        """
        self._write()
        kind = tuple[str, list[bytes], list[bytes | None]]
        for offset, size in self._chunks.get(key_group, ()):
            data = os.pread(self._file.fileno(), size, offset)
            state, keys, values = msgspec.msgpack.decode(data, type=kind)
            yield state, Changes(keys, values)

    @override
    def close(self) -> None:
        self._file.close()


class RowsView(StateView):
    """A view of rows in memory or in a temporary file, from which a savepoint can be written.

    Args:
        shape: the states, the key type and the key groups.
        rows: a function that returns the rows of a key group.
    """

    def __init__(
        self, shape: StateShape, rows: Callable[[int], Iterator[tuple[str, Sequence[Change]]]]
    ) -> None:
        super().__init__(shape)
        self._rows = rows

    @override
    def rows(self, key_group: int) -> Iterator[tuple[str, Sequence[Change]]]:
        return self._rows(key_group)


@attrs.define
class TableWriter:
    """A writer of one state's table, which starts a new file after about 48 MB.

    Attributes:
        handle: the savepoint.
        folder: the state's folder.
        schema: the columns of the table.
        mark: a text in the names of the files, after the key groups. It makes the names unique if
            several tasks write files of this state.
        files: the files written so far.
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
        """Add a batch of rows that are all in `key_group`.

        The key group must not be lower than in earlier calls.
        """
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
        """Write the batches that were added since the last file as a new file, if there are any."""
        if self._first is None:
            return
        table = pa.Table.from_batches(self._batches, self.schema)
        name = f"{self.folder}/kg-{self._first:05d}-{self._last:05d}{self.mark}"
        # If a large key group takes several files, a number makes their names unique.
        same = sum(file.path.startswith(name) for file in self.files)
        name += f"-{same}.parquet" if same else ".parquet"
        self.files.append(write_table(self.handle, name, table, first=self._first, last=self._last))
        self._batches, self._bytes, self._first = [], 0, None


def write_table(
    handle: SavepointHandle, name: str, table: pa.Table, *, first: int, last: int
) -> TableFile:
    """Write a table as one Parquet file that a restore accepts; return its description.

    Readers refuse files that are compressed too strongly, because such a file may have been made to
    exhaust memory. If they would refuse the compressed file, an uncompressed file with small row
    groups is written instead.

    Args:
        handle: the savepoint.
        name: the file, relative to the savepoint.
        table: the rows, sorted by key group.
        first: the first key group of the rows.
        last: the last key group of the rows.

    Raises:
        SnapshotTooLargeError: a restore would refuse the uncompressed file, too.
    """
    path, limits = handle.path(name), handle.limits
    most = min(_GROUP_BYTES, limits.max_unpacked_bytes)
    exceeded = ""
    for compression, group_bytes in (("zstd", most), ("none", most >> 6)):
        pieces = list(_row_groups(table, group_bytes))
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(
            sink, table.schema, compression=compression, use_dictionary=False
        ) as writer:
            for piece in pieces:
                writer.write_table(piece)
        data: bytes = sink.getvalue().to_pybytes()
        if compression != "none" and (
            any(piece.nbytes > 2 * _GROUP_BYTES for piece in pieces)
            or table.nbytes > _FILE_BYTES + _MAX_RATIO // 2 * len(data)
        ):
            continue
        limit = _exceeded_limit(path, data, table.nbytes, limits)
        if not limit:
            handle.storage.write(path, [data])
            digest = hashlib.sha256(data).hexdigest()
            return TableFile(name, len(data), digest, table.num_rows, first, last)
        exceeded = exceeded or limit
    allowed = getattr(limits, exceeded.replace("-", "_"))
    raise SnapshotTooLargeError(path, allowed, cure=f"raise restore.{exceeded}")


def _exceeded_limit(path: str, data: bytes, unpacked: int, limits: RestoreConfig) -> str:
    """Return the name of the limit that a Parquet file exceeds, such as ``max-file-bytes``.

    The name is that of an option of ``restore``. It is empty if the file exceeds no limit.

    Args:
        path: the file, for errors.
        data: the file's bytes.
        unpacked: the size of all rows in memory, in bytes.
        limits: the limits of a restore.
    """
    if len(data) > limits.max_file_bytes:
        return "max-file-bytes"
    file = _open_table(data)
    headers, names = PageHeaders(path, data, file.schema), set(file.schema_arrow.names)
    try:
        for group in range(file.num_row_groups):
            headers.rows_at_once(group, names, limits.max_unpacked_bytes)
    except CorruptSnapshotError:
        return "max-unpacked-bytes"
    return "max-unpacked-bytes" if unpacked > _most_unpacked(len(data), limits) else ""


def _row_groups(table: pa.Table, most: int = _GROUP_BYTES) -> Iterator[pa.Table]:
    """Divide a table into groups of consecutive rows that need at most `most` bytes of memory.

    A single row that needs more is a group by itself.
    """
    waiting = [table]
    while waiting:
        rows = waiting.pop()
        lists = [column for column in rows.columns if pa.types.is_list(column.type)]
        unpacked = rows.nbytes + sum(32 * len(pc.list_flatten(column)) for column in lists)
        if rows.num_rows > _ROW_GROUP or (rows.num_rows > 1 and unpacked > most):
            half = min((rows.num_rows + 1) // 2, _ROW_GROUP)
            waiting += [rows.slice(half), rows.slice(0, half)]
        else:
            yield rows


def save_operator(
    view: StateView,
    handle: SavepointHandle,
    uid: str,
    task: SnapshotTask,
    exact: frozenset[str] = frozenset(),
    mark: str = "",
) -> SavedOperator:
    """Write the tables of all states of a view; return the record of the operator.

    If a value of a state does not fit the usual column type, all tables are written again, with
    this state in the exact form; see ``SavedState``.

    Args:
        view: the states and their rows.
        handle: the savepoint.
        uid: the operator.
        task: the running task; if it is cancelled, CancelledError is raised.
        exact: states to write in the exact form from the start.
        mark: see ``TableWriter``.
    """
    while True:
        codecs, writers = {}, {}
        for meta in view.metas:
            codec = TableCodec(view.key, meta, view.max_parallelism, exact=meta.name in exact)
            folder = state_folder(uid, meta.name)
            codecs[meta.name] = codec
            writers[meta.name] = TableWriter(handle, folder, codec.schema, mark)
        unfit = _write_rows(view, codecs, writers, task, uid)
        if not unfit:
            break
        exact |= {unfit}
    states = []
    for meta in view.metas:
        writers[meta.name].cut()
        states.append(SavedState(meta, tuple(writers[meta.name].files), meta.name in exact))
    return SavedOperator(uid, view.max_parallelism, view.key_group_range, view.key, tuple(states))


def _write_rows(
    view: StateView,
    codecs: dict[str, TableCodec],
    writers: dict[str, TableWriter],
    task: SnapshotTask,
    uid: str,
) -> str:
    """Pass each row of a view to the writer of the row's state.

    Stop at the first value that does not fit the usual column type, and return the name of the
    value's state. Return an empty string if all values fit.
    """
    groups = len(view.key_group_range)
    progress = ProgressLog(lambda done: f"{uid}: wrote {done} of {groups} key groups")
    for group in view.key_group_range:
        for name, rows in view.live_rows(group):
            task.check()
            for start in range(0, len(rows), _ROW_GROUP):
                try:
                    batch = codecs[name].to_batch(rows[start : start + _ROW_GROUP])
                except (UnfitError, pa.ArrowInvalid):
                    return name
                writers[name].add(batch, group)
        progress.add(1)
    return ""
