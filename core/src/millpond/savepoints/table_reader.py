"""Reading a savepoint's tables: files of the wanted key groups only, each checked as a whole."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError
from millpond.keygroups import KeyGroupRange
from millpond.safe_decoding import decoding
from millpond.savepoints.page_headers import PageHeaders
from millpond.savepoints.savepoint_file import METADATA_FILE, SavedOperator, SavedState, TableFile
from millpond.savepoints.table_rows import TableCodec
from millpond.snapshots.handles import SavepointHandle
from millpond.spi.rows import Change

_LOG = logging.getLogger("millpond.savepoint")
_FOREIGN = "it is not a table of this state"
_MAX_RATIO = 256
"""Allowed unpacked bytes per stored byte, in addition to twice ``restore.max-unpacked-bytes``."""
_EDITED = "; if you have edited it on purpose, call mp.seal_savepoint on the savepoint"


def read_state(
    handle: SavepointHandle,
    operator: SavedOperator,
    state: SavedState,
    groups: KeyGroupRange,
    limits: RestoreConfig = RestoreConfig(),
) -> Iterator[list[Change]]:
    """Yield the physical rows of a state within some key groups.

    Args:
        handle: the savepoint.
        operator: the operator in its metadata.
        state: the state in its metadata.
        groups: the key groups to read.
        limits: how much memory may be needed.

    Raises:
        CorruptSnapshotError: a file is damaged, missing, or holds other columns or values.
    """
    codec = state_codec(handle, operator, state)
    for file in state.files:
        if file.last_group < groups.start or file.first_group > groups.end:
            continue
        for batch in table_batches(handle, file, codec.schema, groups, limits):
            rows = codec.from_batch(batch, handle.path(file.path))
            if codec.groups(rows) != batch.column("key_group").to_pylist():
                reason = "a row's key_group is not its key's; see mp.seal_savepoint"
                raise CorruptSnapshotError(handle.path(file.path), reason)
            yield rows


def state_codec(handle: SavepointHandle, operator: SavedOperator, state: SavedState) -> TableCodec:
    """Return the codec of a state's table.

    Raises:
        CorruptSnapshotError: the savepoint describes a type that cannot be read.
    """
    with decoding(handle.path(METADATA_FILE), f"the types of state {state.meta.name!r}"):
        return TableCodec(operator.key, state.meta, operator.max_parallelism, exact=state.exact)


def named_files(
    handle: SavepointHandle,
    folder: str,
    named: Sequence[str],
    *,
    added: bool,
    others: Collection[str] = (),
) -> list[str]:
    """Return the files of a table that is sealed: those in the metadata, or all in the folder.

    Args:
        handle: the savepoint.
        folder: the state's folder.
        named: the files in the metadata.
        added: whether all files in the folder count.
        others: files of another state that has the same folder.

    Raises:
        CorruptSnapshotError: a file of the metadata is missing.
    """
    root = handle.path("x")[:-1]
    found = [path.removeprefix(root) for path in handle.storage.list(handle.path(folder))]
    tables = [path for path in found if path.endswith(".parquet") and path not in others]
    if added:
        return tables
    unnamed = sorted(set(tables) - set(named))
    gone = sorted(set(named) - set(tables))
    if gone:
        raise CorruptSnapshotError(handle.path(gone[0]), _why_gone(handle, gone[0], unnamed))
    for path in unnamed:
        _LOG.warning("%s is not part of the savepoint: savepoint.json does not name it", path)
    return list(named)


def _why_gone(handle: SavepointHandle, name: str, others: Sequence[str]) -> str:
    """Return why a table that is not listed cannot be sealed; readable links are not listed."""
    try:
        handle.storage.size(handle.path(name))
    except CorruptSnapshotError:
        there = f"; there are {', '.join(others)}" if others else ""
        cure = "give the edited table its name, or take all tables with added=True"
        return f"it is missing{there}; {cure}"
    return "it is a symbolic link, or is reached by one; put the table itself in its place"


def table_batches(
    handle: SavepointHandle,
    file: TableFile,
    schema: pa.Schema,
    groups: KeyGroupRange,
    limits: RestoreConfig = RestoreConfig(),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file within some key groups, in the columns of a schema."""
    path = handle.path(file.path)
    for batch in read_table(path, checked_bytes(handle, file, limits), schema, limits):
        column = batch.column("key_group")
        extent = pc.min_max(column).as_py()
        if column.null_count or extent["min"] < file.first_group or extent["max"] > file.last_group:
            reason = f"it holds others than the key groups {file.first_group} to {file.last_group}"
            raise CorruptSnapshotError(path, reason)
        inside = pc.and_(pc.greater_equal(column, groups.start), pc.less_equal(column, groups.end))
        wanted = batch.filter(inside)
        if wanted.num_rows:
            yield wanted


def checked_bytes(
    handle: SavepointHandle, file: TableFile, limits: RestoreConfig = RestoreConfig()
) -> bytes:
    """Return the bytes of a table's file; CorruptSnapshotError if they are not the written ones."""
    path = handle.path(file.path)
    _check_size(path, file.size, limits)
    if handle.storage.size(path) != file.size:
        raise CorruptSnapshotError(path, f"its size is not {file.size:,} bytes{_EDITED}")
    data = handle.storage.read(path, 0, file.size)
    if hashlib.sha256(data).hexdigest() != file.digest:
        raise CorruptSnapshotError(path, f"its digest is wrong{_EDITED}")
    return data


def edited_bytes(handle: SavepointHandle, name: str, limits: RestoreConfig) -> bytes:
    """Return the bytes of a table's file, edited or not."""
    path = handle.path(name)
    _check_size(path, handle.storage.size(path), limits)
    return handle.storage.read_all(path, limits.max_file_bytes)


def _check_size(path: str, size: int, limits: RestoreConfig) -> None:
    if size > limits.max_file_bytes:
        reason = f"its {size:,} bytes are more than restore.max-file-bytes allows"
        raise CorruptSnapshotError(path, reason)


def read_table(
    path: str, data: bytes, schema: pa.Schema, limits: RestoreConfig = RestoreConfig()
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a Parquet file in the columns and types of a schema.

    Other programs may write wider or other types: pandas makes floats of ints next to nulls. Values
    are cast if no value changes by it. The limits determine how many rows are read at once.

    Raises:
        CorruptSnapshotError: it is not Parquet, lacks a column, or a value cannot be cast.
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
    wanted, room = set(schema.names), _room(len(data), limits)
    for group in range(file.num_row_groups):
        with decoding(path, _FOREIGN):
            rows = headers.rows_at_once(group, wanted, limits.max_unpacked_bytes)
        batches = file.iter_batches(rows, row_groups=[group], columns=schema.names)
        while (batch := _next_batch(path, batches, schema)) is not None:
            room -= batch.nbytes
            if room < 0:
                reason = f"its {len(data):,} bytes unpack to too many"
                raise CorruptSnapshotError(
                    path, f"{reason}; restore.max-unpacked-bytes allows more"
                )
            yield batch


def _room(size: int, limits: RestoreConfig) -> int:
    """Return the number of bytes that a table of `size` bytes may unpack to."""
    return 2 * limits.max_unpacked_bytes + _MAX_RATIO * size


def exceeded_limit(path: str, data: bytes, unpacked: int, limits: RestoreConfig) -> str:
    """Return the limit that a written table exceeds, so that no restore reads it; '' if none.

    Args:
        path: the file, for errors.
        data: the file's bytes.
        unpacked: the size of all its rows in memory, in bytes.
        limits: the limits.
    """
    if len(data) > limits.max_file_bytes:
        return "max-file-bytes"
    if unpacked > _room(len(data), limits):
        return "max-unpacked-bytes"
    file = _open_table(data)
    headers, names = PageHeaders(path, data, file.schema), set(file.schema_arrow.names)
    try:
        for group in range(file.num_row_groups):
            headers.rows_at_once(group, names, limits.max_unpacked_bytes)
    except CorruptSnapshotError:
        return "max-unpacked-bytes"
    return ""


def _next_batch(
    path: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema
) -> pa.RecordBatch | None:
    """Return the next rows, cast to the types of a schema; None at the end."""
    with decoding(path, _FOREIGN):
        batch = next(batches, None)
        if batch is None:
            return None
        arrays = [batch.column(field.name).cast(field.type) for field in schema]
        made = pa.record_batch(arrays, schema=schema)
        made.validate(full=True)
    return made


def _open_table(data: bytes) -> pq.ParquetFile:
    # Thrift sets memory aside for as many elements as a list in the footer claims. Each of them
    # needs some bytes of the file.
    elements = max(1000, len(data) // 16)
    return pq.ParquetFile(
        pa.BufferReader(data),
        pre_buffer=False,
        thrift_string_size_limit=max(len(data), 1),
        thrift_container_size_limit=elements,
    )
