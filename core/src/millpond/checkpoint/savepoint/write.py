"""Writing a savepoint: a Parquet table per state, in files of consecutive key groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from millpond.backend.changes import Change
from millpond.backend.spi import StateMeta
from millpond.backend.view import StateView
from millpond.checkpoint.savepoint.metadata import (
    SavedOperator,
    SavedState,
    SavepointHandle,
    TableFile,
    state_folder,
)
from millpond.checkpoint.savepoint.rows import TableCodec
from millpond.checkpoint.tasks import SnapshotTask
from millpond.types.columns import UnfitError

__all__ = ["TableWriter", "save_operator"]

_FILE_BYTES = 64 << 20
_ROW_GROUP = 1 << 16


@attrs.define
class TableWriter:
    """Collects the batches of one state and writes a file whenever there are enough."""

    handle: SavepointHandle
    folder: str
    schema: pa.Schema
    files: list[TableFile] = attrs.field(factory=list)
    _batches: list[pa.RecordBatch] = attrs.field(factory=list)
    _bytes: int = 0
    _first: int | None = None
    _last: int = 0

    def add(self, batch: pa.RecordBatch, key_group: int) -> None:
        """Add a batch of rows of one key group; groups come in ascending order."""
        if self._bytes > _FILE_BYTES and key_group != self._last:
            self.cut()
        self._first = key_group if self._first is None else self._first
        self._last = key_group
        self._batches.append(batch)
        self._bytes += batch.nbytes

    def cut(self) -> None:
        """Write what there is as a file."""
        if self._first is None:
            return
        table = pa.Table.from_batches(self._batches, self.schema)
        name = f"{self.folder}/kg-{self._first:05d}-{self._last:05d}.parquet"
        self.files.append(write_table(self.handle, name, table, first=self._first, last=self._last))
        self._batches, self._bytes, self._first = [], 0, None


def write_table(
    handle: SavepointHandle, name: str, table: pa.Table, *, first: int, last: int
) -> TableFile:
    """Write one Parquet file, sorted by key group, and describe it."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=_ROW_GROUP, compression="zstd")
    data = sink.getvalue().to_pybytes()
    handle.storage.write(handle.path(name), [data])
    digest = hashlib.sha256(data).hexdigest()
    return TableFile(name, len(data), digest, table.num_rows, first, last)


def save_operator(
    view: StateView,
    handle: SavepointHandle,
    uid: str,
    task: SnapshotTask,
    exact: frozenset[str] = frozenset(),
) -> SavedOperator:
    """Write the tables of all states of a view; those in ``exact`` in the exact form.

    Another state with a value that does not fit its natural column types is written anew in the
    exact form.
    """
    while True:
        try:
            states = tuple(_save_states(view, handle, uid, exact, task))
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
) -> Iterator[SavedState]:
    codecs = {
        meta.name: TableCodec(view.key, meta, view.max_parallelism, exact=meta.name in exact)
        for meta in view.metas
    }
    writers = {
        name: TableWriter(handle, state_folder(uid, name), codec.schema)
        for name, codec in codecs.items()
    }
    for group in view.key_group_range:
        for name, rows in view.live_rows(group):
            task.check()
            for part in _parts(rows):
                writers[name].add(_batch(codecs[name], part), group)
    for meta in view.metas:
        writers[meta.name].cut()
        yield _saved(meta, writers[meta.name], exact)


def _saved(meta: StateMeta, writer: TableWriter, exact: frozenset[str]) -> SavedState:
    return SavedState(meta, tuple(writer.files), meta.name in exact)


def _parts(rows: list[Change]) -> Iterator[list[Change]]:
    for start in range(0, len(rows), _ROW_GROUP):
        yield rows[start : start + _ROW_GROUP]


def _batch(codec: TableCodec, rows: list[Change]) -> pa.RecordBatch:
    try:
        return codec.to_batch(rows)
    except (UnfitError, pa.ArrowInvalid) as error:
        raise _UnfitStateError(codec.meta.name) from error
