"""Reading a savepoint's tables, whole files checked, only those of the wanted key groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millpond.backend.changes import Change
from millpond.checkpoint.savepoint.metadata import (
    SavedOperator,
    SavedState,
    SavepointHandle,
    TableFile,
)
from millpond.checkpoint.savepoint.rows import TableCodec
from millpond.errors import CorruptSnapshotError
from millpond.keygroups import KeyGroupRange

__all__ = ["checked_bytes", "read_state", "read_table", "table_batches"]

_BATCH = 1 << 15
_MAX_FILE = 4 << 30
_MAX_RATIO = 4096
_EDITED = "; if you have edited it on purpose, call mp.seal_savepoint on the savepoint"


def read_state(
    handle: SavepointHandle, operator: SavedOperator, state: SavedState, groups: KeyGroupRange
) -> Iterator[list[Change]]:
    """The physical rows of a state within some key groups.

    Raises:
        CorruptSnapshotError: a file is damaged, missing, or holds other columns or values.
    """
    codec = TableCodec(operator.key, state.meta, operator.max_parallelism, exact=state.exact)
    for file in state.files:
        if file.last_group < groups.start or file.first_group > groups.end:
            continue
        for batch in table_batches(handle, file, codec.schema, groups):
            rows = codec.from_batch(batch, handle.path(file.path))
            if codec.groups(rows) != batch.column("key_group").to_pylist():
                reason = "a row's key_group is not its key's; see mp.seal_savepoint"
                raise CorruptSnapshotError(handle.path(file.path), reason)
            yield rows


def table_batches(
    handle: SavepointHandle, file: TableFile, schema: pa.Schema, groups: KeyGroupRange
) -> Iterator[pa.RecordBatch]:
    """The rows of a file within some key groups, in the columns of a schema."""
    path = handle.path(file.path)
    for batch in read_table(path, checked_bytes(handle, file), schema):
        column = batch.column("key_group")
        inside = pc.and_(pc.greater_equal(column, groups.start), pc.less_equal(column, groups.end))
        wanted = batch.filter(inside)
        if wanted.num_rows:
            yield wanted


def checked_bytes(handle: SavepointHandle, file: TableFile) -> bytes:
    """The bytes of a table's file; CorruptSnapshotError where they are not what was written."""
    path = handle.path(file.path)
    if handle.storage.size(path) != _sane_size(path, file.size):
        raise CorruptSnapshotError(path, f"its size is not {file.size:,} bytes{_EDITED}")
    data = handle.storage.read(path, 0, file.size)
    if hashlib.sha256(data).hexdigest() != file.digest:
        raise CorruptSnapshotError(path, f"its digest is wrong{_EDITED}")
    return data


def _sane_size(path: str, size: int) -> int:
    if not 0 < size <= _MAX_FILE:
        raise CorruptSnapshotError(path, f"a size of {size:,} bytes makes no sense")
    return size


def read_table(path: str, data: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All rows of a Parquet file in the columns and types of a schema.

    A file that another program has written may have wider or other types (pandas makes floats
    of ints beside nulls); they are cast where no value changes by it.

    Raises:
        CorruptSnapshotError: it is no Parquet, lacks a column, or a value cannot be cast.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        claimed = sum(
            file.metadata.row_group(at).total_byte_size
            for at in range(file.metadata.num_row_groups)
        )
        if claimed > len(data) * _MAX_RATIO:
            raise CorruptSnapshotError(path, "it claims to unpack to an absurd size")
        missing = [name for name in schema.names if name not in file.schema_arrow.names]
        if missing:
            raise CorruptSnapshotError(path, f"the columns {', '.join(missing)} are missing")
        for batch in file.iter_batches(batch_size=_BATCH, columns=schema.names):
            arrays = [batch.column(field.name).cast(field.type) for field in schema]
            yield pa.record_batch(arrays, schema=schema)
    except (pa.ArrowException, OSError) as error:
        raise CorruptSnapshotError(path, f"it is no table of this state: {error}") from error
